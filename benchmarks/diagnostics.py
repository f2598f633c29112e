"""Diagnostics: how often does each speak when it should, and when it should not?

Each check runs on data of which we know what is wrong with them. "Feasible" is the share of
triples of one clean class: below 85% the checks of clusterability should speak, above 95% they
should not, and between the two they may. Memorised features are those of a network trained on
the very labels that are given. Noise depends on the example in human labels, in the paper's
generator, and where it grows, or falls, towards the border of a class. Where it grows, "distance"
and "feasible" may speak, as they say that it is one or the other; how often they do where classes
are apart is counted by itself.

    python benchmarks/diagnostics.py    # about 25 minutes on two cores, half of it for 100 classes

Real features are used where LABELNOISE_DATA names a folder that has cifar10/. The last results are
in benchmarks/results/diagnostics.md.
"""

from __future__ import annotations

import os
import platform
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import numpy as np
from labelnoise.assumptions import (
    N_NEIGHBORS,
    check_dependence,
    check_distance,
    check_independence,
    check_near_duplicates,
    check_pure,
    check_ranks_agree,
)
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier
from tables import table

from labelnoise import Consensus, feasibility
from labelnoise.checks import Finding, check_fit, check_guarantee, check_rows, overlap_of
from labelnoise.clean_class.linear import noisy_posteriors
from labelnoise.intervals import confidence_interval
from labelnoise.neighbors import Neighbors, nearest_neighbors
from labelnoise.noise import class_conditional, instance_dependent, pair_flip, symmetric
from labelnoise.solvers import solve

K = 10
SEEDS = 4
FRESH_SEEDS = (500, 501)
CLUSTERABLE = ("ranks", "distance", "feasible")
ONE_OR_THE_OTHER = ("distance", "feasible")  # classes that meet, or noise where they do
ONE_BY_ONE = " (parts of one thing labelled one by one, classes overlap)"
CHECKS = (*CLUSTERABLE, "independence", "memorised", "dependence", "near duplicates")
FEATURES = (
    "efficientnet_lite2",
    "efficientnet_lite0",
    "resnet18_human_early",
    "resnet18_human_memorised",
)
HUMAN = ("human", "cifar10n_aggregate", "cifar10n_random1", "cifar10n_worst")
CLASS_NOISE = ("symmetric .2", "symmetric .6", "pair .3", "random T")
FRESH_NOISE = ("symmetric .3", "pair .4", "random T", "towards the border")


@dataclass
class Data:
    """Features, clean and noisy labels, and what a check should find wrong with them."""

    X: np.ndarray
    clean: np.ndarray
    labels: np.ndarray
    neighbors: Neighbors
    metric: str
    wrong: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)
    hard: bool = False  # labels are wrong mostly where classes meet
    apart: bool = False

    @property
    def n_classes(self) -> int:
        """Classes that are numbered; the last one occurs."""
        return int(self.clean.max()) + 1


def random_T(seed: int, K: int = K) -> np.ndarray:
    rng = np.random.default_rng(seed)
    noise = (1 - np.eye(K)) * rng.dirichlet(np.ones(K), K)
    noise *= rng.uniform(0.05, 0.55, (K, 1)) / noise.sum(axis=1, keepdims=True)
    return noise + np.diag(1 - noise.sum(axis=1))


def corrupted(clean: np.ndarray, noise: str, seed: int, X: np.ndarray) -> np.ndarray:
    kind, _, rate = noise.partition(" ")
    if kind == "symmetric":
        return symmetric(clean, float(rate), random_state=seed).labels
    if kind == "pair":
        return pair_flip(clean, float(rate), random_state=seed).labels
    if kind == "random":
        T = random_T(seed, int(clean.max()) + 1)
        return class_conditional(clean, T, random_state=seed).labels
    if kind in ("towards", "away"):
        return by_position(X, clean, seed, kind == "towards")
    if kind == "instance":
        return instance_dependent(X, clean, float(rate), random_state=seed).labels
    return clean.copy()


