"""T and p by maximum likelihood of the triples.

The likelihood has local optima in which EM stops, and T is then wrong without a warning.
Three things lead out of them: several starts by EM, L-BFGS from the best one, and repair: while
the fit is worse than sampling explains, rows that are hardly needed move to triples that are
badly explained. L-BFGS works on the square roots of the joint P(clean, label). There the
information of complete data is a multiple of the identity, and a probability of zero is an
ordinary value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from labelnoise.consensus import Consensus
from labelnoise.solvers.moments import moment_solutions
from labelnoise.solvers.rows import interior, project_on_simplex
from labelnoise.solvers.search import Fit, Settings, em, lbfgs
from labelnoise.solvers.triples import (
    DenseTriples,
    SparseTriples,
    model_of,
    sampling_divergence,
    seconds_per_step,
)

Model = DenseTriples | SparseTriples

_REPAIR_ROUNDS = 20
_CHEAP_STEP = 0.001  # seconds of an EM step; below it the optimum is found to rounding
_EXPENSIVE_STEP = 0.1  # seconds of an EM step; above it the search is shortened


@dataclass(frozen=True)
class Enough:
    """When L-BFGS may stop: at a gradient, or at a gain, this small."""

    gradient: float
    gain: float


def solve_likelihood(consensus: Consensus, settings: Settings) -> Fit:
    """Maximise the likelihood of the triples of a consensus in which all labels occur.

    L-BFGS goes to the limit of rounding where that is cheap. Else it stops when a step no longer
    changes the log-likelihood of all triples together by an amount that could matter.
    """
    triples, frequencies = consensus.sorted_triples()
    K, n = consensus.n_classes, max(consensus.n_centers, 1)
    model = model_of(triples, frequencies, K)
    seconds = seconds_per_step(len(triples), K)
    expensive = seconds > _EXPENSIVE_STEP
    if settings.tol is None:
        enough = Enough(1e-11, 0) if seconds < _CHEAP_STEP else Enough(1e-9, 1e-6 / n)
    else:
        enough = Enough(settings.tol, 0)
    roughly = Enough(1e-7, 1e-2 / n)
    em_steps = 8 if expensive else 25
    lbfgs_steps = 40 if expensive else 2000
    if settings.start is not None:
        given = by_em(model, _start(*settings.start, "given"), em_steps)
        return _by_lbfgs(model, given, lbfgs_steps, enough)

    tried = [by_em(model, s, em_steps) for s in starts(consensus, few=expensive)]
    best = min(tried, key=lambda fit: fit.loss)
    if not expensive:
        best = _by_lbfgs(model, best, 200, roughly)
        best = _repair(model, best, triples, frequencies, n, roughly)
    return _by_lbfgs(model, best, lbfgs_steps, enough)


def by_em(model: Model, fit: Fit, steps: int) -> Fit:
    """Some steps of expectation-maximisation."""
    (T, p), _, _ = em(lambda at: _split(model.joint(*at)), (fit.T, fit.p), steps)
    divergence = model.joint_and_divergence(T, p)[1]
    return Fit(T, p, fit.start, divergence, fit.steps + steps)


def _by_lbfgs(model: Model, fit: Fit, steps: int, enough: Enough) -> Fit:
    """L-BFGS on the square roots of the joint, from a fit that it never makes worse."""
    K = len(fit.p)

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        root = x.reshape(K, K)
        size = (root * root).sum()
        joint = root * root / size
        T, p = _split(joint)
        posterior, divergence = model.joint_and_divergence(T, p)
        # dL/djoint: 3 log T + log p, with T = joint / p; minus its mean 1 for the scale.
        ratio = np.divide(posterior, joint, out=np.zeros_like(joint), where=joint > 0)
        slope = 3 * ratio - 2 * (posterior.sum(axis=1) / p)[:, None] - 1
        return divergence, (-2 / size * root * slope).ravel()

    found = lbfgs(
        objective,
        np.sqrt(fit.p[:, None] * fit.T).ravel(),
        most_steps=steps,
        gradient=enough.gradient,
        gain=enough.gain,
    )
    if not found.value < fit.loss:
        return replace(fit, converged=found.converged)
    root = found.x.reshape(K, K)
    T, p = _split(root * root / (root * root).sum())
    return Fit(T, p, fit.start, found.value, fit.steps + found.evaluations, found.converged)


def _split(joint: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A joint P(clean, label) as (T, p). A class with no mass keeps a valid row."""
    p = joint.sum(axis=1)
    empty = p <= 0
    if empty.any():
        joint = np.where(empty[:, None], 1e-300 / joint.shape[1], joint)
        p = joint.sum(axis=1)
    return joint / p[:, None], p


def _start(T: np.ndarray, p: np.ndarray, name: str) -> Fit:
    return Fit(interior(T), interior(p), name)


