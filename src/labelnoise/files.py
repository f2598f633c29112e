"""Features, labels and results in the files that people keep them in; never through pickle.

A source is a file, or a file and what is meant in it: ``data.npz:x``, ``labels.csv:colour``.
"""

from __future__ import annotations

import csv
import io
import os
import struct
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise._files import expect_room, write_then_rename
from labelnoise.encoders import _explained, _module, _read_csv, load_embedding, names_file

TABLES = (".csv", ".parquet", ".arrow", ".feather")
ARRAYS = (".npy", ".npz", ".safetensors", ".pt", ".pth")

_FORMATS_EXTRA, _TORCH_EXTRA = '"labelnoise[formats]"', '"labelnoise[torch]"'
_NAMES = ("name", "path", "id")
# The last two are how pandas writes its row numbers.
_NOT_FEATURES = (*_NAMES, "label", "", "__index_level_0__")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_SAFE = tuple(f"'{sign}" for sign in _FORMULA)  # what `safe_cell` makes of them
Column = Sequence[Any] | np.ndarray


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


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels as they are in a file: numbers or strings, None where there is none."""

    array: np.ndarray
    names: list[str] | None = None


def read_features(source: str) -> Features:
    """Read a table of numbers, (N, d).

    Parameters
    ----------
    source : str
        An array of two axes in a .npy, .npz, .safetensors, .pt or .pth file, which may be the
        only one there. Or a table, .csv, .parquet, .arrow or .feather: its one column of lists,
        or all columns but those called name, path, id (which name the rows) and label. A CSV file
        needs no header if it has nothing but numbers.
    """
    path, key = _split(source)
    names, failed, numbered = None, tuple[str, ...](), False
    if path.suffix == ".npy" and key is None and names_file(path).exists():
        embedding = load_embedding(path)
        array, names = embedding.features, embedding.names
        failed = tuple(name for name, _ in embedding.failed)
        numbered = all(name.isdecimal() for name in names)
    elif path.suffix.lower() in ARRAYS:
        array = read_array(path, key, 2)
    elif path.suffix.lower() == ".csv" and key is None:
        array, names = _csv_features(path)
    elif path.suffix.lower() == ".csv":
        raise LabelNoiseError(f"Expected {path}, of which all columns are read, but {source!r}")
    else:
        array, names = _arrow_features(path, key)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise LabelNoiseError(
            f"Expected features, a table of numbers, in {source}, but there is an array of "
            f"{array.dtype} with shape {array.shape}"
        )
    return Features(source, array, names, failed, numbered)


def read_labels(source: str, features: Features | None = None, column: str = "label") -> Labels:
    """Read one label for each example, or one group.

    Parameters
    ----------
    source : str
        An array of one axis, or a table with a column called `column`. Empty cells are
        unlabelled. A CSV file of a single column needs no header.
    features : Features, optional
        Where their rows have names, and the labels a column path, name or id (or else a first
        one), labels are put in the order of the features by name.
    column : str
        The column, where `source` names none.
    """
    path, key = _split(source)
    if path.suffix.lower() in ARRAYS:
        labels = Labels(read_array(path, key, 1))
    else:
        labels = _label_column(path, key, column)
    array = labels.array
    with _explained(f"Expected labels, but those in {source} cannot be read"):
        array.tolist()  # texts of an array need not be Unicode
    if not array.size or (array.ndim != 1 and array.shape[1:] != (1,)):
        raise LabelNoiseError(
            f"Expected one label for each example in {source}, but the shape is {array.shape}"
        )
    labels = Labels(array.reshape(-1), labels.names)
    return labels if features is None else _in_order(labels, features, source)


def read_verified(source: str, features: Features) -> dict[int, Any]:
    """Read the true labels of some rows, {row: label}, from a table.

    It has a column label, and another one: path, name or id, where the features' rows have names,
    or else row numbers from 0.
    """
    labels = _label_column(*_split(source), "label")
    if labels.names is None:
        raise LabelNoiseError(
            f"Expected a column beside the labels in {source} that names the rows"
        )
    row_of = {str(row): row for row in range(len(features.array))}
    if features.names is not None:
        row_of = {name: row for row, name in enumerate(features.names)}
    unknown = [name for name in labels.names if name not in row_of]
    if unknown:
        raise LabelNoiseError(
            f"Expected {source} to name rows of {features.source}, but {unknown[0]!r} is none "
            f"({len(unknown)} such names)"
        )
    return {row_of[name]: label for name, label in zip(labels.names, labels.array, strict=True)}


def write_table(path: str | os.PathLike[str], columns: Mapping[str, Column]) -> None:
    """Write columns of one length to a .csv or .parquet file."""
    suffix = check_output(path, (".csv", ".parquet"))
    lists = {name: np.asarray(values, object).tolist() for name, values in columns.items()}
    rows = zip(*lists.values(), strict=True)
    with write_then_rename(path) as file:
        if suffix == ".parquet":
            arrow = _module("pyarrow", _FORMATS_EXTRA)
            _module("pyarrow.parquet", _FORMATS_EXTRA).write_table(arrow.table(lists), file)
        else:
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow([safe_cell(name) for name in lists])
            writer.writerows([safe_cell(value) for value in row] for row in rows)
            file.write(text.getvalue().encode("utf-8", "surrogateescape"))


def write_labels(path: str | os.PathLike[str], labels: Labels) -> None:
    """Write labels to a .npy file, or with their names to those of `write_table`."""
    if check_output(path, (".npy", ".csv", ".parquet")) == ".npy":
        with write_then_rename(path) as file:
            np.save(file, labels.array, allow_pickle=False)
    else:
        names = {} if labels.names is None else {"name": labels.names}
        write_table(path, {**names, "label": labels.array})


def write_estimate(path: str | os.PathLike[str], est: Any) -> None:
    """Write a fitted estimator: all of it to .json, its T to .npy, .csv or .parquet.

    The matrices of groups and neighbourhoods are one .npy array, or one table with a column that
    says whose row it is.
    """
    suffix = check_output(path, (".json", ".npy", ".csv", ".parquet"))
    if suffix == ".json":
        est.save(path)
        return
    K, parts = len(est.classes_), dict[str, Column]()
    T = getattr(est, "transition_matrices_", None)
    if T is None:
        T = est.transition_matrix_
    else:
        name, of = ("group", est.groups_) if hasattr(est, "groups_") else ("part", range(len(T)))
        parts = {name: np.repeat(np.asarray(of), K)}
    if suffix == ".npy":
        with write_then_rename(path) as file:
            np.save(file, T)
        return
    rows = T.reshape(-1, K)
    true = {"true class": np.tile(est.classes_, len(rows) // K)}
    given = {f"labelled {name}": rows[:, j] for j, name in enumerate(est.classes_)}
    write_table(path, {**parts, **true, **given})


def check_output(path: str | os.PathLike[str], suffixes: Sequence[str]) -> str:
    """Meet a file that cannot be written before the work is done; gives how its name ends."""
    suffix, folder = Path(path).suffix.lower(), Path(path).parent
    if suffix not in suffixes:
        raise LabelNoiseError(
            f"Expected to write a file ending in {', '.join(suffixes)}, but it is {str(path)!r}"
        )
    if not folder.is_dir():
        raise LabelNoiseError(f"Expected a folder to write to, but there is no {folder}")
    if suffix == ".parquet":
        _module("pyarrow.parquet", _FORMATS_EXTRA)
    return suffix


def safe_cell(value: Any) -> Any:
    """Give a cell that no spreadsheet takes for a formula: such texts get an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _split(source: str) -> tuple[Path, str | None]:
    """The file, and what is named in it."""
    name, _, key = source.rpartition(":")
    known = (*TABLES, *ARRAYS)
    if not (name.lower().endswith(known) and key) or os.path.exists(source):
        name, key = source, ""
    path = Path(name)
    if path.suffix.lower() not in known:
        raise LabelNoiseError(f"Expected a file ending in {', '.join(known)}, but it is {source!r}")
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise LabelNoiseError(f"Expected a file to read, but {name} {what}")
    return path, key or None


