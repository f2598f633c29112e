"""Scores: of an estimate against the truth, and of a classifier on noisy labels.

The estimators never see clean labels. Some of these functions do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise._validation import class_numbers, expect_between
from labelnoise._validation import transition_matrix as checked_matrix
from labelnoise.labels import encode_labels

_DRAWS = 2000  # draws of T and of the test labels, for intervals
_NEARLY_SINGULAR = 0.01  # if the smallest singular value of T is less


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
    clean = class_numbers(clean, n_classes, name="clean labels")
    noisy = class_numbers(noisy, n_classes, len(clean), name="noisy labels")
    counts = np.bincount(clean * n_classes + noisy, minlength=n_classes**2)
    counts = counts.reshape(n_classes, n_classes).astype(float)
    counts[counts.sum(axis=1) == 0] = np.eye(n_classes)[counts.sum(axis=1) == 0]
    return counts / counts.sum(axis=1, keepdims=True)


def feasibility(clean: Any, neighbors: Any, k: int = 2) -> float:
    """Share of examples whose k nearest neighbours have its clean label.

    For k = 2 it is how often the assumption of the estimator holds (Table 3 of the paper).

    Parameters
    ----------
    clean : array of shape (N,)
        Clean labels.
    neighbors : int array of shape (N, k or more)
        Row numbers, nearest first, as `labelnoise.neighbors.nearest_neighbors` gives them.
    k : int, default=2

    Examples
    --------
    >>> feasibility([0, 0, 0, 1], [[1, 2], [0, 2], [0, 3], [2, 0]])
    0.5
    >>> feasibility([0, 0, 0, 1], [[1, 2], [0, 2], [0, 3], [2, 0]], k=1)
    0.75
    """
    clean, neighbors = np.asarray(clean), np.asarray(neighbors)
    if neighbors.ndim != 2 or neighbors.shape[1] < k or len(neighbors) != len(clean) or k < 1:
        raise LabelNoiseError(
            f"Expected neighbors of shape (n_samples, k or more) and k >= 1, but neighbors has "
            f"shape {neighbors.shape}, n_samples = {len(clean)}, k = {k}"
        )
    if neighbors.dtype.kind not in "iu" or neighbors.min() < 0 or neighbors.max() >= len(clean):
        raise LabelNoiseError(
            f"Expected neighbors to be row numbers from 0 to {len(clean) - 1}, but they are "
            f"{neighbors.dtype}, from {neighbors.min()} to {neighbors.max()}"
        )
    return float((clean[neighbors[:, :k]] == clean[:, None]).all(axis=1).mean())


def clean_confusion(noisy_confusion: Any, transition_matrix: Any) -> np.ndarray:
    """Confusion of a classifier with the clean classes, from that with noisy labels.

    ``C = (T^-1)' C~``, as ``C~ = T' C`` where predictions do not depend on the noise.

    Parameters
    ----------
    noisy_confusion : array of shape (K, M)
        ``C~[j, h]``, how many (or what share) of the examples labelled j are predicted h.
    transition_matrix : array of shape (K, K)
        T, rows clean.

    Returns
    -------
    array of shape (K, M)
        ``C[i, h]`` for clean class i. By sampling, small entries may be below 0.

    Examples
    --------
    >>> clean_confusion([[45, 15], [10, 30]], [[0.9, 0.1], [0.2, 0.8]]).round(1)
    array([[48.6,  8.6],
           [ 6.4, 36.4]])
    """
    confusion, T = np.asarray(noisy_confusion, float), np.asarray(transition_matrix, float)
    if confusion.ndim != 2 or len(confusion) != len(T):
        raise LabelNoiseError(
            f"Expected a noisy confusion with a row for each of the {len(T)} labels, but its "
            f"shape is {confusion.shape}"
        )
    T = checked_matrix(T, "transition_matrix")
    least = float(np.linalg.svd(T, compute_uv=False)[-1])
    if least < _NEARLY_SINGULAR:
        raise LabelNoiseError(
            f"Expected a non-singular T, but its smallest singular value is {least:.2g}: two "
            f"classes are labelled in the same way, so merge them"
        )
    return np.linalg.solve(T.T, confusion)


@dataclass(frozen=True, repr=False)
class CleanAccuracy:
    """How often a classifier is right, by test labels that are noisy. Prints as a sentence."""

    noisy_accuracy: float
    """Share of examples whose noisy label is predicted."""
    accuracy: float
    """Estimated share of examples whose clean class is predicted."""
    interval: tuple[float, float]
    recall: np.ndarray
    """(K,) estimated accuracy in each clean class; NaN for a class that has no examples."""
    recall_interval: np.ndarray
    """(2, K)"""
    confusion: np.ndarray
    """(K, K) estimated share of examples of each clean class (rows) and prediction (columns)."""
    classes: np.ndarray
    level: float

    def __repr__(self) -> str:
        low, high = self.interval
        return (
            f"{self.noisy_accuracy:.1%} on these labels; {self.accuracy:.1%} ({low:.1%} to "
            f"{high:.1%}) on clean ones"
        )


def clean_accuracy(
    labels: Any,
    predictions: Any,
    transition_matrix: Any,
    *,
    classes: Any = None,
    variance: Any = None,
    level: float = 0.95,
) -> CleanAccuracy:
    """Estimate the accuracy of a classifier on clean labels from noisy test labels.

    Parameters
    ----------
    labels, predictions : arrays of shape (n,)
        Noisy test labels, and what the classifier predicts. Examples without a label are left
        out.
    transition_matrix : array of shape (K, K)
        T of the test labels, rows clean.
    classes : array of shape (K,), optional
        Labels in the order of T's rows; by default the sorted labels that occur.
    variance : array of shape (K, K), optional
        Variances of the entries of T, as ``est.confidence_interval().transition_variance()``.
        Without them T is taken as known, and the interval is that of the test sample alone.
    level : float, default=0.95

    Notes
    -----
    The trace of `clean_confusion`. It holds if noise depends only on the class, and the
    classifier's errors do not follow those of the labels: people's often do, and the accuracy
    then comes out too high. The class prior may differ from where T was estimated. The interval
    is that of draws of the test sample (multinomial) and of T (Dirichlet rows).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> clean = rng.integers(2, size=2000)
    >>> labels = np.where(rng.random(2000) < 0.2, 1 - clean, clean)
    >>> predictions = np.where(rng.random(2000) < 0.1, 1 - clean, clean)
    >>> clean_accuracy(labels, predictions, [[0.8, 0.2], [0.2, 0.8]])
    72.6% on these labels; 87.8% (84.5% to 91.1%) on clean ones
    """
    T = np.asarray(transition_matrix, float)
    observed, names = encode_labels(labels, classes)
    predicted, _ = encode_labels(predictions, names)
    if len(observed) != len(predicted) or len(names) != len(T):
        raise LabelNoiseError(
            f"Expected as many predictions as labels and a row of T for each class, but there are "
            f"{len(observed)} labels, {len(predicted)} predictions, {len(names)} classes and "
            f"{len(T)} rows"
        )
    expect_between("level", level)
    both = (observed >= 0) & (predicted >= 0)
    n, K = int(both.sum()), len(T)
    if not n:
        raise LabelNoiseError("Expected labelled examples with predictions, but there are none")
    shares = np.bincount(observed[both] * K + predicted[both], minlength=K * K) / n
    return _accuracy_of(shares.reshape(K, K), n, T, variance, names, level)


def _accuracy_of(
    noisy: np.ndarray, n: int, T: np.ndarray, variance: Any, names: np.ndarray, level: float
) -> CleanAccuracy:
    """The result for the share (K, K) of n examples with each label (rows) and prediction."""
    rng, confusion = np.random.default_rng(0), clean_confusion(noisy, T)
    drawn = rng.multinomial(n, noisy.ravel(), _DRAWS).reshape(-1, *T.shape) / n
    drawn = np.linalg.solve(_draws_of(T, variance, rng).transpose(0, 2, 1), drawn)
    accuracy, recall = (found[0] for found in _accuracies(confusion[None], n))
    tails = [(1 - level) / 2, (1 + level) / 2]
    ends, recall_ends = (np.nanquantile(one, tails, axis=0) for one in _accuracies(drawn, n))
    return CleanAccuracy(
        noisy_accuracy=float(np.trace(noisy)),
        accuracy=float(accuracy),
        interval=(min(float(ends[0]), accuracy), max(float(ends[1]), accuracy)),
        recall=recall,
        recall_interval=np.stack(
            [np.fmin(recall_ends[0], recall), np.fmax(recall_ends[1], recall)]
        ),
        confusion=confusion,
        classes=names,
        level=level,
    )


def _accuracies(confusion: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(m,) accuracies and (m, K) recalls of confusions (m, K, K), between 0 and 1."""
    right = np.einsum("mii->mi", confusion)
    mass = confusion.sum(axis=2)
    recall = np.divide(right, mass, out=np.full_like(mass, np.nan), where=mass > 0.5 / n)
    return np.clip(right.sum(axis=1), 0, 1), np.clip(recall, 0, 1)