def starts(consensus: Consensus, few: bool = False) -> list[Fit]:
    """Where a search may start: what the labels, their pairs and their moments suggest."""
    triples, frequencies = consensus.sorted_triples()
    K, n = consensus.n_classes, max(consensus.n_centers, 1)
    c1 = np.bincount(triples.ravel(), np.repeat(frequencies / 3, 3), K)
    found = [_start(0.6 * np.eye(K) + 0.4 * c1, c1, "diagonal")]
    conditional, pair_share = _third_given_pair(triples, frequencies, K)[:2]
    extreme = _extreme_rows(conditional, pair_share * n, K)
    if extreme is not None:
        found.append(_start(extreme, np.full(K, 1 / K), "extreme pairs"))
    if few:
        return found
    agreement = np.zeros((K, K))
    for a, b in ((0, 1), (0, 2), (1, 2)):
        np.add.at(agreement, (triples[:, a], triples[:, b]), frequencies)
    agreement += agreement.T
    size = np.maximum(agreement.sum(axis=1, keepdims=True), 1e-300)
    found.append(_start(agreement / size, c1, "agreement"))
    for _, T, p in moment_solutions(triples, frequencies, K, slices=3):
        found.append(_start(project_on_simplex(T), project_on_simplex(p), "moments"))
    return found


def _third_given_pair(
    triples: np.ndarray, frequencies: np.ndarray, K: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """How the third label is distributed given two, for the 20 K most frequent unordered pairs.

    Returns the distributions (m, K), the share of each pair (m,) and its two labels (m,), (m,).
    """
    i, j, k = triples.T.astype(np.int64)
    key = np.concatenate([j * K + k, i * K + k, i * K + j])
    third = np.concatenate([i, j, k])
    pairs, row = np.unique(key, return_inverse=True)
    counts = sp.csr_array((np.tile(frequencies / 3, 3), (row, third)), shape=(len(pairs), K))
    share: np.ndarray = counts.sum(axis=1)
    frequent = np.sort(np.argsort(-share, kind="stable")[: 20 * K])
    conditional = counts[frequent].toarray() / share[frequent, None]
    return conditional, share[frequent], pairs[frequent] // K, pairs[frequent] % K


def _extreme_rows(conditional: np.ndarray, count: np.ndarray, K: int) -> np.ndarray | None:
    """K of the conditional distributions that are least similar to mixtures of the others.

    Given two labels the third is distributed as a mixture of rows of T, so rows of T are the
    extreme points, and a pair that only one class produces shows its row itself. Successive
    projection: take the longest vector, project it out of all, and again; a length is reduced
    by what sampling adds to it.
    """
    enough = count >= 3  # triples with the pair, to estimate its distribution
    if enough.sum() < K:
        return None
    candidates, noise = conditional[enough], 1 / count[enough]
    squared = np.einsum("ij,ij->i", candidates, candidates)
    chosen: list[int] = []
    directions = np.empty((K, K))
    for done in range(K):
        longest = int(np.argmax(squared - noise))
        direction = candidates[longest]
        for _ in range(2):  # once leaves rounding errors
            direction = direction - directions[:done].T @ (directions[:done] @ direction)
        length = np.linalg.norm(direction)
        if length < 1e-10:
            return None
        chosen.append(longest)
        directions[done] = direction / length
        squared -= (candidates @ directions[done]) ** 2
    return candidates[chosen]


def _repair(
    model: Model,
    fit: Fit,
    triples: np.ndarray,
    frequencies: np.ndarray,
    n: int,
    roughly: Enough,
) -> Fit:
    """While the misfit is more than sampling explains, move rows to what is badly explained.

    A row that resembles another is merged into it, and put where the third label given a pair
    is furthest from what the model expects. Of the moves of three such rows to three such places
    the best is kept, if it raises the likelihood.
    """
    K = len(fit.p)
    conditional, share, b, c = _third_given_pair(triples, frequencies, K)
    orders = np.where(b == c, 1, 2)
    for _ in range(_REPAIR_ROUNDS):
        mean, deviation = sampling_divergence(fit.T, fit.p, n)
        if fit.loss <= mean + 2 * deviation - K * K / (2 * n):
            break
        root = np.sqrt(fit.T)
        likeness = root @ root.T
        np.fill_diagonal(likeness, 0)
        partner = likeness.argmax(axis=1)
        cheapest = np.argsort(fit.p * (1 - likeness.max(axis=1)))[:3]

        observed = conditional * share[:, None]
        expected = (fit.p[:, None] * fit.T[:, b] * fit.T[:, c] * orders).T @ fit.T + 1e-300
        excess = np.where(
            observed > 0, observed * np.log(np.maximum(observed, 1e-300) / expected), 0
        )
        misfit = (excess - observed + expected).sum(axis=1)
        worst = np.argsort(-misfit)[:3]

        moves = []
        for row in cheapest:
            for pair in worst:
                T, p = fit.T.copy(), fit.p.copy()
                other = partner[row]
                p[other] += p[row]
                T[other] += (T[row] - T[other]) * p[row] / p[other]
                T[row], p[row] = conditional[pair], share[pair]
                moves.append(by_em(model, _start(T, p, "repaired"), 20))
        moved = _by_lbfgs(model, min(moves, key=lambda move: move.loss), 100, roughly)
        if moved.loss >= fit.loss - 1 / n:
            break
        fit = moved
    return fit
