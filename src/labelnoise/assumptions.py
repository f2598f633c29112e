"""What `fit` takes for granted, looked at without clean labels. Costs more than the fit's checks.

The labels alone cannot tell everything: whatever T and the classes' overlap are, another T with
another overlap gives the same labels. What separates the two here are places where the classes
hardly overlap (the purest neighbourhoods), distance, and a linear form of P(class | x). The limits
of each check are in its docstring, its hits and false alarms in benchmarks/results/diagnostics.md.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit, softmax
from threadpoolctl import threadpool_limits

from labelnoise._blocks import row_blocks
from labelnoise.consensus import Consensus
from labelnoise.diagnostics import Finding
from labelnoise.linear import _forward_sums, _standardised, noisy_posteriors
from labelnoise.neighbors import Neighbors, Progress, nearest_neighbors
from labelnoise.solvers import Solution, solve

N_NEIGHBORS = 6

_LEAST_FALL = 0.02  # of the agreement with near neighbours, to be worth a word
_LEAST_FALL_BY_DISTANCE = 0.05
_DISTANCE_BINS = 10
_END_SHARE = 0.3  # of the examples at either end of the distances
_CLEAR = 3.0  # standard deviations
_PUREST = 0.1  # share of the examples taken as pure
_LEAST_PURE = 100  # of them for each class
_FEASIBLE = 0.9
_TELLS_NOTHING = 0.5  # width of an interval of the share
_GROUPS = 10  # of the jackknife
_NO_NOISE = 0.005
_NEAR = 0.25  # of the distance to the 6th neighbour
_MANY_NEAR = 0.01
_BINS = 3
_MOST_CLASSES = 10  # with 20, noise between pairs of classes gave 2 false alarms of 4
_LEAST_PER_FEATURE = 100
_LEAST_EXAMPLES = 10_000
_CURVED = 0.1
_CLEAR_RATIO = 30.0  # of likelihoods, twice the logarithm; class-dependent noise gave 23 at most


def check_assumptions(
    X: np.ndarray,
    labels: np.ndarray,
    K: int,
    metric: str,
    T: np.ndarray,
    p: np.ndarray,
    *,
    sources: np.ndarray | None = None,
    progress: Progress | None = None,
    **how: Any,
) -> tuple[NeighborAgreement, tuple[Finding, ...]]:
    """Look at what the estimate (T, p) rests on: all of the checks below.

    Parameters
    ----------
    X : array of shape (N, d)
        Representations of labelled examples, more than 6, without zero vectors.
    labels : int array of shape (N,)
        Class numbers, none of them -1.
    K : int
    metric : {"cosine", "euclidean"}
    T, p : arrays of shape (K, K) and (K,)
        The estimate.
    sources : int array of shape (N,), optional
        Examples of one source are not taken for neighbours of each other.
    progress : callable, optional
        Called as ``progress(done, total)`` during the neighbour search.
    how
        `search` and `device`, as `labelnoise.neighbors.nearest_neighbors` takes them.
    """
    near = nearest_neighbors(X, N_NEIGHBORS, metric, sources=sources, progress=progress, **how)
    posteriors = noisy_posteriors(X, labels, K)
    return neighbor_agreement(near, labels), (
        check_ranks_agree(labels, near.indices, K),
        check_distance(near, labels, T),
        check_independence(labels, near.indices),
        *check_pure(labels, near.indices, posteriors, T, p),
        check_dependence(X, labels, near.indices, posteriors),
        check_near_duplicates(near, labels, metric),
    )


@dataclass(frozen=True, eq=False)
class NeighborAgreement:
    """How often an example and its neighbours carry the same label, by how near they are."""

    by_rank: np.ndarray
    """(k,) share of the neighbours of each rank, the nearest first, with the example's label."""
    distance: np.ndarray
    """(b,) mean distance of the nearest neighbour, in as many parts of equal size."""
    by_distance: np.ndarray
    """(b,) share of the nearest neighbours with the example's label, in each part."""
    chance: float
    """Share of equal labels among any two examples."""


