"""Files appear under their name only when they are complete."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from labelnoise._errors import LabelNoiseError


@contextmanager
def write_then_rename(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Give a file to write to, and put it under its name when all went well.

    If anything fails, an older file of that name stays unchanged and nothing else is left. A
    symbolic link stays a link, and the file that it names is replaced.
    """
    target = Path(os.path.realpath(path))
    expect_regular_file(target)
    try:
        handle, name = tempfile.mkstemp(
            prefix=f".{target.name}.", suffix=".part", dir=target.parent
        )
    except OSError as error:
        raise LabelNoiseError(
            f"Expected a folder that can be written to, but {path} cannot be written: "
            f"{error.strerror}"
        ) from error
    try:
        # mkstemp makes the file private; give it the permissions that open() would.
        os.umask(mask := os.umask(0))
        os.chmod(name, 0o666 & ~mask)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except OSError as error:
        raise LabelNoiseError(
            f"Expected to write {path}, but it failed: {error.strerror or error}"
        ) from error
    finally:
        Path(name).unlink(missing_ok=True)


def expect_regular_file(path: Path) -> None:
    """Refuse to replace a folder, a device or a pipe: renaming would destroy it."""
    if os.path.lexists(path) and not path.is_file():
        what = "a folder" if path.is_dir() else "not a regular file"
        raise LabelNoiseError(f"Expected a file to write to, but {path} is {what}")
