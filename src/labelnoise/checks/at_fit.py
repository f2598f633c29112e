"""All checks that `fit` makes: of the triples, of the model of the clean class, of the data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from labelnoise.checks.around import Around
from labelnoise.checks.basis import check_basis, check_size
from labelnoise.checks.copies import check_copied_labels, rate_of_furthest
from labelnoise.checks.dependence import check_clean_class
from labelnoise.checks.findings import Diagnostics, Finding
from labelnoise.checks.fit import check_fit, overlap_of
from labelnoise.checks.learnt import check_columns, check_learnt, knows_labels
from labelnoise.checks.matrix import check_matrix, check_pairs, check_solution
from labelnoise.checks.metric import check_metric
from labelnoise.checks.names import check_names

if TYPE_CHECKING:
    from labelnoise.clean_class import CleanClass
    from labelnoise.consensus import Consensus
    from labelnoise.examples import Examples
    from labelnoise.intervals import ConfidenceInterval
    from labelnoise.solvers import Solution

_OVERLAP_OF_ROUNDS = 3.0  # each example is in three triples of a round, on average
_NO_FEATURES = "there are neighbours and no features"


def check_triples(
    consensus: Consensus,
    solution: Solution,
    solver: str,
    data: Examples | None,
    classes: np.ndarray,
) -> list[Finding]:
    """Check the T that explains the triples, which overlap as neighbours tell, where known."""
    overlap = 1.0
    if data is not None and data.near is None:
        overlap = _OVERLAP_OF_ROUNDS
    elif data is not None and data.near is not None:
        ends = solution.transition_matrix, solution.class_prior
        overlap = overlap_of(data.near.indices, data.labels, *ends)
    return [
        *check_solution(consensus, solution, classes),
        check_fit(consensus, solution, solver, overlap, classes),
        check_pairs(consensus, overlap, classes),
    ]


def check_refined(
    before: Diagnostics, consensus: Consensus, found: CleanClass, classes: np.ndarray
) -> Diagnostics:
    """Check the T of the model of the clean class; what the triples say against T stands.

    Whether the triples' T explains the triples says nothing of another T.
    """
    kept = [one for one in before if one.name != "fit" or found.case.share == 1]
    warned = {one.name for one in kept if not one.ok}
    has_label = consensus.label_counts() > 0
    ends = found.transition_matrix, found.class_prior
    new = check_matrix(consensus, *ends, has_label, classes)
    new = [one for one in new if not one.ok or one.name not in warned]
    return Diagnostics(tuple(kept)).replaced([*new, *check_clean_class(found)])


def check_examples(
    X: Any,
    labels: np.ndarray,
    near: np.ndarray | None,
    found: CleanClass | None,
    *,
    classes: np.ndarray,
    metric: str,
    unlabeled: Any,
) -> list[Finding]:
    """Check what examples X (N, d), labels (N,) and neighbours (N, k) tell without the triples.

    `found` is the model of the clean class. What is missing is None.
    """
    use = labels >= 0
    findings = [check_names(classes, unlabeled), *_of_features(X, labels, use, classes, metric)]
    columns = next(finding for finding in findings if finding.name == "columns")
    if near is None:
        why = "neighbours were searched for in rounds"
        return findings + [
            _untested(name, why) for name in ("basis", "copied labels", "learnt", "size")
        ]
    around = Around.of(labels, near)
    why = "T is that of the label triples, without a model of the clean class"
    learnt = _untested("learnt", why) if found is None else check_learnt(X, around, found)
    basis = check_basis(X, around)
    if basis.ok:
        basis = knows_labels(columns, learnt, found) or basis
    return [basis, learnt, check_copied_labels(around), check_size(around), *findings]


def _of_features(
    X: Any, labels: np.ndarray, use: np.ndarray, classes: np.ndarray, metric: str
) -> list[Finding]:
    if X is None:
        return [_untested(name, _NO_FEATURES) for name in ("columns", "metric")]
    X, labels = X if use.all() else X[use], labels[use]
    return [check_columns(X, labels, classes), check_metric(X, labels, metric)]


def widened(
    interval: ConfidenceInterval, findings: Diagnostics, found: CleanClass | None, data: Any
) -> ConfidenceInterval:
    """Widen intervals to what may be true where features know the labels, or labels were copied.

    Labels may then be wrong as often as the furthest neighbours differ, and features that have
    taken up a part of the wrong labels may have taken up as much again. Where nothing is left to
    estimate from, anything may be true.
    """
    if not findings.estimable:
        return replace(
            interval,
            noise_rate=np.array([0.0, 1.0]),
            transition_matrix=_all(interval.transition_matrix),
            class_prior=_all(interval.class_prior),
            variance=None,
            caveat="nothing bounds the noise rate: see the findings",
        )
    serious = {finding.name for finding in findings.serious}
    low, high = interval.noise_rate
    if "learnt" in serious and found is not None:
        h, triples = (1 - float(p @ np.diag(T)) for T, p in (found.given_h, found.of_triples))
        low, high = min(low, h), max(high, min(2 * triples - h, 1.0))
    if serious & {"learnt", "copied labels"}:
        high = max(high, rate_of_furthest(Around.of(data.labels, data.near.indices)))
    return replace(interval, noise_rate=np.array([low, high]))


def _all(ends: np.ndarray) -> np.ndarray:
    return np.stack([np.zeros_like(ends[0]), np.ones_like(ends[1])])


def _untested(name: str, why: str) -> Finding:
    return Finding(name, True, None, f"Not tested ({name}): {why}.")
