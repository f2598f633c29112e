"""Rows of probabilities: made from counts, moved off the boundary, shrunk by empirical Bayes."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

_CONCENTRATIONS = np.geomspace(1, 1e6, 61)  # the last one stands for "all rows are the same"
_ABOUT_AS_LIKELY = 0.1  # in log-likelihood
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
    """How many counts a Dirichlet prior around the centre is worth, by empirical Bayes (R,).

    Maximises the likelihood of all groups' counts. With a prior Dirichlet(w m), counts c that
    sum to n have the Dirichlet-multinomial chance
    ``Gamma(w) / Gamma(w + n) prod_j Gamma(w m_j + c_j) / Gamma(w m_j)``. A centre that is the
    mean of the groups fits the largest of them by construction, which says nothing about how
    similar they are. As in restricted maximum likelihood, each free label of the centre costs
    half the log of the mean's information, ``sum_g n_g w / (n_g + w)``.

    Parameters
    ----------
    counts : array of shape (G, R, K)
    centre : array of shape (R, K), the mean of the groups; or (G, R, K), known for each group
    one_for_all : bool
        One value for all R rows.
    """
    size = counts.sum(axis=2)
    free = 0 if centre.ndim == 3 else (centre * size.sum(axis=0)[:, None] >= 1).sum(axis=1) - 1
    value = np.empty((len(_CONCENTRATIONS), counts.shape[1]))
    for number, worth in enumerate(_CONCENTRATIONS):
        prior = np.maximum(worth * centre, 1e-12)
        value[number] = (gammaln(worth) - gammaln(worth + size)).sum(axis=0)
        value[number] += (gammaln(prior + counts) - gammaln(prior)).sum(axis=(0, 2))
        information = (size * worth / (size + worth)).sum(axis=0)
        value[number] -= np.maximum(free, 0) / 2 * np.log(np.maximum(information, 1e-300))
    if one_for_all:
        value[:] = value.sum(axis=1, keepdims=True)
    # Rows without errors say little: of concentrations about as likely, take the largest.
    as_likely = value >= value.max(axis=0) - _ABOUT_AS_LIKELY
    return _CONCENTRATIONS[len(_CONCENTRATIONS) - 1 - as_likely[::-1].argmax(axis=0)]
