"""All checks of the examples that an estimate was fitted to, as `fit` makes them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from labelnoise.checks.around import Around
from labelnoise.checks.basis import check_basis
from labelnoise.checks.copies import check_copied_labels
from labelnoise.checks.findings import Diagnostics, Finding
from labelnoise.checks.learnt import check_columns, check_learnt, knows_labels
from labelnoise.checks.metric import check_metric
from labelnoise.checks.names import check_names

if TYPE_CHECKING:
    from labelnoise.clean_class import CleanClass
    from labelnoise.intervals import ConfidenceInterval

_NO_FEATURES = "there are neighbours and no features"


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
    findings = [check_names(classes, unlabeled)]
    use = labels >= 0
    if X is None:
        findings += [_untested(name, _NO_FEATURES) for name in ("columns", "metric")]
    else:
        some = X if use.all() else X[use]
        findings.append(check_columns(some, labels[use], classes))
        findings.append(check_metric(some, labels[use], metric))
    if near is None:
        why = "neighbours were searched for in rounds"
        names = "basis", "copied labels", "learnt"
        return findings + [_untested(name, why) for name in names]
    around = Around.of(labels, near)
    findings += [check_basis(X, around), check_copied_labels(around)]
    if found is None:
        why = "T is that of the label triples, without a model of the clean class"
        findings.append(_untested("learnt", why))
    else:
        findings.append(check_learnt(X, around, found))
    nothing = knows_labels(Diagnostics(tuple(findings)), found)
    if nothing is not None:
        findings = [nothing, *(finding for finding in findings if finding.name != "basis")]
    return findings


def widened(
    interval: ConfidenceInterval, findings: Diagnostics, found: CleanClass | None
) -> ConfidenceInterval:
    """Widen intervals to what may be true where features know the labels.

    Features that have taken up a part of the wrong labels may have taken up as much again. Where
    nothing is left to estimate from, anything may be true.
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
    if found is None or "learnt" not in findings or findings["learnt"].severity != "serious":
        return interval
    h, triples = (1 - float(p @ np.diag(T)) for T, p in (found.given_h, found.of_triples))
    low, high = interval.noise_rate
    high = max(high, min(2 * triples - h, 1.0))
    return replace(interval, noise_rate=np.array([min(low, h), high]))


def _all(ends: np.ndarray) -> np.ndarray:
    return np.stack([np.zeros_like(ends[0]), np.ones_like(ends[1])])


def _untested(name: str, why: str) -> Finding:
    return Finding(name, True, None, f"Not tested ({name}): {why}.")
