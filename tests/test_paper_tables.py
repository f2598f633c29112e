"""The benchmark of the paper's tables, on small data: cells, what is not done again, the page."""

import importlib
import json
import sys
import warnings
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from labelnoise.io.datasets import load_arrays
from labelnoise.training import PLANS, Plan, Schedule

K, N = 10, 300
MODULES = ("paper_methods", "paper_tables", "paper_page")


@pytest.fixture
def tables(monkeypatch, tmp_path):
    """The benchmark's module, with results in a folder of the test."""
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "benchmarks")
    module = importlib.import_module("paper_tables")
    monkeypatch.setattr(module, "CELLS", tmp_path / "cells.jsonl")
    yield module
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def worker(tables, monkeypatch):
    """Does cells on ten clusters."""
    schedule = Schedule(((0.05, 3),), batch_size=30)
    monkeypatch.setitem(PLANS, "tiny", Plan(schedule, schedule, schedule))
    rng = np.random.default_rng(0)
    y = rng.integers(0, K, N + 100)
    X = (0.8 * rng.standard_normal((K, 20))[y] + rng.standard_normal((N + 100, 20))).astype("f4")
    worker = object.__new__(tables.Worker)
    worker._clean = {"lite2": load_arrays(X[:N], y[:N], X[N:], y[N:])}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield worker


def test_each_variant_gives_a_line(tables, worker):
    """What is kept of a cell fits in JSON, has both accuracies, and the error of a T."""
    found = {}
    for method in ("ce", *tables.VARIANTS, "co-teaching"):
        found[method] = worker(tables.Cell(method, "symmetric .4", plan="tiny"))
        assert 0 <= found[method]["last"] <= found[method]["best"] <= 1
    json.dumps(found)
    assert found["ce"]["noise_rate"] == pytest.approx(0.4, abs=0.1)
    assert found["ce, clean labels"]["last"] > found["ce"]["last"]
    assert found["forward, true T"]["transition_error"] == 0
    assert 0 < found["hoc-global, floor"]["transition_error"] < 2


def test_the_figure_has_an_error_for_each_epoch_of_the_revision(tables, worker):
    kept = worker(tables.Cell("figure 3", "symmetric .4", plan="tiny"))
    assert [len(kept["curves"][loss]) for loss in ("forward", "reweight")] == [6, 6]
    assert kept["curves"]["forward"][0] == kept["curves"]["reweight"][0]  # the anchors'


def test_what_is_done_is_not_done_again(tables, capsys):
    """Cells are known by all of their fields; nothing is started where none is missing."""
    cells = [tables.Cell("ce", "human", seed) for seed in (0, 1)]
    lines = [{**asdict(cell), "best": 0.5, "last": 0.5} for cell in cells]
    tables.CELLS.write_text("".join(json.dumps(line) + "\n" for line in lines))
    tables.run(cells, minutes=0.01, jobs=1, out=tables.CELLS)
    assert capsys.readouterr().out == "2 cells are done, 0 missing\n"
    assert len(tables.CELLS.read_text().splitlines()) == 2


def test_no_cell_is_there_twice_and_the_main_data_come_first(tables):
    cells = tables.all_cells()
    assert len(set(cells)) == len(cells)
    order = [cell.data for cell in cells]
    assert order == sorted(order, key=tables.DATA.index)


def test_the_page_shows_what_there_is(tables, tmp_path, monkeypatch):
    """Means over seeds, differences with their errors, and first of all where HOC is not ahead."""
    page = importlib.import_module("paper_page")
    monkeypatch.setattr(page, "CELLS", tables.CELLS)
    runs = [
        *(("ce", "human", seed, last) for seed, last in enumerate((0.80, 0.82))),
        *(("hoc-global", "human", seed, last) for seed, last in enumerate((0.83, 0.86, 0.87))),
        *(("ce", "worst", seed, last) for seed, last in enumerate((0.70, 0.71))),
        *(("hoc-global", "worst", seed, last) for seed, last in enumerate((0.69, 0.71))),
    ]
    same = {"best": 0.9, "transition_error": 0.1, "seconds": 9.0}
    tables.CELLS.write_text(
        "".join(
            json.dumps({**asdict(tables.Cell(method, kind, seed)), **same, "last": last}) + "\n"
            for method, kind, seed, last in runs
        )
    )
    shown = page.render()
    claim, first = shown.split("\n\n")[2:4]
    assert "in 1 of 2 comparisons" in claim
    assert "Where it is not: hoc-global - ce, lite2, worst: -0.5 ± 0.5." in claim
    assert "human: hoc-global 85.3, hoc-global 85.3 (place 1 of 2)" in first
    assert "worst: ce 70.5, hoc-global 70.0 (place 2 of 2)" in first
    empty = " | ".join(["not run"] * 5)
    assert f"| ce | {empty} | 81.0 ± 1.4 | 70.5 ± 0.7 |" in shown
    assert f"| hoc-global - ce | {empty} | +3.5 ± 0.5 | -0.5 ± 0.5 |" in shown
    assert "| clean | 99.99 | 100.0 | 99.99 | 100.0 | 100.0 |" in shown
    assert "| instance .6 | t-revision |" not in shown  # measured with a recipe that is not its own
