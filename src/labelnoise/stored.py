"""Estimates in JSON: what is written, and whether what is read can be one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isclose
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from labelnoise.checks import Finding
from labelnoise.labels import is_missing

_ROUNDING = 1e-9  # of a number that is computed again on another machine


@dataclass(frozen=True)
class Stored:
    """What a fitted array must be to be read from a file."""

    axes: str
    """A letter for each axis. Axes of one letter, in all arrays of an estimate, are as long."""
    holds: str = "shares"
    """"shares": the last axis sums to 1; "numbers"; "names"; or the letter of the axis in which
    its whole numbers are places, with -1 for none."""
    optional: bool = False
    """Whether None may stand in its place."""

    def read(self, values: Any) -> Any:
        """Give the array that was written; `axes` and places are checked with the others."""
        if values is None and self.optional:
            return None
        if self.holds == "names":
            array = np.array(values)
            right = array.dtype.kind in "fiubU" and len({*array.tolist()}) == array.size
            right &= "\0" not in "".join(map(str, values)).encode().decode()  # and is Unicode
        elif self.holds in ("shares", "numbers"):
            array = np.array(values, float)
            right = bool(np.isfinite(array).all())
            if self.holds == "shares":
                right &= array.min() >= 0 and np.allclose(array.sum(axis=-1), 1)
        else:
            array = np.array(values)
            right = array.dtype.kind == "i" and array.min() >= -1
        if not right or array.ndim != len(self.axes):
            raise ValueError(f"{self.holds} of {len(self.axes)} axes were expected")
        return array if self.axes else float(array)


def read_arrays(
    content: Mapping[str, Any], stored: Mapping[str, Stored], **length: int
) -> dict[str, Any]:
    """Give all arrays that are stored, whose sizes and places must fit to each other.

    `length` are those of axes that are known before. Whatever does not fit is a ValueError.
    """
    arrays = {}
    for name, one in stored.items():
        array = arrays[name] = one.read(content[name])
        for axis, size in zip(one.axes, np.shape(array), strict=False):
            if length.setdefault(axis, size) != size:
                raise ValueError(f"the size of {name} does not fit")
    for name, one in stored.items():
        if one.holds in length and arrays[name].max(initial=-1) >= length[one.holds]:
            raise ValueError(f"{name} has numbers that are too large")
    return arrays


def plain(value: Any) -> Any:
    """NumPy's arrays and numbers as JSON holds them; NaN, which stands for "none", as null."""
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    return None if not isinstance(value, list) and is_missing(value) else value


def finite(text: str) -> float:
    """Read a number of JSON, which allows larger ones than there are."""
    number = float(text)
    if not np.isfinite(number):
        raise ValueError(f"it has the number {text}")
    return number


def read_finding(content: dict[str, Any]) -> Finding:
    """A finding whose fields have the types that its class declares."""
    finding = Finding(**content)
    for name, hint in get_type_hints(Finding).items():
        value, kinds = getattr(finding, name), get_args(hint) or (hint,)
        if get_origin(hint) is Literal:
            right = value in kinds
        else:
            right = isinstance(value, (*kinds, int) if float in kinds else kinds)
        if not right:
            raise ValueError(f"the {name} of a finding is {value!r}")
    return finding


def same(a: Any, b: Any) -> bool:
    """Whether JSON says the same: all that is in `a`, with numbers equal but for rounding."""
    if isinstance(a, dict) and isinstance(b, dict):
        return all(name in b and same(value, b[name]) for name, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) or isinstance(b, float):
        numbers = isinstance(a, int | float) and isinstance(b, int | float)
        return numbers and isclose(a, b, abs_tol=_ROUNDING)
    return type(a) is type(b) and bool(a == b)


def expect_contained(ends: dict[str, Any], est: Any) -> None:
    """Refuse intervals that do not contain their estimate."""
    for name in ("transition_matrix", "class_prior", "noise_rate"):
        low, high = np.array(ends[name], float)
        value = np.asarray(getattr(est, f"{name}_"))
        if not ((low <= value + _ROUNDING) & (value <= high + _ROUNDING)).all():
            raise ValueError(f"an interval does not contain its estimate, the {name}")
