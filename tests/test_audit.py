"""labelnoise audit: whatever one has, one command gives a folder of results."""

import json
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from labelnoise import HOC, LabelNoiseError, audit
from labelnoise.io import embedding, encoders
from labelnoise.io.sources import find_source
from labelnoise.io.tables import read_table
from labelnoise.noise import symmetric
from labelnoise.results import Results

N, RATE = 240, 0.2
CLASSES = np.array(["blue", "green", "red"])
CLEAN = np.arange(N) % 3
NOISY = CLASSES[symmetric(CLEAN, RATE, random_state=0).labels]
WRONG = float((CLASSES[CLEAN] != NOISY).mean())
WORDS = np.array(
    ["the sea and the sky are", "all leaves and grass were", "roses, blood and fire look"]
)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def encoded(monkeypatch):
    """Encoders that see mean colours and count letters; gives how much they were asked for."""
    seen = []

    def colours(encoder, device):
        def features(batch):
            seen.append(len(batch))
            return batch

        return lambda image: image.mean((0, 1), np.float32), features

    def encode(texts, **_):
        seen.append(len(texts))
        return np.array([[text.count(letter) for letter in "abdefglrsw,"] for text in texts], float)

    monkeypatch.setattr(encoders, "image_encoder", colours)
    monkeypatch.setattr(encoders, "torch_device", lambda device, extra: "cpu")
    monkeypatch.setattr(encoders, "text_encoder", lambda *_: SimpleNamespace(encode=encode))
    return seen


