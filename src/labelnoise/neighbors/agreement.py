"""How often near examples carry the same label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labelnoise.neighbors.points import Neighbors

_DISTANCE_BINS = 10


@dataclass(frozen=True, eq=False)
class NeighborAgreement:
    """How often an example and its neighbours carry the same label, by how near they are."""

    by_rank: np.ndarray
    """(k,) share of the neighbours of each rank, the nearest first, with the example's label."""
    distance: np.ndarray
    """(b,) mean distance of the nearest neighbour, in as many parts of equal size."""
    by_distance: np.ndarray
    """(b,) share of the nearest neighbours with the example's label, in each part."""
    chance: float
    """Share of equal labels among any two examples."""


def neighbor_agreement(neighbors: Neighbors, labels: np.ndarray) -> NeighborAgreement:
    """Count how often labels (N,) agree with those of the neighbours, whose distances are known."""
    same = labels[neighbors.indices] == labels[:, None]
    nearest = np.asarray(neighbors.distances)[:, 0]
    parts = np.array_split(np.argsort(nearest, kind="stable"), min(_DISTANCE_BINS, len(labels)))
    counts = np.bincount(labels).astype(float)
    return NeighborAgreement(
        by_rank=same.mean(axis=0),
        distance=np.array([nearest[rows].mean() for rows in parts]),
        by_distance=np.array([same[rows, 0].mean() for rows in parts]),
        chance=float((counts * (counts - 1)).sum() / (len(labels) * (len(labels) - 1))),
    )
