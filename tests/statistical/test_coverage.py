"""How often intervals of nominal 95% hold the truth, where neighbours share their class."""

import numpy as np
import pytest

from tests.conftest import imbalanced_prior, pair_matrix, random_matrix, symmetric_matrix
from tests.test_intervals import estimate_and_interval, inside, width


def drawn(K, seed):
    return random_matrix(K, np.random.default_rng(seed))


CASES = [  # name, T, class ratio, N, seeds, settings
    ("K=2, symmetric .2", symmetric_matrix(2, 0.2), 1, 2_000, 400, {}),
    ("K=2, symmetric .3", symmetric_matrix(2, 0.3), 1.5, 10_000, 200, {}),
    ("K=2, random", drawn(2, 2), 1.5, 5_000, 300, {}),
    ("K=2, random", drawn(2, 1), 1, 50_000, 150, {}),
    ("K=5, symmetric .4", symmetric_matrix(5, 0.4), 3, 5_000, 100, {}),
    ("K=5, random", drawn(5, 1), 3, 10_000, 100, {}),
    ("K=5, pair .3", pair_matrix(5, 0.3), 2, 2_000, 100, {}),
    ("K=10, symmetric .2", symmetric_matrix(10, 0.2), 1, 2_000, 60, {}),
    ("K=10, symmetric .2, all pairs of 6", symmetric_matrix(10, 0.2), 1, 5_000, 40, {"k": 6}),
    ("K=10, symmetric .6", symmetric_matrix(10, 0.6), 1, 50_000, 40, {}),
    ("K=10, random", drawn(10, 2), 2, 20_000, 60, {}),
    ("K=10, pair .3", pair_matrix(10, 0.3), 1, 5_000, 60, {}),
    ("K=10, pair .45 and 5% uniform", pair_matrix(10, 0.45, 0.05), 1, 50_000, 40, {}),
    ("K=40, symmetric .3", symmetric_matrix(40, 0.3), 1, 50_000, 10, {}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_intervals_cover(case):
    """Pooled over the entries of T that are not 0."""
    name, T, ratio, n, seeds, settings = case
    p = imbalanced_prior(len(T), ratio)
    runs = [estimate_and_interval(T, p, n, seed, **settings)[1] for seed in range(seeds)]
    of_T = np.mean([inside(bars.transition_matrix, T)[T > 0] for bars in runs])
    of_p = np.mean([inside(bars.class_prior, p) for bars in runs])
    of_rate = np.mean([inside(bars.noise_rate, 1 - p @ np.diag(T)) for bars in runs])
    wide = np.mean([width(bars.transition_matrix)[T > 0] for bars in runs])
    if case is CASES[0]:
        print("\n| case | class ratio | N | seeds | T | p | noise rate | mean width of T |")
        print("|" + " --- |" * 8, end="")
    print(f"\n| {name} | 1:{ratio:g} | {n:,} | {seeds} ", end="")
    print(f"| {of_T:.3f} | {of_p:.3f} | {of_rate:.3f} | {wide:.3f} |", end="")
    assert 0.92 <= of_T <= 0.98
