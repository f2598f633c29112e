"""Several annotators: how well are T, each annotator's T and the true labels found?

AnnotatorHOC with one T for all and with one for each, beside crowd-kit's Dawid-Skene and a
majority vote (whose T is counted against the labels that it infers), on labels drawn from known
matrices; then two labels per example, which do not identify T, completed by a neighbour's.

    pip install "labelnoise[bench-annotators]"
    python benchmarks/annotators.py        # about three minutes on two cores

Where LABELNOISE_DATA names a folder that has CIFAR-10 with human labels, the last table uses two
sets of them that are independent of each other. (CIFAR-10N's "aggregate" and "worst" labels are
made from "random1" and its like, so they are no further annotators.) Without crowd-kit its
column is left out. The last results are in benchmarks/results/annotators.md.
"""

from __future__ import annotations

import datetime
import os
import platform
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from tables import table

from labelnoise import HOC, LabelNoiseWarning, transition_error
from labelnoise.estimators.annotators import AnnotatorHOC
from labelnoise.scores import true_transition_matrix

CROWD_KIT = find_spec("crowdkit") is not None
SEEDS = 3
N = 1000

Estimate = tuple[np.ndarray, np.ndarray]  # matrices (A, K, K), inferred labels (N,)


def mean_error(found: np.ndarray, T: np.ndarray) -> float:
    return float(np.mean([transition_error(*two) for two in zip(found, T, strict=True)]))


# Annotators to make up.


def symmetric(K: int, rate: float) -> np.ndarray:
    return (1 - rate) * np.eye(K) + rate / (K - 1) * (1 - np.eye(K))


def pair(K: int, rate: float) -> np.ndarray:
    return (1 - rate) * np.eye(K) + rate * np.roll(np.eye(K), 1, axis=1)


def various(K: int, A: int, rng: np.random.Generator) -> np.ndarray:
    """Each annotator has a reliability, and habits of error of their own."""
    right = rng.uniform(0.4, 0.9, (A, 1, 1))
    return right * np.eye(K) + (1 - right) * rng.dirichlet(np.full(K, 0.5), (A, K))


def experts(K: int, A: int, known: int, rng: np.random.Generator) -> np.ndarray:
    """Each annotator knows some of the classes, and guesses at the others."""
    knows = rng.random((A, K)).argsort(axis=1) < known
    return np.where(knows[:, :, None], symmetric(K, 0.1), 1 / K)


def weak(K: int, A: int, rng: np.random.Generator) -> np.ndarray:
    """Each is hardly right more often than wrong, in ways of their own."""
    return 0.2 * np.eye(K) + 0.8 * rng.dirichlet(np.full(K, 0.15), (A, K))


def draw(
    truth: np.ndarray, matrices: np.ndarray, per_example: int, rng: np.random.Generator
) -> np.ndarray:
    """(N, A) labels, -1 where missing: `per_example` annotators at random label each example."""
    n, A = len(truth), len(matrices)
    cumulated = matrices.cumsum(axis=2)
    labels = np.column_stack(
        [(rng.random((n, 1)) > cumulated[a][truth][:, :-1]).sum(axis=1) for a in range(A)]
    )
    silent = rng.random((n, A)).argsort(axis=1) >= per_example
    labels[silent] = -1
    return labels


# Methods: labels to matrices and true labels.


def answers(labels: np.ndarray) -> pd.DataFrame:
    """The labels as the long table that crowd-kit reads."""
    task, worker = np.nonzero(labels >= 0)
    return pd.DataFrame({"task": task, "worker": worker, "label": labels[task, worker]})


def vote(labels: np.ndarray, K: int) -> Estimate:
    """crowd-kit's majority vote, or without it one that gives ties to the lowest class."""
    if CROWD_KIT:
        from crowdkit.aggregation import MajorityVote

        inferred = MajorityVote().fit_predict(answers(labels)).sort_index().to_numpy()
    else:
        counts = np.stack([(labels == j).sum(axis=1) for j in range(K)], axis=1)
        inferred = counts.argmax(axis=1)
    seen = [labels[:, a] >= 0 for a in range(labels.shape[1])]
    matrices = [true_transition_matrix(inferred[s], labels[s, a], K) for a, s in enumerate(seen)]
    return np.array(matrices), inferred


def dawid_skene(labels: np.ndarray, K: int) -> Estimate:
    """crowd-kit's, with its default tolerance. A row without counts is that of the identity."""
    from crowdkit.aggregation import DawidSkene

    model = DawidSkene(n_iter=100).fit(answers(labels))
    A = labels.shape[1]
    matrices = np.zeros((A, K, K))
    for (a, observed), row in model.errors_.iterrows():
        matrices[int(a), row.index.to_numpy(int), int(observed)] = row.to_numpy()
    empty = matrices.sum(axis=2) == 0
    matrices[empty] = np.tile(np.eye(K), (A, 1, 1))[empty]
    inferred = model.labels_.reindex(np.arange(len(labels))).to_numpy()
    return matrices / matrices.sum(axis=2, keepdims=True), inferred


