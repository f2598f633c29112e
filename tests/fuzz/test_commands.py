"""Options of the command line by pairs: a status, a sentence, and no input changed."""

import os
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelnoise import cli
from labelnoise.io.tables import write_table
from tests.conftest import clusters
from tests.fuzz.trials import nothing_else_changes, trials

HOSTILE = [
    "=1+1.csv",
    "a;b.csv",
    "<script>.json",
    "--help.npy",
    "é\u202e.csv",
    " .csv",
    "[red].json",
]
FILES = ["x.npy", "y.npy", "y.csv", "t.csv", "semicolons.csv", "text.txt", "x.names.csv", "e.csv"]
FILES += ["T.npy", "no.csv", "photos", "nothing.npy", "x.npy:a", "y.csv:nothing", "h.csv"]
OUTPUTS = ["out.json", "out.npy", "out.csv", "out.html", "out.xyz", "no/out.csv", "linked.csv"]
OUTPUTS += ["photos", "OUT.json", "dangling.csv", *HOSTILE]
NUMBERS = ["2", "5", "0", "1", "-1", "nan", "inf", "1e9", "x", ""]
FRACTIONS = ["0.3", "1", *NUMBERS]
OPTIONS = {
    "estimate": {
        "--out": OUTPUTS,
        "--report": ["out.html", "OUT.json", *OUTPUTS],
        "--examples": ["photos", "text.txt", *FILES],
        "--groups": ["t.csv", "t.csv:label", *FILES],
        "--local": [],
        "--paper": [],
        "--no-refine": [],
        "--classes": ["a,b", "b,a,c", "", "a,a", ",", "1,2"],
        "--unlabeled": ["a", "-1", "", "nan"],
        "--metric": ["cosine", "euclidean", "x"],
        "--neighbors": NUMBERS,
        "--workers": ["0", "x", "tcp://", "-3"],
        "--strict": [],
        "--seed": NUMBERS,
        "--json": [],
        "--quiet": [],
    },
    "suspects": {
        "--out": ["out.csv", "a;b.csv", *OUTPUTS],
        "--top": NUMBERS,
        "--threshold": FRACTIONS,
        "--classes": ["a,b", "", "a"],
        "--metric": ["euclidean"],
        "--neighbors": NUMBERS,
        "--json": [],
    },
    "corrupt": {
        "--out": ["out.csv", "out.npy", *OUTPUTS],
        "--kind": ["symmetric", "pair", "class", "instance", "x"],
        "--rate": FRACTIONS,
        "--features": ["x.npy", *FILES],
        "--matrix": ["T.npy", *FILES],
        "--seed": NUMBERS,
        "--json": [],
    },
    "embed": {
        "--out": ["out.npy", *OUTPUTS],
        "--kind": ["table", "x"],
        "--column": ["a", "label", "nothing"],
        "--root": ["photos", "no"],
        "--drop": ["label", "nothing"],
        "--batch-size": NUMBERS,
    },
    "compare": {"--json": []},
}
WRITING = ("--out", "--report")
N_SOURCES = {"estimate": 2, "suspects": 2, "corrupt": 1, "embed": 1, "compare": 2}


def write_inputs(folder):
    """Small files of each kind, and links."""
    X, y = clusters(2, 40, 0, d=3)
    labels = np.array(["a", "b"])[y]
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", labels)
    np.save(folder / "T.npy", np.array([[0.9, 0.1], [0.2, 0.8]]))
    np.save(folder / "nothing.npy", np.zeros((0, 3)))
    names = [f"{label}/{i}.png" for i, label in enumerate(labels)]
    write_table(folder / "x.names.csv", {"name": names, "problem": [""] * 40})
    write_table(folder / "y.csv", {"path": names, "label": labels})
    write_table(folder / "t.csv", {"a": X[:, 0], "label": labels, "group": y})
    (folder / "semicolons.csv").write_text("a;label\n1;a\n=2;b\n")
    (folder / "text.txt").write_text("one\n" * 40)
    (folder / "e.csv").touch()
    (folder / "h.csv").write_text("path,label\n")
    (folder / "photos").mkdir()
    for name in names:
        (folder / "photos" / name).parent.mkdir(exist_ok=True)
        (folder / "photos" / name).touch()
    (folder / "linked.csv").symlink_to("y.csv")
    (folder / "dangling.csv").symlink_to("led-here.csv")


@st.composite
def command_line(draw):
    """A command, its sources, what it always writes to, and two options with values."""
    command = draw(st.sampled_from([*OPTIONS]))
    usual = {"estimate": ["x.npy", "y.csv"], "suspects": ["x.npy", "y.npy"], "embed": ["t.csv"]}
    usual |= {"corrupt": ["y.csv"], "compare": ["out.json", "e.csv"]}
    sources = usual[command]
    if draw(st.integers(0, 3)) == 0:
        sources = [draw(st.sampled_from(FILES)) for _ in range(N_SOURCES[command])]
    options = [["--no-check"]] * (command == "estimate")
    if command == "embed":  # only tables: images and texts need a network
        options = [["--kind", "table"]]
    names = draw(st.lists(st.sampled_from([*OPTIONS[command]]), max_size=2, unique=True))
    needed = {"suspects": ["--out"], "embed": ["--out"], "corrupt": ["--out", "--rate"]}
    names += [name for name in needed.get(command, []) if name not in names]
    for name in names:
        values = OPTIONS[command][name]
        likely = values[:2] if draw(st.integers(0, 2)) else values
        options.append([name, draw(st.sampled_from(likely))] if values else [name])
    return [command, *sources, *(word for option in options for word in option)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("commands")
    write_inputs(folder)
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    """The folder as the working one; one line of errors is not wrapped."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "300")


def contents(folder):
    """What each file holds."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@trials(60)
@given(line=command_line())
def test_pairs_of_options(here, folder, capsys, line):
    """0, 1 with one sentence, 2 with the usage, or 3; inputs stay; no part of a file is left."""
    before = contents(folder)
    with pytest.MonkeyPatch.context() as patch, nothing_else_changes():
        patch.setattr("sys.argv", ["labelnoise", *line])
        with pytest.raises(SystemExit) as stop:
            cli.main()
    status, (_, said) = stop.value.code or 0, capsys.readouterr()
    assert status in (0, 1, 2, 3), line
    assert "Traceback" not in said
    if status == 1:
        assert re.search(r"^Error: Expected .*\n\Z", said, re.MULTILINE), (line, said)
    after = contents(folder)
    written = {value for name, value in pairwise(line) if name in WRITING}
    read = {word.partition(":")[0] for word in line if word not in written}
    for name in before:
        if name in read or name not in ("y.csv", "linked.csv"):  # a link's file may be written
            assert after.get(name) == before[name], line
    Path("y.csv").write_bytes(before["y.csv"])
    new = {*after} - {*before}
    assert not [name for name in new if name.endswith(".part")], line
    assert status == 0 or not new or status == 3 or "--report" in line, (line, new)
    for name in new:
        Path(folder, name).unlink()
    for left in folder.glob("*.partial"):
        os.rmdir(left) if not os.listdir(left) else None
