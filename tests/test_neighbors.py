"""Exact nearest neighbours, against an all-pairs reference."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import kneighbors_graph

from labelnoise import LabelNoiseError
from labelnoise._blocks import block_bytes
from labelnoise.io.memory import free_memory
from labelnoise.neighbors import given_neighbors, joined_neighbors, nearest_neighbors


def all_pairs(X, k, metric, sources=None):
    """Distances of all pairs, rounded so that ties are ties; the next row wins a tie."""
    X = np.asarray(X, float)
    if metric == "cosine":
        norm = np.linalg.norm(X, axis=1, keepdims=True)
        U = X / np.where(norm == 0, 1, norm)
        D = 1 - U @ U.T
    else:
        D = np.sqrt(((X[:, None] - X[None]) ** 2).sum(-1))
    D = np.round(D, 9)
    np.fill_diagonal(D, np.inf)
    if sources is not None:
        D[sources[:, None] == sources] = np.inf
    number = np.arange(len(X))
    ahead = (number - number[:, None]) % len(X)
    order = np.lexsort((ahead, D), axis=1)[:, :k]
    return order, np.take_along_axis(D, order, 1)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("tile", [7, 64, 2048])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_agrees_with_all_pairs(metric, tile, k, rng):
    """Any tile size finds the neighbours that comparing all pairs finds."""
    X = rng.standard_normal((300, 8))
    found = nearest_neighbors(X, k, metric, tile=tile)
    indices, distances = all_pairs(X, k, metric)
    np.testing.assert_array_equal(found.indices, indices)
    np.testing.assert_allclose(found.distances, distances, atol=1e-8)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_ties_go_to_the_next_row(metric, rng):
    """On a small grid most distances are tied, and the next row number decides."""
    X = rng.integers(0, 3, (200, 3)).astype(float) + (1 if metric == "cosine" else 0)
    found = nearest_neighbors(X, 3, metric, tile=32)
    indices, _ = all_pairs(X, 3, metric)
    np.testing.assert_array_equal(found.indices, indices)


def test_identical_rows_are_neighbours_and_self_is_not(rng):
    """A copy is a legal neighbour at distance 0; the row itself never is one."""
    X = np.repeat(rng.standard_normal((30, 5)), 4, axis=0)
    for metric in ("cosine", "euclidean"):
        found = nearest_neighbors(X, 3, metric)
        assert (found.indices != np.arange(len(X))[:, None]).all()
        assert (found.distances == 0).all()
        assert (found.indices // 4 == np.arange(len(X))[:, None] // 4).all()


def test_more_copies_than_candidates(rng):
    """With 1000 copies of everything, each row's neighbours are the next copies."""
    X = np.tile(rng.standard_normal((3, 4)), (1000, 1))
    for metric in ("cosine", "euclidean"):
        found = nearest_neighbors(X, 2, metric)
        ahead = (found.indices - np.arange(3000)[:, None]) % 3000
        np.testing.assert_array_equal(ahead, np.broadcast_to([3, 6], (3000, 2)))


def test_zero_vectors_have_cosine_zero_with_all():
    """A zero vector is as near to everything: the next row numbers, distance 1."""
    X = np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 0.1], [0.0, 0.0], [-1.0, 0.0]])
    found = nearest_neighbors(X, 2)
    assert found.indices[1].tolist() == [2, 3]
    assert found.distances[1].tolist() == [1, 1]
    assert found.indices[3].tolist() == [4, 0]
    assert found.indices[0].tolist() == [2, 1]
    # A zero vector is nearer to -x than x is.
    assert found.indices[4].tolist() == [1, 3]


def test_a_common_shift_does_not_hide_neighbours(rng):
    """Euclidean neighbours survive an offset that float32 could not carry."""
    X = rng.standard_normal((200, 4))
    plain = nearest_neighbors(X, 2, "euclidean")
    shifted = nearest_neighbors(X + 1e7, 2, "euclidean")
    np.testing.assert_array_equal(plain.indices, shifted.indices)


@pytest.mark.parametrize("far", [1e6, 1e9, 1e12])
def test_an_outlier_does_not_hide_neighbours(far, rng):
    """One row ever so far out leaves the others' neighbours as they are."""
    X = rng.standard_normal((300, 4))
    outlier = np.vstack([X, np.full((1, 4), far)])
    np.testing.assert_array_equal(
        nearest_neighbors(outlier, 2, "euclidean").indices[:-1],
        all_pairs(X, 2, "euclidean")[0],
    )


