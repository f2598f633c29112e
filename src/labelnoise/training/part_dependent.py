"""Part-dependent T: each example mixes the matrices of its parts, which anchor points show."""

from __future__ import annotations

import numpy as np
from sklearn.decomposition import NMF

from labelnoise.solvers.rows import project_on_simplex

_ANCHORS = 20  # anchor points a class, as published


def part_dependent(
    representations: np.ndarray,
    posteriors: np.ndarray,
    n_parts: int,
    percentile: float,
    random_state: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Fit a matrix for each part so that anchor points have the rows that a network predicts.

    Parameters
    ----------
    representations : array of shape (N, d)
        Not negative.
    posteriors : array of shape (N, K)
        A network's predicted P(label | x).
    n_parts : int
        Into how many parts the representations are factored.
    percentile : float
        For each class, examples whose posterior is above this percentile are no anchors.
    random_state : int
        Of the factorisation.

    Returns
    -------
    weights, parts : arrays of shape (N, n_parts) and (n_parts, K, K)
        ``T(x_n) = sum_j weights[n, j] parts[j]``; rows of all sum to 1.
    """
    factors = NMF(n_parts, init="nndsvda", max_iter=100, tol=1e-3, random_state=random_state)
    activations = factors.fit_transform(np.maximum(representations, 0)) + 1e-9
    weights = activations / activations.sum(axis=1, keepdims=True)
    K = posteriors.shape[1]
    parts = np.empty((n_parts, K, K))
    for i in range(K):
        score = posteriors[:, i].copy()
        score[score > np.percentile(score, percentile)] = -1
        anchors = np.argsort(-score, kind="stable")[:_ANCHORS]
        parts[:, i] = fitted_rows(weights[anchors], posteriors[anchors])
    return weights, parts


def fitted_rows(weights: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Probability rows R that minimise ``||weights R - targets||^2``, by projected gradient."""
    n_parts, K = weights.shape[1], targets.shape[1]
    gram, cross = weights.T @ weights, weights.T @ targets
    step = 1 / float(np.linalg.norm(gram, 2) + 1e-12)
    rows = np.tile(targets.mean(axis=0), (n_parts, 1))
    for _ in range(500):
        rows = project_on_simplex(rows - step * (gram @ rows - cross))
    return rows.reshape(n_parts, K)
