"""Each command does its work on files, and leaves nothing where it cannot."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from labelnoise import HOC, LabelNoiseError
from labelnoise import training as torch_training
from labelnoise.checks import Diagnostics, Finding
from labelnoise.cli import training
from labelnoise.comparison import compare_estimates
from labelnoise.io.embedding import Embedding
from labelnoise.noise import class_conditional
from labelnoise.suspects import Suspect
from tests.conftest import clusters, symmetric_matrix

K, N = 3, 600
T = np.array([[0.8, 0.2, 0.0], [0.0, 0.9, 0.1], [0.0, 0.0, 1.0]])


def open_lines(path):
    with open(path) as file:
        return file.read().splitlines()


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Well separated classes with noisy labels in files of the working folder; the clean ones."""
    monkeypatch.chdir(tmp_path)
    X, clean = clusters(K, N, seed=0)
    names = np.array(["cat", "dog", "owl"])
    noisy = class_conditional(names[clean], T, random_state=0)
    np.save("x.npy", X)
    np.save("y.npy", noisy.labels)
    np.save("clean.npy", names[clean])
    return names[clean]


def test_estimate_prints_writes_and_reports(run, data):
    """The summary in words; T in the file; a page that needs nothing else."""
    status, output, errors = run(
        "estimate", "x.npy", "y.npy", "--out", "T.json", "--report", "r.html"
    )
    assert (status, errors) == (0, "")
    assert re.search(r"^  \d+\.\d% .*of true cat are labelled dog$", output, re.MULTILINE)
    assert output.endswith("Estimate: T.json\nReport: r.html\n")
    np.testing.assert_allclose(HOC.load("T.json").transition_matrix_, T, atol=0.08)
    page = "".join(open_lines("r.html"))
    assert "<dd>x.npy, y.npy</dd>" in page
    assert 'id="suspects-table"' in page


def test_estimate_as_json(run, data):
    """One JSON object, with what the options asked for in it."""
    status, output, errors = run(
        "estimate", "x.npy", "y.npy", "--json", "--classes", "owl,dog,cat,elk", "--unlabeled", "dog"
    )
    content = json.loads(output)
    assert (status, errors) == (0, "")
    assert content["classes"] == ["owl", "dog", "cat", "elk"]
    assert content["class_prior"][1] == content["class_prior"][3] == 0
    assert content["diagnostics"]
    low, high = content["confidence_interval"]["noise_rate"]
    assert low <= content["noise_rate"] < high


def test_typed_classes_are_numbers_where_labels_are(run, data):
    """--unlabeled -1 means the number."""
    y = np.where(np.arange(N) % 5, np.unique(data, return_inverse=True)[1], -1)
    np.save("numbers.npy", y)
    _, output, _ = run("estimate", "x.npy", "numbers.npy", "--json", "--unlabeled", "-1")
    assert json.loads(output)["classes"] == [0, 1, 2]


def test_verified_labels_go_through_a_spreadsheet(run, data):
    """A sample, answered in part and saved with semicolons, and its continuation."""
    status, output, errors = run("verify-sample", "x.npy", "y.npy", "--n", "60", "--out", "s.csv")
    assert (status, errors) == (0, "")
    assert "60 rows to check, in 6 strata" in output
    table = pd.read_csv("s.csv")
    assert table["true_label"].isna().all()
    assert "suggested_label" not in table
    table["true_label"] = data[table["row"]]
    table.loc[55:, "true_label"] = None
    table.assign(note="x").to_csv("checked.csv", sep=";", index=False)
    again = ["verify-sample", "x.npy", "y.npy", "--n", "30", "--suggestions", "--out", "more.csv"]
    assert run(*again, "--after", "checked.csv")[0] == 0
    more = pd.read_csv("more.csv")
    assert not set(more["row"]) & set(table["row"])
    assert "suggested_label" in more
    status, output, _ = run("estimate", "x.npy", "y.npy", "--verified", "checked.csv", "--json")
    assert status == 0
    verified = json.loads(output)["verified"]
    assert verified["n"] == 55
    assert json.loads(output)["noise_rate"] == pytest.approx(verified["rate"]["estimate"])
    wrong = (table["true_label"] != table["given_label"])[:55].sum()
    assert (
        f"{wrong} of 55 verified"
        in run("estimate", "x.npy", "y.npy", "--verified", "checked.csv")[1]
    )
    run("suspects", "x.npy", "y.npy", "--verified", "checked.csv", "--out", "suspects.csv")
    assert not set(pd.read_csv("suspects.csv")["row"]) & set(table["row"][:55])


