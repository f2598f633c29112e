"""What an estimate stands on, checked: each finding is a number and a plain sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtr

from labelnoise._blocks import CACHE_BYTES, row_blocks
from labelnoise.consensus import Consensus
from labelnoise.solvers import Solution, solve
from labelnoise.solvers.paper import CLEARLY_LESS, paper_objective
from labelnoise.solvers.triples import sampling_divergence

if TYPE_CHECKING:
    from labelnoise.clean_class import CleanClass

SURELY = 3.0  # standard errors
_SMALL_SINGULAR_VALUE = 0.05
_FEW_TRIPLES = 30
_LEAST_MARGIN = 0.005  # of a row's diagonal over its other entries
_MANY_DUPLICATES = 0.01
_CLEAR_DEVIATION = 3.0  # of a triple from what T and p expect, in standard deviations
_TRIPLES_NAMED = 3
LEAST_FOUND = 0.95  # of the nearest neighbours, by an approximate search
_OVERLAP_PAIRS = 3_000_000
_NEAR_ENDS = 0.02  # noise rates: then it does not matter which end is right


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    ok: bool
    value: float | None
    """The number behind the sentence; None where nothing could be measured."""
    sentence: str
    """What was found, and what it does to T."""
    severity: str = ""
    """"ok", "not tested", "warning" or "serious"; by default that of `ok`."""
    remedy: str = ""
    """What to do about it."""

    def __post_init__(self) -> None:
        if not self.severity:
            object.__setattr__(self, "severity", "ok" if self.ok else "warning")


@dataclass(frozen=True, repr=False)
class Diagnostics(Sequence[Finding]):
    """All findings about one estimate; prints as a list, and ``diagnostics["fit"]`` is one."""

    findings: tuple[Finding, ...]

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            for finding in self.findings:
                if finding.name == key:
                    return finding
            raise KeyError(key)
        return self.findings[key]

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __contains__(self, name: object) -> bool:
        return any(name in (finding, finding.name) for finding in self.findings)

    @property
    def ok(self) -> bool:
        """Whether nothing was found wrong."""
        return all(finding.ok for finding in self.findings)

    def __repr__(self) -> str:
        return "\n".join(
            f"{'ok     ' if finding.ok else 'WARNING'}  {finding.sentence}" for finding in self
        )


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
            f"value is {least:.3g}"
            + (
                ". Two classes are labelled almost alike, so their rows cannot be told apart: "
                "merge them, or find representations that separate them."
                if singular
                else "."
            ),
        )
    ]

    others = T - np.diag(np.diag(T))
    margin = np.diag(T) - others.max(axis=1)
    uninformative = [i for i in occurring if margin[i] < _LEAST_MARGIN]
    if uninformative:
        named = _names(classes, uninformative)
        are = "is" if len(uninformative) == 1 else "are"
        sentence = (
            f"T is not informative: {named} {are} labelled as another class as often as correctly "
            f"or more often (by up to {max(0, -margin[uninformative].min()):.1%}), so which row "
            f"belongs to which class is a guess (the order in which most labels are right). Check "
            f"the labels of {named}."
        )
    else:
        sentence = (
            "T is informative: its rows have their maxima at different labels, and each is taken "
            "for the class of that label."
        )
    findings.append(
        Finding("informative", not uninformative, float(margin[occurring].min()), sentence)
    )

    counts = consensus.label_counts()
    absent = [i for i in range(len(classes)) if not has_label[i]]
    rare = [i for i in occurring if counts[i] < _FEW_TRIPLES]
    empty = [i for i in occurring if i not in rare and p[i] * consensus.n_centers < 1]
    parts = []
    if absent:
        parts.append(
            f"The label {_names(classes, absent)} never occurs, so nothing can be said of its "
            f"row, which is set to that of the identity, with a prior of 0."
        )
    if rare:
        parts.append(
            f"The label {_names(classes, rare)} occurs fewer than {_FEW_TRIPLES} times: its row "
            f"is hardly more than a guess."
        )
    if empty:
        parts.append(
            f"No example seems to be of class {_names(classes, empty)} (its prior came out as "
            f"0): its row means nothing."
        )
    findings.append(
        Finding(
            "classes",
            not parts,
            float(counts.min()),
            " ".join(parts)
            or f"Every class has data: the rarest label occurs {counts.min():.0f} times.",
        )
    )
    return findings


def check_clean_class(found: CleanClass) -> list[Finding]:
    """Whether noise depends on the example, and whether each class has clear examples."""
    case = found.case
    low, high = (1 - float(p @ np.diag(T)) for T, p in (found.given_h, found.of_triples))
    where = "that are hard to tell" if case.b > 0 else "that are easy to tell"
    if case.depends:
        sentence = (
            f"Noise depends on the example: labels are wrong more often on examples {where}. "
            f"Labels cannot tell this noise from classes that overlap. Between "
            f"{min(low, high):.1%} and {max(low, high):.1%} of the labels are wrong, and T is "
            f"taken between the two."
        )
    else:
        sentence = "Noise does not seem to depend on the example, beside its class."
    remedy = "Have a hundred labels verified: they settle it." if case.depends else ""
    near = abs(high - low) < _NEAR_ENDS
    dependence = Finding("dependence", near or not case.depends, case.gain, sentence, "", remedy)
    sentence = (
        "Each class has clear examples."
        if case.clear
        else f"A class overlaps so much with others that even of its clearest examples only "
        f"{case.clearest:.1%} are of it, by the features. How much is noise rests on the form of "
        f"the model, and T may be far off."
    )
    remedy = "Use features in which classes lie further apart, or have a hundred labels verified."
    clear = Finding("clear", case.clear, case.clearest, sentence, "", "" if case.clear else remedy)
    return [dependence, clear]


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
            )
        )
    return findings


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
    else:
        worst = int(gap.argmin())
        rival = int(others[worst].argmax())
        sentence = (
            f"The data do not show that {_names(classes, weak)} {'is' if len(weak) == 1 else 'are'}"
            f" labelled correctly more often than as another class: {classes[worst]} is labelled "
            f"{classes[worst]} {_range(interval[:, worst, worst])} of the time, and "
            f"{classes[rival]} {_range(interval[:, worst, rival])}. Which row of T belongs to "
            f"which class is uncertain there: get more labels of these classes, or have some "
            f"verified."
        )
    return Finding("weak rows", not weak, float(gap.min()), sentence)


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
        f"Theorem 2's bound on the error does not cover {_names(classes, outside)}, which "
        f"{'is' if len(outside) == 1 else 'are'} rare or heavily mislabelled: go by the error bars."
        if outside
        else "Theorem 2's condition holds for each class: errors shrink as 1 / sqrt(N)."
    )
    return Finding("guarantee", True, float(margin.min()), sentence)


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
    if solver != "likelihood" or solution.start == "given":
        best = solve(consensus, "likelihood")
        if solver.startswith("paper"):
            own, other = (
                paper_objective(consensus, found.transition_matrix, found.class_prior)
                for found in (solution, best)
            )
            if other >= CLEARLY_LESS * own:
                return Finding(
                    "fit",
                    True,
                    own / max(other, 1e-300),
                    f"T and p minimise the paper's objective: it is {own:.2g}, and {other:.2g} at "
                    f"the most likely T.",
                )
        if best.divergence <= limit:
            return Finding(
                "fit",
                False,
                ratio,
                f"This is probably a wrong optimum: T and p do not explain the label triples "
                f"({measure}), but another T does (divergence {best.divergence:.2g}). Use "
                f"solver='likelihood', which tries several starts.",
            )
    return Finding(
        "fit",
        False,
        ratio,
        f"T and p do not explain the label triples: {measure}."
        f"{_worst_triples(consensus, solution, n, classes)} No better T was found. Either "
        f"neighbours often differ in their true class, so that T shows more noise than there is "
        f"(use representations in which classes lie further apart), or their labels were not "
        f"given independently (copies, one annotator's habits).",
    )


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


def check_duplicates(X: np.ndarray | None, labels: np.ndarray) -> Finding:
    """Whether examples occur more than once, which biases T when their labels are copies too."""
    if X is None:
        return Finding(
            "duplicates",
            True,
            None,
            "Duplicates were not looked for, as there are neighbours and no features.",
        )
    _, example, copies = np.unique(row_keys(X), return_inverse=True, return_counts=True)
    copied = copies[example] > 1
    share = float(copied.mean())
    if not copied.any():
        return Finding("duplicates", True, 0.0, "No example occurs twice.")
    labelled = example * (int(labels.max()) + 2) + labels
    _, which, alike = np.unique(labelled, return_inverse=True, return_counts=True)
    agree = float((alike[which] > 1)[copied].mean())
    return Finding(
        "duplicates",
        share <= _MANY_DUPLICATES,
        share,
        f"{copied.sum()} examples ({share:.1%}) are exact duplicates of another, and {agree:.0%} "
        f"of them carry the same label as a copy. Copies are each other's neighbours: if their "
        f"labels were copied too, T comes out too close to the identity. Keep one of each unless "
        f"their labels were given independently.",
    )


def row_keys(X: np.ndarray) -> np.ndarray:
    """A number for each row, the same for identical rows and hardly ever for others."""
    factors = np.random.default_rng(0).integers(1, 2**63, X.shape[1], dtype=np.uint64) * 2 + 1
    keys = np.empty(len(X), np.uint64)
    for rows in row_blocks(len(X), X.shape[1], CACHE_BYTES):
        block = np.ascontiguousarray(X[rows]) + 0  # -0.0 becomes 0.0
        bits = block.view(f"u{block.itemsize}").astype(np.uint64)
        keys[rows] = ((bits ^ (bits >> np.uint64(7))) * factors).sum(axis=1, dtype=np.uint64)
    return keys


def check_search(
    X: np.ndarray,
    labels: np.ndarray,
    neighbors: np.ndarray,
    metric: str,
    sources: np.ndarray | None,
    T: np.ndarray,
    p: np.ndarray,
) -> Finding:
    """How many of the nearest an approximate search found, and what the others would do to T.

    A sample of rows is searched exactly. Its triples, with exact and with the found neighbours,
    move the posterior joint of class and label by a little, to first order: one step of EM.
    """
    from labelnoise.neighbors.approximate import found_share

    rows, exact, recall = found_share(X, neighbors, metric, sources)

    def joint(others: np.ndarray) -> np.ndarray:
        triples = labels[np.column_stack([rows, others[:, :2]])]
        share = p * T.T[triples].prod(axis=1)
        share /= np.maximum(share.sum(axis=1, keepdims=True), 1e-300)
        result = np.zeros_like(T)
        for label in triples.T:
            np.add.at(result.T, label, share / (3 * len(rows)))
        return result

    moved = p[:, None] * T + joint(exact) - joint(neighbors[rows])
    moved = np.maximum(moved, 0)
    mass = moved.sum(axis=1, keepdims=True)
    moved = np.divide(moved, mass, out=T.copy(), where=mass > 0)
    change = float(np.abs(moved - T).sum() / len(T))
    advice = "" if recall >= LEAST_FOUND else " Use search='exact'."
    return Finding(
        "search",
        recall >= LEAST_FOUND,
        recall,
        f"Neighbours were searched for approximately, and {recall:.2%} of the nearest were found "
        f"(by {len(rows):,} examples that were searched exactly). Were all found, rows of T would "
        f"change by about {change:.4f}.{advice}",
    )


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


def _names(classes: np.ndarray, numbers: Sequence[int], most: int = 5) -> str:
    shown = [str(classes[i]) for i in numbers[:most]]
    more = len(numbers) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _range(ends: np.ndarray) -> str:
    return f"{ends[0]:.0%} to {ends[1]:.0%}"
