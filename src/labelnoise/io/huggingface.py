"""Data sets of Hugging Face's `datasets` on disk, unpacked to files that everything here reads."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labelnoise._errors import LabelNoiseError
from labelnoise.io.arrays import listed
from labelnoise.io.atomic import write_then_rename
from labelnoise.io.images import files_inside
from labelnoise.io.packages import explained, package
from labelnoise.io.sources import LABELS_FILE, Source, find_source, state_of
from labelnoise.io.tables import read_arrow, write_table

_STATE, _INFO, _SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"
_NEEDED = {_STATE: "_data_files", _INFO: "features", _SPLITS: "splits"}
_UNPACKED = "unpacked.sha256"
_ENDS = {  # how files of these formats begin
    b"\xff\xd8": ".jpg",
    b"\x89PNG": ".png",
    b"GIF8": ".gif",
    b"BM": ".bmp",
    b"RIFF": ".webp",
    b"II*\0": ".tif",
    b"MM\0*": ".tif",
}


def is_dataset(folder: str) -> bool:
    """Whether `Dataset.save_to_disk` wrote this folder."""
    return any(os.path.isfile(os.path.join(folder, name)) for name in (_STATE, _SPLITS))


def unpack(folder: str, out: Path, *, text: str | None = None, label: str | None = None) -> Source:
    """Write images as files with a table of their labels, or all columns as a Parquet file.

    What is in `out` already is kept if it is of the same data. Numbers of a ClassLabel become the
    names of their classes.
    """
    if os.path.isfile(os.path.join(folder, _SPLITS)):
        raise LabelNoiseError(
            f"Expected one data set, but {folder} has the parts "
            f"{listed(_json(folder, _SPLITS)['splits'])}: give one, as in "
            f"{os.path.join(folder, _json(folder, _SPLITS)['splits'][0])}"
        )
    files = _arrow_files(folder)
    columns = _json(folder, _INFO)["features"]
    pictures = [name for name, column in columns.items() if _type(column) == "Image"]
    label = _label_column(folder, columns, label)
    state = state_of([text, label], [os.path.join(folder, _INFO), *files])
    stamp, table = out / _UNPACKED, out / "data.parquet"
    if not (stamp.is_file() and stamp.read_text("utf-8") == state):
        out.mkdir(parents=True, exist_ok=True)
        names = columns[label].get("names")
        if pictures:
            _write_images(files, pictures[0], label, names, out)
        else:
            _write_rows(files, label, names, table)
        with write_then_rename(stamp) as file:
            file.write(state.encode())
    if pictures:
        return find_source(str(out), label="label")
    return find_source(str(table), text=text, label=label)


def _label_column(folder: str, columns: dict[str, Any], label: str | None) -> str:
    classes = [name for name, column in columns.items() if _type(column) == "ClassLabel"]
    wanted = [label] if label else [*classes, "label"]
    if wanted[0] not in columns:
        raise LabelNoiseError(
            f"Expected a column of labels in {folder}, but {wanted[0]!r} is none of "
            f"{listed(columns)}: name it with --label"
        )
    return wanted[0]


def _type(column: Any) -> str | None:
    return column.get("_type") if isinstance(column, dict) else None


def _arrow_files(folder: str) -> list[str]:
    state = _json(folder, _STATE)
    if state.get("_indices_files"):
        raise LabelNoiseError(
            f"Expected a data set without indices, but {folder} has some: save it again after "
            f"flatten_indices()"
        )
    return files_inside(folder, [file["filename"] for file in state["_data_files"]])


def _json(folder: str, name: str) -> dict[str, Any]:
    path = os.path.join(folder, name)
    with (
        explained(
            f"Expected a data set saved by Hugging Face's datasets, but {path} is not of one"
        ),
        open(path, encoding="utf-8") as file,
    ):
        content: dict[str, Any] = json.load(file)
        return {_NEEDED[name]: content[_NEEDED[name]]} | content


def _class(cell: Any, names: list[str] | None) -> Any:
    """The name of a class, None where there is none."""
    if names is None or cell is None:
        return cell
    return names[cell] if cell >= 0 else None


def _arrow_tables(files: list[str]) -> Iterator[Any]:
    for file in files:
        with explained(f"Expected an Arrow file, but {file} cannot be read"):
            table = read_arrow(Path(file))
            table.validate(full=True)
        yield table


def _rows(files: list[str], *columns: str) -> Iterator[tuple[Any, ...]]:
    for table in _arrow_tables(files):
        for batch in table.select(list(columns)).to_batches():
            for row in batch.to_pylist():
                yield tuple(row[name] for name in columns)


def _write_images(
    files: list[str], picture: str, label: str, names: list[str] | None, out: Path
) -> None:
    paths, labels = [], []
    for number, (cell, given) in enumerate(_rows(files, picture, label)):
        content = (cell or {}).get("bytes")
        if content is None:
            raise LabelNoiseError(
                f"Expected images inside the data set, but row {number} of {files[0]} has none: "
                f"save it again after a map that reads the files"
            )
        end = next((end for start, end in _ENDS.items() if content.startswith(start)), ".png")
        path = out / f"{number:06d}{end}"
        # An image of a killed run keeps its time, by which the embedding knows it.
        if not path.exists() or path.stat().st_size != len(content):
            path.write_bytes(content)
        paths.append(path.name)
        labels.append(_class(given, names))
    write_table(
        out / LABELS_FILE, {"name": paths, "label": ["" if y is None else y for y in labels]}
    )


def _write_rows(files: list[str], label: str, names: list[str] | None, path: Path) -> None:
    arrow = package("pyarrow", "formats")
    table = arrow.concat_tables(_arrow_tables(files)).replace_schema_metadata()
    place = table.column_names.index(label)
    labels = [_class(cell, names) for cell in table[label].to_pylist()]
    table = table.set_column(place, label, [labels])
    with write_then_rename(path) as file:
        package("pyarrow.parquet", "formats").write_table(table, file)
