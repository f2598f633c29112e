"""Features and labels come out of every format as they went in, and bad files in one sentence."""

import csv
import os

import numpy as np
import pyarrow
import pytest
import safetensors.numpy
import torch
from pyarrow import parquet

from labelnoise import HOC, GroupHOC, LabelNoiseError
from labelnoise.io.features import read_features
from labelnoise.io.labels import Labels, read_labels, write_labels
from labelnoise.io.outputs import check_outputs, names_file
from labelnoise.io.results import write_estimate
from labelnoise.io.tables import write_table
from tests.conftest import clusters

X = np.arange(12, dtype=np.float32).reshape(4, 3) / 8
Y = np.array(["cat", "dog", "cat", "owl"])
NAMES = ["a.png", "b.png", "c.png", "d.png"]


def write_csv(path, *rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(rows)


def embedding(path, names, failed=()):
    """What `labelnoise embed` leaves behind."""
    np.save(path, X[: len(names)])
    lines = [[name, ""] for name in names] + [[name, "broken"] for name in failed]
    write_csv(names_file(path), ["name", "problem"], *lines)
    return read_features(str(path))


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with the same features and labels in all formats."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.save("y.npy", Y)
    np.savez("both.npz", x=X, y=Y, note=np.array("text"))
    np.savez("mixed.npz", x=X, y=np.array([None]))
    np.savez("columns.npz", x=np.asfortranarray(X))
    np.savez_compressed("small.npz", x=X)
    np.savetxt("numbers.csv", X, delimiter=",")
    write_csv("alone.csv", *[[label] for label in Y])
    rows = [[name, *row, label] for name, row, label in zip(NAMES, X, Y, strict=True)]
    write_csv("table.csv", ["path", "f0", "f1", "f2", "label"], *rows)
    lists = pyarrow.table({"id": NAMES, "text": NAMES, "vector": list(X), "label": Y.tolist()})
    parquet.write_table(lists, "lists.parquet")
    for name, writer in (
        ("stream.arrow", pyarrow.ipc.new_stream),
        ("file.feather", pyarrow.ipc.new_file),
    ):
        with pyarrow.OSFile(name, "wb") as file, writer(file, lists.schema) as out:
            out.write_table(lists)
    numbers = {f"f{i}": X[:, i] for i in range(3)}
    parquet.write_table(pyarrow.table(numbers | {"label": Y}), "numbers.parquet")
    safetensors.numpy.save_file({"x": X, "other": X[0]}, "x.safetensors")
    torch.save({"x": torch.from_numpy(X).bfloat16(), "epoch": 3}, "x.pt")
    torch.save(torch.from_numpy(X), "x.pth")
    return tmp_path


@pytest.mark.parametrize(
    "source",
    [
        *(
            "x.npy",
            "both.npz",
            "both.npz:x",
            "mixed.npz:x",
            "columns.npz",
            "small.npz",
            "numbers.csv",
        ),
        *("table.csv", "lists.parquet", "lists.parquet:vector", "stream.arrow", "file.feather"),
        *("numbers.parquet", "x.safetensors", "x.safetensors:x", "x.pt", "x.pth"),
    ],
)
def test_features_of_every_format(files, source):
    """The same numbers, whatever the file."""
    np.testing.assert_array_equal(read_features(source).array, X)


def test_arrays_stay_in_their_file(files):
    """Large arrays are mapped, not read."""
    assert isinstance(read_features("x.npy").array, np.memmap)


@pytest.mark.parametrize(
    "source",
    [
        *("y.npy", "both.npz:y", "both.npz", "alone.csv", "table.csv", "table.csv:label"),
        *("lists.parquet", "stream.arrow", "file.feather:label", "numbers.parquet"),
    ],
)
def test_labels_of_every_format(files, source):
    """The same labels, whatever the file."""
    assert read_labels(source, read_features("x.npy")).array.tolist() == Y.tolist()


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["3", "-1", ""], [3, -1, None]),
        (["1.0", "nan", "2.0"], [1.0, pytest.approx(float("nan"), nan_ok=True), 2.0]),
        (["007", "7", "8"], ["007", "7", "8"]),
        ([" a", "'=b", "'c"], ["a", "=b", "'c"]),
    ],
)
def test_cells_become_labels(tmp_path, cells, expected):
    """Numbers where all are, zeros in front kept, empty is unlabelled, our apostrophes removed."""
    write_csv(tmp_path / "y.csv", ["id", "label"], *[[i, cell] for i, cell in enumerate(cells)])
    assert read_labels(str(tmp_path / "y.csv")).array.tolist() == expected


