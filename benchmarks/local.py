"""Local transition matrices: how far off, how long, and when they do not help.

Errors are scored as the paper scores them (its appendix figure): the truth of a local data set
is counted from its members and blended with the global truth as the estimate is. "global T"
scores the one global estimate against the same local truths: what going local has to beat.
Real data where LABELNOISE_DATA names a folder that has them, synthetic clusters else.

    python benchmarks/local.py
"""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path

import numpy as np

from labelnoise import HOC, Consensus, LabelNoiseWarning, LocalHOC, transition_error
from labelnoise.local import local_errors
from labelnoise.noise import instance_dependent, symmetric
from labelnoise.scores import true_transition_matrix
from labelnoise.solvers import solve
from labelnoise.solvers.batch import Batch, solve_batch


def data() -> tuple[dict[str, np.ndarray], np.ndarray, dict[str, np.ndarray]]:
    """Features by name, clean labels, noisy labels by name."""
    folder = os.environ.get("LABELNOISE_DATA")
    if folder:
        where = Path(folder, "cifar10")
        features = {
            name: np.load(where / f"{name}_train.npy").astype(np.float32)
            for name in ("efficientnet_lite2", "resnet18_human_early")
        }
        labels = np.load(where / "cifar10.npz")
        clean = labels["train_clean"].astype(int)
        noisy = {
            "human": labels["train_human"].astype(int),
            "CIFAR-10N worst": labels["train_cifar10n_worst"].astype(int),
        }
        first = features["efficientnet_lite2"]
    else:
        rng = np.random.default_rng(0)
        clean = rng.integers(0, 10, 20_000)
        centres = 1.2 * rng.standard_normal((10, 64))
        first = (centres[clean] + rng.standard_normal((20_000, 64))).astype(np.float32)
        features, noisy = {"clusters": first}, {}
    noisy["instance-dependent .4"] = instance_dependent(first, clean, 0.4, random_state=0).labels
    noisy["symmetric .4 (the same everywhere)"] = symmetric(clean, 0.4, random_state=0).labels
    return features, clean, noisy


def accuracy() -> None:
    features, clean, noisy = data()
    print("\n### Errors of 300 local matrices, K = 10, mean ± spread over the local data sets\n")
    print("| features | labels | global error | likelihood | paper's settings | global T instead |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, X in features.items():
        for kind, y in noisy.items():
            cells = []
            for est in (LocalHOC(random_state=0), LocalHOC.paper(random_state=0)):
                est.fit(X, y)
                errors = local_errors(est, clean, y)
                cells.append(f"{errors.mean():.4f} ± {errors.std():.4f}")
            est.transition_matrices_ = np.broadcast_to(
                est.global_.transition_matrix_, est.transition_matrices_.shape
            )
            errors = local_errors(est, clean, y)
            cells.append(f"{errors.mean():.4f} ± {errors.std():.4f}")
            overall = transition_error(
                est.global_.transition_matrix_, true_transition_matrix(clean, y, 10)
            )
            print(f"| {name} | {kind} | {overall:.4f} | " + " | ".join(cells) + " |", flush=True)
    print("\nThe paper, on its own features, human labels: global .0970, local .1103 ± .0278.")


def speed() -> None:
    features, _, noisy = data()
    X, y = next(iter(features.values())), next(iter(noisy.values()))
    begin = time.perf_counter()
    est = LocalHOC(random_state=0).fit(X, y)
    fit = time.perf_counter() - begin
    triples = np.random.default_rng(0).integers(0, 10, (300 * 251, 3))
    which = np.repeat(np.arange(300), 251)
    begin = time.perf_counter()
    solve_batch(
        Batch(which, triples, 300, 10), est.global_.transition_matrix_, est.global_.class_prior_, 1
    )
    batched = time.perf_counter() - begin
    begin = time.perf_counter()
    for number in range(10):
        solve(Consensus.from_labels(triples[which == number], 10), "paper", random_state=0)
    one_by_one = (time.perf_counter() - begin) * 30
    print("\n### Solving 300 local problems of 251 triples, K = 10\n")
    print("| what | seconds |")
    print("| --- | --- |")
    print(f"| all together, likelihood | {batched:.2f} |")
    print(f"| one after another, this project's Adam (10 timed, times 30) | {one_by_one:.0f} |")
    print(f"| ratio | {one_by_one / batched:.0f} |")
    print(f"| LocalHOC().fit on {len(X):,} x {X.shape[1]}, neighbours and all | {fit:.1f} |")
    begin = time.perf_counter()
    HOC(refine=False).fit(X, y)
    print(f"| HOC(refine=False).fit on the same | {time.perf_counter() - begin:.1f} |")


if __name__ == "__main__":
    warnings.simplefilter("ignore", LabelNoiseWarning)
    accuracy()
    speed()
