"""Which rows to check: a stratified random sample by the predicted chance of a wrong label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.verified.answers import Design, read_design
from labelnoise.verified.rate import expected_half_width

# More rows a stratum and fewer strata waste the model, and the reverse makes intervals too short:
# benchmarks/results/verified.md.
ROWS_PER_STRATUM = 10
MOST_STRATA = 15
DOUBT = 0.05  # added to f (1 - f): without it a model that is sure and wrong is found out late
LEAST_ROWS = 10


@dataclass(frozen=True, repr=False, eq=False)
class Sample:
    """Rows to check, in random order: whoever stops early has still checked a random sample.

    `chance` is the chance of selection, those of earlier tables included, and `stratum_size` the
    number of labels in the stratum. Strata are numbered at random and `suggested_label` is left
    out of the table by default, so that the model's opinion does not lead whoever checks.
    """

    row: np.ndarray
    stratum: np.ndarray
    stratum_size: np.ndarray
    chance: np.ndarray
    given_label: np.ndarray
    suggested_label: np.ndarray
    half_width: float
    """Of the noise rate's 95% interval, all tables together, if the model is right."""

    def __len__(self) -> int:
        return len(self.row)

    def columns(self, suggestions: bool = False) -> dict[str, np.ndarray]:
        """The table by columns, with an empty `true_label` to fill in."""
        names = ("row", "stratum", "stratum_size", "chance", "given_label")
        table = {name: getattr(self, name) for name in names}
        if suggestions:
            table["suggested_label"] = self.suggested_label
        return table | {"true_label": np.full(len(self), "", object)}

    def to_frame(self, suggestions: bool = False) -> Any:
        """The table as a pandas data frame."""
        import pandas as pd  # type: ignore[import-untyped, unused-ignore]

        return pd.DataFrame(self.columns(suggestions))

    def __repr__(self) -> str:
        strata = len(np.unique(self.stratum))
        return (
            f"{len(self)} rows to check, in {strata} strata. They give the noise rate to within "
            f"about {100 * self.half_width:.1f} points (95%) if the model is right, and less "
            f"exactly if it is not. Fill in true_label."
        )


def draw_sample(
    posterior: np.ndarray,
    labels: np.ndarray,
    n: int,
    *,
    rows: np.ndarray | None = None,
    classes: np.ndarray | None = None,
    after: Any = None,
    random_state: int = 0,
) -> Sample:
    """Choose n rows to check.

    Parameters
    ----------
    posterior, labels : arrays of shape (N, K) and (N,)
        P(clean class | features, neighbours, own label), and class numbers, of labelled examples.
    n : int
    rows : int array of shape (N,), optional
        Row numbers in the user's data, in increasing order. Default: 0 to N - 1.
    classes : array of shape (K,), optional
        What the class numbers stand for.
    after : table or list of tables, optional
        Earlier samples of the same estimate, filled in or not: their rows are not chosen again.
    random_state : int, default=0

    Notes
    -----
    Examples are sorted by f, the chance that the label is wrong, and cut into strata of equal sums
    of ``sqrt(f (1 - f) + DOUBT)``. Equally many rows of each are then Neyman's allocation.
    """
    N = len(labels)
    rows = np.arange(N) if rows is None else rows
    names = np.arange(posterior.shape[1]) if classes is None else classes
    wrong = chance_wrong(posterior, labels)
    before = None
    if after is not None and len((found := read_design(after, rows)).place):
        before = found
    listed = np.empty(0, np.intp) if before is None else before.place
    _expect_rows(n, N - len(listed), LEAST_ROWS if before is None else 1)
    n_strata = stratum_count(n) if before is None else len(before.sizes)
    stratum = strata(wrong, n_strata)
    sizes = np.bincount(stratum, minlength=n_strata)
    if before is not None:
        _expect_same_strata(stratum[listed], sizes, before)
        stratum[listed], sizes = before.stratum, before.sizes
    room = np.bincount(stratum, minlength=n_strata)
    already = np.bincount(stratum[listed], minlength=n_strata)
    total = allocation(room, n + len(listed), already)

    place = _drawn(stratum, listed, total - already, np.random.default_rng(random_state))
    of = stratum[place]
    return Sample(
        rows[place],
        of,
        sizes[of],
        np.minimum(total / sizes, 1)[of],
        names[labels[place]],
        names[posterior[place].argmax(axis=1)],
        _half_width(wrong, stratum, total, 0.95),
    )


