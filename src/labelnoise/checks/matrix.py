"""Conditions of the paper's theorems on T: rows that differ, each with its own class."""

from __future__ import annotations

import numpy as np

from labelnoise.checks.findings import Finding, listed
from labelnoise.consensus import Consensus
from labelnoise.solvers import Solution

SURELY = 3.0  # standard errors
_SMALL_SINGULAR_VALUE = 0.05
_FEW_TRIPLES = 30
_PAIRS_TOLD = 2.0  # standard errors of the least eigenvalue
_OF_TWO = 0.9  # of its squared vector, where two labels are alike
_LEAST_OF_TWO = 0.25
_LEAST_MARGIN = 0.005  # of a row's diagonal over its other entries


def check_matrix(
    consensus: Consensus,
    T: np.ndarray,
    p: np.ndarray,
    has_label: np.ndarray,
    classes: np.ndarray,
    chance: float = 0.0,
) -> list[Finding]:
    """Whether rows of T can be told apart, to which class each belongs, and what it rests on.

    `chance` is the standard error of T's smallest singular value, if it is known.
    """
    occurring = np.flatnonzero(has_label).tolist()
    inner = T[np.ix_(occurring, occurring)]
    least = float(np.linalg.svd(inner, compute_uv=False)[-1])
    singular = least < max(_SMALL_SINGULAR_VALUE, SURELY * chance)
    findings = [
        Finding(
            "nonsingular",
            not singular,
            least,
            f"T is {'nearly singular' if singular else 'non-singular'}: its smallest singular "
            f"value is {least:.3g}."
            + (
                " Two classes are labelled almost alike, so their rows cannot be told apart."
                if singular
                else ""
            ),
            remedy="Merge the two classes, or find representations that separate them."
            if singular
            else "",
        )
    ]

    others = T - np.diag(np.diag(T))
    margin = np.diag(T) - others.max(axis=1)
    uninformative = [i for i in occurring if margin[i] < _LEAST_MARGIN]
    if uninformative:
        named = listed(classes, uninformative)
        are = "is" if len(uninformative) == 1 else "are"
        sentence = (
            f"T is not informative: {named} {are} labelled as another class as often as correctly "
            f"or more often (by up to {max(0, -margin[uninformative].min()):.1%}), so which row "
            f"belongs to which class is a guess (the order in which most labels are right)."
        )
        remedy = f"Check the labels of {named}."
    else:
        remedy = ""
        sentence = (
            "T is informative: its rows have their maxima at different labels, and each is taken "
            "for the class of that label."
        )
    least_margin = float(margin[occurring].min())
    findings.append(
        Finding("informative", not uninformative, least_margin, sentence, remedy=remedy)
    )

    counts = consensus.label_counts()
    absent = [i for i in range(len(classes)) if not has_label[i]]
    rare = [i for i in occurring if counts[i] < _FEW_TRIPLES]
    empty = [i for i in occurring if i not in rare and p[i] * consensus.n_centers < 1]
    parts = []
    if absent:
        parts.append(
            f"The label {listed(classes, absent)} never occurs, so nothing can be said of its "
            f"row, which is set to that of the identity, with a prior of 0."
        )
    if rare:
        parts.append(
            f"The label {listed(classes, rare)} occurs fewer than {_FEW_TRIPLES} times: its row "
            f"is hardly more than a guess."
        )
    if empty:
        parts.append(
            f"No example seems to be of class {listed(classes, empty)} (its prior came out as "
            f"0): its row means nothing."
        )
    findings.append(
        Finding(
            "classes",
            not parts,
            float(counts.min()),
            " ".join(parts)
            or f"Every class has data: the rarest label occurs {counts.min():.0f} times.",
            remedy="Get more labels of these classes, or merge them." if parts else "",
        )
    )
    return findings


def check_solution(consensus: Consensus, solution: Solution, classes: np.ndarray) -> list[Finding]:
    """Whether T is identified by the triples: the conditions of the paper's Theorem 1."""
    T, p = solution.transition_matrix, solution.class_prior
    findings = check_matrix(consensus, T, p, solution.occurring, classes)
    if not solution.converged:
        findings.append(
            Finding(
                "converged",
                False,
                float(solution.steps),
                f"The solver ran out of its {solution.steps} steps before it settled: T may be "
                f"off by more than its sampling error.",
                remedy="Use solver='likelihood', or merge classes that are labelled alike.",
            )
        )
    return findings


