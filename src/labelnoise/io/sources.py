"""What an audit is of: where the examples and their labels are, and what one of them looks like."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from labelnoise._errors import LabelNoiseError
from labelnoise.io.features import Features
from labelnoise.io.images import files_inside
from labelnoise.io.labels import Labels, read_labels
from labelnoise.io.tables import Table, read_table

KINDS = ("images", "texts", "table", "features")


@dataclass(frozen=True)
class Source:
    """Examples and their labels, in the files that people have."""

    kind: str
    """One of `KINDS`."""
    path: str
    """The folder of images, the table, the file of texts or features, or the data set's folder."""
    labels: str
    """Where the labels are, as `read_labels` takes it."""
    label: str = "label"
    """The column of labels, where `labels` is a table and names none."""
    text: str | None = None
    """The column of texts, where there are several columns."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise LabelNoiseError(f"Expected a kind among {KINDS}, but kind = {self.kind!r}")

    def read_labels(self, features: Features) -> Labels:
        """Read the labels in the order of the features."""
        return read_labels(self.labels, features, self.label)

    def moved(self, start: str | os.PathLike[str], end: str | os.PathLike[str]) -> Source:
        """Give the same files as seen from another folder; absolute paths stay."""
        return replace(self, **{name: _moved(getattr(self, name), start, end) for name in _PATHS})


_PATHS = ("path", "labels")


def _moved(path: str, start: str | os.PathLike[str], end: str | os.PathLike[str]) -> str:
    return path if os.path.isabs(path) else os.path.relpath(os.path.join(start, path), end)


@dataclass(frozen=True)
class Shown:
    """What is to be seen of the examples: the image, text or row of each, read when asked for."""

    source: Source
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.names)

    def content(self, row: int) -> tuple[str, Any]:
        """("image", Path), ("text", str), ("row", {column: cell}) or ("features", None)."""
        name = self.names[row]
        if self.source.kind == "images":
            return "image", Path(files_inside(self.source.path, [name])[0])
        if self.source.kind == "texts":
            return "text", str(self._texts[int(name)])
        if self.source.kind == "table":
            table = self._table
            return "row", {column: self._cells[column][int(name)] for column in table.columns}
        return "features", None

    @cached_property
    def _texts(self) -> list[Any]:
        from labelnoise.io.texts import read_texts

        return self._whole(read_texts(self.source.path, self.source.text))

    @cached_property
    def _table(self) -> Table:
        return read_table(self.source.path)

    @cached_property
    def _cells(self) -> dict[str, list[Any]]:
        return {name: self._whole(self._table.cells(name)) for name in self._table.columns}

    def _whole(self, cells: list[Any]) -> list[Any]:
        """Refuse a file that has become shorter."""
        if len(cells) <= max(map(int, self.names)):
            raise LabelNoiseError(
                f"Expected the {len(self.names)} examples that were audited in "
                f"{self.source.path}, but it has {len(cells)}: run labelnoise audit again"
            )
        return cells