def neighbor_agreement(neighbors: Neighbors, labels: np.ndarray) -> NeighborAgreement:
    """Count how often labels (N,) agree with those of the neighbours, whose distances are known."""
    same = labels[neighbors.indices] == labels[:, None]
    nearest = np.asarray(neighbors.distances)[:, 0]
    parts = np.array_split(np.argsort(nearest, kind="stable"), min(_DISTANCE_BINS, len(labels)))
    counts = np.bincount(labels).astype(float)
    return NeighborAgreement(
        by_rank=same.mean(axis=0),
        distance=np.array([nearest[rows].mean() for rows in parts]),
        by_distance=np.array([same[rows, 0].mean() for rows in parts]),
        chance=float((counts * (counts - 1)).sum() / (len(labels) * (len(labels) - 1))),
    )


def check_ranks_agree(labels: np.ndarray, neighbors: np.ndarray, K: int) -> Finding:
    """Whether labels agree as often with the 5th and 6th neighbour as with the first two.

    They do where neighbourhoods are pure, and where they are impure but the same all over: that
    they agree alike is no proof.
    """
    same = labels[neighbors[:, :N_NEIGHBORS]] == labels[:, None]
    fall = same[:, :2].mean(axis=1) - same[:, 4:].mean(axis=1)
    error = fall.std() / len(fall) ** 0.5
    near, far = float(same[:, :2].mean()), float(same[:, 4:].mean())
    relative = (near - far) / max(near, 1e-300)
    falls = fall.mean() - 2 * error > _LEAST_FALL * near
    measure = (
        f"the label agrees with that of the nearest two neighbours in {near:.1%} of cases, with "
        f"that of the 5th and 6th in {far:.1%}"
    )
    if not falls:
        return Finding("ranks", True, relative, f"Near neighbours are as good as any: {measure}.")
    rates = [
        _noise_rate(solve(Consensus.from_neighbors(labels, neighbors[:, [i, i + 1]], K)))
        for i in (0, 2, 4)
    ]
    shown = ", ".join(f"{rate:.1%}" for rate in rates)
    return Finding(
        "ranks",
        False,
        relative,
        f"Neighbours differ in class the more, the further they are: {measure}, and the noise "
        f"rate from neighbours 1-2, 3-4 and 5-6 is {shown}. The nearest two will differ at times, "
        f"too, and T shows that as noise: use representations in which classes lie further apart.",
    )


def check_distance(neighbors: Neighbors, labels: np.ndarray, T: np.ndarray) -> Finding:
    """Whether labels agree less with the nearest two neighbours where the nearest is far.

    Compares the three tenths with the nearest neighbours and those with the furthest. Classes may
    differ in their spread and in their noise, so that what T explains is taken off: two labels of
    class i agree with chance ``a = sum_j T[i, j]^2``, which the labels j of a class have as their
    mean of ``T^-1 a``. It sees what `check_ranks_agree` does not where an example's neighbours are
    all about as far, as they are in many dimensions.
    """
    triples = np.column_stack([labels, labels[neighbors.indices[:, :2]]])
    agree = (triples[:, 1:] == triples[:, :1]).mean(axis=1)
    explained = (np.linalg.pinv(T) @ (T**2).sum(axis=1))[triples].mean(axis=1)
    rest = agree - explained
    order = np.argsort(np.asarray(neighbors.distances)[:, 0], kind="stable")
    size = max(int(_END_SHARE * len(order)), 1)
    first, last = order[:size], order[-size:]
    fall = float(rest[first].mean() - rest[last].mean())
    error = ((rest[first].var() + rest[last].var()) / size) ** 0.5
    near, far = float(agree[first].mean()), float(agree[last].mean())
    by_classes = min(max(far + fall, 0.0), 1.0)
    falls = fall - _CLEAR * error > _LEAST_FALL_BY_DISTANCE * near
    measure = (
        f"where it is near the label agrees with that of the nearest two in {near:.1%} of cases, "
        f"where it is far in {far:.1%} ({by_classes:.1%} by the classes there)"
    )
    return Finding(
        "distance",
        not falls,
        fall / max(near, 1e-300),
        f"How far the nearest neighbour is makes no clear difference: {measure}."
        if not falls
        else f"Labels agree less the further the nearest neighbour is: {measure}. There classes "
        f"meet, which T shows as noise (use representations in which they lie further apart), or "
        f"labels are wrong more often, and T is an average (use LocalHOC).",
    )


