"""Labels as people have them, to class numbers and back."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import narwhals as nw
import numpy as np
from sklearn.utils import column_or_1d

from labelnoise._errors import LabelNoiseError

_LARGEST_WHOLE_FLOAT = 2.0**53


def encode_labels(
    y: Any, classes: Any = None, unlabeled: Any = None
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
    values, missing = _values(y, "y")
    present = _of_one_kind(values[~missing])
    if not is_missing(unlabeled):
        if _kind(unlabeled) is None or unlabeled in (np.inf, -np.inf):
            raise LabelNoiseError(
                f"Expected unlabeled to be one label, a finite number or a string, but unlabeled = "
                f"{unlabeled!r}"
            )
        named = np.array([value == unlabeled for value in present.tolist()], bool)
        missing[np.flatnonzero(~missing)[named]] = True
        present = present[~named]
    if classes is None:
        names, codes = np.unique(present, return_inverse=True)
    else:
        names = class_names(classes)
        number = {name: i for i, name in enumerate(names.tolist())}
        codes = np.array([number.get(value, -1) for value in present.tolist()], np.intp)
        outside = present[codes < 0]
        if len(outside):
            raise LabelNoiseError(
                f"Expected labels among classes = {_some(names)}, but y has "
                f"{_some(np.unique(outside))} ({len(outside)} such labels)"
            )
    result = np.full(len(values), -1, np.intp)
    result[~missing] = codes
    return result, names


def class_names(classes: Any) -> np.ndarray:
    """The given classes as an array of distinct labels of one kind."""
    values, missing = _values(
        list(classes) if isinstance(classes, set | frozenset | dict) else classes, "classes"
    )
    if missing.any() or len(set(values.tolist())) != len(values):
        raise LabelNoiseError(
            f"Expected classes to be a list of distinct labels, but classes = {classes!r}"
        )
    return _of_one_kind(values)


def row_names(X: Any, y: Any, n: int) -> Any:
    """What the n rows of the data are called: the index of the labels, or the features, if any."""
    for data in (y, X):
        with suppress(TypeError):  # it is no data frame
            index = nw.maybe_get_index(nw.from_native(data, allow_series=True))
            if index is not None and len(index) == n:
                return index
    return range(n)


def _values(y: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The labels (N,) as an array, and which of them are missing."""
    if isinstance(y, list | tuple):
        # Read as objects: NumPy would turn None and NaN beside strings into strings.
        try:
            values = np.array(y, dtype=object)
        except ValueError as error:
            raise LabelNoiseError(
                f"Expected a list of labels, but {name} is not: {error}"
            ) from error
    else:
        values = np.asarray(y)
    if values.ndim != 1 and values.shape[1:] != (1,):
        rule = "one label for each example" if name == "y" else "a list of labels"
        raise LabelNoiseError(f"Expected {rule}, but {name} has shape {values.shape}")
    if values.dtype.kind == "c":
        raise LabelNoiseError(f"Complex data not supported: expected labels, but {name} is complex")
    if values.dtype.kind not in "fiubUOT":
        raise LabelNoiseError(
            f"Expected labels to be numbers or strings, but the type of {name} is {values.dtype}: "
            f"convert them with astype(str)"
        )
    if values.dtype.kind in "Tf":
        values = values.astype(object if values.dtype.kind == "T" else np.float64)
    values = column_or_1d(values, warn=True)
    missing = missing_among(values)
    return values, missing | np.ma.getmaskarray(y) if np.ma.isMaskedArray(y) else missing


def missing_among(values: np.ndarray) -> np.ndarray:
    """Which (N,) of them are None, NaN, NaT or pandas.NA."""
    if values.dtype.kind == "O":
        return np.fromiter((is_missing(value) for value in values), bool, len(values))
    return values != values


def is_missing(value: Any) -> bool:
    """Whether it is None, NaN, NaT or pandas.NA."""
    if value is None:
        return True
    try:
        return bool(value != value)  # NaN, NaT
    except (TypeError, ValueError):
        return type(value).__name__ == "NAType"  # pandas.NA is neither equal nor unequal


def _of_one_kind(values: np.ndarray) -> np.ndarray:
    """Objects as the numbers or strings they are; whole floats as ints."""
    if values.dtype.kind == "O":
        kinds = {_kind(value) for value in values}
        if len(kinds) > 1 or None in kinds:
            shown = ", ".join(sorted({type(value).__name__ for value in values}))
            raise LabelNoiseError(
                f"Expected labels of one kind, all numbers or all strings, but they are: {shown}. "
                f"Convert them with str"
            )
        if kinds == {"string"}:
            _expect_text(values.tolist())
        values = np.array(values.tolist(), dtype=str if kinds == {"string"} else None)
        if values.dtype.kind == "O":
            raise LabelNoiseError("Expected labels that fit 64 bits, but y has larger numbers")
    if values.dtype.kind == "f":
        if not (np.abs(values) < _LARGEST_WHOLE_FLOAT).all():
            raise LabelNoiseError(
                f"Expected labels, but y has infinity or numbers too large to be whole: "
                f"{values[~(np.abs(values) < _LARGEST_WHOLE_FLOAT)][0]}"
            )
        fractional = values[values != np.round(values)]
        if len(fractional):
            raise LabelNoiseError(
                f"Unknown label type: expected classes, but y has fractional numbers such as "
                f"{fractional[0]}"
            )
        values = values.astype(np.int64)
    return values


def _expect_text(values: list[str]) -> None:
    """Refuse texts that NumPy or a file would change: with a NUL at the end, or not Unicode."""
    for value in values:
        if "\0" in value or any("\ud800" <= sign <= "\udfff" for sign in value):
            raise LabelNoiseError(
                f"Expected labels that are Unicode text without NUL characters, but there is "
                f"{value!r}: rename it"
            )


def _kind(value: Any) -> str | None:
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool | np.bool_):
        return "truth value"
    if isinstance(value, int | float | np.integer | np.floating):
        return "number"
    return None


def _some(names: np.ndarray, most: int = 8) -> str:
    shown = ", ".join(repr(name) for name in names[:most].tolist())
    return f"[{shown}{', ...' if len(names) > most else ''}]"
