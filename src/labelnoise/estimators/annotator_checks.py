"""What annotators' labels say of the model behind `AnnotatorHOC`: a finding for each assumption.

Labels are class numbers (N, A), -1 where missing, and `posterior` is P(true class) (N, K).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from labelnoise.checks import Finding

_FEW_EXAMPLES = 30
_FEW_LABELS_PER_CLASS = 10
_MANY_DEVIATIONS = 4  # a chance of 1 in 16,000, as some two hundred pairs are tested
_NOTABLE_SHARE = 0.02  # smaller departures hardly change T
_MOST_COMPARED = 20  # annotators, those with most labels, whose pairs are tested


def check_triples(views: np.ndarray, n: int) -> Finding:
    """Whether enough examples have the three labels that identify T."""
    labelled = int((views >= 0).any(axis=1).sum())
    few = n < _FEW_EXAMPLES
    return Finding(
        "triples",
        not few,
        float(n),
        f"{n:,} of {labelled:,} labelled examples have at least three labels, which identify T"
        + (
            ": they are too few, and T is hardly more than a guess. Collect a third label for "
            "more examples, or give X."
            if few
            else "."
        ),
    )


def check_overlap(views: np.ndarray, names: np.ndarray) -> Finding:
    """Whether annotators are linked by examples that several of them labelled."""
    given = sp.csr_array((views >= 0).astype(float))
    _, part = connected_components(given.T @ given, directed=False)
    present = np.flatnonzero((views >= 0).any(axis=0))
    sets, sizes = np.unique(part[present], return_counts=True)
    apart = names[present[part[present] != sets[sizes.argmax()]]]
    return Finding(
        "overlap",
        len(sets) == 1,
        float(len(sets)),
        f"Annotators fall into {len(sets)} sets that have no example in common. That the classes "
        f"of {_some(apart)} are those of the others rests on their names and on the shrinkage "
        f"alone: have some examples labelled by both."
        if len(sets) > 1
        else "Annotators are linked by examples that several labelled.",
    )


def check_counts(labels: np.ndarray, K: int, strength: float, names: np.ndarray) -> Finding:
    """Which annotators gave too few labels to have a matrix of their own."""
    few = np.flatnonzero(labels < _FEW_LABELS_PER_CLASS * K - 0.5)
    return Finding(
        "annotators",
        not len(few),
        float(labels.min()),
        f"{len(few)} of {len(names)} annotators gave fewer than {_FEW_LABELS_PER_CLASS} labels per "
        f"class: {_some(f'{names[a]} ({labels[a]:.0f})' for a in few)}. Their matrices are mostly "
        f"the common one, which counts for {strength:,.1f} labels of each class: do not judge them "
        f"by it."
        if len(few)
        else f"Every annotator gave at least {labels.min():,.0f} labels. The common matrix counts "
        f"for {strength:,.1f} labels of each class beside each annotator's own.",
    )


def check_one_matrix(
    own: np.ndarray, posterior: np.ndarray, T: np.ndarray, names: np.ndarray
) -> Finding:
    """Whether annotators are wrong as often as one T for all expects of their examples."""

    def compared() -> Iterable[tuple[str, np.ndarray, np.ndarray]]:
        for a, labels in enumerate(own.T):
            rows = np.flatnonzero(labels >= 0)
            wrong = 1 - posterior[rows, labels[rows]]
            yield f"{names[a]} is wrong in", wrong, posterior[rows] @ (1 - np.diag(T))

    _, far, worst = _farthest(compared())
    return Finding(
        "one matrix",
        not far,
        worst,
        f"One T for all does not describe the annotators: {far}. Use per_annotator=True."
        if far
        else "One T for all describes how often each annotator is wrong.",
    )


def check_independence(
    own: np.ndarray, posterior: np.ndarray, matrices: np.ndarray, names: np.ndarray
) -> Finding:
    """Whether pairs of annotators agree as often as the model expects of their examples."""
    most = np.argsort(-(own >= 0).sum(axis=0), kind="stable")[:_MOST_COMPARED]

    def compared() -> Iterable[tuple[str, np.ndarray, np.ndarray]]:
        for a, b in combinations(sorted(most.tolist()), 2):
            rows = np.flatnonzero((own[:, a] >= 0) & (own[:, b] >= 0))
            agree = (own[rows, a] == own[rows, b]).astype(float)
            expected = posterior[rows] @ (matrices[a] * matrices[b]).sum(axis=1)
            yield f"on {len(rows):,} examples {names[a]} and {names[b]} agree in", agree, expected

    tested, far, worst = _farthest(compared())
    if not tested:
        said = "Whether annotators err independently was not tested: no two have enough in common."
    elif far:
        said = (
            f"The model does not explain how often annotators agree: {far}. They differ from "
            f"each other more than the model allows, or one copied another, or some examples are "
            f"harder than others of their class, so that errors coincide and T shows less noise "
            f"than there is."
        )
    else:
        said = "Pairs of annotators agree as often as independent errors explain."
    return Finding("independence", not far, worst, said)


def _farthest(compared: Iterable[tuple[str, np.ndarray, np.ndarray]]) -> tuple[int, str, float]:
    """How many were tested, what to say of the one farthest off, if notable, and its deviations.

    Compared are what was observed and what was expected of the same examples, if they are many.
    """
    tested, said, worst = 0, "", 0.0
    for name, observed, expected in compared:
        if len(observed) < _FEW_EXAMPLES:
            continue
        tested += 1
        off = observed - expected
        deviations = float(off.mean() / max(off.std() / len(off) ** 0.5, 1e-12))
        notable = abs(off.mean()) > _NOTABLE_SHARE and abs(deviations) > _MANY_DEVIATIONS
        if notable and abs(deviations) > abs(worst):
            said = f"{name} {observed.mean():.1%}, expected {expected.mean():.1%}"
        worst = max(worst, deviations, key=abs)
    return tested, said, worst


def _some(names: Iterable[Any], most: int = 5) -> str:
    shown = [str(name) for name in names]
    more = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {more} more" if more > 0 else "")
