"""Label Studio, FiftyOne and Spotlight, by their conventions; with label-studio-sdk by that."""

import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from labelnoise import HOC, LabelNoiseError
from labelnoise.integrations import fiftyone, spotlight
from labelnoise.integrations.label_studio import labeling_config, read_annotations, tasks
from labelnoise.noise import pair_flip
from tests.conftest import clusters

N = 400
NAMES = np.array(['cat "the" <first>', "dog & co", "owl"])
URLS = [f"/data/{i}.png" for i in range(N)]


@pytest.fixture
def case():
    """A new estimate, true classes and given labels; the first ten are unlabelled."""
    X, y = clusters(3, N, 0)
    given = NAMES.astype(object)[pair_flip(y, 0.2, random_state=0).labels]
    given[:10] = None
    return HOC().fit(X, given), NAMES[y], given


def annotated(made, truth, skip=()):
    """The tasks as Label Studio exports them, each annotated with its true class."""
    exported = json.loads(json.dumps(made))
    for number, task in enumerate(exported):
        choice = {
            "from_name": "label",
            "to_name": "image",
            "type": "choices",
            "value": {"choices": [str(truth[task["data"]["row"]])]},
        }
        cancelled = number in skip
        task["annotations"] = [
            {"was_cancelled": cancelled, "result": [] if cancelled else [choice]}
        ]
    return exported


def test_suspects_become_tasks(case):
    """The surest first, with cleanlab's columns, a suggestion and its score."""
    est, _, given = case
    found = est.suspects()
    made = tasks(found, URLS)
    assert len(made) == len(found)
    assert [task["data"]["row"] for task in made] == found.index.tolist()
    for task, row in zip(made, found, strict=True):
        assert task["data"]["image"] == URLS[row.row]
        assert task["data"]["given_label"] == given[row.row]
        assert task["data"]["label_score"] == row.label_score
        prediction = task["predictions"][0]
        assert prediction["score"] == row.probability_wrong
        assert prediction["result"][0]["value"]["choices"] == [row.predicted_label]
    scores = [task["predictions"][0]["score"] for task in made]
    assert scores == sorted(scores, reverse=True)


def test_annotations_of_suspects_correct_them(case, tmp_path):
    """An export is read from its file; tasks that were skipped stay open."""
    est, truth, given = case
    exported = annotated(tasks(est.suspects(), URLS), truth, skip=[0])
    (tmp_path / "export.json").write_text(json.dumps(exported))
    table = read_annotations(tmp_path / "export.json")
    assert table["true_label"][0] is None
    assert table["true_label"][1:] == [truth[row] for row in table["row"][1:]]
    assert table["suggested_label"] == [task["data"]["predicted_label"] for task in exported]
    est.verify(table)
    frame = est.suspects().to_frame()
    checked = frame.iloc[table["row"][1:]]
    assert (checked["is_label_issue"] == (given != truth)[table["row"][1:]]).all()
    assert frame["label_score"].iloc[table["row"][0]] not in (0, 1)


def test_annotations_of_a_sample_measure_the_rate(case):
    """Tasks of a sample show no prediction, and keep how their rows were chosen."""
    est, truth, given = case
    sample = est.to_verify(60)
    made = tasks(sample, URLS)
    assert not any("predictions" in task for task in made)
    table = read_annotations(annotated(made, truth, skip=[3]))
    assert table["stratum"] == sample.stratum.tolist()
    found = est.verify(table)
    assert found.n == 59
    low, high = est.confidence_interval().noise_rate
    assert low <= (given != truth)[10:].mean() <= high
    assert {"verified", "skipped"} & {finding.name for finding in est.diagnostics_}


def test_several_annotators(case):
    """Each answer is a row; two that differ are refused with their row."""
    est, truth, _ = case
    exported = annotated(tasks(est.suspects(), URLS)[:2], truth)
    exported[0]["annotations"] *= 2
    assert len(read_annotations(exported)["row"]) == 3
    est.verify(read_annotations(exported))
    other = json.loads(json.dumps(exported[0]["annotations"][0]))
    own = truth[exported[0]["data"]["row"]]
    other["result"][0]["value"]["choices"] = [str(next(name for name in NAMES if name != own))]
    exported[0]["annotations"].append(other)
    with pytest.raises(LabelNoiseError, match="one true label for each row"):
        est.verify(read_annotations(exported))


