"""P(clean class) of each example given its own label too, and T of a part of the data.

The posterior is all that suspects, groups and neighbourhoods need. Divided by ``T[k, y]`` it says
what the features say of class k, up to a factor of the example; so "T given h" of any part of the
data is ``argmax_T sum_n w_n log sum_k q_n(k) T[k, y_n] / T*[k, y_n]`` with the posterior q that
belongs to T*. Its sums over examples add up over shards.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from labelnoise.solvers.rows import concentration, normalised

STEPS = 100  # of EM; of the fit to a given joint


def counted_joint(posterior: np.ndarray, labels: np.ndarray, K: int) -> np.ndarray:
    """(K, K) sums of the posterior (N, K) over the examples with each label, columns are labels."""
    joint = np.zeros((K, K))
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels[order], np.arange(K + 1))
    for label in range(K):
        rows = order[ends[label] : ends[label + 1]]
        joint[:, label] = posterior[rows].sum(axis=0, dtype=np.float64)
    return joint


def tilted(posterior: np.ndarray, labels: np.ndarray, joint: np.ndarray) -> np.ndarray:
    """The posterior (N, K) weighted by class and label, so that it adds up to `joint` (K, K).

    Columns of `joint` sum to the shares of the labels. The factors are those of iterative
    proportional fitting; examples keep their order within a label and class.
    """
    result = np.array(posterior, np.float32)
    n = len(labels)
    for label in np.unique(labels).tolist():
        rows = np.flatnonzero(labels == label)
        some, target = result[rows].astype(np.float64) + 1e-12, n * joint[:, label]
        target = target * len(rows) / max(target.sum(), 1e-300)
        factor = np.ones(joint.shape[0])
        for _ in range(STEPS):
            tilt = some * factor
            tilt /= tilt.sum(axis=1, keepdims=True)
            found = tilt.sum(axis=0)
            if np.abs(found - target).max() < 1e-6 * len(rows):
                break
            factor *= np.where(target > 0, target / np.maximum(found, 1e-300), 0)
            factor /= factor.max()
        result[rows] = tilt
    return result


class PartMatrices(NamedTuple):
    """T of each part of the data, given h."""

    transition_matrices: np.ndarray
    """(G, K, K), drawn to the T of all data by `worth`."""
    unshrunk: np.ndarray
    """(G, K, K) from each part's own data."""
    mass: np.ndarray
    """(G, K) expected examples of each class in each part."""
    worth: np.ndarray
    """(K,) how many examples of a class the T of all data counts for."""


def transition_given(
    posterior: np.ndarray,
    labels: np.ndarray,
    T: np.ndarray,
    part: np.ndarray,
    n_parts: int,
    worth: float | np.ndarray | None = None,
) -> PartMatrices:
    """T of each part (N,) of the examples, given the posterior (N, K) that T leads to.

    By EM from T. For each class, T counts as `worth` examples beside the part's own; by default
    as many as explain best how much the parts differ (empirical Bayes).
    """
    K = len(T)
    known = posterior / np.maximum(T.T[labels], 1e-12)
    cell = part * K + labels

    def fitted(prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = np.repeat(T[None], n_parts, axis=0)
        for _ in range(STEPS):
            q = known * found[part, :, labels]
            q /= np.maximum(q.sum(axis=1, keepdims=True), 1e-300)
            columns = [np.bincount(cell, q[:, k], n_parts * K) for k in range(K)]
            joint = np.stack(columns, axis=1).reshape(n_parts, K, K).transpose(0, 2, 1)
            new = normalised(joint + prior[:, None] * T, T)
            moved = np.abs(new - found).max()
            found = new
            if moved < 1e-6:
                break
        return found, joint

    unshrunk, joint = fitted(np.zeros(K))
    if worth is None:
        worth = concentration(joint, normalised(joint.sum(axis=0), T))
    worth = np.broadcast_to(np.asarray(worth, float), (K,))
    found, joint = fitted(worth)
    return PartMatrices(found, unshrunk, joint.sum(axis=2), worth)
