"""The share of wrong labels by a random sample of verified ones, whatever the model is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from labelnoise._errors import LabelNoiseError
from labelnoise.intervals import wilson
from labelnoise.verified.answers import Answers


@dataclass(frozen=True, repr=False)
class Stratum:
    """What the model said of a stratum, and what was found."""

    size: int
    n: int
    n_wrong: int
    model: float
    """Mean chance of a wrong label, by the model."""
    low: float
    high: float
    """Interval for the share of wrong labels in the stratum."""

    @property
    def share(self) -> float:
        """Of wrong labels among the verified ones."""
        return self.n_wrong / self.n


@dataclass(frozen=True, repr=False)
class NoiseRate:
    """The share of wrong labels with an interval that assumes nothing of the model."""

    estimate: float
    low: float
    high: float
    level: float
    n: int
    """Verified labels behind it."""
    kind: str
    """How their rows were chosen: "stratified sample" or "random sample"."""

    def __repr__(self) -> str:
        return (
            f"{self.estimate:.1%} of the labels are wrong ({self.low:.1%} to {self.high:.1%}, "
            f"{self.level:.0%} interval from a {self.kind} of {self.n} verified labels; it "
            f"assumes nothing of the model)"
        )


def noise_rate(
    answers: Answers, bad: np.ndarray, wrong: np.ndarray, model_rate: float, level: float
) -> tuple[NoiseRate | None, tuple[Stratum, ...]]:
    """Estimate the rate by the sample alone, and list its strata.

    `bad` (m,) says which verified labels are wrong, and `wrong` (N,) is the model's chance of that,
    by which the strata are sorted.
    """
    H, inside = len(answers.sizes), answers.sampled
    if not inside.any():
        return None, ()
    of = answers.stratum[inside]
    n = np.bincount(of, minlength=H)
    if not n.all():
        raise LabelNoiseError(
            f"Expected an answer in each stratum of the sample, but stratum {n.argmin()} of {H} "
            f"has none: check more rows, from the top of the table"
        )
    if len(of) < 2 * H:
        raise LabelNoiseError(
            f"Expected at least two answers a stratum, but there are {len(of)} in {H} strata: "
            f"check more rows, from the top of the table"
        )
    x = np.bincount(of, bad[inside], H).astype(int)
    low, high = stratified_interval(x, n, answers.sizes, level)
    estimate = (x / n) @ answers.sizes / answers.sizes.sum()
    if x.sum() in (0, n.sum()):  # the model decides, within the interval
        estimate = np.clip(model_rate, low, high)
    kind = "random sample" if H == 1 else "stratified sample"
    rate = NoiseRate(float(estimate), float(low), float(high), level, len(of), kind)
    means = np.bincount(of, wrong[answers.place[inside]], H) / n
    lows, highs = wilson(x / n, 0, 1 / n, float(ndtri((1 + level) / 2)))
    columns = (answers.sizes, n, x, means, lows, highs)
    parts = [Stratum(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
    return rate, tuple(sorted(parts, key=lambda part: part.model))


def stratified_interval(
    n_wrong: np.ndarray, n: np.ndarray, sizes: np.ndarray, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the interval for the share of wrong labels, from counts (..., H) in strata.

    Notes
    -----
    Wilson's interval for strata: a rate R is inside if the estimate is within z standard errors of
    it, with the variance ``sum_h W_h^2 p_h (1 - p_h) / n_h`` that the most likely shares p_h of
    sum ``sum_h W_h p_h = R`` would give it, corrected for finite strata and, by
    ``n / (n - H + 1)``, for the shares being fitted. So a stratum in which none of the verified
    labels is wrong adds what it may hide. The p_h solve
    ``x_h / p_h - (n_h - x_h) / (1 - p_h) = lam W_h``; lam is found by bisection.
    """
    weight = sizes / sizes.sum()
    variance = weight**2 / n * (1 - n / sizes) * (n.sum() / (n.sum() - len(n) + 1))
    estimate = (n_wrong / n) @ weight
    z = ndtri((1 + level) / 2)

    def moved(lam: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far R is from the estimate, and whether that is z standard errors."""
        slope = lam[..., None] * weight
        b = slope + n
        root = np.sqrt(np.maximum(b * b - 4 * slope * n_wrong, 0))
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(b >= 0, 2 * n_wrong / (b + root), (b - root) / (2 * slope))
        share = np.clip(share, 0, 1)
        by = share @ weight - estimate
        return by, np.abs(by) > z * np.sqrt((share * (1 - share)) @ variance)

    ends = []
    for sign in (1.0, -1.0):
        inner, outer = np.zeros(estimate.shape), np.full(estimate.shape, sign)
        for _ in range(60):  # where the estimate is 0 or 1, nothing is far from it on one side
            if (far := moved(outer)[1]).all():
                break
            outer = np.where(far, outer, 2 * outer)
        for _ in range(40):
            middle = (inner + outer) / 2
            far = moved(middle)[1]
            inner, outer = np.where(far, inner, middle), np.where(far, middle, outer)
        ends.append(np.clip(estimate + moved(outer)[0], 0, 1))
    return ends[0], ends[1]


def expected_half_width(
    shares: np.ndarray, n: np.ndarray, sizes: np.ndarray, level: float
) -> float:
    """Half the interval's length if just these shares (H,) of n (H,) verified labels are wrong."""
    low, high = stratified_interval(shares * n, n, sizes, level)
    return float((high - low) / 2)


def rows_to_add(strata: Sequence[Stratum], half_width: float, level: float = 0.95) -> int:
    """How many more rows to check for this half-width of the interval, by what was found."""
    sizes, n = (np.array([getattr(part, name) for part in strata]) for name in ("size", "n"))
    share = np.array([part.share for part in strata])
    low, high = 0, int(sizes.sum() - n.sum())

    def reached(more: int) -> bool:
        counts = np.minimum(n + more / len(n), sizes)
        return expected_half_width(share, counts, sizes, level) <= half_width

    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle + 1, high)
    return low
