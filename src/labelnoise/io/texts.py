"""Texts in files: one a line, or a column of a table."""

from __future__ import annotations

import os
from typing import Any

from labelnoise.io.packages import explained
from labelnoise.io.tables import read_table


def read_texts(source: Any, column: str | None = None) -> list[Any]:
    """Read the texts of a list, of the lines of a .txt file, or of a table's column.

    The column is "text", or else the first, unless it is named.
    """
    if not isinstance(source, str | os.PathLike):
        return list(source)
    if not os.fspath(source).lower().endswith(".txt"):
        table = read_table(source)
        usual = "text" if "text" in table.columns else next(iter(table.columns))
        return table.cells(table.column(column or usual))
    with (
        explained(f"Expected a text file in UTF-8, but {source} cannot be read"),
        open(source, encoding="utf-8-sig") as file,
    ):
        return [line.rstrip("\n") for line in file]
