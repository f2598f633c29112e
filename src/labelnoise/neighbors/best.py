"""The best scores of each row so far."""

from __future__ import annotations

import numpy as np

_TIE_BITS = 20
_SHUFFLE = 0x9E3779B1  # any odd number without a pattern


def reached(scores: np.ndarray, count: int) -> np.ndarray:
    """What the `count` best scores of each row (n, m) are above; -inf if there are fewer."""
    place = scores.shape[1] - count
    if place < 0:
        return np.full(len(scores), -np.inf, np.float32)
    least: np.ndarray = np.partition(scores, place, axis=1)[:, place]
    return np.nextafter(least, np.float32(-np.inf))


class Best:
    """The `count` best scores of each of at most 4096 rows, and their columns.

    What comes in waits until there is enough of it to be worth a merge.
    """

    def __init__(self, n_rows: int, count: int, worst: np.ndarray | None = None) -> None:
        self.score = np.full((n_rows, count), -np.inf, np.float32)
        self.index = np.full((n_rows, count), -1, np.int32)
        self.worst = np.full(n_rows, -np.inf, np.float32) if worst is None else worst
        self.waiting: list[tuple[np.ndarray, ...]] = []
        self.n_waiting = 0

    def scan(self, scores: np.ndarray, start: int, by: int = 0) -> None:
        """Keep what beats the worst of its row (by = 0) or column (by = 1), which is ours.

        Numbers of the others begin at `start`.
        """
        beats = np.flatnonzero(scores > (self.worst if by else self.worst[:, None]))
        found = np.divmod(beats, scores.shape[1])
        self.add(found[by], found[1 - by] + start, scores[found])

    def add(self, at: np.ndarray, column: np.ndarray, score: np.ndarray) -> None:
        """Take in scores, each with its row and its column."""
        better = score > self.worst[at]
        self.waiting.append((at[better], column[better], score[better]))
        self.n_waiting += len(self.waiting[-1][0])
        if self.n_waiting >= self.score.size:
            self.merge()

    def merge(self) -> None:
        """Merge what waits."""
        if not self.n_waiting:
            return
        n_rows, count = self.score.shape
        held = np.repeat(np.arange(n_rows), count), self.index.ravel(), self.score.ravel()
        at, column, score = (np.concatenate(p) for p in zip(held, *self.waiting, strict=True))
        self.waiting, self.n_waiting = [], 0
        # Sorted by row, the best first, and ties in an order of the row's own, so that copies do
        # not all have the same few neighbours. One whole number sorts faster than three.
        bits = score.view(np.uint32)
        falling = np.where(bits >> 31, bits, ~bits & 0x7FFFFFFF).astype(np.uint64)
        ties = ((column - at) * _SHUFFLE & (2**_TIE_BITS - 1)).astype(np.uint64)
        key = at.astype(np.uint64) << (32 + _TIE_BITS) | falling << _TIE_BITS | ties
        order = np.argsort(key)
        first = np.searchsorted(at[order], np.arange(n_rows))
        top = order[first[:, None] + np.arange(count)]
        self.score, self.index = score[top], column[top]
        self.worst = np.maximum(self.worst, self.score[:, -1])
