"""The report holds what the estimate says, and its page shows names as data and loads nothing."""

import base64
import copy
import hashlib
import io
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn import config_context

from labelnoise import HOC, AnnotatorHOC, GroupHOC, LabelNoiseError, LocalHOC
from labelnoise.checks import Diagnostics, Finding
from labelnoise.intervals import ConfidenceInterval
from labelnoise.neighbors.agreement import NeighborAgreement
from labelnoise.noise import symmetric
from labelnoise.report import Report, Truth, report_of
from labelnoise.report.data import Suspect, SuspectList, Variation, short_percent
from labelnoise.report.matrix import level
from labelnoise.suspects import find_suspects
from tests.conftest import clusters, symmetric_matrix

T = np.array([[0.912, 0.061, 0.027], [0.0, 0.75, 0.25], [0.1234, 0.0002, 0.8764]])
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    '"it\'s" & $that',
    "שלום עולם",
    "=1+2",
    80 * "long",
)
VOID = {"meta", "link", "img", "br", "hr", "input"}
PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA="


def suspect_list(classes, n=50, shown=24, **seen):
    """Suspects of each class in turn, each with the next class as its likely label."""
    index = np.arange(n)
    given, suggested = index % len(classes), (index + 1) % len(classes)
    probability = np.maximum(1 - index / 100, 0.5)
    names = tuple(f"{i}.png" for i in index)
    rows = tuple(
        Suspect(i, classes[given[i]], classes[suggested[i]], probability[i], names[i], **seen)
        for i in range(min(n, shown))
    )
    return SuspectList(rows, index, given, suggested, probability, names)


def hostile_list():
    """Suspects whose names, texts and classes are out to do harm."""
    K = len(HOSTILE)
    rows = tuple(Suspect(i, name, name, 0.9, name, name) for i, name in enumerate(HOSTILE))
    return SuspectList(rows, *[np.arange(K)] * 3, np.full(K, 0.9), HOSTILE)


def sample(classes=("cat", "dog", "eel"), matrix=T, **changes):
    """A report with all that there can be in it."""
    K = len(classes)
    interval = ConfidenceInterval(
        0.95,
        np.stack([0.9 * matrix, np.minimum(1.2 * matrix, 1)]),
        np.zeros((2, K)),
        np.array([0.1, 0.2]),
        "sandwich",
        matrix == 0,
    )
    fields = {
        "class_prior": np.full(K, 1 / K),
        "noise_rate": 0.1538,
        "findings": (
            Finding("fit", True, 1.0, "It fits."),
            Finding("bad", False, 2.0, "It's <bad>.", remedy="Do <this>."),
            Finding("open", True, None, "It was not looked at."),
        ),
        "interval": interval,
        "n_examples": 3000,
        "label_shares": np.full(K, 1 / K),
        "agreement": NeighborAgreement(
            np.array([0.8, 0.7]), np.array([0.1, 0.3]), np.array([0.9, 0.6]), 0.3
        ),
        "variation": Variation("group", classes[:2], np.array([0.1, 0.2]), None, ("B errs more.",)),
        "suspects": suspect_list(classes, picture=PIXEL),
        "truth": Truth(np.eye(K), 0.0, {"this estimate": 0.5, classes[0]: 0.2}),
        "how": {"Data": classes[0]},
    }
    return Report(classes, matrix, **{**fields, **changes})


