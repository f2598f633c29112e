"""Where results go: met before the work begins, and never a file that the work reads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from labelnoise._errors import LabelNoiseError
from labelnoise.io.atomic import expect_regular_file
from labelnoise.io.packages import package

StrPath = str | os.PathLike[str]


def names_file(features: StrPath) -> Path:
    """Where the names of features are: for ``features.npy`` in ``features.names.csv``."""
    return Path(features).with_suffix(".names.csv")


def check_outputs(
    outputs: Mapping[StrPath, Sequence[str]], inputs: Iterable[StrPath | None] = ()
) -> None:
    """Refuse outputs that cannot be written, that are one file, or that are an input.

    Parameters
    ----------
    outputs : {path: suffixes}
        What is written, and how its name may end.
    inputs : paths
        What is read; of a source as ``data.npz:x``, the file. Those that do not exist are left to
        their reader.
    """
    read = [path for source in inputs if source is not None for path in _files_of(source)]
    written: dict[str, StrPath] = {}
    for path, suffixes in outputs.items():
        _check_output(Path(path), suffixes)
        same = os.path.realpath(path).casefold()
        if same in written:
            raise LabelNoiseError(
                f"Expected outputs to be different files, but {written[same]} and {path} are one"
            )
        written[same] = path
        for source in read:
            if os.path.exists(path) and os.path.samefile(path, source):
                raise LabelNoiseError(
                    f"Expected to write a file that is not read, but {path} is the input {source}: "
                    f"choose another name"
                )


def _check_output(path: Path, suffixes: Sequence[str]) -> None:
    if path.suffix.lower() not in suffixes:
        raise LabelNoiseError(
            f"Expected to write a file ending in {', '.join(suffixes)}, but it is {str(path)!r}"
        )
    if not path.parent.is_dir():
        raise LabelNoiseError(f"Expected a folder to write to, but there is no {path.parent}")
    expect_regular_file(Path(os.path.realpath(path)))
    if path.suffix.lower() == ".parquet":
        package("pyarrow.parquet", "formats")


def _files_of(source: StrPath) -> list[str]:
    """The file of a source, with the names beside it."""
    name = os.fspath(source)
    candidates = [name, name.rpartition(":")[0]]
    candidates += [os.fspath(names_file(path)) for path in candidates if path.endswith(".npy")]
    return [path for path in candidates if os.path.isfile(path)]
