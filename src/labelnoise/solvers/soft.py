"""Soft clusterability: neighbours that are sometimes of another class than the example.

With ``S[i, j] = P(neighbour's clean class = j | own clean class = i)`` the neighbours' labels
follow ``M = S T`` instead of T, and a triple occurs with probability
``c3[a, b, c] = sum_i p[i] T[i, a] M[i, b] M[i, c]`` (appendix of the paper). S is given, or one
number off the diagonal, or estimated as a whole, by maximum likelihood: EM from several starts,
then L-BFGS. Dense, O(K^4) a step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from labelnoise._blocks import one_blas_thread
from labelnoise._errors import LabelNoiseError
from labelnoise.consensus import Consensus
from labelnoise.solvers import Solution, among_all, class_order, occurring_part, solve
from labelnoise.solvers.rows import interior, project_on_simplex
from labelnoise.solvers.search import Fit, em, lbfgs

_TINY = 1e-300  # keeps 0 / 0 away
_EM_STEPS = 25
_TRIAL_STEPS = 200
_STEPS = 5000
_ROUGHLY = 1e-3  # gain of the whole log-likelihood in a step, at which a rough search stops
_LARGEST_CLASS_COUNT = 100  # half a minute
_ROW_SUM_TOLERANCE = 1e-6


@dataclass(frozen=True)
class SoftSolution(Solution):
    """What `solve_soft` found: T and p as of any solver, and S."""

    S: np.ndarray
    """(K, K) ``S[i, j]``, the chance that a neighbour of a true i is a true j; rows sum to 1."""
    kind: str
    """How S came about: "given", "one number" (estimated) or "estimate"."""
    plain: Solution
    """What plain HOC, with S = I, finds in the same triples."""

    @property
    def neighbor_matrix(self) -> np.ndarray:
        """(K, K) ``S T``: the chance that a neighbour of a true i is labelled j."""
        return self.S @ self.transition_matrix


@dataclass(frozen=True, kw_only=True)
class SoftFit(Fit):
    """One point that the search reached; its loss is the divergence."""

    S: np.ndarray
    kind: str


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
    K = len(class_prior)
    chance = triple_chance(transition_matrix, class_prior, S @ transition_matrix)
    b, c = np.triu_indices(K)
    triples = np.column_stack(
        [np.repeat(np.arange(K), len(b)), np.tile(b, K), np.tile(c, K)]
    ).astype(np.int32)
    return Consensus(triples, pattern_chance(chance) * n_centers, K, n_centers)


def solve_soft(
    consensus: Consensus, S: Any = "estimate", *, tol: float | None = None
) -> SoftSolution:
    """Find T and p, and S unless it is given, that explain a consensus.

    Parameters
    ----------
    consensus : Consensus
        At most 100 labels may occur in it: the computation is dense, and takes a fraction of a
        second with 10 labels and half a minute with 100.
    S : (K, K) array, float, "one number" or "estimate", default="estimate"
        ``S[i, j] = P(neighbour's clean class = j | own clean class = i)``, rows sum to 1.
        A float e stands for `one_number(e, K)`; 0 is plain HOC. "one number" estimates e, and
        "estimate" all of S, beside T.
    tol : float, optional
        Largest component of the gradient to stop at. By default the solver stops when going on
        would not matter beside the sampling error.

    Returns
    -------
    SoftSolution
        With the classes in the order in which `solve` puts them, except that a given matrix S
        fixes the order itself.

    Notes
    -----
    It rests on the two neighbours erring independently given the centre's class: see
    `labelnoise.checks.soft.check_soft`.

    Examples
    --------
    >>> import numpy as np
    >>> T = np.array([[0.8, 0.2], [0.1, 0.9]])
    >>> exact = soft_consensus(T, np.array([0.5, 0.5]), one_number(0.1, 2))
    >>> found = solve_soft(exact, "one number", tol=1e-12)
    >>> found.transition_matrix.round(4)
    array([[0.8, 0.2],
           [0.1, 0.9]])
    >>> found.S.round(4)
    array([[0.9, 0.1],
           [0.1, 0.9]])
    """
    kind, given = _checked_S(S, consensus.n_classes)
    inner, labels = occurring_part(consensus)
    if len(labels) > _LARGEST_CLASS_COUNT:
        raise LabelNoiseError(
            f"Expected at most {_LARGEST_CLASS_COUNT} labels for soft clusterability, whose "
            f"computation is dense, but {len(labels)} occur: use plain HOC, or merge classes"
        )
    plain = solve(consensus)
    best = _fit(inner, plain.transition_matrix[np.ix_(labels, labels)], kind, given, labels, tol)
    return SoftSolution(
        transition_matrix=among_all(best.T, labels, consensus.n_classes),
        class_prior=np.bincount(labels, best.p, consensus.n_classes),
        divergence=best.loss,
        occurring=plain.occurring,
        steps=best.steps,
        converged=best.converged,
        start=best.start,
        S=among_all(best.S, labels, consensus.n_classes),
        kind=kind,
        plain=plain,
    )


def _fit(
    consensus: Consensus,
    plain: np.ndarray,
    kind: str,
    given: np.ndarray | None,
    labels: np.ndarray,
    tol: float | None,
) -> SoftFit:
    """Fit a consensus in which all labels occur; `plain` is the T that plain HOC finds in it."""
    if given is not None:
        # Among the classes whose labels occur; its diagonal is positive, so rows have a sum.
        given = given[np.ix_(labels, labels)]
        given = given / given.sum(axis=1, keepdims=True)
    model, n = SoftModel(consensus), max(consensus.n_centers, 1)
    gradient, gain = (1e-9, 1e-7 / n) if tol is None else (tol, 0.0)
    with one_blas_thread():
        tried = [
            _lbfgs(model, _em(model, start), _TRIAL_STEPS, gradient, max(gain, _ROUGHLY / n))
            for start in _starts(plain, consensus.c1, kind, given)
        ]
        best = _lbfgs(model, min(tried, key=lambda fit: fit.loss), _STEPS, gradient, gain)
    # A given matrix S says which class is which, unless it treats all in the same way.
    if given is not None and not np.allclose(given, even_confusion(given[0, 1], len(given))):
        return best
    order = class_order(best.T, best.p)
    return replace(best, T=best.T[order], p=best.p[order], S=best.S[np.ix_(order, order)])


class SoftModel:
    """The likelihood of one consensus as a function of (T, p, M), M = S T."""

    def __init__(self, consensus: Consensus) -> None:
        self.observed = consensus.c3.reshape(consensus.n_classes, -1)
        self.occurs = self.observed > 0
        self.seen = self.observed[self.occurs]

    def divergence(self, chance: np.ndarray) -> float:
        """Kullback-Leibler divergence of the observed triples, in the form that keeps digits."""
        expected = chance[self.occurs]
        excess = (self.seen - expected) / expected
        unseen = max(float(chance.sum() - expected.sum()), 0.0)
        return float((self.seen * np.log1p(excess) - expected * excess).sum()) + unseen

    def slopes(
        self, T: np.ndarray, p: np.ndarray, M: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """Divergence; ``dL/d(p T)`` (K, K) and ``dL/dM`` (K, K) of the log-likelihood L."""
        K, both = len(p), _both(M)
        chance = (p[:, None] * T).T @ both + _TINY
        ratio = self.observed / chance
        by_centre = both @ ratio.T
        by_pair = ((p[:, None] * T) @ ratio).reshape(K, K, K)
        by_neighbor = 2 * np.einsum("ibc,ic->ib", by_pair, M)
        return self.divergence(chance), by_centre, by_neighbor


def triple_chance(T: np.ndarray, p: np.ndarray, M: np.ndarray) -> np.ndarray:
    """(K, K^2) ``c3[a, (b, c)] = sum_i p[i] T[i, a] M[i, b] M[i, c]``."""
    chance: np.ndarray = (p[:, None] * T).T @ _both(M) + _TINY
    return chance


def pattern_chance(chance: np.ndarray) -> np.ndarray:
    """(K * pairs,) chance of a centre's label with two neighbours' labels in either order."""
    K = len(chance)
    b, c = np.triu_indices(K)
    both = chance.reshape(K, K, K)[:, b, c] * np.where(b == c, 1.0, 2.0)
    result: np.ndarray = both.ravel()
    return result


def _both(M: np.ndarray) -> np.ndarray:
    """(K, K^2) ``M[i, b] M[i, c]``."""
    return (M[:, :, None] * M[:, None, :]).reshape(len(M), -1)


def even_confusion(e: float, K: int) -> np.ndarray:
    """(K, K) S with e off the diagonal."""
    return e + (1 - K * e) * np.eye(K)


def _em(model: SoftModel, fit: SoftFit) -> SoftFit:
    """Some steps of expectation-maximisation; each neighbour has a latent class of its own."""

    def step(at: SoftFit) -> SoftFit:
        T, p, S, K = at.T, at.p, at.S, len(at.p)
        _, by_centre, by_neighbor = model.slopes(T, p, S @ T)
        centre = p[:, None] * T * by_centre
        moved = S * (by_neighbor @ T.T)  # posterior counts of (own class, neighbour's class)
        if at.kind == "estimate":
            S = _rows(moved)
        elif at.kind == "one number":
            wrong = max(float(1 - np.trace(moved) / moved.sum()), 0.0)  # < 0 by rounding
            S = even_confusion(min(wrong / (K - 1), 0.999 / K), K)
        T = _rows(centre + T * (at.S.T @ by_neighbor))
        return replace(at, T=T, p=centre.sum(axis=1) / centre.sum(), S=S, steps=at.steps + 1)

    return em(step, fit, _EM_STEPS)[0]


def _lbfgs(model: SoftModel, fit: SoftFit, steps: int, gradient: float, gain: float) -> SoftFit:
    """L-BFGS on square roots of probabilities, where zero is an ordinary value.

    A row's roots are scaled by the root of the data it has: then the information of complete
    data is about a multiple of the identity.
    """
    K = len(fit.p)
    mass = fit.p + 2 * fit.p @ fit.S
    parts = [np.sqrt(mass[:, None] * fit.T).ravel(), np.sqrt(fit.p)]
    if fit.kind == "estimate":
        parts.append(np.sqrt(2 * fit.p[:, None] * fit.S).ravel())
    elif fit.kind == "one number":
        odds = K * fit.S[0, 1] / (1 - K * fit.S[0, 1])
        parts.append(np.sqrt([odds]))
    # A row that has no data stays where it is, but must not divide by 0.
    start = np.maximum(np.concatenate(parts), 1e-12)

    def unpack(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[np.ndarray]]:
        roots = [x[: K * K].reshape(K, K), x[K * K : K * K + K][None]]
        S = fit.S
        if fit.kind == "estimate":
            roots.append(x[K * K + K :].reshape(K, K))
            S = _rows(roots[2] ** 2)
        elif fit.kind == "one number":
            S = even_confusion(x[-1] ** 2 / (1 + x[-1] ** 2) / K, K)
        return _rows(roots[0] ** 2), _rows(roots[1] ** 2)[0], S, roots

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        T, p, S, roots = unpack(x)
        divergence, by_centre, by_neighbor = model.slopes(T, p, S @ T)
        by_S = by_neighbor @ T.T
        slopes = [
            _root_slope(roots[0], T, p[:, None] * by_centre + S.T @ by_neighbor),
            _root_slope(roots[1], p[None], (T * by_centre).sum(axis=1)[None]),
        ]
        if fit.kind == "estimate":
            slopes.append(_root_slope(roots[2], S, by_S))
        elif fit.kind == "one number":
            by_e = by_S.sum() - K * np.trace(by_S)
            slopes.append(np.array([by_e * 2 * x[-1] / (1 + x[-1] ** 2) ** 2 / K]))
        return divergence, -np.concatenate(slopes)

    found = lbfgs(objective, start, most_steps=steps, gradient=gradient, gain=gain)
    T, p, S, _ = unpack(found.x)
    done = fit.steps + found.evaluations
    return replace(fit, T=T, p=p, S=S, loss=found.value, steps=done, converged=found.converged)


def _root_slope(root: np.ndarray, rows: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Slope with respect to roots whose squares, normalised, are the rows."""
    size = (root * root).sum(axis=1, keepdims=True)
    result: np.ndarray = 2 * root / size * (slope - (rows * slope).sum(axis=1, keepdims=True))
    return result.ravel()


def _rows(matrix: np.ndarray) -> np.ndarray:
    """The matrix with rows that sum to 1."""
    matrix = matrix + _TINY
    result: np.ndarray = matrix / matrix.sum(axis=1, keepdims=True)
    return result


def _starts(plain: np.ndarray, p: np.ndarray, kind: str, given: np.ndarray | None) -> list[SoftFit]:
    """Starts from "all is label noise" to "all is confusion of neighbours".

    Plain HOC's matrix lies between T and S T: either it is T, or the labels are nearly right
    and it is S, or something between.
    """
    K, identity, prior = len(p), np.eye(len(p)), interior(p)
    starts = []
    for name, share in (("plain", 0.1), ("halfway", 0.5), ("neighbors", 0.9)):
        confused = (1 - share) * identity + share * plain
        if given is not None:
            S = given
        elif kind == "one number":
            S = even_confusion(min(float(1 - p @ np.diag(confused)) / (K - 1), 0.9 / K), K)
        else:
            S = interior(confused)
        T = (1 - share) * plain + share * identity
        starts.append(SoftFit(interior(T), prior, name, S=S, kind=kind))
    if given is not None:
        undone = project_on_simplex(np.linalg.lstsq(given, plain, rcond=None)[0])
        starts.append(SoftFit(interior(undone), prior, "undone", S=given, kind=kind))
    return starts


def _checked_S(S: Any, K: int) -> tuple[str, np.ndarray | None]:
    """The kind of S, and the matrix if it is given."""
    if isinstance(S, str):
        if S not in ("one number", "estimate"):
            raise LabelNoiseError(
                f"Expected S to be a number, a matrix, 'one number' or 'estimate', but S = {S!r}"
            )
        return S, None
    try:
        matrix = np.asarray(S, float)
    except (TypeError, ValueError) as error:
        raise LabelNoiseError(
            f"Expected S to be a number, a matrix, 'one number' or 'estimate', but it cannot be "
            f"read as numbers: {error}"
        ) from error
    if matrix.ndim == 0:
        return "given", one_number(float(matrix), K)
    if matrix.shape != (K, K):
        raise LabelNoiseError(
            f"Expected S of shape ({K}, {K}), a row and a column for each class, but its shape "
            f"is {matrix.shape}"
        )
    sums = matrix.sum(axis=1)
    if not (matrix >= 0).all() or not (np.abs(sums - 1) <= _ROW_SUM_TOLERANCE).all():
        row = int(np.argmax((matrix < 0).any(axis=1) | ~(np.abs(sums - 1) <= _ROW_SUM_TOLERANCE)))
        raise LabelNoiseError(
            f"Expected the rows of S to be probabilities that sum to 1 (S[i, j] is the chance "
            f"that a neighbour of a true i is a true j), but row {row} is "
            f"{np.round(matrix[row], 4).tolist()}: is S transposed, or not normalised?"
        )
    others = (matrix - np.diag(np.diag(matrix))).max(axis=1)
    weak = np.flatnonzero(np.diag(matrix) <= others)
    if len(weak):
        raise LabelNoiseError(
            f"Expected the largest entry of each row of S on its diagonal (with one number e: "
            f"e < 1/K), but S[{weak[0]}, {weak[0]}] = {matrix[weak[0], weak[0]]:.4g} and another "
            f"entry of the row is {others[weak[0]]:.4g}: such neighbours do not tell the class"
        )
    return "given", matrix / sums[:, None]
