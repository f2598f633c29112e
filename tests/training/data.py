"""Small pictures and rows of features to train on, and short plans."""

import numpy as np

from labelnoise import LocalHOC
from labelnoise.io.datasets import load_arrays
from labelnoise.noise import pair_flip
from labelnoise.training import Plan, Schedule, method_named

K = 4


def pictures(n, seed, size=10, contrast=40):
    """Coloured squares, of another pattern for each class, and noise."""
    patterns = np.random.default_rng(99).standard_normal((K, size // 2, size // 2, 3))
    patterns = patterns.repeat(2, axis=1).repeat(2, axis=2)
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    images = 128 + contrast * patterns[y] + 40 * rng.standard_normal((n, size, size, 3))
    return np.clip(images, 0, 255).astype(np.uint8), y


def picture_data(n=400, corrupt=None, contrast=40):
    images, y = pictures(n, 0, contrast=contrast)
    test_images, test_y = pictures(200, 1, contrast=contrast)
    labels = y if corrupt is None else corrupt(y, random_state=0).labels
    return load_arrays(images, labels, test_images, test_y)


def rows(n, seed):
    """Gaussian clusters in 32 dimensions, which overlap a little."""
    centres = np.random.default_rng(99).standard_normal((K, 32))
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    return (centres[y] + rng.standard_normal((n, 32))).astype(np.float32), y


def row_data(n):
    """Rows with 40% of each class labelled as the next one."""
    X, y = rows(n, 0)
    noisy = pair_flip(y, 0.4, random_state=0)
    return load_arrays(X, noisy.labels, *rows(1000, 1))


def short_plan(first=2, final=3, batch_size=50):
    start = Schedule(((0.05, first),), batch_size=batch_size)
    return Plan(start, start, Schedule(((0.05, final), (0.005, 2)), batch_size=batch_size))


def quick(name):
    """A method with the lengths and sizes of its recipe for a few hundred steps."""
    small_loss = {"noise_rate": 0.4, "ramp": 0.3, "batch_size": 32}
    settings = {
        "co-teaching": small_loss,
        "co-teaching+": {**small_loss, "warm_up": 0.6},
        "jocor": small_loss,
        "ptd-r-v": {"n_parts": 4},
        "hoc-local": {"local": LocalHOC(n_local=5, local_size=150)},
    }
    return method_named(name, **settings.get(name, {}))


def without_seconds(log):
    return [{name: value for name, value in entry.items() if name != "seconds"} for entry in log]