def test_small_angles_are_told_apart(rng):
    """By cosine, rows that differ by a ten-millionth of their length have neighbours too."""
    X = rng.standard_normal((200, 4)) + 1e7
    wide = X.astype(np.longdouble)
    U = wide / np.sqrt((wide * wide).sum(axis=1))[:, None]
    D = ((U[:, None] - U[None]) ** 2).sum(-1)
    np.fill_diagonal(D, np.inf)
    nearest = np.sort(D.argsort(axis=1)[:, :2], axis=1)
    found = np.sort(nearest_neighbors(X, 2).indices, axis=1)
    assert (found == nearest).mean() > 0.99


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
    np.testing.assert_allclose(found.distances**2, expected, rtol=1e-9)


def test_not_finite_is_refused():
    """A NaN is an error, not a neighbour."""
    with pytest.raises(LabelNoiseError, match="finite"):
        nearest_neighbors(np.array([[1.0], [np.nan], [2.0]]), 1, "euclidean")


@pytest.mark.parametrize("scale", [1e-200, 1e200])
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_huge_and_tiny_scales(scale, metric, rng):
    """Values whose squares overflow or vanish have the neighbours that others have."""
    X = rng.standard_normal((50, 4))
    found = nearest_neighbors(X * scale, 2, metric)
    np.testing.assert_array_equal(found.indices, nearest_neighbors(X, 2, metric).indices)
    assert np.isfinite(found.distances).all()


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
        np.testing.assert_allclose(found.distances, all_pairs(X, k, metric)[1], atol=1e-8)
        assert (found.indices != np.arange(n)[:, None]).all()


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("tile", [7, 64, 2048])
@pytest.mark.parametrize("kind", ["shuffled", "contiguous", "one is most", "videos"])
def test_neighbours_of_different_sources(metric, tile, kind, rng):
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
    found = nearest_neighbors(X, 3, metric, sources=sources, tile=tile)
    everyone, _ = all_pairs(X, 299, metric)
    for row, near in enumerate(everyone):
        seen, expected = {sources[row]}, []
        for other in near:
            if sources[other] not in seen and len(expected) < 3:
                seen.add(sources[other])
                expected.append(other)
        assert found.indices[row].tolist() == expected


