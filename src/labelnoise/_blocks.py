"""Rows a block at a time, so that no large array is copied whole, and threads to share them."""

from __future__ import annotations

from collections.abc import Iterator

from threadpoolctl import threadpool_info

BLOCK_BYTES = 64 * 2**20
CACHE_BYTES = 2**20  # of a block that is passed over several times


def row_blocks(n: int, width: int, size: int | None = None) -> Iterator[slice]:
    """Slices of n rows, each within `size` bytes as doubles of the given width."""
    step = max(1, (size or BLOCK_BYTES) // (8 * max(1, width)))
    return (slice(start, start + step) for start in range(0, n, step))


def thread_count() -> int:
    """As many threads as the linear algebra uses: what the user or the machine allows."""
    return max((library["num_threads"] for library in threadpool_info()), default=1)
