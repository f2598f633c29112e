"""Whether the other metric finds neighbours whose labels agree more often."""

from __future__ import annotations

from typing import Any

import numpy as np

from labelnoise.checks.findings import Finding

ROWS = 1000
CLEARLY = 3.0  # standard errors of the difference
NOTABLE = 0.03  # difference of the shares of equal labels
_SEED = 0


def check_metric(X: Any, labels: np.ndarray, metric: str) -> Finding:
    """Compare how often the nearest neighbours agree, by both metrics, in a sample of rows."""
    rows = np.random.default_rng(_SEED).permutation(len(labels))[:ROWS]
    some, label = np.asarray(X)[rows].astype(np.float64), labels[rows]
    size = np.sqrt((some**2).sum(axis=1, keepdims=True))
    unit = some / np.maximum(size, 1e-300)
    near = {
        "cosine": -(unit @ unit.T),
        "euclidean": (size**2).T - 2 * some @ some.T,
    }
    same = {}
    for name, distance in near.items():
        np.fill_diagonal(distance, np.inf)
        first = np.argpartition(distance, 1, axis=1)[:, :2]
        same[name] = (label[first] == label[:, None]).mean(axis=1)
    other = "cosine" if metric == "euclidean" else "euclidean"
    gain = same[other] - same[metric]
    error = float(gain.std() / np.sqrt(len(rows)))
    better = float(gain.mean())
    sentence = (
        f"Neighbours by {metric} have the same label in {same[metric].mean():.1%} of cases, and by "
        f"{other} in {same[other].mean():.1%} (in a sample of {len(rows):,} rows)."
    )
    if better > max(NOTABLE, CLEARLY * error):
        return Finding("metric", False, better, sentence, remedy=f"Use metric={other!r}.")
    return Finding("metric", True, better, sentence)
