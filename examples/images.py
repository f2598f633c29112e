"""Images: from pictures and labels to a list of labels to look at again.

The pictures are drawn here, so that the example needs no download: discs, squares and crosses.
"""

import numpy as np

from labelnoise import HOC
from labelnoise.noise import class_conditional

SIZE = 16
rng = np.random.default_rng(0)


def draw(shape: str) -> np.ndarray:
    """One grey image (SIZE, SIZE) with the shape somewhere near its middle."""
    down, right = np.mgrid[:SIZE, :SIZE] - rng.normal(SIZE / 2, 0.4, (2, 1, 1))
    radius = rng.uniform(4, 5)
    inside = {
        "disc": down**2 + right**2 < radius**2,
        "square": np.maximum(abs(down), abs(right)) < 0.85 * radius,
        "cross": np.minimum(abs(down), abs(right)) < 1.5,
    }[shape]
    return 200 * inside + rng.uniform(0, 50, (SIZE, SIZE))


true = rng.choice(["cross", "disc", "square"], 900)
images = np.stack([draw(shape) for shape in true])

# What an annotator made of them: a quarter of the squares are called discs.
T = [[0.95, 0.05, 0.00], [0.00, 0.90, 0.10], [0.00, 0.25, 0.75]]
labels = class_conditional(true, T, random_state=1).labels

# Pixels will do for these. For photographs take a network's representations, which a kill does
# not lose:  features = embed_images("photos/", out="features.npy").features
features = images.reshape(len(images), -1)

est = HOC().fit(features, labels)
print(est)

suspects = est.suspects()
print(f"\n{suspects}")

# Known only because we made the noise ourselves.
found = (labels != true)[suspects.index]
print(f"\n{found.sum()} of these {len(suspects)} labels are wrong.")
