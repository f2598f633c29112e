"""Features in several files, npy, parquet or zarr, on any store that fsspec knows."""

from __future__ import annotations

import glob
import math
import os
import re
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.io.arrays import ARRAYS
from labelnoise.io.features import NOT_FEATURES, flattened
from labelnoise.io.labels import read_labels
from labelnoise.io.packages import explained, package
from labelnoise.io.tables import TABLES

SUFFIXES = (".npy", ".parquet", ".zarr")
_PATTERN = re.compile(r"[*?\[]")


class Shards:
    """Features in several files, whose rows follow each other in the order of the files' names.

    Parameters
    ----------
    source : str
        A pattern (``"s3://bucket/part-*.npy"``), a folder, or one .npy, .parquet or .zarr, on any
        store that fsspec knows. Numbers in names count as numbers: part-2 is before part-10.

    Attributes
    ----------
    shape : (N, d)
    dtype : numpy.dtype
    names, lengths : lists
        Of the shards that have rows.
    """

    ndim = 2

    def __init__(self, source: str) -> None:
        self.source = source
        names = _find(source, SUFFIXES)
        with ThreadPoolExecutor(16) as pool:
            described = dict(zip(names, pool.map(_describe, names), strict=True))
        found = {name: each for name, each in described.items() if each[0]}
        if not found:
            raise LabelNoiseError(f"Expected shards with rows, but those of {source} have none")
        kinds = {each[1:]: name for name, each in found.items()}
        if len(kinds) > 1:
            one, other, *_ = (f"{name} has {d} of {dtype}" for (d, dtype), name in kinds.items())
            raise LabelNoiseError(
                f"Expected shards with columns of one number and type, but {one} and {other}"
            )
        self.names, self.lengths = [*found], [rows for rows, _, _ in found.values()]
        ((columns, self.dtype),) = kinds
        self.shape = sum(self.lengths), columns

    def __repr__(self) -> str:
        n, d = self.shape
        return f"Shards({self.source!r}: {n:,} x {d} of {self.dtype}, in {len(self.names)})"

    def tiles(self, rows: int) -> list[list[Piece]]:
        """All rows in order, so many at a time, wherever a shard ends."""
        result: list[list[Piece]] = [[]]
        room = rows
        for name, size in zip(self.names, self.lengths, strict=True):
            start = 0
            while start < size:
                if not room:
                    result.append([])
                    room = rows
                stop = min(start + room, size)
                result[-1].append(Piece(name, start, stop))
                room -= stop - start
                start = stop
        return result


@dataclass(frozen=True)
class Piece:
    """Rows `start` to `stop` of a shard."""

    shard: str
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def read(self) -> np.ndarray:
        """Read the rows from the store."""
        with explained(f"Expected a shard of features, but {self.shard} cannot be read"):
            rows = _READERS[_suffix(self.shard)](self.shard, self.start, self.stop)
            if len(rows) != len(self):
                raise ValueError("it is shorter than it was")
        return rows


def read_shard_labels(source: str, shards: Shards | None = None) -> np.ndarray:
    """Read the labels of shards: one file for all, or a pattern or folder with one for each.

    Parameters
    ----------
    source : str
        Files are read by `labelnoise.io.labels.read_labels`, and follow each other by their names:
        ``"s3://bucket/labels-*.csv:colour"`` has a column colour in each.
    shards : Shards, optional
        What the labels belong to, row by row: there must be as many.
    """
    files, colon, column = source.rpartition(":")
    if _suffix(files) not in (*ARRAYS, *TABLES):
        files, colon, column = source, "", ""
    url_to_fs = package("fsspec.core", "dask").url_to_fs
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in _find(files, (*ARRAYS, *TABLES), "labels"):
            store, path = url_to_fs(name)
            if not name.startswith("file://"):
                local = os.path.join(folder, os.path.basename(path))
                with explained(f"Expected labels, but {name} cannot be read"):
                    store.get_file(path, local)
                path = local
            found.append(np.array(read_labels(f"{path}{colon}{column}").array))
    labels = np.concatenate(found)
    if shards is not None and len(labels) != shards.shape[0]:
        raise LabelNoiseError(
            f"Expected one label for each of the {shards.shape[0]:,} rows of {shards.source}, but "
            f"{source} has {len(labels):,}"
        )
    return labels


