"""What an audit is of: where the examples and their labels are, and what one of them looks like."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from labelnoise._errors import LabelNoiseError
from labelnoise.io.arrays import ARRAYS, listed
from labelnoise.io.embedding import Embedding, embed_images, embed_table, embed_texts
from labelnoise.io.features import NAMES, Features, list_columns, split_source
from labelnoise.io.images import SUFFIXES, files_inside
from labelnoise.io.labels import Labels, read_labels
from labelnoise.io.tables import Table, read_table
from labelnoise.io.texts import read_texts

KINDS = ("images", "texts", "table", "features")
LABELS_FILE = "labels.csv"  # in a folder of images
_LABEL_COLUMNS = ("label", "labels", "class", "target", "category")
_SAMPLE = 200  # cells that show what a column holds
_WORDS = 3  # of a text, on average: names of categories are shorter
_PATHS = ("path", "labels")
StrPath = str | os.PathLike[str]


@dataclass(frozen=True)
class Source:
    """Examples and their labels, in the files that people have."""

    kind: str
    """One of `KINDS`."""
    path: str
    """The folder of images, the table, or the file of texts or features."""
    labels: str
    """Where the labels are, as `read_labels` takes it."""
    label: str = "label"
    """The column of labels, where `labels` is a table and names none."""
    text: str | None = None
    """The column of texts, where there are several columns."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"its kind is {self.kind!r} instead of one of {KINDS}")

    def read_labels(self, features: Features | None = None) -> Labels:
        """Read the labels, in the order of the features if they are known."""
        return read_labels(self.labels, features, self.label)

    def embed(
        self,
        names: Sequence[str],
        out: Path,
        encoder: str | None,
        drop: Sequence[str],
        progress: Callable[[str, int, int], None] | None,
    ) -> Embedding:
        """Make features of images (by their names), texts or rows, and write them to `out`."""
        how: dict[str, Any] = {} if encoder is None else {"encoder": encoder}
        if self.kind == "images":
            _expect_files(names, self)
            return embed_images(names, root=self.path, out=out, progress=progress, **how)
        if self.kind == "texts":
            return embed_texts(self.path, column=self.text, out=out, progress=progress, **how)
        if encoder is not None:
            raise LabelNoiseError(
                f"Expected no encoder for rows of a table, but encoder = {encoder!r}: numbers are "
                f"standardised, and categories become a column each"
            )
        unused = [self.label, *drop]
        table = read_table(self.path)
        unused += [name for name in table.columns if name.lower() in NAMES and name not in unused]
        _expect_no_copy(table, self.label, [n for n in table.columns if n not in unused])
        return embed_table(self.path, drop=unused, out=out)

    def state(self, names: Iterable[str]) -> str:
        """Give what changes when the examples do: their files' names, sizes and times."""
        files = [os.path.join(self.path, name) for name in names] if self.kind == "images" else []
        return state_of([self.kind, self.text], files or [split_file(self.path)])

    def moved(self, start: StrPath, end: StrPath) -> Source:
        """Give the same files as seen from another folder; absolute paths stay."""

        def seen(path: str) -> str:
            return path if os.path.isabs(path) else os.path.relpath(os.path.join(start, path), end)

        return replace(self, **{name: seen(getattr(self, name)) for name in _PATHS})


def find_source(
    path: str, labels: str | None = None, *, text: str | None = None, label: str | None = None
) -> Source:
    """Find out what was given: a folder of images, a table or features, and where its labels are.

    Parameters
    ----------
    path : str
        A folder of images; a table with texts, paths of images, or any columns; a .txt file with a
        text a line; or features.
    labels : str, optional
        As `read_labels` takes it. Default: the file labels.csv of a folder, or else the names of
        the folders in it; of a table its column of labels.
    text, label : str, optional
        The columns of texts and labels. Default: found by their names and by what is in them.
    """
    if not os.path.exists(split_file(path)):
        raise LabelNoiseError(f"Expected a folder or a file to audit, but there is no {path}")
    if os.path.isdir(path):
        _expect_no_column(path, text, "--text")
        inside = os.path.join(path, LABELS_FILE)
        labels = labels or (inside if os.path.exists(inside) else path)
        return Source("images", path, labels, label or "label")
    if path.lower().endswith(".txt"):
        return Source("texts", path, _expect_labels(path, labels), label or "label")
    file, key = split_source(path)
    if file.suffix.lower() in ARRAYS or key is not None:
        return Source("features", path, _expect_labels(path, labels), label or "label")
    return _of_table(path, labels, text, label)


def split_file(source: str) -> str:
    """Give the file of a source such as ``data.npz:x``."""
    return source if os.path.exists(source) or ":" not in source else source.rpartition(":")[0]


