"""How much memory is free, so that a file that unpacks to more is refused."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from labelnoise._errors import LabelNoiseError

_CGROUP = Path("/sys/fs/cgroup")
_CGROUP_FILES = (  # limit and use: version 2, version 1
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


def expect_room(path: str | os.PathLike[str], n_bytes: int) -> None:
    """Refuse a file that unpacks to more than the free memory, before it is unpacked."""
    if n_bytes > (free := free_memory()):
        raise LabelNoiseError(
            f"Expected data that fit into the {free / 2**30:.1f} GiB of memory that are free, but "
            f"{path} needs {n_bytes / 2**30:.1f} GiB"
        )


def _cached(group: Path) -> int:
    """Bytes of file cache of a group, which the system frees when memory is short."""
    words = (group / "memory.stat").read_text().split()
    return sum(int(words[words.index(name) + 1]) for name in ("active_file", "inactive_file"))


def free_memory() -> float:
    """Bytes that this process may still use; infinity where the system does not say."""
    found = [float("inf")]
    with suppress(OSError, ValueError, IndexError):
        line = Path("/proc/meminfo").read_text().partition("MemAvailable:")[2]
        found.append(1024 * int(line.split()[0]))
    for most, use in _CGROUP_FILES:
        with suppress(OSError, ValueError):  # the limit may be the word "max"
            free = int((_CGROUP / most).read_text()) - int((_CGROUP / use).read_text())
            found.append(free + _cached((_CGROUP / use).parent))
    with suppress(ImportError, OSError, ValueError):  # not on Windows
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            found.append(limit - pages * resource.getpagesize())
    return max(0.0, min(found))
