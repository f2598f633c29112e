"""Features in files: a row of numbers for each example, and perhaps its name."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import dataclass
from pathlib import Path

import narwhals as nw
import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.io.arrays import ARRAYS, listed, read_array
from labelnoise.io.outputs import names_file
from labelnoise.io.packages import explained, package
from labelnoise.io.tables import TABLES, Table, is_number, read_table, undefused

NAMES = ("name", "path", "id")  # columns that name the rows
# The last two are how pandas writes its row numbers.
NOT_FEATURES = (*NAMES, "label", "", "__index_level_0__")


@dataclass(frozen=True, eq=False)
class Embedding:
    """Representations, and what each of them is of."""

    features: np.ndarray
    """(n, d) float32."""
    names: list[str]
    """For each row the path of its image, or the number of its text or row, from 0."""
    failed: list[tuple[str, str]]
    """(name, reason) of what could not be read, and has no row."""

    def __repr__(self) -> str:
        n, d = self.features.shape
        return f"Embedding({n} rows of {d} features, {len(self.failed)} failed)"


@dataclass(frozen=True, eq=False)
class Features:
    """Representations, and what is known of their rows."""

    source: str
    array: np.ndarray
    """(N, d), read only when it is used where the format allows it."""
    names: list[str] | None = None
    """Of each row, where the file or the one beside it has them."""
    failed: tuple[str, ...] = ()
    """Names of what `labelnoise embed` could not read, and that has no row."""
    numbered: bool = False
    """Whether names are the numbers that texts or rows of a table had in their file."""


def read_features(source: str) -> Features:
    """Read a table of numbers, (N, d).

    Parameters
    ----------
    source : str
        A file, or a file and a name in it: ``data.npz:x``. An array with two axes in a .npy, .npz,
        .safetensors, .pt or .pth file, which may be the only one there. Or a table, .csv, .parquet,
        .arrow or .feather: its one column of lists, or all columns but those called name, path, id
        (which name the rows) and label. A CSV file needs no header if it has only numbers.
    """
    path, key = split_source(source)
    names, failed, numbered = None, tuple[str, ...](), False
    if path.suffix == ".npy" and key is None and names_file(path).exists():
        embedding = load_embedding(path)
        array, names = embedding.features, embedding.names
        failed = tuple(name for name, _ in embedding.failed)
        numbered = all(name.isdecimal() for name in names)
    elif path.suffix.lower() in ARRAYS:
        array = read_array(path, key, 2)
    else:
        table = read_table(path, header=None)
        naming = next((name for name in NAMES if name in table.columns), None)
        names = None if naming is None else [str(name) for name in table.cells(naming)]
        array = _features_of(table, key)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise LabelNoiseError(
            f"Expected features, a table of numbers, in {source}, but there is an array of "
            f"{array.dtype} with shape {array.shape}"
        )
    if not array.size:
        raise LabelNoiseError(
            f"Expected features in {source}, but its shape is {array.shape}: there is no row"
        )
    return Features(source, array, names, failed, numbered)


def split_source(source: str) -> tuple[Path, str | None]:
    """Give the file of a source, and what is named in it."""
    name, _, key = source.rpartition(":")
    known = (*TABLES, *ARRAYS)
    if not (name.lower().endswith(known) and key) or os.path.exists(source):
        name, key = source, ""
    path = Path(name)
    if path.is_dir() or path.suffix.lower() not in known:
        what = "is a folder" if path.is_dir() else "is not"
        raise LabelNoiseError(
            f"Expected a file ending in {', '.join(known)}, but {source!r} {what}"
        )
    if not path.is_file():
        raise LabelNoiseError(f"Expected a file to read, but {name} does not exist")
    return path, key or None


def load_embedding(out: str | os.PathLike[str]) -> Embedding:
    """Read what an embedding function wrote to `out`; the features only when they are used."""
    features = read_array(Path(out), None, 2)
    with explained(f"Expected the names of features, but {names_file(out)} cannot be read"):
        # Not `read_table`: names of files need not be Unicode.
        text = names_file(out).read_text("utf-8", "surrogateescape")
        lines = list(csv.DictReader(io.StringIO(text, newline="")))
        pairs = [(undefused(line["name"]), line["problem"]) for line in lines]
    names = [name for name, problem in pairs if not problem]
    if len(names) != len(features):
        raise LabelNoiseError(
            f"Expected a name for each row, but {out} has {len(features)} rows and "
            f"{names_file(out)} {len(names)} names"
        )
    return Embedding(features, names, [pair for pair in pairs if pair[1]])


def _features_of(table: Table, key: str | None) -> np.ndarray:
    lists = [name for name in list_columns(table) if key in (name, None)]
    if len(lists) > 1 or (key and not lists):
        raise LabelNoiseError(
            f"Expected one column of lists in {table.source}, or {table.source}:NAME, but it has "
            f"{listed(table.columns)}"
        )
    if lists:
        return flattened(table.columns[lists[0]].to_native(), f"{lists[0]} in {table.source}")
    columns = [name for name in table.columns if name.lower() not in NOT_FEATURES]
    if table.has_texts and any("." in name for name in columns if is_number(name)):
        # pandas' header is 0, 1, 2. Fractions beside words are a first row that has a name.
        raise LabelNoiseError(
            f"Expected the first line of {table.source} to be a header or all numbers, but it is "
            f"{listed(table.columns)}"
        )
    if not columns:
        raise LabelNoiseError(
            f"Expected features in {table.source}, but it has only {listed(table.columns)}"
        )
    return np.column_stack([table.numbers(name) for name in columns])


def list_columns(table: Table) -> list[str]:
    """Names of the columns that hold lists."""
    if table.has_texts:
        return []
    lists = (nw.List, nw.Array)
    return [name for name, column in table.columns.items() if isinstance(column.dtype, lists)]


def flattened(column: object, name: str) -> np.ndarray:
    """Rows (N, d) of an Arrow column of lists, which must all have d numbers."""
    compute = package("pyarrow.compute", "formats")
    lengths = compute.unique(compute.list_value_length(column)).to_pylist()
    if len(lengths) > 1 or lengths == [None]:
        raise LabelNoiseError(f"Expected lists of one length, but those of {name} differ")
    flat = compute.list_flatten(column).to_numpy(zero_copy_only=False)
    return np.asarray(flat).reshape(len(column), -1)  # type: ignore[arg-type]
