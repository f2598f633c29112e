"""The command line does what it says, and says in one line what it cannot do."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from sklearn.datasets import load_digits

import labelnoise
from labelnoise.checks import Finding
from labelnoise.cli import digits
from labelnoise.io.tables import read_table
from labelnoise.report import Report, Truth
from labelnoise.results import Results


def without_time(output):
    """The output less what differs between runs."""
    return re.sub(r"Took .* s\.|\d{4}-\d\d-\d\d \d\d:\d\d UTC", "", output)


def test_version(run):
    """--version prints name and version."""
    assert run("--version") == (0, f"labelnoise {labelnoise.__version__}\n", "")


def test_help_lists_the_commands(run):
    """--help names the commands and what the exit statuses mean."""
    status, output, _ = run("--help")
    assert status == 0
    for command in (
        "audit",
        "demo",
        "estimate",
        "suspects",
        "embed",
        "corrupt",
        "train",
        "predict",
        "compare",
    ):
        assert re.search(rf"^│ {command} ", output, re.MULTILINE)
        assert "Examples:" in run(command, "--help")[1]
    assert "130 interrupted" in re.sub(r"\s+", " ", output)


def test_help_waits_for_nothing():
    """Importing the command line imports neither numpy nor scikit-learn, which take seconds."""
    code = "import sys, labelnoise.cli; print(sys.modules.keys() & {'numpy', 'scipy', 'sklearn'})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("set()\n", "")


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A folder in which the demo was run, to run it again in no time."""
    return tmp_path_factory.mktemp("demo") / "out"


