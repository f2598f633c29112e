"""What was found: checked labels in any form that people keep them in."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.io.tables import read_table, table_of
from labelnoise.labels import missing_among

_DESIGN = ("stratum", "stratum_size")
# As cleanlab and lists of suspects call them.
_ALIASES = {
    "given_label": ("given label",),
    "suggested_label": ("predicted_label", "suggested label"),
}
_COLUMNS = ("row", "true_label", "given_label", "suggested_label", *_DESIGN)


class Design(NamedTuple):
    """The rows that tables list, each with its stratum, and how large the strata are."""

    place: np.ndarray
    stratum: np.ndarray
    sizes: np.ndarray


@dataclass(frozen=True, eq=False)
class Answers:
    """Verified labels of m examples, and how their rows were chosen."""

    place: np.ndarray
    """(m,) which of the labelled examples."""
    truth: np.ndarray
    """(m,) class numbers."""
    stratum: np.ndarray
    """(m,) stratum of the sample, 0 to H - 1; -1: the row was chosen otherwise."""
    sizes: np.ndarray
    """(H,) labels in each stratum."""
    suggested: np.ndarray
    """(m,) class numbers that the model suggested beside the answer; -1: none was shown."""
    skipped: int = 0
    """Rows of the sample without an answer that stand above one with an answer."""

    def __len__(self) -> int:
        return len(self.place)

    @property
    def sampled(self) -> np.ndarray:
        """(m,) whether the row belongs to a random sample."""
        return self.stratum >= 0


def read_answers(
    verified: Any,
    labels: np.ndarray,
    classes: np.ndarray,
    *,
    rows: np.ndarray | None = None,
    random_sample: bool = False,
) -> Answers:
    """Read verified labels.

    Parameters
    ----------
    verified : mapping, Series, data frame, path of a CSV file, or a list of these
        A mapping {row: label}, a Series of labels by row, or a table with columns `row` and
        `true_label`, and `stratum` and `stratum_size` where it comes from `draw_sample`: as a data
        frame, a mapping of columns, or a CSV file. Other columns are ignored, and so are rows
        without a true label.
    labels : int array of shape (N,)
        Given class numbers of the labelled examples.
    classes : array of shape (K,)
        What the class numbers stand for.
    rows : int array of shape (N,), optional
        Row numbers in the user's data, in increasing order. Default: 0 to N - 1.
    random_sample : bool, default=False
        Whether rows without a stratum were drawn at random from all labelled examples.
    """
    rows = np.arange(len(labels)) if rows is None else rows
    number = {str(name): k for k, name in enumerate(classes.tolist())}
    truth, suggested = np.full(len(labels), -1), np.full(len(labels), -1)
    tables = _tables(verified)
    for table in tables:
        row = _row_numbers(table)
        place = _places(row, rows)
        if "given_label" in table:
            _expect_given(_classes(table["given_label"], row, number), labels[place], row, classes)
        if "suggested_label" in table:
            suggested[place] = _classes(table["suggested_label"], row, number)
        _enter(truth, place, _classes(table["true_label"], row, number), row, classes)
    places = np.flatnonzero(truth >= 0)
    if not len(places):
        raise LabelNoiseError("Expected at least one verified label, but true_label is empty")
    design = _design(tables, rows)
    if random_sample:
        if len(design.place):
            raise LabelNoiseError(
                "Expected random_sample=False for a table with strata, which says itself how its "
                "rows were chosen"
            )
        design = Design(places, np.zeros(len(places), np.intp), np.array([len(labels)]))
    done = np.isin(design.place, places)
    stratum = np.full(len(labels), -1)
    stratum[design.place] = design.stratum
    return Answers(
        places,
        truth[places],
        stratum[places],
        design.sizes,
        suggested[places],
        int((~done[: done.nonzero()[0].max(initial=-1) + 1]).sum()),
    )


def _enter(
    truth: np.ndarray, place: np.ndarray, true: np.ndarray, row: np.ndarray, classes: np.ndarray
) -> None:
    """Enter class numbers into `truth` (N,), which must not contradict those that are there."""
    for r, n, t in zip(row.tolist(), place.tolist(), true.tolist(), strict=True):
        if t >= 0 and truth[n] not in (-1, t):
            raise LabelNoiseError(
                f"Expected one true label for each row, but row {r} has "
                f"{classes[truth[n]]!s} and {classes[t]!s}"
            )
        if t >= 0:
            truth[n] = t


def read_design(tables: Any, rows: np.ndarray) -> Design:
    """Read which rows earlier tables listed, whether answered or not."""
    return _design(_tables(tables), rows)


def _tables(source: Any) -> list[dict[str, list[Any]]]:
    return [_columns(part) for part in (source if isinstance(source, list | tuple) else [source])]


def _row_numbers(table: Mapping[str, Sequence[Any]]) -> np.ndarray:
    row = _whole(table["row"], "row")
    if (row < 0).any():
        raise LabelNoiseError("Expected a number in each cell of the column row, but one is empty")
    return row


def _design(tables: Sequence[Mapping[str, Sequence[Any]]], rows: np.ndarray) -> Design:
    stratum: dict[int, int] = {}
    size: dict[int, int] = {}
    for table in tables:
        drawn = [_whole(table[name], name) for name in _DESIGN if name in table]
        if len(drawn) == 1:
            raise LabelNoiseError(
                f"Expected a table with both columns {' and '.join(_DESIGN)}, or with neither, but "
                f"one is missing"
            )
        if drawn:
            row = _row_numbers(table)
            inside = drawn[0] >= 0  # rows that somebody added have no stratum
            of, of_size = (values[inside].tolist() for values in drawn)
            stratum.update(zip(_places(row[inside], rows).tolist(), of, strict=True))
            for r, s, n in zip(row[inside].tolist(), of, of_size, strict=True):
                if size.setdefault(s, n) != n:
                    raise LabelNoiseError(
                        f"Expected one stratum_size for each stratum, but stratum {s} has "
                        f"{size[s]} and, in row {r}, {n}"
                    )
    if size and (sum(size.values()) != len(rows) or sorted(size) != list(range(len(size)))):
        raise LabelNoiseError(
            f"Expected strata that add up to the {len(rows)} labelled examples, but they add up "
            f"to {sum(size.values())}: the table was drawn from other data, or all rows of a "
            f"stratum were deleted"
        )
    return Design(
        np.array(list(stratum), np.intp),
        np.array(list(stratum.values()), np.intp),
        np.array([size[s] for s in sorted(size)], np.intp),
    )


def _columns(source: Any) -> dict[str, list[Any]]:
    """The columns of a table that are known, as lists of one length."""
    if isinstance(source, str | os.PathLike):
        file = read_table(source)
        table: Any = {name: file.cells(name) for name in file.columns}
    elif callable(getattr(source, "columns", None)):  # a Sample
        table = source.columns()
    elif hasattr(source, "columns"):
        frame = table_of(source)
        table = {name: frame.cells(name) for name in frame.columns}
    elif isinstance(source, Mapping):
        words = bool(source) and all(isinstance(key, str) for key in source)
        table = source if words else {"row": list(source), "true_label": list(source.values())}
    elif hasattr(source, "index") and hasattr(source, "to_numpy"):
        table = {"row": source.index, "true_label": source}
    else:
        raise LabelNoiseError(
            f"Expected verified labels as a mapping {{row: label}}, a Series, a table or the path "
            f"of a file, but they are of type {type(source).__name__}"
        )
    missing = [name for name in ("row", "true_label") if name not in table]
    if missing:
        raise LabelNoiseError(
            f"Expected a table with the columns row and true_label, but it has no {missing[0]}: "
            f"write what you found into a column true_label, and leave it empty elsewhere"
        )
    table = dict(table)
    for name, others in _ALIASES.items():
        for other in others:
            if other in table:
                table.setdefault(name, table[other])
    columns = {name: _listed(table[name]) for name in _COLUMNS if name in table}
    if len({len(values) for values in columns.values()}) > 1:
        raise LabelNoiseError(
            f"Expected columns of one length, but they are of {[len(v) for v in columns.values()]}"
        )
    # A spreadsheet may leave empty rows below the table.
    pairs = zip(columns["row"], columns["true_label"], strict=True)
    kept = [i for i, pair in enumerate(pairs) if pair != (None, None)]
    return {name: [values[i] for i in kept] for name, values in columns.items()}


def _listed(values: Any) -> list[Any]:
    """Python objects, None where a cell is empty or missing."""
    found = np.array(values.tolist() if hasattr(values, "tolist") else list(values), object)
    empty = missing_among(found)
    cells = [value.strip() if isinstance(value, str) else value for value in found.tolist()]
    return [None if gone or cell == "" else cell for cell, gone in zip(cells, empty, strict=True)]


def _whole(values: Sequence[Any], name: str) -> np.ndarray:
    """Whole numbers, -1 where there is none; a spreadsheet may have written 17 as 17.0."""
    found = np.full(len(values), -1, np.intp)
    for i, value in enumerate(values):
        if value is None:
            continue
        try:
            number = float(value)
            if isinstance(value, bool) or number != int(number) or number < 0:
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            raise LabelNoiseError(
                f"Expected {name} to be whole numbers >= 0, but one is {value!r}"
            ) from None
        found[i] = int(number)
    return found


def _places(row: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Where rows of the user's data are among the labelled examples."""
    place = np.minimum(np.searchsorted(rows, row), len(rows) - 1)
    unknown = row[rows[place] != row]
    if len(unknown):
        raise LabelNoiseError(
            f"Expected verified rows that are labelled examples of the data, but row {unknown[0]} "
            f"is none ({len(unknown)} such rows)"
        )
    return place


