"""T does not depend on what it should not: threads, blocks, the order of rows, how numbers lie."""

import gc
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from labelnoise import HOC, Consensus, LabelNoiseWarning
from labelnoise.noise import symmetric
from tests.conftest import clusters, sampled_consensus, symmetric_matrix
from tests.fuzz.trials import FACTOR, trials

EXACT = 1e-10
SEARCH = 5e-3  # what rounding may change where a search in float32 ends, of 300 examples


def noisy(K, n, seed, separation=1.0):
    X, y = clusters(K, n, seed, separation)
    return X, symmetric(y, 0.3, random_state=seed).labels


def matrix(X, y, refine=True):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelNoiseWarning)
        return HOC(refine=refine).fit(X, y).transition_matrix_


@pytest.mark.parametrize("refine", [True, False])
def test_threads_and_blocks_change_nothing(refine, monkeypatch):
    """Each sum is cut in the same places, however many threads there are."""
    X, y = noisy(4, 2500, 0)
    with threadpool_limits(1):
        expected = matrix(X, y, refine)
    for threads in (2, 3, 5):
        with threadpool_limits(threads):
            np.testing.assert_allclose(matrix(X, y, refine), expected, atol=EXACT)
    monkeypatch.setattr("labelnoise._blocks.BLOCK_BYTES", 2**16)
    np.testing.assert_allclose(matrix(X, y, refine), expected, atol=EXACT)


@trials(4)
@given(st.data(), st.integers(0, 10**6), st.sampled_from([2, 3, 5]), st.booleans())
def test_forms_of_the_same_numbers(data, seed, K, refine):
    """Orders of rows, layouts and powers of 2 change nothing; other scales only rounding."""
    X, y = noisy(K, 300, seed)
    X, rows = X.astype(np.float16), np.random.default_rng(seed).permutation(300)
    base = matrix(X.astype(np.float64), y, refine)
    exact = {
        "half": lambda: matrix(X, y, refine),
        "columns": lambda: matrix(np.asfortranarray(X), y, refine),
        "view": lambda: matrix(np.repeat(X, 2, axis=1)[:, ::2], y, refine),
        "power of 2": lambda: matrix(X.astype(np.float64) * 2.0**200, y, refine),
        "rows": lambda: matrix(X[rows], y[rows], refine),
    }
    close = {
        "single": lambda: matrix(X.astype(np.float32), y, refine),
        "huge": lambda: matrix(X.astype(np.float64) * 1e250, y, refine),
        "tiny": lambda: matrix(X.astype(np.float64) * 1e-250, y, refine),
        "constant": lambda: matrix(np.column_stack([X, np.zeros(300)]), y, refine),
    }
    name = data.draw(st.sampled_from([*exact, *close]))
    tolerance = EXACT if name in exact or not refine else SEARCH
    np.testing.assert_allclose((exact | close)[name](), base, atol=tolerance)


@trials(4)
@given(st.integers(0, 10**6), st.integers(2, 12), st.booleans())
def test_names_of_classes_do_not_matter(seed, K, refine):
    """Classes in another order give the same T in that order."""
    X, y = noisy(K, 60 * K, seed, separation=4.0)
    new = np.random.default_rng(seed).permutation(K)
    renamed = matrix(X, new[y], refine)[np.ix_(new, new)]
    # The search magnifies what the order changes in the triples' T, unless it is rounded away.
    np.testing.assert_allclose(renamed, matrix(X, y, refine), atol=SEARCH if refine else 1e-6)


@trials(10)
@given(st.integers(0, 10**6), st.integers(2, 9), st.integers(1, 6))
def test_shards_add_up(seed, K, n_shards):
    """The triples of shards, merged in any order, are those of all."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, K, (500, 3))
    whole = Consensus.from_labels(labels, K)
    shards = [Consensus.from_labels(part, K) for part in np.array_split(labels, n_shards)]
    merged = sum(shards[i] for i in rng.permutation(n_shards))
    np.testing.assert_array_equal(merged.triples, whole.triples)
    np.testing.assert_allclose(merged.weights, whole.weights, rtol=1e-12)


@pytest.mark.parametrize("K", [2, 30] if FACTOR == 1 else [2, 30, 300, 1000])
def test_few_and_many_classes(K):
    """T is one, and close to the truth, from 2 to 1000 classes."""
    T = symmetric_matrix(K, 0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelNoiseWarning)  # many classes take many steps
        est = HOC().fit_consensus(sampled_consensus(T, np.full(K, 1 / K), 400 * K, 0))
    np.testing.assert_allclose(est.transition_matrix_.sum(axis=1), 1, atol=1e-9)
    assert np.abs(np.diag(est.transition_matrix_) - 0.8).mean() < 0.05


def test_a_class_of_three_among_many():
    """It does not spoil the others, and is said to be rare."""
    n = 3000 if FACTOR == 1 else 200_000
    X, y = noisy(3, n, 0, separation=6.0)
    both = np.vstack([X, -99 + np.eye(16)[:3]]), np.append(y, [3, 3, 3])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelNoiseWarning)
        est = HOC(refine=False).fit(*both)
    T = est.transition_matrix_
    np.testing.assert_allclose(T[:3, :3], matrix(X, y, refine=False), atol=0.02)
    np.testing.assert_allclose(T.sum(axis=1), 1, atol=1e-9)
    assert any("3" in finding.sentence for finding in est.diagnostics_ if not finding.ok)


def test_data_that_are_there_twice_are_noticed():
    """A pipeline that loads all rows twice makes each its own neighbour."""
    X, y = noisy(3, 300, 0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        HOC(refine=False).fit(np.vstack([X, X]), np.append(y, y))
    assert "600 examples (100.0%) are exact duplicates" in " ".join(str(w.message) for w in said)


def test_many_estimates_in_one_process():
    """Memory does not grow with the number of estimates."""
    X, y = noisy(3, 300, 0)

    def resident():
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    for _ in range(3):
        matrix(X, y)
    before = resident()
    for _ in range(4 * FACTOR):
        matrix(X, y)
    assert resident() - before < 30e6