def check_independence(labels: np.ndarray, neighbors: np.ndarray) -> Finding:
    """Whether labels agree with the nearest few neighbours by a step more than with the next.

    Where classes overlap, agreement falls with distance d. In m dimensions ``d_r^m`` grows as the
    rank r, so that agreement falls from r to r + 1 in proportion to 1 / r where m is large, and
    more evenly where it is small. A fall at one rank that exceeds what the others together let
    expect is a sign of labels that were given together: copied from near examples, or to the parts
    of one thing.

    Notes
    -----
    It speaks, too, if such parts were labelled one by one and classes overlap around them. Labels
    copied evenly from six neighbours or more leave no step, and nothing in the triples tells them
    from labels with less noise.
    """
    same = (labels[neighbors[:, :N_NEIGHBORS]] == labels[:, None]).astype(float)
    fall = same[:, :-1] - same[:, 1:]
    smooth = 1 / np.arange(1, N_NEIGHBORS)
    share = np.maximum(smooth / (smooth.sum() - smooth), 1 / (N_NEIGHBORS - 2))
    excess = fall - share * (fall.sum(axis=1, keepdims=True) - fall)
    step = excess.mean(axis=0)
    deviations = step / np.maximum(excess.std(axis=0) / len(labels) ** 0.5, 1e-300)
    r = int(deviations.argmax())
    near, far = same[:, : r + 1].mean(), same[:, r + 1].mean()
    together = deviations[r] > _CLEAR and step[r] > _LEAST_FALL * near
    nearest = "the nearest neighbour" if r == 0 else f"the nearest {r + 1} neighbours"
    return Finding(
        "independence",
        not together,
        float(step[r]),
        "Labels agree with no neighbours much more than with those just beyond: nothing says that "
        "they were copied (from many neighbours alike it would not show)."
        if not together
        else f"Labels agree with those of {nearest} in {near:.1%} of cases, and of the next in "
        f"{far:.1%}, a step that distance does not explain. These may be copies, or parts of one "
        f"thing. If their labels were given together, T comes out too close to the identity: keep "
        f"one of each, or give them one source in `fit`.",
    )


def check_pure(
    labels: np.ndarray,
    neighbors: np.ndarray,
    posteriors: np.ndarray,
    T: np.ndarray,
    p: np.ndarray,
) -> tuple[Finding, Finding]:
    """How many triples are feasible, and whether any noise is visible, by the purest examples.

    Pure are the examples whose label can be foretold best from the features (out of fold), a share
    of those foretold as each class. Their triples give a T* that hardly any confusion of classes
    is in. Labels given by T* have ``J[i, j, k] = sum_abc c3[a, b, c] A[a, i] A[b, j] A[c, k]`` as
    clean classes of all triples, with A the inverse of T*, and ``sum_i J[i, i, i]`` of them are
    feasible. Its interval is two standard deviations wide to either side, and reaches down to what
    the step from twice as many examples to the purest, taken once more, would give.

    Returns
    -------
    tuple of two Findings
        "feasible" and "memorised".

    Notes
    -----
    As the purest are not quite pure, the share comes out too high: on CIFAR-10 features, of which
    59% are feasible, by .02 for evenly spread noise and .06 for pairs of classes. Noise that grows
    with difficulty makes it too low, by .03 to .1 for human labels and by more for noise made so:
    no limit tells it from classes that overlap, and the sentence names both. "memorised" speaks
    only where features have taken up all errors; having taken up some looks like noise on hard
    examples.
    """
    K = len(p)
    triples = np.column_stack([labels, labels[neighbors[:, :2]]])
    share = max(_PUREST, _LEAST_PURE * K / len(labels))
    pure = _Pure(triples, _purest(posteriors, share), K)
    wider = _Pure(triples, _purest(posteriors, 2 * share), K)
    pure_rate = _noise_rate(pure.solution)
    feasible = _feasible_finding(pure, wider, float(1 - p @ np.diag(T)))
    hidden = pure_rate < _NO_NOISE
    memorised = Finding(
        "memorised",
        not hidden,
        pure_rate,
        f"Where the features tell the class best, {pure_rate:.1%} of the labels are wrong, so the "
        f"features have not taken up all errors."
        if not hidden
        else f"Where the features tell the label best, hardly any label is wrong ({pure_rate:.1%})."
        f" Either the labels are clean, or the features were trained on these very labels and have "
        f"memorised their errors: then T shows too little noise, and you need the features of a "
        f"model that never saw these labels.",
    )
    return feasible, memorised


