"""T and p from the triples: one front door, a file for each solver."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment
from threadpoolctl import threadpool_limits

from labelnoise._errors import LabelNoiseError
from labelnoise.consensus import Consensus
from labelnoise.solvers._model import model_of
from labelnoise.solvers.likelihood import solve_likelihood
from labelnoise.solvers.moments import solve_moments
from labelnoise.solvers.paper import solve_paper

__all__ = ["SOLVERS", "Solution", "class_order", "solve"]

SOLVERS = ("likelihood", "moments", "paper")


@dataclass(frozen=True)
class Solution:
    """What a solver found."""

    transition_matrix: np.ndarray
    """(K, K), rows clean, rows sum to 1."""
    class_prior: np.ndarray
    """(K,), sums to 1."""
    divergence: float
    """Kullback-Leibler divergence of the observed triples from those expected of (T, p)."""
    occurring: np.ndarray
    """(K,) whether the label occurs. The row of one that does not is that of the identity."""
    steps: int
    converged: bool
    start: str
    """Which of the starts led here."""


def solve(
    consensus: Consensus,
    solver: str = "likelihood",
    *,
    start: tuple[np.ndarray, np.ndarray] | None = None,
    tol: float | None = None,
    n_steps: int | None = None,
    random_state: int | np.random.Generator | None = None,
) -> Solution:
    """Find the transition matrix and the class prior that explain a consensus.

    Parameters
    ----------
    consensus : Consensus
    solver : {"likelihood", "moments", "paper"}
        Maximum likelihood; the closed form of the theory, exact on exact input and noisy on
        samples; or the paper's sum of norms, minimised by Adam.
    start : (T, p), optional
        For "likelihood": start there and nowhere else.
    tol : float, optional
        For "likelihood": the largest component of the gradient to stop at. By default the
        solver stops when going on would not matter beside the sampling error.
    n_steps : int, optional
        For "paper": steps of Adam, by default 1501, and 301 from 100 classes on.
    random_state : int or Generator, optional
        For "paper": jitter of the start. The others use no randomness.

    Returns
    -------
    Solution
        With the model's permutation resolved: each row's maximum on the diagonal where the
        maxima are on different labels, else the order in which most labels are right.
    """
    if solver not in SOLVERS:
        raise LabelNoiseError(f"Expected solver to be one of {SOLVERS}, but solver = {solver!r}")
    if not consensus.weights.sum() > 0:
        raise LabelNoiseError(
            "Expected at least one triple of labels, but the consensus is empty: is every "
            "example, or every neighbor, unlabelled?"
        )
    K = consensus.n_classes
    occurring = np.bincount(consensus.triples[consensus.weights > 0].ravel(), minlength=K) > 0
    labels = np.flatnonzero(occurring)
    if len(labels) < 2:
        raise LabelNoiseError(
            f"Expected at least two labels that occur, but only class number {labels[0]} does"
        )
    if start is not None and (start[0].shape != (K, K) or start[1].shape != (K,)):
        raise LabelNoiseError(
            f"Expected a start of shapes {(K, K)} and {(K,)}, but they are {start[0].shape} and "
            f"{start[1].shape}"
        )
    number = np.cumsum(occurring) - 1
    counted = consensus.weights > 0
    inner = Consensus(
        number[consensus.triples[counted]],
        consensus.weights[counted],
        len(labels),
        consensus.n_centers,
    )
    triples, frequencies = inner.sorted_triples()
    # On matrices of K rows threads gain little, and those of numpy and scipy get in each other's
    # way: measured twice as slow.
    with threadpool_limits(1, "blas"):
        steps, converged, origin = 1, True, solver
        if solver == "moments":
            T, p = solve_moments(triples, frequencies, len(labels))
        elif solver == "paper":
            rng = np.random.default_rng(random_state)
            T, p, _, steps = solve_paper(inner, rng, n_steps)
        else:
            if start is not None:
                start = (start[0][np.ix_(labels, labels)], start[1][labels])
            fit = solve_likelihood(
                triples, frequencies, len(labels), max(consensus.n_centers, 1), start=start, tol=tol
            )
            T, p, steps, converged, origin = fit.T, fit.p, fit.steps, fit.converged, fit.start
        order = class_order(T, p)
        T, p = T[order], p[order]
        divergence = model_of(triples, frequencies, len(labels)).joint_and_divergence(T, p)[1]

    full_T, full_p = np.eye(K), np.zeros(K)
    full_T[np.ix_(labels, labels)], full_p[labels] = T, p
    return Solution(full_T, full_p, divergence, occurring, steps, converged, origin)


def class_order(T: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Which row (K,) is which class: the model does not know it.

    If the rows' maxima are on different labels they decide, which is the paper's "informative".
    Else the order that makes the largest share of labels correct.
    """
    label_of_row = T.argmax(axis=1)
    if len(set(label_of_row.tolist())) < len(T):
        _, label_of_row = linear_sum_assignment(p[:, None] * T, maximize=True)
    return np.argsort(label_of_row)
