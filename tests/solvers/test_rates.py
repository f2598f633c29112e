"""A quick share of the statistical guarantees; `make test-slow` runs all of them."""

import numpy as np

from tests.conftest import random_matrix, symmetric_matrix
from tests.statistical.rates import fitted_exponent, mean_errors, relative_rmse


def test_error_falls_with_the_square_root(rng):
    """Theorem 2: the error is of order n^(-1/2)."""
    sizes = [2_000, 8_000, 32_000]
    errors = mean_errors(symmetric_matrix(4, 0.3), np.ones(4) / 4, sizes, range(20))
    assert -0.6 < fitted_exponent(sizes, errors) < -0.4


def test_error_is_near_the_cramer_rao_bound(rng):
    """With many triples the likelihood solver loses at most 10% to the best possible.

    With 60 samples of 9 entries the ratio itself is known to about 4%.
    """
    assert (
        0.9
        < relative_rmse(random_matrix(3, rng), np.array([0.5, 0.3, 0.2]), 40_000, range(60))
        < 1.1
    )
