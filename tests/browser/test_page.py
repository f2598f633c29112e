"""The page works in Debian's chromium: no errors, no requests, and all that moves does."""

import csv

import numpy as np
import pytest

from labelnoise.checks import Finding
from tests.conftest import symmetric_matrix
from tests.test_report import HOSTILE, hostile_list, sample, suspect_list

# The worst contrast of text with what is behind it, over all cells and small print.
CONTRAST = """() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const card = parse(getComputedStyle(document.querySelector("section")).backgroundColor);
  const text = ".map tbody td, .legend i, .banner :is(h2, p), small, dt, .checks b, .list thead th";
  const contrasts = [...document.querySelectorAll(text)].map((cell) => {
    const style = getComputedStyle(cell);
    const [r, g, b, alpha = 1] = parse(style.backgroundColor);
    const mixed = [r, g, b].map((c, i) => alpha * c + (1 - alpha) * card[i]);
    const pair = [light(mixed), light(parse(style.color))].sort((a, b) => a - b);
    return (pair[1] + 0.05) / (pair[0] + 0.05);
  });
  return Math.min(...contrasts);
}"""


@pytest.fixture
def show(browser, tmp_path):
    """Open a report; whatever it logs or asks the network for fails the test."""
    contexts, problems = [], []

    def show(report, width=1280, **how):
        report.save(tmp_path / "report.html")
        context = browser.new_context(viewport={"width": width, "height": 800}, **how)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        page.goto((tmp_path / "report.html").as_uri())
        page.on("request", lambda request: problems.append(request.url))
        return page

    yield show
    for context in contexts:
        context.close()
    assert problems == []


def hostile():
    """A report in which every name is out to do harm."""
    return sample(HOSTILE, symmetric_matrix(len(HOSTILE), 0.2), suspects=hostile_list())


def many():
    """A hundred classes."""
    return sample(tuple(f"class number {i}" for i in range(100)), symmetric_matrix(100, 0.3))


def serious():
    """An estimate that is not to be relied on."""
    return sample(findings=(Finding("fit", False, 1.0, "It is off.", "serious", "Get others."),))


def refused():
    """Nothing to estimate from."""
    return sample(findings=(Finding("basis", False, 1.0, "It is random.", "serious", "Stop."),))


