"""The GPU's search, run on the CPU, against the CPU's own."""

import importlib
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from labelnoise import HOC, LabelNoiseError
from labelnoise.clean_class import fit_clean_class
from labelnoise.clean_class.interval import clean_class_interval
from labelnoise.neighbors import cuda as gpu
from labelnoise.neighbors import nearest_neighbors
from labelnoise.neighbors.cuda import nearest_on_device
from labelnoise.noise import symmetric
from tests.conftest import clusters, noise_on_unclear


@pytest.fixture(params=["cosine", "euclidean"])
def metric(request):
    return request.param


def assert_same(X, k, metric, **settings):
    """Neighbours as near as the CPU's: which of those at one distance they are may differ."""
    found = nearest_on_device(X, k, metric, "cpu", **settings)
    expected = nearest_neighbors(np.asarray(X), k, metric)
    np.testing.assert_allclose(found.distances, expected.distances, rtol=1e-4, atol=1e-12)
    with_self = np.column_stack([np.arange(len(found.indices)), found.indices])
    assert (np.diff(np.sort(with_self, axis=1), axis=1) > 0).all()


def halved(points, rows, made=gpu._Points._made_near):
    """Near rows as a GPU has them: in half precision, and multiplied in more."""
    return [near.half().to(near.dtype) for near in made(points, rows)]


@pytest.mark.parametrize("k", [1, 2, 7, 50])
def test_finds_what_the_cpu_finds(k, metric, rng):
    """Over several tiles and an odd number of rows and columns."""
    assert_same(rng.standard_normal((4321, 13)), k, metric, tile=2048)


@pytest.mark.parametrize("n", [2, 3, 9, 60])
def test_few_rows(n, metric, rng):
    """All other rows are neighbours."""
    assert_same(rng.standard_normal((n, 3)), n - 1, metric)


def test_ties(metric, rng):
    """On a small grid most distances are tied."""
    assert_same(rng.integers(1, 4, (500, 3)), 7, metric)


def test_more_copies_than_candidates(metric, rng):
    """The neighbours of a row that has 99 copies are two of them."""
    assert_same(np.tile(rng.standard_normal((5, 4)), (100, 1)), 2, metric)


def test_zero_rows(metric, rng):
    """A zero row has cosine 0 with every row."""
    X = rng.standard_normal((300, 4)) * (rng.random((300, 1)) > 0.2)
    assert_same(X, 2, metric)


def test_an_outlier_does_not_hide_neighbours(metric, rng):
    """Beside one row ever so far out, the others are too close for the fast products."""
    assert_same(np.vstack([rng.standard_normal((200, 4)), np.full((1, 4), 1e9)]), 2, metric)


def test_half_precision_is_made_good(metric, rng, monkeypatch):
    """Rows too close for half precision, and others, have their exact neighbours."""
    monkeypatch.setattr(gpu._Points, "_made_near", halved)
    close = 1 + 1e-4 * rng.standard_normal((300, 8))
    assert_same(np.vstack([close, rng.standard_normal((300, 8))]), 2, metric)


def test_few_rows_are_searched_again(metric, rng, monkeypatch):
    """Half precision settles nearly all rows of ordinary data."""
    again = []
    search = gpu._by_float64
    monkeypatch.setattr(
        gpu, "_by_float64", lambda p, rows, k: again.append(len(rows)) or search(p, rows, k)
    )
    monkeypatch.setattr(gpu._Points, "_made_near", halved)
    assert_same(rng.standard_normal((3000, 64)), 2, metric)
    assert sum(again) < 30


def test_short_memory_changes_nothing(metric, rng, monkeypatch):
    """Features that the device cannot hold are sent in pieces, from a memory map too."""
    X = rng.standard_normal((2500, 5)).astype(np.float32)
    X.setflags(write=False)
    plain = nearest_on_device(X, 3, metric, "cpu", tile=2048)
    for free in (0, 240_000, 900_000):  # the last two for half precision alone, by metric
        monkeypatch.setattr(gpu, "_free_bytes", lambda device, free=free: free)
        pieces = nearest_on_device(X, 3, metric, "cpu", tile=2048)
        np.testing.assert_array_equal(pieces.indices, plain.indices)
        np.testing.assert_array_equal(pieces.distances, plain.distances)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.int32])
def test_tensors_are_left_as_they_are(dtype, rng):
    """A tensor of any number type is searched as an array is, and not written to."""
    X = torch.from_numpy(rng.integers(-50, 50, (100, 6))).to(dtype)
    before = X.clone()
    assert_same(X, 2, "euclidean")
    assert X.equal(before)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_huge_and_tiny_scales(scale, metric, rng):
    """Values whose squares overflow or vanish."""
    assert_same(rng.standard_normal((50, 4)) * scale, 2, metric)