def _drawn(
    stratum: np.ndarray, listed: np.ndarray, counts: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Examples that are not listed, so many of each stratum, in an order that mixes the strata."""
    free = np.ones(len(stratum), bool)
    free[listed] = False
    chosen, order = [], []
    for h, count in enumerate(counts):
        chosen.append(rng.permutation(np.flatnonzero(free & (stratum == h)))[:count])
        order.append((np.arange(count) + rng.random(count)) / max(count, 1))
    return np.concatenate(chosen)[np.argsort(np.concatenate(order), kind="stable")]


def sample_size(
    posterior: np.ndarray, labels: np.ndarray, half_width: float = 0.02, level: float = 0.95
) -> int:
    """How many rows to check for this half-width of the noise rate's interval.

    It holds if the model is right. `Verification.rows_to_add` plans by what was found.
    """
    if not 0 < half_width < 1:
        raise LabelNoiseError(f"Expected 0 < half_width < 1, but half_width = {half_width}")
    wrong, N = chance_wrong(posterior, labels), len(labels)

    def reached(n: int) -> bool:
        stratum = strata(wrong, stratum_count(n))
        counts = allocation(np.bincount(stratum), n)
        return _half_width(wrong, stratum, counts, level) <= half_width

    low, high = min(LEAST_ROWS, N) - 1, N
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def chance_wrong(posterior: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(N,) the model's chance that each label is wrong."""
    return np.clip(1 - posterior[np.arange(len(labels)), labels], 0, 1)


def stratum_count(n: int) -> int:
    """How many strata a sample of n rows has."""
    return int(np.clip(n // ROWS_PER_STRATUM, 1, MOST_STRATA))


def strata(wrong: np.ndarray, n_strata: int) -> np.ndarray:
    """(N,) stratum of each example; the numbers are shuffled, so that they tell no order."""
    order = np.argsort(wrong, kind="stable")
    doubt = np.sqrt(wrong * (1 - wrong) + DOUBT)[order]
    middle = doubt.cumsum() - doubt / 2
    number = np.random.default_rng(n_strata).permutation(n_strata)
    stratum = np.empty(len(wrong), np.intp)
    stratum[order] = number[(middle / doubt.sum() * n_strata).astype(int)]
    return stratum


def allocation(sizes: np.ndarray, n: int, least: Any = 0) -> np.ndarray:
    """(H,) rows of each stratum: as equal as `sizes` and `least` allow, with the sum n."""
    count = np.zeros(len(sizes), np.intp) + least
    while (rest := n - count.sum()) > 0:
        open_ = np.flatnonzero(count < sizes)
        lowest = open_[np.argsort(count[open_], kind="stable")]
        level = count[lowest[0]]
        lowest = lowest[count[lowest] == level][:rest]
        others = count[open_][count[open_] > level]
        step = max(1, min(int(others.min()) - level if len(others) else n, rest // len(lowest)))
        count[lowest] = np.minimum(level + step, sizes[lowest])
    return count


def _half_width(wrong: np.ndarray, stratum: np.ndarray, counts: np.ndarray, level: float) -> float:
    sizes = np.bincount(stratum, minlength=len(counts))
    share = np.bincount(stratum, wrong, len(counts)) / np.maximum(sizes, 1)
    return expected_half_width(share, counts, sizes, level)


def _expect_rows(n: Any, free: int, least: int) -> None:
    if not (isinstance(n, int | np.integer) and least <= n <= free):
        raise LabelNoiseError(
            f"Expected n to be a whole number from {least} to the {free} labels that are not in a "
            f"table yet, but n = {n!r}"
        )


def _expect_same_strata(now: np.ndarray, sizes: np.ndarray, before: Design) -> None:
    """Refuse to continue a table of another estimate; rounding may move a row at a boundary."""
    moved = int((now != before.stratum).sum())
    if 10 * moved > len(now) or 100 * np.abs(sizes - before.sizes).sum() > sizes.sum():
        raise LabelNoiseError(
            f"Expected a table that was drawn from this estimate, but {moved} of its {len(now)} "
            f"rows are in other strata now: draw further rows from the estimate that gave the "
            f"first ones"
        )
