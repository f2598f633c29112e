"""docs/paper.md: every name in it exists, and a test stands behind every row."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/paper.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("|") and "::" in line]


def test_the_page_has_all_of_the_paper():
    """Setup, estimator, theory, local noise, experiments."""
    assert len(ROWS) > 40


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_each_row_has_its_test_and_its_function(row):
    """The test is a function of that file; the name before it can be imported or is a file."""
    for file, test in re.findall(r"`([\w/]+\.py)::(\w+)`", row):
        assert f"def {test}(" in (ROOT / "tests" / file).read_text()
    names = re.findall(r"`([\w./]+)`", row.split("|")[2])
    assert names
    for name in names:
        if name.startswith("benchmarks/"):
            assert (ROOT / name).exists()
            continue
        parts = name.split(".")
        if "training" in parts or "losses" in parts:
            pytest.importorskip("torch")
        try:
            import_module(name)
        except ModuleNotFoundError:
            assert hasattr(import_module(".".join(parts[:-1])), parts[-1])