def test_estimate_for_groups_and_neighbourhoods(run, data):
    """--groups says who labels differently; --local how much T varies."""
    careless = np.arange(N) % 2 == 1
    y = np.where(careless & (data == "cat") & (np.arange(N) % 3 > 0), "owl", data)
    np.save("y.npy", y)
    lines = [f"{'B' if one else 'A'}\n" for one in careless]
    with open("g.csv", "w") as file:
        file.writelines(["group\n", *lines])
    status, output, errors = run(
        "estimate", "x.npy", "y.npy", "--groups", "g.csv", "--report", "r.json"
    )
    assert (status, errors) == (0, "")
    with open("r.json") as file:
        content = json.load(file)
    assert content["variation"]["names"] == ["A", "B"]
    assert content["suspects"]["rows"][0]["given"] == "owl"
    assert "group B labels true cat as owl more often than group A" in output
    status, output, errors = run("estimate", "x.npy", "y.npy", "--local", "--out", "T.npy")
    assert (status, errors) == (0, "")
    assert "In 300 neighbourhoods of 250 examples, " in output
    assert np.load("T.npy").shape == (300, K, K)


@pytest.mark.parametrize("part", [["--groups", "g.csv"], ["--local"], []])
def test_closer_checks_are_made_for_parts_too(run, data, part):
    """What `HOC.diagnose` finds is said of the T of all data, whatever else is estimated."""
    Path("g.csv").write_text("group\n" + "a\nb\n" * (N // 2))
    for more, there in (([], True), (["--no-check"], False)):
        _, output, _ = run("estimate", "x.npy", "y.npy", "--verbose", *part, *more)
        assert ("Theorem 2" in output) == there


def test_verified_is_what_a_person_wrote(run, data):
    """A column true_label, beside any others; a copy of what the program suggests is refused."""
    command = ["estimate", "x.npy", "y.npy", "--no-check", "--json", "--verified"]
    assert run("suspects", "x.npy", "y.npy", "--out", "s.csv")[0] == 0
    status, _, errors = run(*command, "s.csv")
    assert (status, "into a column true_label" in errors) == (1, True)
    listed = pd.read_csv("s.csv")
    listed["true_label"] = data[listed["row"]]
    listed.loc[9:, "true_label"] = None
    listed.to_csv("checked.csv", index=False)
    assert json.loads(run(*command, "checked.csv")[1])["verified"]["n"] == 9
    X, y = clusters(K, N, seed=0, separation=0.3)  # suggestions are often wrong
    np.save("x.npy", X)
    np.save("y.npy", y)
    more = ["--suggestions", "--n", "200", "--out", "s.csv"]
    assert run("verify-sample", "x.npy", "y.npy", *more)[0] == 0
    sample = pd.read_csv("s.csv")
    for name in ("suggested_label", "predicted_label"):
        copied = sample.rename(columns={"suggested_label": name})
        copied.assign(true_label=copied[name]).to_csv("copied.csv", index=False)
        status, _, errors = run(*command, "copied.csv")
        assert status == 1
        assert "copied.csv repeats the suggestions to the letter" in errors


def test_the_report_shows_what_was_embedded(run, data):
    """Images and texts of the suspects are found by what the features' rows are called."""
    labels = np.load("y.npy")
    os.mkdir("photos")
    for i in range(N):
        Image.new("RGB", (8, 8), (0, 0, i % 256)).save(f"photos/{i}.png")
    np.save("named.npy", np.load("x.npy"))
    for names in ([f"{i}.png" for i in range(N)], [f"{i}" for i in range(N)]):
        with open("named.names.csv", "w") as file:
            file.writelines(["name,problem\n", *(f"{name},\n" for name in names)])
        with open("t.txt", "w") as file:
            file.writelines(f"text {i}: {labels[i]}\n" for i in range(N))
        shown = ["--examples", "photos" if "." in names[0] else "t.txt"]
        command = ["estimate", "named.npy", "y.npy", "--no-check", *shown, "--report", "r.json"]
        assert run(*command)[::2] == (0, "")
        with open("r.json") as file:
            worst = json.load(file)["suspects"]["rows"][0]
        if "." in names[0]:
            assert worst["name"] == f"{worst['row']}.png"
            assert worst["picture"].startswith("data:image/jpeg;base64,")
        else:
            assert worst["text"] == f"text {worst['row']}: {worst['given']}"
    assert "600 rows of named.npy, but x.txt has 1" in _with_text_file(run)


def _with_text_file(run):
    with open("x.txt", "w") as file:
        file.write("one\n")
    return run("estimate", "named.npy", "y.npy", "--examples", "x.txt", "--report", "r.html")[2]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["estimate", "no.npy", "y.npy"], 1, "no.npy does not exist"),
        (["estimate", "x.npy", "x.npy"], 1, "one label for each example"),
        (["estimate", "x.npy", "y.npy", "--out", "T.xml"], 1, "ending in .json, .npy"),
        (["estimate", "x.npy", "y.npy", "--out", "no/T.json"], 1, "there is no no"),
        (["estimate", "x.npy", "y.npy", "--classes", "cat,dog"], 1, "y has ['owl']"),
        (["estimate", "x.npy", "y.npy", "--groups", "y.npy", "--local"], 2, "does not go with"),
        (["estimate", "x.npy", "y.npy", "--local", "--neighbors", "3"], 2, "does not go with"),
        (["estimate", "x.npy", "y.npy", "--examples", "t.txt"], 2, "needs --report"),
        (["estimate", "x.npy", "y.npy", "--verified", "v.csv", "--local"], 2, "does not go with"),
        (["estimate", "x.npy", "y.npy", "--verified", "no.csv"], 1, "no.csv"),
        (["estimate", "x.npy", "y.npy", "--workers", "many"], 2, "a number or an address"),
        (["estimate", "x.npy", "y.npy", "--workers", "2", "--paper"], 2, "does not go with"),
        (["estimate", "x.npy", "y.npy", "--report", "r.pdf"], 1, "ending in .html, .json"),
        (["estimate", "x.npy", "y.npy", "--report", "r.html", "--examples", "."], 1, "names of im"),
        (["suspects", "x.npy", "y.npy", "--out", "s.npy"], 1, "ending in .csv"),
        (["suspects", "x.npy", "y.npy"], 2, "--out"),
        (["corrupt", "y.npy", "--rate", "2", "--out", "z.npy"], 1, "0 <= rate <= 1"),
        (["corrupt", "y.npy", "--kind", "instance", "--rate", ".1", "--out", "z.npy"], 2, "needs"),
        (["embed", "no", "--out", "z.npy"], 1, "there is no no"),
        (["embed", "t.csv", "--out", "z.npy"], 2, "needs --kind"),
        (["train", "no"], 1, "Expected one of cifar10"),
        (["train", "no", "--method", "magic"], 1, "one of ('ce', "),
        (["train", "no", "--method-setting", "q"], 2, "NAME=VALUE"),
        (["compare", "y.npy", "y.npy"], 1, "written by HOC.save"),
        (["compare", "no.json", "y.npy"], 1, "there is no such file"),
        (["estimate", "x.npy", "few.csv"], 1, "few.csv cannot be read: it is empty"),
        (["estimate", "x.npy", "head.csv"], 1, "Expected labels in head.csv, but there is not one"),
        (["estimate", "head.csv", "y.npy"], 1, "Expected features in head.csv, but it has only"),
        (["estimate", "objects.npy", "y.npy"], 1, "Python objects, which may run code"),
        (["embed", "paths.csv", "--kind", "images", "--out", "z.npy"], 1, "as root (--root)"),
        (["embed", ".", "--encoder", "resnet50", "--out", "z.npy"], 1, "mean torchvision:resnet50"),
        (["suspects", "x.npy", "--out", "s.csv"], 1, "no LABELS and no audit.json in x.npy"),
    ],
)
def test_bad_input_is_one_line_and_a_status(run, data, arguments, status, message):
    """1 for input that cannot be worked with, 2 for wrong usage, and no file is written."""
    Path("few.csv").touch()
    Path("head.csv").write_text("name,label\n")
    Path("paths.csv").write_text("path,label\na.png,1\n")
    Image.new("L", (2, 2)).save("one.png")
    np.save("objects.npy", np.array([None, "a"], object), allow_pickle=True)
    before = sorted(os.listdir())
    found, output, errors = run(*arguments)
    assert (found, output) == (status, "")
    assert message in errors
    assert status == 2 or re.fullmatch("Error: Expected .*\n", errors)
    assert sorted(os.listdir()) == before