def read_array(path: Path, key: str | None, n_axes: int) -> np.ndarray:
    """Give the array of this name, or the only one with so many axes."""
    readers = {".npy": _npy, ".npz": _npz, ".safetensors": _safetensors}
    with _explained(f"Expected an array, but {path} cannot be read"):
        arrays = readers.get(path.suffix.lower(), _torch)(path, key)
    if key is None and len(arrays) == 1:
        return next(iter(arrays.values()))
    fitting = [name for name, array in arrays.items() if name == key or array.ndim == n_axes]
    if key is None and len(fitting) == 1:
        return arrays[fitting[0]]
    if key not in arrays:
        wanted = f"{key!r}" if key else f"one array with {n_axes} axes"
        shapes = [f"{name or 'one array'} {array.shape}" for name, array in arrays.items()]
        raise LabelNoiseError(
            f"Expected {wanted} in {path}, but it has {_some(shapes)}: name one, as in {path}:NAME"
        )
    return arrays[key]


def _npy(path: Path, _: str | None) -> dict[str, np.ndarray]:
    return {"": np.load(path, mmap_mode="r", allow_pickle=False)}


def _npz(path: Path, key: str | None) -> dict[str, np.ndarray]:
    """The array that is asked for: others may be pickles, and need not be opened."""
    with zipfile.ZipFile(path) as archive, open(path, "rb") as raw:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        asked = [key] if key in members else [*members]
        return {name: _npz_member(archive, raw, members[name]) for name in asked}


