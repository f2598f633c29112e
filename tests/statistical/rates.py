"""How the error falls with the number of triples, and how it compares with the best possible."""

import numpy as np

from labelnoise import transition_error
from labelnoise.consensus import expected_consensus
from labelnoise.solvers import solve
from tests.conftest import sampled_consensus


def mean_errors(T, p, sizes, seeds):
    """Mean error of the likelihood solver for each number of triples."""
    return np.array(
        [
            np.mean(
                [
                    transition_error(solve(sampled_consensus(T, p, n, seed)).transition_matrix, T)
                    for seed in seeds
                ]
            )
            for n in sizes
        ]
    )


def fitted_exponent(sizes, errors):
    """Slope of log error against log n."""
    return float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])


def cramer_rao_mse(T, p, n):
    """The least mean squared error, summed over T, of an unbiased estimator from n triples.

    Derivatives of the triples' probabilities with respect to the free entries of T and p (each
    row's last entry is 1 minus the others) are taken numerically.
    """
    K = len(p)
    free = np.concatenate([T[:, :-1].ravel(), p[:-1]])

    def parts(x):
        rows = x[: K * (K - 1)].reshape(K, K - 1)
        prior = x[K * (K - 1) :]
        return (
            np.column_stack([rows, 1 - rows.sum(axis=1)]),
            np.append(prior, 1 - prior.sum()),
        )

    def probabilities(x):
        return expected_consensus(*parts(x))[2].ravel()

    step = 1e-6
    slopes = np.array(
        [
            (probabilities(free + step * unit) - probabilities(free - step * unit)) / (2 * step)
            for unit in np.eye(len(free))
        ]
    )
    information = n * (slopes / probabilities(free)) @ slopes.T
    covariance = np.linalg.inv(information)
    total = 0.0
    for i in range(K):
        block = covariance[i * (K - 1) : (i + 1) * (K - 1), i * (K - 1) : (i + 1) * (K - 1)]
        total += np.trace(block) + block.sum()  # the last entry's variance is that of the sum
    return total


def relative_rmse(T, p, n, seeds):
    """Root mean squared error of T over the Cramer-Rao bound; 1 is the best possible."""
    squared = [
        ((solve(sampled_consensus(T, p, n, seed)).transition_matrix - T) ** 2).sum()
        for seed in seeds
    ]
    return float(np.sqrt(np.mean(squared) / cramer_rao_mse(T, p, n)))
