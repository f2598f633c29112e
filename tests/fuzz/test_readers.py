"""Whatever bytes a file holds, it is read as it is meant or refused in one sentence."""

import csv
import re
import warnings
from contextlib import suppress

import numpy as np
import pyarrow
import pytest
import safetensors.numpy
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pyarrow import parquet

from labelnoise import HOC, Consensus, LabelNoiseError
from labelnoise.io.embedding import embed_table, load_embedding
from labelnoise.io.features import read_features
from labelnoise.io.images import Images
from labelnoise.io.labels import read_labels
from labelnoise.io.tables import read_table, write_table
from tests.conftest import clusters
from tests.fuzz.trials import nothing_else_changes, trials

X, Y = clusters(3, 30, 0, d=2)
X, Y = X.astype(np.float32), Y.astype(str)
NAMES = [f"{i}.png" for i in range(30)]


def write_files(folder):
    """The same features and labels in every format, by how their names end."""
    table = {"path": NAMES, "a": X[:, 0], "b": X[:, 1], "label": Y}
    lists = {"id": NAMES, "vector": list(X), "label": Y}
    np.save(folder / "x.npy", X)
    np.save(folder / "named.npy", X)
    write_table(folder / "named.names.csv", {"name": NAMES, "problem": [""] * 30})
    np.save(folder / "y.npy", Y)
    np.savez(folder / "both.npz", x=X, y=Y)
    np.savez_compressed(folder / "packed.npz", x=X, y=Y)
    write_table(folder / "table.csv", table)
    text = (folder / "table.csv").read_text()
    (folder / "semicolons.csv").write_text(text.replace(",", ";"))
    write_table(folder / "table.tsv", table)
    write_table(folder / "table.parquet", table)
    parquet.write_table(pyarrow.table(lists), folder / "lists.parquet")
    for name, writer in (("s.arrow", pyarrow.ipc.new_stream), ("f.feather", pyarrow.ipc.new_file)):
        content = pyarrow.table(lists)
        with pyarrow.OSFile(str(folder / name), "wb") as f, writer(f, content.schema) as out:
            out.write_table(content)
    safetensors.numpy.save_file({"x": X, "y": X[:, 0].copy()}, folder / "x.safetensors")
    torch.save({"x": torch.from_numpy(X), "epoch": 3}, folder / "x.pt")
    est = HOC(refine=False).fit(X, Y)
    est.save(folder / "estimate.json")
    est.consensus_.save(folder / "consensus.npz")


def read_all(path):
    """Read a file by everything that takes its kind."""
    readers = [lambda: np.isfinite(read_features(str(path)).array).all(), lambda: labels(path)]
    if path.suffix == ".json":
        readers = [lambda: HOC.load(path).transition_matrix_]
    elif path.name == "consensus.npz":
        readers = [lambda: Consensus.load(path).c1]
    elif path.name == "named.names.csv":
        readers = [lambda: load_embedding(path.with_name("named.npy"))]
    elif path.suffix in (".csv", ".tsv"):
        readers.append(lambda: embed_table(path))
    for reader in readers:
        with suppress(LabelNoiseError):
            reader()


def labels(path):
    for label in read_labels(str(path)).array.tolist():
        assert label is None or isinstance(label, str | int | float | bool | bytes | list), label


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("originals")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write_files(folder)
    return folder


FILES = ["x.npy", "y.npy", "both.npz", "packed.npz", "table.csv", "table.parquet", "lists.parquet"]
FILES += ["s.arrow", "f.feather", "x.safetensors", "x.pt", "estimate.json", "consensus.npz"]
FILES += ["named.names.csv", "semicolons.csv", "table.tsv"]


