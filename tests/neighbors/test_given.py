"""Neighbours that were found elsewhere."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.neighbors import kneighbors_graph

from labelnoise import LabelNoiseError
from labelnoise.neighbors import given_neighbors, nearest_neighbors


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
