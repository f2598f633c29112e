"""What leaves: the checked table, the cleaned labels, Label Studio's tasks."""

import csv
import json

import numpy as np
import pytest

from labelnoise import LabelNoiseError
from labelnoise.results import expect_no_answers
from labelnoise.review import measure
from labelnoise.review.export import checked, cleaned, files, label_studio
from labelnoise.review.store import Change


def decide(review, list_name, **label_of_row):
    """Record class numbers, or None for unclear, on rows named row_1 and so on."""
    for name, label in label_of_row.items():
        row = int(name.removeprefix("row_"))
        last = review.store.answers(list_name).get(row)
        version = 0 if last is None else last.version
        verdict = "unclear" if label is None else "label"
        review.store.record(list_name, [Change(row, version, verdict, label)], False)


def measured(review, true, n):
    """Answer the first n rows of the sample rightly."""
    rows = [row for row, _, _ in measure.sample_of(review.data, review.store)][:n]
    decide(review, "measure", **{f"row_{row}": int(true[row]) for row in rows})
    return rows


def test_checked_is_what_verify_takes(review, images):
    """All answers, and only those of the sample give the rate."""
    _, true = images
    rows = measured(review, true, 50)
    suspects = review.data.estimate.suspects().index.tolist()
    others = [row for row in suspects if row not in rows][:20]
    decide(review, "clean", **{f"row_{row}": int(true[row]) for row in others})
    found = review.data.estimate.verify(checked(review))
    assert (found.n, found.n_sampled) == (70, 50)
    assert found.n_wrong == (review.data.labels != true)[[*rows, *others]].sum()
    assert found.rate.low < (review.data.labels != true).mean() < found.rate.high


def test_what_cleaning_finds_does_not_enter_the_rate(review, images):
    """A row of the sample that was answered as a suspect is listed without its stratum."""
    _, true = images
    rows = measured(review, true, 40)
    before = review.data.estimate.verify(checked(review)).rate
    listed = {row for row, _, _ in review.store.sample()}
    suspects = review.data.estimate.suspects().index.tolist()
    later = [row for row in suspects if row in listed and row not in rows][:5]
    assert later
    decide(review, "clean", **{f"row_{row}": int(true[row]) for row in later})
    table = checked(review)
    after = review.data.estimate.verify(table)
    assert after.rate == before
    assert after.n == 45
    strata = dict(zip(table["row"], table["stratum"], strict=True))
    assert all(strata[row] == "" for row in later)


def test_the_last_answer_cleans_the_label(review, images):
    """On either list; unclear and skipped rows keep their label, as do all others."""
    given = review.data.results.labels
    decide(review, "measure", row_1=4, row_2=4, row_3=None)
    decide(review, "clean", row_2=5, row_4=6)
    decide(review, "measure", row_4=7)
    classes = review.data.estimate.classes_
    expected = given.copy()
    expected[[1, 2, 4]] = classes[[4, 5, 7]]
    assert cleaned(review).tolist() == expected.tolist()


def test_a_withdrawn_answer_changes_nothing(review):
    decide(review, "clean", row_2=5)
    review.store.record("clean", [Change(2, 1, "withdrawn")], True)
    assert cleaned(review).tolist() == review.data.results.labels.tolist()
    assert not any(checked(review)["true_label"])


def test_cleaned_labels_keep_the_rest_of_their_file(text_review, tmp_path):
    """A CSV file stays what it was to the last byte, but for the label that was wrong."""
    source = text_review.data.results.source.path
    given = text_review.data.given(17)
    other = (given + 1) % 10
    decide(text_review, "clean", row_17=other)
    files(text_review)["labels-cleaned.csv"](tmp_path / "labels-cleaned.csv")
    with open(source, newline="") as file:
        lines = file.readlines()
    classes = text_review.data.estimate.classes_
    (place,) = [i for i, line in enumerate(lines) if line.endswith(",  00017\n")]
    lines[place] = lines[place].replace(classes[given], classes[other])
    assert (tmp_path / "labels-cleaned.csv").read_bytes() == "".join(lines).encode()


def test_folders_leave_as_a_table(review, images, tmp_path):
    """Which `labelnoise estimate` takes in place of the folder."""
    decide(review, "clean", row_17=(review.data.given(17) + 1) % 10)
    files(review)["labels-cleaned.csv"](tmp_path / "labels-cleaned.csv")
    with open(tmp_path / "labels-cleaned.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == list(review.data.results.names)
    assert [row["label"] for row in rows] == cleaned(review).tolist()
    assert sum(row["label"] != row["name"].partition("/")[0] for row in rows) == 1


def test_label_studio_has_answers_and_suspicions(review, tmp_path):
    """Annotations where somebody answered, predictions where the label is suspect."""
    suspects = review.data.estimate.suspects()
    row = int(suspects.index[0])
    other = int(np.setdiff1d(np.arange(600), suspects.index)[0])
    decide(review, "clean", **{f"row_{row}": 3})
    decide(review, "measure", **{f"row_{other}": 4})
    files(review)["label-studio.json"](tmp_path / "tasks.json")
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert tasks == json.loads(json.dumps(label_studio(review)))
    assert len(tasks) == len(suspects) + 1
    classes = review.data.estimate.classes_
    (result,) = tasks[0]["annotations"][0]["result"]
    assert result["value"] == {"choices": [classes[3]]}
    (prediction,) = tasks[0]["predictions"]
    assert prediction["result"][0]["value"] == {"choices": [suspects.suggested[0]]}
    assert tasks[0]["data"]["given_label"] == suspects.given[0]
    assert tasks[0]["data"]["image"].startswith("/data/local-files/?d=")
    assert "annotations" not in tasks[1]
    assert "predictions" not in tasks[-1]


def test_command_writes_all_files(review, images, run, tmp_path):
    """`labelnoise review RESULTS --export FOLDER`, without a server."""
    results, _ = images
    out = tmp_path / "out"
    status, _, error = run("review", results.folder, "--export", out)
    assert (status, "folder" in error) == (1, True)
    out.mkdir()
    status, printed, _ = run("review", results.folder, "--export", out)
    assert status == 0
    names = {"checked.csv", "labels-cleaned.csv", "label-studio.json"}
    assert {path.name for path in out.iterdir()} == names
    assert all(name in printed for name in names)


def test_a_folder_that_was_only_looked_at_may_be_audited_again(review):
    """One with answers may not: they are about the labels that were audited before."""
    folder = review.data.results.folder
    measure.sample_of(review.data, review.store)
    expect_no_answers(folder)
    decide(review, "clean", row_2=5)
    with pytest.raises(LabelNoiseError, match=r"answers\.sqlite was filled in"):
        expect_no_answers(folder)


def test_results_that_are_none(run, tmp_path):
    status, _, error = run("review", tmp_path)
    assert status == 1
    assert "labelnoise audit" in error


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_ports_that_are_none(run, tmp_path, port):
    assert run("review", tmp_path, "--port", port)[0] == 2
