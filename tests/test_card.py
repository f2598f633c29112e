"""Cards on the quality of labels, and badges."""

import datetime
import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import labelnoise
from labelnoise import HOC
from labelnoise.card import card_of
from labelnoise.checks import Diagnostics, Finding
from labelnoise.noise import pair_flip
from labelnoise.results import Results
from labelnoise.review.export import open_review
from labelnoise.review.store import Change
from tests.conftest import clusters

DATE = datetime.date(2026, 11, 19)
NAMES = np.array(["cat", "a|b *c* <d>\n[e]", "owl"])
N = 600


def fitted(names=NAMES):
    """An estimate of a fifth of wrong labels, and the true classes."""
    X, y = clusters(3, N, 0)
    return HOC().fit(X, names[pair_flip(y, 0.2, random_state=0).labels]), names[y]


@pytest.fixture(scope="module")
def est():
    return fitted()[0]


def table_of(body):
    """The cells of the rows of the table of confusions."""
    rows = [line for line in body.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def test_says_the_rate_and_what_it_rests_on(est):
    """Rate, interval, condition, size, version and date: in words, and as facts."""
    card = card_of(est, DATE)
    low, high = est.confidence_interval().noise_rate
    rate = f"{est.noise_rate_:.1%}"
    assert f"**{rate} of the labels are wrong ({low:.1%} to {high:.1%}).**" in card.body
    assert "no random sample of labels was verified" in card.body
    assert "if noise depends on class alone" in card.body
    assert f"labelnoise {labelnoise.__version__}, 2026-11-19" in card.body
    assert f"{N:,} labels in 3 classes" in card.body
    facts = card.front_matter["label_quality"]
    assert facts["noise_rate"] == pytest.approx(est.noise_rate_, abs=1e-4)
    assert facts["noise_rate_interval"] == pytest.approx([low, high], abs=1e-4)
    assert (facts["labels"], facts["verified_labels"]) == (N, 0)
    assert card.front_matter["size_categories"] == ["n<1K"]
    assert f"labelnoise {labelnoise.__version__}, {datetime.date.today()}" in est.card().body


def test_worst_confusions_come_first(est):
    """Classes, shares and intervals are those of T; names do not break the table."""
    rows = table_of(card_of(est).body)
    names = {"cat": 0, r"a\|b \*c\* &lt;d&gt; \[e\]": 1, "owl": 2}
    ends = est.confidence_interval().transition_matrix
    errors = []
    for true, given, share, interval in rows:
        i, j = (
            int(np.flatnonzero(est.classes_ == NAMES[names[name]])[0]) for name in (true, given)
        )
        assert share == f"{est.transition_matrix_[i, j]:.1%}"
        assert interval == f"{ends[0, i, j]:.1%} to {ends[1, i, j]:.1%}"
        errors.append(est.joint_[i, j])
    assert len(rows) >= 3
    assert errors == sorted(errors, reverse=True)


def test_verified_labels_are_what_it_rests_on():
    """A sample that was verified gives rate and interval; other rows do not."""
    est, truth = fitted()
    rows = [row.row for row in est.suspects()][:20]
    est.verify({row: truth[row] for row in rows})
    body = card_of(est).body
    assert "no random sample of labels was verified" in body
    assert "20 labels were verified, but not of rows drawn at random" in body
    sample = est.to_verify(100).to_frame()
    sample["true_label"] = truth[sample["row"]]
    est.verify(sample)
    card, rate = card_of(est), est.verified_.rate
    assert "a stratified sample of 100 labels that were verified" in card.body
    assert f"({rate.low:.1%} to {rate.high:.1%})" in card.body
    assert card.front_matter["label_quality"]["verified_labels"] == 100


def test_serious_findings_come_before_the_number(est):
    """Warnings are only counted; where there is nothing to estimate from, no number is given."""
    worse = HOC.__new__(HOC)
    worse.__dict__.update(est.__dict__)
    worse.diagnostics_ = Diagnostics(
        (
            Finding(
                "copies", False, 0.3, "Many labels were copied.", "serious", "Keep one of each."
            ),
            Finding("rare", False, 0.1, "A class is rare."),
            Finding("fit", True, 0.1, "All is well."),
        )
    )
    card = card_of(worse)
    assert card.body.index("> **Many labels were copied.** Keep one of each.") < card.body.index(
        "of the labels are wrong"
    )
    assert "Warnings of its checks: 1." in card.body
    assert "All is well" not in card.body
    assert card.front_matter["label_quality"]["serious_findings"] == ["copies"]
    nothing = Finding("basis", False, 0.0, "The features say nothing of the classes.", "serious")
    worse.diagnostics_ = Diagnostics((nothing,))
    card = card_of(worse)
    assert "%" not in card.body
    assert "noise_rate" not in card.front_matter["label_quality"]
    assert "not estimable" in card.badge
    assert "%" not in card.badge


def test_hugging_face_reads_it(est):
    """Its library finds the facts in the front matter, whatever is in them."""
    hub = pytest.importorskip("huggingface_hub")
    card = card_of(est, DATE)
    strange = replace(card, front_matter=card.front_matter | {"tags": ['a: "b"', "#c", "ß\n- d"]})
    read = hub.DatasetCard(strange.markdown)
    assert read.data.to_dict() == strange.front_matter
    assert read.text.strip() == card.body.strip()


@pytest.mark.parametrize(("rate", "shown"), [(0.0, "0.0%"), (0.04, "4.0%"), (1.0, "100.0%")])
def test_the_badge_is_an_svg_with_the_rate(est, rate, shown):
    """Text for the eye and for screen readers; the value fits its box."""
    other = HOC.__new__(HOC)
    other.__dict__.update(est.__dict__)
    other.transition_matrix_ = np.array(
        [[1 - rate, rate, 0], [0, 1 - rate, rate], [rate, 0, 1 - rate]]
    )
    other._saved_interval = None
    image = ET.fromstring(card_of(other).badge)
    space = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in image.iter(f"{space}text")]
    assert texts == ["label noise", shown]
    assert image.attrib["aria-label"] == f"label noise: {shown}"
    last = [*image.iter(f"{space}text")][-1].attrib
    assert float(last["x"]) + float(last["textLength"]) < float(image.attrib["width"])


