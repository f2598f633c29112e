"""Learning with T on tables and frozen features, by linear models: no network is needed.

All rests on the forward loss of a linear softmax model h, ``-log (T' h(x))[y]``. With the posterior
of the clean class, ``q[k] = h(x)[k] T[k, y] / (T' h(x))[y]``, its gradient by the logits is
``h(x) - q``, and by ``T[k, y]`` it is ``-q[k] / T[k, y]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit, logit, softmax
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_array

from labelnoise._arrays import HOST, Arrays
from labelnoise._blocks import one_blas_thread, row_blocks
from labelnoise._errors import LabelNoiseError
from labelnoise._validation import class_numbers, expect_whole, from_torch

_BLOCK_BYTES = 8 * 2**20  # of features in one matrix product, measured
MOST_TRAINED, MOST_VALUES = 200_000, 2**28  # rows, and rows times columns, to train on
_SHARES, _SHARE_ROWS = 8, (1024, 8192)  # that threads work on: so many, within these bounds
_SCORED_ROWS = 1024  # at a time


def noisy_posteriors(
    X: Any, y: Any, n_classes: int, *, n_splits: int = 3, C: float = 0.03, random_state: int = 0
) -> np.ndarray:
    """Predict P(label | x) of each example from the others, as (N, n_classes) float32.

    By multinomial logistic regression on standardised features X (N, d) and noisy class numbers,
    fitted to all but one of `n_splits` folds. The default of `C` (as in `ForwardClassifier`) is
    right for hundreds of examples, where 1 overfits, and makes no difference for many.
    """
    expect_whole("n_splits", n_splits, 2)
    X = checked_features(X)
    labels = class_numbers(y, n_classes, len(X))
    fold = np.random.default_rng(random_state).permutation(len(X)) % n_splits
    result = np.empty((len(X), n_classes), np.float32)
    models = HeldOut(X, labels, C, fold)
    for rows, weights in models.fit(np.eye(n_classes), steps=100):
        result[rows] = softmax(models.scores(weights)[rows], axis=1)
    return result


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A linear softmax model of standardised features."""

    weights: np.ndarray
    """(K, d + 1), the last column the intercepts."""
    mean: np.ndarray
    deviation: np.ndarray

    def scores(self, X: np.ndarray) -> np.ndarray:
        """(M, K) float32 whose softmax is h of new rows."""
        weights = self.weights.astype(np.float32)
        result = np.empty((len(X), len(weights)), np.float32)
        for rows in row_blocks(*X.shape):
            x = (_exact(X[rows]) - self.mean) / self.deviation
            result[rows] = x.astype(np.float32) @ weights[:, :-1].T + weights[:, -1]
        return result


