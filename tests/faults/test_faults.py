"""Whatever befalls a command, no file is half-written, and the next run gives the right answer."""

import os
import re
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labelnoise.io.tables import write_table
from labelnoise.noise import symmetric
from tests.conftest import clusters
from tests.faults.commands import finish, start
from tests.fuzz.trials import FACTOR

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux")
DATA = ["x.npy", "y.csv"]
TRAIN = ["train", "photos", "--method", "gce", "--plan", "tiny", "--network", "resnet8"]
COMMANDS = {  # and what they leave under a final name
    "estimate": (["estimate", *DATA, "--no-check", "--out", "T.json"], ["T.json"]),
    "suspects": (["suspects", *DATA, "--out", "s.csv"], ["s.csv"]),
    "corrupt": (["corrupt", "y.csv", "--rate", "0.4", "--out", "n.csv"], ["n.csv"]),
    "embed": (
        ["embed", "y.csv", "--kind", "table", "--out", "f.npy"],
        ["f.npy", "f.names.csv"],
    ),
    "audit": (
        ["audit", *DATA, "--out", "out"],
        ["out/noise.json", "out/labels.csv", "out/to_check.csv"],
    ),
    "cluster": (["estimate", "shards", "y.csv", "--workers", "2", "--out", "T.json"], ["T.json"]),
    "train": ([*TRAIN, "--device", "cpu", "--json", "--folder", "run"], []),
}
QUICK = ["estimate", "suspects", "embed"]


def write_data(folder, n=600):
    X, y = clusters(4, n, 0, separation=2.0)
    np.save(folder / "x.npy", X.astype(np.float32))
    write_table(folder / "y.csv", {"label": symmetric(y, 0.2, random_state=0).labels})
    (folder / "shards").mkdir()
    for number, rows in enumerate(np.array_split(X.astype(np.float32), 3)):
        np.save(folder / f"shards/{number}.npy", rows)
    (folder / "photos").mkdir()
    for i in range(8):
        Image.new("RGB", (8, 8), (255 * (i % 2), 0, 0)).save(folder / f"photos/{i}.png")
    lines = ["path,label\n", *(f"{i}.png,{i % 2}\n" for i in range(8))]
    for name in ("labels", "test"):
        (folder / f"photos/{name}.csv").write_text("".join(lines))


@pytest.fixture(scope="module")
def data():
    """A folder that any user may read."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    write_data(folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def undisturbed(data):
    """What commands leave behind, how long they take, and what they say, by their names."""
    found = {}

    def run(name):
        if name not in found:
            arguments, files = COMMANDS[name]
            status, seconds, said = finish(arguments, data)
            assert status == 0, said
            found[name] = {f: (data / f).read_bytes() for f in files}, seconds, said
            for f in files:
                (data / f).unlink()
            shutil.rmtree(data / "run", ignore_errors=True)
        return found[name]

    return run


@pytest.mark.parametrize("name", [*QUICK, "audit"] if FACTOR == 1 else [*COMMANDS])
def test_killed_at_any_moment(data, undisturbed, tmp_path, name):
    """Final names hold all or nothing, and the same command then gives the undisturbed result."""
    (arguments, files), (expected, seconds, said) = COMMANDS[name], undisturbed(name)
    rng = np.random.default_rng(len(name))
    for kept in ("x.npy", "y.csv"):
        shutil.copy(data / kept, tmp_path)
    for kept in ("photos", "shards"):
        shutil.copytree(data / kept, tmp_path / kept)
    for _ in range(2 if FACTOR == 1 else 5 * FACTOR):
        process = start(arguments, tmp_path)
        time.sleep(rng.uniform(0, seconds))
        process.kill()
        process.join()
        for f in files:
            assert not (tmp_path / f).exists() or (tmp_path / f).read_bytes() == expected[f]
    status, _, resumed = finish(arguments, tmp_path)
    assert status == 0, resumed
    for f in files:
        assert (tmp_path / f).read_bytes() == expected[f]
    if name == "train":
        accuracy = re.compile(r'".*_accuracy": .*')
        assert accuracy.findall(resumed) == accuracy.findall(said) != []


def test_little_memory_changes_nothing_but_the_blocks(tmp_path):
    """250 MiB beside the program itself, of which most is room that threads reserve."""
    write_data(tmp_path, 8000)
    arguments, [name] = COMMANDS["estimate"]
    found = []
    for fault in (None, ("memory", 250 * 2**20)):
        status, _, said = finish(arguments, tmp_path, fault)
        assert status == 0, said
        found.append((tmp_path / name).read_bytes())
    assert found[0] == found[1]


FAULTS = [("disk", 100), ("nobody",)]


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault[0])
def test_what_cannot_be_written_is_one_line(data, name, fault):
    """An older file stays as it was, nothing else is left, and one line says what is wrong."""
    if fault == ("nobody",) and os.getuid() != 0:
        pytest.skip("only root can become nobody")
    arguments, files = COMMANDS[name]
    for f in files:
        (data / f).write_text("old")
    before = {path.name for path in data.iterdir()} | {"said"}
    status, _, said = finish(arguments, data, fault)
    assert status == 1
    assert said.count("\n") == 1
    assert said.startswith("Error: Expected")
    for f in files:
        assert (data / f).read_text() == "old"
        (data / f).unlink()
    left = {path.name for path in data.iterdir()} - before
    assert not [f for f in left if not f.endswith(".partial")]  # what `embed` continues from