@pytest.mark.parametrize("make", [sample, hostile, many, serious, refused])
@pytest.mark.parametrize("width", [375, 1280, 2560])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_and_is_legible(show, make, width, scheme):
    """No sideways scrolling of the page, and text of AA contrast on every colour."""
    page = show(make(), width, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(CONTRAST) >= 4.5


def test_pointing_at_a_cell_says_what_it_means(show):
    """The sentence has share, interval, names in the right order, and the truth."""
    page = show(sample())
    page.hover("table[data-view=Estimate] tbody tr:nth-child(2) td:nth-child(4)")
    sentence = page.inner_text("#readout").replace("\u2068", "").replace("\u2069", "")
    assert sentence == "25.0% (22.5% to 30.0%) of true dog are labelled eel. The truth is 0.0%."
    assert page.locator("th.at:visible").all_inner_texts() == ["eel", "dog"]


def test_tapping_a_cell_on_a_phone(show):
    """A tap does what pointing does."""
    page = show(sample(), 375, has_touch=True, is_mobile=True)
    page.tap("table[data-view=Estimate] tbody tr:nth-child(1) td:nth-child(3)")
    assert "6.1%" in page.inner_text("#readout")


def test_arrow_keys_move_through_the_matrix(show):
    """One cell can be tabbed to; arrows, Home and End go on from there, and stop at the edges."""
    page = show(sample())
    assert page.locator(".map:visible td[tabindex='0']").count() == 1
    page.focus(".map:visible td[tabindex='0']")
    for key, expected in (
        ("ArrowUp", "rightly labelled \u2068cat"),
        ("ArrowRight", "\u2068cat\u2069 are labelled \u2068dog"),
        ("ArrowDown", "rightly labelled \u2068dog"),
        ("Home", "\u2068dog\u2069 are labelled \u2068cat"),
        ("Control+End", "rightly labelled \u2068eel"),
        ("ArrowRight", "rightly labelled \u2068eel"),
    ):
        page.keyboard.press(key)
        assert expected in page.inner_text("#readout")


ROLES = {"button", "combobox", "searchbox", "image", "region", "link", "radio", "grid", "table"}


def test_screen_readers_have_names(show):
    """All that can be used, and each picture and table that can be scrolled, has a name."""
    page = show(sample())
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    nodes = [node for node in tree if not node["ignored"] and node["role"]["value"] in ROLES]
    roles = {node["role"]["value"] for node in nodes}
    assert roles >= {"button", "combobox", "searchbox", "image", "region", "link", "radio", "grid"}
    nameless = {node["role"]["value"] for node in nodes if not node["name"]["value"]}
    assert nameless <= {"table"}  # whose region has a name


def test_the_keyboard_opens_searches_and_saves(show):
    """Without a mouse: the list of suspects is opened, searched and saved."""
    page = show(sample())
    page.focus("summary:has-text('All 50 suspects')")
    page.keyboard.press("Enter")
    for _ in range(3):  # label, likely label, search
        page.keyboard.press("Tab")
    page.keyboard.type("7.png")
    assert page.inner_text("#count") == "5 of 50 suspects."
    page.keyboard.press("Tab")
    with page.expect_download():
        page.keyboard.press("Enter")


def test_orders_move_rows_and_columns_together(show):
    """The diagonal stays one, and sentences stay those of their cells."""
    page = show(sample())
    page.select_option("#order", "noisiest first")
    assert page.locator(".map:visible tbody th").all_inner_texts() == ["dog", "eel", "cat"]
    assert page.locator(".map:visible thead th").all_inner_texts() == ["dog", "eel", "cat"]
    first = page.locator(".map:visible tbody tr").first.locator("td").all_inner_texts()
    assert first == ["75", "25", "0"]
    page.hover(".map:visible tbody tr:nth-child(1) td:nth-child(3)")
    assert "\u2068dog\u2069 are labelled \u2068eel" in page.inner_text("#readout")


def test_views_of_estimate_truth_and_difference(show):
    """One matrix is shown at a time."""
    page = show(sample())
    for view, corner in (("Truth", "100"), ("Estimate \N{MINUS SIGN} truth", "\N{MINUS SIGN}8.8")):
        page.check(f"input[value='{view}']")
        assert page.locator(".map:visible tbody td").first.inner_text() == corner
        assert page.locator(".map:visible").count() == 1


def test_tables_sort_by_their_heads(show):
    """Numbers the largest first, and the other way round at the second click."""
    page = show(sample())
    head = page.locator("#classes-table th", has_text="True examples")
    for order in ("descending", "ascending"):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == order
        cells = page.locator("#classes-table tbody td:nth-child(2)")
        values = cells.evaluate_all("cells => cells.map((cell) => Number(cell.dataset.value))")
        assert values == sorted(values, reverse=order == "descending")


def test_suspects_are_searched_filtered_and_saved(show, tmp_path):
    """The file has all rows that pass the filters, by cleanlab's names of columns."""
    page = show(sample())
    page.click("summary:has-text('All 50 suspects')")
    assert page.inner_text("#count") == "50 of 50 suspects. The surest 24 are shown."
    assert page.locator("#suspects-table tbody tr").count() == 24
    page.click("#more")
    assert page.locator("#suspects-table tbody tr").count() == 50
    assert page.locator("#more:visible").count() == 0
    assert len(saved(page)) == 50
    page.select_option("#given", "dog")
    assert page.inner_text("#count") == "17 of 50 suspects."
    page.select_option("#suggested", "eel")
    page.fill("#search", "13.PNG")
    assert page.inner_text("#count") == "1 of 50 suspects."
    (row,) = saved(page)
    assert row == {
        "row": "13",
        "name": "13.png",
        "is_label_issue": "True",
        "label_score": "0.1300",
        "given_label": "dog",
        "predicted_label": "eel",
        "probability_wrong": "0.8700",
    }
    page.select_option("#suggested", "all")
    page.select_option("#given", "all")
    page.fill("#search", "none has this name")
    assert (page.inner_text("#count"), saved(page)) == ("0 of 50 suspects.", [])


def saved(page):
    """The rows of the file that the button saves."""
    with page.expect_download() as download:
        page.click("#export")
    assert download.value.suggested_filename == "suspects.csv"
    with open(download.value.path(), newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def test_a_hundred_thousand_suspects(show):
    """All are searched and saved, and the page has the elements of a few."""
    page = show(sample(suspects=suspect_list(("cat", "dog", "eel"), 100_000)))
    assert page.inner_text("#count") == "100,000 of 100,000 suspects. The surest 24 are shown."
    assert page.locator("tr").count() < 200
    page.fill("#search", "99999.png")
    assert [row["row"] for row in saved(page)] == ["99999"]
    page.fill("#search", "")
    assert len(saved(page)) == 100_000


@pytest.mark.parametrize("width", [390, 1280])
def test_pictures_can_be_judged(show, width):
    """The surest suspects are seen right below the headline, at a size of an inch and more."""
    page = show(sample(), width)
    box = page.locator(".gallery img").first.bounding_box()
    assert box["width"] >= 140
    assert box["y"] < 500
    assert page.locator(".gallery li").count() == 24


def test_tables_that_are_cut_off_show_it(show):
    """The edge beyond which there is more fades, and the other one after scrolling there."""
    names = tuple(f"class number {i}" for i in range(20))
    page = show(sample(names, symmetric_matrix(20, 0.2)), 390)
    matrix = page.locator(".scroll:has(.map)")
    assert matrix.get_attribute("class").split() == ["scroll", "cut-right"]
    assert matrix.get_attribute("tabindex") == "0"
    assert page.locator(".scroll:has(#errors-table)").get_attribute("tabindex") == "-1"
    matrix.evaluate("box => box.scrollTo(box.scrollWidth, 0)")
    page.wait_for_selector(".scroll.cut-left:not(.cut-right):has(.map)")


def test_hostile_names_do_nothing(show):
    """Every name is shown as it is, and in the exported file none is a formula."""
    page = show(hostile())
    page.click("summary:has-text('suspects')")
    assert page.locator("#given option").all_inner_texts() == ["all", *HOSTILE]
    for number, name in enumerate(HOSTILE):
        page.select_option("#given", index=number + 1)
        page.fill("#search", name)
        assert page.inner_text("#count") == f"1 of {len(HOSTILE)} suspects."
        page.hover(f".map:visible tbody tr:nth-child({number + 1}) td:nth-child(2)")
        assert f"\u2068{name[:39]}" in page.inner_text("#readout")
        (row,) = saved(page)
        assert row["given_label"] == row["name"] == (f"'{name}" if name.startswith("=") else name)


def test_snippets_are_copied(show):
    """The button puts the code on the clipboard."""
    page = show(sample(), permissions=["clipboard-read"])
    page.click("summary:has-text('PyTorch')")
    page.locator(".copy").first.click()
    assert page.locator(".copy").first.inner_text() == "Copied"
    assert "ForwardLoss(est.transition_matrix_)" in page.evaluate("navigator.clipboard.readText()")


def test_notebooks_show_the_report_in_a_frame(browser):
    """The page works inside another one."""
    page = browser.new_page()
    page.set_content(sample()._repr_html_())
    frame = page.frame_locator("iframe")
    frame.locator(".map:visible tbody td").first.hover()
    assert "91.2%" in frame.locator("#readout").inner_text()
    page.close()


def test_without_script_and_in_print_all_is_there(show):
    """Controls that would do nothing are hidden; in print nothing is folded, and no table cut."""
    page = show(sample(), java_script_enabled=False)
    assert page.locator(".controls:visible").count() == 0
    assert page.locator(".map:visible").count() == 3
    assert page.locator("#suspects-table tbody tr").count() == 24
    page = show(sample(), reduced_motion="reduce")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    assert page.locator(".controls:visible, nav:visible, #readout:visible").count() == 0
    heights = (
        "[...document.querySelectorAll('.scroll')].map((e) => e.scrollHeight - e.clientHeight)"
    )
    assert np.max(page.evaluate(heights)) <= 1