class _Pure:
    """The T of the triples (N, 3) of labels around the examples to keep."""

    def __init__(self, triples: np.ndarray, keep: np.ndarray, K: int) -> None:
        self.triples, self.keep, self.K = triples, keep, K
        self.solution = solve(Consensus.from_labels(triples[keep], K))

    def feasible(self, rows: np.ndarray | None = None) -> float:
        """Share of all triples, or those of some rows, with one clean class, if T is theirs."""
        T, triples = self.solution.transition_matrix, self.triples
        if rows is not None:
            triples = triples[rows]
            kept = Consensus.from_labels(triples[self.keep[rows]], self.K)
            start = T, np.maximum(self.solution.class_prior, 1e-6)
            T = solve(kept, start=start).transition_matrix
        A, total = np.linalg.pinv(T), 0.0
        for block in row_blocks(len(triples), self.K):
            total += float(np.einsum("ni,ni,ni->", *(A[label] for label in triples[block].T)))
        return total / len(triples)

    def feasible_error(self) -> float:
        """Standard deviation of the share, by leaving out a tenth of the examples at a time."""
        group = np.random.default_rng(0).permutation(len(self.triples)) % _GROUPS
        shares = [self.feasible(group != number) for number in range(_GROUPS)]
        return float(np.std(shares)) * (_GROUPS - 1) ** 0.5


def _feasible_finding(pure: _Pure, wider: _Pure, rate: float) -> Finding:
    share, margin = pure.feasible(), 2 * pure.feasible_error()
    low = min(share, 2 * share - wider.feasible()) - margin
    ok = share + margin >= _FEASIBLE
    low, share, high = np.clip([low, share, share + margin], 0, 1).tolist()
    if high - low > _TELLS_NOTHING:
        said = "How many triples are of one class cannot be told: there are too few examples."
        return Finding("feasible", True, share, said)
    measure = f"about {share:.0%} ({low:.0%} to {high:.0%}) of the triples are of one class"
    return Finding(
        "feasible",
        ok,
        share,
        f"{measure.capitalize()}, and the method assumes that all are."
        if ok
        else f"Either {measure}, where the method assumes all, and T shows the confusion of the "
        f"others as noise, a bias larger than the error bars: use representations in which classes "
        f"lie further apart. Or labels are wrong more often on hard examples than on the purest "
        f"({_noise_rate(pure.solution):.1%}; {rate:.1%} by T), and the bias is smaller. The labels "
        f"cannot tell which: have some of hard examples verified.",
    )


