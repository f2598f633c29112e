"""The page shows the matrices it was given, loads nothing, and treats names as data."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from labelnoise.diagnostics import Finding
from labelnoise.report import Comparison, heatmap_page
from labelnoise.report.heatmap import short_percent

ESTIMATED = np.array([[0.912, 0.061, 0.027], [0.0, 0.75, 0.25], [0.1234, 0.0002, 0.8764]])
TRUTH = np.array([[0.9, 0.08, 0.02], [0.0, 0.7, 0.3], [0.1, 0.0, 0.9]])
HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "it's & [red]that[/]")
VOID = {"meta", "link", "img", "br", "hr", "input"}


def comparison(classes=("cat", "dog", "eel"), estimated=ESTIMATED, truth=TRUTH, **changes):
    """A comparison of three classes."""
    fields = {
        "noise_rate": 0.1538,
        "true_noise_rate": 0.1667,
        "errors": {"this estimate": 0.0796, 'answering "no noise"': 0.3333},
        "findings": [
            Finding("fit", True, 1.0, "It fits."),
            Finding("x", False, 2.0, "It's <bad>."),
        ],
        "how": "By hand.",
    }
    return Comparison(classes, estimated, truth, **{**fields, **changes})


class Page(HTMLParser):
    """Elements, attributes and table cells of a page, with a check that all tags are closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.tables, self.text = [], [], [], ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        """Remember the element; a table or row begins a new list."""
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])

    def handle_endtag(self, tag):
        """Expect the innermost open element."""
        assert self.open.pop() == tag

    def handle_data(self, data):
        """Collect the text, and that of coloured cells by row."""
        if "style" in self.open:
            return
        self.text += data
        if self.open and self.open[-1] == "td" and "title" in self.elements[-1][1]:
            self.tables[-1][-1].append((data, self.elements[-1][1]["title"]))


def matrices(page):
    """Cells of each heat map, as rows of (text, tooltip)."""
    tables = [[row for row in table if row] for table in Page(page).tables]
    return [table for table in tables if table]


def test_page_shows_the_matrices():
    """Estimated T, true T and their difference are in the page, entry by entry."""
    estimated, truth, difference = matrices(heatmap_page(comparison()))
    for shown, matrix in ((estimated, ESTIMATED), (truth, TRUTH)):
        texts = [[text for text, _ in row] for row in shown]
        assert texts == [[short_percent(value) for value in row] for row in matrix]
    for shown, matrix in (
        (estimated, ESTIMATED),
        (truth, TRUTH),
        (difference, ESTIMATED - TRUTH),
    ):
        tooltips = [
            [float(re.search(r": (-?[\d.]+) per", title)[1]) for _, title in row] for row in shown
        ]
        np.testing.assert_allclose(tooltips, 100 * matrix, atol=0.005 + 1e-9)
    assert difference[0][0][0] == "+1.2"
    assert difference[1][2][0] == "\N{MINUS SIGN}5.0"


def test_rows_are_true_classes():
    """The cell in row i and column j is said to be of true class i and label j."""
    estimated = matrices(heatmap_page(comparison()))[0]
    assert estimated[0][1][1] == "true cat, labelled dog: 6.10 percent"


def test_page_says_what_was_found():
    """Headline, errors, findings and the making of the estimate are all in the text."""
    text = Page(heatmap_page(comparison())).text
    for expected in (
        "Estimate: 15.4% of the labels are wrong. Truth: 16.7%.",
        "0.080",
        'answering "no noise"',
        "0.333",
        "25.0% of true dog are labelled eel (true: 30.0%)",
        "It fits.",
        "It's <bad>.",
        "By hand.",
    ):
        assert expected in text


def test_hostile_names_are_data():
    """Class names with markup come out as text, in cells, tooltips and sentences."""
    page = heatmap_page(comparison(HOSTILE, how=HOSTILE[0], errors={HOSTILE[1]: 0.5}))
    parsed = Page(page)
    assert {tag for tag, _ in parsed.elements}.isdisjoint({"script", "img"})
    assert not any(name.startswith("on") for _, found in parsed.elements for name in found)
    assert "<script" not in page
    assert f"labelled {HOSTILE[1]} (true" in parsed.text
    assert matrices(page)[0][0][1][1].startswith(f"true {HOSTILE[0]}, labelled {HOSTILE[1]}: ")


def test_page_loads_nothing():
    """No element or style refers to another file, and the policy forbids it."""
    page = heatmap_page(comparison())
    elements = Page(page).elements
    assert not re.search(r"https?:|url\(|@import", page)
    assert not any({"src", "href", "srcset", "data"} & set(found) for _, found in elements)
    policies = [found["content"] for _, found in elements if "http-equiv" in found]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]


@pytest.mark.parametrize("n_classes", [2, 30])
def test_no_noise_and_other_sizes(n_classes):
    """Identities of any size give a page, which says that there is no confusion."""
    names = [f"class number {i}" for i in range(n_classes)]
    identity = np.eye(n_classes)
    page = heatmap_page(comparison(names, identity, identity, errors={"this estimate": 0.0}))
    assert len(matrices(page)[0]) == n_classes
    assert "no confusion reaches 0.1%" in Page(page).text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0"), (0.0004, "0"), (0.0005, "0.1"), (0.0814, "8.1"), (0.0996, "10"), (1, "100")],
)
def test_short_percent(share, text):
    """Percentages keep two digits and never take more than three characters."""
    assert short_percent(share) == text


def test_short_percent_is_never_long():
    """No share between 0 and 1 takes more than three characters."""
    assert max(len(short_percent(share)) for share in np.linspace(0, 1, 20_001)) == 3


def test_largest_confusions():
    """Confusions come largest first, with their true share, and without those that round to 0."""
    assert comparison().largest_confusions() == [
        "25.0% of true dog are labelled eel (true: 30.0%)",
        "12.3% of true eel are labelled cat (true: 10.0%)",
        "6.1% of true cat are labelled dog (true: 8.0%)",
        "2.7% of true cat are labelled eel (true: 2.0%)",
    ]
    assert len(comparison().largest_confusions(most=2)) == 2