def _draws_of(T: np.ndarray, variance: Any, rng: np.random.Generator) -> np.ndarray:
    """(m, K, K) transition matrices whose entries have these variances."""
    if variance is None:
        return np.repeat(T[None], _DRAWS, axis=0)
    variance = np.asarray(variance, float)
    if variance.shape != T.shape or not (variance >= 0).all():
        raise LabelNoiseError(
            f"Expected variances >= 0 of shape {T.shape}, but their shape is {variance.shape} and "
            f"the least is {variance.min(initial=np.inf):.3g}"
        )
    # A Dirichlet row worth w counts has the variances t (1 - t) / (w + 1).
    worth = (T * (1 - T)).sum(axis=1) / np.maximum(variance.sum(axis=1), 1e-12) - 1
    shape = np.maximum(worth, 1)[:, None] * np.maximum(T, 1e-9)
    drawn = rng.standard_gamma(shape, (_DRAWS, *T.shape)) + 1e-300
    result: np.ndarray = drawn / drawn.sum(axis=2, keepdims=True)
    return result


def to_cleanlab(transition_matrix: Any) -> np.ndarray:
    """Give cleanlab's `noise_matrix`: rows are labels, columns clean classes and sum to 1."""
    return checked_matrix(transition_matrix, "transition_matrix").T.copy()


def from_cleanlab(noise_matrix: Any) -> np.ndarray:
    """Give the transition matrix (rows are clean classes) of cleanlab's `noise_matrix`."""
    return checked_matrix(np.transpose(noise_matrix), "noise_matrix, transposed,")
