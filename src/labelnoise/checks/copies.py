"""Examples that occur more than once, whose labels were not given independently."""

from __future__ import annotations

import numpy as np

from labelnoise._blocks import CACHE_BYTES, row_blocks
from labelnoise.checks.around import Around
from labelnoise.checks.findings import Finding

_MANY_DUPLICATES = 0.01
# Chosen on copies of digits, tables, texts and clusters: benchmarks/results/diagnostics.md.
STEP = 0.05  # of agreement between two ranks, beyond that of other ranks and 3 standard errors
STEPS_LOOKED_AT = 9
LEAST_RANKS = 12
NEAREST_DIFFER = 0.05  # of the share of furthest neighbours that differ
FURTHEST_DIFFER = 0.15

COPIES_REMEDY = (
    "Keep one of each, or give what belongs together (frames of a video, versions of an image) in "
    "sources=."
)


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


def check_copied_labels(around: Around) -> Finding:
    """Whether the nearest neighbours have the example's label more often than distance explains.

    Two signs: agreement steps down from one rank to the next, as copies end there; or the nearest
    hardly ever differ in label while the furthest do.
    """
    if around.near.shape[1] < LEAST_RANKS:
        sentence = "Whether labels were copied with examples was not tested: few neighbours."
        return Finding("copied labels", True, None, sentence)
    by_rank = around.same.mean(axis=0)
    scale = max(by_rank[0] - around.chance, 1e-9)
    drops = -np.diff(by_rank)
    rank = int(drops[:STEPS_LOOKED_AT].argmax())
    moved = around.same[:, rank] != around.same[:, rank + 1]
    error = np.sqrt(moved.mean() / len(moved))
    step = float((drops[rank] - np.delete(drops, rank).mean() - 3 * error) / scale)
    nearest, furthest = 1 - by_rank[0], 1 - by_rank[-1]
    alike = furthest > FURTHEST_DIFFER and nearest < NEAREST_DIFFER * furthest
    measure = (
        f"neighbours of rank {rank + 1} have the example's label in {by_rank[rank]:.1%} of cases, "
        f"of rank {rank + 2} in {by_rank[rank + 1]:.1%}, of rank {len(by_rank)} in "
        f"{by_rank[-1]:.1%}"
    )
    if step <= STEP and not alike:
        sentence = f"Labels do not seem to be copied between neighbours: {measure}."
        return Finding("copied labels", True, step, sentence)
    sentence = (
        f"Labels were probably copied between near examples: {measure}. Copies are each other's "
        f"neighbours, so T comes out too close to the identity."
    )
    return Finding("copied labels", False, step, sentence, "serious", COPIES_REMEDY)


def rate_of_furthest(around: Around) -> float:
    """Noise rate at which labels agree as often as those of the furthest neighbours.

    If these share the class, and noise is even: ``a = (1 - e)^2 + e^2 / (K - 1)``, with as many
    classes K as give the agreement by chance, 1 / K.
    """
    differ = 1 - float(around.same[:, -1].mean())
    share = 1 - around.chance  # (K - 1) / K
    return share * (1 - max(1 - differ / share, 0.0) ** 0.5)


def row_keys(X: np.ndarray) -> np.ndarray:
    """A number for each row, the same for identical rows and hardly ever for others."""
    factors = np.random.default_rng(0).integers(1, 2**63, X.shape[1], dtype=np.uint64) * 2 + 1
    keys = np.empty(len(X), np.uint64)
    for rows in row_blocks(len(X), X.shape[1], CACHE_BYTES):
        block = np.ascontiguousarray(X[rows]) + 0  # -0.0 becomes 0.0
        bits = block.view(f"u{block.itemsize}").astype(np.uint64)
        keys[rows] = ((bits ^ (bits >> np.uint64(7))) * factors).sum(axis=1, dtype=np.uint64)
    return keys
