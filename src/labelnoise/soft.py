"""What label triples say for and against soft clusterability.

`solve_soft` rests on the two neighbours erring independently of each other, given the centre's
class. In a real representation they do not: all three lie in one place, and where classes
overlap they err together. `check_soft` and `check_ranks` say what the labels can say about that,
and where they cannot tell. A given S is worth far more than an estimated one: see
benchmarks/results/soft.md.
"""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits

from labelnoise.consensus import Consensus
from labelnoise.diagnostics import Finding
from labelnoise.solvers.soft import (
    SoftFit,
    SoftSolution,
    one_number,
    pattern_chance,
    refit_soft,
    soft_consensus,
    solve_soft,
    triple_chance,
)
from labelnoise.solvers.triples import divergence_of_counts

__all__ = [
    "SoftSolution",
    "check_ranks",
    "check_soft",
    "one_number",
    "soft_consensus",
    "solve_soft",
]

_FREE = 1e-6  # a probability below this is on the boundary, and not a free parameter
_SURE = 3.0  # standard deviations from which a difference is taken for real
_SIMULATIONS = 16


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
    fit, rng, rates = _among_occurring(solution), np.random.default_rng(0), []
    exact = soft_consensus(fit.T, fit.p, fit.S)
    with threadpool_limits(1, "blas"):
        for _ in range(_SIMULATIONS):
            again = refit_soft(_drawn(exact, n, rng), fit)
            rates.append(1 - again.p @ np.diag(again.T))
    rate = float(1 - fit.p @ np.diag(fit.T))
    return rate, float(np.mean(rates)) - rate, float(np.var(rates, ddof=1))


def _drawn(exact: Consensus, n: int, rng: np.random.Generator) -> Consensus:
    """Counts of n triples of an exact consensus."""
    counts = rng.multinomial(n, exact.frequencies).astype(float)
    return Consensus(exact.triples, counts, exact.n_classes, n)


def _fit_finding(consensus: Consensus, solution: SoftSolution, overlap: float) -> Finding:
    n = max(int(consensus.n_centers / overlap), 1)
    inner = _among_occurring(solution)
    T, p, S = inner.T, inner.p, inner.S
    chance = pattern_chance(triple_chance(T, p, S @ T))
    mean, deviation = divergence_of_counts(chance, chance, n)
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
