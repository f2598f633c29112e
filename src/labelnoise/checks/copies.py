"""Examples that occur more than once, whose labels were not given independently."""

from __future__ import annotations

import numpy as np

from labelnoise._blocks import CACHE_BYTES, row_blocks
from labelnoise.checks.findings import Finding

_MANY_DUPLICATES = 0.01


def check_duplicates(X: np.ndarray | None, labels: np.ndarray) -> Finding:
    """Whether examples occur more than once, which biases T when their labels are copies too."""
    if X is None:
        return Finding(
            "duplicates",
            True,
            None,
            "Duplicates were not looked for, as there are neighbours and no features.",
        )
    _, example, copies = np.unique(row_keys(X), return_inverse=True, return_counts=True)
    copied = copies[example] > 1
    share = float(copied.mean())
    if not copied.any():
        return Finding("duplicates", True, 0.0, "No example occurs twice.")
    labelled = example * (int(labels.max()) + 2) + labels
    _, which, alike = np.unique(labelled, return_inverse=True, return_counts=True)
    agree = float((alike[which] > 1)[copied].mean())
    return Finding(
        "duplicates",
        share <= _MANY_DUPLICATES,
        share,
        f"{copied.sum()} examples ({share:.1%}) are exact duplicates of another, and {agree:.0%} "
        f"of them carry the same label as a copy. Copies are each other's neighbours: if their "
        f"labels were copied too, T comes out too close to the identity.",
        remedy="Keep one of each unless their labels were given independently."
        if share > _MANY_DUPLICATES
        else "",
    )


def row_keys(X: np.ndarray) -> np.ndarray:
    """A number for each row, the same for identical rows and hardly ever for others."""
    factors = np.random.default_rng(0).integers(1, 2**63, X.shape[1], dtype=np.uint64) * 2 + 1
    keys = np.empty(len(X), np.uint64)
    for rows in row_blocks(len(X), X.shape[1], CACHE_BYTES):
        block = np.ascontiguousarray(X[rows]) + 0  # -0.0 becomes 0.0
        bits = block.view(f"u{block.itemsize}").astype(np.uint64)
        keys[rows] = ((bits ^ (bits >> np.uint64(7))) * factors).sum(axis=1, dtype=np.uint64)
    return keys