def write_photos(by_label=True):
    """Pictures of three colours with a little of the others, in a folder for each label or one."""
    rng = np.random.default_rng(0)
    for i, label in enumerate(NOISY):
        colour = 40 * rng.random(3) + 200 * np.eye(3)[CLEAN[i]]
        path = Path("photos", label if by_label else "", f"{i:03}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), tuple(colour.astype(int).tolist())).save(path)


def texts():
    rng = np.random.default_rng(0)
    return [f"{WORDS[k]} {'abc'[rng.integers(3)]} {i}" for i, k in enumerate(CLEAN)]


def as_folders():
    write_photos()
    return ["photos"], "photos: 240 images in 3 folders, one for each class."


def as_folder_and_table():
    write_photos(by_label=False)
    names = [f"{i:03}.png" for i in range(N)]
    pd.DataFrame({"path": names, "colour": NOISY}).to_csv("labels.csv", index=False)
    return ["photos", "labels.csv:colour"], "240 images, labels from labels.csv (column colour)."


def as_folder_with_its_table():
    as_folder_and_table()
    os.rename("labels.csv", "photos/labels.csv")
    return ["photos", "--label", "colour"], "labels from photos/labels.csv (column colour)."


def as_table_of_paths():
    write_photos(by_label=False)
    names = [f"photos/{i:03}.png" for i in range(N)]
    pd.DataFrame({"file": names, "label": NOISY}).to_csv("list.csv", index=False)
    return ["list.csv"], "list.csv: 240 images, labels from list.csv (column label)."


def as_texts():
    table = pd.DataFrame({"id": np.arange(N) + 7, "said": texts(), "Class": NOISY})
    table.to_csv("texts.csv", index=False, sep=";")
    return ["texts.csv"], "texts.csv: 240 texts (column said) with labels (column Class)."


def as_lines():
    Path("texts.txt").write_text("\n".join(texts()))
    np.save("y.npy", NOISY)
    return ["texts.txt", "y.npy"], "texts.txt: 240 texts, labels from y.npy."


def as_rows():
    rng = np.random.default_rng(0)
    numbers = {f"x{k}": (k == CLEAN) + 0.2 * rng.standard_normal(N) for k in range(3)}
    town = np.where(rng.random(N) < 0.5, "Rome", "Oslo")
    table = pd.DataFrame({"id": rng.permutation(N), **numbers, "town": town, "hue": NOISY})
    table.to_parquet("rows.parquet")
    return ["rows.parquet", "--label", "hue"], "rows.parquet: 240 rows with labels (column hue)."


def as_features():
    rng = np.random.default_rng(0)
    np.savez("data.npz", x=np.eye(3)[CLEAN] + 0.2 * rng.standard_normal((N, 3)))
    np.save("y.npy", NOISY)
    return ["data.npz:x", "y.npy"], "data.npz:x: 240 examples, labels from y.npy."


def as_lists():
    rng = np.random.default_rng(0)
    vectors = np.eye(3)[CLEAN] + 0.2 * rng.standard_normal((N, 3))
    table = pyarrow.table({"vector": list(vectors), "label": NOISY.tolist()})
    parquet.write_table(table, "vectors.parquet")
    return ["vectors.parquet"], "vectors.parquet: 240 examples with labels (column label)."


def write_dataset(folder, columns, kinds):
    """What `Dataset.save_to_disk` leaves behind."""
    Path(folder).mkdir(parents=True)
    table = pyarrow.table(columns)
    half = len(table) // 2
    files = [f"data-0000{i}-of-00002.arrow" for i in range(2)]
    for file, part in zip(files, (table[:half], table[half:]), strict=True):
        with (
            pyarrow.OSFile(f"{folder}/{file}", "wb") as out,
            pyarrow.ipc.new_stream(out, table.schema) as writer,
        ):
            writer.write_table(part)
    Path(folder, "dataset_info.json").write_text(json.dumps({"features": kinds}))
    state = {"_data_files": [{"filename": file} for file in files], "_fingerprint": "x"}
    Path(folder, "state.json").write_text(json.dumps(state))


CLASS_LABEL = {"_type": "ClassLabel", "names": CLASSES.tolist()}
NUMBERS = np.searchsorted(CLASSES, NOISY)


def as_dataset_of_images():
    write_photos(by_label=False)
    files = [{"bytes": Path(f"photos/{i:03}.png").read_bytes(), "path": None} for i in range(N)]
    kinds = {"image": {"_type": "Image"}, "hue": CLASS_LABEL}
    write_dataset("set", {"image": files, "hue": NUMBERS}, kinds)
    return ["set"], "set, a data set: 240 images with labels (column label)."


def as_dataset_of_texts():
    kinds = {"said": {"_type": "Value", "dtype": "string"}, "label": CLASS_LABEL}
    write_dataset("set/train", {"said": texts(), "label": NUMBERS}, kinds)
    return [
        "set/train"
    ], "set/train, a data set: 240 texts (column said) with labels (column label)."


SOURCES = [value for name, value in sorted(globals().items()) if name.startswith("as_")]


@pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__name__[3:])
def test_whatever_one_has(run, encoded, make):
    """One line on what was found, the share of wrong labels, and a folder from which to go on."""
    arguments, found = make()
    status, output, errors = run("audit", *arguments, "--out", "out")
    assert (status, errors) == (0, "")
    lines = output.splitlines()
    assert lines[0].endswith(found)
    assert len(lines) <= 6
    assert re.search(r"labelnoise review out$", output, re.MULTILINE)
    opened = Results.open("out")
    assert lines[1].startswith(f"{opened.estimate.noise_rate_:.1%} (")
    assert abs(opened.estimate.noise_rate_ - WRONG) < 0.03
    suspects = opened.estimate.suspects()
    true = CLASSES[CLEAN[[_number(opened, row) for row in suspects.index.tolist()]]]
    assert (suspects.suggested == true).mean() > 0.9
    assert sorted(os.listdir("out")) == sorted(
        ["audit.json", "cache", "labels.csv", "noise.json", "report.html", "to_check.csv"]
    )
    kind, content = opened.content(3)
    number = _number(opened, 3)
    if kind == "image":
        assert content.exists()
    elif kind == "text":
        assert content == texts()[number]
    elif kind == "row":
        assert list(content) == ["id", "x0", "x1", "x2", "town"]
        assert abs(content[f"x{CLEAN[number]}"] - 1) < 0.7


def _number(results, row):
    """Which example a row is."""
    return int(Path(results.names[row]).stem)


@pytest.mark.parametrize("make", [as_folders, as_texts, as_rows, as_features, as_dataset_of_images])
def test_a_second_run_uses_what_is_there(run, encoded, monkeypatch, make):
    """Nothing is embedded, searched or fitted again, and the answer is the same."""
    arguments, _ = make()
    first = run("audit", *arguments, "--out", "out")
    written = {path: path.stat().st_mtime_ns for path in Path("out").rglob("*") if path.is_file()}
    encoded.clear()
    monkeypatch.setattr(HOC, "fit", lambda *_, **__: pytest.fail("it was fitted again"))
    assert run("audit", *arguments, "--out", "out") == first
    assert encoded == []
    assert written == {path: path.stat().st_mtime_ns for path in written}


def test_other_labels_are_fitted_again_on_the_same_features(run, encoded):
    """What a person changed in the labels is seen, and costs no embedding."""
    arguments, _ = as_folder_and_table()
    run("audit", *arguments, "--out", "out")
    before = Results.open("out").estimate.noise_rate_
    encoded.clear()
    table = pd.read_csv("labels.csv")
    table.assign(colour=CLASSES[CLEAN]).to_csv("labels.csv", index=False)
    assert run("audit", *arguments, "--out", "out")[0] == 0
    assert encoded == []
    assert Results.open("out").estimate.noise_rate_ < 0.02 < before