@pytest.mark.parametrize(("kind", "element"), [("image", "Image"), ("text", "Text")])
def test_the_config_has_a_choice_for_each_class(kind, element):
    """It is XML, whatever the classes are called, and fits the tasks."""
    view = ET.fromstring(labeling_config(NAMES, kind))
    shown, choices = view
    assert (shown.tag, shown.attrib) == (element, {"name": kind, "value": f"${kind}"})
    assert choices.attrib == {"name": "label", "toName": kind, "choice": "single"}
    assert [choice.attrib["value"] for choice in choices] == NAMES.tolist()


def test_label_studio_takes_them(case):
    """Its own library finds config, tasks and predictions valid."""
    interface = pytest.importorskip("label_studio_sdk.label_interface")
    est, *_ = case
    studio = interface.LabelInterface(labeling_config(est.classes_))
    for task in tasks(est.suspects(), URLS)[:20]:
        # 2.1 cannot validate both at once: it forgets to hand the prediction on.
        assert studio.validate_task({"data": task["data"]})
        assert studio.validate_prediction(task["predictions"][0], return_errors=True) == []
    for task in tasks(est.to_verify(20), URLS):
        assert studio.validate_task(task)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda est: tasks(est.suspects(), URLS[:9]), "each of the 400 examples, but there are 9"),
        (lambda est: tasks(est.to_verify(20), URLS[:9]), "there are 9 and the sample has row"),
        (lambda est: tasks(est.suspects(), URLS, "video"), r"\['image', 'text'\]"),
        (lambda est: read_annotations([{"row": 3, "label": "cat"}]), "has no data.row"),
        (lambda est: read_annotations("none.json"), "none.json cannot be read"),
    ],
)
def test_bad_input(case, ask, message):
    """Each mistake gives one LabelNoiseError with the rule and the value."""
    with pytest.raises(LabelNoiseError, match=message):
        ask(case[0])


class Samples:
    """What the functions ask of a data set of FiftyOne."""

    def __init__(self, labels):
        self.fields = {"ground_truth.label": labels}

    def __len__(self):
        return len(self.fields["ground_truth.label"])

    def values(self, field):
        """Values of a field."""
        return self.fields[field]

    def set_values(self, field, values):
        """Set a field of all samples; FiftyOne takes Python's own types alone."""
        assert {type(value) for value in values} <= {bool, float, str, type(None)}
        self.fields[field] = values


def test_fields_of_fiftyone(case):
    """Labels come from a field of classifications; fields have a value for every sample."""
    est, _, given = case
    data = Samples(given.tolist())
    assert fiftyone.labels(data).tolist() == given.tolist()
    fiftyone.add_fields(data, est.suspects())
    frame = est.suspects().to_frame()
    assert data.fields["is_label_issue"] == frame["is_label_issue"].tolist()
    assert data.fields["label_score"][:10] == [None] * 10
    assert data.fields["label_score"][10:] == frame["label_score"].tolist()[10:]
    assert data.fields["predicted_label"][10:] == frame["predicted_label"].tolist()[10:]
    with pytest.raises(LabelNoiseError, match="Expected the samples whose labels were fitted, 400"):
        fiftyone.add_fields(Samples(given.tolist()[:3]), est.suspects())


def test_an_issue_of_spotlight(case):
    """The suspects' rows, the surest first, and how many are expected."""
    found = case[0].suspects()
    made = spotlight.issue(found, "label")
    assert made["rows"] == found.index.tolist()
    assert made["title"] == f"{len(found)} labels are probably wrong"
    assert f"of {N - 10} labels" in made["description"]
    assert made["columns"] == ["label"]
    assert spotlight.issue(found)["columns"] is None
    assert set(made) == {"title", "rows", "severity", "columns", "description"}  # of DataIssue