def test_progress_counts_tiles(rng):
    """The last call says that all is done: three tiles of a symmetric two by two."""
    calls = []
    X = rng.standard_normal((3000, 2))
    nearest_on_device(X, 1, device="cpu", tile=2000, progress=lambda *call: calls.append(call))
    assert calls == [(2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "manhattan"}, "metric"),
        ({"k": 3}, "k = 3, n_samples = 3"),
        ({"device": "warp drive"}, "warp drive"),
        ({"device": "meta"}, "'cuda' or 'cpu'"),
        ({"X": np.array([[1.0], [np.nan], [2.0]])}, "finite"),
    ],
)
def test_bad_input_is_met_with_the_rule(change, message):
    """The rule, then the value."""
    settings = {"X": np.eye(3), "k": 1, "device": "cpu"} | change
    with pytest.raises(LabelNoiseError, match=f"Expected.*{message}"):
        nearest_on_device(**settings)


def test_no_gpu_is_said(monkeypatch):
    """Without a GPU, "cuda" is refused in one sentence."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(LabelNoiseError, match=r"Expected a GPU .* but it finds 0"):
        nearest_on_device(np.eye(3), 1)


def test_missing_torch_is_named(monkeypatch):
    """Without PyTorch, the error says what to install."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "labelnoise.neighbors.cuda")
    with pytest.raises(LabelNoiseError, match=r"pip install '\.\[torch\]'"):
        importlib.import_module("labelnoise.neighbors.cuda")


def test_the_front_door_takes_a_device(monkeypatch):
    """An exact search goes to the device; "auto" looks for a GPU only where it would pay."""
    X = np.random.default_rng(0).standard_normal((300, 5))
    asked = []

    def searched(X, k, metric, device, **_):
        asked.append(device)
        return nearest_on_device(X, k, metric, "cpu")

    def arrays(device, made=gpu.arrays_on):
        asked.append(f"refined on {device}")
        return made("cpu")

    monkeypatch.setattr("labelnoise.neighbors.cuda.nearest_on_device", searched)
    monkeypatch.setattr("labelnoise.neighbors.cuda.arrays_on", arrays)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    expected = nearest_neighbors(X, 2).indices
    assert asked == []
    for device in ("auto", "cuda:1"):
        np.testing.assert_array_equal(nearest_neighbors(X, 2, device=device).indices, expected)
    assert asked == ["cuda:1"]
    monkeypatch.setattr("labelnoise.neighbors._WORTH_A_GPU", 0)
    monkeypatch.setattr("labelnoise.neighbors._LONGEST", 0)
    found = nearest_neighbors(X, 2, search="auto", device="auto").indices
    np.testing.assert_array_equal(found, expected)
    nearest_neighbors(X, 2, search="approximate", device="cuda")
    nearest_neighbors(X, 2, sources=np.arange(300) // 2, device="cuda")
    assert asked == ["cuda:1", "cuda"]
    X, y = clusters(3, 300, seed=0)
    est = HOC(device="cuda").fit(X, y)
    assert asked[2:] == ["cuda", "refined on cuda"]
    assert "search" not in {finding.name for finding in est.diagnostics_}


@pytest.mark.parametrize("depends", [False, True])
def test_the_clean_class_is_the_cpus(depends):
    """Whether or not noise depends on the example, and with whatever memory."""
    X, y = clusters(4, 2000, seed=1, separation=0.3, d=64)
    labels = symmetric(y, 0.3, random_state=0).labels
    if depends:
        labels = noise_on_unclear(X, y, 0.2, 0)
    triples = HOC(refine=False).fit(X, labels)
    of_triples = triples.transition_matrix_, triples.class_prior_
    given = X, labels, nearest_neighbors(X, 18).indices, of_triples
    expected, here = fit_clean_class(*given), gpu.arrays_on("cpu")
    with here.in_full():
        found = fit_clean_class(*given, arrays=here)
    assert found.case.depends == expected.case.depends == depends
    np.testing.assert_allclose(found.transition_matrix, expected.transition_matrix, atol=3e-3)
    np.testing.assert_allclose(found.class_prior, expected.class_prior, atol=3e-3)
    assert np.abs(found.posterior - expected.posterior).mean() < 3e-3
    new = X[:50], given[2][:50]
    np.testing.assert_allclose(found.predict_proba(*new), expected.predict_proba(*new), atol=0.03)
    ends = [clean_class_interval(one, 0.95) for one in (found, expected)]
    np.testing.assert_allclose(*(one.transition_matrix for one in ends), atol=0.01)
    # Features are sent in pieces if there is no room for them.
    pieces = fit_clean_class(*given, arrays=replace(here, free=4e5))
    np.testing.assert_array_equal(pieces.transition_matrix, found.transition_matrix)


def test_products_are_exact_whatever_pytorch_was_told():
    """A lower precision, asked for elsewhere, is not used, and is there again afterwards."""
    torch.set_float32_matmul_precision("high")
    try:
        with gpu.arrays_on("cpu").in_full():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_a_device_that_is_none_is_refused():
    with pytest.raises(LabelNoiseError, match="Expected device 'cuda' or 'cpu'"):
        HOC(device="toaster").fit(np.eye(6), [0, 1] * 3)