def _npz_member(archive: zipfile.ZipFile, raw: BinaryIO, info: zipfile.ZipInfo) -> np.ndarray:
    """One array, left in the file unless it is compressed."""
    if info.compress_type == zipfile.ZIP_STORED:
        raw.seek(info.header_offset + 26)
        raw.seek(sum(struct.unpack("<HH", raw.read(4))), os.SEEK_CUR)
        if np.lib.format.read_magic(raw) == (1, 0):
            shape, by_columns, dtype = np.lib.format.read_array_header_1_0(raw)
            if not dtype.hasobject and 0 not in shape:
                order: Any = "F" if by_columns else "C"
                return np.memmap(raw, dtype, "r", raw.tell(), shape, order)
    expect_room(f"{info.filename} in {archive.filename}", info.file_size)
    with archive.open(info) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _safetensors(path: Path, _: str | None) -> dict[str, np.ndarray]:
    return dict(_module("safetensors.numpy", _FORMATS_EXTRA).load_file(path))


def _torch(path: Path, _: str | None) -> dict[str, np.ndarray]:
    torch = _module("torch", _TORCH_EXTRA)
    content = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    content = {"": content} if torch.is_tensor(content) else content
    return {
        str(name): (value.float() if value.dtype == torch.bfloat16 else value).detach().numpy()
        for name, value in content.items()
        if torch.is_tensor(value)
    }


def _csv_features(path: Path) -> tuple[np.ndarray, list[str] | None]:
    with _explained(f"Expected a CSV file of numbers in UTF-8, but {path} cannot be read"):
        with open(path, newline="", encoding="utf-8-sig") as file:
            first = next(csv.reader(file), [])
        numbers = [cell for cell in first if _is_number(cell)]
        # pandas' header is 0, 1, 2; fractions beside words are a first row with a name.
        if not first or (len(numbers) < len(first) and any("." in cell for cell in numbers)):
            raise ValueError(f"its first line is neither a header nor all numbers: {first[:5]}")
        header = [] if numbers == first else [name.strip().lower() for name in first]
        named = [header.index(name) for name in _NAMES if name in header][:1]
        columns = [i for i in range(len(first)) if not header or header[i] not in _NOT_FEATURES]
        if not columns:
            raise ValueError(f"it has no features beside {', '.join(first)}")
        how: Any = {"comments": None, "delimiter": ",", "quotechar": '"', "encoding": "utf-8-sig"}
        how |= {"skiprows": int(bool(header)), "ndmin": 2}
        array = np.loadtxt(path, usecols=columns, **how)
        names = np.loadtxt(path, str, usecols=named, **how) if named else None
        return array, None if names is None else names[:, 0].tolist()


def _some(names: Iterable[str], most: int = 8) -> str:
    first, more = [*names][:most], [*names][most:]
    return ", ".join(first) + (f" and {len(more)} more" if more else "")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _arrow_table(path: Path) -> Any:
    with _explained(f"Expected a table, but {path} cannot be read"):
        table = (_parquet if path.suffix.lower() == ".parquet" else _arrow)(path)
        table.validate(full=True)  # Arrow trusts what a file says, and crashes if it lies
    names = table.column_names
    if not names:
        raise LabelNoiseError(f"Expected a table with columns, but {path} has none")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise LabelNoiseError(f"Expected names that differ, but {path} has {twice!r} twice")
    return table


def _parquet(path: Path) -> Any:
    file = _module("pyarrow.parquet", _FORMATS_EXTRA).ParquetFile(path, memory_map=True)
    expect_room(path, 8 * file.metadata.num_rows * file.metadata.num_columns)
    return file.read()


def _arrow(path: Path) -> Any:
    arrow = _module("pyarrow", _FORMATS_EXTRA)
    source = arrow.memory_map(str(path))
    try:
        return arrow.ipc.open_file(source).read_all()
    except arrow.ArrowInvalid:
        source.seek(0)
        return arrow.ipc.open_stream(source).read_all()


