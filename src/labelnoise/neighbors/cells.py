"""Cells of rows that lie together, around centres that k-means finds."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from labelnoise._blocks import row_blocks

ROWS_OF_A_CELL = 32
"""As many rows for each cell, on average, are enough to find its centre by."""
_ROUNDS = 6


def centre_scores(near: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Scores that order centres by their distance."""
    scores: np.ndarray = near @ centres.T
    scores -= (centres * centres).sum(axis=1) / 2
    return scores


def find_centres(near: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Centres by a few rounds of k-means; one that nobody is near stays where it was."""
    centres = near[rng.permutation(len(near))[:count]]
    for _ in range(_ROUNDS):
        blocks = row_blocks(len(near), count)
        cell = np.concatenate([centre_scores(near[rows], centres).argmax(1) for rows in blocks])
        ones = np.ones(len(near), np.float32)
        members = sp.csr_array((ones, (cell, np.arange(len(near)))), shape=(count, len(near)))
        size = np.bincount(cell, minlength=count)[:, None]
        centres = np.where(size > 0, members @ near / np.maximum(size, 1), centres)
        centres = centres.astype(np.float32)
    return centres
