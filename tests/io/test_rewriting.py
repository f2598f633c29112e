"""New labels in a table's file leave all else in it as it was."""

import numpy as np
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest

from labelnoise.io.labels import read_labels, write_labels


def rewritten(path, out, changes, source=None):
    """Read the labels of a file, change some rows, write them."""
    labels = read_labels(str(source or path))
    new = labels.array.astype(object)
    for row, label in changes.items():
        new[row] = label
    write_labels(out, labels, new)
    return labels


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id,label\n1,a\n2,b\n", "id,label\n1,a\n2,c\n"),
        ("id,label\r\n1,a\r\n2,b", "id,label\r\n1,a\r\n2,c"),
        ("id;label\n1;a\n2;b\n", "id;label\n1;a\n2;c\n"),
        ('"id";"label"\n"1";"a"\n"2";"b"\n', '"id";"label"\n"1";"a"\n"2";"c"\n'),
        ("\ufeffid,label,note\n1,a,x\n2,b, y \n", "\ufeffid,label,note\n1,a,x\n2,c, y \n"),
        ("label,n\na,1.50\n\nb,2e3\n\n", "label,n\na,1.50\n\nc,2e3\n\n"),
        ('t,label\n"p, ""q""\n\nr",a\nw"x",b\n', 't,label\n"p, ""q""\n\nr",a\nw"x",c\n'),
        ("t,label\n'=1,a\n=2,b\n", "t,label\n'=1,a\n=2,c\n"),
        ("a\nb\n", "a\nc\n"),
        ("id,label\n1, a\n2, b \n", "id,label\n1, a\n2,c\n"),
    ],
)
def test_csv_keeps_every_other_byte(tmp_path, text, expected):
    (tmp_path / "labels.csv").write_bytes(text.encode())
    rewritten(tmp_path / "labels.csv", tmp_path / "new.csv", {1: "c"})
    assert (tmp_path / "new.csv").read_bytes().decode() == expected


@pytest.mark.parametrize("label", ["x,y", 'say "x"', "two\nlines", "=1+1", "é"])
def test_labels_that_need_quotes(tmp_path, label):
    """They are read again as they were given."""
    path, new = tmp_path / "labels.csv", tmp_path / "new.csv"
    path.write_text("label,n\na,1\nb,2\n")
    rewritten(path, new, {0: label})
    assert read_labels(str(new)).array.tolist() == [label, "b"]
    assert new.read_text().endswith("\nb,2\n")


def test_numbers_stay_as_they_were_written(tmp_path):
    """Only the row that changed is written anew."""
    path, new = tmp_path / "labels.tsv", tmp_path / "new.tsv"
    path.write_text("x\tlabel\n1.0\t3\n1e0\t4\n")
    rewritten(path, new, {1: 3})
    assert new.read_text() == "x\tlabel\n1.0\t3\n1e0\t3\n"


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_types_and_metadata_stay(tmp_path, suffix):
    """Of all columns, the labels' included."""
    schema = pyarrow.schema(
        [
            ("n", pyarrow.int16()),
            ("label", pyarrow.dictionary(pyarrow.int8(), pyarrow.string())),
            ("at", pyarrow.timestamp("ms")),
        ],
        metadata={"made by": "a person"},
    )
    table = pyarrow.table({"n": [1, 2], "label": ["a", "b"], "at": [0, 1]}, schema)
    path, out = (tmp_path / f"{name}{suffix}" for name in ("labels", "new"))
    if suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        with pyarrow.ipc.new_file(path, schema) as file:
            file.write_table(table)
    rewritten(path, out, {0: "b"}, f"{path}:label")
    read = pyarrow.parquet.read_table if suffix == ".parquet" else pyarrow.feather.read_table
    found = read(out)
    assert found.schema.equals(schema, check_metadata=True)
    assert found.to_pydict() == table.to_pydict() | {"label": ["b", "b"]}


def test_another_format_gets_the_same_columns(tmp_path):
    path, new = tmp_path / "labels.csv", tmp_path / "new.tsv"
    path.write_text("id,label\n1,a\n2,b\n")
    rewritten(path, new, {1: "a"})
    assert new.read_text() == "id\tlabel\n1\ta\n2\ta\n"
    assert np.array_equal(read_labels(str(new)).array, ["a", "a"])
