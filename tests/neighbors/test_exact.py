"""Exact nearest neighbours, against the distances of all pairs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from labelnoise import LabelNoiseError
from labelnoise.neighbors import bounds, exact, nearest_neighbors


@pytest.fixture(params=["cosine", "euclidean"])
def metric(request):
    return request.param


def all_pairs(X, metric):
    """Distances (n, n) of all pairs; infinite on the diagonal."""
    X = np.asarray(X, float)
    if metric == "cosine":
        norm = np.linalg.norm(X, axis=1, keepdims=True)
        U = X / np.where(norm == 0, 1, norm)
        D = 1 - U @ U.T
    else:
        D = np.sqrt(np.maximum(((X[:, None] - X[None]) ** 2).sum(-1), 0))
    np.fill_diagonal(D, np.inf)
    return D


def assert_nearest(found, D, k, rtol=1e-3, atol=1e-12):
    """What was found are k different others, as near as the k nearest by all pairs."""
    n = len(D)
    assert found.indices.shape == (n, k)
    assert (np.diff(np.sort(found.indices, axis=1), axis=1) > 0).all()
    theirs = np.take_along_axis(D, found.indices, 1)
    np.testing.assert_allclose(theirs, np.sort(D, axis=1)[:, :k], rtol=rtol, atol=atol)
    np.testing.assert_allclose(found.distances, theirs, rtol=1e-7, atol=atol)


def low_dimensional(rng, n=2500, d=24):
    """Rows that lie near three directions, as features of networks lie near a few."""
    inside = rng.standard_normal((n, 3)) @ rng.standard_normal((3, d))
    return inside + 0.05 * rng.standard_normal((n, d))


def data_of(kind, rng):
    if kind == "random":
        return rng.standard_normal((300, 8))
    if kind == "clustered":
        return 10 * rng.standard_normal((6, 8))[rng.integers(0, 6, 400)] + rng.random((400, 8))
    if kind == "duplicated":
        return rng.standard_normal((60, 8))[rng.integers(0, 60, 400)]
    return np.vstack([rng.standard_normal((200, 8)), 1e-3 * rng.standard_normal((200, 8))])


@pytest.mark.parametrize("tile", [7, 64, 1024])
@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("kind", ["random", "clustered", "duplicated", "two scales"])
def test_agrees_with_all_pairs(metric, tile, k, kind, rng):
    X = data_of(kind, rng)
    assert_nearest(nearest_neighbors(X, k, metric, tile=tile), all_pairs(X, metric), k)


@pytest.mark.parametrize("shift", [0, 3])
def test_bounds_rule_out_no_neighbour(metric, shift, rng, monkeypatch):
    """Where a few components bound the scores, the neighbours are exact, copies included."""
    X = low_dimensional(rng) + shift
    X[:-1:7] = X[1::7]
    used = []
    choose = bounds.bounds_that_pay
    monkeypatch.setattr(
        exact, "bounds_that_pay", lambda *given: used.append(choose(*given)) or used[-1]
    )
    for k in (2, 18):
        assert_nearest(nearest_neighbors(X, k, metric), all_pairs(X, metric), k)
    assert None not in used


@pytest.mark.parametrize("scale", [1e-200, 1e-100, 1e100, 1e200])
def test_scale_changes_nothing(metric, scale, rng):
    """Values whose squares overflow or vanish have the neighbours that others have."""
    X = low_dimensional(rng)[:600]
    found, plain = nearest_neighbors(X * scale, 2, metric), nearest_neighbors(X, 2, metric)
    assert_nearest(plain._replace(indices=found.indices), all_pairs(X, metric), 2)
    assert np.isfinite(found.distances).all()


@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_columns_of_very_different_scale(metric, scale, rng):
    """What matters are the large columns."""
    X = rng.standard_normal((300, 6))
    X[:, 2:] *= scale
    large = X[:, :2] if scale < 1 else X[:, 2:] / scale
    found, plain = nearest_neighbors(X, 2, metric), nearest_neighbors(large, 2, metric)
    assert_nearest(plain._replace(indices=found.indices), all_pairs(large, metric), 2)


def test_order_and_threads_change_nothing(metric, rng):
    """Shuffled rows have the same distances; any number of threads finds the same rows."""
    X = low_dimensional(rng)
    order = rng.permutation(len(X))
    with threadpool_limits(1):
        one = nearest_neighbors(X, 5, metric)
    with threadpool_limits(3):
        many, shuffled = (nearest_neighbors(rows, 5, metric) for rows in (X, X[order]))
    np.testing.assert_array_equal(one.indices, many.indices)
    np.testing.assert_allclose(shuffled.distances, one.distances[order], rtol=1e-5)


def test_identical_rows_are_neighbours_and_self_is_not(metric, rng):
    """A copy is a legal neighbour at distance 0; the row itself never is one."""
    X = np.repeat(rng.standard_normal((30, 5)), 4, axis=0)
    found = nearest_neighbors(X, 3, metric)
    assert (found.indices != np.arange(len(X))[:, None]).all()
    assert (found.distances == 0).all()
    assert (found.indices // 4 == np.arange(len(X))[:, None] // 4).all()


def test_copies_do_not_share_their_neighbours(metric, rng):
    """With 1000 copies of everything, no few of them are the neighbours of all."""
    X = np.tile(rng.standard_normal((3, 4)), (1000, 1))
    found = nearest_neighbors(X, 2, metric)
    assert (found.distances == 0).all()
    assert (found.indices != np.arange(len(X))[:, None]).all()
    assert np.bincount(found.indices.ravel()).max() < 50


def test_zero_vectors_have_cosine_zero_with_all():
    """A zero vector is as near to everything, at distance 1, and nearer to -x than x is."""
    X = np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 0.1], [0.0, 0.0], [-1.0, 0.0]])
    found = nearest_neighbors(X, 2)
    assert found.distances[1].tolist() == found.distances[3].tolist() == [1, 1]
    assert found.indices[0, 0] == 2
    assert found.indices[0, 1] in (1, 3)
    assert sorted(found.indices[4]) == [1, 3]


def test_a_common_shift_does_not_hide_neighbours(rng):
    """Euclidean neighbours survive an offset that float32 could not carry."""
    X = rng.standard_normal((200, 4))
    plain = nearest_neighbors(X, 2, "euclidean")
    shifted = nearest_neighbors(X + 1e7, 2, "euclidean")
    np.testing.assert_array_equal(plain.indices, shifted.indices)


@pytest.mark.parametrize("far", [1e6, 1e9, 1e12])
@pytest.mark.parametrize("sources", [None, np.arange(301) // 2])
def test_an_outlier_does_not_hide_neighbours(far, sources, rng):
    """One row ever so far out leaves the others' neighbours as they are."""
    X = rng.standard_normal((300, 4))
    outlier = np.vstack([X, np.full((1, 4), far)])
    found = nearest_neighbors(outlier, 2, "euclidean", sources=sources).indices[:-1]
    plain = None if sources is None else sources[:-1]
    np.testing.assert_array_equal(found, nearest_neighbors(X, 2, "euclidean", sources=plain)[0])


