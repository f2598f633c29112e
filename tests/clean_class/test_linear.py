"""Linear models held out by folds, out-of-fold posteriors, and T as a layer."""

import numpy as np
import pytest
import scipy.sparse as sp

from labelnoise import HOC, LabelNoiseError, transition_error
from labelnoise.clean_class.linear import HeldOut, fit_transition_layer, noisy_posteriors
from labelnoise.noise import pair_flip, symmetric
from tests.conftest import clusters


@pytest.fixture(scope="module")
def data():
    """Four classes that overlap a little, with 40% pair noise: X, clean, noisy, T."""
    X, clean = clusters(4, 2000, 0, separation=1.0)
    noisy = pair_flip(clean, 0.4, random_state=0)
    return X, clean, noisy.labels, noisy.transition_matrix


def test_features_on_the_host_are_not_copied_whole(monkeypatch):
    """They may be on disk, and larger than memory."""
    seen = []

    class Watched(HeldOut):
        def scores(self, *args, **options):
            seen.append(self)
            return super().scores(*args, **options)

    monkeypatch.setattr("labelnoise.clean_class.evidence.HeldOut", Watched)
    HOC().fit(*clusters(3, 300, seed=0))
    assert seen
    assert all(model.held is None for model in seen)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (
            np.ones((3, 2)),
            [0, 1],
            "of shape \\(3,\\).*but their shape is \\(2,\\)",
        ),
        (np.full((2, 2), np.nan), [0, 1], "contains NaN"),
        (sp.eye_array(2), [0, 1], "use X.toarray"),
        (np.ones((2, 2)), [0, 2], "from 0 to n_classes - 1 = 1"),
        (np.ones((2, 2)), ["a", "b"], "class numbers \\(integers\\)"),
    ],
)
@pytest.mark.parametrize("function", [noisy_posteriors, fit_transition_layer])
def test_bad_input(function, X, y, message):
    """Features and labels are met with the rule and the value."""
    with pytest.raises(LabelNoiseError, match=message):
        function(X, y, 2)


def test_an_examples_own_label_does_not_count(data):
    """Out of fold: a changed label changes the posteriors of other folds, not its own."""
    X, _, noisy, _ = data
    changed = noisy.copy()
    changed[7] = (noisy[7] + 1) % 4
    before, after = noisy_posteriors(X, noisy, 4), noisy_posteriors(X, changed, 4)
    np.testing.assert_array_equal(before[7], after[7])
    same = (before == after).all(axis=1)
    assert 0.3 < same.mean() < 0.4


def test_posteriors_are_those_of_the_label():
    """Where the class is clear, the posterior of the label is its row of T."""
    X, clean = clusters(3, 3000, 0)
    noisy = symmetric(clean, 0.3, random_state=0)
    P = noisy_posteriors(X, noisy.labels, 3)
    assert P.dtype == np.float32
    np.testing.assert_allclose(P.sum(axis=1), 1, atol=1e-5)
    assert np.abs(P - noisy.transition_matrix[clean]).mean() < 0.03


def test_a_class_without_examples_has_a_column(data):
    """A label that a fold, or all of the data, lacks is improbable, not missing."""
    X, _, noisy, _ = data
    P = noisy_posteriors(X, noisy, 6)
    assert P.shape == (len(X), 6)
    assert P[:, 4:].max() < 0.05
    with pytest.raises(LabelNoiseError, match="n_splits to be a whole number >= 2"):
        noisy_posteriors(X, noisy, 4, n_splits=1)


@pytest.mark.parametrize(("K", "rate"), [(2, 0.2), (5, 0.4)])
def test_transition_layer_finds_t_and_the_clean_class(K, rate):
    """T is found in classes that a linear model tells apart, whatever the features' scale."""
    X, clean = clusters(K, 4000, 1, separation=1.0)
    noisy = pair_flip(clean, rate, random_state=0)
    uneven = X * np.geomspace(0.01, 100, X.shape[1]) + 5
    layer = fit_transition_layer(uneven, noisy.labels, K)
    assert transition_error(layer.transition_matrix, noisy.transition_matrix) < 0.08
    predicted = (uneven @ layer.coef.T + layer.intercept).argmax(axis=1)
    assert (predicted == clean).mean() > 0.95
    even = fit_transition_layer(X, noisy.labels, K)
    np.testing.assert_allclose(even.transition_matrix, layer.transition_matrix, atol=1e-2)


def test_volume_prefers_a_small_determinant(data):
    """The more the volume counts, the smaller the determinant of T."""
    X, _, noisy, _ = data
    layers = [fit_transition_layer(X, noisy, 4, volume=volume) for volume in (0, 1e-4, 1e-3)]
    volumes = [np.linalg.det(layer.transition_matrix) for layer in layers]
    assert volumes[0] > volumes[1] > volumes[2]
    with pytest.raises(LabelNoiseError, match="with volume = 1"):
        fit_transition_layer(X, noisy, 4, volume=1)
