"""Whether there is anything to estimate from."""

from __future__ import annotations

from typing import Any

import numpy as np

from labelnoise.checks.around import Around
from labelnoise.checks.findings import BASIS, Finding

LEAST_OF_A_CLASS = 5  # examples, on average; benchmarks/results/diagnostics.md: "few"
ENOUGH_OF_A_CLASS = 50  # same table: with 40, error above .2 in a third of honest data
BY_CHANCE = 4.0  # standard errors of the agreement of neighbours
_PAIRS_TWICE = 2.0  # of the variance: most neighbours are neighbours of each other


def check_basis(X: Any, around: Around) -> Finding:
    """Whether neighbours agree at all, in classes of more than a few examples."""
    n, k = around.near.shape
    counts = np.bincount(around.labels)
    counts = counts[counts > 0]
    each = n / len(counts)
    agreement, chance = float(around.same.mean()), around.chance
    error = np.sqrt(_PAIRS_TWICE * chance * (1 - chance) / (n * k))
    constant = X is not None and bool((np.asarray(X) == np.asarray(X)[0]).all())
    if each < LEAST_OF_A_CLASS:
        ids = " They look like ids." if np.median(counts) == 1 else ""
        why = f"there are {len(counts)} labels, and {each:.1f} examples of each on average.{ids}"
        remedy = "Give the column that has the classes, or merge classes."
        return _nothing(each, why, remedy)
    measure = (
        f"neighbours have the same label in {agreement:.1%} of cases, and any two examples in "
        f"{chance:.1%}"
    )
    if constant or agreement < chance + BY_CHANCE * error:
        why = "all features are constant." if constant else f"{measure}."
        remedy = (
            "Check that the rows of features and labels belong together, or use features that "
            "tell the classes."
        )
        return _nothing((agreement - chance) / max(error, 1e-300), why, remedy)
    sentence = f"The features tell the classes: {measure}."
    return Finding(BASIS, True, float((agreement - chance) / max(error, 1e-300)), sentence)


def check_size(around: Around) -> Finding:
    """Whether there are so few examples that T is often far off, beyond its interval."""
    counts = np.bincount(around.labels)
    each = len(around.labels) / np.count_nonzero(counts)
    sentence = f"There are {each:.0f} examples of each label on average"
    if each >= ENOUGH_OF_A_CLASS:
        return Finding("size", True, each, f"{sentence}.")
    sentence = f"{sentence}: T may be further off than its interval says."
    remedy = "Label more examples, or merge classes."
    return Finding("size", True, each, sentence, "note", remedy)


def _nothing(value: float, why: str, remedy: str) -> Finding:
    sentence = f"The noise rate cannot be estimated, because {why}"
    return Finding(BASIS, False, float(value), sentence, "serious", remedy)
