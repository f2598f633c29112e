"""Upper bounds of scores by some of the principal components.

With rows split into their first components and the rest, ``x.y <= x1.y1 + |x2| |y2|``. The norm
of the rest is one more column of the first part, so a bound is one shorter product. The few pairs
whose bound is good enough get their score.
"""

from __future__ import annotations

import numpy as np

from labelnoise._blocks import row_blocks
from labelnoise.neighbors.points import Points, shaped

_PARTS = 8  # of the columns; so many of them may be bounded by
_SAMPLE = 2048  # rows that show the components, and what bounds rule out
_ROWS_PER_COLUMN = 16  # at least, for the components to be worth their time
_ALONE = 13  # times as long as in a tile takes a column of a pair that is looked at alone
_GATHERED = 1024  # pairs at a time


class Bounds:
    """Rows by their principal components, the first `width` of which bound the scores."""

    def __init__(self, points: Points, axes: np.ndarray, width: int) -> None:
        n, d = points.X.shape
        self.cosine = points.cosine
        self.first = np.empty((n, width + (1 if self.cosine else 3)), np.float32)
        self.rest = np.empty((n, d - width), np.float32)
        for rows in row_blocks(n, d):
            turned = points.rounded(rows) @ axes
            self.rest[rows] = turned[:, width:]
            self.first[rows, :width] = turned[:, :width]
            self.first[rows, width] = np.linalg.norm(turned[:, width:], axis=1)
        self.norm = self.first[:, width]
        if not self.cosine:
            self.first[:, -2], self.first[:, -1] = -points.half_square[:, 0], 1

    def scores(self, rows: slice, columns: slice, out: np.ndarray) -> np.ndarray:
        """Upper bounds of the scores between two blocks of rows."""
        right = self.first[columns]
        if not self.cosine:
            right = right[:, [*range(right.shape[1] - 2), -1, -2]]
        left = self.first[rows]
        return np.matmul(left, right.T, out=shaped(out, len(left), len(right)))

    def room(self) -> np.ndarray:
        """Room for `make_exact`."""
        return np.empty((2, _GATHERED, self.rest.shape[1]), np.float32)

    def make_exact(
        self, bound: np.ndarray, row: np.ndarray, column: np.ndarray, room: np.ndarray
    ) -> None:
        """Turn bounds of some pairs into their scores."""
        bound -= self.norm[row] * self.norm[column]
        for start in range(0, len(row), _GATHERED):
            some = slice(start, start + _GATHERED)
            left, right = room[:, : len(row[some])]
            np.take(self.rest, row[some], axis=0, out=left, mode="clip")
            np.take(self.rest, column[some], axis=0, out=right, mode="clip")
            bound[some] += np.einsum("nd,nd->n", left, right)


def bounds_that_pay(points: Points, reached: np.ndarray) -> Bounds | None:
    """Bounds by as many components as cost least in a sample; None if scores cost less.

    `reached` (n,) is what a score must be above to matter to a row.
    """
    n, d = points.X.shape
    if points.near is None or n < max(_SAMPLE, _ROWS_PER_COLUMN * d):
        return None
    some = np.random.default_rng(0).permutation(n)[:_SAMPLE]
    judged = some[: _SAMPLE // _PARTS]
    exact = points.rounded(some).astype(float)
    axes = np.linalg.eigh(exact.T @ exact)[1][:, ::-1].astype(np.float32)
    turned = points.rounded(some) @ axes
    matters = np.minimum(reached[judged, None], reached[some])
    if not points.cosine:
        matters += points.half_square[judged] + points.half_square[some].T
    cost = {d: float(d)}
    for width in {d * part // _PARTS for part in range(1, _PARTS)} - {0}:
        norm = np.linalg.norm(turned[:, width:], axis=1)
        bound = turned[: len(judged), :width] @ turned[:, :width].T
        bound += norm[: len(judged), None] * norm
        cost[width] = width + float((bound > matters).mean()) * _ALONE * d
    width = min(cost, key=cost.__getitem__)
    return None if width == d else Bounds(points, axes, width)