def test_suspects_finds_what_is_wrong(run, data):
    """The list is ranked, most of it is wrong, and suggestions are right."""
    wrong = np.load("y.npy") != data
    status, output, errors = run("suspects", "x.npy", "y.npy", "--out", "s.csv", "--top", "20")
    assert (status, errors) == (0, "")
    assert "(20 of them)" in output
    table = pd.read_csv("s.csv")
    assert list(table) == list(Suspect._fields)
    assert wrong[table["row"]].mean() > 0.9
    assert (data[table["row"]] == table["predicted_label"]).mean() > 0.9
    assert table["probability_wrong"].is_monotonic_decreasing
    assert table["is_label_issue"].all()


@pytest.mark.parametrize(
    "how",
    [
        ["--kind", "symmetric", "--rate", "0.3"],
        ["--kind", "pair", "--rate", "0.3"],
        ["--kind", "instance", "--rate", "0.3", "--features", "x.npy"],
        ["--kind", "class", "--matrix", "T.npy"],
    ],
)
def test_corrupt_makes_the_noise_it_says(run, data, how):
    """The rate that is printed is that of the file, and near to what was asked for."""
    np.save("T.npy", symmetric_matrix(K, 0.3))
    status, output, _ = run("corrupt", "clean.npy", *how, "--out", "z.npy", "--json")
    rate = float(np.mean(np.load("z.npy") != data))
    assert status == 0
    assert json.loads(output)["rate"] == rate == pytest.approx(0.3, abs=0.06)