def test_other_images_or_another_encoder_are_embedded_again(run, encoded):
    """Features are kept for what they are of, and for what made them."""
    arguments, _ = as_folders()
    run("audit", *arguments, "--out", "out")
    for more in ([], ["--encoder", "other"]):
        encoded.clear()
        os.utime(f"photos/{NOISY[0]}/000.png", (0, 0))
        assert run("audit", *arguments, *more, "--out", "out")[0] == 0
        assert sum(encoded) == N


def test_a_killed_run_goes_on(run, encoded, monkeypatch):
    """The features that were made are not made again; a fit that was killed neither embeds."""
    arguments, _ = as_folders()
    monkeypatch.setattr(embedding, "_CHUNK_ROWS", 60)

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        save, saved = embedding._save, []

        def save_two(*chunk):
            save(*chunk)
            saved.append(chunk)
            if len(saved) == 2:
                stop()

        patch.setattr(embedding, "_save", save_two)
        assert run("audit", *arguments, "--out", "out")[0] == 130
    assert not os.path.exists("out/audit.json")
    encoded.clear()
    with monkeypatch.context() as patch:
        patch.setattr(HOC, "fit", stop)
        assert run("audit", *arguments, "--out", "out")[0] == 130
    assert sum(encoded) == N - 120
    encoded.clear()
    assert run("audit", *arguments, "--out", "out")[0] == 0
    assert encoded == []


def test_damaged_results_are_made_again(run, encoded):
    """The same command mends them."""
    arguments, _ = as_features()
    first = run("audit", *arguments, "--out", "out")
    Path("out/noise.json").write_text("{}")
    assert run("audit", *arguments, "--out", "out") == first
    os.remove("out/report.html")
    assert run("audit", *arguments, "--out", "out") == first
    assert os.path.exists("out/report.html")


def test_what_was_checked_stays(run, encoded):
    """New results are not written over answers to the old ones."""
    arguments, _ = as_features()
    run("audit", *arguments, "--out", "out")
    sheet = pd.read_csv("out/to_check.csv").assign(true_label="red")
    sheet.to_csv("out/to_check.csv", index=False)
    assert run("audit", *arguments, "--out", "out")[0] == 0  # nothing is written
    status, _, errors = run("audit", *arguments, "--out", "out", "--metric", "euclidean")
    assert status == 1
    assert "out/to_check.csv was filled in" in errors
    assert Results.open("out").estimate.metric == "cosine"


def test_the_folder_serves_the_other_commands(run, encoded, monkeypatch):
    """suspects, verify-sample and estimate fit nothing again, and say the same as before."""
    arguments, _ = as_folders()
    run("audit", *arguments, "--out", "out")
    monkeypatch.setattr(HOC, "fit", lambda *_, **__: pytest.fail("it was fitted again"))
    est = Results.open("out").estimate
    status, output, _ = run("suspects", "out", "--out", "s.csv")
    table = read_table("s.csv")
    assert status == 0
    assert f"{est.noise_rate_:.1%}" in output
    assert table.n_rows == len(est.suspects())
    assert set(table.cells("name")) <= {f"{label}/{i:03}.png" for i, label in enumerate(NOISY)}
    assert run("verify-sample", "out", "--n", 60, "--out", "check.csv")[0] == 0
    sheet = pd.read_csv("check.csv")
    numbers = [int(Path(name).stem) for name in sheet["name"]]
    sheet.assign(true_label=CLASSES[CLEAN[numbers]]).to_csv("checked.csv", index=False)
    status, output, _ = run("estimate", "out", "--out", "T.json", "--report", "page.html")
    assert (status, output.splitlines()[0]) == (0, str(est).splitlines()[0])
    assert output.endswith("Estimate: T.json\nReport: page.html\n")
    assert HOC.load("T.json").to_dict() == est.to_dict()
    status, output, _ = run("estimate", "out", "--verified", "checked.csv", "--json")
    assert json.loads(output)["verified"]["n"] == 60
    assert abs(json.loads(output)["noise_rate"] - WRONG) < 0.1
    _, output, _ = run("suspects", "out", "--verified", "checked.csv", "--out", "s.csv")
    assert "of 180 labels" in output


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["estimate", "out", "--local"], 2, "--local does not go with"),
        (["estimate", "out", "--no-refine"], 2, "--no-refine does not go"),
        (["suspects", "out", "--neighbors", "5", "--out", "s.csv"], 2, "--neighbors does not"),
        (["verify-sample", "out", "--classes", "a,b", "--out", "s.csv"], 2, "--classes does not"),
        (["estimate", "nowhere"], 1, "no LABELS and no audit.json in nowhere"),
        (["estimate", "data.npz:x"], 1, "no LABELS and no audit.json"),
        (["suspects", "begun", "--out", "s.csv"], 1, "was interrupted"),
    ],
)
def test_what_does_not_go_with_results(run, encoded, arguments, status, message):
    """Options that would change the fit, and folders that are no results, are met at the door."""
    sources, _ = as_features()
    run("audit", *sources, "--out", "out")
    os.makedirs("begun/cache")
    code, output, errors = run(*arguments)
    assert (code, output) == (status, "")
    assert message in " ".join(errors.replace("│", " ").split())


