"""Each baseline finds T where its assumptions hold, and says what it cannot take."""

import subprocess
import sys

import numpy as np
import pytest

from labelnoise import LabelNoiseError, transition_error
from labelnoise.baselines import (
    anchor_points,
    confident_learning,
    dual_t,
    transition_layer,
    volume_minimising,
)
from labelnoise.clean_class.linear import noisy_posteriors
from labelnoise.noise import class_conditional, symmetric
from labelnoise.scores import true_transition_matrix
from tests.conftest import clusters, pair_matrix, random_matrix

FROM_POSTERIORS = [lambda P, _: anchor_points(P), dual_t, confident_learning]


@pytest.fixture(scope="module")
def data():
    """Five classes that lie far apart, with noise of some T: X, clean, labels, T."""
    X, clean = clusters(5, 3000, 0)
    T = random_matrix(5, np.random.default_rng(1))
    noisy = class_conditional(clean, T, random_state=0)
    return X, clean, noisy.labels, T


def test_anchor_points_are_the_surest_examples():
    """Each row of T is that of the example with the highest probability of its label."""
    P = [[0.5, 0.3, 0.2], [0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4]]
    np.testing.assert_allclose(anchor_points(P, 100), [P[1], P[2], P[4]])


def test_anchor_points_above_the_percentile_are_dropped():
    """Of five examples the 80th percentile drops the highest one of each class."""
    P = np.array([[0.99, 0.01], [0.9, 0.1], [0.5, 0.5], [0.3, 0.7], [0.02, 0.98]])
    np.testing.assert_allclose(anchor_points(P, 80), P[[1, 3]])
    np.testing.assert_allclose(anchor_points(P, 60), P[[2, 2]])


def test_anchor_points_of_equal_examples():
    """Where all examples are alike, none is above the percentile."""
    np.testing.assert_allclose(anchor_points([[0.6, 0.4]] * 9), [[0.6, 0.4]] * 2)


def test_dual_t_is_the_product_of_its_factors():
    """C from the anchor points, S by counting labels for each prediction."""
    P = [[0.8, 0.2], [0.7, 0.3], [0.4, 0.6], [0.1, 0.9]]
    C, S = np.array([[0.8, 0.2], [0.1, 0.9]]), np.array([[0.5, 0.5], [0.0, 1.0]])
    np.testing.assert_allclose(dual_t(P, [0, 1, 1, 1], percentile=100), C @ S)


def test_exact_posteriors_give_exact_answers(data):
    """Anchors of the true posteriors are T; with one-hot clean ones Dual-T counts it."""
    _, clean, labels, T = data
    np.testing.assert_allclose(anchor_points(T[clean]), T)
    np.testing.assert_allclose(
        dual_t(np.eye(5)[clean], labels), true_transition_matrix(clean, labels, 5)
    )


def test_anchor_points_of_estimated_posteriors(data):
    """On clusters far apart, predictions are good enough to read T off."""
    X, _, labels, T = data
    P = noisy_posteriors(X, labels, 5)
    assert transition_error(anchor_points(P), T) < 0.2


def test_confident_learning_where_errors_are_rare():
    """T is found, not transposed, in clusters far apart with little noise of one direction."""
    X, clean = clusters(4, 3000, 0)
    T = np.eye(4)
    T[0] = [0.7, 0.3, 0.0, 0.0]
    labels = class_conditional(clean, T, random_state=0).labels
    P = noisy_posteriors(X, labels, 4)
    assert transition_error(confident_learning(P, labels), T) < 0.05


@pytest.mark.parametrize("estimate", [transition_layer, volume_minimising])
@pytest.mark.parametrize("T", [random_matrix(5, np.random.default_rng(1)), pair_matrix(5, 0.45)])
def test_layers_find_t_where_classes_are_linear(estimate, T):
    """A layer on a linear model separates the noise from classes that overlap."""
    X, clean = clusters(5, 5000, 2, separation=1.0)
    labels = class_conditional(clean, T, random_state=0).labels
    assert transition_error(estimate(X, labels, 5), T) < 0.1


@pytest.mark.parametrize("estimate", FROM_POSTERIORS)
def test_classes_that_do_not_occur(estimate, rng):
    """Rows are distributions, also where a class has no label and no prediction."""
    clean = rng.integers(0, 3, 300)
    labels = symmetric(clean, 0.2, random_state=0).labels
    P = np.full((300, 4), 0.05)
    P[np.arange(300), clean] = 0.85
    P[:, 3] = 0.0
    T = estimate(P / P.sum(axis=1, keepdims=True), labels)
    assert T.shape == (4, 4)
    assert T.min() >= 0
    np.testing.assert_allclose(T.sum(axis=1), 1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("estimate", FROM_POSTERIORS)
def test_narrow_posteriors(data, estimate, dtype):
    """Posteriors of less precision are taken, and T's rows still sum to 1."""
    _, clean, labels, T = data
    P = (0.9 * T + 0.02)[clean]
    narrow = estimate(P.astype(dtype), labels)
    np.testing.assert_allclose(narrow.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(narrow, estimate(P, labels), atol=2e-3)


@pytest.mark.parametrize("estimate", FROM_POSTERIORS)
@pytest.mark.parametrize(
    ("posteriors", "message"),
    [
        ([0.5, 0.5], "shape \\(N, K\\), but their shape is \\(2,\\)"),
        (np.empty((0, 2)), "shape is \\(0, 2\\)"),
        ([[0.5, 0.5], [0.5, 0.6]], "sum to 1, but row 1 is \\[0.5, 0.6\\]"),
        ([[0.5, 0.5], [-0.5, 1.5]], "row 1 is \\[-0.5, 1.5\\]"),
        ([[0.5, np.nan], [0.5, 0.5]], "row 0 is \\[0.5, nan\\] \\(1 such rows\\)"),
    ],
)
def test_bad_posteriors(estimate, posteriors, message):
    """Posteriors that are no probabilities are met with the rule and the row."""
    with pytest.raises(LabelNoiseError, match=message):
        estimate(posteriors, [0, 1])


@pytest.mark.parametrize("estimate", [dual_t, confident_learning])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 1], "shape \\(2,\\), one for each example, but their shape is \\(3,\\)"),
        ([0, 2], "from 0 to 2"),
        ([0, -1], "from -1 to 0"),
        ([0.0, 1.0], "class numbers \\(integers\\)"),
    ],
)
def test_bad_labels(estimate, labels, message):
    """Labels that are no class numbers are met with the rule and the values."""
    with pytest.raises(LabelNoiseError, match=message):
        estimate([[0.9, 0.1], [0.2, 0.8]], labels)


@pytest.mark.parametrize("percentile", [0, 101, np.nan])
def test_bad_percentile(percentile):
    """A percentile is more than 0 and at most 100."""
    with pytest.raises(LabelNoiseError, match="percentile <= 100, but"):
        anchor_points([[0.9, 0.1]], percentile)


def test_cleanlab_is_asked_for_by_name(monkeypatch):
    """Without cleanlab the user is told how to get it."""
    monkeypatch.setitem(sys.modules, "cleanlab.count", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[cleanlab\]'"):
        confident_learning([[0.9, 0.1], [0.2, 0.8]], [0, 1])


def test_the_module_needs_no_extra():
    """Neither cleanlab nor torch is imported before it is needed."""
    check = "import sys, labelnoise.baselines; print({'cleanlab', 'torch'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert shown.stdout.strip() == "set()"
