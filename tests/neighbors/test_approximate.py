"""Approximate neighbours: nearly the exact ones, and how near is said."""

import numpy as np
import pytest

from labelnoise import HOC, LabelNoiseError, LabelNoiseWarning
from labelnoise.neighbors import approximate, chosen_search, nearest_neighbors
from labelnoise.noise import symmetric
from tests.conftest import clusters


def share_found(found, exact):
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found, exact, strict=True)])


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("d", [16, 300])
def test_finds_nearly_all(metric, d):
    """Nearly all of the nearest are found, in rows that are compared by components too."""
    X, _ = clusters(8, 2000, 0, separation=1.0, d=12)
    X = (X @ np.random.default_rng(1).standard_normal((12, d))).astype(np.float32)
    exact = nearest_neighbors(X, 6, metric)
    found = nearest_neighbors(X, 6, metric, search="approximate")
    assert share_found(found.indices, exact.indices) > 0.99
    assert (found.indices != np.arange(len(X))[:, None]).all()
    same = found.indices == exact.indices
    np.testing.assert_array_equal(found.distances[same], exact.distances[same])


def test_all_cells_are_all_neighbours(rng):
    """With as many cells probed as there are, the search is exact."""
    X = rng.standard_normal((500, 8))
    found = nearest_neighbors(X, 3, search="approximate")
    np.testing.assert_array_equal(found.indices, nearest_neighbors(X, 3).indices)


def test_of_different_sources(rng):
    """Rows of one source are passed over, and rows that come short are searched exactly."""
    still = rng.standard_normal((40, 8))
    X = np.repeat(still, 25, axis=0) + 0.01 * rng.standard_normal((1000, 8))
    sources = np.arange(1000) // 25
    exact = nearest_neighbors(X, 3, sources=sources)
    found = nearest_neighbors(X, 3, sources=sources, search="approximate")
    np.testing.assert_array_equal(found.indices, exact.indices)


def test_copies_have_neighbours():
    """A thousand copies of a few rows are no one's end."""
    X = np.tile(np.random.default_rng(0).standard_normal((3, 4)), (1000, 1))
    found = nearest_neighbors(X, 2, search="approximate")
    assert (found.distances == 0).all()
    assert (found.indices != np.arange(3000)[:, None]).all()


def test_same_every_time(rng):
    """The search has no randomness to speak of."""
    X = rng.standard_normal((2000, 8))
    one, other = (nearest_neighbors(X, 2, search="approximate").indices for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_memory_mapped_rows_are_read_in_half_precision(tmp_path, rng):
    """A file of float16 has the neighbours that its numbers have."""
    X = rng.standard_normal((600, 8)).astype(np.float16)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    exact = nearest_neighbors(X.astype(float), 2).indices
    for search in ("exact", "approximate"):
        found = nearest_neighbors(mapped, 2, search=search)
        np.testing.assert_array_equal(found.indices, exact)


def test_estimate_says_what_was_found():
    """T hardly differs from the exact one's, and the finding has the share of neighbours found."""
    X, clean = clusters(4, 3000, 0, separation=1.5)
    y = symmetric(clean, 0.3, random_state=0).labels
    exact = HOC(refine=False, search="exact").fit(X, y)
    est = HOC(refine=False, search="approximate").fit(X, y)
    assert est.diagnostics_["search"].value > 0.99
    assert "search" not in exact.diagnostics_
    np.testing.assert_allclose(est.transition_matrix_, exact.transition_matrix_, atol=0.01)


def test_a_poor_search_is_told(monkeypatch):
    """With one cell probed many are missed, which is a warning with the remedy."""
    monkeypatch.setattr(approximate, "_PROBED", 1)
    X, clean = clusters(4, 3000, 0, separation=1.5)
    y = symmetric(clean, 0.3, random_state=0).labels
    with pytest.warns(LabelNoiseWarning, match="search='exact'"):
        est = HOC(refine=False, search="approximate").fit(X, y)
    exact = nearest_neighbors(X, 2).indices
    missed = 1 - share_found(est.examples_.near.indices[:, :2], exact)
    assert missed > 0.05
    assert abs(1 - est.diagnostics_["search"].value - missed) < 0.02


def test_auto_is_exact_until_it_takes_too_long(monkeypatch):
    """The size and the threads decide."""
    monkeypatch.setattr("labelnoise.neighbors.thread_count", lambda: 2)
    assert chosen_search("auto", 300_000, 128) == "exact"
    assert chosen_search("auto", 400_000, 128) == "approximate"
    assert chosen_search("auto", 100_000, 2048) == "exact"
    assert chosen_search("auto", 200_000, 2048) == "approximate"
    assert chosen_search("exact", 10**7, 128) == "exact"


def test_bad_search():
    """The message has the rule and the value."""
    with pytest.raises(LabelNoiseError, match="search = 'fast'"):
        nearest_neighbors(np.eye(5), 2, search="fast")
    with pytest.raises(LabelNoiseError, match="search = 'fast'"):
        HOC(search="fast").fit(np.eye(5), np.arange(5) % 2)
