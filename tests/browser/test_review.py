"""The review page works in Debian's chromium: by keyboard, with hostile names, after a kill."""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys

import pytest
from playwright.sync_api import expect

from labelnoise.results import Results
from tests.review.data import image_results, table_results

HOSTILE = (
    '<script>alert("x")</script>',
    "\"><img src=x onerror=alert('y')>",
    "' OR 1=1; DROP TABLE answers; --",
    "{{7*7}} ${8*8}",
    "עברית \u202e gnp.exe",
    "a" * 120,
    "six",
    "seven",
    "&lt;eight&gt;",
    "nine\\..\\..",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Results of 600 images, made once, and their true classes."""
    return image_results(tmp_path_factory.mktemp("images"), keep=slice(600))


@pytest.fixture
def results(made, tmp_path):
    """A copy of them for each test."""
    return Results.open(shutil.copytree(made[0].folder, tmp_path / "results"))


@pytest.fixture
def serve():
    """Start `labelnoise review` in a process of its own; gives the process and the address."""
    started = []

    def serve(results):
        command = [sys.executable, "-m", "labelnoise", "review", str(results.folder)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        line = process.stdout.readline()
        assert line.startswith("Review: http://127.0.0.1:")
        return process, line.split()[1]

    yield serve
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def show(browser):
    """Open a page; whatever it logs, or asks of anybody but its server, fails the test."""
    contexts, problems = [], []

    def show(address, width=1280, **how):
        context = browser.new_context(viewport={"width": width, "height": 800}, **how)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        origin = address.split("/", 3)[2]
        page.on(
            "request",
            lambda request: None if f"//{origin}/" in request.url else problems.append(request.url),
        )
        page.goto(address)
        return page

    show.problems = problems
    yield show
    for context in contexts:
        context.close()
    assert problems == []


def sample_rows(page):
    """The rows of the sample, in their order."""
    expect(page.locator("#measure-position")).not_to_be_empty()
    return page.evaluate("fetch('api/measure').then((r) => r.json())")["rows"]


def press(page, key):
    """Press a key, and wait until the answer is recorded and the next example shown."""
    before = page.inner_text("#measure-position")
    page.keyboard.press(key)
    page.wait_for_function(
        "(before) => document.getElementById('measure-position').innerText !== before", arg=before
    )


def key_of(label):
    return "1234567890"[label]


def answers(results):
    """The last verdict and label on each row, as they are in the file."""
    with sqlite3.connect(results.folder / "answers.sqlite") as db:
        found = db.execute("SELECT list, row, verdict, label FROM answers ORDER BY id").fetchall()
    db.close()
    return {(name, row): (verdict, label) for name, row, verdict, label in found}


def shown_rate(page):
    return float(page.inner_text("#rate").rstrip("%")) / 100


def test_measuring_by_keyboard_moves_the_estimate_to_the_truth(serve, show, tmp_path):
    """Forty right answers, with a kill -9 among them: the interval holds the true rate."""
    results, true = image_results(tmp_path)
    given = results.estimate.examples_.labels
    process, address = serve(results)
    page = show(address)
    rows = sample_rows(page)
    for row in rows[:17]:
        press(page, key_of(true[row]))
    os.kill(process.pid, signal.SIGKILL)
    page.keyboard.press("1")
    expect(page.locator("#status")).to_contain_text("The server does not answer")
    assert len(answers(results)) == 17
    show.problems.clear()  # the browser logs that the server is gone

    _, address = serve(results)
    page = show(address)
    assert sample_rows(page) == rows
    expect(page.locator("#measure-position")).to_have_text(f"Example 18 of {len(rows)}")
    assert "before any answer" in page.inner_text("#interval")
    for row in rows[17:40]:
        press(page, key_of(true[row]))
    found = {row: label for (_, row), (_, label) in answers(results).items()}
    assert found == {row: true[row] for row in rows[:40]}
    said = page.inner_text("#interval")
    low, high = (float(end) / 100 for end in re.findall(r"([\d.]+)%", said)[:2])
    truth = (given != true).mean()
    assert low < truth < high
    assert abs(shown_rate(page) - truth) < 0.06
    assert "more answers for" in page.inner_text("#needed")


def test_answers_are_changed_undone_typed_and_unclear(serve, show, results):
    """A class by its typed name, unclear, undo, and going back to another answer."""
    _, address = serve(results)
    page = show(address)
    first, second = sample_rows(page)[:2]
    classes = results.estimate.classes_.tolist()
    page.keyboard.type("thr")
    expect(page.locator("#measure-picker li:visible")).to_have_count(1)
    press(page, "Enter")
    assert answers(results)[("measure", first)] == ("label", classes.index("three"))
    press(page, "?")
    assert answers(results)[("measure", second)] == ("unclear", None)
    press(page, "Backspace")
    assert answers(results)[("measure", second)] == ("withdrawn", None)
    press(page, "ArrowLeft")
    assert "answered: three" in page.inner_text("#measure-position")
    press(page, "2")
    assert answers(results)[("measure", first)] == ("label", 1)


def test_classes_that_are_digits_have_their_own_keys(serve, show, tmp_path):
    """The key 7 is the class 7, not the seventh."""
    results, _ = image_results(tmp_path, tuple("0123456789"), keep=slice(400))
    _, address = serve(results)
    page = show(address)
    row = sample_rows(page)[0]
    press(page, "7")
    classes = results.estimate.classes_.tolist()
    assert answers(results)[("measure", row)] == ("label", classes.index("7"))


def test_the_given_label_is_hidden_until_it_is_asked_for(serve, show, results):
    """Neither label nor file name, whose folder is the label, reaches the page before."""
    _, address = serve(results)
    page = show(address)
    row = sample_rows(page)[0]
    label = str(results.labels[row])
    example = f"fetch('api/example/{row}?list=measure').then((r) => r.text())"
    assert label not in page.evaluate(example)
    assert page.locator("#measure-example img").get_attribute("alt") == f"Example {row}"
    page.check("#given-shown")
    expect(page.locator("#measure-given")).to_have_text(f"Given label: {label}")
    page.locator("#given-shown").blur()
    press(page, "=")
    with sqlite3.connect(results.folder / "answers.sqlite") as db:
        kept = db.execute("SELECT row, label, given_shown FROM answers").fetchall()
    db.close()
    assert kept == [(row, results.estimate.classes_.tolist().index(label), 1)]


def test_two_windows_do_not_overwrite_each_other(serve, show, results):
    """The second answer to a row is refused, and the first is shown."""
    _, address = serve(results)
    one, other = show(address), show(address)
    row = sample_rows(one)[0]
    sample_rows(other)
    press(one, "3")
    press(other, "5")
    expect(other.locator("#status")).to_contain_text("answered in another window")
    assert answers(results)[("measure", row)] == ("label", 2)
    show.problems.clear()  # the browser logs the refusal


def test_suspects_are_selected_and_relabelled_by_keyboard(serve, show, results):
    """Several with one key, skip, confirm, undo; those decided are gone after a reload."""
    suspects = results.estimate.suspects()
    classes = results.estimate.classes_.tolist()
    rows = suspects.index.tolist()
    _, address = serve(results)
    page = show(address + "#clean")
    expect(page.locator("#clean-position")).to_have_text(f"1 of {len(rows)} undecided")
    page.focus("#grid")
    for _ in range(3):
        page.keyboard.press("Shift+ArrowRight")
    expect(page.locator("#targets")).to_have_text("Decide on 4 selected")
    expect(page.locator(".suspect[aria-selected=true]")).to_have_count(4)
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_have_text("Recorded: 4 answers.")
    suggested = [classes.index(name) for name in suspects.suggested[:4]]
    kept = answers(results)
    assert [kept[("clean", row)] for row in rows[:4]] == [("label", k) for k in suggested]
    expect(page.locator("#clean-position")).to_contain_text("5 of")
    page.keyboard.press("Backspace")
    expect(page.locator("#status")).to_have_text("4 answers undone.")
    assert {answers(results)[("clean", row)] for row in rows[:4]} == {("withdrawn", None)}
    page.keyboard.press("Home")
    for place, key in enumerate("=-7"):
        expect(page.locator("#clean-position")).to_contain_text(f"{place + 1} of")
        page.keyboard.press(key)
        expect(page.locator("#clean-position")).to_contain_text(f"{place + 2} of")
    given = classes.index(suspects.given[0])
    kept = answers(results)
    verdicts = [("label", given), ("skip", None), ("label", 6)]
    assert [kept[("clean", row)] for row in rows[:3]] == verdicts
    page.reload()
    expect(page.locator("#clean-position")).to_have_text(f"1 of {len(rows) - 3} undecided")
    page.keyboard.press("End")
    expect(page.locator("#clean-position")).to_contain_text(f"{len(rows) - 3} of")
    expect(page.locator(f"#suspect-{len(rows) - 4} img")).to_be_visible()
    assert page.locator(".suspect").count() < 60  # the others are not on the page


def test_a_cell_of_the_matrix_chooses_its_suspects(serve, show, results):
    """By keyboard, and each suspect then has its neighbours beside it."""
    suspects = results.estimate.suspects()
    _, address = serve(results)
    page = show(address + "#clean")
    page.click("summary")
    cell = page.locator(".matrix button").first
    cell.focus()
    n = int(cell.get_attribute("title").split()[0])
    page.keyboard.press("Enter")
    expect(page.locator("#clean-position")).to_have_text(f"1 of {n} undecided")
    chosen = page.locator("#given option:checked").inner_text()
    suggested = page.locator("#suggested option:checked").inner_text()
    assert n == ((suspects.given == chosen) & (suspects.suggested == suggested)).sum()
    expect(page.locator("#neighbors li")).to_have_count(6)
    row = suspects.index[(suspects.given == chosen) & (suspects.suggested == suggested)][0]
    near = [str(results.labels[other]) for other in results.neighbors(row)]
    assert page.locator("#neighbors li").all_inner_texts() == near
    page.keyboard.press(".")
    expect(page.locator("#clean-example img")).to_be_visible()


@pytest.mark.parametrize("width", [390, 1280])
def test_hostile_names_do_nothing(serve, show, tmp_path, width):
    """Names of classes and files are shown as they are, and recorded as class numbers."""
    folders = [name.replace("/", "\u2215") for name in HOSTILE]
    results, _ = image_results(
        tmp_path, folders, "{:04d}'\"><img src=x onerror=alert(1)>.png", keep=slice(600)
    )
    _, address = serve(results)
    page = show(address, width)
    row = sample_rows(page)[0]
    options = page.locator("#measure-picker li bdi").all_text_contents()
    assert sorted(options) == sorted(folders)
    press(page, "3")
    assert answers(results)[("measure", row)] == ("label", 2)
    page.goto(address + "#clean")
    expect(page.locator(".suspect img").first).to_be_visible()
    expect(page.locator("#neighbors li")).to_have_count(6)
    assert (
        page.locator("#about").text_content() == results.names[results.estimate.suspects().index[0]]
    )
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("kind", ["texts", "table"])
def test_texts_and_rows_are_shown_in_full(serve, show, tmp_path, kind):
    """With their quotes and lines, and without the label among them while measuring."""
    results, _ = table_results(tmp_path, kind)
    _, address = serve(results)
    page = show(address)
    row = sample_rows(page)[0]
    shown = page.locator("#measure-example").inner_text()
    assert f'Text {row}, with "quotes"\nand lines' in shown
    assert "label" not in shown
    page.goto(address + "#clean")
    expect(page.locator(".suspect").first).to_contain_text("Text")


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark"), (2560, "light")])
def test_fits_and_is_named(serve, show, results, width, scheme):
    """No sideways scrolling, and every control has a name for a screen reader."""
    _, address = serve(results)
    for part in ("measure", "clean", "export"):
        page = show(f"{address}#{part}", width, color_scheme=scheme)
        expect(page.locator(f"main#{part}")).to_be_visible()
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        unnamed = """() => [...document.querySelectorAll("button, input, select, a, ul, #grid")]
          .filter((e) => e.checkVisibility() && !(e.ariaLabel || e.labels?.length ||
            e.textContent.trim())).map((e) => e.outerHTML)"""
        assert page.evaluate(unnamed) == []


def test_the_address_without_its_token_shows_nothing(serve, show, results):
    """Neither the root nor another token is the page."""
    _, address = serve(results)
    page = show(address)
    root = address.split("/", 3)[:3]
    for path in ("", "x" * 43 + "/"):
        assert page.request.get("/".join([*root, path])).status == 404
