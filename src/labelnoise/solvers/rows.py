"""Rows of probabilities: made from counts, moved off the boundary, shrunk by empirical Bayes."""

from __future__ import annotations

import numpy as np

_MOST_WORTH = 1e6  # counts: "all rows are the same"
_LEAST_COUNT = 1e-200  # below it a row counts as empty


def normalised(counts: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Counts as shares of their row (last axis); an empty row is that of `otherwise`."""
    size = counts.sum(axis=-1, keepdims=True)
    result = np.array(np.broadcast_to(otherwise, counts.shape), float)
    return np.divide(counts, size, out=result, where=size > _LEAST_COUNT)


def interior(rows: np.ndarray, floor: float = 0.01) -> np.ndarray:
    """Rows without an entry below about floor / K: EM never leaves the boundary."""
    raised = np.maximum(rows, floor / rows.shape[-1])
    result: np.ndarray = raised / raised.sum(axis=-1, keepdims=True)
    return result


def project_on_simplex(rows: np.ndarray) -> np.ndarray:
    """The nearest probability vector to each row (last axis)."""
    descending = -np.sort(-rows, axis=-1)
    excess = np.cumsum(descending, axis=-1) - 1
    rank = np.arange(1, rows.shape[-1] + 1)
    kept = np.count_nonzero(descending * rank > excess, axis=-1, keepdims=True)
    shift = np.take_along_axis(excess, kept - 1, axis=-1) / kept
    result = np.maximum(rows - shift, 0)
    return result / result.sum(axis=-1, keepdims=True)


def concentration(
    counts: np.ndarray, centre: np.ndarray, *, one_for_all: bool = False
) -> np.ndarray:
    """How many counts a Dirichlet prior around the centre is worth (R,), by moments.

    The rows of groups differ from their mean by chance, and as far as the groups differ. With a
    prior Dirichlet(w m), the squared distance of a row of n counts from its mean m is
    ``(1 - sum_j m_j^2) (1 + (n - 1) / (w + 1)) / n``. Only what one standard error of chance
    does not explain counts as a difference.

    Parameters
    ----------
    counts : array of shape (G, R, K)
    centre : array of shape (R, K)
        The mean of the groups.
    one_for_all : bool
        One value for all R rows.
    """
    size = counts.sum(axis=2)
    apart = ((normalised(counts, centre) - centre) ** 2).sum(axis=2)
    spread = np.maximum(1 - (centre**2).sum(axis=1), 1e-12)
    apart = (size * apart).sum(axis=0) / spread
    groups = (size > _LEAST_COUNT).sum(axis=0) - 1
    total = np.maximum(size.sum(axis=0), 1e-300)
    pairs = total - (size**2).sum(axis=0) / total - groups
    if one_for_all:
        apart, groups, pairs = (np.full(len(total), part.sum()) for part in (apart, groups, pairs))
    beyond = apart - groups - np.sqrt(2 * np.maximum(groups, 1))
    share = np.clip(beyond / np.maximum(pairs, 1e-300), 1 / _MOST_WORTH, 1)
    result: np.ndarray = 1 / share - 1
    return result