def state_of(settings: Any, files: Iterable[StrPath]) -> str:
    """Digest settings, and the names, sizes and times of files."""
    digest = hashlib.sha256(repr(settings).encode("utf-8", "surrogateescape"))
    for file in files:
        found = os.stat(file) if os.path.exists(file) else None
        state = found and (found.st_size, found.st_mtime_ns)
        digest.update(repr((os.fspath(file), state)).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _of_table(path: str, labels: str | None, text: str | None, label: str | None) -> Source:
    table = read_table(path, header=None if labels else True)
    if not table.n_rows:
        raise LabelNoiseError(f"Expected rows in {path}, but it has only a header")
    own = None if labels else _label_column(table, label)
    where = (labels or path, own or label or "label")
    others = [name for name in table.columns if name != own]
    if text is None and any(_are_images(_sample(table, name)) for name in others):
        return Source("images", str(Path(path).parent), *where)
    text = table.column(text) if text is not None else _text_column(table, others)
    if text is not None:
        return Source("texts", path, *where, text)
    if labels is not None or list_columns(table):
        return Source("features", path, *where)
    return Source("table", path, *where)


def _label_column(table: Table, label: str | None) -> str:
    if label is not None:
        return table.column(label)
    lower = {name.lower(): name for name in reversed([*table.columns])}
    usual = [lower[name] for name in _LABEL_COLUMNS if name in lower]
    if not usual:
        raise LabelNoiseError(
            f"Expected a column of labels in {table.source}, but none of {listed(table.columns)} "
            f"is called {' or '.join(_LABEL_COLUMNS)}: name it with --label"
        )
    return usual[0]


def _text_column(table: Table, names: Sequence[str]) -> str | None:
    """The column called text, or the one with the longest texts, if these are no categories."""
    if "text" in names:
        return "text"
    words = {}
    for name in names:
        cells = [cell for cell in _sample(table, name) if isinstance(cell, str)]
        if len(set(cells)) > len(cells) / 2:
            words[name] = sum(len(cell.split()) for cell in cells) / len(cells)
    longest = max(words, key=words.__getitem__, default=None)
    return longest if longest is not None and words[longest] >= _WORDS else None


def _sample(table: Table, name: str) -> list[Any]:
    return list(table.columns[name][:_SAMPLE])


def _are_images(cells: Sequence[Any]) -> bool:
    return all(isinstance(cell, str) and cell.lower().endswith(SUFFIXES) for cell in cells)


def _expect_labels(path: str, labels: str | None) -> str:
    if labels is None:
        raise LabelNoiseError(
            f"Expected labels for {path}, but there are none: labelnoise audit {path} LABELS"
        )
    return labels


def _expect_files(names: Sequence[str], source: Source) -> None:
    if not any(map(os.path.exists, files_inside(source.path, names))):
        raise LabelNoiseError(
            f"Expected images in {source.path}, but there is none of {len(names)} in "
            f"{source.labels}, such as {names[0]}: give the folder where these paths start, "
            f"labelnoise audit FOLDER {source.labels}"
        )


def _expect_no_column(path: str, column: str | None, option: str) -> None:
    if column is not None:
        raise LabelNoiseError(f"Expected {option} for a table only, but {path} is a folder")


def _expect_no_copy(table: Table, label: str, names: Iterable[str]) -> None:
    """Refuse a column that says the same as the labels: features would predict wrong ones too."""
    labels = [str(cell) for cell in table.cells(label)]
    for name in names:
        cells = [str(cell) for cell in table.cells(name)]
        pairs = len(set(zip(labels, cells, strict=True)))
        if pairs == len(set(labels)) == len(set(cells)) > 1:
            raise LabelNoiseError(
                f"Expected columns that the labels do not follow from, but column {name!r} of "
                f"{table.source} says the same as {label!r}: leave it out with --drop {name}"
            )


@dataclass(frozen=True)
class Shown:
    """What is to be seen of the examples: the image, text or row of each, read when asked for."""

    source: Source
    names: Sequence[str]

    def content(self, row: int) -> tuple[str, Any]:
        """("image", Path), ("text", str), ("row", {column: cell}) or ("features", None)."""
        name = self.names[row]
        if self.source.kind == "images":
            return "image", Path(files_inside(self.source.path, [name])[0])
        if self.source.kind == "texts":
            return "text", str(self._texts[int(name)])
        if self.source.kind == "table":
            return "row", {column: cells[int(name)] for column, cells in self._cells.items()}
        return "features", None

    @cached_property
    def _texts(self) -> list[Any]:
        return self._whole(read_texts(self.source.path, self.source.text))

    @cached_property
    def _cells(self) -> dict[str, list[Any]]:
        table = read_table(self.source.path)
        # Without the label: whoever checks it shall not see it first.
        names = [name for name in table.columns if name != self.source.label]
        return {name: self._whole(table.cells(name)) for name in names}

    def _whole(self, cells: list[Any]) -> list[Any]:
        """Refuse a file that has become shorter."""
        if len(cells) <= max(map(int, self.names)):
            raise LabelNoiseError(
                f"Expected the {len(self.names)} examples that were audited in "
                f"{self.source.path}, but it has {len(cells)}: run labelnoise audit again"
            )
        return cells
