"""Groups: is a T for each group closer than one T for all, and is the test of differences honest?

Synthetic clusters with known T, and, where LABELNOISE_DATA names a folder that has them, CIFAR-10
features with the human labels of several sources. Cases in which GroupHOC does not help are
among the rows. About 3 minutes on two cores:

    python benchmarks/groups.py

The last results are in benchmarks/results/groups.md. Errors are ``||T^ - T||_{1,1} / K``.
"""

from __future__ import annotations

import os
import platform
import time
import warnings
from datetime import date
from pathlib import Path

import numpy as np

from labelnoise import HOC, LabelNoiseWarning, transition_error
from labelnoise.estimators.groups import GroupHOC
from labelnoise.neighbors import nearest_neighbors
from labelnoise.noise import class_conditional, group_dependent
from labelnoise.scores import feasibility, true_transition_matrix

K = 6
SIZES = (20, 100, 500, 5000)


def clusters(n: int, rng: np.random.Generator, separation: float = 4.0) -> tuple[np.ndarray, ...]:
    centres = rng.standard_normal((K, 16)) * separation
    y = rng.integers(0, K, n)
    return centres[y] + rng.standard_normal((n, 16)), y


def symmetric(rate: float) -> np.ndarray:
    return (1 - rate) * np.eye(K) + rate / (K - 1) * (1 - np.eye(K))


def confused(T: np.ndarray, amount: float, row: int) -> np.ndarray:
    T = T.copy()
    T[row, row] -= amount
    T[row, (row + 1) % K] += amount
    return T


