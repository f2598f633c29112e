"""Soft clusterability: what does a model of neighbours' confusion gain, and what does it lose?

Error is ``||T^ - T||_{1,1} / K``. "plain" is HOC's likelihood (S = I). The soft model is given the
true S, or the one number e of the same average. It assumes that the two neighbours err
independently given the centre's class; the tables hold cases where they do, where they do not, and
real features, on which they do not.

    python benchmarks/soft.py    # about 3 minutes on two free cores

Real features are used where LABELNOISE_DATA names a folder that has cifar10/. The last results are
in benchmarks/results/soft.md.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
from tables import table

from labelnoise import Consensus, transition_error
from labelnoise.checks.soft import one_number, solve_soft
from labelnoise.neighbors import nearest_neighbors
from labelnoise.noise import pair_flip, symmetric
from labelnoise.scores import true_transition_matrix
from labelnoise.solvers import Solution, solve

K = 10
N = 50_000
ERROR_SEEDS = 3
PAIRS = ((0, 1), (0, 2), (1, 2))

Draw = Callable[[np.random.Generator, int], np.ndarray]


def class_confusion(wrong: float) -> np.ndarray:
    """S in which each class is confused with two others, as real classes are."""
    other = 0.7 * np.roll(np.eye(K), 1, axis=1) + 0.3 * np.roll(np.eye(K), 3, axis=1)
    return (1 - wrong) * np.eye(K) + wrong * other


def pick(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A draw from each row of probabilities."""
    cumulated = np.cumsum(rows, axis=1)
    spots = rng.random((len(rows), 1)) * cumulated[:, -1:]
    return (spots > cumulated).sum(axis=1)


def independent(S: np.ndarray) -> Draw:
    """The assumption: each neighbour's class is drawn from the centre's row of S."""

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        centre = rng.integers(0, K, n)
        return np.column_stack([centre, pick(S[centre], rng), pick(S[centre], rng)])

    return draw


def copied(S: np.ndarray, share: float) -> Draw:
    """In a share of triples the second neighbour has the class of the first."""

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        classes = independent(S)(rng, n)
        same = rng.random(n) < share
        classes[same, 2] = classes[same, 1]
        return classes

    return draw


def shared_places(S: np.ndarray) -> Draw:
    """All three are drawn alike from one of K kinds of places: no triple can tell."""

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        place = S[rng.integers(0, K, n)]
        return np.column_stack([pick(place, rng) for _ in range(3)])

    return draw


def ambiguous_places(share: float) -> Draw:
    """Most places are pure; in the others two classes mix, at any ratio, for all three alike."""

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        one = rng.integers(0, K, n)
        other = (one + np.where(rng.random(n) < 0.7, 1, 3)) % K
        ratio = np.where(rng.random(n) < share, rng.random(n), 0)
        classes = [np.where(rng.random(n) < ratio, other, one) for _ in range(3)]
        return np.column_stack(classes)

    return draw


def measured_S(classes: np.ndarray) -> np.ndarray:
    """S counted from the clean classes of triples."""
    centre, neighbor = np.repeat(classes[:, 0], 2), classes[:, 1:].ravel()
    return true_transition_matrix(centre, neighbor, K)


def average_number(S: np.ndarray) -> float:
    """The one number with the same average chance of another class."""
    return float((1 - np.trace(S) / K) / (K - 1))


def dependence(classes: np.ndarray) -> tuple[float, float, float]:
    """How often the second neighbour is wrong: in all, if the first is wrong, if it is right."""
    wrong = classes[:, 1:] != classes[:, :1]
    first, second = wrong.T
    if not first.any():
        return 0.0, 0.0, float(second.mean())
    return float(wrong.mean()), float(second[first].mean()), float(second[~first].mean())


# How the classes of the two nearest come about.
SITUATIONS: dict[str, Draw] = {
    "holds: no confusion (S = I)": independent(np.eye(K)),
    "holds: one number, e = .02": independent(one_number(0.02, K)),
    "holds: confused classes, 25%": independent(class_confusion(0.25)),
    "violated: second copies first, half": copied(class_confusion(0.25), 0.5),
    "violated: ambiguous places, 60%": ambiguous_places(0.6),
    "violated: K kinds of places": shared_places(class_confusion(0.15)),
}


def noise_matrices() -> dict[str, np.ndarray]:
    return {
        "symmetric .2": one_number(0.2 / (K - 1), K),
        "pair .45": 0.55 * np.eye(K) + 0.45 * np.roll(np.eye(K), 1, axis=1),
    }


