"""Suspect labels: who finds the wrong ones?

CIFAR-10 with human labels and with synthetic noise, three representations. Every method sees the
same features: `labelnoise` takes HOC's T from them, cleanlab takes out-of-fold probabilities of a
logistic regression (`noisy_posteriors`), and the kNN vote counts how many neighbours have another
label. Average precision is of the whole ranking, F1 at the method's own cut, and "at the true
count" is the precision among as many as there are wrong labels.

    LABELNOISE_DATA=... python benchmarks/suspects.py    # about 10 minutes on two cores

Needs cleanlab, and Pillow to read the images. The last results are in
benchmarks/results/suspects.md.
"""

from __future__ import annotations

import os
import platform
import time
import warnings
from datetime import date
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import numpy as np
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from labelnoise.cleaning import (
    clean_posterior,
    counted_transition_matrix,
    find_suspects,
    reweight,
    verify,
)
from sklearn.metrics import average_precision_score, f1_score
from tables import table

from labelnoise import HOC, LabelNoiseWarning, transition_error
from labelnoise.clean_class.linear import noisy_posteriors
from labelnoise.io.datasets import load
from labelnoise.neighbors import nearest_neighbors
from labelnoise.noise import instance_dependent, pair_flip, symmetric
from labelnoise.scores import true_transition_matrix

K = 10
REPRESENTATIONS = ("efficientnet_lite2", "resnet18_human_early", "efficientnet_lite0")
SCORES = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
FILTERS = (
    "prune_by_noise_rate",
    "prune_by_class",
    "both",
    "confident_learning",
    "predicted_neq_given",
    "low_normalized_margin",
    "low_self_confidence",
)
VOTERS = (10, 50)
BINS = (0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.85, 0.95, 1.001)
N_VERIFIED = 300
VERIFIED_SEEDS = 5

Values = dict[str, float]


def noisy_labels(folder: Path, clean: np.ndarray) -> dict[str, np.ndarray]:
    """All label sets by name, as class numbers."""
    with np.load(folder / "cifar10.npz") as archive:
        found = {
            "human": archive["train_human"],
            "aggregate": archive["train_cifar10n_aggregate"],
            "random1": archive["train_cifar10n_random1"],
            "worst": archive["train_cifar10n_worst"],
        }
    pixels = load("cifar10").train.array
    assert pixels is not None
    found |= {
        "symmetric .2": symmetric(clean, 0.2, random_state=0).labels,
        "symmetric .4": symmetric(clean, 0.4, random_state=0).labels,
        "pair .3": pair_flip(clean, 0.3, random_state=0).labels,
        "instance .4": instance_dependent(
            pixels.reshape(len(pixels), -1), clean, 0.4, random_state=0
        ).labels,
    }
    return {name: labels.astype(int) for name, labels in found.items()}


def rankings(
    posterior: np.ndarray, P: np.ndarray, labels: np.ndarray, near: np.ndarray
) -> dict[str, np.ndarray]:
    """A score for each method, the higher the more suspect."""
    found = {"labelnoise": 1 - reweight(posterior, labels)}
    for score in SCORES:
        found[score] = -get_label_quality_scores(labels, P, method=score)
    for k in VOTERS:
        found[f"{k}-NN vote"] = (labels[near[:, :k]] != labels[:, None]).mean(axis=1)
    return found


def cuts(
    posterior: np.ndarray, P: np.ndarray, labels: np.ndarray, near: np.ndarray
) -> dict[str, np.ndarray]:
    """Which labels each method calls wrong."""
    suspect = np.zeros(len(labels), bool)
    suspect[find_suspects(posterior, labels).index] = True
    found = {"labelnoise": suspect}
    for name in FILTERS:
        found[name] = find_label_issues(labels, P, filter_by=name, n_jobs=1)
    for k in VOTERS:
        votes = (labels[near[:, :k], None] == np.arange(K)).sum(axis=1)
        found[f"{k}-NN vote"] = votes.argmax(axis=1) != labels
    return found


def at_true_count(score: np.ndarray, wrong: np.ndarray) -> float:
    return float(wrong[np.argsort(-score, kind="stable")[: wrong.sum()]].mean())


def calibration(probability: np.ndarray, wrong: np.ndarray) -> list[str]:
    """Share of wrong labels in each bin of the probability, and how many are in it."""
    place = np.digitize(probability, BINS) - 1
    cells = []
    for i in range(len(BINS) - 1):
        inside = place == i
        cells.append(f"{wrong[inside].mean():.2f} ({inside.sum():,})" if inside.any() else "")
    return cells