def test_what_is_not_labelled_or_cannot_be_read(run, encoded):
    """Empty labels and texts, and broken images, take no part and keep their places."""
    said = texts()
    said[0] = said[100] = ""
    table = pd.DataFrame({"text": said, "label": NOISY, "note": "x,y"})
    table.loc[3, "label"] = ""
    table.to_csv("texts.csv", index=False)
    assert run("audit", "texts.csv", "--out", "out")[0] == 0
    opened = Results.open("out")
    assert len(opened.names) == N - 2
    assert opened.names[:4] == ["1", "2", "3", "4"]
    assert opened.labels[2] is None
    assert opened.content(1) == ("text", said[2])
    new = np.full(N - 2, None)
    new[0] = "red"
    opened.write_labels("new.csv", new)
    changed = pd.read_csv("new.csv", keep_default_na=False)
    expected = table.assign(label=table["label"].where(table.index != 1, "red"))
    pd.testing.assert_frame_equal(changed, expected)
    shutil.rmtree("out")
    write_photos()
    Path("photos", NOISY[5], "005.png").write_bytes(b"broken")
    assert run("audit", "photos", "--out", "out")[0] == 0
    assert not [name for name in Results.open("out").names if name.endswith("005.png")]


def test_unlabeled_names_a_label(run, encoded):
    """As for the other commands, in the kind of the labels."""
    as_features()
    np.save("y.npy", np.where(np.arange(N) % 4, np.searchsorted(CLASSES, NOISY), -1))
    _, output, _ = run("audit", "data.npz", "y.npy", "--unlabeled", "-1", "--json", "--out", "out")
    content = json.loads(output)
    assert (content["classes"], content["kind"]) == ([0, 1, 2], "features")
    assert abs(content["noise_rate"] - WRONG) < 0.1


def test_a_serious_finding_comes_first(run, encoded):
    """Before the number, and --strict ends with status 3."""
    as_features()
    np.save("y.npy", CLASSES[np.random.default_rng(0).integers(0, 3, N)])
    status, output, _ = run("audit", "data.npz", "y.npy", "--out", "out", "--strict")
    found = Results.open("out").estimate.diagnostics_
    assert status == 3
    assert output.splitlines()[1 : 1 + len(found.serious)] == [str(f) for f in found.serious]
    assert ("of the labels are wrong, about" in output) == found.estimable