class Page(HTMLParser):
    """Elements, text and scripts of a page, with a check that all tags are closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.text, self.raw = [], [], "", {"style": [], "script": []}
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        """Remember the element."""
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        """Expect the innermost open element."""
        assert self.open.pop() == tag

    def handle_data(self, data):
        """Collect the text, and apart from it styles and scripts."""
        if self.open and self.open[-1] in self.raw:
            self.raw[self.open[-1]].append(data)
        else:
            self.text += data


@pytest.fixture(scope="module")
def fitted():
    """Three well separated classes with a fifth of the labels wrong: data and estimate."""
    X, y = clusters(3, 600, seed=0)
    labels = np.array(["cat", "dog", "eel"])[symmetric(y, 0.2, random_state=0).labels]
    return X, labels, HOC().fit(X, labels)


def test_report_holds_the_estimate(fitted):
    """T, prior, intervals, counts, findings and settings are those of the estimator."""
    X, labels, _ = fitted
    est = HOC(n_neighbors=3).fit(X, labels)
    est.diagnose()
    report = est.report()
    np.testing.assert_array_equal(report.transition_matrix, est.transition_matrix_)
    np.testing.assert_allclose(
        report.label_shares, np.unique(labels, return_counts=True)[1] / len(labels)
    )
    assert report.interval.noise_rate.tolist() == est.confidence_interval().noise_rate.tolist()
    assert report.findings == est.diagnostics_.findings
    assert report.agreement is est.agreement_
    assert report.n_examples == 600
    assert report.how["Estimator"] == "HOC(n_neighbors=3)"
    assert report.suspects.n_found == len(est.suspects())


def test_report_as_json(tmp_path):
    """All of it is in the file, as numbers that every reader of JSON knows."""
    report = sample(findings=(Finding("f", True, float("nan"), "?"),))
    report.save(tmp_path / "r.json")
    content = json.loads((tmp_path / "r.json").read_text(), parse_constant=pytest.fail)
    assert content["transition_matrix"] == T.tolist()
    assert content["findings"][0]["value"] is None
    assert len(content["suspects"]["rows"]) == 24
    assert content["suspects"]["index"] == list(range(50))
    with pytest.raises(LabelNoiseError, match=r"ending in \.html or \.json, but it is 'r\.pdf'"):
        report.save("r.pdf")


def test_headline_and_confusions():
    """The result in one sentence; confusions by how many labels they are, without zeros."""
    report = sample(class_prior=np.array([0.8, 0.1, 0.1]), truth=None)
    assert report.headline == "Estimate: 15.4% (10.0% to 20.0%) of the labels are wrong."
    assert [str(one) for one in report.confusions()] == [
        "146 labels: 6.1% (5.5% to 7.3%) of true cat are labelled dog",
        "75 labels: 25.0% (22.5% to 30.0%) of true dog are labelled eel",
        "65 labels: 2.7% (2.4% to 3.2%) of true cat are labelled eel",
        "37 labels: 12.3% (11.1% to 14.8%) of true eel are labelled cat",
    ]
    plain = sample(interval=None, n_examples=None)
    assert plain.headline == "Estimate: 15.4% of the labels are wrong. Truth: 0.0%."
    first = "8.3% of the labels: 25.0% of true dog are labelled eel (true: 0.0%)"
    assert str(plain.confusions(1)[0]) == first


def test_orders_put_confused_classes_together():
    """Classes that are taken for each other become neighbours."""
    matrix = np.eye(6)
    for i, j in ((0, 3), (1, 5), (2, 4)):
        matrix[i, [i, j]] = matrix[j, [j, i]] = 0.7, 0.3
    matrix[2, [2, 4]] = 0.6, 0.4
    orders = sample(tuple("abcdef"), matrix).orders(np.arange(6))
    assert {frozenset(pair) for pair in orders["confused classes together"].reshape(3, 2)} == {
        frozenset(pair) for pair in ((0, 3), (1, 5), (2, 4))
    }
    assert orders["noisiest first"][0] == 2


def test_all_suspects_are_kept_and_the_surest_shown(fitted):
    """Of 400 suspects 24 have their texts, shortened; names and classes are of all."""
    wrong = np.linspace(0.7, 0.9, 500)
    posterior = np.column_stack([1 - wrong, np.zeros(500), wrong])
    found = find_suspects(posterior, np.zeros(500, int), fitted[2].classes_)
    texts = [f"{i} {'long ' * 200}" for i in range(500)]
    listed = report_of(fitted[2], suspects=found, texts=texts, names=range(500)).suspects
    assert (len(listed.rows), listed.n_found, len(listed.names)) == (24, 400, 400)
    first = listed.rows[0]
    assert (first.row, first.name, first.given, first.suggested) == (499, "499", "cat", "eel")
    assert first.text.startswith("499 long")
    assert len(first.text) < 650
    assert (set(listed.given), set(listed.suggested)) == ({0}, {2})
    assert listed.index[-1] == 100
    shifted = pd.Series(texts, index=range(1, 501))
    by_position = report_of(fitted[2], suspects=found, texts=shifted).suspects
    assert by_position.rows[0].text == first.text
    for name in ("texts", "names"):
        with pytest.raises(LabelNoiseError, match=f"Expected {name} of all examples .* are 300"):
            report_of(fitted[2], suspects=found, **{name: range(300)})


def test_every_estimator_lists_suspects(fitted):
    """Those of groups and neighbourhoods are those of all data."""
    X, labels, est = fitted
    by_group = GroupHOC().fit(X, labels, groups=np.arange(600) % 2)
    local = LocalHOC(n_local=5, local_size=100, random_state=0).fit(X, labels)
    for one in (by_group, local):
        np.testing.assert_array_equal(one.report().suspects.index, est.suspects().index)


@pytest.fixture
def three(fitted):
    """An estimate, and three suspects of it: rows 0 to 2."""
    return fitted[2], find_suspects(np.eye(3)[[1, 1, 1]], np.zeros(3, int), fitted[2].classes_)


def test_pictures_are_of_one_size_and_may_be_missing(three, tmp_path, monkeypatch):
    """Pictures have up to 256 pixels; what is no image has none; without Pillow that is said."""
    est, found = three
    Image.new("RGB", (800, 200), "red").save(tmp_path / "wide.png")
    (tmp_path / "broken.png").write_text("no image")
    Image.new("L", (3000, 1)).save(tmp_path / "line.png")  # less than a pixel high when shown
    names = ["wide.png", "broken.png", "no.png"]
    for images in ([tmp_path / name for name in names], tmp_path, str(tmp_path)):
        shown = report_of(est, suspects=found, images=images, names=names).suspects.rows
        assert picture_size(shown[0]) == (256, 64)
        assert shown[1].picture is shown[2].picture is None
    line = report_of(est, suspects=found, images=3 * [tmp_path / "line.png"]).suspects.rows[0]
    assert line.picture is None
    small = report_of(est, suspects=found, images=np.zeros((3, 8, 8), np.uint8))
    assert picture_size(small.suspects.rows[2]) == (256, 256)
    with pytest.raises(LabelNoiseError, match="Expected names with a folder of images"):
        report_of(est, suspects=found, images=tmp_path)
    with pytest.raises(LabelNoiseError, match="outside it, such as"):
        report_of(est, suspects=found, images=tmp_path, names=["../a.png", "b", "c"])
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(LabelNoiseError, match=re.escape("pip install '.[images]'")):
        report_of(est, suspects=found, images=[tmp_path / name for name in names])


def picture_size(suspect):
    """Width and height of the picture that a page shows."""
    kind, _, code = suspect.picture.partition(",")
    assert kind == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(code))).size


@pytest.mark.parametrize("shape", [(3, 3, 8, 8), (3, 8), (3, 8, 8)])
def test_images_that_are_none(three, shape):
    """Arrays that cannot be shown as they are meant are refused, by what they are."""
    with pytest.raises(LabelNoiseError, match=r"uint8 arrays of shape .* but one is float32"):
        report_of(three[0], suspects=three[1], images=np.zeros(shape, np.float32))


def test_every_estimator_has_a_report(fitted, tmp_path):
    """Parts of the data are named with their noise; a loaded estimate has no examples."""
    X, labels, est = fitted
    groups = np.where(np.arange(600) % 2, "B", "A")
    by_group = GroupHOC().fit(X, labels, groups=groups).report(tmp_path / "r.html")
    assert by_group.variation.names == ("A", "B")
    assert by_group.variation.sizes.tolist() == [300, 300]
    assert "group" in Page((tmp_path / "r.html").read_text("utf-8")).text
    local = LocalHOC(n_local=5, local_size=100, random_state=0).fit(X, labels).report()
    assert len(local.variation.noise_rates) == 5
    assert "In 5 neighbourhoods of 100 examples" in Page(local.to_html()).text
    people = AnnotatorHOC(per_annotator=True).fit(np.column_stack([labels, labels, labels]))
    assert people.report().variation.names == ("0", "1", "2")
    assert people.report().n_examples is None  # each has several labels
    est.save(tmp_path / "T.json")
    loaded = HOC.load(tmp_path / "T.json").report()
    assert loaded.label_shares is loaded.suspects is None
    assert loaded.interval is not None
    Page(loaded.to_html())
    assert HOC().fit_consensus(est.consensus_).report().n_examples == 600


@pytest.mark.parametrize("kind", [HOC, LocalHOC, GroupHOC, AnnotatorHOC])
def test_the_snippet_to_copy_runs(fitted, tmp_path, monkeypatch, kind):
    """It loads a file of this estimator, and finds the T that the report shows."""
    X, labels, est = fitted
    if kind is GroupHOC:
        est = GroupHOC().fit(X, labels, groups=np.arange(600) % 2)
    elif kind is LocalHOC:
        est = LocalHOC(n_local=5, local_size=100, random_state=0).fit(X, labels)
    elif kind is AnnotatorHOC:
        est = AnnotatorHOC().fit(np.column_stack([labels, labels, labels]))
    monkeypatch.chdir(tmp_path)
    est.save("noise.json")
    report = est.report()
    (code,) = re.findall(r"<pre[^>]*>(.*?ForwardClassifier.*?)</pre>", report.to_html(), re.S)[-1:]
    found = {"X": X, "y": labels, "X_new": X}
    exec(code[code.rindex("from labelnoise") :], found)
    np.testing.assert_array_equal(found["model"].transition_matrix, report.transition_matrix)


def test_page_says_what_was_found():
    """Headline, findings, errors, variation, suspects and the making are all in the text."""
    text = re.sub(r"\s+", " ", Page(sample().to_html()).text)
    for expected in (
        "Estimate: 15.4% (10.0% to 20.0%) of the labels are wrong. In truth 0.0% are.",
        "dog → eel25025.0% 22.5 to 30.0",
        "warningBadIt's <bad>. Do <this>.",
        "1 check passed, 1 not tested",
        "not testedOpenIt was not looked at.",
        "this estimate0.500",
        "B errs more.",
        "50 labels to check",
        "labelcatlikelydogwrong&gt;99.9%row 0, 0.png".replace("&gt;", ">"),
        "1 check needs attention",
    ):
        assert expected in text
    assert text.index("It's <bad>.") < text.index("It fits.")


def test_what_people_ask_comes_first():
    """Headline, suspects, confusions, classes, matrix, parts of the data, checks, use."""
    page = Page(sample().to_html())
    ids = [found["id"] for tag, found in page.elements if tag == "section"]
    first = ["suspects", "confusions", "classes", "transition", "groups"]
    assert ids == [*first, "error", "checks", "use", "how"]


def test_serious_findings_come_before_the_number():
    """With what to do about them; where there is nothing to estimate from, there is no number."""
    serious = Finding("fit", False, 1.0, "It is <off>.", "serious", "Get others.")
    warning = Finding("near", False, 1.0, "It is near.")
    page = Page(sample(findings=(serious, warning)).to_html()).text
    assert page.index("Fit: It is <off>. Get others.") < page.index("Estimate: 15.4%")
    assert "1 more check needs attention" in page
    assert page.count("It is <off>.") == page.count("It is near.") == 1
    basis = replace(serious, name="basis", sentence="Labels are random.")
    refused = sample(findings=(basis,))
    assert refused.headline == "Labels are random."
    parsed = Page(refused.to_html())
    assert "15.4%" not in parsed.text
    assert not {"suspects", "confusions", "transition"} & {f.get("id") for _, f in parsed.elements}


def test_uniform_noise_does_not_look_alarming():
    """The colour of a share is the same in each matrix: 2% is pale, also where it is the most."""
    K = 11
    names = tuple(f"c{i}" for i in range(K))
    uniform = sample(names, symmetric_matrix(K, 0.2), truth=None).to_html()
    assert set(re.findall(r'<td class="w(\d+)">', uniform)) == {str(level(0.02))}
    assert level(0.02) < level(0.2) / 2 < level(0.5) / 2 == 10


def test_page_without_what_is_not_known():
    """An estimate that has nothing but T and p has a page without the rest."""
    bare = Report(("a", "b"), symmetric_matrix(2, 0.2), np.array([0.5, 0.5]), 0.2)
    page = Page(bare.to_html())
    ids = {found.get("id") for _, found in page.elements}
    assert ids.isdisjoint({"suspects", "variation", "neighbours", "error"})
    clean = replace(bare, transition_matrix=np.eye(2), noise_rate=0.0)
    assert "no confusion reaches 0.1%" in Page(clean.to_html()).text


def test_hostile_names_are_data():
    """Class names, file names and texts with markup come out as text, wherever they are shown."""
    K = len(HOSTILE)
    serious = Finding(HOSTILE[1], False, 1.0, HOSTILE[0], "serious", HOSTILE[1])
    page = sample(
        HOSTILE, symmetric_matrix(K, 0.2), suspects=hostile_list(), findings=(serious,)
    ).to_html()
    parsed = Page(page)
    assert [tag for tag, _ in parsed.elements].count("script") == 2
    assert not {"img", "iframe", "object"} & {tag for tag, _ in parsed.elements}
    assert not any(name.startswith("on") for _, found in parsed.elements for name in found)
    assert json.loads(parsed.raw["script"][0])["classes"] == list(HOSTILE)
    assert all(name in parsed.text for name in HOSTILE)


def test_page_loads_nothing():
    """Nothing refers to another file, and the policy allows only the own style and script."""
    page = sample().to_html()
    parsed = Page(page)
    assert not re.search(r"https?:|url\(|@import", page)
    targets = [
        f.get("href") or f.get("src") for _, f in parsed.elements if {"href", "src"} & set(f)
    ]
    assert all(target.startswith(("#", "data:")) for target in targets)
    assert not any("style" in found for _, found in parsed.elements)
    (policy,) = (found["content"] for _, found in parsed.elements if "http-equiv" in found)
    allowed = dict(part.split(" ", 1) for part in policy.split("; "))
    assert allowed["default-src"] == "'none'"
    for name, code in (
        ("style-src", parsed.raw["style"][0]),
        ("script-src", parsed.raw["script"][1]),
    ):
        digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        assert allowed[name] == f"'sha256-{digest}'"


@pytest.mark.parametrize(("K", "left_out"), [(100, 0), (300, 200)])
def test_many_classes(K, left_out):
    """A hundred classes fit on a page of less than 2 MB; of more, it shows the worst."""
    matrix = symmetric_matrix(K, 0.01)
    matrix[K - 1, [K - 1, 0]] = matrix[K - 1, [0, K - 1]]
    names = tuple(f"class number {i}" for i in range(K))
    page = sample(names, matrix).to_html()
    assert len(page.encode()) < 2e6
    text = Page(page).text
    assert (f"{left_out} are not shown" in text) == (left_out > 0)
    assert f"class number {K - 1}" in text


def test_many_suspects():
    """All of 100,000 suspects are in a page of less than 5 MB."""
    page = sample(suspects=suspect_list(("cat", "dog", "eel"), 100_000)).to_html()
    assert len(page.encode()) < 5e6
    suspects = json.loads(Page(page).raw["script"][0])["suspects"]
    assert suspects["row"][-1] == 99_999
    assert {len(column) for column in suspects.values()} == {100_000}


def test_jupyter_shows_the_estimate(fitted):
    """Before the fit scikit-learn's diagram, then headline and T; neither where text is wanted."""
    assert "sk-" in HOC()._repr_html_()
    X, labels, est = fitted
    shown = est._repr_mimebundle_()["text/html"]
    assert shown == est._repr_html_()
    assert f"Estimate: {est.noise_rate_:.1%}" in shown
    assert f"{short_percent(est.transition_matrix_[0, 0])}</td>" in shown
    with config_context(display="text"):
        assert "text/html" not in est._repr_mimebundle_()
    hostile = np.array([HOSTILE[0], "b", "c"])[np.unique(labels, return_inverse=True)[1]]
    assert "<script" not in HOC().fit(X, hostile)._repr_html_()


def test_jupyter_says_first_what_is_serious(fitted):
    """Before the number; without anything to estimate from there is no number and no T."""
    est = copy.copy(fitted[2])
    serious = Finding("fit", False, 1.0, "It is <off>.", "serious", "Get others.")
    est.diagnostics_ = Diagnostics((serious,))
    shown = est._repr_html_()
    assert 0 < shown.index("It is &lt;off&gt;. <em>Get others.</em>") < shown.index("Estimate: ")
    est.diagnostics_ = Diagnostics((replace(serious, name="basis"),))
    assert "Estimate: " not in est._repr_html_()
    assert "<table" not in est._repr_html_()


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0"), (0.0004, "0"), (0.0005, "0.1"), (0.0814, "8.1"), (0.0996, "10"), (1, "100")],
)
def test_short_percent(share, text):
    """Percentages keep two digits."""
    assert short_percent(share) == text


def test_short_percent_is_never_long():
    """No share between 0 and 1 takes more than three characters."""
    assert max(len(short_percent(share)) for share in np.linspace(0, 1, 20_001)) == 3
