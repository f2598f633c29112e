"""T and p from label triples: one front door, a file for each solver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from labelnoise._blocks import one_blas_thread
from labelnoise._errors import LabelNoiseError
from labelnoise._validation import expect_one_of
from labelnoise.consensus import Consensus
from labelnoise.solvers.likelihood import solve_likelihood
from labelnoise.solvers.moments import solve_moments
from labelnoise.solvers.paper import solve_paper, solve_paper_text
from labelnoise.solvers.search import Fit, Settings
from labelnoise.solvers.triples import model_of

__all__ = ["SOLVERS", "Solution", "class_order", "solve"]

SOLVERS: dict[str, Callable[[Consensus, Settings], Fit]] = {
    "likelihood": solve_likelihood,
    "moments": solve_moments,
    "paper": solve_paper,
    "paper-text": solve_paper_text,
}
"""Solvers by name. Each takes a consensus in which all labels occur."""


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
    solver : {"likelihood", "moments", "paper", "paper-text"}
        Maximum likelihood; the closed form of the theory, noisy on samples; or the paper's sum of
        norms, by Adam from the public code's start, or from the ``K I - 1 1'`` of its text.
    start : (T, p), optional
        For "likelihood": start there and nowhere else.
    tol : float, optional
        For "likelihood": the largest component of the gradient to stop at. Default: where going
        on would not matter beside the sampling error.
    n_steps : int, optional
        For "paper": steps of Adam, by default 1501, and 301 from 100 classes on.
    random_state : int or Generator, optional
        For "paper": jitter of the start. The others use no randomness.

    Returns
    -------
    Solution
        Rows are in the order that puts each row's maximum on the diagonal, where the maxima are
        at different labels. Else they are in the order in which most labels are right.

    Notes
    -----
    The triples do not fix the order of rows: a T with maxima off the diagonal comes out with rows
    exchanged. A singular T has no unique answer.
    """
    expect_one_of("solver", solver, tuple(SOLVERS))
    K = consensus.n_classes
    inner, labels = occurring_part(consensus)
    if len(labels) < 2:
        raise LabelNoiseError(
            f"Expected at least two labels that occur, but only class number {labels[0]} does"
        )
    if start is not None:
        start = _start_among(start, labels, K)
    settings = Settings(start, tol, n_steps, np.random.default_rng(random_state))
    # Measured twice as slow with more threads: those of numpy and scipy wait for each other.
    with one_blas_thread():
        return _solution(SOLVERS[solver](inner, settings), inner, labels, K)


def _solution(fit: Fit, inner: Consensus, labels: np.ndarray, K: int) -> Solution:
    """The fit with its rows in the order of the classes, among all K."""
    order = class_order(fit.T, fit.p)
    T, p = fit.T[order], fit.p[order]
    model = model_of(*inner.sorted_triples(), len(labels))
    return Solution(
        transition_matrix=among_all(T, labels, K),
        class_prior=np.bincount(labels, p, K),
        divergence=model.joint_and_divergence(T, p)[1],
        occurring=np.bincount(labels, minlength=K) > 0,
        steps=fit.steps,
        converged=fit.converged,
        start=fit.start,
    )


def _start_among(
    start: tuple[np.ndarray, np.ndarray], labels: np.ndarray, K: int
) -> tuple[np.ndarray, np.ndarray]:
    """The start (T, p) of the classes whose labels occur."""
    shapes = start[0].shape, start[1].shape
    if shapes != ((K, K), (K,)):
        raise LabelNoiseError(f"Expected a start of shapes {(K, K)}, {(K,)}, but {shapes}")
    return start[0][np.ix_(labels, labels)], start[1][labels]


def occurring_part(consensus: Consensus) -> tuple[Consensus, np.ndarray]:
    """The consensus renumbered to the labels that occur, and these labels in order."""
    counted = consensus.weights > 0
    if not counted.any():
        raise LabelNoiseError(
            "Expected at least one triple of labels, but the consensus is empty: is every "
            "example, or every neighbor, unlabelled?"
        )
    triples = consensus.triples[counted]
    labels = np.unique(triples)
    inner = Consensus(
        np.searchsorted(labels, triples),
        consensus.weights[counted],
        len(labels),
        consensus.n_centers,
        consensus.ordered,
    )
    return inner, labels


def among_all(matrix: np.ndarray, labels: np.ndarray, K: int) -> np.ndarray:
    """A matrix of some labels within that of all K; the others' rows are the identity's."""
    result = np.eye(K)
    result[np.ix_(labels, labels)] = matrix
    return result


def class_order(T: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Which row (K,) belongs to which class: the model does not say.

    If the rows' maxima are at different labels they decide, which is the paper's "informative".
    Else the order that makes the largest share of labels correct.
    """
    label_of_row = T.argmax(axis=1)
    if len(set(label_of_row.tolist())) < len(T):
        _, label_of_row = linear_sum_assignment(p[:, None] * T, maximize=True)
    return np.argsort(label_of_row)