def test_the_command_writes_card_and_badge(est, run, tmp_path, monkeypatch):
    """From a file or a folder of results, to files or to the terminal."""
    monkeypatch.chdir(tmp_path)
    est.save("noise.json")
    status, output, errors = run("card", "noise.json")
    assert (status, errors) == (0, "")
    assert f"{est.noise_rate_:.1%} of the labels are wrong" in output
    status, again, _ = run("card", ".", "--out", "CARD.md", "--badge", "noise.svg")
    assert (status, again) == (0, "Card: CARD.md\nBadge: noise.svg\n")
    assert (tmp_path / "CARD.md").read_text("utf-8") == output
    assert ET.parse("noise.svg").getroot().tag.endswith("svg")


def test_a_folder_of_results_rests_on_what_was_verified_in_it(run, tmp_path, monkeypatch):
    """On the table that was filled in, and on the answers of a review if there are any."""
    monkeypatch.chdir(tmp_path)
    X, y = clusters(3, N, 0)
    np.save("x.npy", X)
    np.save("y.npy", NAMES[pair_flip(y, 0.2, random_state=0).labels])
    assert run("audit", "x.npy", "y.npy", "--out", "results", "--quiet")[0] == 0
    assert "no random sample of labels was verified" in run("card", "results")[1]
    table = pd.read_csv("results/to_check.csv", dtype={"true_label": object})
    table["true_label"] = NAMES[y[table["row"]]]
    table.to_csv("results/to_check.csv", index=False)
    sample = f"sample of {len(table)} labels that were verified"
    status, output, errors = run("card", "results")
    assert (status, errors) == (0, "")
    assert sample in output
    review = open_review(Results.open("results"))
    changes = [
        Change(row.row, 0, "label", review.data.estimate.classes_.tolist().index(NAMES[y[row.row]]))
        for row in [*review.data.estimate.suspects()][:5]
    ]
    review.store.record("clean", changes, given_shown=True)
    review.store.close()
    output = run("card", "results")[1]
    assert sample not in output
    assert "5 labels were verified, but not of rows drawn at random" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.json"], "none.json"),
        (["."], "noise.json"),
        (["T.json", "--out", "card.html"], "ending in .md"),
        (["T.json", "--badge", "card.png"], "ending in .svg"),
    ],
)
def test_bad_input_is_one_line(run, tmp_path, monkeypatch, arguments, message):
    """Nothing is written, and the status is 1."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "T.json").write_text(json.dumps({"format": "other"}))
    status, output, errors = run("card", *arguments)
    assert (status, output) == (1, "")
    assert message in errors
    assert errors.startswith("Error: Expected")
    assert [path.name for path in tmp_path.iterdir()] == ["T.json"]