def check_dependence(
    X: np.ndarray, labels: np.ndarray, neighbors: np.ndarray, posteriors: np.ndarray
) -> Finding:
    """Whether noise depends on the example beyond its class.

    Fits ``P(label | x) = T' h(x)`` with a linear softmax h, and again with noise multiplied by a
    factor in each third of the examples, from the hardest to foretell to the easiest. The value
    is twice the logarithm of the ratio of their likelihoods.

    Notes
    -----
    It rests on the form of h. Where that is wrong (the residuals of neighbours are correlated),
    there is no answer. It sees two of four sets of human labels on CIFAR-10 (features not trained
    on them). The others look like one T with classes that overlap more, and nothing computed from
    the labels can tell them from that. Silence is no proof.
    """
    n, d = X.shape
    K = posteriors.shape[1]
    if K > _MOST_CLASSES:
        return _not_tested(f"with more than {_MOST_CLASSES} classes the test cannot tell")
    if n < max(_LEAST_EXAMPLES, _LEAST_PER_FEATURE * d):
        return _not_tested(
            f"that takes {_LEAST_EXAMPLES:,} examples, and {_LEAST_PER_FEATURE} for each feature"
        )
    scaled, labels, _ = _standardised(X, labels, K)
    third = _hardness(posteriors)
    data = [(scaled[third == number], labels[third == number]) for number in range(_BINS)]
    one, start, _ = _fit_binned(data, K, None)
    if _residual_correlation(labels, neighbors, _foretold(scaled, start, K)) > _CURVED:
        return _not_tested("a linear model does not describe these classes")
    each, _, factors = _fit_binned(data, K, start)
    ratio = 2 * n * max(one - each, 0.0)
    if ratio <= _CLEAR_RATIO:
        return Finding(
            "dependence",
            True,
            ratio,
            "Within a class, easy and hard examples seem to be mislabelled alike (noise that looks "
            "like classes which overlap more would not show).",
        )
    hard, easy = factors[0], factors[-1]
    which = ("hard", "easy") if hard > easy else ("easy", "hard")
    return Finding(
        "dependence",
        False,
        ratio,
        f"Noise depends on the example: {which[0]} ones of a class are mislabelled more often than "
        f"{which[1]} ones. T is an average over them: use LocalHOC, or GroupHOC if you know what "
        f"the noise depends on.",
    )


def check_near_duplicates(neighbors: Neighbors, labels: np.ndarray, metric: str) -> Finding:
    """Whether many examples have a near copy: a nearest neighbour far nearer than the sixth.

    What is usual depends on the dimension m in which the data spread, as ``(d_3 / d_6)^m`` is
    at 1/2 in the median. Exact copies are left to `check_duplicates`.
    """
    distance = np.asarray(neighbors.distances) ** (0.5 if metric == "cosine" else 1)
    first, third, sixth = distance[:, 0], distance[:, 2], distance[:, N_NEIGHBORS - 1]
    apart = third > 0
    middle = float(np.median(third[apart] / sixth[apart])) if apart.any() else 0.0
    m = np.log(0.5) / np.log(np.clip(middle, 1e-9, 1 - 1e-9))
    if 1 - (1 - _NEAR**m) ** (N_NEIGHBORS - 1) > _MANY_NEAR / 2:
        return Finding(
            "near duplicates",
            True,
            None,
            "Near copies were not looked for: the data spread in so few dimensions that examples "
            "come that near by chance.",
        )
    near = (first > 0) & (first < _NEAR * sixth)
    share = float(near.mean())
    many = share > _MANY_NEAR
    agree = (
        float((labels[near] == labels[neighbors.indices[near, 0]]).mean()) if near.any() else 0.0
    )
    return Finding(
        "near duplicates",
        not many,
        share,
        f"{near.sum()} examples ({share:.1%}) have a near copy, whose label is the same in "
        f"{agree:.0%} of cases. If labels were copied with them, T comes out too close to the "
        f"identity: keep one of each, or give copies one source in `fit`."
        if many
        else f"There are no more near copies than is usual ({share:.1%} of the examples).",
    )


def _noise_rate(solution: Solution) -> float:
    return float(1 - solution.class_prior @ np.diag(solution.transition_matrix))


def _hardness(posteriors: np.ndarray, parts: int = _BINS) -> np.ndarray:
    """(N,) which part each is in among those foretold as the same class, 0 the hardest."""
    result = np.zeros(len(posteriors), np.intp)
    foretold, best = posteriors.argmax(axis=1), posteriors.max(axis=1)
    for k in range(posteriors.shape[1]):
        rows = np.flatnonzero(foretold == k)
        rows = rows[np.argsort(best[rows], kind="stable")]
        result[rows] = np.arange(len(rows)) * parts // max(len(rows), 1)
    return result