@st.composite
def damage(draw, content):
    """Cut, overwrite, repeat, or put other bytes in."""
    content = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(content)))
        some = draw(st.one_of(st.binary(max_size=8), st.sampled_from(POISON)))
        how = draw(st.sampled_from(["flip", "cut", "over", "into", "twice"]))
        if how == "flip" and place < len(content):
            content[place] ^= 1 << draw(st.integers(0, 7))
        elif how == "cut":
            del content[place : place + draw(st.integers(1, 2000))]
        elif how == "over":
            content[place : place + len(some)] = some
        elif how == "into":
            content[place:place] = some
        else:
            content += content[place:]
    return bytes(content)


FORMULA = re.compile("(^|[;\t\r\n])[-=+@\uff1d\t\r\n]")
NUMBER = re.compile(r"[-+]?\d+")
POISON = [
    b"\xff" * 8,
    b"\0" * 8,
    b"nan",
    b"1e999",
    b'"',
    b",",
    b"\n",
    b"\r",
    b"[" * 999,
    b"{",
    b"-1",
]
POISON += [b"9" * 400, b"None", b"\xef\xbb\xbf", b"\x80\x04", b"'", b"(((", b"|O", b"<U9"]


@pytest.mark.parametrize("name", FILES)
@trials(14)
@given(data=st.data())
def test_damaged_files_are_read_or_refused(originals, tmp_path_factory, name, data):
    """No other error, no crash, no warning."""
    folder = tmp_path_factory.mktemp("damaged")
    for needed in ("named.npy",) if name == "named.names.csv" else ():
        (folder / needed).write_bytes((originals / needed).read_bytes())
    (folder / name).write_bytes(data.draw(damage((originals / name).read_bytes())))
    with nothing_else_changes():
        read_all(folder / name)


def test_archives_that_unpack_to_more_than_memory(tmp_path, monkeypatch):
    """A few kilobytes of zeros, or a header that lies, are refused before memory is full."""
    np.savez_compressed(tmp_path / "bomb.npz", x=np.zeros((2000, 100)))
    rows = pyarrow.table({"a": np.zeros(200_000), "label": np.zeros(200_000)})
    parquet.write_table(rows, tmp_path / "bomb.parquet")
    monkeypatch.setattr("labelnoise.io.memory.free_memory", lambda: 1e6)
    for name in ("bomb.npz", "bomb.parquet"):
        assert (tmp_path / name).stat().st_size < 20_000
        with pytest.raises(LabelNoiseError, match=r"memory that are free, but .*bomb.* needs"):
            read_features(str(tmp_path / name))


@pytest.mark.parametrize("depth", [100_000])
def test_json_nested_without_end(tmp_path, depth):
    """It ends in a sentence."""
    (tmp_path / "deep.json").write_text("[" * depth)
    with pytest.raises(LabelNoiseError, match="Expected an estimate written by HOC"):
        HOC.load(tmp_path / "deep.json")


@trials(40)
@given(st.lists(st.text("=+-@\t\r\n;,'\"ab1\uff1d", max_size=6), min_size=1, max_size=5))
def test_no_cell_of_a_table_is_a_formula(tmp_path_factory, cells):
    """No cell begins as a formula does, and what was written comes back."""
    path = tmp_path_factory.mktemp("cells") / "t.csv"
    write_table(path, {"name": cells, "label": cells})
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.reader(file):
            assert not any(FORMULA.search(cell) for cell in row if not NUMBER.fullmatch(cell))
    assert read_table(path).cells("label") == cells


@trials(15)
@given(data=st.data())
def test_damaged_images_are_a_reason_not_an_end(tmp_path_factory, data):
    """Each image is read or refused; none crashes the rest."""
    folder = tmp_path_factory.mktemp("images")
    kind = data.draw(st.sampled_from(["png", "jpeg", "gif", "bmp", "tiff", "webp"]))
    pixels = np.random.default_rng(0).integers(0, 255, (9, 7, 3), np.uint8)
    Image.fromarray(pixels).save(folder / "a", kind)
    (folder / "a").write_bytes(data.draw(damage((folder / "a").read_bytes())))
    with suppress(LabelNoiseError):
        image = Images(paths=[str(folder / "a")])[0]
        assert image.dtype == np.uint8
        assert image.shape[2] == 3
