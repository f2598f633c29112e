"""What local matrices rest on: coverage, noise clusterability, the conditions of Corollary 1."""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2

from labelnoise.checks.findings import Finding
from labelnoise.solvers.local import LocalProblems, solve_local

_WIDENING = 1.25  # of the binomial variance, as triples share examples and classes are not known
_BY_CHANCE = 0.001  # that halves of local data sets differ this much where T is the same
_NEARLY_SINGULAR = 0.05
_PRESENT = 10  # examples of a class in a local data set, for its row to be judged


def check_coverage(assignment: np.ndarray, n_local: int, local_size: int) -> Finding:
    """How many examples the local data sets hold: the paper's (H, M)-coverage."""
    held, n = int((assignment >= 0).sum()), len(assignment)
    rest = "" if held == n else f"; the other {n - held:,} take the global T"
    return Finding(
        "coverage",
        True,
        held / n,
        f"({n_local}, {local_size})-coverage: the local data sets hold {held:,} of {n:,} examples "
        f"({held / n:.1%}){rest}.",
    )


def check_noise_clusterability(
    labels: np.ndarray, around: np.ndarray, nearer: np.ndarray, T: np.ndarray, p: np.ndarray
) -> Finding:
    """Whether T is the same throughout each local data set: M-NN noise clusterability.

    T is estimated again from the half of the members that is nearer to the centre, and from the
    other half. How often labels of the most frequent class are right is compared between them.

    Parameters
    ----------
    labels : int array of shape (N,)
    around : int array of shape (L, M + 1, 3)
        Row numbers of each member and its two neighbours.
    nearer : bool array of shape (L, M + 1)
        Whether the member is in the half nearer to the centre.
    T, p : arrays of shape (L, K, K) and (L, K)
        Of each local data set, not blended.
    """
    L, K = p.shape
    half = 2 * np.arange(L)[:, None] + nearer
    problems = LocalProblems(half.ravel(), labels[around].reshape(-1, 3), 2 * L, K)
    halves = solve_local(problems, np.repeat(T, 2, axis=0), np.repeat(p, 2, axis=0), 0.0)
    right = np.einsum("lii->li", halves[0]).reshape(L, 2, K)
    size = halves[1].reshape(L, 2, K) * problems.sizes.reshape(L, 2, 1)
    most = size.min(axis=1).argmax(axis=1)
    right, size = (
        np.take_along_axis(one, most[:, None, None], 2)[:, :, 0] for one in (right, size)
    )
    size = np.maximum(size, 1e-9)  # a half without the class says nothing
    pooled = (right * size).sum(axis=1) / size.sum(axis=1)
    spread = pooled * (1 - pooled) + 1 / size.sum(axis=1)
    score = np.diff(right, axis=1)[:, 0] / np.sqrt(_WIDENING * spread * (1 / size).sum(axis=1))
    ratio = float((score**2).mean())
    ok = bool(L * ratio <= chi2.isf(_BY_CHANCE, L))
    return Finding(
        "noise clusterability",
        ok,
        ratio,
        f"Between the half of a local data set that is nearer to its centre and the other half, "
        f"label noise differs by {ratio:.2f} times the variance that chance gives it"
        + (
            "."
            if ok
            else ": T, or how often neighbours share their class, changes within local data sets, "
            "so use a smaller local_size."
        ),
    )


def check_local_conditions(T: np.ndarray, p: np.ndarray, local_size: int) -> Finding:
    """In how many local data sets T meets the conditions of the paper's Corollary 1.

    Among the classes with at least ten examples, rows of T must be independent (non-singular)
    and have their maximum on the diagonal (informative). That neighbours share their class is a
    condition, too, which labels alone do not show.
    """
    met = 0
    for matrix, prior in zip(T, p, strict=True):
        there = np.flatnonzero(prior * (local_size + 1) >= _PRESENT)
        rows = matrix[there]
        values = np.linalg.svd(rows, compute_uv=False)
        met += bool((values > _NEARLY_SINGULAR).all() and (rows.argmax(axis=1) == there).all())
    failed = len(T) - met
    return Finding(
        "local conditions",
        failed == 0,
        met / len(T),
        f"Corollary 1: T is non-singular and informative in {met} of {len(T)} local data sets"
        + (
            "."
            if not failed
            else f"; in the other {failed} some rows are guesses: use a larger local_size."
        ),
    )
