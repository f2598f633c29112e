"""Rows a block at a time, so that no large array is copied whole, and threads to share them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import threadpool_info, threadpool_limits

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


class _BlasLimit:
    """The limit of BLAS to one thread, which is the whole process's.

    Two fits in threads may overlap. Were each to restore what it found, the second would restore
    the first one's limit, and BLAS would be left at one thread for ever.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.users = 0
        self.threads = 1  # before the limit
        self.limit: Any = None

    def enter(self) -> None:
        with self.lock:
            if not self.users:
                self.threads = _threads_of_libraries()
                self.limit = threadpool_limits(1, "blas")
            self.users += 1

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                self.limit.restore_original_limits()


_blas_limit = _BlasLimit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Have BLAS use one thread; the last of all that ask for it restores the number before."""
    _blas_limit.enter()
    try:
        yield
    finally:
        _blas_limit.leave()


def thread_count() -> int:
    """As many threads as the linear algebra uses: what the user or the machine allows."""
    with _blas_limit.lock:
        return _blas_limit.threads if _blas_limit.users else _threads_of_libraries()


def _threads_of_libraries() -> int:
    return max((library["num_threads"] for library in threadpool_info()), default=1)