def with_verified(
    posterior: np.ndarray, labels: np.ndarray, clean: np.ndarray, T: np.ndarray
) -> list[str]:
    """What verified labels change, scored on the other examples: before, and after."""
    wrong = labels != clean
    truth = true_transition_matrix(clean, labels, K)
    found = []
    for seed in range(VERIFIED_SEEDS):
        rows = np.random.default_rng(seed).choice(len(labels), N_VERIFIED, replace=False)
        other = np.setdiff1d(np.arange(len(labels)), rows)
        after = verify(posterior, labels, dict(zip(rows.tolist(), clean[rows], strict=True)))
        values = [transition_error(T, truth)]
        values.append(transition_error(counted_transition_matrix(posterior, labels), truth))
        values.append(transition_error(after.transition_matrix, truth))
        both = [1 - reweight(p, labels)[other] for p in (posterior, after.posterior)]
        values += [average_precision_score(wrong[other], p) for p in both]
        values += [calibration_error(p, wrong[other]) for p in both]
        found.append([*values, after.finding.ok])
    *means, ok = np.mean(found, axis=0)
    return [*(f"{value:.3f}" for value in means), f"{ok:.0%}"]


def calibration_error(probability: np.ndarray, wrong: np.ndarray) -> float:
    """Average over examples of how far their bin's mean probability is from its share of wrong."""
    place = np.minimum((probability * 20).astype(int), 19)
    return float(np.abs(np.bincount(place, probability - wrong)).sum() / len(wrong))


def best_in_bold(values: Values) -> list[str]:
    best = f"{max(values.values()):.3f}"
    return [f"**{best}**" if f"{v:.3f}" == best else f"{v:.3f}" for v in values.values()]


def main() -> None:
    begin = time.perf_counter()
    warnings.simplefilter("ignore", LabelNoiseWarning)
    folder = Path(os.environ["LABELNOISE_DATA"]) / "cifar10"
    with np.load(folder / "cifar10.npz") as archive:
        clean = archive["train_clean"].astype(int)
    noisy = noisy_labels(folder, clean)
    print(
        f"# Suspect labels\n\n{date.today()}, {platform.machine()}, {os.cpu_count()} cores, "
        f"cleanlab {version('cleanlab')}. CIFAR-10, {len(clean):,} labels, one seed."
    )
    precision, at_count, f1, rates, bins, verified = [], [], [], [], [], []
    behind, seconds = [], []
    for features in REPRESENTATIONS:
        X = np.load(folder / f"{features}_train.npy").astype(np.float32)
        near = nearest_neighbors(X, max(VOTERS)).indices
        for noise, labels in noisy.items():
            wrong = labels != clean
            est = HOC().fit(None, labels, neighbors=near)
            P = noisy_posteriors(X, labels, K)
            start = time.perf_counter()
            posterior = clean_posterior(X, labels, est.transition_matrix_, neighbors=near)
            seconds.append(time.perf_counter() - start)
            scores = rankings(posterior, P, labels, near)
            values = {name: average_precision_score(wrong, s) for name, s in scores.items()}
            ahead = values["labelnoise"] - max(v for n, v in values.items() if n != "labelnoise")
            if ahead <= 0:
                behind.append(f"{features}, {noise} (by {-ahead:.4f})")
            case = [features, noise]
            precision.append([*case, *best_in_bold(values)])
            counted = {name: at_true_count(s, wrong) for name, s in scores.items()}
            at_count.append([*case, *best_in_bold(counted)])
            found = cuts(posterior, P, labels, near)
            f1.append([*case, *best_in_bold({n: f1_score(wrong, c) for n, c in found.items()})])
            probability = scores["labelnoise"]
            expected = probability.mean()
            rates.append([*case, *(f"{r:.3f}" for r in (wrong.mean(), est.noise_rate_, expected))])
            bins.append([*case, *calibration(probability, wrong)])
            changes = with_verified(posterior, labels, clean, est.transition_matrix_)
            verified.append([*case, *changes])
    where = "features | noise | "
    methods = " | ".join(scores)
    table("Average precision", where + methods, precision)
    print(f"\nNot ahead: {'; '.join(behind) or 'nowhere'}.")
    table("Precision at the true count", where + methods, at_count)
    table("F1 at the method's own cut", where + " | ".join(found), f1)
    table(
        "Share of wrong labels",
        where + "true | HOC | mean probability of being wrong",
        rates,
    )
    edges = [f"{a:g} to {min(b, 1):g}" for a, b in pairwise(BINS)]
    table(
        "Calibration: share of wrong labels by the probability of being wrong (how many)",
        where + " | ".join(edges),
        bins,
    )
    table(
        f"{N_VERIFIED} verified labels, drawn at random, scored on the others (mean of "
        f"{VERIFIED_SEEDS} draws)",
        where + "error of T: HOC | counted by the posterior | verified | average precision: "
        "before | after | calibration error: before | after | agreed before",
        verified,
    )
    print(
        f"\n`clean_posterior` took {np.median(seconds):.0f} seconds in the median, neighbours not "
        f"counted; all took {time.perf_counter() - begin:.0f} seconds."
    )


if __name__ == "__main__":
    main()
