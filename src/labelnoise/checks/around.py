"""Labels of examples and of their neighbours, which several checks read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import log

import numpy as np

WALKERS = 6  # from each example, over its furthest neighbours


@dataclass(frozen=True, eq=False)
class Around:
    """Labelled examples, and the labelled neighbours of each, the nearest first."""

    labels: np.ndarray
    """(N,) class numbers."""
    near: np.ndarray
    """(N, k) row numbers."""

    @classmethod
    def of(cls, labels: np.ndarray, near: np.ndarray) -> Around:
        """The labelled among the examples (-1 is unlabelled): as many ranks as are complete."""
        use = np.flatnonzero(labels >= 0)
        number = np.full(len(labels), -1)
        number[use] = np.arange(len(use))
        found = number[near[use]]
        return cls(labels[use], found[:, : int(np.cumprod((found >= 0).all(axis=0)).sum())])

    @cached_property
    def same(self) -> np.ndarray:
        """(N, k) whether the neighbour of a rank has the example's label."""
        return self.labels[self.near] == self.labels[:, None]

    @cached_property
    def shares(self) -> np.ndarray:
        """(K,) share of each label."""
        return np.bincount(self.labels) / len(self.labels)

    @property
    def chance(self) -> float:
        """How often two labels are equal that are drawn at random."""
        return float(self.shares @ self.shares)

    @cached_property
    def voted(self) -> float:
        """Share of labels that most of the neighbours have."""
        n, K = len(self.labels), len(self.shares)
        votes = np.zeros((n, K), np.int32)
        for column in self.near.T:
            votes[np.arange(n), self.labels[column]] += 1
        return float((votes.argmax(axis=1) == self.labels).mean())

    def far(self) -> np.ndarray:
        """(N,) share of equal labels at the end of walks over the furthest neighbours.

        As many steps as would reach all examples if each neighbour were a new one.
        """
        n, k = self.near.shape
        found = np.zeros(n)
        for column in range(k - WALKERS, k):
            at = self.near[:, column]
            for _ in range(round(log(n) / log(k)) - 1):
                at = self.near[at, column]
            found += self.labels[at] == self.labels
        return found / WALKERS
