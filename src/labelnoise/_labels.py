"""Labels as people have them, to class numbers and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import column_or_1d

from labelnoise._errors import LabelNoiseError


def encode_labels(
    y: Any, classes: ArrayLike | None = None, unlabeled: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Class numbers (N,), -1 where unlabelled, and the classes they stand for.

    None, NaN and what `unlabeled` names are unlabelled. Whole numbers stored as floats, as
    they are when some are missing, are taken as integers.
    """
    if y is None:
        raise LabelNoiseError(
            "This estimator requires y to be passed, but the target y is None: expected one "
            "label for each example"
        )
    values = np.asarray(y)
    if values.ndim != 1 and not (values.ndim == 2 and values.shape[1] == 1):
        raise LabelNoiseError(
            f"Expected one label for each example, but y has shape {values.shape}"
        )
    values = column_or_1d(values, warn=True)
    missing = _missing(values)
    if unlabeled is not None:
        missing |= values == unlabeled
    present = _plain(values[~missing])
    if classes is None:
        try:
            names, codes = np.unique(present, return_inverse=True)
        except TypeError as error:
            raise LabelNoiseError(
                f"Expected labels of one kind, but they cannot be put in order: {error}"
            ) from error
    else:
        names = _plain(np.asarray(classes))
        if names.ndim != 1 or len(set(names.tolist())) != len(names):
            raise LabelNoiseError(
                f"Expected classes to be a list of distinct labels, but classes = {classes!r}"
            )
        number = {name: i for i, name in enumerate(names.tolist())}
        codes = np.array([number.get(value, -1) for value in present.tolist()], int)
        outside = present[codes < 0]
        if len(outside):
            raise LabelNoiseError(
                f"Expected labels among classes = {_some(names)}, but y has "
                f"{_some(np.unique(outside))} ({len(outside)} such labels)"
            )
    result = np.full(len(values), -1, np.intp)
    result[~missing] = codes
    return result, names


def _missing(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind != "O":
        return np.zeros(len(values), bool)
    return np.fromiter((_is_missing(value) for value in values), bool, len(values))


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    try:
        return bool(value != value)  # NaN
    except TypeError:
        return True  # pandas.NA is neither equal nor unequal


def _plain(values: np.ndarray) -> np.ndarray:
    """Objects as the ints or strings they are; whole floats as ints."""
    if values.dtype.kind == "O" and len(values):
        values = np.asarray(values.tolist())
        if values.dtype.kind not in "fiubUS":
            raise LabelNoiseError(
                f"Expected labels to be numbers or strings, but the first is {values[0]!r}"
            )
    if values.dtype.kind == "c":
        raise LabelNoiseError("Complex data not supported: expected labels, but y is complex")
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise LabelNoiseError("Expected finite labels, but y contains infinity")
        fractional = values[values != np.round(values)]
        if len(fractional):
            raise LabelNoiseError(
                f"Unknown label type: expected classes, but y has fractional numbers such as "
                f"{fractional[0]}"
            )
        values = values.astype(np.int64)
    return values


def _some(names: np.ndarray, most: int = 8) -> str:
    shown = ", ".join(repr(name) for name in names[:most].tolist())
    return f"[{shown}{', ...' if len(names) > most else ''}]"