def clusters(
    n: int, seed: int, separation: float, modes: int = 1, d: int = 16
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((K * modes, d)) * separation
    place = rng.integers(0, K * modes, n)
    return (centres[place] + rng.standard_normal((n, d))).astype(np.float32), place % K


def digits() -> tuple[np.ndarray, np.ndarray]:
    X, clean = load_digits(return_X_y=True)
    return X.astype(np.float32), clean


def made(
    X: np.ndarray,
    clean: np.ndarray,
    labels: np.ndarray,
    metric: str,
    *wrong: str,
    hard: bool = False,
) -> Data:
    neighbors = nearest_neighbors(X, N_NEIGHBORS, metric)
    return judged(Data(X, clean, labels, neighbors, metric, set(wrong), hard=hard))


def judged(data: Data) -> Data:
    """Say what the clusterability checks should find."""
    share = feasibility(data.clean, data.neighbors.indices)
    data.apart = share >= 0.95
    if share < 0.85:
        data.wrong |= set(CLUSTERABLE)
    elif not data.apart:
        data.open |= set(CLUSTERABLE)
    elif data.hard:
        data.open |= set(ONE_OR_THE_OTHER)
    return data


def by_position(X: np.ndarray, clean: np.ndarray, seed: int, towards: bool) -> np.ndarray:
    """Noise of 0 to 60%, growing towards the border with the nearest other class, or falling."""
    K = int(clean.max()) + 1
    centres = np.array([X[clean == k].mean(axis=0) for k in range(K)])
    distance = cdist(X, centres)
    own = distance[np.arange(len(X)), clean]
    distance[np.arange(len(X)), clean] = np.inf
    hard = own - distance.min(axis=1)
    rank = np.argsort(np.argsort(hard if towards else -hard)) / len(X)
    flip = np.random.default_rng(seed).random(len(X)) < 0.6 * rank
    return np.where(flip, (clean + 1) % K, clean)


def memorised_digits(seed: int) -> Iterator[tuple[str, str, Data]]:
    """Hidden layers of a network trained on noisy labels, with these and with other labels."""
    X, clean = digits()
    trained = corrupted(clean, "symmetric .2", seed, X)
    network = MLPClassifier((256, 64), alpha=0, max_iter=300, tol=0, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network.fit(X / 16, trained)
    hidden = X / 16
    for weights, offset in zip(network.coefs_[:-1], network.intercepts_[:-1], strict=True):
        hidden = np.maximum(hidden @ weights + offset, 0).astype(np.float32)
    other = corrupted(clean, "symmetric .2", seed + 100, X)
    yield (
        "digits, network's features",
        "memorised",
        made(hidden, clean, trained, "cosine", "memorised", hard=True),
    )
    yield "digits, network's features", "other labels", made(hidden, clean, other, "cosine")


def small_data(seed: int) -> Iterator[tuple[str, str, Data]]:
    sets = {
        "far clusters": clusters(4000, seed, 4.0),
        "overlapping clusters": clusters(4000, seed, 0.8),
        "far clusters, 3 a class": clusters(4000, seed, 2.0, modes=3),
        "overlapping, 3 a class": clusters(4000, seed, 0.8, modes=3),
        "far clusters, 2 dimensions": clusters(4000, seed, 30.0, d=2),
        "digits": digits(),
    }
    for name, (X, clean) in sets.items():
        metric = "cosine" if name == "digits" else "euclidean"
        for noise in CLASS_NOISE:
            yield name, noise, made(X, clean, corrupted(clean, noise, seed, X), metric)
        if name in ("far clusters", "digits"):
            none = made(X, clean, clean.copy(), metric)
            none.open.add("memorised")  # clean labels look as memorised ones do
            yield name, "none", none
    X, clean = sets["far clusters"]
    labels = corrupted(clean, "symmetric .2", seed, X)
    jitter = np.random.default_rng(seed).standard_normal(X.shape).astype(np.float32) * 0.05
    for name, n in (("5% near copies", 200), ("each has a near copy", 4000)):
        rows = np.concatenate([np.arange(4000), np.arange(n)])
        copies = np.concatenate([X, X[:n] + jitter[:n]])
        wrong = ("near duplicates", "independence")
        data = made(copies, clean[rows], labels[rows], "euclidean", *wrong)
        data.open |= {"memorised", "ranks", "dependence"}
        yield f"far clusters, {name}", "symmetric .2", data
    centres = np.random.default_rng(seed).standard_normal((K, X.shape[1])) * 4
    by_label = (centres[labels] + 20 * jitter).astype(np.float32)
    data = made(by_label, clean, labels, "euclidean", "memorised")
    yield "clusters placed by the noisy label", "symmetric .2", data
    yield from memorised_digits(seed)


def middle_data(seed: int) -> Iterator[tuple[str, str, Data]]:
    """As many examples as the test of dependence takes."""
    for name, separation, modes in (
        ("15,000 in clusters", 1.0, 1),
        ("15,000 in clusters, 3 a class", 1.5, 3),
    ):
        X, clean = clusters(15_000, seed, separation, modes)
        neighbors = nearest_neighbors(X, N_NEIGHBORS, "euclidean")
        for noise in (*CLASS_NOISE, "instance .4", "towards the border", "away from the border"):
            hard = noise.startswith("towards")
            labels = corrupted(clean, noise, seed, X)
            data = judged(Data(X, clean, labels, neighbors, "euclidean", hard=hard))
            if noise not in CLASS_NOISE:
                data.wrong.add("dependence")
            yield name, noise, data


def of_one_thing(
    X: np.ndarray, clean: np.ndarray, parts: int, seed: int, together: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Things of several parts, near each other, which got one label, or each its own."""
    rows = np.repeat(np.arange(len(X) // parts), parts)
    jitter = 0.3 * np.random.default_rng(seed).standard_normal((len(rows), X.shape[1]))
    if together:
        labels = corrupted(clean[: rows.max() + 1], "symmetric .2", seed, X)[rows]
    else:
        labels = corrupted(clean[rows], "symmetric .2", seed, X)
    return (X[rows] + jitter).astype(np.float32), clean[rows], labels


def copied_labels(seed: int) -> Iterator[tuple[str, str, bool, np.ndarray, np.ndarray]]:
    """Labels copied between neighbours, and such as only look like it."""
    for name, separation in (("far clusters", 4.0), ("overlapping clusters", 0.8)):
        X, clean = clusters(4000, seed, separation)
        near = nearest_neighbors(X, N_NEIGHBORS, "euclidean").indices
        rng = np.random.default_rng(seed + 1000)
        for noise in CLASS_NOISE:
            labels = corrupted(clean, noise, seed, X)
            yield name, f"{noise}, none copied", False, near, labels
            for share, among in ((0.1, 1), (0.3, 1), (0.3, 2), (0.3, 6)):
                source = near[np.arange(4000), rng.integers(0, among, 4000)]
                copied = np.where(rng.random(4000) < share, labels[source], labels)
                whom = "the nearest" if among == 1 else f"one of the nearest {among}"
                how = f"{share:.0%} copied from {whom}"
                yield name, how, True, near, copied
        for parts in (2, 4):
            for together in (True, False):
                Y, _, labels = of_one_thing(X, clean, parts, seed, together)
                near_parts = nearest_neighbors(Y, N_NEIGHBORS, "euclidean").indices
                said = "one label for all" if together else "each its own label"
                yield name, f"things of {parts} parts, {said}", together, near_parts, labels


def independence(counts: dict) -> None:
    """Does `check_independence` see labels that were given together, and does `check_fit`?"""
    spoken: dict[tuple[str, str], list[tuple[bool, bool]]] = defaultdict(list)
    for seed in range(SEEDS):
        for name, how, wrong, near, labels in copied_labels(seed):
            finding = check_independence(labels, near)
            consensus = Consensus.from_neighbors(labels, near[:, :2], K)
            solution = solve(consensus)
            T, p = solution.transition_matrix, solution.class_prior
            fit = check_fit(consensus, solution, overlap=overlap_of(near, labels, T, p))
            spoken[name, "none copied" if "none" in how else how].append((finding.ok, fit.ok))
            only_looks_so = name.startswith("overlapping") and how.endswith("its own label")
            check = "independence" + ONE_BY_ONE * only_looks_so
            counts[check][wrong].append(not finding.ok)
    rows = []
    for (name, how), found in spoken.items():
        cells = [f"{sum(not ok for ok in oks)} of {len(oks)}" for oks in zip(*found, strict=True)]
        rows.append([name, how, *cells])
    table("Labels given together", "data | labels | independence | fit", rows)


def fresh_data(seed: int) -> Iterator[tuple[str, str, Data]]:
    """Kinds and seeds of data on which no limit was set, with up to 100 classes."""
    rng = np.random.default_rng(seed)
    for name, n, n_classes, d, modes, separations in (
        ("2 classes of 4 clusters", 2000, 2, 8, 4, (3.0, 0.6)),
        ("20 classes", 12_000, 20, 24, 1, (3.0, 0.7)),
        ("50 classes", 12_000, 50, 24, 1, (3.0, 0.8)),
        ("100 classes", 20_000, 100, 32, 1, (3.0, 0.8)),
        ("5 classes, heavy tails", 4000, 5, 32, 1, (5.0, 0.6)),
        ("clusters of various spread", 6000, 6, 20, 3, (4.0, 0.7)),
        ("class ratio 1:10", 6000, 8, 20, 1, (3.0, 0.7)),
        ("10 classes", 12_000, 10, 16, 1, (3.0, 0.8)),
    ):
        for where, separation in zip(("far", "overlapping"), separations, strict=True):
            p = np.geomspace(1, 10 if "ratio" in name else 1, n_classes)
            clean = rng.choice(n_classes, n, p=p / p.sum())
            place = clean + n_classes * rng.integers(0, modes, n)
            centres = rng.standard_normal((n_classes * modes, d)) * separation
            X = rng.standard_normal((n, d))
            if "tails" in name:
                X /= np.sqrt(rng.chisquare(3, (n, 1)) / 3)
            if "spread" in name:
                X *= rng.uniform(0.3, 1.5, n_classes * modes)[place, None]
            X = (X + centres[place]).astype(np.float32)
            neighbors = nearest_neighbors(X, N_NEIGHBORS, "euclidean")
            # The first classes were drawn from the numbers that this seed would give the noise.
            noise_seed = seed + 1 if n_classes == 2 else seed
            for noise in FRESH_NOISE:
                hard = noise.startswith("towards")
                labels = corrupted(clean, noise, noise_seed, X)
                data = Data(X, clean, labels, neighbors, "euclidean", hard=hard)
                if hard:
                    data.wrong.add("dependence")
                yield f"{name}, {where}", noise, judged(data)
    for n_classes in (20, 100):
        clean = np.arange(100 * n_classes) % n_classes
        labels = corrupted(clean, "symmetric .2", seed, clean)
        X = 4 * rng.standard_normal((n_classes, 16))[labels] + rng.standard_normal((len(clean), 16))
        data = made(X.astype(np.float32), clean, labels, "euclidean", "memorised")
        yield f"{n_classes} clusters placed by the noisy label", "symmetric .2", data


def fresh_cifar(folder: Path, seed: int) -> Iterator[tuple[str, str, Data]]:
    """Four classes that lie apart, by the features of a network trained on other labels."""
    with np.load(folder / "cifar10.npz") as archive:
        truth = archive["train_clean"].astype(np.intp)
        given = {name: archive[f"train_{name}"].astype(np.intp) for name in HUMAN[1:]}
    kept = [1, 6, 7, 8]
    number = np.full(K, -1)
    number[kept] = range(4)
    X = np.load(folder / "resnet18_human_early_train.npy").astype(np.float32)
    rng = np.random.default_rng(seed)
    for noise in (*FRESH_NOISE, *given):
        labels = number[given[noise]] if noise in given else number[truth]
        rows = np.flatnonzero((number[truth] >= 0) & (labels >= 0))
        rows = rng.permutation(rows)[:10_000]
        Y, clean, labels = X[rows], number[truth[rows]], labels[rows]
        hard = noise in given or noise.startswith("towards")
        labels = labels if noise in given else corrupted(clean, noise, seed, Y)
        data = made(Y, clean, labels, "cosine", *(["dependence"] if hard else []), hard=hard)
        yield "resnet18_human_early, 4 classes", noise, data


def cifar(folder: Path) -> Iterator[tuple[str, str, Data]]:
    with np.load(folder / "cifar10.npz") as archive:
        clean = archive["train_clean"].astype(np.intp)
        human = {name: archive[f"train_{name}"].astype(np.intp) for name in HUMAN}
    for name in FEATURES:
        X = np.load(folder / f"{name}_train.npy").astype(np.float32)
        start = time.perf_counter()
        neighbors = nearest_neighbors(X, N_NEIGHBORS)
        TIMES["6 neighbours"].append(time.perf_counter() - start)
        made_noise = (*CLASS_NOISE, "instance .2", "instance .4")
        for noise in (*(made_noise[:3] if "human" in name else made_noise), *HUMAN):
            given = human.get(noise)
            labels = corrupted(clean, noise, 0, X) if given is None else given
            data = judged(Data(X, clean, labels, neighbors, "cosine"))
            if noise in HUMAN or noise.startswith("instance"):
                data.wrong.add("dependence")
            if noise == "human" and name == "resnet18_human_memorised":
                data.wrong.add("memorised")
                data.open.add("dependence")
            if noise == "human" and name == "resnet18_human_early":
                data.open |= {"memorised", "dependence"}
            yield name, noise, data


TIMES: dict[str, list[float]] = defaultdict(list)


def findings(data: Data) -> dict[str, Finding]:
    """What each check finds, timed for large data."""
    labels, indices, K = data.labels, data.neighbors.indices, data.n_classes
    solution = solve(Consensus.from_neighbors(labels, indices[:, :2], K))
    model = solution.transition_matrix, solution.class_prior
    posteriors = timed("posteriors", len(labels), noisy_posteriors, data.X, labels, K)
    found = (
        timed("ranks", len(labels), check_ranks_agree, labels, indices, K),
        check_distance(data.neighbors, labels, model[0]),
        check_independence(labels, indices),
        *timed("feasible, memorised", len(labels), check_pure, labels, indices, posteriors, *model),
        timed("dependence", len(labels), check_dependence, data.X, labels, indices, posteriors),
        check_near_duplicates(data.neighbors, labels, data.metric),
    )
    return {finding.name: finding for finding in found}


def timed(name: str, n: int, function, *args):
    start = time.perf_counter()
    result = function(*args)
    if n >= 50_000:
        TIMES[name].append(time.perf_counter() - start)
    return result


def shown(found: list[Finding], wrong: bool, unclear: bool) -> str:
    """How often it spoke; in bold where it should, in brackets where it may."""
    if all(finding.value is None for finding in found):
        return "not tested"
    share = f"{np.mean([not finding.ok for finding in found]):.0%}"
    return f"({share})" if unclear else f"**{share}**" if wrong else share


def assumptions(cases: list[tuple[str, str, Data]], title: str, counts: dict) -> None:
    grouped: dict[tuple[str, str], list[tuple[Data, dict[str, Finding]]]] = defaultdict(list)
    for name, noise, data in cases:
        grouped[name, noise].append((data, findings(data)))
    rows = []
    for (name, noise), runs in grouped.items():
        truth = [feasibility(data.clean, data.neighbors.indices) for data, _ in runs]
        values = [found["feasible"].value for _, found in runs]
        known = [value for value in values if value is not None]
        cells = []
        for check in CHECKS:
            first = runs[0][0]
            found = [found[check] for _, found in runs]
            cells.append(shown(found, check in first.wrong, check in first.open))
            for data, results in runs:
                if check not in data.open and results[check].value is not None:
                    counts[check][check in data.wrong].append(not results[check].ok)
                if check in ONE_OR_THE_OTHER and data.hard and data.apart:
                    strict = f"{check} (classes apart, labels wrong mostly on hard examples)"
                    counts[strict][False].append(not results[check].ok)
        estimate = f"{np.mean(known):.2f}" if known else "-"
        rows.append([name, noise, str(len(runs)), f"{np.mean(truth):.2f}", estimate, *cells])
    table(title, "data | noise | seeds | feasible | estimated | " + " | ".join(CHECKS), rows)


def fits(counts: dict) -> None:
    """`check_fit`, `check_rows` and `check_guarantee` on drawn data."""
    for seed in range(4 * SEEDS):
        X, clean = clusters(4000, seed, 4.0)
        indices = nearest_neighbors(X, 2, "euclidean").indices
        labels = corrupted(clean, CLASS_NOISE[seed % 4], seed, X)
        side = np.random.default_rng(seed).integers(0, 2, 4000)
        apart = nearest_neighbors(np.column_stack([X, 20 * side]), 2, "euclidean").indices
        next_class, another = np.roll(np.eye(K), 1, axis=1), np.roll(np.eye(K), 3, axis=1)
        first, second = (
            class_conditional(clean, 0.6 * np.eye(K) + 0.4 * flipped, random_state=seed).labels
            for flipped in (next_class, another)
        )
        two = np.where(side, first, second)
        for given, near, name in (
            (labels, indices, ""),
            (two, apart, "two annotators, each with a part of every class"),
        ):
            consensus = Consensus.from_neighbors(given, near, K)
            solution = solve(consensus)
            T, p = solution.transition_matrix, solution.class_prior
            finding = check_fit(consensus, solution, overlap=overlap_of(near, given, T, p))
            counts[f"fit ({name})" if name else "fit"][bool(name)].append(not finding.ok)
        for wrong, broken in ((0.25, False), (0.47, True)):
            T = np.eye(K)
            T[0, :2] = 1 - wrong, wrong
            few = np.flatnonzero((clean != 0) | (np.arange(4000) < 1500))
            given = class_conditional(clean[few], T, random_state=seed).labels
            near = nearest_neighbors(X[few], 2, "euclidean").indices
            consensus = Consensus.from_neighbors(given, near, K)
            solution = solve(consensus)
            estimate = solution.transition_matrix, solution.class_prior
            interval = confidence_interval(consensus, *estimate, labels=given, neighbors=near)
            finding = check_rows(estimate[0], interval.transition_matrix, np.arange(K))
            counts["weak rows (47% labelled as one other class)"][broken].append(not finding.ok)


def guarantees() -> None:
    """Does Theorem 2's condition say which rows are far off?"""
    errors: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(4 * SEEDS):
        rng = np.random.default_rng(seed)
        p = rng.permutation(np.geomspace(1, 20, K))
        clean = rng.choice(K, 20_000, p=p / p.sum())
        T = random_T(seed)
        three = [class_conditional(clean, T, random_state=rng).labels for _ in range(3)]
        solution = solve(Consensus.from_labels(np.column_stack(three), K))
        found, prior = solution.transition_matrix, solution.class_prior
        for i in range(K):
            least = (1 - prior[i] + (K - 1) * (prior @ found)[i]) / (K * (K - 1) * prior[i])
            errors[bool(found[i, i] > least)].append(float(np.abs(found[i] - T[i]).sum()))
        assert (check_guarantee(found, prior, np.arange(K)).value > 0) == (
            np.diag(found) > (1 - prior + (K - 1) * (prior @ found)) / (K * (K - 1) * prior)
        ).all()
    rows = [
        [
            name,
            str(len(errors[holds])),
            f"{np.mean(errors[holds]):.3f}",
            f"{np.max(errors[holds]):.3f}",
        ]
        for name, holds in (("holds", True), ("does not", False))
    ]
    table(
        "Theorem 2's condition and the error of rows (class ratio 1:20, random T, 20,000 triples)",
        "condition | rows | mean error | largest",
        rows,
    )


def totals(counts: dict, title: str) -> None:
    rows = []
    for check, by_truth in counts.items():
        cells = [f"{sum(by_truth[broken])} of {len(by_truth[broken])}" for broken in (True, False)]
        rows.append([check, *cells])
    table(title, "check | speaks when it should | when it should not", rows)


def no_counts() -> dict:
    return defaultdict(lambda: {True: [], False: []})


def main() -> None:
    begin = time.perf_counter()
    print(f"# Diagnostics\n\n{date.today()}, {platform.machine()}, {os.cpu_count()} cores")
    counts, fresh_counts = no_counts(), no_counts()
    folder = Path(os.environ.get("LABELNOISE_DATA", "")) / "cifar10"
    real = "LABELNOISE_DATA" in os.environ and folder.exists()
    fresh = [case for seed in FRESH_SEEDS for case in fresh_data(seed)]
    if real:
        fresh += [case for seed in FRESH_SEEDS for case in fresh_cifar(folder, seed)]
    assumptions(fresh, "Fresh kinds and seeds of data, on which no limit was set", fresh_counts)
    totals(fresh_counts, "Fresh data together")
    small = [case for seed in range(SEEDS) for case in small_data(seed)]
    small += [case for seed in range(2) for case in middle_data(seed)]
    assumptions(small, "How often each speaks (bold: it should; in brackets: it may)", counts)
    if real:
        assumptions(list(cifar(folder)), "CIFAR-10, 50,000 examples", counts)
    independence(counts)
    fits(counts)
    totals(counts, "All together")
    guarantees()
    if TIMES:
        rows = [[name, f"{np.median(t):.1f}", f"{max(t):.1f}"] for name, t in TIMES.items()]
        table("Seconds at 50,000 x 128", "step | median | largest", rows)
    print(f"\n{time.perf_counter() - begin:.0f} seconds.")


if __name__ == "__main__":
    main()
