"""Two estimates side by side: before and after relabelling, two annotators, two encoders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm

from labelnoise._errors import LabelNoiseError
from labelnoise.hoc import HOC
from labelnoise.intervals import holm
from labelnoise.scores import transition_error

_LEAST_SHOWN = 0.0005  # smaller changes of T are shown as 0.0 points
_MOST_SENTENCES, _LARGEST_PRINTED = 6, 12


@dataclass(frozen=True, eq=False, repr=False)
class EstimateComparison:
    """How the second of two estimates differs from the first; print it."""

    classes: np.ndarray
    """(K,) labels in the order of the rows."""
    difference: np.ndarray
    """(K, K) T of the second, less that of the first."""
    noise_rates: tuple[float, float]
    noise_rate_p_value: float | None
    """Of "the noise rate is the same". None where no test was possible."""
    p_values: np.ndarray | None
    """(K, K) of "this entry is the same", adjusted for their number by Holm's method."""
    sentences: tuple[str, ...]
    """What changed, the largest changes first."""

    def __repr__(self) -> str:
        lines, names = list(self.sentences), [str(name) for name in self.classes]
        if len(names) <= _LARGEST_PRINTED:
            width = max(5, *map(len, names))
            lines.append("Change of T, in points (rows: true class, columns: label):")
            lines.append(" " * (width + 2) + " ".join(f"{name:>{width}}" for name in names))
            for name, row in zip(names, self.difference, strict=True):
                cells = "".join(f" {100 * change + 0.0:>+{width}.1f}" for change in row)
                lines.append(f"  {name:>{width}}{cells}")
        return "\n".join(lines)


def compare_estimates(a: HOC, b: HOC) -> EstimateComparison:
    """Say how estimate `b` differs from estimate `a`, and whether that may be chance.

    Both are of the same classes, in any order. The test needs the error bars of both, and takes
    the two data sets as independent: for two estimates from the same examples it finds fewer
    differences than there are. With ends u of a's interval and l of b's that face each other,
    b - a is compared with ``sqrt((u - a)^2 + (b - l)^2)``.
    """
    order = _order(a, b)
    T_a, T_b = a.transition_matrix_, b.transition_matrix_[np.ix_(order, order)]
    rates = a.noise_rate_, b.noise_rate_
    rate_p, p_values = None, None
    ends_a, ends_b = _intervals(a), _intervals(b)
    if ends_a is not None and ends_b is not None:
        there = ends_b.transition_matrix[:, order[:, None], order]
        p_values = holm(_p_values(T_a, ends_a.transition_matrix, T_b, there))
        rate_p = float(_p_values(rates[0], ends_a.noise_rate, rates[1], ends_b.noise_rate))
    examples = (a.class_prior_ + b.class_prior_[order])[:, None] * np.abs(T_b - T_a)
    np.fill_diagonal(examples, 0)
    largest = np.argsort(-examples, axis=None, kind="stable")[:_MOST_SENTENCES]
    change = 100 * (rates[1] - rates[0])
    sentences = [
        f"The share of wrong labels goes from {rates[0]:.1%} to {rates[1]:.1%}: "
        f"{abs(change):.1f} points {'more' if change > 0 else 'less'}{_judged(rate_p)}.",
        f"T differs by {transition_error(T_a, T_b):.3f} (0: not at all, 2: the most).",
    ]
    sentences += [
        f"True {a.classes_[i]} labelled {a.classes_[j]}: from {T_a[i, j]:.1%} to {T_b[i, j]:.1%}"
        f"{_judged(None if p_values is None else p_values[i, j])}."
        for i, j in zip(*np.unravel_index(largest, T_a.shape), strict=True)
        if i != j and abs(T_b[i, j] - T_a[i, j]) >= _LEAST_SHOWN
    ]
    if p_values is None:
        sentences.append("Whether this is chance is not known: there are no error bars to tell by.")
    return EstimateComparison(a.classes_, T_b - T_a, rates, rate_p, p_values, tuple(sentences))


def _order(a: HOC, b: HOC) -> np.ndarray:
    """Where each class of `a` is in `b`."""
    place = {name: i for i, name in enumerate(b.classes_.tolist())}
    if set(place) != set(a.classes_.tolist()):
        one = sorted(map(str, set(place) ^ set(a.classes_.tolist())))
        raise LabelNoiseError(f"Expected the same classes, but only one estimate has {one[:5]}")
    return np.array([place[name] for name in a.classes_.tolist()])


def _intervals(est: Any) -> Any:
    """The error bars, or None: a loaded estimate need not have them."""
    try:
        return est.confidence_interval(level=0.95)
    except (AttributeError, LabelNoiseError):
        return None


def _p_values(a: Any, ends_a: np.ndarray, b: Any, ends_b: np.ndarray) -> np.ndarray:
    towards_b = np.where(b > a, ends_a[1] - a, a - ends_a[0])
    towards_a = np.where(b > a, b - ends_b[0], ends_b[1] - b)
    error = np.hypot(towards_a, towards_b) / norm.isf(0.025)
    return np.asarray(2 * norm.sf(np.abs(b - a) / np.maximum(error, 1e-300)))


def _judged(p_value: float | None) -> str:
    if p_value is None:
        return ""
    chance = ", which may be chance" if p_value > 0.05 else ""
    return f" (p = {p_value:.2g}{chance})"
