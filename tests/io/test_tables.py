"""Tables come out of every kind of file alike, and cells do no harm in a spreadsheet."""

import csv
import io
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest

from labelnoise import LabelNoiseError
from labelnoise.io.tables import read_table, safe_cell, table_of, undefused, write_table

ROWS = [
    ["name", "size", "label"],
    ["a.png", "1.5", "cat"],
    ['b "2".png', "-2", ""],
    ["ü\n,;", "", "=1"],
]


def written(path, rows, separator=",", encoding="utf-8"):
    text = io.StringIO()
    csv.writer(text, delimiter=separator).writerows(rows)
    path.write_text(text.getvalue(), encoding, newline="")
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_separators_are_recognised(tmp_path, separator, encoding):
    """Commas, semicolons and tabs, with a byte order mark or without one, give the same cells."""
    table = read_table(written(tmp_path / "t.csv", ROWS, separator, encoding))
    assert [*table.columns] == ROWS[0]
    assert [table.cells(name) for name in ROWS[0]] == [list(c) for c in zip(*ROWS[1:], strict=True)]
    assert table.n_rows == 3
    assert table.labels("label") == ["cat", None, "=1"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "it is empty"),
        ("\n\n", "it is empty"),
        ("a,b\n1,2,3\n", "Expected 2 columns, got 3"),
        ("a,b\n1\n", "Expected 2 columns, got 1"),
        ("a,a\n1,2\n", "two columns 'a'"),
        (b"a,b\n\xff,2\n", "[uU][tT][fF]"),
    ],
)
def test_broken_tables_are_one_sentence(tmp_path, content, problem):
    """One sentence says what is wrong with the file."""
    content = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(LabelNoiseError, match=f"Expected a CSV file in UTF-8, but .*{problem}"):
        read_table(tmp_path / "t.csv")


def test_long_texts_with_separators_in_them(tmp_path):
    """A text is neither cut where a sample of the file ends, nor too long."""
    rows = [["id", "text"], *([str(i), "one; two\n" * (5 if i else 20_000)] for i in range(40))]
    table = read_table(written(tmp_path / "t.csv", rows))
    assert table.cells("text") == [text for _, text in rows[1:]]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_no_cell_begins_a_formula(tmp_path, separator):
    """However a spreadsheet cuts the file, no cell begins with a sign; we read what was written."""
    signs = ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20"]
    cells = [f"{before}{sign}cmd()" for sign in signs for before in ("", "a\n", "a\t", "a;", "'")]
    cells += ["\t=1", "\r=1", "\n=1", "''=1", "-1", "+2.5e3", "it's", "'", ""]
    write_table(tmp_path / "t.csv", {"cell": cells, "other": cells})
    text = (tmp_path / "t.csv").read_text("utf-8")
    for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
        for cell in row:
            assert cell in ("-1", "+2.5e3", "-1,-1", "+2.5e3,+2.5e3") or cell[:1] not in signs
            for line in cell.splitlines():
                assert line in ("-1", "+2.5e3") or line[:1] not in signs or "," in line
    assert read_table(tmp_path / "t.csv").cells("other") == cells


def test_defusing_is_undone():
    """Each text comes back, also one that looks defused already."""
    for cell in ("=a", "'=a", "''=a", "a;=b", "a;'=b", "\t\t=", "-", "--1", "'", "it's"):
        assert undefused(safe_cell(cell)) == cell
    assert safe_cell(-1.5) == -1.5


FRAMES = [pd.DataFrame, pl.DataFrame, lambda columns: pytest.importorskip("pyarrow").table(columns)]


@pytest.mark.parametrize("make", FRAMES)
def test_frames_of_any_library(make):
    """The same numbers and cells, with missing ones."""
    table = table_of(make({"a": [1.0, None, 3.0], "b": ["x", "y", "z"], "c": [True, False, True]}))
    np.testing.assert_array_equal(table.numbers("a"), [1, np.nan, 3])
    assert table.cells("b") == ["x", "y", "z"]
    assert table.numbers("c").tolist() == [1, 0, 1]
    with pytest.raises(LabelNoiseError, match=r"columns of numbers.*'b' has String"):
        table.numbers("b")
    with pytest.raises(LabelNoiseError, match=r"a column 'd' in .*, but it has a, b, c"):
        table.column("d")


@pytest.mark.parametrize("frame", [{"a": [1]}, [[1]], "text", None])
def test_what_is_no_frame(frame):
    with pytest.raises(LabelNoiseError, match="Expected a data frame or a CSV file"):
        table_of(frame)


def test_packages_that_are_missing(tmp_path, monkeypatch):
    """Without pyarrow, Parquet says what to install, in a source checkout too."""
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "t.parquet").touch()
    with pytest.raises(LabelNoiseError, match=r"pip install '\.\[formats\]'"):
        read_table(tmp_path / "t.parquet")
