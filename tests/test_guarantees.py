"""The paper's theory: Lemma 1, the independent triples E_3*, anchor points beside them."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

from labelnoise import Consensus, LabelNoiseError
from labelnoise.checks.guarantees import consensus_bound, sample_sizes
from labelnoise.consensus import expected_consensus, independent_centres
from labelnoise.solvers.triples import draw_triples
from tests.conftest import imbalanced_prior, symmetric_matrix


def test_lemma_1_holds_for_independent_triples():
    """Entries of c1, c2 and c3 exceed the bound at most as often as delta says, and are near it."""
    T, p, n, delta = symmetric_matrix(3, 0.3), imbalanced_prior(3, 2), 400, 0.05
    expected = np.concatenate([c.ravel() for c in expected_consensus(T, p)])
    rng, off = np.random.default_rng(0), []
    for _ in range(300):
        counted = Consensus.from_labels(draw_triples(T, p, n, rng), 3)
        found = np.concatenate([c.ravel() for c in (counted.c1, counted.c2, counted.c3)])
        off.append(np.abs(found - expected))
    off = np.array(off)
    assert (off > consensus_bound(n, delta)).mean(axis=0).max() <= delta
    every = consensus_bound(n, delta, n_entries=len(expected))
    assert (off > every).any(axis=1).mean() <= delta
    assert off.max() > consensus_bound(n, delta) / 2


def test_lemma_1_falls_with_the_root_of_the_number_of_triples():
    """Four times as many triples, half the bound."""
    assert consensus_bound(4_000) == pytest.approx(consensus_bound(1_000) / 2)
    with pytest.raises(LabelNoiseError, match=r"0 < delta < 1.* 5, 1\.5 and 1"):
        consensus_bound(5, 1.5)


def test_the_appendix_example_of_the_size_of_e3():
    """Representations in unit cells of three: at least pi^2 / 48 of N are independent centres.

    A cell has one point at its centre and two that are uniform in it. Where both are in the
    circle around the centre, they are its neighbours, and no other such triple has them.
    """
    side = 100
    corner = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(-1, 2)
    inside = np.random.default_rng(0).random((2, len(corner), 2))
    X = np.concatenate([corner + 0.5, corner + inside[0], corner + inside[1]])
    neighbors = cKDTree(X).query(X, k=3)[1][:, 1:]
    both = (np.linalg.norm(inside - 0.5, axis=2) < 0.5).all(axis=0)
    n = len(X)
    promised = np.pi**2 / 48 * n
    assert both.sum() == pytest.approx(promised, abs=4 * np.sqrt(promised))
    cells = np.flatnonzero(both)
    expected = np.column_stack([cells + n // 3, cells + 2 * n // 3])
    np.testing.assert_array_equal(np.sort(neighbors[cells]), expected)
    assert len(independent_centres(neighbors)) > promised


def test_sizes_are_counted_and_said():
    """|E_3*| against N, and the examples that are nearly surely of one class."""
    neighbors = np.array([[1, 2], [0, 2], [0, 1], [4, 5], [3, 5], [3, 4]])
    posteriors = np.array([[1, 0], [0.995, 0.005], [0.5, 0.5], [0, 1], [0.98, 0.02], [0.9, 0.1]])
    sizes = sample_sizes(neighbors, posteriors)
    assert (sizes.n, sizes.n_independent, sizes.n_anchors) == (6, 2, 3)
    assert "|E_3*| = 2 triples of N = 6" in repr(sizes)
    assert "N_AC = 3" in repr(sizes)
    assert sample_sizes(neighbors, posteriors, surely=0.9).n_anchors == 5
    with pytest.raises(LabelNoiseError, match="row numbers"):
        sample_sizes([[0.5, 1.0]])
