"""Which labels are probably wrong, and what to do with them: rank, weigh, drop or relabel.

All of it follows from the posterior P(clean class | features, neighbours, own label).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise._validation import class_numbers
from labelnoise.baselines import probabilities
from labelnoise.labels import class_names

_COLUMNS = ("index", "given", "suggested", "probability")
_ROWS_PRINTED = 10


@dataclass(frozen=True, repr=False, eq=False)
class Suspects:
    """Labels that are probably wrong, the surest first.

    `index` are their rows, `given` the labels, `suggested` the most probable other classes, and
    `probability` is that of being wrong. `expected_errors` are those in all `n_labels` labels.
    """

    index: np.ndarray
    given: np.ndarray
    suggested: np.ndarray
    probability: np.ndarray
    expected_errors: float
    n_labels: int

    def __len__(self) -> int:
        return len(self.index)

    def columns(self) -> dict[str, np.ndarray]:
        """The four columns by name: for a data frame, or a file."""
        return {name: getattr(self, name) for name in _COLUMNS}

    def __repr__(self) -> str:
        share = self.expected_errors / max(self.n_labels, 1)
        lines = [f"{len(self):,} of {self.n_labels:,} labels ({share:.1%}) are probably wrong."]
        if len(self):
            lines.append(f"{'row':>9}  {'given':<12}  {'suggested':<12}  wrong")
        for row in list(zip(*self.columns().values(), strict=True))[:_ROWS_PRINTED]:
            lines.append("{:>9}  {!s:<12}  {!s:<12}  {:.1%}".format(*row))
        if len(self) > _ROWS_PRINTED:
            lines.append(f"... and {len(self) - _ROWS_PRINTED:,} more")
        return "\n".join(lines)


def find_suspects(
    posterior: Any, labels: Any, classes: Any = None, rows: np.ndarray | None = None
) -> Suspects:
    """Rank the labels that are probably wrong: as many as are expected to be.

    Takes a posterior (N, K), class numbers (N,), -1 where unlabelled, what they stand for, and the
    row numbers (N,) that `index` shall have.
    """
    posterior, labels = _checked(posterior, labels)
    K = posterior.shape[1]
    names = np.arange(K) if classes is None else class_names(classes)
    if len(names) != K:
        raise LabelNoiseError(f"Expected {K} classes, as posterior has, but there are {len(names)}")
    wrong = np.where(labels >= 0, 1 - reweight(posterior, labels), 0)
    index = np.argsort(-wrong, kind="stable")[: round(wrong.sum())]
    others = posterior[index]
    others[np.arange(len(index)), labels[index]] = -1
    given, suggested = names[labels[index]], names[others.argmax(axis=1)]
    count = int((labels >= 0).sum())
    shown = index if rows is None else rows[index]
    return Suspects(shown, given, suggested, wrong[index], float(wrong.sum()), count)


def reweight(posterior: Any, labels: Any) -> np.ndarray:
    """(N,) probability that each label is right, to weight examples by; 0 where unlabelled."""
    posterior, labels = _checked(posterior, labels)
    return np.where(labels >= 0, posterior[np.arange(len(labels)), labels], 0)


def drop(posterior: Any, labels: Any, least: float = 0.5) -> np.ndarray:
    """(N,) bool, the examples to keep: their label is right with a probability of `least`."""
    return reweight(posterior, labels) >= least


def relabel(posterior: Any, labels: Any, least: float = 0.5) -> np.ndarray:
    """(N,) class numbers: the most probable class where its probability is `least`, or the label.

    Unlabelled examples are labelled by the same rule, or stay at -1.
    """
    posterior, labels = _checked(posterior, labels)
    return np.where(posterior.max(axis=1) >= least, posterior.argmax(axis=1), labels)


def _checked(posterior: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    posterior = probabilities(posterior)
    return posterior, class_numbers(labels, posterior.shape[1], len(posterior), least=-1)
