"""Annotators: each example was labelled by three of five people, and there are no features."""

import numpy as np
import pandas as pd

from labelnoise import AnnotatorHOC

rng = np.random.default_rng(0)
names = np.array(["benign", "malignant", "unclear"])
true = rng.choice(3, 2000, p=[0.6, 0.3, 0.1])


def label_by(T: np.ndarray) -> np.ndarray:
    """What a person with these habits calls each example."""
    chance = np.cumsum(T[true], axis=1)
    return names[(rng.random((len(true), 1)) > chance).sum(axis=1).clip(max=2)]


def careful(rate: float) -> np.ndarray:
    """Errors to both sides alike."""
    return (1 - 1.5 * rate) * np.eye(3) + rate / 2


habits = {
    "Ana": careful(0.05),
    "Ben": careful(0.10),
    "Cem": careful(0.30),
    "Dia": np.array([[0.98, 0.01, 0.01], [0.35, 0.60, 0.05], [0.10, 0.10, 0.80]]),  # plays it down
    "Eva": careful(0.15),
}
asked = rng.permuted(np.tile(np.arange(5) < 3, (2000, 1)), axis=1)  # three of the five

# A row for each label, as annotation tools export them.
example, who = np.nonzero(asked)
people = np.array(list(habits))
label = np.column_stack([label_by(T) for T in habits.values()])[example, who]

table = pd.DataFrame({"example": example, "annotator": people[who], "label": label})
wide = table.pivot(index="example", columns="annotator", values="label")
est = AnnotatorHOC(per_annotator=True).fit(wide)
for name, rate in zip(est.annotators_, est.noise_rates_, strict=True):
    print(f"{name}: {rate:.1%} of the labels are wrong")

dia = est.transition_matrices_[list(est.annotators_).index("Dia")]
print(f"\nDia calls {dia[1, 0]:.0%} of the malignant ones benign.")

right = (est.predict() == names[true]).mean()
one_label = (label == names[true][example]).mean()
print(f"Single labels are right in {one_label:.1%}, the estimated classes in {right:.1%}.")
