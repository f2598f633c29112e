"""The report holds what the estimate says, and its page shows names as data and loads nothing."""

import base64
import hashlib
import io
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image
from sklearn import config_context

from labelnoise import HOC, AnnotatorHOC, GroupHOC, LabelNoiseError, LocalHOC
from labelnoise.checks import Finding
from labelnoise.intervals import ConfidenceInterval
from labelnoise.neighbors.agreement import NeighborAgreement
from labelnoise.noise import symmetric
from labelnoise.report import Report, Truth, report_of
from labelnoise.report.data import Suspect, SuspectList, Variation, short_percent
from labelnoise.suspects import Suspects
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


def sample(classes=("cat", "dog", "eel"), matrix=T, **changes):
    """A report with all that there can be in it."""
    K = len(classes)
    rows = tuple(
        Suspect(i, classes[i % K], classes[(i + 1) % K], 1 - i / 100, f"{i}.png", None, None)
        for i in range(30)
    )
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
            Finding("bad", False, 2.0, "It's <bad>."),
            Finding("open", True, None, "It was not looked at."),
        ),
        "interval": interval,
        "n_examples": 3000,
        "label_shares": np.full(K, 1 / K),
        "agreement": NeighborAgreement(
            np.array([0.8, 0.7]), np.array([0.1, 0.3]), np.array([0.9, 0.6]), 0.3
        ),
        "variation": Variation("group", classes[:2], np.array([0.1, 0.2]), None, ("B errs more.",)),
        "suspects": SuspectList(rows, 50, "Fifty."),
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
    assert len(content["suspects"]["rows"]) == 30
    with pytest.raises(LabelNoiseError, match=r"ending in \.html or \.json, but it is 'r\.pdf'"):
        report.save("r.pdf")


def test_headline_and_confusions():
    """The result in one sentence; confusions by how many labels they are, without zeros."""
    report = sample(class_prior=np.array([0.8, 0.1, 0.1]), truth=None)
    assert report.headline == "Estimate: 15.4% (10.0% to 20.0%) of the labels are wrong."
    assert [str(one) for one in report.confusions()] == [
        "6.1% (5.5% to 7.3%) of true cat are labelled dog",
        "25.0% (22.5% to 30.0%) of true dog are labelled eel",
        "2.7% (2.4% to 3.2%) of true cat are labelled eel",
        "12.3% (11.1% to 14.8%) of true eel are labelled cat",
    ]
    assert report.confusions(1)[0].examples == pytest.approx(3000 * 0.8 * 0.061)
    plain = sample(interval=None)
    assert plain.headline == "Estimate: 15.4% of the labels are wrong. Truth: 0.0%."
    assert str(plain.confusions(1)[0]) == "25.0% of true dog are labelled eel (true: 0.0%)"


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


def test_many_suspects_are_cut_and_texts_shortened(fitted):
    """The surest 300 are listed, with how many there are in all."""
    n = 400
    names = np.full(n, "cat")
    found = Suspects(np.arange(n)[::-1], names, names, np.linspace(1, 0.5, n), 400.0, 2000)
    texts = [f"{i} {'long ' * 200}" for i in range(n)]
    listed = report_of(fitted[2], suspects=found, texts=texts, names=range(n)).suspects
    assert (len(listed.rows), listed.n_found) == (300, 400)
    assert (listed.rows[0].row, listed.rows[0].name) == (399, "399")
    assert listed.rows[0].text.startswith("399 long")
    assert len(listed.rows[0].text) < 500
    text = Page(sample(suspects=replace(listed, note="")).to_html()).text
    assert "Here are the surest 300; 100 are left out." in text


def test_pictures_are_small_and_may_be_missing(fitted, tmp_path, monkeypatch):
    """Files become thumbnails of at most 96 pixels; what is no image has none; no Pillow: said."""
    Image.new("RGB", (400, 100), "red").save(tmp_path / "wide.png")
    (tmp_path / "broken.png").write_text("no image")
    found = Suspects(np.arange(3), *[np.full(3, "cat")] * 2, np.ones(3), 3.0, 600)
    paths = [tmp_path / name for name in ("wide.png", "broken.png", "no.png")]
    wide, broken, missing = report_of(fitted[2], suspects=found, images=paths).suspects.rows
    kind, _, code = wide.picture.partition(",")
    assert kind == "data:image/jpeg;base64"
    assert Image.open(io.BytesIO(base64.b64decode(code))).size == (96, 24)
    assert broken.picture is missing.picture is None
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(LabelNoiseError, match=re.escape("pip install '.[images]'")):
        report_of(fitted[2], suspects=found, images=paths)


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
    est.save("T.json")
    report = est.report()
    (code,) = re.findall(r"<pre[^>]*>(.*?ForwardClassifier.*?)</pre>", report.to_html(), re.S)[-1:]
    found = {"X": X, "y": labels, "X_new": X}
    exec(code[code.rindex("from labelnoise") :], found)
    np.testing.assert_array_equal(found["model"].transition_matrix, report.transition_matrix)


def test_page_says_what_was_found():
    """Headline, findings, errors, variation, suspects and the making are all in the text."""
    text = re.sub(r"\s+", " ", Page(sample().to_html()).text)
    for expected in (
        "Estimate: 15.4% (10.0% to 20.0%) of the labels are wrong. Truth: 0.0%.",
        "dog → eel25.0% 22.5 to 30.0",
        "warningBadIt's <bad>.",
        "not testedOpenIt was not looked at.",
        "this estimate0.500",
        "B errs more.",
        "Fifty. 50 are suspect.",
    ):
        assert expected in text
    assert text.index("It's <bad>.") < text.index("It fits.")


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
    rows = tuple(Suspect(i, name, name, 0.9, name, name, None) for i, name in enumerate(HOSTILE))
    found = SuspectList(rows, K, HOSTILE[0])
    page = sample(HOSTILE, symmetric_matrix(K, 0.2), suspects=found).to_html()
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
    assert (f"{left_out} are not" in text) == (left_out > 0)
    assert f"class number {K - 1}" in text


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
