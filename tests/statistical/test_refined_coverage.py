"""How often intervals of nominal 95% hold the truth where classes overlap and T is refined."""

import numpy as np
import pytest

from labelnoise import HOC
from labelnoise.noise import class_conditional
from tests.conftest import clusters, pair_matrix, random_matrix, symmetric_matrix
from tests.test_intervals import inside, width


def drawn(K, seed):
    return random_matrix(K, np.random.default_rng(seed))


CASES = [  # name, T, separation of the classes, N, seeds
    ("K=2, symmetric .2", symmetric_matrix(2, 0.2), 1.0, 2_000, 60),
    ("K=3, symmetric .3, overlapping", symmetric_matrix(3, 0.3), 0.6, 3_000, 60),
    ("K=4, random, overlapping", drawn(4, 1), 0.6, 6_000, 40),
    ("K=4, random", drawn(4, 2), 1.5, 6_000, 40),
    ("K=4, pair .3, overlapping", pair_matrix(4, 0.3), 0.6, 6_000, 40),
    ("K=10, symmetric .3, overlapping", symmetric_matrix(10, 0.3), 0.8, 10_000, 20),
    ("K=10, random", drawn(10, 2), 1.5, 5_000, 20),
    ("K=10, symmetric .6", symmetric_matrix(10, 0.6), 1.5, 20_000, 10),
]


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_refined_intervals_cover(case):
    """Pooled over the entries of T that are not 0."""
    name, T, separation, n, seeds = case
    K, runs = len(T), []
    for seed in range(seeds):
        X, y = clusters(K, n, seed=seed, separation=separation)
        labels = class_conditional(y, T, random_state=1000 + seed).labels
        runs.append((HOC().fit(X, labels).confidence_interval(), np.bincount(y, minlength=K) / n))
    of_T = np.mean([inside(bars.transition_matrix, T)[T > 0] for bars, _ in runs])
    of_p = np.mean([inside(bars.class_prior, p) for bars, p in runs])
    of_rate = np.mean([inside(bars.noise_rate, 1 - p @ np.diag(T)) for bars, p in runs])
    wide = np.mean([width(bars.transition_matrix)[T > 0] for bars, _ in runs])
    if case is CASES[0]:
        print("\n| case | separation | N | seeds | T | p | noise rate | mean width of T |")
        print("|" + " --- |" * 8, end="")
    print(f"\n| {name} | {separation} | {n:,} | {seeds} ", end="")
    print(f"| {of_T:.3f} | {of_p:.3f} | {of_rate:.3f} | {wide:.3f} |", end="")
    assert of_T >= 0.9
