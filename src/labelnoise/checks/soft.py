"""What label triples say for and against soft clusterability.

`solve_soft` rests on the two neighbours erring independently of each other, given the centre's
class. In a real representation they do not: all three lie in one place, and where classes
overlap they err together. `check_soft` says what the labels can say about that.
"""

from __future__ import annotations

import numpy as np

from labelnoise.checks.findings import Finding
from labelnoise.consensus import Consensus
from labelnoise.solvers.soft import (
    SoftSolution,
    one_number,
    soft_consensus,
    solve_soft,
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


def check_soft(consensus: Consensus, solution: SoftSolution, overlap: float = 1.0) -> Finding:
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
    Finding
        "soft fit": whether (T, p, S) explains the triples up to sampling.

    Notes
    -----
    It cannot show that neighbours err independently. If the three members of a triple
    err together, ``c3 = E[P(x) P(x1) P(x2)]`` with the noisy posterior ``P(x) = T' eta(x)``, and
    any (T, eta) with the same P has the same triples: with no more kinds of places eta than
    classes the model fits perfectly, with S = I and a T that is wrong. "soft fit" finds second
    neighbours that copy the first.
    """
    n = max(int(consensus.n_centers / overlap), 1)
    labels = np.flatnonzero(solution.occurring)
    T, S = (one[np.ix_(labels, labels)] for one in (solution.transition_matrix, solution.S))
    chance = soft_consensus(T, solution.class_prior[labels], S).weights
    mean, deviation = divergence_of_counts(chance, chance, n)
    # Each parameter that was free to move takes up half a unit of log-likelihood.
    free = np.count_nonzero(T > _FREE) - 1
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
        f"Either this S is wrong, or the two neighbours, or their labels, do not err independently "
        f"of each other, which S does not describe: use representations in which classes lie "
        f"further apart.",
    )