def _find(source: str, suffixes: Sequence[str], what: str = "shards") -> list[str]:
    """Files of a pattern or a folder, or the one file, in order."""
    url_to_fs = package("fsspec.core", "dask").url_to_fs
    with explained(f"Expected {what}, but {source} cannot be looked up"):
        files, path = url_to_fs(source)
        if files.isdir(path) and _suffix(path) not in suffixes:
            path = f"{path}/*"
        found = files.glob(path) if _PATTERN.search(path) else [path] * files.exists(path)
        named = [files.unstrip_protocol(name) for name in found if _suffix(name) in suffixes]
    if not named:
        seen = f"there is only {found[0]}" if found else f"there is none at {source}"
        raise LabelNoiseError(f"Expected {what}, files ending in {', '.join(suffixes)}, but {seen}")
    named.sort(key=lambda name: [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", name)])
    numbers = [int(number) for name in named for number in re.findall(r"(\d+)\D*$", name)]
    if len({re.sub(r"\d+(\D*)$", r"\1", name) for name in named}) == 1 < len(numbers):
        missing = sorted({*range(numbers[0], numbers[-1])} - {*numbers})
        if 0 < len(missing) < len(named):
            raise LabelNoiseError(
                f"Expected {what} to be numbered without gaps, but of {named[0]} to {named[-1]} "
                f"number {missing[0]} is missing ({len(missing)} such numbers)"
            )
    return named


def local_files(source: str) -> list[str]:
    """Files of shards, or of their labels, that are on this machine's disk."""
    if re.match(r"\w+://", source):
        return []
    return [*glob.glob(source), *glob.glob(os.path.join(glob.escape(source), "*"))]


def _suffix(name: str) -> str:
    return "." + name.rstrip("/").rpartition(".")[2].lower()


def _describe(shard: str) -> tuple[int, int, np.dtype]:
    """Rows, columns and type."""
    with explained(f"Expected a shard of features, but {shard} cannot be read"):
        shape, dtype = _DESCRIBERS[_suffix(shard)](shard)
    if shape[:1] == (0,):
        return 0, 0, dtype
    if len(shape) != 2 or not shape[1] or not is_number(dtype):
        raise LabelNoiseError(
            f"Expected features, a table of numbers, but {shard} is an array of {dtype} with shape "
            f"{tuple(shape)}"
        )
    return shape[0], shape[1], dtype


def is_number(dtype: np.dtype) -> bool:
    """Whether features may be of a type: numbers of 64 bits at most."""
    return dtype.kind in "fiub" and dtype.itemsize <= 8


def _open(shard: str) -> Any:
    return package("fsspec", "dask").open(shard, "rb")


def _npy_header(file: Any) -> tuple[Sequence[int], np.dtype]:
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0}
    shape, by_columns, dtype = read.get(version, np.lib.format.read_array_header_2_0)(file)
    if by_columns and len(shape) > 1:
        raise ValueError("it is stored by columns: save np.ascontiguousarray of it")
    return shape, dtype


def _describe_npy(shard: str) -> tuple[Sequence[int], np.dtype]:
    with _open(shard) as file:
        shape, dtype = _npy_header(file)
        begin = file.tell()
        if file.seek(0, os.SEEK_END) < begin + math.prod(shape) * dtype.itemsize:
            raise ValueError("it is cut off")
        return shape, dtype


def _read_npy(shard: str, start: int, stop: int) -> np.ndarray:
    with _open(shard) as file:
        (_, columns), dtype = _npy_header(file)
        file.seek(start * columns * dtype.itemsize, os.SEEK_CUR)
        content = file.read((stop - start) * columns * dtype.itemsize)
    return np.frombuffer(content, dtype).reshape(-1, columns)


def _parquet(file: Any) -> tuple[Any, list[str]]:
    """The file, and its columns that are features: one of lists, or all but names and labels."""
    table = package("pyarrow.parquet", "formats").ParquetFile(file)
    schema = table.schema_arrow
    lists = [field.name for field in schema if "list<" in str(field.type)]
    if len(lists) > 1:
        raise ValueError(f"it has more than one column of lists: {', '.join(lists)}")
    return table, lists or [name for name in schema.names if name.lower() not in NOT_FEATURES]


def _describe_parquet(shard: str) -> tuple[Sequence[int], np.dtype]:
    with _open(shard) as file:
        table, columns = _parquet(file)
        first = next(table.iter_batches(batch_size=1, columns=columns), None)
        if first is None:
            return (0, 0), np.dtype(float)
        rows = _array(first)
        return (table.metadata.num_rows, *rows.shape[1:]), rows.dtype


def _read_parquet(shard: str, start: int, stop: int) -> np.ndarray:
    """Row groups that have the rows are read whole."""
    with _open(shard) as file:
        table, columns = _parquet(file)
        groups = range(table.num_row_groups)
        ends = np.cumsum([table.metadata.row_group(i).num_rows for i in groups])
        first, last = np.searchsorted(ends, start, "right"), np.searchsorted(ends, stop, "left")
        read = table.read_row_groups(list(range(first, last + 1)), columns=columns)
    begin = int(ends[first - 1]) if first else 0
    return _array(read.slice(start - begin, stop - start))


def _array(table: Any) -> np.ndarray:
    """Rows of a table or batch of Arrow."""
    if "list<" not in str(table.schema.field(0).type):
        columns = [column.to_numpy(zero_copy_only=False) for column in table.columns]
        return np.column_stack(columns)
    return flattened(table.column(0), table.schema.names[0])


def _zarr(shard: str) -> Any:
    return package("zarr", "dask").open_array(shard, mode="r")


def _describe_zarr(shard: str) -> tuple[Sequence[int], np.dtype]:
    array = _zarr(shard)
    return array.shape, array.dtype


def _read_zarr(shard: str, start: int, stop: int) -> np.ndarray:
    return np.asarray(_zarr(shard)[start:stop])


_DESCRIBERS = {".npy": _describe_npy, ".parquet": _describe_parquet, ".zarr": _describe_zarr}
_READERS = {".npy": _read_npy, ".parquet": _read_parquet, ".zarr": _read_zarr}