def test_corrupted_labels_keep_their_names(run, data):
    """A table keeps its separator and its other columns as they were."""
    with open("y.csv", "w") as file:
        file.write("path;size;label\nb;-1;1\na;=2;0\n")
    run("corrupt", "y.csv", "--rate", "0", "--out", "z.csv")
    assert open_lines("z.csv") == ["path;size;label", "b;-1;1", "a;=2;0"]  # as it came


def test_only_rows_with_features_are_corrupted(run, data):
    """Instance noise changes labels in their own rows, and leaves rows without features alone."""
    X, names = np.load("x.npy"), [f"{i}.png" for i in range(N)]
    np.save("few.npy", X[:40])
    with open("few.names.csv", "w") as file:
        file.writelines(["name,problem\n", *(f"{n},\n" for n in names[:40]), "40.png,broken\n"])
    rows = [f"{n},{label}" for n, label in zip(names, data, strict=True)][40::-1]
    with open("y.csv", "w") as file:
        file.write("\n".join(["path,label", *rows]) + "\n")
    how = ["--kind", "instance", "--rate", "0.5", "--features", "few.npy"]
    assert run("corrupt", "y.csv", *how, "--out", "z.csv")[0] == 0
    found = open_lines("z.csv")[1:]
    assert found[0] == rows[0]
    assert [line.split(",")[0] for line in found] == names[40::-1]
    assert 5 < sum(a != b for a, b in zip(found, rows, strict=True)) < 35