def annotator_hoc(labels: np.ndarray, K: int, **settings: object) -> Estimate:
    est = AnnotatorHOC(unlabeled=-1, classes=range(K), **settings).fit(labels)
    return est.transition_matrices_, est.predict()


METHODS: dict[str, Callable[[np.ndarray, int], Estimate]] = {
    "vote": vote,
    "Dawid-Skene": dawid_skene,
    "one T": annotator_hoc,
    "T each": lambda labels, K: annotator_hoc(labels, K, per_annotator=True),
}
if not CROWD_KIT:
    del METHODS["Dawid-Skene"]


# Cases: a name, and from a seed the truth, the matrices and the labels.

Case = tuple[np.ndarray, np.ndarray, np.ndarray]


def case(
    matrices: Callable[[np.random.Generator], np.ndarray],
    per_example: int,
    n: int = N,
    ratio: float = 1.0,
    hard: float = 0.0,
) -> Callable[[int], Case]:
    """`ratio`: the largest class to the smallest. `hard`: share of examples all guess at."""

    def make(seed: int) -> Case:
        rng = np.random.default_rng(seed)
        T = matrices(rng)
        K = T.shape[1]
        p = np.geomspace(1, 1 / ratio, K)
        truth = rng.choice(K, n, p=p / p.sum())
        labels = draw(truth, T, per_example, rng)
        guess = draw(truth, np.full_like(T, 1 / K), per_example, rng)
        difficult = rng.random(n) < hard
        labels[difficult] = guess[difficult]
        return truth, (1 - hard) * T + hard / K, labels

    return make


def same(T: np.ndarray, A: int) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda rng: np.repeat(T[None], A, axis=0)


def but_one(T: np.ndarray, A: int, odd: np.ndarray) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda rng: np.concatenate([np.repeat(T[None], A - 1, axis=0), odd[None]])


def copied(make: Callable[[int], Case]) -> Callable[[int], Case]:
    """The second annotator copies the first."""

    def with_copy(seed: int) -> Case:
        truth, T, labels = make(seed)
        labels[:, 1] = labels[:, 0]
        T[1] = T[0]
        return truth, T, labels

    return with_copy


FIRST = np.tile(np.eye(4)[0], (4, 1))
CASES: dict[str, Callable[[int], Case]] = {
    "K=2, 3 alike, symmetric .3": case(same(symmetric(2, 0.3), 3), 3),
    "K=4, 3 alike, symmetric .4": case(same(symmetric(4, 0.4), 3), 3),
    "K=10, 3 alike, symmetric .4": case(same(symmetric(10, 0.4), 3), 3),
    "K=10, 3 alike, pair .45": case(same(pair(10, 0.45), 3), 3),
    "K=10, 5 alike, pair .45": case(same(pair(10, 0.45), 5), 5),
    "K=4, 3 of 5, symmetric .4": case(same(symmetric(4, 0.4), 5), 3),
    "K=4, 5 various": case(lambda rng: various(4, 5, rng), 5),
    "K=4, 3 of 5, various": case(lambda rng: various(4, 5, rng), 3),
    "K=10, 5 various": case(lambda rng: various(10, 5, rng), 5),
    "K=10, 3 of 50, various": case(lambda rng: various(10, 50, rng), 3),
    "K=4, one of 5 adversarial": case(but_one(symmetric(4, 0.3), 5, pair(4, 0.9)), 5),
    "K=4, one of 5 guesses": case(but_one(symmetric(4, 0.3), 5, np.full((4, 4), 0.25)), 5),
    "K=4, one of 5 always says 0": case(but_one(symmetric(4, 0.3), 5, FIRST), 5),
    "K=8, 4 experts for 5 classes each": case(lambda rng: experts(8, 4, 5, rng), 4),
    "K=8, 4 weak": case(lambda rng: weak(8, 4, rng), 4),
    "K=4, 5 various, imbalanced 20:1": case(lambda rng: various(4, 5, rng), 5, ratio=20),
    "K=10, 3 alike, symmetric .3, N=200": case(same(symmetric(10, 0.3), 3), 3, n=200),
    "K=4, 10 alike, symmetric .2": case(same(symmetric(4, 0.2), 10), 10),
    "K=4, 3 of 5 adversarial": case(
        lambda rng: np.stack([symmetric(4, 0.3)] * 2 + [pair(4, 0.8)] * 3), 5
    ),
    "K=4, 5 various, 20% of examples hard": case(lambda rng: various(4, 5, rng), 5, hard=0.2),
    "K=4, 4 alike, one copies": copied(case(same(symmetric(4, 0.3), 4), 4)),
}


