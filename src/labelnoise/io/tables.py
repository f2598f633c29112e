"""Tables: CSV files and data frames, Parquet and Arrow files, as columns by name.

Cells of a CSV file are texts until somebody asks for numbers or labels.
"""

from __future__ import annotations

import csv
import io
import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.io.arrays import listed
from labelnoise.io.atomic import write_then_rename
from labelnoise.io.memory import expect_room
from labelnoise.io.packages import explained, package

TABLES = (".csv", ".tsv", ".parquet", ".arrow", ".feather")
_TEXTS = (".csv", ".tsv")
_SEPARATORS = ",;\t"
_SAMPLE = 20  # lines by which the separator is recognised
_CELL_FACTOR = 12  # bytes of Python strings for a byte of a CSV file
_LONGEST_CELL = 2**25  # characters of a CSV file's cell

# A spreadsheet runs a cell that begins with one of these signs, also as a full-width character.
# It may cut a cell at a separator that is not this file's, and begin another one there.
_SIGNS = "=+\\-@\uff1d\uff0b\uff0d\uff20"
_FORMULA = re.compile(rf"(^|[;\t\r\n])(?='*[{_SIGNS}\t\r\n])")
_DEFUSED = re.compile(rf"(^|[;\t\r\n])'(?='*[{_SIGNS}\t\r\n])")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
Column = Sequence[Any] | np.ndarray


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length."""

    source: str
    columns: dict[str, Any]
    """A narwhals series, or a list of texts, by its name."""
    n_rows: int

    def __post_init__(self) -> None:
        if not self.columns:
            raise LabelNoiseError(
                f"Expected a table with columns, but {self.source} has no columns"
            )

    def cells(self, name: str) -> list[Any]:
        """Give the values of a column as they are: texts, if it is a CSV file."""
        column = self.columns[name]
        return column if isinstance(column, list) else list(column.to_list())

    @property
    def has_texts(self) -> bool:
        """Whether it is a CSV file, whose cells have no types."""
        return self.source.lower().endswith(_TEXTS)

    def labels(self, name: str) -> list[Any]:
        """Give a column as labels, None where there is none."""
        return typed(self.cells(name)) if self.has_texts else self.cells(name)

    def column(self, *names: str) -> str:
        """Give the first of these names that is a column."""
        for name in names:
            if name in self.columns:
                return name
        raise LabelNoiseError(
            f"Expected a column {names[0]!r} in {self.source}, but it has {listed(self.columns)}: "
            f"name one, as in {self.source}:{[*self.columns][-1]}"
        )

    def numbers(self, name: str) -> np.ndarray:
        """Give a column of numbers."""
        if not self.has_texts:
            series = self.columns[name]
            if not (series.dtype.is_numeric() or series.dtype == nw.Boolean):
                raise LabelNoiseError(
                    f"Expected columns of numbers, or one of lists, in {self.source}, but "
                    f"{name!r} has {series.dtype}"
                )
            return np.asarray(series.to_numpy())
        cells = self.cells(name)
        try:
            return np.array([float(cell) for cell in cells])
        except ValueError:
            row = next(i for i, cell in enumerate(cells) if not is_number(cell))
            comma = ": write a decimal point" if is_number(cells[row].replace(",", ".")) else ""
            raise LabelNoiseError(
                f"Expected numbers in {self.source}, but {cells[row]!r} in row {row} of column "
                f"{name!r} is none{comma}"
            ) from None


def read_table(source: str | os.PathLike[str], header: bool | None = True) -> Table:
    """Read a table; of CSV without a header, columns are called 0, 1 and so on.

    Parameters
    ----------
    header : bool, optional
        Whether a CSV file has one. None: unless its first line is all numbers.
    """
    path = Path(source)
    suffix = path.suffix.lower()
    if suffix not in TABLES:
        raise LabelNoiseError(f"Expected a table, {', '.join(TABLES)}, but it is {path}")
    with explained(
        f"Expected a {'CSV file in UTF-8' if suffix in _TEXTS else 'table'}, but {path}"
        f" cannot be read"
    ):
        if suffix in _TEXTS:
            return _read_csv(path, header)
        table = _read_parquet(path) if suffix == ".parquet" else read_arrow(path)
        table.validate(full=True)  # Arrow trusts what a file says, and crashes if it lies
        return table_of(table, str(path))


def table_of(frame: Any, source: str = "the data frame") -> Table:
    """Take a data frame of pandas, polars, pyarrow or another library that narwhals knows."""
    try:
        data = nw.from_native(frame, eager_only=True)
        names = [str(name) for name in data.columns]
    except TypeError as error:
        raise LabelNoiseError(f"Expected a data frame or a CSV file, but {error}") from error
    except nw.exceptions.DuplicateError as error:
        twice = str(error).partition("- ")[2].partition("\n")[0]
        raise LabelNoiseError(
            f"Expected columns with distinct names, but {source} has {twice}"
        ) from error
    return Table(source, dict(zip(names, data.iter_columns(), strict=True)), len(data))


def _read_csv(path: Path, header: bool | None) -> Table:
    with open(path, newline="", encoding="utf-8-sig") as file:
        lines = [*itertools.islice(file, _SAMPLE)]
        complete = not file.readline()
    separator, first = _separator(lines, complete)
    if not first:
        raise ValueError("it is empty")
    if header is None:
        header = not all(map(is_number, first))
    names = [cell.strip() for cell in first] if header else [str(i) for i in range(len(first))]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"it has two columns {twice[0]!r}")
    expect_room(path, _CELL_FACTOR * os.path.getsize(path))
    limit = csv.field_size_limit(_LONGEST_CELL)
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file, delimiter=separator, strict=True) if row]
    finally:
        csv.field_size_limit(limit)
    if ragged := [row for row in rows if len(row) != len(first)]:
        row = separator.join(ragged[0])
        raise ValueError(f"Expected {len(first)} columns, got {len(ragged[0])}: {row}")
    cells = zip(*rows[header:], strict=True) if len(rows) > header else ([] for _ in names)
    columns = [[undefused(cell) if "'" in cell else cell for cell in column] for column in cells]
    return Table(str(path), dict(zip(names, columns, strict=True)), len(columns[0]))


def _separator(lines: list[str], complete: bool) -> tuple[str, list[str]]:
    """The separator that gives these lines the most cells, as many in each; and the first row."""
    best, rows = ",", [row for row in csv.reader(lines) if row]
    for separator in _SEPARATORS:
        others = [row for row in csv.reader(lines, delimiter=separator) if row]
        # The last row of a longer file may be cut in the middle of a text of several lines.
        widths = {len(row) for row in (others if complete else others[:-1])}
        if len(widths) == 1 and widths.pop() > len(rows[0]):
            best, rows = separator, others
    return best, rows[0] if rows else []


def _read_parquet(path: Path) -> Any:
    file = package("pyarrow.parquet", "formats").ParquetFile(path, memory_map=True)
    expect_room(path, 8 * file.metadata.num_rows * file.metadata.num_columns)
    return file.read()


def read_arrow(path: Path) -> Any:
    """Read an Arrow file or stream as a table of pyarrow, which trusts it: see its `validate`."""
    arrow = package("pyarrow", "formats")
    source = arrow.memory_map(str(path))
    try:
        return arrow.ipc.open_file(source).read_all()
    except arrow.ArrowInvalid:
        source.seek(0)
        return arrow.ipc.open_stream(source).read_all()


def write_table(path: str | os.PathLike[str], columns: Mapping[str, Column]) -> None:
    """Write columns of one length to a .csv, .tsv or .parquet file."""
    lists = {name: np.asarray(values, object).tolist() for name, values in columns.items()}
    rows = zip(*lists.values(), strict=True)
    with write_then_rename(path) as file:
        if Path(path).suffix.lower() == ".parquet":
            table = package("pyarrow", "formats").table(lists)
            package("pyarrow.parquet", "formats").write_table(table, file)
        else:
            separator = "\t" if Path(path).suffix.lower() == ".tsv" else ","
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n", delimiter=separator)
            quoting = csv.writer(text, csv.unix_dialect, delimiter=separator)
            for row in ([*lists], *rows):
                # The writer leaves a carriage return unquoted, where readers end the line.
                returns = any("\r" in cell for cell in row if isinstance(cell, str))
                (quoting if returns else writer).writerow([safe_cell(cell) for cell in row])
            file.write(text.getvalue().encode("utf-8", "surrogateescape"))


def safe_cell(value: Any) -> Any:
    """Put an apostrophe where a spreadsheet would read a formula; `undefused` removes it."""
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    return _FORMULA.sub(r"\1'", value)


def undefused(cell: str) -> str:
    """Give the text that `safe_cell` was given."""
    return _DEFUSED.sub(r"\1", cell)


def typed(cells: Iterable[str]) -> list[Any]:
    """Cells as whole numbers, or as numbers, if all are; None where there is nothing."""
    cells = [cell.strip() for cell in cells]
    for kind in (int, float):
        # 007 is no number: as one, it would lose its zeros.
        with suppress(ValueError):
            values = [kind(cell) if cell else None for cell in cells]
            if all(not cell or str(v) == cell for v, cell in zip(values, cells, strict=True)):
                return values
    return [cell or None for cell in cells]


def is_number(text: str) -> bool:
    """Whether Python reads a text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