COMMANDS = {
    "estimate": ["estimate", "{x}", "{y}", "--no-check", "--out"],
    "report": ["estimate", "x.npy", "{y}", "--no-check", "--report"],
    "groups": ["estimate", "x.npy", "y.npy", "--groups", "{y}", "--out"],
    "suspects": ["suspects", "x.npy", "{y}", "--out"],
    "corrupt": ["corrupt", "{y}", "--rate", "0.1", "--out"],
    "matrix": ["corrupt", "y.npy", "--kind", "class", "--matrix", "{y}", "--out"],
    "embed": ["embed", "{y}", "--kind", "table", "--out"],
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("how", ["itself", "symbolic link", "hard link", "other spelling"])
def test_no_output_is_an_input(run, data, name, how):
    """Neither a command's option nor a link makes it overwrite what it reads."""
    source = {"estimate": "y.npy", "report": "in.json", "matrix": "in.npy", "embed": "z.names.csv"}
    source = source.get(name, "in.csv")
    if source != "y.npy":
        with open(source, "w") as file:
            file.write("label\ncat\n")
    before = Path(source).read_bytes()
    end = os.path.splitext(source)[1]
    out = {"itself": source, "other spelling": f"./{source}"}.get(how, f"linked{end}")
    if how == "symbolic link":
        os.symlink(source, out)
    elif how == "hard link":
        os.link(source, out)
    if name == "embed":
        if out.startswith("linked"):
            os.rename(out, "z2.names.csv")
        out = out.replace("linked.csv", "z2.npy").replace(".names.csv", ".npy")
    command = [word.format(x="x.npy", y=source) for word in COMMANDS[name]]
    status, _, errors = run(*command, out)
    assert status == 1
    assert re.search("is the input .*: choose another name", errors)
    assert Path(source).read_bytes() == before


def test_outputs_are_two_files(run, data):
    """The report does not replace the estimate, also not in capital letters."""
    command = ["estimate", "x.npy", "y.npy", "--out", "a.json", "--report"]
    assert run(*command, "a.json")[0] == 2
    assert "outputs to be different files" in run(*command, "A.json")[2]
    assert not os.path.exists("a.json")


def test_a_linked_output_is_written_where_the_link_leads(run, data):
    """The link stays one."""
    os.mkdir("far")
    os.symlink("far/T.npy", "T.npy")
    assert run("estimate", "x.npy", "y.npy", "--no-check", "--out", "T.npy")[0] == 0
    assert os.path.islink("T.npy")
    assert np.load("far/T.npy").shape == (K, K)


def test_one_failure_does_not_undo_the_other(run, data, monkeypatch):
    """Where the report cannot be written, the estimate is, and the status says that one failed."""

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("labelnoise.report.data.Report.save", fail)
    command = ["estimate", "x.npy", "y.npy", "--no-check", "--out", "T.npy", "--report", "r.html"]
    status, _, errors = run(*command)
    assert (status, errors.splitlines()[0]) == (1, "Written: T.npy")
    assert "No space left" in errors
    assert np.load("T.npy").shape == (K, K)


def test_labels_are_names_of_folders(run, data):
    """With a folder for each class, the folder of images is the labels."""
    noisy, names = np.load("y.npy"), []
    for i, label in enumerate(noisy):
        os.makedirs(f"photos/{label}", exist_ok=True)
        names.append(f"{label}/{i}.png")
        Path("photos", names[-1]).touch()
    order = np.argsort(names)
    np.save("f.npy", np.load("x.npy")[order])
    with open("f.names.csv", "w") as file:
        file.writelines(["name,problem\n", *(f"{names[i]},\n" for i in order)])
    for labels in ("photos", "photos/"):
        status, output, errors = run("estimate", "f.npy", labels, "--json", "--no-check")
        assert (status, errors) == (0, "")
        np.testing.assert_allclose(json.loads(output)["transition_matrix"], T, atol=0.08)
    assert run("corrupt", "photos", "--rate", "0", "--out", "z.csv")[0] == 0
    assert open_lines("z.csv")[1] == f"{names[order[0]]},{noisy[order[0]]}"
    Path("photos/loose.png").touch()
    assert "1 images are in none, such as loose.png" in run("estimate", "f.npy", "photos")[2]


@pytest.mark.parametrize(("severity", "expected"), [("serious", 3), ("warning", 0)])
def test_strict_ends_with_status_3_where_a_finding_is_serious(
    run, data, monkeypatch, severity, expected
):
    """The estimate is printed and written all the same; other findings change no status."""
    found = Finding("x", False, None, "Something is wrong.", severity=severity)
    fit = HOC.fit

    def fit_and_find(est, *args, **options):
        fit(est, *args, **options).diagnostics_ = Diagnostics((found,))
        return est

    monkeypatch.setattr(HOC, "fit", fit_and_find)
    for command in (["estimate", "--no-check", "--out", "T.npy"], ["suspects", "--out", "s.csv"]):
        command[1:1] = ["x.npy", "y.npy"]
        assert run(*command)[0] == 0
        status, output, errors = run(*command, "--strict")
        assert (status, errors) == (expected, "")
        assert re.search(f"(Estimate|Suspects): {command[-1]}", output)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{}", 'it has no "format"'),
        ("[1]", 'it has no "format"'),
        ('{"format": "labelnoise estimate"}', "it has no 'version'"),
        ("not JSON", "Expecting value"),
    ],
)
def test_compare_says_what_is_wrong_with_a_file(run, data, content, problem):
    """One sentence, which says what writes such files."""
    with open("a.json", "w") as file:
        file.write(content)
    status, _, errors = run("compare", "a.json", "a.json")
    assert status == 1
    assert re.fullmatch("Error: Expected an estimate written by HOC.save, .*\n", errors)
    assert problem in errors