def _arrow_features(path: Path, key: str | None) -> tuple[np.ndarray, list[str] | None]:
    table = _arrow_table(path)
    has = table.column_names
    names = next((table[name].to_pylist() for name in _NAMES if name in has), None)
    names = None if names is None else [str(name) for name in names]
    lists = [field.name for field in table.schema if "list<" in str(field.type)]
    lists = [name for name in lists if key in (name, None)]
    if len(lists) > 1 or (key and not lists):
        raise LabelNoiseError(
            f"Expected one column of lists in {path}, or {path}:NAME, but it has {_some(has)}"
        )
    if lists:
        compute, column = _module("pyarrow.compute", _FORMATS_EXTRA), table[lists[0]]
        if column.null_count or len(compute.list_value_length(column).unique()) != 1:
            raise LabelNoiseError(
                f"Expected lists of one length in {path}, but those of {lists[0]} differ"
            )
        return compute.list_flatten(column).to_numpy().reshape(len(column), -1), names
    columns = [name for name in has if name.lower() not in _NOT_FEATURES]
    arrays = [table[name].to_numpy() for name in columns]
    if not columns or any(array.dtype.kind not in "fiub" for array in arrays):
        raise LabelNoiseError(
            f"Expected columns of numbers, or one of lists, in {path}, but it has {_some(has)}"
        )
    return np.column_stack(arrays), names


def _label_column(path: Path, key: str | None, column: str) -> Labels:
    wanted, columns = key or column, dict[str, Any]()
    if path.suffix.lower() == ".csv":
        header, cells = _read_csv(path)
        if key is None and len(header) == 1 and header[0].strip() != column:
            # One column without a header.
            header, cells = [column], np.concatenate([[header], cells])
        columns = {name.strip(): cells[:, i] for i, name in enumerate(header)}
    else:
        table = _arrow_table(path)
        columns = {name: table[name] for name in table.column_names}
    if wanted not in columns:
        raise LabelNoiseError(
            f"Expected a column {wanted!r} in {path}, but it has {_some(columns)}: name one, as in "
            f"{path}:{[*columns][-1]}"
        )

    def values(name: str) -> list[Any]:
        found = columns[name]
        return typed(found) if isinstance(found, np.ndarray) else list(found.to_pylist())

    others = [name for name in columns if name != wanted]
    naming = [name for name in _NAMES if name in others] or others
    names = [str(name) for name in values(naming[0])] if naming else None
    return Labels(np.array(values(wanted), object), names)


def typed(cells: Iterable[str]) -> list[Any]:
    """Cells as whole numbers, or as numbers, if all are such; None where there is nothing."""
    cells = [cell.strip()[cell.startswith(_SAFE) :] for cell in cells]
    for kind in (int, float):
        # 007 is no number: as one, it would lose its zeros.
        with suppress(ValueError):
            values = [kind(cell) if cell else None for cell in cells]
            if all(not cell or str(v) == cell for v, cell in zip(values, cells, strict=True)):
                return values
    return [cell or None for cell in cells]


def _in_order(labels: Labels, features: Features, source: str) -> Labels:
    """Labels of the features' rows: by name, by row number, or as they come."""
    array, names, n = labels.array, features.names, len(features.array)
    if names is not None and labels.names is not None and not features.numbered:
        return Labels(array[_places(labels.names, features, source)], names)
    if names is not None and features.numbered and len(array) == n + len(features.failed):
        array = array[[int(name) for name in names]]
    if len(array) != n:
        one_more = f": if its first line is a header, name the column, as in {source}:NAME"
        raise LabelNoiseError(
            f"Expected one label for each of the {n} rows of {features.source}, but {source} has "
            f"{len(array)}{one_more if len(array) == n + 1 and source.endswith('.csv') else ''}"
        )
    return Labels(array, names or labels.names)


def _places(names: list[str], features: Features, source: str) -> list[int]:
    """Where in `names` each row of the features is."""
    rows, place = features.names or [], {name: i for i, name in enumerate(names)}
    known = {*rows, *features.failed}
    for problem, which in {
        "is there twice": [name for i, name in enumerate(names) if place[name] != i],
        f"is not there, where names are like {names[0]!r}": [n for n in rows if n not in place],
        "has no features": [name for name in names if name not in known],
    }.items():
        if which:
            raise LabelNoiseError(
                f"Expected {source} to have one label for each name in {features.source}, but "
                f"{which[0]!r} {problem} ({len(which)} such names)"
            )
    return [place[name] for name in rows]