def check_pairs(consensus: Consensus, overlap: float, classes: np.ndarray) -> Finding:
    """Whether two labels are given alike, so that the pairs of labels cannot tell their rows.

    If two rows of T are equal, the frequencies of pairs of labels, each divided by the root of
    the frequencies of both, have an eigenvalue 0. Its vector says which labels they are.
    """
    c1 = consensus.c1
    labels = np.flatnonzero(c1 > 0)
    c1, c2 = c1[labels], consensus.c2[np.ix_(labels, labels)]
    c2 = (c2 + c2.T) / 2
    values, vectors = np.linalg.eigh(c2 / np.sqrt(c1[:, None] * c1))
    vector = vectors[:, 0]
    product = np.outer(vector / np.sqrt(c1), vector / np.sqrt(c1))
    variance = float((c2 * (product - values[0]) ** 2).sum())
    error = np.sqrt(variance * max(overlap, 1.0) / max(consensus.n_centers, 1))
    score = float(values[0] / max(error, 1e-300))
    two = np.argsort(-np.abs(vector))[:2]
    share = vector[two] ** 2
    if score >= _PAIRS_TOLD or share.sum() < _OF_TWO or share.min() < _LEAST_OF_TWO:
        sentence = "Pairs of neighbours' labels tell all rows of T, or no two labels in particular."
        return Finding("pairs", True, score, sentence)
    named = " and ".join(str(classes[labels[i]]) for i in sorted(two))
    sentence = (
        f"T is nearly singular: {named} are labelled alike, so that pairs of neighbours' labels do "
        f"not tell their rows from each other."
    )
    remedy = "Merge the two classes, or have some of their labels verified."
    return Finding("pairs", False, score, sentence, remedy=remedy)


def check_rows(T: np.ndarray, interval: np.ndarray, classes: np.ndarray) -> Finding:
    """Whether each row's maximum is clearly on its diagonal, given the error bars (2, K, K) of T.

    A row is weakly informative if the interval of its diagonal overlaps that of another entry.
    """
    low, high = interval
    others = high - 2 * np.eye(len(T))
    gap = np.diag(low) - others.max(axis=1)
    weak = np.flatnonzero(gap <= 0).tolist()
    if not weak:
        sentence = "Each class is clearly labelled correctly more often than as any one other."
        remedy = ""
    else:
        worst = int(gap.argmin())
        rival = int(others[worst].argmax())
        sentence = (
            f"The data do not show that {listed(classes, weak)} {'is' if len(weak) == 1 else 'are'}"
            f" labelled correctly more often than as another class: {classes[worst]} is labelled "
            f"{classes[worst]} {_range(interval[:, worst, worst])} of the time, and "
            f"{classes[rival]} {_range(interval[:, worst, rival])}. Which row of T belongs to "
            f"which class is uncertain there."
        )
        remedy = "Get more labels of these classes, or have some verified."
    return Finding("weak rows", not weak, float(gap.min()), sentence, remedy=remedy)


def check_guarantee(T: np.ndarray, p: np.ndarray, classes: np.ndarray) -> Finding:
    """For which classes the paper's Theorem 2 bounds the error of T by the order of 1/sqrt(N).

    Its condition ``T_ii > (1 - p_i + (K - 1) P(label i)) / (K (K - 1) p_i)`` is sufficient, not
    necessary, and proved for a T whose noise is spread evenly. Rare classes fail it however well
    they are estimated, so that this informs and never warns.
    """
    K = len(p)
    least = (1 - p + (K - 1) * (p @ T)) / np.maximum(K * (K - 1) * p, 1e-300)
    margin = np.diag(T) - least
    outside = np.flatnonzero(margin <= 0).tolist()
    sentence = (
        f"Theorem 2's bound on the error does not cover {listed(classes, outside)}, which "
        f"{'is' if len(outside) == 1 else 'are'} rare or heavily mislabelled: go by the error bars."
        if outside
        else "Theorem 2's condition holds for each class: errors shrink as 1 / sqrt(N)."
    )
    return Finding("guarantee", True, float(margin.min()), sentence)


def _range(ends: np.ndarray) -> str:
    return f"{ends[0]:.0%} to {ends[1]:.0%}"
