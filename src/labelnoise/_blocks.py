"""Rows a block at a time, so that no large array is copied whole, and threads to share them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from threadpoolctl import threadpool_info

from labelnoise.io.memory import free_memory

BLOCK_BYTES = 64 * 2**20  # at most
CACHE_BYTES = 2**20  # of a block that is passed over several times


def block_bytes() -> int:
    """Bytes of a block: less than usual where memory is short."""
    return int(min(BLOCK_BYTES, max(CACHE_BYTES, _free_at_first() / 32)))


@cache
def _free_at_first() -> float:
    """Free memory when it was first asked for: to ask takes half a millisecond."""
    return free_memory()


def row_blocks(n: int, width: int, size: int | None = None) -> Iterator[slice]:
    """Slices of n rows, each within `size` bytes as doubles of the given width."""
    step = max(1, (size or block_bytes()) // (8 * max(1, width)))
    return (slice(start, start + step) for start in range(0, n, step))


def thread_count() -> int:
    """As many threads as the linear algebra uses: what the user or the machine allows."""
    return max((library["num_threads"] for library in threadpool_info()), default=1)
