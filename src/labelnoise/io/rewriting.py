"""A table with some cells replaced, and everything else as it was."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from labelnoise.io.atomic import write_then_rename
from labelnoise.io.packages import explained, package
from labelnoise.io.tables import Table, read_arrow, safe_cell, undefused

_SEPARATORS = ",;\t"


class _Cell(NamedTuple):
    start: int
    end: int
    value: str


def rewrite_table(
    table: Table, path: str | os.PathLike[str], column: str, new: Mapping[int, Any]
) -> bool:
    """Write the file of a table with new cells {row: value} in a column.

    In a CSV file every other byte stays; in Parquet and Arrow files types and metadata do. False,
    and nothing is written, if the file cannot be taken apart with certainty.
    """
    source = Path(table.source)
    if source.suffix.lower() != Path(path).suffix.lower() or not source.is_file():
        return False
    if not table.has_texts:
        _rewrite_arrow(source, path, column, new)
        return True
    text = source.read_bytes().decode()
    for separator in _SEPARATORS:
        cells = list(_column(text, separator, list(table.columns).index(column)))
        found, expected = [undefused(cell.value) for cell in cells], list(table.cells(column))
        for header in (1, 0):
            if found[header:] == expected:
                content = _replaced(text, separator, cells[header:], new)
                with write_then_rename(path) as file:
                    file.write(content.encode())
                return True
    return False


def _column(text: str, separator: str, place: int) -> Iterator[_Cell]:
    """The cells of a column, the header's first; lines without a cell are left out."""
    field = re.compile(
        rf'("(?:[^"]|"")*"?[^{separator}\r\n]*|[^{separator}\r\n]*)({separator}|\r\n|\r|\n|\Z)'
    )
    at, number = int(text.startswith("\ufeff")), 0
    while at < len(text) and (match := field.match(text, at)):
        at = match.end()
        cell, end = match.groups()
        if not cell and not number and end != separator:
            continue
        if number == place:
            inner = cell[1:-1].replace('""', '"') if cell.startswith('"') else cell
            yield _Cell(match.start(1), match.end(1), inner)
        number = number + 1 if end == separator else 0


def _replaced(text: str, separator: str, cells: list[_Cell], new: Mapping[int, Any]) -> str:
    parts, last = [], 0
    for row in sorted(new):
        start, end, _ = cells[row]
        value = "" if new[row] is None else str(safe_cell(new[row]))
        if text[start:end].startswith('"') or any(sign in value for sign in f'{separator}"\r\n'):
            value = '"' + value.replace('"', '""') + '"'
        parts += [text[last:start], value]
        last = end
    return "".join([*parts, text[last:]])


def _rewrite_arrow(
    source: Path, path: str | os.PathLike[str], column: str, new: Mapping[int, Any]
) -> None:
    arrow, parquet = package("pyarrow", "formats"), package("pyarrow.parquet", "formats")
    in_parquet = source.suffix.lower() == ".parquet"
    table = parquet.ParquetFile(source).read() if in_parquet else read_arrow(source)
    place = table.schema.get_field_index(column)
    values = table.column(place).to_pylist()
    for row, value in new.items():
        values[row] = value
    with explained(f"Expected labels of the type that {source} has in column {column!r}"):
        column_of = arrow.array(values, table.schema.field(place).type)
    table = table.set_column(place, table.schema.field(place), column_of)
    with write_then_rename(path) as file:
        if in_parquet:
            parquet.write_table(table, file)
        else:
            with arrow.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