def test_small_angles_are_told_apart(rng):
    """By cosine, rows that differ by a millionth of their length have neighbours too."""
    X = rng.standard_normal((200, 4)) + 1e6
    wide = X.astype(np.longdouble)
    U = wide / np.sqrt((wide * wide).sum(axis=1))[:, None]
    D = ((U[:, None] - U[None]) ** 2).sum(-1) / 2
    np.fill_diagonal(D, np.inf)
    found = np.take_along_axis(D, nearest_neighbors(X, 2).indices, 1)
    np.testing.assert_allclose(found, np.sort(D, axis=1)[:, :2], rtol=0, atol=1e-15)
    assert np.median(found) > 4e-15


def test_many_columns(rng):
    """Thousands of columns add up rounding errors, and the neighbours are still exact."""
    still = rng.integers(0, 256, 20_000)
    frames = np.clip(still + rng.integers(-3, 4, (150, 20_000)), 0, 255).astype(np.uint8)
    found = nearest_neighbors(frames, 2, "euclidean")
    wide = frames.astype(float)
    squared = (wide * wide).sum(1)
    D = squared[:, None] + squared - 2 * wide @ wide.T  # exact: integers below 2^53
    np.fill_diagonal(D, np.inf)
    expected = np.sort(D, axis=1)[:, :2]
    np.testing.assert_allclose(found.distances**2, expected, rtol=1e-6)


def test_not_finite_is_refused():
    """A NaN is an error, not a neighbour."""
    with pytest.raises(LabelNoiseError, match="finite"):
        nearest_neighbors(np.array([[1.0], [np.nan], [2.0]]), 1, "euclidean")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