def _classes(values: Sequence[Any], row: np.ndarray, number: Mapping[str, int]) -> np.ndarray:
    """Class numbers, -1 where there is no answer."""
    found = np.full(len(values), -1, np.intp)
    unknown = []
    for i, value in enumerate(values):
        if value is None:
            continue
        name = str(value)
        if name not in number:  # a spreadsheet may have written 3 as 3.0
            name = name.removesuffix(".0")
        found[i] = number.get(name, -1)
        if found[i] < 0:
            unknown.append((int(row[i]), value))
    if unknown:
        names = ", ".join(list(number)[:8]) + (", ..." if len(number) > 8 else "")
        raise LabelNoiseError(
            f"Expected labels among the classes {names}, but row {unknown[0][0]} has "
            f"{unknown[0][1]!r} ({len(unknown)} such rows). Leave the cell empty where none fits"
        )
    return found


def _expect_given(
    given: np.ndarray, labels: np.ndarray, row: np.ndarray, classes: np.ndarray
) -> None:
    other = np.flatnonzero((given >= 0) & (given != labels))
    if len(other):
        i = other[0]
        raise LabelNoiseError(
            f"Expected the given labels of the data, but row {row[i]} is labelled "
            f"{classes[labels[i]]!s} there and {classes[given[i]]!s} in the table "
            f"({len(other)} such rows): was it drawn from other data?"
        )