@pytest.mark.parametrize("read", [read_features, read_labels])
@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (pyarrow.table({}), r"a table with columns, but .*x\.arrow has no columns"),
        (pyarrow.table([[1.0], [2.0]], names=["a", "a"]), r".*x\.arrow has 'a' 2 times"),
    ],
)
def test_tables_without_columns_or_with_equal_names(tmp_path, read, table, problem):
    with pyarrow.ipc.new_file(str(tmp_path / "x.arrow"), table.schema) as out:
        out.write_table(table)
    with pytest.raises(LabelNoiseError, match=problem):
        read(str(tmp_path / "x.arrow"))


def test_labels_are_matched_by_name(tmp_path):
    """The order of the labels does not matter, nor labels of images that could not be read."""
    features = embedding(tmp_path / "x.npy", NAMES[:3], failed=["d.png"])
    rows = list(zip(NAMES, Y, strict=True))[::-1]
    write_csv(tmp_path / "y.csv", ["path", "label"], *rows)
    assert read_labels(str(tmp_path / "y.csv"), features).array.tolist() == Y[:3].tolist()
    for changed, problem in (
        (rows[:-1], r"'a.png' is not there, where names are like 'd.png' \(1 such"),
        ([*rows, rows[0]], "'d.png' is there twice"),
        ([*rows, ("e.png", "cat")], "'e.png' has no features"),
    ):
        write_csv(tmp_path / "y.csv", ["path", "label"], *changed)
        with pytest.raises(LabelNoiseError, match=problem):
            read_labels(str(tmp_path / "y.csv"), features)


def test_labels_of_numbered_rows_skip_the_failed(tmp_path):
    """Texts are numbered: the label of one that was empty is left out."""
    features = embedding(tmp_path / "x.npy", ["0", "2", "3"], failed=["1"])
    write_csv(tmp_path / "y.csv", ["text", "label"], *[("some text", label) for label in Y])
    labels = read_labels(str(tmp_path / "y.csv"), features)
    assert labels.array.tolist() == ["cat", "cat", "owl"]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("no.npy", "does not exist"),
        ("x.xlsx", "a file ending in"),
        ("y.npy", "table of numbers"),
        ("both.npz:z", r"'z' in both.npz, but it has x \(4, 3\), y"),
        ("x.npy:z", "one array"),
        ("table.csv:f0", "one column of lists"),
        ("alone.csv", "'dog' in row 0 of column 'cat'"),
        ("lists.parquet:text", "one column of lists"),
        ("words.csv", "to be a header or all numbers"),
        ("ragged.csv", "cannot be read"),
        ("empty.csv", "it is empty"),
        ("header.csv", "there is no row"),
        ("comma.csv", "'0,5' in row 1 of column 'a' is none: write a decimal point"),
        ("two.npz", "one array with 2 axes"),
        *((f"broken{end}", "cannot be read") for end in (".npy", ".npz", ".parquet", ".arrow")),
        *((f"broken{end}", "cannot be read") for end in (".safetensors", ".pt")),
    ],
)
def test_bad_features_are_one_sentence(files, source, problem):
    """Whatever is wrong with a file is said in one sentence."""
    for end in (".npy", ".npz", ".parquet", ".arrow", ".safetensors", ".pt"):
        (files / f"broken{end}").write_bytes(b"\x93NUMPY not really")
    np.savez("two.npz", a=X, b=X)
    write_csv("words.csv", ["a.png", 0.5, 0.25])
    write_csv("ragged.csv", [1, 2], [3])
    (files / "empty.csv").touch()
    write_csv("header.csv", ["a", "b"])
    (files / "comma.csv").write_text("a;b\n1;2\n0,5;1\n")
    with pytest.raises(LabelNoiseError, match=problem) as caught:
        read_features(source)
    assert str(caught.value).startswith("Expected")
    assert "\n" not in str(caught.value)


class Trap:
    """Unpickling it leaves a folder behind."""

    def __reduce__(self):
        return os.mkdir, ("sprung",)