def _purest(posteriors: np.ndarray, share: float) -> np.ndarray:
    """(N,) whether among about this share of those foretold as each class, the best foretold."""
    return _hardness(posteriors, 1000) >= 1000 * (1 - share)


def _residual_correlation(
    labels: np.ndarray, neighbors: np.ndarray, posteriors: np.ndarray
) -> float:
    """By how much neighbours are both labelled as foretold too seldom, as a correlation."""
    residual = -posteriors
    residual[np.arange(len(labels)), labels] += 1
    together = np.einsum("nk,nk->", residual, residual[neighbors[:, 0]])
    return float(together / np.einsum("nk,nk->", residual, residual))


def _foretold(X: np.ndarray, parameters: np.ndarray, K: int) -> np.ndarray:
    """(N, K) chances of the labels by the model that `_fit_binned` found without a start."""
    size = K * (X.shape[1] + 1)
    weights, T = parameters[:size].reshape(K, -1).astype(X.dtype), np.eye(K)
    T[~np.eye(K, dtype=bool)] = expit(parameters[size:])
    T /= T.sum(axis=1, keepdims=True)
    return softmax(X @ weights[:, :-1].T + weights[:, -1], axis=1) @ T


def _not_tested(reason: str) -> Finding:
    sentence = f"Whether noise depends on the example was not tested: {reason}."
    return Finding("dependence", True, None, sentence)


def _fit_binned(
    data: list[tuple[np.ndarray, np.ndarray]], K: int, start: np.ndarray | None
) -> tuple[float, np.ndarray, np.ndarray]:
    """Mean loss, parameters and factors of the noise in each part: 1 without a start.

    As `labelnoise.linear.fit_transition_layer`, with the off-diagonal of T times a factor.
    """
    n, d = sum(len(y) for _, y in data), data[0][0].shape[1]
    off, size = ~np.eye(K, dtype=bool), K * (d + 1)
    stop = size + K * (K - 1)
    free = start is not None
    if start is None:
        start = np.concatenate([np.zeros(size), np.full(stop - size, logit(1 / K))])
    start = np.concatenate([start[:stop], np.zeros(len(data) - 1 if free else 0)])

    def objective(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        weights, shared = parameters[:size].reshape(K, -1), expit(parameters[size:stop])
        log_factors = np.zeros(len(data))
        log_factors[: len(parameters) - stop] = parameters[stop:]
        raw = np.tile(np.eye(K), (len(data), 1, 1))
        raw[:, off] = np.exp(log_factors)[:, None] * shared
        total = raw.sum(axis=2, keepdims=True)
        T = raw / total
        model, log_T = weights.astype(np.float32), np.log(T).astype(np.float32)
        parts = pool.map(lambda part, log: _forward_sums(part[0], part[1], model, log), data, log_T)
        losses, gradients, joints = zip(*parts, strict=True)
        by_weights = np.sum(gradients, axis=0)
        by_weights[:, :-1] += weights[:, :-1]
        by_T = -np.array(joints) / T
        by_log = ((by_T - (by_T * T).sum(axis=2, keepdims=True)) / total * raw)[:, off]
        loss = sum(losses) + (weights[:, :-1] ** 2).sum() / 2
        by_factors = by_log.sum(axis=1)[: len(parameters) - stop]
        by_shared = by_log.sum(axis=0) * (1 - shared)
        return loss / n, np.concatenate([by_weights.ravel(), by_shared, by_factors]) / n

    options = {"maxiter": 300, "ftol": 1e-7, "gtol": 1e-6, "maxcor": 20}
    search: Any = {"jac": True, "method": "L-BFGS-B", "options": options}
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(len(data)) as pool:
        found = minimize(objective, start, **search)
    factors = np.ones(len(data))
    factors[: len(start) - stop] = np.exp(found.x[stop:])
    return float(found.fun), found.x, factors