def test_embed_hands_on_what_was_asked_for(run, data, monkeypatch):
    """Options reach the encoder; failures and the next step are said."""
    calls = []

    def embed_images(source, **settings):
        calls.append((str(source), {**settings, "progress": None}))
        return Embedding(np.zeros((2, 5)), ["a", "b"], [("c", "is broken")])

    monkeypatch.setattr("labelnoise.io.embedding.embed_images", embed_images)
    _, output, _ = run("embed", ".", "--out", "z.npy", "--encoder", "timm:x", "--batch-size", "4")
    assert output.startswith("2 images became 5 features each: z.npy\n1 could not be read")
    assert "  c: is broken\n" in output
    assert calls[0][1]["encoder"] == "timm:x"
    assert calls[0][1]["batch_size"] == 4
    with open("t.csv", "w") as file:
        file.writelines(["a,b\n", *(f"{i},{i % 2}\n" for i in range(9))])
    _, output, _ = run("embed", "t.csv", "--kind", "table", "--drop", "b", "--out", "t.npy")
    assert np.load("t.npy").shape == (9, 1)
    assert "--metric euclidean" in output


def test_train_reports_accuracy_and_continues(run, data, monkeypatch):
    """A training on a folder: its accuracy, its log, and the same answer from what it left."""
    schedule = torch_training.Schedule(((0.1, 1),), batch_size=4)
    tiny = torch_training.Plan(schedule, schedule, schedule)
    monkeypatch.setitem(torch_training.PLANS, "tiny", tiny)
    monkeypatch.setattr(training.os, "cpu_count", lambda: 0)
    os.mkdir("photos")
    for i in range(8):
        Image.new("RGB", (8, 8), (255 * (i % 2), 0, 0)).save(f"photos/{i}.png")
    for name in ("labels", "test"):
        with open(f"photos/{name}.csv", "w") as file:
            file.writelines(["path,label\n", *(f"{i}.png,{i % 2}\n" for i in range(8))])
    command = ["train", "photos", "--method", "gce", "--method-setting", "q=0.5"]
    command += ["--plan", "tiny", "--network", "resnet8", "--device", "cpu"]
    status, output, errors = run(*command)
    log = "runs/photos-gce-resnet8-tiny-0/log.jsonl"
    assert (status, errors) == (0, f"Begins; the log is {log}\n")
    assert re.search(r"Test accuracy in the last epoch: \d+\.\d%", output)
    assert os.path.exists(log)
    assert run(*command)[2] == f"Continues after 1 epochs; the log is {log}\n"
    again = json.loads(run(*command, "--json")[1])
    assert f"last epoch: {again['last_accuracy']:.1%}" in output
    assert run(*command[:-2], "--method-setting", "q=0.9")[0] == 1


