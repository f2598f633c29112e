"""Files appear under their name only when they are complete."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from labelnoise._errors import LabelNoiseError

_CGROUP = Path("/sys/fs/cgroup")
_CGROUP_FILES = (  # limit and use: version 2, version 1
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


@contextmanager
def write_then_rename(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Give a file to write to, and put it under its name when all went well.

    Whatever goes wrong, an older file of that name stays as it was and nothing else is left.
    """
    path = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise LabelNoiseError(
            f"Expected a folder that can be written to, but {path} cannot be written: "
            f"{error.strerror}"
        ) from error
    try:
        # mkstemp makes the file private; give it the rights that open() would have.
        os.umask(mask := os.umask(0))
        os.chmod(name, 0o666 & ~mask)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except OSError as error:
        raise LabelNoiseError(
            f"Expected to write {path}, but it failed: {error.strerror or error}"
        ) from error
    finally:
        Path(name).unlink(missing_ok=True)


def expect_room(path: str | os.PathLike[str], n_bytes: int) -> None:
    """Meet a file that unpacks to more than memory holds, before it is unpacked."""
    if n_bytes > (free := free_memory()):
        raise LabelNoiseError(
            f"Expected data that fit into the {free / 2**30:.1f} GiB of memory that are free, but "
            f"{path} needs {n_bytes / 2**30:.1f} GiB"
        )


def _cached(group: Path) -> int:
    """Bytes of files that a group keeps in memory, and gives up when others need it."""
    words = (group / "memory.stat").read_text().split()
    return sum(int(words[words.index(name) + 1]) for name in ("active_file", "inactive_file"))


def free_memory() -> float:
    """Bytes that this process may still use; infinity where the system does not tell."""
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
