"""The benchmark of the paper's tables, on small pictures: runs, what they share, the page."""

import importlib.util
import json
import sys
import warnings
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from labelnoise import LocalHOC
from labelnoise.io.datasets import load_arrays
from labelnoise.training import PLANS, Plan, Schedule

K, N = 10, 200


@pytest.fixture(scope="module")
def paper_tables():
    path = Path(__file__).parent.parent / "benchmarks" / "paper_tables.py"
    spec = importlib.util.spec_from_file_location("paper_tables", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["paper_tables"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def worker(paper_tables, tmp_path, monkeypatch):
    """Does runs on pictures of ten colours."""
    first, final = Schedule(((0.05, 2),), batch_size=50), Schedule(((0.05, 3),), batch_size=50)
    monkeypatch.setitem(PLANS, "tiny", Plan(first, first, final))
    monkeypatch.setattr(paper_tables, "SHARED", tmp_path)
    monkeypatch.setattr(paper_tables, "REVISION", Schedule(((5e-7, 2),), batch_size=50))
    monkeypatch.setattr(
        paper_tables.WatchedLocalHOC,
        "__init__",
        lambda self, **kw: LocalHOC.__init__(self, **{**kw, "n_local": 3, "local_size": 100}),
    )
    rng = np.random.default_rng(0)
    y = rng.integers(0, K, N)
    colours = rng.integers(30, 220, (K, 1, 1, 3))
    images = (colours[y] + rng.normal(0, 20, (N, 8, 8, 3))).clip(0, 255).astype(np.uint8)
    worker = object.__new__(paper_tables.Worker)
    worker.data = load_arrays(images, y, images[:50], y[:50])
    worker.features = images.reshape(N, -1).astype(np.float32) - 128
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield worker


def test_methods_share_the_training_that_they_begin_with(paper_tables, worker):
    kept, trained = {}, {}
    for method in ("forward", "t-revision", "reweight", "hoc-global", "hoc-local"):
        kept[method] = worker(paper_tables.Spec(method, "symmetric .2", 0, "resnet8", "tiny"))
        trained[method] = worker.n_trained
    assert trained == {
        "forward": 2 + 3,
        "t-revision": 3 + 1,  # its first 2 are those of forward
        "reweight": 0,  # is what T-Revision began with
        "hoc-global": 2 + 3,
        "hoc-local": 2 + 3,  # stage 1 is that of hoc-global
    }
    assert kept["reweight"]["transition_error"] == kept["forward"]["transition_error"]
    assert len(kept["reweight"]["accuracies"]) == 3
    assert len(kept["hoc-local"]["recalls"]) == K
    assert 0 < kept["hoc-local"]["local_errors"]["mean"] < 2
    json.dumps(kept)
    how = paper_tables.NO_WARM_UP
    worker(paper_tables.Spec("forward", "symmetric .2", 0, "resnet8", "tiny", how))
    assert worker.n_trained == 2 + 3  # done in another way, nothing is shared with the usual


def test_the_figure_has_an_error_for_each_epoch_of_the_revision(paper_tables, worker):
    kept = worker(paper_tables.Spec("figure 3", "symmetric .2", 0, "resnet8", "tiny"))
    assert [len(kept["curves"][loss]) for loss in ("forward", "reweight")] == [3, 3]
    assert kept["curves"]["forward"][0] == kept["curves"]["reweight"][0]  # the anchors'


def test_the_page_shows_what_there_is(paper_tables, tmp_path, monkeypatch):
    monkeypatch.setattr(paper_tables, "RUNS", tmp_path / "runs.jsonl")
    runs = [
        (paper_tables.Spec("ce", "human", 0), 0.80),
        (paper_tables.Spec("ce", "human", 1), 0.82),
        (paper_tables.Spec("hoc-global", "human", 0), 0.83),
        (paper_tables.Spec("hoc-global", "human", 1), 0.86),
        (paper_tables.Spec("hoc-global", "human", 2), 0.87),
        (paper_tables.Spec("hoc-global", "human", 2, how=paper_tables.NO_WARM_UP), 0.5),
        (paper_tables.Spec("ce", "human", 2, plan="brief 14"), 0.1),
    ]
    same = {
        "best": 0.9,
        "transition_error": 0.1,
        "training_seconds": 9.0,
        "recalls": [0.4, 0.7],
        "other_seconds": 1.0,
    }
    lines = [{**asdict(spec), **same, "last": last} for spec, last in runs]
    del lines[0]["how"]  # as the first runs were written
    paper_tables.RUNS.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = paper_tables.render()
    assert "| ce | 83.50 | 90.0 ± 0.0 | 81.0 ± 1.4 | 0.100 ± 0.000 | 0, 1 |" in page
    assert "| human | hoc-global - ce | +3.5 ± 0.5, too few seeds | 2 |" in page
    assert "| hoc-global, human, seed 2 | no epoch of cross-entropy first | 87.0 | 40.0 |" in page
    assert "| clean | 99.99 | not run | 99.99 | not run | not run |" in page
