"""Rows a block at a time, so that no large array is copied whole."""

from __future__ import annotations

from collections.abc import Iterator

BLOCK_BYTES = 64 * 2**20
CACHE_BYTES = 2**20  # of a block that is passed over several times


def row_blocks(n: int, width: int, size: int | None = None) -> Iterator[slice]:
    """Slices of n rows, each within `size` bytes as doubles of the given width."""
    step = max(1, (size or BLOCK_BYTES) // (8 * max(1, width)))
    return (slice(start, start + step) for start in range(0, n, step))
