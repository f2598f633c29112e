"""Rows prepared for comparison, and what a comparison finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from labelnoise._blocks import CACHE_BYTES, row_blocks
from labelnoise._errors import LabelNoiseError
from labelnoise.io.memory import free_memory

SPARE = 2
"""Candidates kept beyond k, so that float64 can correct the order of float32."""
_FLOAT32_ERROR = 2e-6  # of a score between rows of norm 1 and 500 columns, with room to spare
_ROUNDING = 1e-3  # relative error of a gap that counts as rounding
_LARGEST_COPY = 2 * 2**30  # bytes of features in float32; more are read, and scaled, when needed

Progress = Callable[[int, int], None]


class Neighbors(NamedTuple):
    """The nearest neighbours of each example, nearest first."""

    indices: np.ndarray
    """(N, k) row numbers; an example is never its own neighbour."""
    distances: np.ndarray | None
    """(N, k) distances, ``1 - cosine`` or Euclidean; None where they are not known."""


class Points:
    """Rows prepared for comparison: unit rows for cosine, else centred and of norm at most 1.

    A *gap* is the squared distance of two such rows. A *score* is what a matrix product gives
    and orders like it: the cosine, or ``-gap / 2``.
    """

    def __init__(self, X: np.ndarray, metric: str, *, copy: bool = True) -> None:
        self.X = X
        self.cosine = metric == "cosine"
        self.shift = np.zeros(X.shape[1])
        blocks = list(row_blocks(len(X), X.shape[1], CACHE_BYTES))
        if self.cosine:
            norm = np.concatenate([_norm(X[rows]) for rows in blocks])
        else:
            # Distances do not see a common shift, but rounding does. The median of some rows is
            # in the middle of the data whatever outliers there are.
            some = X[:: max(1, len(X) // 1000)]
            self.shift = np.median(some.astype(np.float64), axis=0)
            norm = np.full(len(X), np.max([_norm(X[rows] - self.shift).max() for rows in blocks]))
        if not np.isfinite(norm).all():
            raise LabelNoiseError("Expected finite features, but X contains NaN or infinity")
        self.zero = norm == 0
        self.scale = np.where(self.zero, 1.0, norm)[:, None]
        self.half_square = np.zeros((len(X), 1), np.float32)
        copied = copy and 4 * X.size <= min(_LARGEST_COPY, free_memory() / 4)
        self.near = np.empty(X.shape, np.float32) if copied else None
        if self.near is None and self.cosine:
            return
        for rows in blocks:
            near = self.exact(rows).astype(np.float32)
            if self.near is not None:
                self.near[rows] = near
            if not self.cosine:
                self.half_square[rows, 0] = np.square(near, dtype=np.float64).sum(axis=1) / 2

    def exact(self, rows: slice | np.ndarray) -> np.ndarray:
        """The rows in float64."""
        return (self.X[rows] - self.shift) / self.scale[rows]

    def rounded(self, rows: slice | np.ndarray) -> np.ndarray:
        """The rows in float32."""
        return self.exact(rows).astype(np.float32) if self.near is None else self.near[rows]

    def scores(
        self, rows: slice | np.ndarray, columns: slice | np.ndarray, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Scores between two blocks of rows, in float32, written into `out` (flat) if given."""
        a, b = self.rounded(rows), self.rounded(columns)
        tile = np.matmul(a, b.T, out=None if out is None else shaped(out, len(a), len(b)))
        if not self.cosine:
            tile -= self.half_square[rows]
            tile -= self.half_square[columns].T
        return tile

    def gap(self, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Squared distance of each row to its listed others, in float64.

        Computed pair by pair: it does not depend on what else is in the block.
        """
        result = np.empty(others.shape)
        for block in row_blocks(len(rows), others.shape[1] * self.X.shape[1], CACHE_BYTES):
            difference = self.exact(rows[block])[:, None] - self.exact(others[block])
            result[block] = np.einsum("nkd,nkd->nk", difference, difference)
        if self.cosine:
            result[self.zero[rows][:, None] | self.zero[others]] = 2.0
        return result

    def rank(
        self, rows: np.ndarray, candidates: np.ndarray, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k nearest candidates of each row, and their gaps; -1 stands for none."""
        gap = self.gap(rows, candidates)
        gap[candidates < 0] = np.inf
        order = np.argsort(gap, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(candidates, order, 1), np.take_along_axis(gap, order, 1)

    def unsettled(self, gap: np.ndarray, worst: np.ndarray) -> np.ndarray:
        """Which rows float32 may have misled, by the gap of the last neighbour of each.

        Something that was left out, with a score of at most `worst`, may be nearer.
        """
        return self.uncertain(gap) & (self.score(gap) <= worst + self.float32_error())

    def uncertain(self, gap: np.ndarray) -> np.ndarray:
        """Which gaps are so small that float32 misjudges them; nothing is nearer than a copy."""
        copy = 4 * np.finfo(float).eps ** 2 if self.cosine else 0.0
        return (gap > copy) & (_ROUNDING * gap < self.float32_error())

    def float32_error(self) -> float:
        """How far a float32 score may be off."""
        return _FLOAT32_ERROR * max(1.0, (self.X.shape[1] / 500) ** 0.5)

    def score(self, gap: np.ndarray) -> np.ndarray:
        """The score of a gap."""
        return 1 - gap / 2 if self.cosine else -gap / 2

    def distance(self, gap: np.ndarray) -> np.ndarray:
        """The distance, in the units of the data, of a gap."""
        return gap / 2 if self.cosine else np.sqrt(gap) * self.scale[0, 0]


def shaped(room: np.ndarray, n: int, m: int) -> np.ndarray:
    """The start of a flat array as a matrix."""
    return room[: n * m].reshape(n, m)


def _norm(rows: np.ndarray) -> np.ndarray:
    """Norms of rows, also of values whose squares a double cannot hold."""
    rows = rows.astype(np.float64)
    largest = np.abs(rows).max(axis=1)
    largest[largest == 0] = 1
    return largest * np.linalg.norm(rows / largest[:, None], axis=1)
