"""How many of the nearest neighbours an approximate search found."""

from __future__ import annotations

import numpy as np

from labelnoise.checks.findings import Finding

LEAST_FOUND = 0.95  # of the nearest neighbours


def check_search(
    X: np.ndarray,
    labels: np.ndarray,
    neighbors: np.ndarray,
    metric: str,
    sources: np.ndarray | None,
    T: np.ndarray,
    p: np.ndarray,
) -> Finding:
    """How many of the nearest an approximate search found, and what the others would do to T.

    A sample of rows is searched exactly. Its triples, with exact and with the found neighbours,
    move the posterior joint of class and label by a little, to first order: one step of EM.
    """
    from labelnoise.neighbors.approximate import found_share

    rows, exact, recall = found_share(X, neighbors, metric, sources)

    def joint(others: np.ndarray) -> np.ndarray:
        triples = labels[np.column_stack([rows, others[:, :2]])]
        share = p * T.T[triples].prod(axis=1)
        share /= np.maximum(share.sum(axis=1, keepdims=True), 1e-300)
        result = np.zeros_like(T)
        for label in triples.T:
            np.add.at(result.T, label, share / (3 * len(rows)))
        return result

    moved = p[:, None] * T + joint(exact) - joint(neighbors[rows])
    moved = np.maximum(moved, 0)
    mass = moved.sum(axis=1, keepdims=True)
    moved = np.divide(moved, mass, out=T.copy(), where=mass > 0)
    change = float(np.abs(moved - T).sum() / len(T))
    return Finding(
        "search",
        recall >= LEAST_FOUND,
        recall,
        f"Neighbours were searched for approximately, and {recall:.2%} of the nearest were found "
        f"(by {len(rows):,} examples that were searched exactly). Were all found, rows of T would "
        f"change by about {change:.4f}.",
        remedy="" if recall >= LEAST_FOUND else "Use search='exact'.",
    )