def test_demo_shows_both_matrices_and_writes_the_page(run, shown):
    """The demo prints headline, both matrices, errors and findings, and makes the report."""
    status, output, errors = run("demo", "--out", shown)
    assert (status, errors) == (0, "")
    assert re.search(r"Estimate: [\d.]+% \(.*\) of the labels are wrong\. Truth: [\d.]+%\.", output)
    assert re.search(r"Estimated T +True T", output)
    assert re.search(r"^7 .* 7( +[\d.]+){10} *$", output, re.MULTILINE)
    assert re.search(r"%\) of true 7 are labelled 1 \(true: 21\.6%\)", output)
    this, no_noise = re.findall(r"^  (\d\.\d{3})  ", output, re.MULTILINE)[:2]
    assert float(this) < 0.5 * float(no_noise)
    assert re.search(r"What the estimate stands on: \d+ checks, of which 0 warn", output)
    assert output.endswith(f"Check the labels: labelnoise review {shown}\n")
    page = (shown / "report.html").read_text("utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "22.1%" in page


def test_demo_leaves_images_and_the_truth(run, shown):
    """Each image is in the folder of its noisy label, and looks like its digit."""
    run("demo", "--out", shown)
    found, truth = Results.open(shown), read_table(shown / "truth.csv")
    X, digits = load_digits(return_X_y=True)
    assert found.names == truth.cells("name")
    row = found.names.index("7/0007.png")
    kind, path = found.content(row)
    assert (kind, found.labels[row], truth.cells("true_label")[row]) == ("image", "7", "7")
    with Image.open(path) as image:
        pixels = np.asarray(image)
    assert np.corrcoef(pixels[18:-12:12, 18:-12:12].ravel(), X[7])[0, 1] < -0.95
    numbers = [int(name[2:6]) for name in found.names]
    assert digits[numbers].tolist() == [int(label) for label in truth.cells("true_label")]
    suspects = found.estimate.suspects()
    true = digits[np.array(numbers)[suspects.index]]
    assert (suspects.suggested.astype(int) == true).mean() > 0.9


def test_demo_goes_to_its_own_folder(run, tmp_path, monkeypatch):
    """Without --out all goes to demo-output; a second run finds it, another seed replaces it."""
    monkeypatch.chdir(tmp_path)
    first = run("demo")
    assert without_time(run("demo")[1]) == without_time(first[1])
    assert os.listdir() == ["demo-output"]
    assert run("demo", "--seed", 3)[0] == 0
    names = sorted(path.relative_to("demo-output/digits") for path in Path().rglob("*.png"))
    assert [str(name) for name in names] == Results.open("demo-output").names
    (tmp_path / "demo-output" / "answers.sqlite").touch()
    status, _, errors = run("demo")
    assert (status, "answers.sqlite was filled in" in errors) == (1, True)
    assert names == sorted(path.relative_to("demo-output/digits") for path in Path().rglob("*.png"))


def test_same_seed_same_answer(run, shown, tmp_path):
    """A seed fixes all that is shown, but for the time; another seed gives other labels."""
    first, page = run("demo", "--out", shown), without_time((shown / "report.html").read_text())
    again = run("demo", "--out", tmp_path / "again")
    assert without_time(again[1]) == without_time(first[1]).replace(str(shown), f"{tmp_path}/again")
    assert without_time((tmp_path / "again" / "report.html").read_text()) == page.replace(
        str(shown), f"{tmp_path}/again"
    )
    other = run("demo", "--out", tmp_path / "other", "--seed", 4)
    assert other[1].splitlines()[1] != first[1].splitlines()[1]


@pytest.mark.parametrize(
    ("kind", "row"), [("symmetric", "2.2 2.2  80 2.2"), ("pair", "0   0  80  20   0")]
)
def test_demo_makes_the_noise_that_was_asked_for(run, tmp_path, kind, row):
    """The true T is that of the kind and the rate."""
    _, output, _ = run("demo", "--noise", kind, "--rate", 0.2, "--out", tmp_path / "out")
    assert row in output


def test_class_noise_has_the_rate():
    """The digits' T is stochastic with `rate` wrong labels, up to the largest rate there is."""
    for rate in (0, 0.2, 0.68):
        T = digits._digit_confusions(rate)
        assert T.min() >= 0
        np.testing.assert_allclose(T.sum(axis=1), 1)
        np.testing.assert_allclose(1 - np.diag(T).mean(), rate, atol=1e-12)


def test_demo_warns_of_noise_that_cannot_be_found(run, tmp_path):
    """Where the true T breaks the assumption of the method, the demo says so."""
    out = tmp_path / "out"
    status, output, errors = run("demo", "--noise", "pair", "--rate", 0.7, "--out", out)
    assert (status, errors) == (0, "")
    assert re.search(r"WARNING +truth +By the true T, some class gets another label", output)


@pytest.mark.parametrize("width", [100, 80])
def test_narrow_terminals_stack_the_matrices(run, shown, monkeypatch, width):
    """No line of the matrices is wider than the terminal."""
    monkeypatch.setenv("COLUMNS", str(width))
    _, output, _ = run("demo", "--out", shown)
    assert bool(re.search("Estimated T +True T", output)) == (width == 100)
    lines = output.splitlines()[:-2]  # the last have paths, which are never broken
    assert max(map(len, lines)) <= width
    assert len(re.findall(r"^9 ", output, re.MULTILINE)) == (1 if width == 100 else 2)


def test_class_names_are_not_markup(capsys):
    """Names with square brackets are printed as they are."""
    report = Report(
        classes=("[red]a[/red]", "[/b]"),
        transition_matrix=np.array([[0.8, 0.2], [0.1, 0.9]]),
        class_prior=np.array([0.5, 0.5]),
        noise_rate=0.15,
        truth=Truth(np.eye(2), 0.0, {"[x]": 0.3}),
        findings=(Finding("f", False, 1.0, "Check [bold]this[/nonsense]."),),
    )
    digits._print_report(Console(width=100), report)
    output = capsys.readouterr().out
    assert "20.0% of true [red]a[/red] are labelled [/b] (true: 0.0%)" in output
    assert "Check [bold]this[/nonsense]." in output
    assert "0.300  [x]" in output


@pytest.mark.parametrize(
    "arguments",
    [("--rate", "1.5"), ("--rate", "nan"), ("--noise", "pair", "--rate", "-0.1")],
)
def test_bad_rate_is_one_line(run, tmp_path, arguments):
    """A rate that cannot be is met with one line and status 1, and no file."""
    status, output, errors = run("demo", "--out", tmp_path / "new" / "out", *arguments)
    assert (status, output) == (1, "")
    assert re.fullmatch(r"Error: Expected 0 <= rate <= .*\n", errors)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "arguments", [("demo", "--noise", "loud"), ("demo", "--seed", "-1"), ("x",)]
)
def test_wrong_usage_has_status_2(run, arguments):
    """Options and commands that do not exist are typer's to explain."""
    status, output, errors = run(*arguments)
    assert (status, output) == (2, "")
    assert "Usage" in errors


@pytest.mark.parametrize("out", ["file/out", "file", "folder", 300 * "x"])
def test_unwritable_folder_is_one_line(run, tmp_path, out):
    """A folder that cannot be made, or has other files, is met with one line and left alone."""
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").touch()
    status, output, errors = run("demo", "--out", tmp_path / out)
    assert (status, output) == (1, "")
    assert re.fullmatch(r"Error: Expected .*\n", errors)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
    assert os.listdir(tmp_path / "folder") == ["thesis.txt"]


def test_interrupt_is_one_line(run, monkeypatch):
    """Ctrl-C ends with one line and the status that shells expect."""

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(digits, "_audit_digits", interrupt)
    assert run("demo") == (130, "", "Interrupted.\n")


def test_installed_command(shown):
    """The installed command runs, and is quiet about progress where there is no terminal."""
    command = os.path.join(os.path.dirname(sys.executable), "labelnoise")
    done = subprocess.run([command, "demo", "--out", shown], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert (shown / "report.html").exists()