def test_compare_says_what_changed(run, data):
    """The clean labels against the noisy ones, from their files, in words and as numbers."""
    run("estimate", "x.npy", "y.npy", "--out", "a.json")
    run("estimate", "x.npy", "clean.npy", "--out", "b.json")
    status, output, errors = run("compare", "a.json", "b.json")
    assert (status, errors) == (0, "")
    assert re.match(r"The share of wrong labels goes from \d+\.\d% to 0\.\d%: .* less", output)
    assert re.search(r"True cat labelled dog: from (1|2)\d\.\d% to 0\.\d% \(p = ", output)
    change = np.array(json.loads(run("compare", "a.json", "b.json", "--json")[1])["difference"])
    np.testing.assert_allclose(change, np.eye(K) - T, atol=0.08)


def test_differences_are_tested_where_error_bars_are_known():
    """A real change is told from chance; classes may come in another order."""
    X, clean = clusters(K, 3000, seed=0)
    noisy = class_conditional(clean, T, random_state=0).labels
    noisier = np.where((clean == 0) & (np.arange(3000) % 6 == 1), 1, noisy)
    half = np.arange(3000) % 2 == 0
    a, turned = HOC().fit(X[half], noisy[half]), HOC(classes=[2, 0, 1])
    same = compare_estimates(a, turned.fit(X[~half], noisy[~half]))
    worse = compare_estimates(a, turned.fit(X[~half], noisier[~half]))
    np.testing.assert_allclose(same.difference, 0, atol=0.1)
    assert same.noise_rate_p_value > 0.05
    assert same.p_values.min() > 0.05
    assert "may be chance" in same.sentences[0]
    assert worse.noise_rate_p_value < 0.05
    assert worse.p_values[0, 1] < 0.01
    assert worse.p_values[1, 2] > 0.05
    with pytest.raises(LabelNoiseError, match=r"only one estimate has \['2'\]"):
        compare_estimates(a, HOC().fit(X[clean < 2], clean[clean < 2]))


@pytest.mark.parametrize(
    ("where", "error", "status"),
    [
        ("labelnoise.io.atomic.os.fsync", OSError(28, "No space left on device"), 1),
        ("labelnoise.io.atomic.os.fsync", KeyboardInterrupt(), 130),
        ("labelnoise.cli.estimates.progress", OSError(5, "Input/output error"), 1),
    ],
)
def test_a_full_disk_and_an_interrupt_are_one_line(run, data, monkeypatch, where, error, status):
    """Whatever ends a command, nothing is half-written and no traceback is shown."""

    def fail(*_):
        raise error

    monkeypatch.setattr(where, fail)
    before = sorted(os.listdir())
    found, _, errors = run("estimate", "x.npy", "y.npy", "--out", "T.json")
    assert found == status
    assert errors.count("\n") == 1
    assert sorted(os.listdir()) == before


def test_completion_knows_the_commands(run, monkeypatch):
    """Shells complete commands and the values of options."""
    for words, expected in (
        ("labelnoise est", "estimate"),
        ("labelnoise corrupt --kind pa", "pair"),
    ):
        monkeypatch.setenv("_LABELNOISE_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        assert run()[1].split() == [expected]


def test_score_finds_the_accuracy_that_noisy_labels_hide(run, data):
    """A sentence with both accuracies and an interval, a line for each class, or JSON."""
    run("estimate", "x.npy", "y.npy", "--out", "T.json")
    np.save("p.npy", data)  # predicts each class correctly
    status, output, errors = run("score", "y.npy", "p.npy", "T.json")
    assert (status, errors) == (0, "")
    noisy, clean = re.match(r"(\d+\.\d)% on these labels; (\d+\.\d)% ", output).groups()
    assert float(noisy) < 92
    assert float(clean) > 97
    assert "true cat: " in output
    content = json.loads(run("score", "y.npy", "p.npy", "T.json", "--json")[1])
    assert content["interval"][0] <= content["accuracy"] <= content["interval"][1]
    assert content["includes_error_of_T"]
    np.save("p.npy", np.full(len(data), "cow"))
    status, _, errors = run("score", "y.npy", "p.npy", "T.json")
    assert status == 1
    assert "cow" in errors
