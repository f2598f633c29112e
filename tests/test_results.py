"""A folder of results gives back what was found, and everything that follows from it."""

import contextlib
import copy
import csv
import functools
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labelnoise import HOC, LabelNoiseError
from labelnoise.io.features import Features
from labelnoise.io.labels import Labels, read_labels
from labelnoise.io.sources import Source
from labelnoise.io.tables import read_table, write_table
from labelnoise.noise import symmetric
from labelnoise.results import ANSWERS, EXAMPLES, HEAD, Results, expect_no_answers
from tests.conftest import clusters

N, K = 400, 3
CLASSES = np.array(["cat", "dog", "owl"])
X, CLEAN = clusters(K, N, 0)
GIVEN = CLASSES[symmetric(CLEAN, 0.2, random_state=0).labels].tolist()
GIVEN[7] = GIVEN[11] = ""  # not labelled
NAMES = [f"x{i}" for i in range(N)]


@functools.cache
def fitted(labels, **settings):
    return HOC(**settings).fit(X, labels)


def written(folder="out", source=None, names=NAMES, **settings):
    """Fit, and write a folder of results; both are given."""
    source = source or Source("features", "x.npy", "labels.csv")
    features = Features(source.path, X, list(names), numbered=names[0].isdecimal())
    labels = source.read_labels(features)
    est = copy.deepcopy(fitted(tuple(labels.array.tolist()), **settings))
    os.makedirs(folder, exist_ok=True)
    return est, Results.write(folder, est, source, features, labels, {"encoder": None})


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    write_table("labels.csv", {"name": NAMES, "label": GIVEN, "note": ["a,b"] * N})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder of results to copy."""
    folder = tmp_path_factory.mktemp("whole")
    with contextlib.chdir(folder):
        np.save("x.npy", X)
        write_table("labels.csv", {"name": NAMES, "label": GIVEN})
        written()
    return folder / "out"


def without_time(report):
    return {name: value for name, value in report["how"].items() if name != "Made on"}, {
        name: value for name, value in report.items() if name != "how"
    }


@pytest.mark.parametrize("settings", [{}, {"refine": False}, {"n_neighbors": 4}])
def test_what_is_opened_is_what_was_fitted(settings):
    """Suspects, samples, intervals, verified labels and reports are the same to the last digit."""
    est, _ = written(**settings)
    opened = Results.open("out").estimate
    for a, b in zip(
        est.suspects().columns().values(), opened.suspects().columns().values(), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(est.predict_proba(), opened.predict_proba())
    assert without_time(est.report().to_dict()) == without_time(opened.report().to_dict())
    sample, again = est.to_verify(60), opened.to_verify(60)
    np.testing.assert_array_equal(sample.row, again.row)
    answers = sample.columns() | {"true_label": CLASSES[CLEAN[sample.row]]}
    assert repr(est.verify(answers)) == repr(opened.verify(answers))
    for level in (0.9, 0.95):
        a, b = est.confidence_interval(level), opened.confidence_interval(level)
        np.testing.assert_array_equal(a.transition_matrix, b.transition_matrix)
        assert a.noise_rate.tolist() == b.noise_rate.tolist()
    np.testing.assert_array_equal(est.predict_proba(), opened.predict_proba())
    assert [f.sentence for f in est.diagnose()] == [f.sentence for f in opened.diagnose()]


def test_new_examples_need_a_fit():
    """The model that predicts new examples is not kept, and one sentence says so."""
    written()
    with pytest.raises(LabelNoiseError, match=r"new examples, but .* folder of results"):
        Results.open("out").estimate.predict(X[:3])


def test_labels_csv_has_a_row_for_every_example():
    """In cleanlab's columns; what is not labelled is judged by nobody."""
    est, _ = written()
    with open("out/labels.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == NAMES
    assert [row["given_label"] for row in rows] == GIVEN
    assert [row["row"] for row in rows if not row["label_score"]] == ["7", "11"]
    found, judged = est.suspects(), [row for row in rows if row["label_score"]]
    issues = [int(row["row"]) for row in rows if row["is_label_issue"] == "True"]
    assert issues == sorted(found.index)
    suggested = dict(zip(found.index.tolist(), found.suggested, strict=True))
    assert all(rows[row]["predicted_label"] == suggested[row] for row in issues)
    wrong = [float(row["probability_wrong"]) for row in judged]
    assert sum(wrong) == pytest.approx(est.noise_rate_ * len(judged), rel=0.01)
    right = [row["predicted_label"] == CLASSES[CLEAN[int(row["row"])]] for row in judged]
    assert np.mean(right) > 0.95


def test_to_check_is_a_sample_with_names():
    """It is the sample of `to_verify`, without the model's opinion."""
    est, _ = written()
    table, sample = read_table("out/to_check.csv"), est.to_verify()
    assert [int(row) for row in table.cells("row")] == sample.row.tolist()
    assert table.cells("name") == [f"x{row}" for row in sample.row]
    assert not any(table.cells("true_label"))
    assert "suggested_label" not in table.columns


def test_neighbors_are_the_nearest():
    """They are those of the search; an example without a label has none."""
    _, found = written()
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    near = unit @ unit.T
    near[:, [7, 11]] = near[np.diag_indices(N)] = -1
    assert Results.open("out").neighbors(20, 5) == np.argsort(-near[20])[:5].tolist()
    assert found.neighbors(7) == []
    assert found.neighbors(N + 5) == []


def pictures():
    """A folder for each label, and the names in the order of X."""
    names = [f"{label or 'cat'}/{i:03}.png" for i, label in enumerate(GIVEN)]
    for name in CLASSES:
        os.makedirs(f"photos/{name}")
    for i, name in enumerate(names):
        Image.new("L", (2, 2), i % 256).save(f"photos/{name}")
    return names


def test_what_is_to_be_seen_of_an_example(tmp_path):
    """An image file, a text, a row of a table, or nothing, also when all has been moved."""
    numbers = [str(i) for i in range(N)]
    write_table("table.csv", {"text": [f"text {i}" for i in range(N)], "label": GIVEN})
    names = pictures()
    written("of/images", Source("images", "photos", "photos"), names)
    written("of/texts", Source("texts", "table.csv", "table.csv", text="text"), numbers)
    written("of/rows", Source("table", "table.csv", "table.csv"), numbers)
    written("of/features")
    (tmp_path / "moved").mkdir()
    for name in ("photos", "table.csv", "of", "x.npy", "labels.csv"):
        os.rename(name, f"moved/{name}")
    seen = {name: Results.open(f"moved/of/{name}").content(5) for name in os.listdir("moved/of")}
    assert seen == {
        "images": ("image", tmp_path / "moved" / "photos" / names[5]),
        "texts": ("text", "text 5"),
        "rows": ("row", {"text": "text 5", "label": GIVEN[5]}),
        "features": ("features", None),
    }
    os.truncate("moved/table.csv", 1000)
    with pytest.raises(LabelNoiseError, match=r"the 400 examples .* run labelnoise audit"):
        Results.open("moved/of/texts").content(5)


def test_labels_are_written_in_the_format_they_came_in():
    """Only what is given changes: not other columns, nor what is not labelled."""
    _, found = written()
    new = np.full(N, None)
    new[3] = "owl" if GIVEN[3] != "owl" else "cat"
    Results.open("out").write_labels("new.csv", new)
    old, changed = (Path(path).read_text().splitlines() for path in ("labels.csv", "new.csv"))
    assert [i for i in range(N + 1) if old[i] != changed[i]] == [4]
    assert changed[4] == f'x3,{new[3]},"a,b"'
    np.save("y.npy", CLEAN.astype(np.int8))
    _, found = written("numbers", Source("features", "x.npy", "y.npy"))
    found.write_labels("new.npy", np.where(np.arange(N) == 3, 2, None))
    changed = np.load("new.npy")
    assert changed.dtype == np.int8
    assert changed.tolist() == [*CLEAN[:3], 2, *CLEAN[4:]]
    names = pictures()
    _, found = written("pictures", Source("images", "photos", "photos"), names)
    found.write_labels("new.csv", new)
    again = read_labels("new.csv", Features("", X, names))
    assert again.array.tolist() == [new[3] if i == 3 else n[:3] for i, n in enumerate(names)]


def test_labels_that_have_changed_since_are_not_written():
    """Rows might stand for others by now."""
    written()
    for other in (["dog", *GIVEN[1:]], ["elk", *GIVEN[1:]], GIVEN[::-1]):
        write_table("labels.csv", {"name": NAMES, "label": other})
        if other != GIVEN:
            with pytest.raises(LabelNoiseError, match=r"others are in labels\.csv now"):
                Results.open("out").write_labels("new.csv", np.full(N, None))
    assert not os.path.exists("new.csv")


def test_answers_are_not_replaced():
    """A sheet that somebody began to fill in, or answers of the review, keep their folder."""
    written()
    written()  # nobody has answered yet
    table = read_table("out/to_check.csv")
    columns = {name: table.cells(name) for name in table.columns}
    write_table("out/to_check.csv", columns | {"true_label": ["cat"] + [""] * (table.n_rows - 1)})
    with pytest.raises(LabelNoiseError, match=r"out/to_check.csv was filled in .* --out"):
        written()
    os.remove("out/to_check.csv")
    Path("out", ANSWERS).touch()
    with pytest.raises(LabelNoiseError, match=f"out/{ANSWERS} was filled in"):
        expect_no_answers(Results.open("out").folder)


def test_a_failure_leaves_the_old_results(monkeypatch):
    """Nothing is put in place before all is written."""
    written()
    before = {path: Path("out", path).read_bytes() for path in ("noise.json", HEAD, EXAMPLES)}

    def fail(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(Results, "report", fail)
        with pytest.raises(OSError, match="disk full"):
            written(refine=False)
    assert all(Path("out", path).read_bytes() == content for path, content in before.items())
    assert not [name for name in os.listdir("out") if name.startswith(".new")]
    os.mkdir("out/.new-killed")
    written()
    assert not os.path.exists("out/.new-killed")


def rewritten(change):
    """Change the head of the results, and let their digests fit again."""
    import hashlib

    with open(f"out/{HEAD}") as file:
        head = json.load(file)
    change(head)
    for name in head.get("sha256", {}):
        with open(f"out/{name}", "rb") as file:
            head["sha256"][name] = hashlib.sha256(file.read()).hexdigest()
    with open(f"out/{HEAD}", "w") as file:
        json.dump(head, file)


def with_array(name, array):
    """Put another array among those of the examples."""
    arrays = dict(np.load(f"out/{EXAMPLES}"))
    arrays[name] = array(arrays[name]) if callable(array) else array
    np.savez(f"out/{EXAMPLES}", **arrays)
    rewritten(lambda head: None)


def overwritten(name, content):
    with open(f"out/{name}", "wb") as file:
        file.write(content)


@pytest.mark.parametrize(
    "damage",
    [
        lambda: overwritten("noise.json", b"{}"),
        lambda: overwritten(EXAMPLES, b"PK garbage"),
        lambda: os.remove(f"out/{EXAMPLES}"),
        lambda: overwritten(HEAD, b"garbage"),
        lambda: overwritten(HEAD, b"[" * 100_000),
        lambda: overwritten(HEAD, b'{"format": "labelnoise results"}'),
        lambda: rewritten(lambda head: head.update(version=99)),
        lambda: rewritten(lambda head: head.update(n_rows=N + 1)),
        lambda: rewritten(lambda head: head.update(n_rows="many")),
        lambda: rewritten(lambda head: head.update(settings=3)),
        lambda: rewritten(lambda head: head["source"].update(kind="sounds")),
        lambda: rewritten(lambda head: head["source"].update(path=3)),
        lambda: rewritten(lambda head: head["source"].update(extra="x")),
        lambda: (overwritten(EXAMPLES, b"PK garbage"), rewritten(lambda head: None)),
        lambda: with_array("posterior", lambda p: 2 * p),
        lambda: with_array("posterior", lambda p: p[:-1]),
        lambda: with_array("posterior", lambda p: p * np.nan),
        lambda: with_array("neighbors", lambda near: near + N),
        lambda: with_array("neighbors", lambda near: -near - 1),
        lambda: with_array("neighbors", lambda near: near / 2),
        lambda: with_array("rows", lambda rows: rows[::-1].copy()),
        lambda: with_array("rows", lambda rows: rows + 10 * N),
        lambda: with_array("labels", lambda labels: (labels + 1) % K),
        lambda: with_array("codes", lambda codes: codes + 1),
        lambda: with_array("codes", lambda codes: codes[:-1]),
        lambda: with_array("names", lambda names: names[:-9]),
        lambda: with_array("case", np.zeros(3)),
        lambda: with_array("draws", lambda draws: draws[:, :2]),
        lambda: with_array("given_h", np.eye(K + 1)),
        lambda: with_array("distances", np.array([None, 1])),
    ],
)
def test_damaged_results_are_one_sentence(whole, damage):
    """Whatever is wrong with a file, or does not fit to the others, is said in one line."""
    shutil.copytree(whole, "out")
    damage()
    with pytest.raises(LabelNoiseError, match=r"Expected a folder that .* out .*") as error:
        Results.open("out")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_names_do_not_lead_out_of_the_folder():
    """A folder of results of a stranger shows no other file."""
    written("out", Source("images", "photos", "photos"), pictures())
    with_array("names", lambda n: np.frombuffer(b"../x.npy\0" + bytes(n).split(b"\0", 1)[1], "u1"))
    with pytest.raises(LabelNoiseError, match=r"Expected files in .*photos, .* are outside it"):
        Results.open("out").content(0)


def test_folders_without_results():
    """One that was never finished says so."""
    os.mkdir("empty")
    with pytest.raises(LabelNoiseError, match=r"but empty has no audit.json$"):
        Results.open("empty")
    os.makedirs("begun/cache")
    with pytest.raises(LabelNoiseError, match="was interrupted, so run it again"):
        Results.open("begun")


def test_only_what_can_be_kept_is_kept():
    """Verified labels are given to what is opened, and rounds have no neighbours to keep."""
    est, _ = written()
    est.verify({0: CLASSES[CLEAN[0]]})
    with pytest.raises(LabelNoiseError, match="no verified labels yet"):
        est.example_arrays()
    with pytest.raises(LabelNoiseError, match="fitted to features and labels in memory"):
        HOC.load("out/noise.json").example_arrays()


def test_names_need_not_be_unicode():
    """Names of files are bytes, and the folder keeps them."""
    names = [*NAMES[:-1], "b\udcff.png"]
    labels = Labels(np.array([label or None for label in GIVEN], object), names)
    features = Features("x.npy", X, names, ("c\udcfe",))
    source = Source("features", "x.npy", "labels.csv")
    os.mkdir("out")
    for _ in range(2):
        Results.write("out", fitted(tuple(labels.array)), source, features, labels, {})
    opened = Results.open("out")
    assert opened.names == names
    assert opened.features.failed == ("c\udcfe",)
    assert b"b\xff.png" in Path("out/labels.csv").read_bytes()


def test_a_copy_works_too():
    """With absolute paths the results may be moved alone."""
    source = Source("features", os.path.abspath("x.npy"), os.path.abspath("labels.csv"))
    written(source=source)
    shutil.move("out", os.path.join("..", f"{os.path.basename(os.getcwd())}-moved"))
    opened = Results.open(os.path.join("..", f"{os.path.basename(os.getcwd())}-moved"))
    assert opened.source == source
    shutil.rmtree(opened.folder)
