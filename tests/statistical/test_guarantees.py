"""Statistical guarantees in full."""

import numpy as np
import pytest

from tests.conftest import imbalanced_prior, pair_matrix, random_matrix, symmetric_matrix
from tests.statistical.rates import fitted_exponent, mean_errors, relative_rmse

MODELS = {
    "symmetric .4, K=3": (symmetric_matrix(3, 0.4), imbalanced_prior(3, 3)),
    "symmetric .6, K=10": (symmetric_matrix(10, 0.6), np.ones(10) / 10),
    "pair .45 + 5%, K=5": (pair_matrix(5, 0.45, background=0.05), imbalanced_prior(5, 5)),
    "random, K=10": (random_matrix(10, np.random.default_rng(1)), imbalanced_prior(10, 5)),
}


@pytest.mark.parametrize("name", MODELS)
def test_error_falls_with_the_square_root(name):
    """Theorem 2: the error is of order n^(-1/2)."""
    sizes = [16_000, 64_000, 256_000]
    errors = mean_errors(*MODELS[name], sizes, range(40))
    exponent = fitted_exponent(sizes, errors)
    print(f"\n{name}: errors {np.round(errors, 4).tolist()} at n = {sizes}: n^{exponent:.3f}")
    assert -0.58 < exponent < -0.42


@pytest.mark.parametrize("name", MODELS)
def test_error_is_near_the_cramer_rao_bound(name):
    """With many triples the likelihood solver loses at most 10% to the best possible."""
    ratio = relative_rmse(*MODELS[name], 400_000, range(200))
    print(f"\n{name}: root mean squared error {ratio:.3f} times the Cramer-Rao bound")
    assert 0.9 < ratio < 1.1
