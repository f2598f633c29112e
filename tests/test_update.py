"""New examples join an estimate."""

import numpy as np
import pytest

from labelnoise import HOC, LabelNoiseError, LabelNoiseWarning
from labelnoise.noise import symmetric
from tests.conftest import clusters


def noisy_clusters(K=4, n=900):
    X, clean = clusters(K, n, 0, separation=1.5)
    return X, symmetric(clean, 0.3, random_state=0).labels


@pytest.mark.parametrize("settings", [{"refine": False}, {"n_neighbors": 4}, {}])
def test_an_update_is_a_fit_to_all(settings):
    """Triples are those of all examples to the last one, and T is theirs.

    What refines T stops where a step gains little, from whatever start.
    """
    X, y = noisy_clusters()
    whole = HOC(**settings).fit(X, y)
    est = HOC(**settings).fit(X[:600], y[:600])
    assert est.update(X[600:700], y[600:700]).update(X[700:], y[700:]) is est
    np.testing.assert_array_equal(est.consensus_.triples, whole.consensus_.triples)
    np.testing.assert_array_equal(est.consensus_.weights, whole.consensus_.weights)
    for name, atol in (("triples_transition_matrix_", 1e-6), ("transition_matrix_", 0.01)):
        np.testing.assert_allclose(getattr(est, name), getattr(whole, name), atol=atol)


def test_rows_keep_their_numbers():
    """Unlabelled examples, old or new, are left out; suspects are named by their row in all."""
    X, y = noisy_clusters()
    y = y.astype(float)
    y[[3, 700]] = np.nan
    X[[5, 800]] = 0
    with pytest.warns(LabelNoiseWarning, match="zero vectors"):
        whole = HOC(refine=False).fit(X, y)
    with pytest.warns(LabelNoiseWarning, match="zero vectors"):
        est = HOC(refine=False).fit(X[:600], y[:600])
    with pytest.warns(LabelNoiseWarning, match="zero vectors"):
        est.update(X[600:], y[600:])
    np.testing.assert_array_equal(est.consensus_.weights, whole.consensus_.weights)
    np.testing.assert_array_equal(est.suspects().index[:20], whole.suspects().index[:20])


def test_what_cannot_be_updated():
    """An estimate without its features, labels that are not known, rows of another width."""
    X, y = noisy_clusters(n=300)
    est = HOC(refine=False).fit(X, y)
    with pytest.raises(LabelNoiseError, match="y has \\[9\\]"):
        est.update(X[:2], [0, 9])
    with pytest.raises(LabelNoiseError, match="X has 2 rows and y 3"):
        est.update(X[:2], [0, 1, 1])
    with pytest.raises(LabelNoiseError, match="features"):
        est.update(X[:2, :3], [0, 1])
    with pytest.raises(LabelNoiseError, match="fitted to X and y alone"):
        HOC(refine=False).fit_consensus(est.consensus_).update(X, y)
    rounds = HOC(refine=False, n_rounds=2, sample_size=200, random_state=0).fit(X, y)
    with pytest.raises(LabelNoiseError, match="fitted to X and y alone"):
        rounds.update(X, y)
    for other in ({"sources": np.arange(300) // 2}, {"center_weight": np.ones(300)}):
        with pytest.raises(LabelNoiseError, match="fitted to X and y alone"):
            HOC(refine=False).fit(X, y, **other).update(X, y)