def hoc_alone(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """HOC on one group by itself, as one would do without GroupHOC."""
    return HOC(refine=False, classes=range(K)).fit(X, y).transition_matrix_


def accuracy(seeds: int = 5) -> None:
    """Error in each group, by its size, for groups that differ a lot, in one row, not at all."""
    print("\n## Error of each group's T, by the size of the group\n")
    print(f"K = {K}, four groups in one data set, mean of {seeds} seeds. The size is the column.\n")
    print("| groups | estimate | " + " | ".join(map(str, SIZES)) + " |")
    print("| --- | --- |" + " --- |" * len(SIZES))
    group = np.repeat(np.arange(len(SIZES)), SIZES)
    cases = {
        "all rows differ": [symmetric(rate) for rate in (0.5, 0.1, 0.4, 0.2)],
        "one row differs": [confused(symmetric(0.2), 0.3 * (g % 2), g) for g in range(4)],
        "alike": [symmetric(0.2)] * 4,
        "alike, heavy noise": [symmetric(0.5)] * 4,
    }
    for case, matrices in cases.items():
        errors: dict[str, list[list[float]]] = {}
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            X, y = clusters(len(group), rng)
            noisy = group_dependent(y, group, dict(enumerate(matrices)), random_state=rng).labels
            fits = {
                "one T for all (HOC)": [HOC().fit(X, noisy).transition_matrix_] * 4,
                "HOC on each group": [
                    hoc_alone(X[group == g], noisy[group == g]) for g in range(4)
                ],
            }
            for name, settings in {
                "GroupHOC, shrinkage=0": {"shrinkage": 0},
                "GroupHOC": {},
            }.items():
                est = GroupHOC(**settings).fit(X, noisy, groups=group)
                fits[name] = list(est.transition_matrices_)
            for name, found in fits.items():
                pairs = zip(found, matrices, strict=True)
                errors.setdefault(name, []).append(
                    [transition_error(T, truth) for T, truth in pairs]
                )
        for name, values in errors.items():
            print(
                f"| {case} | {name} | " + " | ".join(f"{v:.3f}" for v in np.mean(values, 0)) + " |"
            )


def named_differences(seeds: int = 20) -> None:
    """How often differences are named, where there are none and where there are some."""
    print("\n## How often `differences()` names something, at level 5%\n")
    print(f"Three groups, {seeds} seeds. Where the truth is alike, 5% or less is right.\n")
    print("| case | N | 2-NN feasibility | named | right entry among them |")
    print("| --- | --- | --- | --- | --- |")
    mix = np.array([np.ones(K), np.geomspace(1, 0.1, K), np.geomspace(0.1, 1, K)])
    even = np.ones((3, K))
    for case, n, rate, amount, shares, separation, odd in (
        ("alike", 3000, 0.2, 0.0, even, 4.0, 1),
        ("alike, other classes", 3000, 0.2, 0.0, mix, 4.0, 1),
        ("alike, other classes, heavy noise", 3000, 0.5, 0.0, mix, 4.0, 1),
        ("alike, clusters that overlap", 3000, 0.2, 0.0, even, 0.9, 1),
        ("alike, other classes, clusters that overlap", 3000, 0.2, 0.0, mix, 0.9, 1),
        ("alike, other classes, clusters that overlap more", 8000, 0.2, 0.0, mix, 0.6, 1),
        ("the same with little noise", 8000, 0.05, 0.0, mix, 0.6, 1),
        ("one entry of one group 5 points higher", 3000, 0.2, 0.05, even, 4.0, 1),
        ("one entry of one group 10 points higher", 3000, 0.2, 0.10, even, 4.0, 1),
        ("one entry of one group 20 points higher", 3000, 0.2, 0.20, even, 4.0, 1),
        ("one entry of one group 10 points higher", 15000, 0.2, 0.10, even, 4.0, 1),
        ("one entry 20 points higher, heavy noise", 3000, 0.4, 0.20, even, 4.0, 1),
        ("one entry 20 points higher, less of that class", 3000, 0.2, 0.20, mix, 4.0, 1),
        ("one entry 20 points higher, more of that class", 3000, 0.2, 0.20, mix, 4.0, 2),
        ("the same", 15000, 0.2, 0.20, mix, 4.0, 2),
        ("the same, clusters that overlap", 15000, 0.2, 0.20, mix, 0.9, 2),
    ):
        named, right, feasible = [], [], []
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            X, y = clusters(2 * n, rng, separation)
            group = rng.integers(0, 3, len(y))
            keep = np.flatnonzero(rng.random(len(y)) < shares[group, y])[:n]
            X, y, group = X[keep], y[keep], group[keep]
            truth = {g: confused(symmetric(rate), amount if g == odd else 0, 2) for g in range(3)}
            noisy = group_dependent(y, group, truth, random_state=rng).labels
            idx = nearest_neighbors(X).indices
            found = GroupHOC().fit(X, noisy, groups=group).differences()
            named.append(found.differ)
            right.append(any((d.group, d.true_class, d.label) == (odd, 2, 3) for d in found))
            feasible.append(feasibility(y, idx))
        hit = f"{np.mean(right):.0%}" if amount else "-"
        print(f"| {case} | {n} | {np.mean(feasible):.0%} | {np.mean(named):.0%} | {hit} |")


def real(folder: Path) -> None:
    """CIFAR-10 features, human labels of three sources."""
    data = np.load(folder / "cifar10" / "cifar10.npz")
    X = np.load(folder / "cifar10" / "efficientnet_lite2_train.npy").astype(np.float32)
    clean = data["train_clean"].astype(int)
    names = ("aggregate", "random1", "worst")
    sources = np.column_stack([data[f"train_cifar10n_{name}"] for name in names]).astype(int)
    human = data["train_human"].astype(int)
    near = nearest_neighbors(X, 18).indices
    idx, n = near[:, :2], len(clean)

    print("\n## CIFAR-10, three sources of human labels in one data set\n")
    print(
        f"EfficientNet-lite2 features, 2-NN feasibility {feasibility(clean, idx):.1%}. Each "
        "example has its label from one source, drawn at random. The truth is counted from all "
        "50,000 labels of the source. Much of the error is the bias of HOC on these features, "
        "which a T for each group does not remove.\n"
    )
    print("| estimate | " + " | ".join(names) + " |\n| --- | --- | --- | --- |")
    rng = np.random.default_rng(0)
    group = rng.choice(3, n, p=[0.68, 0.3, 0.02])
    print("| size | " + " | ".join(map(str, np.bincount(group))) + " |")
    noisy = sources[np.arange(n), group]
    truth = [true_transition_matrix(clean, sources[:, g], 10) for g in range(3)]
    begin = time.perf_counter()
    est = GroupHOC().fit(X, noisy, groups=np.array(names)[group], neighbors=near)
    seconds = time.perf_counter() - begin
    raw = GroupHOC(shrinkage=0).fit(X, noisy, groups=group, neighbors=near)
    alone = [
        HOC(refine=False).fit(X[group == g], noisy[group == g]).transition_matrix_ for g in range(3)
    ]
    for name, found in (
        ("one T for all (HOC)", [est.transition_matrix_] * 3),
        ("HOC on each group", alone),
        ("GroupHOC, shrinkage=0", raw.transition_matrices_),
        ("GroupHOC", est.transition_matrices_),
    ):
        errors = [transition_error(T, t) for T, t in zip(found, truth, strict=True)]
        print(f"| {name} | " + " | ".join(f"{v:.3f}" for v in errors) + " |")
    begin = time.perf_counter()
    found = est.differences()
    print(
        f"\nFit from given neighbours {seconds:.1f} s, `differences()` "
        f"{time.perf_counter() - begin:.1f} s. It names {len(found)} entries; the first three:\n"
    )
    for difference in found[:3]:
        g, i = names.index(difference.group), int(difference.true_class)
        true = truth[g][i, int(difference.label)]
        print(f"- {difference.sentence} (truth in the group: {true:.1%})")

    print("\n## CIFAR-10, groups that do not differ\n")
    print("Named out of 3 drawings each, at level 5%.\n")
    print("| labels | groups | named | entries named, mean |")
    print("| --- | --- | --- | --- |")
    vehicle = np.isin(clean, (0, 1, 8, 9))
    even = true_transition_matrix(clean, human, 10)
    for labels_name in ("drawn from the T of the human labels", "human"):
        for case in ("random halves", "mostly vehicles against mostly animals"):
            named, entries = 0, []
            for seed in range(3):
                rng = np.random.default_rng(seed)
                labels = human
                if labels_name.startswith("drawn"):
                    labels = class_conditional(clean, even, random_state=rng).labels
                chance = np.where(vehicle, 0.8, 0.2) if case.startswith("mostly") else 0.5
                halves = (rng.random(n) < chance).astype(int)
                result = GroupHOC().fit(X, labels, groups=halves, neighbors=near).differences()
                named += result.differ
                entries.append(len(result))
            print(f"| {labels_name} | {case} | {named} of 3 | {np.mean(entries):.1f} |")


def main() -> None:
    warnings.simplefilter("ignore", LabelNoiseWarning)
    begin = time.perf_counter()
    print("# Groups\n")
    print(
        f"{date.today()}, Python {platform.python_version()}, numpy {np.__version__}, "
        f"{os.cpu_count()} cores. `python benchmarks/groups.py`; errors are ||T^ - T||_1,1 / K."
    )
    accuracy()
    named_differences()
    folder = os.environ.get("LABELNOISE_DATA")
    if folder and (Path(folder) / "cifar10").exists():
        real(Path(folder))
    else:
        print("\nLABELNOISE_DATA names no folder with cifar10: real data left out.")
    print(f"\n{time.perf_counter() - begin:.0f} s in all.")


if __name__ == "__main__":
    main()