def write_bad():
    Path("empty.csv").touch()
    Path("header.csv").write_text("text,label\n")
    Path("loose").mkdir()
    Image.new("L", (2, 2)).save("loose/a.png")
    Path("none").mkdir()
    Path("x.csv").write_text("a,b\n" + "1,2\n" * 9)
    Path("paths.csv").write_text("path,label\n" + "".join(f"{i}.png,{i % 2}\n" for i in range(9)))
    Path("leak.csv").write_text(
        "a,label,number\n" + "".join(f"{i},{i % 2},{i % 2}\n" for i in range(9))
    )
    Path("one.csv").write_text("text,label\n" + "some long words,a\n" * 9)
    Path("full").mkdir()
    Path("full/thesis.txt").touch()
    Path("garbage.npy").write_bytes(b"garbage")
    np.save("objects.npy", np.array([None, "a"], object), allow_pickle=True)
    np.save("few.npy", np.eye(2))
    np.save("y2.npy", np.arange(2))
    write_dataset("set/train", {"label": [0, 1]}, {"label": CLASS_LABEL})
    Path("set/dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    write_dataset("unlabelled", {"text": ["a", "b"]}, {"text": {"_type": "Value"}})
    write_dataset("garbage", {"label": [0, 1]}, {"label": CLASS_LABEL})
    Path("garbage/data-00000-of-00002.arrow").write_bytes(b"garbage" * 100)
    write_dataset("outside", {"label": [0, 1]}, {"label": CLASS_LABEL})
    Path("outside/state.json").write_text('{"_data_files": [{"filename": "../../etc/passwd"}]}')
    write_dataset("broken", {"label": [0, 1]}, {"label": CLASS_LABEL})
    Path("broken/state.json").write_text("[]")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no nowhere"),
        (["empty.csv"], "it is empty"),
        (["header.csv"], "it has only a header"),
        (["loose"], "images are in none, such as a.png: sort them into folders"),
        (["none"], "there are no images"),
        (["x.csv"], "none of a, b is called label or .*: name it with --label"),
        (["x.csv", "--label", "c"], "Expected a column 'c'"),
        (["x.csv", "--label", "a", "--text", "c"], "Expected a column 'c'"),
        (["loose", "--text", "c"], "Expected --text for a table only, but loose is a folder"),
        (["paths.csv"], r"none of 9 in paths.csv, such as 0.png: .* audit FOLDER paths.csv"),
        (["leak.csv"], "'number' of leak.csv says the same as 'label': .* --drop number"),
        (["one.csv"], "the number of classes is 1"),
        (["few.npy"], "Expected labels for few.npy.*: labelnoise audit few.npy LABELS"),
        (["few.npy", "y2.npy"], "at least 3 examples"),
        (["garbage.npy", "y2.npy"], "Expected an array, but garbage.npy cannot be read"),
        (["objects.npy", "y2.npy"], "it holds Python objects, which may run code"),
        (["photos", "--out", "full"], "full has other files: choose another with --out"),
        (["photos", "--out", "photos/out"], "outside that of the images"),
        (["photos", "--out", "y2.npy"], "y2.npy"),
        (["photos", "labels2.csv"], "'000.png' is 2 times in labels2.csv"),
        (["rows.parquet", "--label", "hue", "--encoder", "x"], "no encoder for rows of a table"),
        (["rows.parquet", "--label", "hue", "--drop", "y"], "Expected drop to be among"),
        (["set"], "one data set, but set has the parts train, test: give one, as in set/train"),
        (["set/train", "y2.npy"], "Expected no labels beside a data set"),
        (["unlabelled"], "Expected a column of labels in unlabelled"),
        (["garbage"], "Expected an Arrow file"),
        (["outside"], "outside it"),
        (["broken"], "not of one"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(run, encoded, arguments, message):
    """Said before anything is embedded; no folder of results begins to be."""
    write_photos()
    as_rows()
    write_bad()
    twice = [f"{i:03}.png,{label}" for i, label in enumerate(NOISY)] * 2
    Path("labels2.csv").write_text("\n".join(["path,label", *twice]))
    before = sorted(os.listdir())
    status, _, errors = run("audit", *arguments)
    assert status == 1
    assert re.fullmatch(rf"Error: (?=Expected ).*{message}.*\n", errors)
    assert encoded == []
    assert sorted(os.listdir()) == before
    assert os.listdir("full") == ["thesis.txt"]


def test_columns_are_recognised():
    """Texts by their name or their length, labels by their name; categories are no texts."""
    rng = np.random.default_rng(0)
    rows = {"id": np.arange(40), "job": ["head of the house"] * 40, "y": rng.random(40)}
    said = {"title": [f"no {i}" for i in range(40)], "body": [f"so it is {i}" for i in range(40)]}
    for columns, kind, text, label in (
        (rows | {"target": 1}, "table", None, "target"),
        (rows | {"LABEL": 1, "class": 1}, "table", None, "LABEL"),
        (rows | said | {"label": 1}, "texts", "body", "label"),
        (rows | said | {"text": "x", "label": 1}, "texts", "text", "label"),
    ):
        pd.DataFrame(columns).to_csv("x.csv", index=False)
        found = find_source("x.csv")
        assert (found.kind, found.text, found.label) == (kind, text, label)


def test_in_python(encoded):
    """The command is a function of two lines, with its progress."""
    as_folders()
    told = []
    found = audit.audit(find_source("photos"), "out", progress=lambda *args: told.append(args[0]))
    assert abs(found.estimate.noise_rate_ - WRONG) < 0.03
    assert list(dict.fromkeys(told))[:2] == ["embedding", "neighbors"]
    as_rows()
    with pytest.raises(LabelNoiseError, match="Expected no encoder"):
        audit.audit(find_source("rows.parquet", label="hue"), "rows", encoder="x")
