"""What label triples say for and against soft clusterability.

`solve_soft` rests on the two neighbours erring independently of each other, given the centre's
class. In a real representation they do not: all three lie in one place, and where classes
overlap they err together. `check_soft` says what the labels can say about that. A given S is
worth far more than an estimated one: see benchmarks/results/soft.md.
"""

from __future__ import annotations

import numpy as np

from labelnoise.checks.findings import Finding
from labelnoise.consensus import Consensus
from labelnoise.solvers.soft import (
    SoftSolution,
    one_number,
    pattern_chance,
    soft_consensus,
    solve_soft,
    triple_chance,
)
from labelnoise.solvers.triples import divergence_of_counts

__all__ = [
    "SoftSolution",
    "check_soft",
    "one_number",
    "soft_consensus",
    "solve_soft",
]

_FREE = 1e-6  # a probability below this is on the boundary, and not a free parameter
_SURE = 3.0  # standard deviations from which a difference is taken for real


def check_soft(consensus: Consensus, solution: SoftSolution, overlap: float = 1.0) -> list[Finding]:
    """What the triples say for and against soft clusterability.

    Parameters
    ----------
    consensus : Consensus
    solution : SoftSolution
        Of the same consensus.
    overlap : float, default=1.0
        By how much triples that share members reduce their number, as
        `labelnoise.checks.overlap_of` measures it.

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
    neighbours that copy the first.
    """
    fit = _fit_finding(consensus, solution, overlap)
    return [fit] if solution.kind == "given" else [fit, _evidence_finding(consensus, overlap)]


def _fit_finding(consensus: Consensus, solution: SoftSolution, overlap: float) -> Finding:
    n = max(int(consensus.n_centers / overlap), 1)
    labels = np.flatnonzero(solution.occurring)
    T, S = (one[np.ix_(labels, labels)] for one in (solution.transition_matrix, solution.S))
    chance = pattern_chance(triple_chance(T, solution.class_prior[labels], S @ T))
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
