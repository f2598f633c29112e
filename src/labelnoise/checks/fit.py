"""Whether T and the class prior explain the label triples, up to what sampling explains."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtr

from labelnoise.checks.findings import Finding
from labelnoise.consensus import Consensus
from labelnoise.solvers import Solution, solve
from labelnoise.solvers.paper import CLEARLY_LESS, paper_objective
from labelnoise.solvers.triples import sampling_divergence

_CLEAR_DEVIATION = 3.0  # of a triple from what T and p expect, in standard deviations
_TRIPLES_NAMED = 3
_SAME_MATRIX = 0.1  # error of one T against the other: the paper's own error is as large
_OVERLAP_PAIRS = 3_000_000


def check_fit(
    consensus: Consensus,
    solution: Solution,
    solver: str = "likelihood",
    overlap: float = 1.0,
    classes: np.ndarray | None = None,
) -> Finding:
    """Whether (T, p) explains the triples, up to what sampling explains.

    The Kullback-Leibler divergence of the observed triples from those expected is compared
    with that of triples drawn from (T, p). `overlap` is by how much triples that share members
    reduce their number: see `overlap_of`; 1 takes them as independent. The triples that fit
    worst are named by `classes`, or their numbers.

    If the answer of another solver than the likelihood's, or of one start, does not fit, the
    likelihood is maximised from all starts to see whether the same model can do better.
    """
    n = max(int(consensus.n_centers / overlap), 1)
    labels = np.flatnonzero(solution.occurring)
    T = solution.transition_matrix[np.ix_(labels, labels)]
    p = solution.class_prior[labels]
    mean, deviation = sampling_divergence(T, p, n)
    # Each parameter that was free to move takes up half a unit of log-likelihood.
    free = np.count_nonzero(T > 1e-6) - 1
    expected = max(mean - free / (2 * n), 0.05 * mean)
    limit = expected + 3 * deviation
    ratio = float(solution.divergence / max(expected, 1e-300))
    deviations = (solution.divergence - expected) / max(deviation, 1e-300)
    measure = (
        f"their divergence is {solution.divergence:.2g}, and sampling alone would give "
        f"{expected:.2g} (p = {ndtr(-deviations):.2g})"
    )
    if solution.divergence <= limit:
        return Finding("fit", True, ratio, f"T and p explain the label triples: {measure}.")
    if solver.startswith("paper"):
        return _check_objective(consensus, solution)
    if solver != "likelihood" or solution.start == "given":
        best = solve(consensus, "likelihood")
        if best.divergence <= limit:
            return Finding(
                "fit",
                False,
                ratio,
                f"This is probably a wrong optimum: T and p do not explain the label triples "
                f"({measure}), but another T does (divergence {best.divergence:.2g}).",
                remedy="Use solver='likelihood', which tries several starts.",
            )
    return Finding(
        "fit",
        False,
        ratio,
        f"T and p do not explain the label triples: {measure}."
        f"{_worst_triples(consensus, solution, n, classes)} No better T was found. Either "
        f"neighbours often differ in their true class, so that T shows more noise than there is, "
        f"or their labels were not given independently (copies, one annotator's habits).",
        remedy="Use representations in which classes lie further apart, and give sources= if "
        "examples come from few sources.",
    )


def _check_objective(consensus: Consensus, solution: Solution) -> Finding:
    """Whether the paper's solver found a minimum of its own objective.

    Another T with a clearly lower objective is no matter if it is nearly the same T.
    """
    best = solve(consensus, "likelihood")
    own, other = (
        paper_objective(consensus, found.transition_matrix, found.class_prior)
        for found in (solution, best)
    )
    measure = f"the paper's objective is {own:.2g}, and {other:.2g} at the most likely T"
    ratio = own / max(other, 1e-300)
    moved = np.abs(solution.transition_matrix - best.transition_matrix).sum() / len(
        best.class_prior
    )
    if other >= CLEARLY_LESS * own or moved < _SAME_MATRIX:
        return Finding("fit", True, ratio, f"T and p minimise their objective: {measure}.")
    sentence = f"This is probably a wrong optimum: {measure}, whose rows differ by {moved:.2g}."
    remedy = "Use solver='likelihood', which tries several starts, or another random_state."
    return Finding("fit", False, ratio, sentence, remedy=remedy)


def _worst_triples(
    consensus: Consensus, solution: Solution, n: int, classes: np.ndarray | None
) -> str:
    """Say which labels are found together more, or less, often than T and p expect.

    Triples, as a T that does not explain them may still explain all pairs of labels.
    """
    triples, observed = consensus.sorted_triples()
    expected = _chance(triples, solution.transition_matrix, solution.class_prior)
    score = (observed - expected) / np.sqrt(np.maximum(expected, 1 / n) / n)
    names = np.arange(consensus.n_classes) if classes is None else classes
    named = [
        f"{', '.join(str(names[label]) for label in triples[m])} ({observed[m] * n:.0f} times, "
        f"{expected[m] * n:.0f} expected)"
        for m in np.argsort(-np.abs(score))[:_TRIPLES_NAMED]
        if abs(score[m]) > _CLEAR_DEVIATION
    ]
    return f" Worst explained are the labels {'; '.join(named)}." if named else ""


def _chance(triples: np.ndarray, T: np.ndarray, p: np.ndarray) -> np.ndarray:
    """(M,) chance of sorted triples, in any order."""
    i, j, k = triples.T
    orders = np.array([0, 1, 3, 6])[1 + (i != j).astype(int) + (j != k)]
    return orders * np.einsum("i,im,im,im->m", p, T[:, i], T[:, j], T[:, k])


def overlap_of(indices: np.ndarray, labels: np.ndarray, T: np.ndarray, p: np.ndarray) -> float:
    """By how much triples that share members widen the sampling divergence.

    With frequencies f and expectations q the divergence is about ``sum (f - q)^2 / 2q``, whose
    mean is a sum over pairs of triples that share a member, themselves included, of
    ``[both are the same triple] / q - 1``. It is compared with the sum over single triples.
    Estimated from as many random centres as give a few million pairs.
    """
    n, K = len(indices), len(p)
    members = np.column_stack([np.arange(n), indices[:, :2]])
    complete = np.flatnonzero((labels[members] >= 0).all(axis=1))
    members = members[complete]
    if not len(members):
        return 1.0
    triples = np.sort(labels[members], axis=1)
    key = (triples[:, 0] * K + triples[:, 1]) * K + triples[:, 2]
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    chance = _chance(triples[first], T, p)
    # A triple expected less than once contributes no more than one expected once.
    weight = 1 / np.maximum(chance, 1 / len(members))[which]

    m = len(members)
    holds = sp.csr_array(
        (np.ones(3 * m, np.int8), members.ravel(), np.arange(0, 3 * m + 1, 3)), (m, n)
    )
    held = np.bincount(members.ravel(), minlength=n)
    some = np.random.default_rng(0).permutation(m)
    pairs = np.cumsum(held[members[some]].sum(axis=1))
    some = some[: max(1, np.searchsorted(pairs, _OVERLAP_PAIRS))]
    shared = sp.csr_array(holds[some] @ holds.T)
    one = some[np.repeat(np.arange(len(some)), np.diff(shared.indptr))]
    same = which[one] == which[shared.indices]
    together = weight[one[same]].sum() - shared.nnz
    alone = weight[some].sum() - len(some)
    return max(1.0, float(together / max(alone, 1e-300)))