def estimates(consensus: Consensus, S: np.ndarray) -> dict[str, Solution]:
    return {
        "plain": solve(consensus),
        "S given": solve_soft(consensus, S),
        "e given": solve_soft(consensus, average_number(S)),
    }


def errors_of(found: dict[str, Solution], T: np.ndarray) -> list[float]:
    return [transition_error(one.transition_matrix, T) for one in found.values()]


def least_in_bold(errors: list[float]) -> list[str]:
    least = f"{min(errors):.3f}"
    return [f"**{e:.3f}**" if f"{e:.3f}" == least else f"{e:.3f}" for e in errors]


def labelled(classes: np.ndarray, T: np.ndarray, rng: np.random.Generator) -> Consensus:
    labels = [pick(T[member], rng) for member in classes.T]
    return Consensus.from_labels(np.column_stack(labels), K)


def synthetic_errors() -> None:
    rows = []
    for situation, draw in SITUATIONS.items():
        for noise, T in noise_matrices().items():
            errors, dependences = [], []
            for seed in range(ERROR_SEEDS):
                rng = np.random.default_rng(seed)
                classes = draw(rng, N)
                dependences.append(dependence(classes))
                found = estimates(labelled(classes, T, rng), measured_S(classes))
                errors.append(errors_of(found, T))
            wrong, after_wrong, after_right = np.mean(dependences, axis=0)
            shown = f"{wrong:.2f} ({after_wrong:.2f} / {after_right:.2f})" if wrong else "0"
            rows.append([situation, noise, shown, *least_in_bold(np.mean(errors, axis=0).tolist())])
    table(
        f"Error of T on synthetic triples (K = {K}, {N:,} triples, mean of {ERROR_SEEDS} seeds)",
        "neighbours | noise | neighbour wrong (if the other is wrong / right) | plain | S given | "
        "e given",
        rows,
    )


def cifar10(folder: Path) -> None:
    with np.load(folder / "cifar10.npz") as archive:
        clean = archive["train_clean"].astype(int)
        noisy = {
            "human": archive["train_human"].astype(int),
            "CIFAR-10N worst": archive["train_cifar10n_worst"].astype(int),
        }
    noisy["symmetric .2"] = symmetric(clean, 0.2, random_state=0).labels
    noisy["pair .45"] = pair_flip(clean, 0.45, random_state=0).labels
    facts, rows = [], []
    for features in ("efficientnet_lite2", "efficientnet_lite0"):
        X = np.load(folder / f"{features}_train.npy").astype(np.float32)
        indices = nearest_neighbors(X, 2).indices
        members = np.column_stack([np.arange(len(X)), indices])
        S = measured_S(clean[members])
        wrong, after_wrong, after_right = dependence(clean[members])
        agree = [float((clean[members[:, i]] == clean[members[:, j]]).mean()) for i, j in PAIRS]
        facts.append(
            [
                features,
                *(f"{value:.3f}" for value in (wrong, after_wrong, after_right, *agree)),
            ]
        )
        for noise, labels in noisy.items():
            T = true_transition_matrix(clean, labels, K)
            consensus = Consensus.from_neighbors(labels, indices, K)
            errors = errors_of(estimates(consensus, S), T)
            rows.append([features, noise, *least_in_bold(errors)])
    table(
        "Do real neighbours err independently? CIFAR-10, 2 nearest by cosine, clean labels",
        "features | neighbour wrong | second wrong if first is | second wrong if first is right | "
        "same class: centre, first | centre, second | first, second",
        facts,
    )
    table(
        "Error of T on CIFAR-10 (50,000 triples; S and e given are counted from clean labels)",
        "features | noise | plain | S given | e given",
        rows,
    )


def main() -> None:
    begin = time.perf_counter()
    print(f"# Soft clusterability\n\n{date.today()}, {platform.machine()}, {os.cpu_count()} cores")
    synthetic_errors()
    folder = Path(os.environ.get("LABELNOISE_DATA", "")) / "cifar10"
    if "LABELNOISE_DATA" in os.environ and (folder / "cifar10.npz").exists():
        cifar10(folder)
    else:
        print("\nNo real features: LABELNOISE_DATA does not name a folder with cifar10/.")
    print(f"\n{time.perf_counter() - begin:.0f} seconds.")


if __name__ == "__main__":
    main()