@pytest.mark.parametrize("end", [".npy", ".npz", ".pt"])
def test_pickles_are_never_opened(tmp_path, monkeypatch, end):
    """A file that would run code when unpickled is refused, and runs none."""
    monkeypatch.chdir(tmp_path)
    trap = np.array([[Trap()]])
    write = {".npy": np.save, ".npz": np.savez, ".pt": lambda path, _: torch.save(Trap(), path)}
    write[end](f"x{end}", trap)
    with pytest.raises(LabelNoiseError, match="cannot be read"):
        read_features(f"x{end}")
    assert os.listdir() == [f"x{end}"]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("x.npy", r"shape is \(4, 3\)"),
        ("both.npz:note", r"shape is \(\)"),
        ("nothing.csv", "there is not one row"),
        ("table.csv:colour", "'colour' in table.csv, but it has path, f0"),
        ("numbers.csv", "a column 'label'"),
        ("header.csv", "5: if its first line is a header, name the column, as in header.csv:NAME"),
    ],
)
def test_bad_labels_are_one_sentence(files, source, problem):
    """Wrong shapes, columns and numbers of labels are named."""
    write_csv("nothing.csv", ["path", "label"])
    write_csv("header.csv", ["class"], *[[label] for label in Y])
    with pytest.raises(LabelNoiseError, match=problem):
        read_labels(source, read_features("x.npy"))


@pytest.mark.parametrize("end", ["npy", "csv", "parquet"])
def test_labels_survive_a_file(tmp_path, end):
    """Labels that look like formulas are read as they were written, and safe in a spreadsheet."""
    path = tmp_path / f"y.{end}"
    given = np.array(["+", "-", "=1+1", "@x"])
    write_labels(path, Labels(given, NAMES), given)
    assert read_labels(str(path)).array.tolist() == ["+", "-", "=1+1", "@x"]
    if end == "csv":
        cells = [line.split(",")[1] for line in path.read_text().splitlines()[1:]]
        assert cells == ["'+", "'-", "'=1+1", "'@x"]


@pytest.mark.parametrize("end", ["csv", "parquet"])
def test_matrices_are_tables_with_names(tmp_path, end):
    """A row for each true class, of each group where there are groups."""
    data, y = clusters(2, 90, seed=0)
    group = np.where(np.arange(90) % 2, "b", "a")
    path = tmp_path / f"T.{end}"
    one, several = HOC().fit(data, y), GroupHOC().fit(data, y, groups=group)
    for est, T in ((one, one.transition_matrix_), (several, several.transition_matrices_)):
        write_estimate(path, est)
        column = read_labels(f"{path}:labelled 1").array.astype(float)
        np.testing.assert_allclose(column, T[..., 1].ravel())
    assert read_labels(f"{path}:group").array.tolist() == ["a", "a", "b", "b"]
    assert read_labels(f"{path}:true class").array.tolist() == [0, 1, 0, 1]


def test_unwritable_results_leave_nothing(tmp_path):
    """An unknown ending or a missing folder is met before anything is written."""
    for name in ("table.xlsx", "no/table.csv"):
        with pytest.raises(LabelNoiseError, match=r"Expected (to write|a folder)"):
            check_outputs({tmp_path / name: (".csv",)})
    assert list(tmp_path.iterdir()) == []


def test_encrypted_archives_are_refused(tmp_path):
    """The flag of a member says so; its bytes are not taken for numbers."""
    np.savez(tmp_path / "x.npz", x=X)
    content = bytearray((tmp_path / "x.npz").read_bytes())
    for head, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(head) + offset] |= 1
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(LabelNoiseError, match="is encrypted: unpack the archive first"):
        read_features(str(tmp_path / "x.npz"))


@pytest.mark.parametrize("end", [".npy", ".npz", ".pt"])
@pytest.mark.parametrize("garbage", [b"not an array", b"\x80\x04K\x01.", b"PK\x03\x04", b""])
def test_garbage_is_never_to_be_unpickled(tmp_path, end, garbage):
    """No message advises what would run a stranger's code."""
    (tmp_path / f"x{end}").write_bytes(garbage)
    with pytest.raises(LabelNoiseError, match="cannot be read") as caught:
        read_features(str(tmp_path / f"x{end}"))
    assert not any(word in str(caught.value).lower() for word in ("pickle", "weights_only"))


def test_names_keep_their_spaces(tmp_path):
    """Rows are matched by names that begin or end with spaces."""
    names = [" a.png", "a.png", "a.png ", "=b.png"]
    features = embedding(tmp_path / "x.npy", names)
    write_table(tmp_path / "y.csv", {"path": names[::-1], "label": Y})
    assert read_labels(str(tmp_path / "y.csv"), features).array.tolist() == Y[::-1].tolist()
