"""Suspect labels: who finds the wrong ones?

CIFAR-10 with human labels and with synthetic noise, in three representations, and 6,000 images of
Fashion-MNIST. Every method sees the same features: `labelnoise` ranks by `HOC().suspects()`,
cleanlab takes out-of-fold probabilities of a logistic regression (`noisy_posteriors`), and the kNN
vote counts how many neighbours have another label. Average precision is of the whole ranking, F1 at
the method's own cut, and "at the true count" is the precision among as many labels as are wrong.

    LABELNOISE_DATA=... python benchmarks/suspects.py > benchmarks/results/suspects.md

Needs cleanlab, and what `python benchmarks/_data.py` prepares. Five minutes on two cores.
"""

from __future__ import annotations

import os
import platform
import time
import warnings
from datetime import date
from importlib.metadata import version
from itertools import pairwise

import numpy as np
from _data import data, noisy_labels
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from sklearn.decomposition import PCA
from sklearn.metrics import average_precision_score, f1_score
from tables import table

from labelnoise import HOC, LabelNoiseWarning
from labelnoise.clean_class.linear import noisy_posteriors
from labelnoise.neighbors import nearest_neighbors
from labelnoise.noise import symmetric

CASES = [
    (features, noise)
    for features in ("lite2", "early", "lite0")
    for noise in (
        "human", "aggregate", "random1", "worst", "symmetric .2", "symmetric .4", "pair .4",
        "instance .4",
    )
]  # fmt: skip
FASHION = ("Fashion-MNIST, 6,000 x 50", "symmetric .2")
SCORES = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
FILTERS = (
    "prune_by_noise_rate", "prune_by_class", "both", "confident_learning", "predicted_neq_given",
    "low_normalized_margin", "low_self_confidence",
)  # fmt: skip
VOTERS = (10, 50)
BINS = (0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.85, 0.95, 1.001)


def case(features: str, noise: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, clean and noisy labels."""
    if (features, noise) == FASHION:
        X, clean, _ = data("fashion")
        some = np.random.default_rng(0).choice(len(X), 6000, replace=False)
        X, clean = PCA(50, random_state=0).fit_transform(X[some]), clean[some]
        return X, clean, symmetric(clean, 0.2, random_state=0).labels
    X, clean, _ = data(features)
    return X, clean, noisy_labels(features, noise, 0)


def rankings(
    wrong_chance: np.ndarray, P: np.ndarray, labels: np.ndarray, near: np.ndarray
) -> dict[str, np.ndarray]:
    """A score for each method, the higher the more suspect."""
    found = {"labelnoise": wrong_chance}
    for score in SCORES:
        found[score] = -get_label_quality_scores(labels, P, method=score)
    for k in VOTERS:
        found[f"{k}-NN vote"] = (labels[near[:, :k]] != labels[:, None]).mean(axis=1)
    return found


def cuts(
    suspects: np.ndarray, P: np.ndarray, labels: np.ndarray, near: np.ndarray
) -> dict[str, np.ndarray]:
    """Which labels each method calls wrong."""
    found = {"labelnoise": np.isin(np.arange(len(labels)), suspects)}
    for name in FILTERS:
        found[name] = find_label_issues(labels, P, filter_by=name, n_jobs=1)
    for k in VOTERS:
        votes = (labels[near[:, :k], None] == np.arange(P.shape[1])).sum(axis=1)
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


def best_in_bold(values: dict[str, float]) -> list[str]:
    best = f"{max(values.values()):.3f}"
    return [f"**{best}**" if f"{v:.3f}" == best else f"{v:.3f}" for v in values.values()]


def main() -> None:
    begin = time.perf_counter()
    warnings.simplefilter("ignore", LabelNoiseWarning)
    precision, at_count, f1, rates, bins, behind = [], [], [], [], [], []
    for name in [*CASES, FASHION]:
        X, clean, labels = case(*name)
        wrong = labels != clean
        near = nearest_neighbors(X, max(VOTERS)).indices
        est = HOC().fit(X, labels)
        P = noisy_posteriors(X, labels, len(est.classes_))
        chance = 1 - est.predict_proba()[np.arange(len(labels)), labels]
        scores = rankings(chance, P, labels, near)
        values = {method: average_precision_score(wrong, s) for method, s in scores.items()}
        ahead = values["labelnoise"] - max(v for m, v in values.items() if m != "labelnoise")
        if ahead <= 0:
            behind.append(f"{', '.join(name)} (by {-ahead:.4f})")
        precision.append([*name, *best_in_bold(values)])
        counted = {method: at_true_count(s, wrong) for method, s in scores.items()}
        at_count.append([*name, *best_in_bold(counted)])
        found = cuts(est.suspects().index, P, labels, near)
        f1.append([*name, *best_in_bold({m: f1_score(wrong, c) for m, c in found.items()})])
        rates.append([*name, *(f"{r:.3f}" for r in (wrong.mean(), est.noise_rate_, chance.mean()))])
        bins.append([*name, *calibration(chance, wrong)])
    print(
        f"# Suspect labels\n\n{date.today()}, {platform.machine()}, {os.cpu_count()} cores, "
        f"cleanlab {version('cleanlab')}, one seed, {time.perf_counter() - begin:.0f} seconds.\n\n"
        f"Not ahead in average precision: {'; '.join(behind) or 'nowhere'}."
    )
    where = "features | noise | "
    table("Average precision", where + " | ".join(scores), precision)
    table("Precision at the true count", where + " | ".join(scores), at_count)
    table("F1 at the method's own cut", where + " | ".join(found), f1)
    table("Share of wrong labels", where + "true | HOC | mean chance of being wrong", rates)
    edges = [f"{a:g} to {min(b, 1):g}" for a, b in pairwise(BINS)]
    table(
        "Calibration: share of wrong labels by the chance of being wrong (how many)",
        where + " | ".join(edges),
        bins,
    )


if __name__ == "__main__":
    main()