def test_copies_in_different_sources():
    """With 1000 copies of everything, neighbours are the next copies of two other sources."""
    X = np.tile(np.random.default_rng(0).standard_normal((3, 4)), (1000, 1))
    found = nearest_neighbors(X, 2, sources=np.arange(3000) // 3 % 100 // 2)
    ahead = (found.indices - np.arange(3000)[:, None]) % 3000
    even = np.arange(3000) // 3 % 2 == 0
    np.testing.assert_array_equal(ahead, np.where(even[:, None], [6, 12], [3, 9]))


def test_too_few_sources_are_refused():
    """Two neighbours of different sources need two sources besides the own."""
    with pytest.raises(LabelNoiseError, match=r"n_neighbors = 2 sources.*number of sources is 2"):
        nearest_neighbors(np.eye(5), 2, sources=np.array([0, 0, 0, 0, 1]))


def test_given_neighbours_of_different_sources():
    """Of neighbours found elsewhere, the own source and a second of another are passed over."""
    neighbors = np.array([[1, 2, 3, 4], [0, 2, 3, 4], [3, 0, 1, 4], [2, 1, 0, 4], [2, 3, 0, 1]])
    sources = np.array([0, 0, 1, 1, 2])
    found = given_neighbors(neighbors, 5, 2, sources=sources).indices
    assert found.tolist() == [[2, 4], [2, 4], [0, 4], [1, 4], [2, 0]]
    unlabelled = given_neighbors(neighbors, 5, 2, np.arange(5) != 2, sources).indices
    assert unlabelled[0].tolist() == [3, 4]
    with pytest.raises(LabelNoiseError, match=r"each of another source, but row 0 has 2 \(5 such"):
        given_neighbors(neighbors, 5, 3, sources=sources)


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


def test_given_indices_drop_self(rng):
    """Neighbours from a tool that lists each row first as its own are accepted."""
    X = rng.standard_normal((50, 4))
    ours = nearest_neighbors(X, 2).indices
    with_self = np.column_stack([np.arange(50), nearest_neighbors(X, 3).indices])
    np.testing.assert_array_equal(given_neighbors(with_self, 50, 2).indices, ours)


@pytest.mark.parametrize("include_self", [True, False])
def test_given_graph(include_self, rng):
    """A scikit-learn kNN graph gives the same neighbours and distances as our own search."""
    X = rng.standard_normal((50, 4))
    graph = kneighbors_graph(X, 4, mode="distance", include_self=include_self)
    ours = nearest_neighbors(X, 2, "euclidean")
    for form in (graph, sp.csr_array(graph), sp.coo_array(graph)):
        found = given_neighbors(form, 50, 2)
        np.testing.assert_array_equal(found.indices, ours.indices)
        np.testing.assert_allclose(found.distances, ours.distances)


@pytest.mark.parametrize(
    ("neighbors", "message"),
    [
        (np.zeros((4, 2), int), r"shape \(n_samples, k\).*\(4, 2\), n_samples = 3"),
        (np.zeros((3, 2)), "row numbers"),
        (np.array([[1, 3], [0, 2], [0, 1]]), "from 0 to 3"),
        (np.array([[0, 1], [0, 2], [0, 1]]), "row 0 has 1"),
        (np.array([[1, 1], [0, 2], [0, 1]]), r"row 0 is \[1, 1\]"),
        (sp.csr_array((4, 4)), r"shape \(4, 4\), n_samples = 3"),
        (sp.csr_array((3, 3)), "row 0 has 0"),
        (sp.csr_array(-np.ones((3, 3))), "negative"),
        ([[1, 2], [0]], "differ in length"),
    ],
)
def test_bad_given_neighbors(neighbors, message):
    """What is wrong with given neighbours is said with the row."""
    with pytest.raises(LabelNoiseError, match=message):
        given_neighbors(neighbors, 3, 2)


def test_a_graph_without_distances_is_refused(rng):
    """A connectivity graph of many neighbours cannot say which are the nearest."""
    graph = kneighbors_graph(rng.standard_normal((50, 4)), 10, mode="connectivity")
    with pytest.raises(LabelNoiseError, match="mode='distance'"):
        given_neighbors(graph, 50, 2)


def test_unusable_neighbours_stand_behind():
    """With unlabelled examples among many given neighbours, labelled ones are taken first."""
    neighbors = np.array([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]])
    usable = np.array([True, False, True, True])
    assert given_neighbors(neighbors, 4, 2, usable).indices.tolist() == [
        [2, 3],
        [0, 2],
        [0, 3],
        [0, 2],
    ]


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("new", [1, 30, 250])
def test_new_rows_join(metric, new, rng):
    """Old and new neighbours are those of a search among all, with copies and ties too."""
    X = rng.integers(0, 3, (300, 4)).astype(float) + (1 if metric == "cosine" else 0)
    X[::3] = rng.standard_normal((100, 4))
    known = nearest_neighbors(X[:-new], 5, metric).indices
    expected = nearest_neighbors(X, 5, metric).indices
    np.testing.assert_array_equal(joined_neighbors(X, known, metric), expected)


def test_rows_that_are_not_copied(monkeypatch, rng):
    """Features too large for a copy in float32 have the same neighbours."""
    X = rng.standard_normal((200, 6))
    for metric in ("cosine", "euclidean"):
        expected = nearest_neighbors(X, 3, metric, tile=64).indices
        with monkeypatch.context() as patch:
            patch.setattr("labelnoise.neighbors._LARGEST_COPY", 100)
            found = nearest_neighbors(X, 3, metric, tile=64).indices
        np.testing.assert_array_equal(found, expected)


def test_blocks_are_smaller_where_memory_is_short(monkeypatch):
    for free, expected in ((2**40, 64 * 2**20), (2**26, 2 * 2**20), (0, 2**20)):
        monkeypatch.setattr("labelnoise._blocks._free_at_first", lambda free=free: free)
        assert block_bytes() == expected


def test_limits_of_the_process_and_of_its_group_count(tmp_path, monkeypatch):
    group = tmp_path / "memory"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text("3000")
    (group / "memory.usage_in_bytes").write_text("2500")
    (group / "memory.stat").write_text("active_file 100\ninactive_file 200\n")
    monkeypatch.setattr("labelnoise.io.memory._CGROUP", tmp_path)
    assert free_memory() == 3000 - 2500 + 100 + 200
    (group / "memory.limit_in_bytes").write_text("100")
    assert free_memory() == 0
