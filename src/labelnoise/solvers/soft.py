"""Soft clusterability: neighbours that are sometimes of another class than the example.

With ``S[i, j] = P(neighbour's clean class = j | own clean class = i)`` the neighbours' labels
follow ``M = S T`` instead of T, and a triple occurs with probability
``c3[a, b, c] = sum_i p[i] T[i, a] M[i, b] M[i, c]`` (appendix of the paper). S is known, as a
matrix or as one number off the diagonal; T and p are found by maximum likelihood: EM from several
starts, then L-BFGS. Dense, O(K^4) a step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from labelnoise._blocks import one_blas_thread
from labelnoise._errors import LabelNoiseError
from labelnoise._validation import transition_matrix
from labelnoise.consensus import Consensus
from labelnoise.solvers import Solution, among_all, class_order, occurring_part, solve
from labelnoise.solvers.rows import interior, project_on_simplex
from labelnoise.solvers.search import Fit, em, lbfgs
from labelnoise.solvers.triples import TINY

_MOST_LABELS = 100  # they take half a minute


@dataclass(frozen=True)
class SoftSolution(Solution):
    """What `solve_soft` found: T and p as of any solver, beside the S that was given."""

    S: np.ndarray
    """(K, K) ``S[i, j]``, the chance that a neighbour of a true i is a true j; rows sum to 1."""
    plain: Solution
    """What plain HOC, with S = I, finds in the same triples."""

    @property
    def neighbor_matrix(self) -> np.ndarray:
        """(K, K) ``S T``: the chance that a neighbour of a true i is labelled j."""
        return self.S @ self.transition_matrix


def one_number(e: float, n_classes: int) -> np.ndarray:
    """Give the (K, K) matrix S with e off the diagonal and ``1 - (K - 1) e`` on it.

    Examples
    --------
    >>> one_number(0.125, 3)
    array([[0.75 , 0.125, 0.125],
           [0.125, 0.75 , 0.125],
           [0.125, 0.125, 0.75 ]])
    """
    if not 0 <= e < 1 / n_classes:
        raise LabelNoiseError(
            f"Expected S as one number e to be 0 <= e < 1/K = {1 / n_classes:.4g}, the chance "
            f"that a neighbour is of a given other class, but e = {e}: from 1/K on neighbours "
            f"say nothing of the class"
        )
    return even_confusion(e, n_classes)


def soft_consensus(
    transition_matrix: np.ndarray, class_prior: np.ndarray, S: np.ndarray, n_centers: int = 1
) -> Consensus:
    """Give the exact consensus of (T, p, S): every triple, weighted by its probability."""
    M = S @ transition_matrix
    return Consensus.from_model(transition_matrix, class_prior, n_centers, neighbor_matrix=M)


def solve_soft(consensus: Consensus, S: Any, *, tol: float | None = None) -> SoftSolution:
    """Find T and p that explain a consensus whose neighbours differ in class as S says.

    Parameters
    ----------
    consensus : Consensus
        At most 100 labels may occur in it: the computation is dense, and takes a fraction of a
        second with 10 labels and half a minute with 100.
    S : (K, K) array or float
        ``S[i, j] = P(neighbour's clean class = j | own clean class = i)``, rows sum to 1.
        A float e stands for `one_number(e, K)`; 0 is plain HOC.
    tol : float, optional
        Largest component of the gradient to stop at. By default the solver stops when going on
        would not matter beside the sampling error.

    Returns
    -------
    SoftSolution
        A matrix S fixes the order of the classes, unless it treats all in the same way. Then they
        are in the order in which `solve` puts them.

    Notes
    -----
    It rests on the two neighbours erring independently given the centre's class, which those of
    real features do not. See `labelnoise.checks.soft.check_soft`.

    Examples
    --------
    >>> import numpy as np
    >>> T = np.array([[0.8, 0.2], [0.1, 0.9]])
    >>> exact = soft_consensus(T, np.array([0.5, 0.5]), one_number(0.1, 2))
    >>> solve_soft(exact, 0.1, tol=1e-12).transition_matrix.round(4)
    array([[0.8, 0.2],
           [0.1, 0.9]])
    """
    K, matrix = consensus.n_classes, _checked_S(S, consensus.n_classes)
    inner, labels = occurring_part(consensus)
    if len(labels) > _MOST_LABELS:
        raise LabelNoiseError(
            f"Expected at most {_MOST_LABELS} labels for soft clusterability, whose "
            f"computation is dense, but {len(labels)} occur: use plain HOC, or merge classes"
        )
    plain = solve(consensus)
    inside = np.ix_(labels, labels)
    # Among the classes whose labels occur; the diagonal is positive, so rows have a sum.
    given = matrix[inside] / matrix[inside].sum(axis=1, keepdims=True)
    best = _fit(inner, plain.transition_matrix[inside], given, tol)
    return SoftSolution(
        transition_matrix=among_all(best.T, labels, K),
        class_prior=np.bincount(labels, best.p, K),
        divergence=best.loss,
        occurring=plain.occurring,
        steps=best.steps,
        converged=best.converged,
        start=best.start,
        S=among_all(given, labels, K),
        plain=plain,
    )


def _fit(consensus: Consensus, plain: np.ndarray, S: np.ndarray, tol: float | None) -> Fit:
    """Fit a consensus in which all labels occur; `plain` is the T that plain HOC finds in it."""
    model, n = SoftModel(consensus, S), max(consensus.n_centers, 1)
    gradient, gain = (1e-9, 1e-7 / n) if tol is None else (tol, 0.0)
    rough_gain = max(gain, 1e-3 / n)
    with one_blas_thread():
        tried = [
            _by_lbfgs(model, _by_em(model, start), 200, gradient, rough_gain)
            for start in _starts(plain, consensus.c1, S)
        ]
        best = _by_lbfgs(model, min(tried, key=lambda fit: fit.loss), 5000, gradient, gain)
    if not np.allclose(S, even_confusion(S[0, 1], len(S))):  # S says which class is which
        return best
    order = class_order(best.T, best.p)
    return replace(best, T=best.T[order], p=best.p[order])


class SoftModel:
    """The likelihood of one consensus as a function of (T, p), where M = S T."""

    def __init__(self, consensus: Consensus, S: np.ndarray) -> None:
        self.S = S
        self.observed = consensus.c3.reshape(consensus.n_classes, -1)
        self.occurs = self.observed > 0
        self.seen = self.observed[self.occurs]

    def divergence(self, chance: np.ndarray) -> float:
        """Kullback-Leibler divergence of the observed triples, in the form that keeps digits."""
        expected = chance[self.occurs]
        excess = (self.seen - expected) / expected
        unseen = max(float(chance.sum() - expected.sum()), 0.0)
        return float((self.seen * np.log1p(excess) - expected * excess).sum()) + unseen

    def slopes(self, T: np.ndarray, p: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Divergence; ``dL/d(p T)`` and ``dL/dM``, both (K, K), of the log-likelihood L."""
        K, M = len(p), self.S @ T
        both = (M[:, :, None] * M[:, None, :]).reshape(K, -1)  # M[i, b] M[i, c]
        chance = (p[:, None] * T).T @ both + TINY
        ratio = self.observed / chance
        by_centre = both @ ratio.T
        by_pair = ((p[:, None] * T) @ ratio).reshape(K, K, K)
        by_neighbor = 2 * np.einsum("ibc,ic->ib", by_pair, M)
        return self.divergence(chance), by_centre, by_neighbor


def even_confusion(e: float, K: int) -> np.ndarray:
    """(K, K) S with e off the diagonal."""
    return e + (1 - K * e) * np.eye(K)


def _by_em(model: SoftModel, fit: Fit) -> Fit:
    """Some steps of expectation-maximisation; each neighbour has a latent class of its own."""

    def step(at: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        T, p = at
        _, by_centre, by_neighbor = model.slopes(T, p)
        centre = p[:, None] * T * by_centre
        T = _rows(centre + T * (model.S.T @ by_neighbor))
        return T, centre.sum(axis=1) / centre.sum()

    (T, p), steps, _ = em(step, (fit.T, fit.p), 25)
    return replace(fit, T=T, p=p, steps=fit.steps + steps)


def _by_lbfgs(model: SoftModel, fit: Fit, steps: int, gradient: float, gain: float) -> Fit:
    """L-BFGS on square roots of probabilities, where zero is an ordinary value.

    A row's roots are scaled by the root of the data it has: then the information of complete
    data is about a multiple of the identity.
    """
    K = len(fit.p)
    mass = fit.p + 2 * fit.p @ model.S
    start = np.concatenate([np.sqrt(mass[:, None] * fit.T).ravel(), np.sqrt(fit.p)])

    def rows_of(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        of_T, of_p = x[: K * K].reshape(K, K), x[K * K :][None]
        return of_T, of_p, _rows(of_T**2), _rows(of_p**2)[0]

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        of_T, of_p, T, p = rows_of(x)
        divergence, by_centre, by_neighbor = model.slopes(T, p)
        slopes = [
            _root_slope(of_T, T, p[:, None] * by_centre + model.S.T @ by_neighbor),
            _root_slope(of_p, p[None], (T * by_centre).sum(axis=1)[None]),
        ]
        return divergence, -np.concatenate(slopes)

    # A row without data must not divide by 0.
    start = np.maximum(start, 1e-12)
    found = lbfgs(objective, start, most_steps=steps, gradient=gradient, gain=gain)
    _, _, T, p = rows_of(found.x)
    done = fit.steps + found.evaluations
    return replace(fit, T=T, p=p, loss=found.value, steps=done, converged=found.converged)


def _root_slope(root: np.ndarray, rows: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Slope with respect to roots whose squares, normalised, are the rows."""
    size = (root * root).sum(axis=1, keepdims=True)
    result: np.ndarray = 2 * root / size * (slope - (rows * slope).sum(axis=1, keepdims=True))
    return result.ravel()


def _rows(matrix: np.ndarray) -> np.ndarray:
    """The matrix with rows that sum to 1."""
    matrix = matrix + TINY
    result: np.ndarray = matrix / matrix.sum(axis=1, keepdims=True)
    return result


def _starts(plain: np.ndarray, p: np.ndarray, S: np.ndarray) -> list[Fit]:
    """Starts from "all is label noise" to "all is confusion of neighbours".

    Plain HOC's matrix lies between T and S T.
    """
    identity, prior = np.eye(len(p)), interior(p)
    starts = [
        Fit(interior((1 - share) * plain + share * identity), prior, name)
        for name, share in (("plain", 0.1), ("halfway", 0.5), ("neighbors", 0.9))
    ]
    undone = project_on_simplex(np.linalg.lstsq(S, plain, rcond=None)[0])
    return [*starts, Fit(interior(undone), prior, "undone")]


def _checked_S(S: Any, K: int) -> np.ndarray:
    """S as a matrix (K, K)."""
    if isinstance(S, int | float | np.number):
        return one_number(float(S), K)
    matrix = transition_matrix(S, "S", K)
    others = (matrix - np.diag(np.diag(matrix))).max(axis=1)
    weak = np.flatnonzero(np.diag(matrix) <= others)
    if len(weak):
        raise LabelNoiseError(
            f"Expected the largest entry of each row of S on its diagonal (with one number e: "
            f"e < 1/K), but S[{weak[0]}, {weak[0]}] = {matrix[weak[0], weak[0]]:.4g} and another "
            f"entry of the row is {others[weak[0]]:.4g}: such neighbours do not tell the class"
        )
    return matrix