def compare() -> None:
    seconds = dict.fromkeys(METHODS, 0.0)
    each, pooled, accuracy = [], [], []
    for name, make in CASES.items():
        scores: dict[str, list[tuple[float, float, float]]] = {method: [] for method in METHODS}
        for seed in range(SEEDS):
            truth, T, labels = make(seed)
            weight = (labels >= 0).mean(axis=0)
            mean_T = np.average(T, axis=0, weights=weight)
            for method, estimate in METHODS.items():
                begin = time.perf_counter()
                found, inferred = estimate(labels, T.shape[1])
                seconds[method] += time.perf_counter() - begin
                scores[method].append(
                    (
                        float(
                            np.mean([transition_error(*two) for two in zip(found, T, strict=True)])
                        ),
                        transition_error(np.average(found, axis=0, weights=weight), mean_T),
                        float((inferred == truth).mean()),
                    )
                )
        results = {method: np.array(values) for method, values in scores.items()}
        for rows, column, best in ((each, 0, min), (pooled, 1, min), (accuracy, 2, max)):
            means = {method: float(values[:, column].mean()) for method, values in results.items()}
            top = best(means.values())
            cells = []
            for method, value in means.items():
                text = f"{value:.3f} ± {results[method][:, column].std():.3f}"
                cells.append(f"**{text}**" if abs(value - top) < 5e-4 else text)
            rows.append([name, *cells])
    header = " | ".join(["labels", *METHODS])
    settings = f"mean ± deviation of {SEEDS} seeds, N={N} unless said, best in bold"
    table(f"Error of each annotator's T, averaged ({settings})", header, each)
    table("Error of the average T", header, pooled)
    table("Accuracy of the inferred true labels", header, accuracy)
    table(
        "Seconds for all of the above",
        " | ".join(METHODS),
        [[f"{value:.1f}" for value in seconds.values()]],
    )


# Two labels, and a neighbour's.


def two_labels(
    X: np.ndarray, labels: np.ndarray, truth: np.ndarray, K: int
) -> dict[str, tuple[float, float, float]]:
    """For each method: mean error of the two matrices, of their average, accuracy."""
    T = np.array([true_transition_matrix(truth, labels[:, a], K) for a in range(2)])

    def score(found: np.ndarray, inferred: np.ndarray) -> tuple[float, float, float]:
        return (
            mean_error(found, T),
            transition_error(found.mean(axis=0), T.mean(axis=0)),
            float((inferred == truth).mean()),
        )

    result = {"vote": score(*vote(labels, K))}
    if CROWD_KIT:
        result["Dawid-Skene (not identified)"] = score(*dawid_skene(labels, K))
    alone = np.array([HOC(refine=False).fit(X, labels[:, a]).transition_matrix_ for a in range(2)])
    result["HOC on each, two neighbours"] = (*score(alone, truth)[:2], np.nan)
    for name, per_annotator in (("one T", False), ("T each", True)):
        est = AnnotatorHOC(per_annotator=per_annotator).fit(labels, X=X)
        found = est.transition_matrices_
        result[f"{name}, a neighbour's label"] = score(found, est.predict())
        result[f"{name}, true labels inferred without it"] = score(found, est.predict(labels))
    return result


def neighbours() -> None:
    columns: dict[str, dict[str, tuple[float, float, float]]] = {}
    for separation in (4.0, 1.0, 0.7):
        rng = np.random.default_rng(0)
        truth = rng.integers(0, 4, 5000)
        X = separation * rng.standard_normal((4, 16))[truth] + rng.standard_normal((5000, 16))
        labels = draw(truth, np.stack([symmetric(4, 0.2), pair(4, 0.4)]), 2, rng)
        columns[f"clusters {separation:g} apart"] = two_labels(X, labels, truth, 4)
    folder = os.environ.get("LABELNOISE_DATA")
    if folder and (Path(folder) / "cifar10").is_dir():
        data = np.load(Path(folder) / "cifar10" / "cifar10.npz")
        X = np.load(Path(folder) / "cifar10" / "efficientnet_lite2_train.npy").astype(np.float32)
        labels = np.column_stack([data["train_human"], data["train_cifar10n_random1"]])
        name = "CIFAR-10: human, CIFAR-10N random1"
        columns[name] = two_labels(X, labels.astype(int), data["train_clean"].astype(int), 10)
    rows = []
    for name, results in columns.items():
        for method, (each, mean, accuracy) in results.items():
            shown = "" if np.isnan(accuracy) else f"{accuracy:.4f}"
            rows.append([name, method, f"{each:.3f}", f"{mean:.3f}", shown])
    table(
        "Two labels of each example: two annotators, T identified only with a neighbour's label",
        "data | method | error of each T | error of the average T | accuracy",
        rows,
    )


def main() -> None:
    peer = f", crowd-kit {version('crowd-kit')}" if CROWD_KIT else ", no crowd-kit"
    print("# Annotators\n")
    print(
        f"{datetime.date.today()}, Python {platform.python_version()}, NumPy {np.__version__}"
        f"{peer}, {os.cpu_count()} cores. Made by benchmarks/annotators.py."
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelNoiseWarning)
        compare()
        neighbours()


if __name__ == "__main__":
    main()
