"""Labels in files, in the order of the features that they belong to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.io.arrays import ARRAYS, read_array
from labelnoise.io.atomic import write_then_rename
from labelnoise.io.features import NAMES, Features, split_source
from labelnoise.io.images import files_below
from labelnoise.io.packages import explained
from labelnoise.io.rewriting import rewrite_table
from labelnoise.io.tables import Table, read_table, write_table


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels as they are in a file: numbers or strings, None where there is none."""

    array: np.ndarray
    names: list[str] | None = None
    table: Table | None = None
    """Where they are from, if that is a table."""
    column: str = "label"
    rows: np.ndarray | None = None
    """Which rows of the file they are; None: all, in order."""


def read_labels(source: str, features: Features | None = None, column: str = "label") -> Labels:
    """Read one label for each example, or one group.

    Parameters
    ----------
    source : str
        An array with one axis; or a table with a column called `column`, or ``table.csv:NAME``.
        Empty cells are unlabelled. A CSV file with a single column needs no header. Or a folder
        of images with a folder for each class: the label is the name of the image's folder.
    features : Features, optional
        If their rows have names, and the labels a column path, name or id (or else a first one),
        labels are put in the order of the features by name.
    column : str
        The column, if `source` names none.
    """
    if os.path.isdir(source):
        labels = _of_folders(source)
    else:
        path, key = split_source(source)
        if path.suffix.lower() in ARRAYS:
            labels = Labels(read_array(path, key, 1))
        else:
            labels = _of_table(path, key, column)
    array = labels.array
    with explained(f"Expected labels, but those in {source} cannot be read"):
        array.tolist()  # texts of an array need not be Unicode
    if not array.size:
        raise LabelNoiseError(f"Expected labels in {source}, but there is not one row")
    if array.ndim != 1 and array.shape[1:] != (1,):
        raise LabelNoiseError(
            f"Expected one label for each example in {source}, but the shape is {array.shape}"
        )
    labels = replace(labels, array=array.reshape(-1))
    return labels if features is None else _in_order(labels, features, source)


def write_labels(path: str | os.PathLike[str], labels: Labels, new: np.ndarray) -> None:
    """Write new labels in place of `labels`; a table keeps all else that is in its file.

    To .npy only the labels are written; labels that came without a table get a column of names.
    """
    if Path(path).suffix.lower() == ".npy":
        with write_then_rename(path) as file:
            np.save(file, new, allow_pickle=False)
    elif labels.table is None:
        names = {} if labels.names is None else {"name": labels.names}
        write_table(path, {**names, labels.column: new})
    else:
        rows = range(len(new)) if labels.rows is None else labels.rows.tolist()
        pairs = zip(rows, labels.array.tolist(), new.tolist(), strict=True)
        changed = {row: label for row, old, label in pairs if label != old}
        if rewrite_table(labels.table, path, labels.column, changed):
            return
        columns = {name: labels.table.cells(name) for name in labels.table.columns}
        replaced = np.array(columns[labels.column], object)
        replaced[rows] = new.tolist()
        write_table(path, columns | {labels.column: replaced})


def folder_labels(names: Sequence[str], source: str | os.PathLike[str]) -> list[str]:
    """Give the class of each image below a folder: the first folder of its path."""
    parts = [name.partition("/") for name in names]
    if not parts:
        raise LabelNoiseError(
            f"Expected a folder of images for each class in {source}, or a table with labels, but "
            f"there are no images"
        )
    if loose := [name for name, slash, _ in parts if not slash]:
        raise LabelNoiseError(
            f"Expected a folder for each class in {source}, but {len(loose)} images are in none, "
            f"such as {loose[0]}: sort them into folders, or give a table with labels"
        )
    return [label for label, _, _ in parts]


def _of_folders(source: str) -> Labels:
    names = files_below(source)
    return Labels(np.array(folder_labels(names, source), object), names)


def _of_table(path: Path, key: str | None, column: str) -> Labels:
    table, wanted = read_table(path), key or column
    if table.has_texts and key is None and len(table.columns) == 1 and wanted not in table.columns:
        table = read_table(path, header=False)  # one column without a header
        table = replace(table, columns={wanted: table.columns["0"]})
    wanted = table.column(wanted)
    others = [name for name in table.columns if name != wanted]
    naming = [name for name in NAMES if name in others] or others
    names = [str(name) for name in table.cells(naming[0])] if naming else None
    return Labels(np.array([*table.labels(wanted), None], object)[:-1], names, table, wanted)


def _in_order(labels: Labels, features: Features, source: str) -> Labels:
    """Labels of the features' rows: by name, by row number, or as they come."""
    names, n, found = features.names, len(features.array), len(labels.array)
    rows = np.arange(found)
    if names is not None and labels.names is not None and not features.numbered:
        rows = np.array(_places(labels.names, features, source))
    elif names is not None and features.numbered and found == n + len(features.failed):
        rows = np.array([int(name) for name in names])
    if len(rows) != n or rows.max() >= found:
        one_more = f": if its first line is a header, name the column, as in {source}:NAME"
        raise LabelNoiseError(
            f"Expected one label for each of the {n} rows of {features.source}, but {source} has "
            f"{found}{one_more if found == n + 1 and source.endswith('.csv') else ''}"
        )
    return replace(labels, array=labels.array[rows], names=names or labels.names, rows=rows)


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
