"""Soft clusterability: neighbours that are sometimes of another class than the example.

With ``S[i, j] = P(neighbour's clean class = j | own clean class = i)`` the neighbours' labels
follow ``M = S T`` instead of T, and a triple occurs with probability
``c3[a, b, c] = sum_i p[i] T[i, a] M[i, b] M[i, c]`` (appendix of the paper). S may be given, may
be one number e off the diagonal, or may be estimated: three views of two kinds still identify T
and M (Kruskal), *if* the two neighbours err independently of each other. Neighbours in a real
representation do not: all three sit in one place, and where classes overlap they err together.
`check_soft` and `check_ranks` say what the labels can say about that, and where they cannot tell.
A given S is worth far more than an estimated one: see benchmarks/results/soft.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from labelnoise._errors import LabelNoiseError
from labelnoise.consensus import Consensus
from labelnoise.diagnostics import Finding
from labelnoise.solvers import Solution, class_order, solve
from labelnoise.solvers.soft import (
    SoftFit,
    SoftModel,
    draw_soft_triples,
    even_confusion,
    fit_soft,
    refit_soft,
    triple_chance,
)

__all__ = [
    "SoftSolution",
    "check_ranks",
    "check_soft",
    "one_number",
    "soft_consensus",
    "solve_soft",
]

_LARGEST_CLASS_COUNT = 100  # dense, O(K^4) a step: half a minute here
_ROW_SUM_TOLERANCE = 1e-6
_FREE = 1e-6  # a probability below this is on the boundary, and not a free parameter
_SURE = 3.0  # standard deviations from which a difference is taken for real
_SIMULATIONS = 5
_RATE_SIMULATIONS = 16


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
    weights = chance.reshape(K, K, K)[:, b, c] * np.where(b == c, 1.0, 2.0)
    return Consensus(triples, weights.ravel() * n_centers, K, n_centers)


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
    Maximises the likelihood of ``c3[a, b, c] = sum_i p[i] T[i, a] (S T)[i, b] (S T)[i, c]``,
    where a is the centre's label, over T, p and the free part of S, by EM from several starts
    and then L-BFGS. What T owes to S rests on the two neighbours erring independently given the
    centre's class; see `check_soft`.

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
    counted = consensus.triples[consensus.weights > 0]
    occurring = np.bincount(counted.ravel(), minlength=consensus.n_classes) > 0
    labels = np.flatnonzero(occurring)
    K = len(labels)
    if K > _LARGEST_CLASS_COUNT:
        raise LabelNoiseError(
            f"Expected at most {_LARGEST_CLASS_COUNT} labels for soft clusterability, whose "
            f"computation is dense, but {K} occur: use plain HOC, or merge classes"
        )
    plain = solve(consensus)
    number = np.cumsum(occurring) - 1
    weights = consensus.weights[consensus.weights > 0]
    inner = Consensus(number[counted], weights, K, consensus.n_centers)
    if given is not None:
        # Among the classes whose labels occur; its diagonal is positive, so rows have a sum.
        given = given[np.ix_(labels, labels)]
        given = given / given.sum(axis=1, keepdims=True)
    with threadpool_limits(1, "blas"):
        start = plain.transition_matrix[np.ix_(labels, labels)]
        best = fit_soft(inner, start, kind, given, tol)
    T, p, found = best.T, best.p, best.S
    # A given matrix S says which class is which, unless it treats all alike.
    if given is None or np.allclose(given, even_confusion(given[0, 1], K)):
        order = class_order(T, p)
        T, p, found = T[order], p[order], found[np.ix_(order, order)]

    full_T, full_S = np.eye(consensus.n_classes), np.eye(consensus.n_classes)
    full_p = np.zeros(consensus.n_classes)
    full_T[np.ix_(labels, labels)], full_p[labels] = T, p
    full_S[np.ix_(labels, labels)] = found
    return SoftSolution(
        transition_matrix=full_T,
        class_prior=full_p,
        divergence=best.divergence,
        occurring=occurring,
        steps=best.steps,
        converged=best.converged,
        start=best.start,
        S=full_S,
        kind=kind,
        plain=plain,
    )


def check_soft(consensus: Consensus, solution: SoftSolution, overlap: float = 1.0) -> list[Finding]:
    """What the triples say for and against soft clusterability.

    Parameters
    ----------
    consensus : Consensus
    solution : SoftSolution
        Of the same consensus.
    overlap : float, default=1.0
        By how much triples that share members reduce their number, as
        `labelnoise.diagnostics.overlap_of` measures it.

    Returns
    -------
    list of Finding
        "soft fit": whether (T, p, S) explains the triples up to sampling. "soft evidence", where
        S was estimated: whether the centre and its neighbours differ at all, which is all that
        it is known from.

    Notes
    -----
    Neither finding can show that neighbours err independently. If the three members of a triple
    err together, ``c3 = E[P(x) P(x1) P(x2)]`` with the noisy posterior ``P(x) = T' eta(x)``, and
    any (T, eta) with the same P has the same triples: with no more kinds of places eta than
    classes the model fits perfectly, with S = I and a T that is wrong. "soft fit" finds second
    neighbours that copy the first; for errors that all three share see `check_ranks`.
    """
    fit = _fit_finding(consensus, solution, overlap)
    return [fit] if solution.kind == "given" else [fit, _evidence_finding(consensus, overlap)]


def check_ranks(near: Consensus, far: Consensus, overlap: float = 1.0) -> Finding:
    """Whether T is the same from near and from further neighbours, as it must be if S is right.

    Further neighbours are more often of another class. If they err independently, S takes that
    up and T stays; if they err together, T takes up some of it, and its noise rate rises.

    Parameters
    ----------
    near, far : Consensus
        Of the same labels, with the nearest two neighbours and with two further ones, as
        ``Consensus.from_neighbors(labels, indices[:, [18, 19]], K)``.
    overlap : float, default=1.0
        As for `check_soft`.

    Returns
    -------
    Finding
        "soft ranks", whose value is the rise of the noise rate in standard deviations, which
        are found by simulation.

    Notes
    -----
    It sees what changes with the distance. In benchmarks/results/soft.md it speaks whenever all
    three share errors that grow with it, never with independent errors, and in 6 of 8 cases on
    CIFAR-10 features. It does not see second neighbours that copy the first ("soft fit" does),
    nor errors that near and further neighbours share to the same degree: nothing that is
    computed from triples does. The simulated triples do not overlap; `overlap` only scales their
    number, so scores near the limit of 3 are not exact.
    """
    rates, variance = [], 0.0
    for consensus in (near, far):
        solution = solve_soft(consensus)
        rate, bias, spread = _simulated_rate(solution, max(int(consensus.n_centers / overlap), 1))
        rates.append(rate - bias)
        variance += spread
    rise = rates[1] - rates[0]
    score = rise / max(variance**0.5, 1e-300)
    same = bool(score <= _SURE)
    measure = (
        f"the noise rate is {rates[0]:.3f} from the near ones and {rates[1]:.3f} from the "
        f"further ones ({score:+.1f} standard deviations)"
    )
    return Finding(
        "soft ranks",
        same,
        score,
        f"T does not depend on how far the neighbours are: {measure}."
        if same
        else f"T depends on how far the neighbours are: {measure}. Either neighbours err together, "
        f"or labels depend on more than the class, so that near ones are mislabelled alike. S "
        f"describes neither: do not rely on this T, and use representations in which classes lie "
        f"further apart.",
    )


def _among_occurring(solution: SoftSolution) -> SoftFit:
    labels = np.flatnonzero(solution.occurring)
    inside = np.ix_(labels, labels)
    T, S = solution.transition_matrix[inside], solution.S[inside]
    return SoftFit(T, solution.class_prior[labels], S, solution.kind, solution.start)


def _simulated_rate(solution: SoftSolution, n: int) -> tuple[float, float, float]:
    """Noise rate of a solution with S estimated, and its bias and variance with n triples."""
    fit, rng = _among_occurring(solution), np.random.default_rng(0)
    rates = []
    with threadpool_limits(1, "blas"):
        for _ in range(_RATE_SIMULATIONS):
            drawn = Consensus.from_labels(draw_soft_triples(fit, n, rng), len(fit.p))
            again = refit_soft(drawn, fit)
            rates.append(1 - again.p @ np.diag(again.T))
    rate = float(1 - fit.p @ np.diag(fit.T))
    return rate, float(np.mean(rates)) - rate, float(np.var(rates, ddof=1))


def _fit_finding(consensus: Consensus, solution: SoftSolution, overlap: float) -> Finding:
    n = max(int(consensus.n_centers / overlap), 1)
    inner, rng = _among_occurring(solution), np.random.default_rng(0)
    T, p, S = inner.T, inner.p, inner.S
    chance = triple_chance(T, p, S @ T)
    drawn = [
        SoftModel(Consensus.from_labels(draw_soft_triples(inner, n, rng), len(p))).divergence(
            chance
        )
        for _ in range(_SIMULATIONS)
    ]
    mean, deviation = float(np.mean(drawn)), float(np.std(drawn, ddof=1))
    # Each parameter that was free to move takes up half a unit of log-likelihood.
    free = np.count_nonzero(T > _FREE) - 1
    if solution.kind == "estimate":
        free += np.count_nonzero(S > _FREE) - len(S)
    elif solution.kind == "one number":
        free += 1
    expected = max(mean - free / (2 * n), 0.05 * mean)
    fits = bool(solution.divergence <= expected + _SURE * deviation)
    measure = (
        f"their divergence is {solution.divergence:.2g}, and sampling alone would give "
        f"{expected:.2g}"
    )
    return Finding(
        "soft fit",
        fits,
        float(solution.divergence / max(expected, 1e-300)),
        f"T, p and S explain the label triples: {measure}. That does not show that neighbours err "
        f"independently: errors that all three share mostly fit as well."
        if fits
        else f"T, p and S do not explain the label triples: {measure}. "
        + ("The" if solution.kind == "estimate" else "Either this S is wrong, or the")
        + " two neighbours, or their labels, do not err independently of each other, which S does "
        "not describe: use representations in which classes lie further apart.",
    )


def _evidence_finding(consensus: Consensus, overlap: float) -> Finding:
    """Whether neighbours agree with the centre more often than with each other.

    Under soft clusterability with independent errors they do; if the three are exchangeable,
    because they share the class or because they err together, they do not.
    """
    a, b, c = consensus.triples.T
    centre = ((a == b).astype(float) + (a == c)) / 2
    each_other = (b == c).astype(float)
    f = consensus.frequencies
    lead = float(f @ (centre - each_other))
    deviation = float(np.sqrt(f @ (centre - each_other - lead) ** 2 / max(consensus.n_centers, 1)))
    deviation *= max(overlap, 1.0) ** 0.5
    score = lead / max(deviation, 1e-300)
    told = bool(score > _SURE)
    measure = (
        f"a neighbour's label agrees with the centre's in {f @ centre:.2%} of triples, and the "
        f"two neighbours' with each other in {f @ each_other:.2%} (a difference of {score:.1f} "
        f"standard deviations)"
    )
    return Finding(
        "soft evidence",
        told,
        score,
        f"Neighbours are further from each other than from the centre: {measure}. S is estimated "
        f"from that difference, which is all of what neighbours confuse only if they err "
        f"independently."
        if told
        else f"The triples cannot tell S from no confusion at all: {measure}. Either neighbours "
        f"share the class, or all three err together, and then T takes their confusion for label "
        f"noise: triples alone cannot say which.",
    )


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


def _among(S: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """S among the classes whose labels occur; its diagonal is positive, so rows have a sum."""
    inner = S[np.ix_(labels, labels)]
    result: np.ndarray = inner / inner.sum(axis=1, keepdims=True)
    return result


def _fixes_order(kind: str, S: np.ndarray) -> bool:
    """Whether S says which class is which: a matrix other than that of one number does."""
    K = len(S)
    return kind == "given" and not np.allclose(S, one_number(min(S[0, 1], 0.999 / K), K))
