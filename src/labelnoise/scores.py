"""Scoring an estimate against the truth, where somebody knows it, and other tools' conventions.

The estimators never see clean labels; these functions may.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labelnoise._errors import LabelNoiseError


def transition_error(estimate: Any, truth: Any) -> float:
    """Error of an estimated transition matrix, ``||estimate - truth||_{1,1} / K``.

    The paper's measure: the absolute differences of a row, added up and averaged over rows.
    0 is perfect, 2 the most it can be.

    Examples
    --------
    >>> transition_error([[0.75, 0.25], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]])
    0.75
    """
    estimate, truth = np.asarray(estimate, float), np.asarray(truth, float)
    if estimate.shape != truth.shape or estimate.ndim != 2 or len(set(truth.shape)) != 1:
        raise LabelNoiseError(
            f"Expected two square matrices of one size, but their shapes are "
            f"{estimate.shape} and {truth.shape}"
        )
    return float(np.abs(estimate - truth).sum() / len(truth))


def true_transition_matrix(clean: Any, noisy: Any, n_classes: int) -> np.ndarray:
    """Count T from clean and noisy class numbers: the share of each clean class per label.

    A class that never occurs gets the row of the identity.
    """
    clean, noisy = np.asarray(clean, np.int64), np.asarray(noisy, np.int64)
    if clean.shape != noisy.shape:
        raise LabelNoiseError(
            f"Expected as many clean as noisy labels, but their shapes are {clean.shape} and "
            f"{noisy.shape}"
        )
    for labels in (clean, noisy):
        if labels.size and not 0 <= labels.min() <= labels.max() < n_classes:
            raise LabelNoiseError(
                f"Expected class numbers from 0 to n_classes - 1 = {n_classes - 1}, but they "
                f"range from {labels.min()} to {labels.max()}"
            )
    counts = np.bincount(clean * n_classes + noisy, minlength=n_classes**2)
    counts = counts.reshape(n_classes, n_classes).astype(float)
    counts[counts.sum(axis=1) == 0] = np.eye(n_classes)[counts.sum(axis=1) == 0]
    return counts / counts.sum(axis=1, keepdims=True)


def feasibility(clean: Any, neighbors: Any) -> float:
    """Share of examples whose two nearest neighbours have its clean label.

    It is how often the assumption of the estimator holds (Table 3 of the paper).

    Parameters
    ----------
    clean : array of shape (N,)
        Clean labels.
    neighbors : int array of shape (N, k), k >= 2
        Row numbers, nearest first, as `labelnoise.neighbors.nearest_neighbors` gives them.

    Examples
    --------
    >>> feasibility([0, 0, 0, 1], [[1, 2], [0, 2], [0, 3], [2, 0]])
    0.5
    """
    clean, neighbors = np.asarray(clean), np.asarray(neighbors)
    if neighbors.ndim != 2 or neighbors.shape[1] < 2 or len(neighbors) != len(clean):
        raise LabelNoiseError(
            f"Expected neighbors of shape (n_samples, 2 or more), but neighbors has shape "
            f"{neighbors.shape}, n_samples = {len(clean)}"
        )
    if neighbors.dtype.kind not in "iu" or neighbors.min() < 0 or neighbors.max() >= len(clean):
        raise LabelNoiseError(
            f"Expected neighbors to be row numbers from 0 to {len(clean) - 1}, but they are "
            f"{neighbors.dtype}, from {neighbors.min()} to {neighbors.max()}"
        )
    return float((clean[neighbors[:, :2]] == clean[:, None]).all(axis=1).mean())


def to_cleanlab(transition_matrix: Any) -> np.ndarray:
    """Give cleanlab's `noise_matrix`: rows are labels, columns clean classes and sum to 1."""
    T = np.asarray(transition_matrix, float)
    _expect_sums(T, axis=1, what="rows of transition_matrix")
    return T.T.copy()


def from_cleanlab(noise_matrix: Any) -> np.ndarray:
    """Give the transition matrix (rows are clean classes) of cleanlab's `noise_matrix`."""
    matrix = np.asarray(noise_matrix, float)
    _expect_sums(matrix, axis=0, what="columns of noise_matrix")
    return matrix.T.copy()


def _expect_sums(matrix: np.ndarray, axis: int, what: str) -> None:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise LabelNoiseError(f"Expected a square matrix, but its shape is {matrix.shape}")
    sums = matrix.sum(axis=axis)
    if not np.allclose(sums, 1, atol=1e-6):
        raise LabelNoiseError(
            f"Expected the {what} to sum to 1, but they sum to {np.round(sums, 4).tolist()}: "
            f"is the matrix transposed?"
        )