def test_any_number_type_and_order(dtype, rng):
    """Number types and memory layouts give the same neighbours for the same values."""
    X = rng.integers(-50, 50, (100, 6))
    expected = nearest_neighbors(X.astype(float), 2).indices
    wider = np.zeros((200, 12), dtype)
    wider[::2, ::2] = X
    for array in (X.astype(dtype), np.asfortranarray(X.astype(dtype)), wider[::2, ::2]):
        np.testing.assert_array_equal(nearest_neighbors(array, 2).indices, expected)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(3, 60),
    d=st.integers(1, 5),
    k=st.integers(1, 4),
    levels=st.integers(1, 6),
    tile=st.integers(1, 70),
    seed=st.integers(0, 10**6),
)
def test_distances_are_those_of_all_pairs_on_any_grid(n, d, k, levels, tile, seed):
    """With ties and copies in plenty, the k least distances are found whatever the tile."""
    X = np.random.default_rng(seed).integers(0, levels, (n, d)).astype(float)
    k = min(k, n - 1)
    for metric in ("cosine", "euclidean"):
        found = nearest_neighbors(X, k, metric, tile=tile)
        assert_nearest(found, all_pairs(X, metric), k, atol=1e-8)
        assert (found.indices != np.arange(n)[:, None]).all()


@pytest.mark.parametrize("kind", ["shuffled", "contiguous", "one is most", "videos"])
def test_neighbours_of_different_sources(metric, kind, rng):
    """Wherever sources lie in the data: the nearest of each of the k nearest other sources."""
    X, number = rng.standard_normal((300, 8)), np.arange(300)
    X[::5] = X[1::5]  # copies, of the own source or not
    sources = {
        "shuffled": rng.integers(0, 20, 300),
        "contiguous": number // 60,
        "one is most": np.where(number < 290, 999, number),
        "videos": number // 30,
    }[kind]
    if kind == "videos":
        X = X[sources] + 0.01 * X
    found, D = nearest_neighbors(X, 3, metric, sources=sources), all_pairs(X, metric)
    theirs = sources[found.indices]
    assert (theirs != sources[:, None]).all()
    assert (np.diff(np.sort(theirs, axis=1), axis=1) > 0).all()
    nearest = np.stack([D[:, sources == name].min(axis=1) for name in np.unique(sources)], 1)
    nearest[sources[:, None] == np.unique(sources)] = np.inf
    expected = np.sort(nearest, axis=1)[:, :3]
    np.testing.assert_allclose(found.distances, expected, rtol=1e-3, atol=1e-12)
    np.testing.assert_allclose(
        np.take_along_axis(D, found.indices, 1), expected, rtol=1e-3, atol=1e-12
    )


def test_too_few_sources_are_refused():
    """Two neighbours of different sources need two sources besides the own."""
    with pytest.raises(LabelNoiseError, match=r"n_neighbors = 2 sources.*number of sources is 2"):
        nearest_neighbors(np.eye(5), 2, sources=np.array([0, 0, 0, 0, 1]))


def test_progress_ends_at_the_total(rng):
    """Progress counts every tile once."""
    seen = []
    nearest_neighbors(
        rng.standard_normal((100, 3)), 2, tile=16, progress=lambda *at: seen.append(at)
    )
    assert sorted(seen) == [(i, 28) for i in range(1, 29)]


@pytest.mark.parametrize(
    ("k", "metric", "message"),
    [
        (5, "cosine", "n_neighbors = 5, n_samples = 5"),
        (0, "cosine", "n_neighbors = 0"),
        (2, "manhattan", "metric = 'manhattan'"),
    ],
)
def test_bad_settings(k, metric, message):
    """The message has the rule and the value."""
    with pytest.raises(LabelNoiseError, match=message):
        nearest_neighbors(np.eye(5), k, metric)


@pytest.mark.parametrize("sources", [None, np.arange(2500) // 3])
def test_rows_that_stay_in_their_file(metric, sources, tmp_path, monkeypatch, rng):
    """Memory-mapped features that are too large for a copy have the same neighbours."""
    X = low_dimensional(rng).astype(np.float32)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    expected = nearest_neighbors(X, 3, metric, sources=sources)
    monkeypatch.setattr("labelnoise.neighbors.points._LARGEST_COPY", 100)
    found = nearest_neighbors(mapped, 3, metric, sources=sources)
    np.testing.assert_allclose(found.distances, expected.distances, rtol=1e-5)
