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
