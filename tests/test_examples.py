"""The examples find what they claim to find, and the pages of docs/ show what their code prints."""

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

from run_pages import DOCS, PAGES, played  # noqa: E402


def right_about(est, labels, true):
    return abs(est.noise_rate_ - (labels != true).mean()) < 0.04


CLAIMS = {
    "annotators": lambda said: (
        said["right"] > said["one_label"] + 0.1
        and said["dia"][1].argmax() == 1
        and said["dia"][1, 0] > 0.25
    ),
    "images": lambda said: (
        right_about(said["est"], said["labels"], said["true"]) and said["found"].mean() > 0.9
    ),
    "pytorch_loop": lambda said: said["forward"] > said["plain"] + 0.1,
    "sklearn_pipeline": lambda said: said["accuracy_forward"] > said["accuracy_plain"] + 0.1,
    "table": lambda said: (
        right_about(said["est"], said["table"]["species"], said["true"])
        and said["low"] < said["T"][1][0] < said["high"]
    ),
    "text": lambda said: (
        right_about(said["est"], said["labels"], said["true"])
        and (said["labels"] != said["true"])[said["suspects"].index[:50]].mean() > 0.9
    ),
}


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_example_finds_what_it_claims(example):
    """Each runs without a warning, and its result is near the truth that it made itself."""
    assert CLAIMS[example.stem](runpy.run_path(str(example), run_name="__main__"))


def words_and_numbers(page):
    """What a page says, with numbers apart: they may differ a little between machines.

    Suspects with nearly the same probability may change places, so their rows are left out.
    """
    page = re.sub(r"^ *\d+(  .*%|(,[\w.-]+){5})$", "", page, flags=re.MULTILINE)
    number = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
    numbers = [float(found.replace(",", "")) for found in number.findall(page)]
    return number.sub("0", page).split(), numbers


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_page_shows_what_its_code_prints(page):
    """If it does not, `python docs/run_pages.py` puts it right; read the text around it then."""
    shown, true = page.read_text(), played(page.read_text())
    shown_words, shown_numbers = words_and_numbers(shown)
    true_words, true_numbers = words_and_numbers(true)
    assert shown_words == true_words
    np.testing.assert_allclose(shown_numbers, true_numbers, rtol=0.02, atol=0.2)