class HeldOut:
    """Linear models of the clean class, each of which is trained without one fold of the examples.

    `fold` (N,) has numbers from 0 on; `order` (N,) is that in which examples are trained on, as
    rounding depends on it. X may be on disk: a model is trained on at most 200,000 rows, and a
    gigabyte. A GPU holds all of it if there is room.
    """

    def __init__(
        self,
        X: np.ndarray,
        labels: np.ndarray,
        C: float,
        fold: np.ndarray,
        order: np.ndarray | None = None,
        arrays: Arrays = HOST,
    ) -> None:
        self.X, self.labels, self.C, self.fold, self.arrays = X, labels, C, fold, arrays
        self.order = np.arange(len(X)) if order is None else order
        mean, deviation = _mean_and_deviation(X, arrays)
        # Rows in another order have the same mean but for rounding, which a search would magnify.
        self.deviation = deviation.astype(np.float32).astype(np.float64)
        self.mean = np.round(mean / self.deviation, 6) * self.deviation
        self.held = None
        if arrays.device is not None and 4 * X.size < arrays.free:
            held = arrays.empty(X.shape)
            for rows in row_blocks(*held.shape):
                held[rows] = self._rows(rows)
            self.held = held

    def fit(
        self, T: np.ndarray, every: int = 1, steps: int = 40
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each fold, which rows it has, and weights (K, d + 1) that have not seen them.

        Trained in so many steps at most, on one example in `every`, or fewer.
        """
        own = self.fold[self.order]
        for number in range(self.fold.max() + 1):
            rows = self.order[own != number]
            most = min(MOST_TRAINED, MOST_VALUES // self.X.shape[1])
            rows = rows[:: max(every, -(-len(rows) // most))]
            options = {"arrays": self.arrays, "maxiter": steps, "ftol": 1e-6}
            weights, _ = fit_softmax(self._rows(rows), self.labels[rows], T, self.C, **options)
            yield self.order[own == number], weights

    def scores(self, weights: np.ndarray) -> Any:
        """(N, K) float32 whose softmax is h of all rows, by the weights of one model."""
        arrays = self.arrays
        put, block = arrays.put(weights.astype(np.float32)), arrays.larger * _SCORED_ROWS
        result = arrays.empty((len(self.X), len(weights)))
        # One thread, and one order: BLAS rounds a product by the row's place in a block.
        with one_blas_thread():
            for start in range(0, len(self.X), block):
                rows = self.order[start : start + block]
                result[arrays.put(rows)] = self._rows(rows) @ put[:, :-1].T
        result += put[:, -1]
        return result

    def mean_model(self, weights: list[np.ndarray]) -> LinearModel:
        """The mean of several models, for rows that none of them was trained on."""
        return LinearModel(np.mean(weights, axis=0), self.mean, self.deviation)

    def _rows(self, rows: slice | np.ndarray) -> Any:
        """Standardised."""
        if self.held is not None:
            return self.held[rows]
        x = self.arrays.put(_exact(self.X[rows], copy=isinstance(rows, slice)))
        x -= self.arrays.put(self.mean)
        x /= self.arrays.put(self.deviation)
        return self.arrays.xp.asarray(x, dtype=self.arrays.xp.float32)


def _mean_and_deviation(X: np.ndarray, arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """(d,) of each column, with a deviation of 1 where all are alike but for rounding."""
    first, n = np.asarray(X[0], np.float64), len(X)
    shift, total, square = (arrays.put(values) for values in (first, 0 * first, 0 * first))
    for rows in row_blocks(*X.shape):
        x = arrays.xp.asarray(arrays.put(_exact(X[rows])), dtype=arrays.xp.float64) - shift
        total += x.sum(axis=0)
        x *= x
        square += x.sum(axis=0)
    mean = arrays.get(total) / n
    variance = arrays.get(square) / n - mean**2
    mean, rounding = first + mean, n * np.finfo(np.float64).eps
    alike = variance <= rounding * variance + (rounding * mean) ** 2
    return mean, np.sqrt(np.where(alike, 1, variance))


def _exact(X: np.ndarray, copy: bool = False) -> np.ndarray:
    """As doubles, unless in float32 already, which would leave little beside a large mean."""
    return X.astype(np.float32 if X.dtype == np.float32 else np.float64, copy=copy)


class TransitionLayer(NamedTuple):
    """A T, and the model ``softmax(X @ coef.T + intercept)`` of the clean class learnt with it."""

    transition_matrix: np.ndarray
    coef: np.ndarray
    intercept: np.ndarray


def fit_transition_layer(
    X: Any, y: Any, n_classes: int, *, volume: float = 0.0, C: float = 1.0
) -> TransitionLayer:
    """Learn T and a linear softmax model h together, from the noisy labels alone.

    Minimises ``-mean_n log (T' h(x_n))[y_n] + volume * log det T`` and a penalty of h, for which
    features X (N, d) are standardised. A strong penalty (small `C`) takes sharpness from h, and T
    makes up for it. Rows of T are normalised from a unit diagonal and sigmoids, so that none has
    its maximum off the diagonal, where at first about half of it is. Nothing is random.
    """
    X, labels, scaler = _standardised(X, y, n_classes)
    off = ~np.eye(n_classes, dtype=bool)
    size = n_classes * (X.shape[1] + 1)

    def unpack(parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        raw = np.eye(n_classes)
        raw[off] = expit(parameters[size:])
        return parameters[:size].reshape(n_classes, -1), raw

    def objective(parameters: np.ndarray, forward_loss: Callable) -> tuple[float, np.ndarray]:
        weights, raw = unpack(parameters)
        T = raw / raw.sum(axis=1, keepdims=True)
        loss, by_weights, joint = forward_loss(weights, T)
        by_log_T = -joint  # by T it would be divided by what may be 0
        if volume:
            log_det = np.linalg.slogdet(T)[1]
            if np.isneginf(log_det):
                raise LabelNoiseError(
                    f"Expected a volume that leaves T invertible, but with volume = {volume} its "
                    f"determinant goes to 0"
                )
            loss += volume * log_det
            by_log_T += volume * np.linalg.inv(T).T * T
        by_log_raw = by_log_T - T * by_log_T.sum(axis=1, keepdims=True)
        return loss, np.concatenate([by_weights.ravel(), (by_log_raw * (1 - raw))[off]])

    start = np.concatenate([np.zeros(size), np.full(off.sum(), logit(1 / n_classes))])
    # At 1e-7 T's error changes by .003 at most, and pair noise takes three times as long.
    found, _ = _minimise(objective, start, X, labels, C, maxiter=300, ftol=1e-6)
    weights, raw = unpack(found)
    coef = weights[:, :-1] / scaler.scale_
    intercept = weights[:, -1] - coef @ scaler.mean_
    return TransitionLayer(raw / raw.sum(axis=1, keepdims=True), coef, intercept)


def checked_features(X: Any, check: Callable[..., Any] = check_array) -> np.ndarray:
    """X by one of scikit-learn's checks: doubles stay doubles, all else becomes float32."""
    try:
        X = from_torch(X) if hasattr(X, "detach") else X
        with np.errstate(invalid="ignore", over="ignore"):  # the check refuses infinity
            X = check(X, accept_sparse=True, dtype=[np.float32, np.float64])
    except ValueError as error:
        raise LabelNoiseError(str(error)) from error
    if sp.issparse(X):
        raise LabelNoiseError("Expected a dense X, but it is sparse: use X.toarray()")
    return X


def _standardised(
    X: Any, labels: Any, n_classes: int
) -> tuple[np.ndarray, np.ndarray, StandardScaler]:
    X = checked_features(X)
    scaler = StandardScaler().fit(X)
    return _scaled(scaler, X), class_numbers(labels, n_classes, len(X)), scaler


def _scaled(scaler: StandardScaler, X: np.ndarray) -> np.ndarray:
    """In float32, but centred before: a large mean would leave little of the rest."""
    return np.asarray(scaler.transform(_exact(X)), np.float32)


def fit_softmax(
    X: Any, labels: np.ndarray, T: np.ndarray, C: float, **options: Any
) -> tuple[np.ndarray, int]:
    """Weights (K, d + 1) of least forward loss, the last the intercepts, and the steps taken."""
    shape = (len(T), X.shape[1] + 1)

    def objective(weights: np.ndarray, forward_loss: Callable) -> tuple[float, np.ndarray]:
        loss, gradient, _ = forward_loss(weights.reshape(shape), T, joint=False)
        return loss, gradient.ravel()

    start = np.zeros(shape[0] * shape[1])
    weights, steps = _minimise(objective, start, X, labels, C, **options)
    return weights.reshape(shape), steps


def _minimise(
    objective: Callable,
    start: np.ndarray,
    X: Any,
    labels: np.ndarray,
    C: float,
    arrays: Arrays = HOST,
    **options: Any,
) -> tuple[np.ndarray, int]:
    """Minimise ``objective(parameters, forward_loss)`` by L-BFGS, and count its steps.

    forward_loss takes weights (K, d + 1) and T. It returns the mean forward loss with its penalty,
    the gradient by the weights, and the posterior joint (K, K) of clean class and label, or, if
    that is not asked for, zeros.
    """
    if not C > 0:
        raise LabelNoiseError(f"Expected C > 0, but C = {C}")
    n, y = len(X), arrays.put(labels)
    # How many depends on n alone: sums of other parts differ in rounding, and then in the search.
    count = -(-n // (arrays.larger * int(np.clip(n // _SHARES, *_SHARE_ROWS))))
    shares = [slice(i * n // count, (i + 1) * n // count) for i in range(count)]
    # Doubles stay doubles.
    dtype = X.dtype if arrays.device is None else np.float32

    def forward_loss(
        weights: np.ndarray, T: np.ndarray, joint: bool = True
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        with np.errstate(divide="ignore"):
            model = arrays.put(weights, dtype), arrays.put(np.log(T), dtype)
        parts = shared(lambda rows: _forward_sums(X[rows], y[rows], *model, joint, arrays), shares)
        losses, gradients, joints = zip(*parts, strict=True)
        # Two classes have one difference of weights, which scikit-learn penalises: twice as much.
        penalty = (2 if len(T) == 2 else 1) / (C * n)
        gradient = np.sum(gradients, axis=0) / n
        gradient[:, :-1] += penalty * weights[:, :-1]
        loss = sum(losses) / n + penalty / 2 * (weights[:, :-1] ** 2).sum()
        return loss, gradient, np.sum(joints, axis=0) / n

    options |= {"gtol": 1e-6, "maxcor": 20}
    search: Any = {"jac": True, "method": "L-BFGS-B", "options": options}
    with arrays.sharing() as shared:
        found = minimize(objective, start, (forward_loss,), **search)
    return found.x, max(found.nit, 1)


def _forward_sums(
    X: Any, labels: Any, weights: Any, log_T: Any, with_joint: bool = True, arrays: Arrays = HOST
) -> tuple[float, np.ndarray, np.ndarray]:
    """Sums over examples of the loss, its gradient by the weights, and the posterior joint."""
    K, xp = len(log_T), arrays.xp
    loss, gradient, joint = 0.0, np.zeros(weights.shape), np.zeros((K, K))
    for rows in row_blocks(len(X), X.shape[1] + K, arrays.larger * _BLOCK_BYTES):
        x, y = X[rows], labels[rows]
        clean = weights[:, :-1] @ x.T + weights[:, -1:]
        posterior = clean + log_T[:, y]
        logs = _softmax_in_place(clean, xp) - _softmax_in_place(posterior, xp)
        loss += float(logs.sum(dtype=xp.float64))
        for k in range(K if with_joint else 0):
            joint[k] += arrays.get(xp.bincount(y, posterior[k], K))
        clean -= posterior
        gradient[:, :-1] += arrays.get(clean @ x)
        gradient[:, -1] += arrays.get(clean.sum(axis=1))
    return loss, gradient, joint


def _softmax_in_place(logits: Any, xp: Any) -> Any:
    """Turn columns into probabilities, and return the logarithm of the sum of exponentials."""
    largest = xp.amax(logits, axis=0)
    logits -= largest
    xp.exp(logits, out=logits)
    total = logits.sum(axis=0)
    logits /= total
    return largest + xp.log(total)
