"""Checks of arguments: each message has the rule, the value and, where there is one, the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from labelnoise._errors import LabelNoiseError

_ROW_SUM_TOLERANCE = 1e-3  # admits float16
_LARGEST_WEIGHT = 1e100  # its square is finite


def expect_one_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    """Check a setting that has a few values."""
    if not (isinstance(value, str) and value in allowed):
        raise LabelNoiseError(f"Expected {name} to be one of {allowed}, but {name} = {value!r}")


def expect_whole(name: str, value: Any, least: int) -> None:
    """Check a setting that is a number of things."""
    if not (isinstance(value, int | np.integer) and value >= least):
        raise LabelNoiseError(
            f"Expected {name} to be a whole number >= {least}, but {name} = {value!r}"
        )


def expect_between(name: str, value: Any, low: float = 0, high: float = 1) -> None:
    """Check a number that is strictly between two others, as the level of an interval."""
    if not (isinstance(value, int | float | np.number) and low < value < high):
        raise LabelNoiseError(f"Expected {name} between {low} and {high}, but {name} = {value!r}")


def expect_shrinkage(value: Any) -> None:
    """Check the strength of shrinkage: "auto" or how much the common matrix counts."""
    number = isinstance(value, int | float | np.number)
    if not (isinstance(value, str) and value == "auto") and not (
        number and 0 <= float(value) < np.inf
    ):
        raise LabelNoiseError(
            f'Expected shrinkage to be "auto" or a finite number >= 0, but shrinkage = {value!r}'
        )


def expect_two_classes(classes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Class numbers that occur, of which there must be two."""
    occurring = np.unique(labels[labels >= 0])
    if len(occurring) < 2:
        raise LabelNoiseError(
            f"Expected at least two classes among the labels, but the number of classes is "
            f"{len(occurring)}: {classes[occurring].tolist()}"
        )
    return occurring


def class_numbers(
    labels: Any, n_classes: int, n: int | None = None, *, least: int = 0, name: str = "labels"
) -> np.ndarray:
    """Class numbers as int64, from `least` (-1: some are unlabelled) to n_classes - 1.

    With `n` there must be one for each of n examples.
    """
    numbers = np.asarray(labels)
    if numbers.dtype.kind not in "iub":
        raise LabelNoiseError(
            f"Expected {name} to be class numbers (integers), but their type is {numbers.dtype}"
        )
    if n is not None and numbers.shape != (n,):
        raise LabelNoiseError(
            f"Expected {name} of shape ({n},), one for each example, but their shape is "
            f"{numbers.shape}: inconsistent numbers of samples"
        )
    if numbers.size and not least <= numbers.min() <= numbers.max() < n_classes:
        raise LabelNoiseError(
            f"Expected {name} to be class numbers from {least} to n_classes - 1 = "
            f"{n_classes - 1}, but they range from {numbers.min()} to {numbers.max()}"
        )
    return numbers.astype(np.int64)


def transition_matrix(matrix: Any, name: str, n_classes: int | None = None) -> np.ndarray:
    """A square matrix of probabilities as float64, its rows scaled to sum exactly to 1."""
    try:
        T = np.array(matrix, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise LabelNoiseError(
            f"Expected {name} to be an array of numbers, but it cannot be read as one: {error}"
        ) from error
    K = n_classes or (len(T) if T.ndim else 1)
    if T.shape != (K, K):
        raise LabelNoiseError(f"Expected {name} of shape ({K}, {K}), but its shape is {T.shape}")
    return probability_rows(T, name)


def probability_rows(rows: np.ndarray, name: str) -> np.ndarray:
    """Rows (n, K) of probabilities, scaled to sum exactly to 1."""
    sums = rows.sum(axis=1)
    wrong = np.flatnonzero(~((rows >= 0).all(axis=1) & (np.abs(sums - 1) <= _ROW_SUM_TOLERANCE)))
    if len(wrong):
        square = ": is the matrix transposed?" if rows.shape[0] == rows.shape[1] else ""
        raise LabelNoiseError(
            f"Expected the rows of {name} to be probabilities >= 0 that sum to 1, but row "
            f"{wrong[0]} is {np.round(rows[wrong[0]], 4).tolist()} ({len(wrong)} such rows)"
            f"{square}"
        )
    return rows / sums[:, None]


def checked_weights(weights: Any, n: int) -> np.ndarray:
    """Weights (n,) of examples: finite, not negative, and not all 0."""
    try:
        found = np.asarray(weights)
    except ValueError as error:
        raise LabelNoiseError(f"Expected center_weight to be numbers, but {error}") from error
    if found.dtype.kind not in "fiub":
        raise LabelNoiseError(
            f"Expected center_weight to be numbers, but their type is {found.dtype}"
        )
    found = found.astype(float)
    if found.shape != (n,):
        raise LabelNoiseError(
            f"Expected one center_weight for each example, but its shape is {found.shape} and "
            f"there are {n} examples"
        )
    if not (found.min() >= 0 and 1 / _LARGEST_WEIGHT < found.max() < _LARGEST_WEIGHT):
        raise LabelNoiseError(
            f"Expected center_weight to be >= 0 with a maximum from {1 / _LARGEST_WEIGHT:.0e} to "
            f"{_LARGEST_WEIGHT:.0e}, but the weights are from {found.min()} to {found.max()}"
        )
    return found


def from_torch(X: Any) -> Any:
    """A tensor of PyTorch, with or without a gradient, as an array."""
    X = X.detach().cpu()
    return (X.float() if "bfloat16" in str(X.dtype) else X).numpy()
