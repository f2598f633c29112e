"""From features, labels, neighbours and the triples' T to the model of the clean class."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from labelnoise import HOC, transition_error
from labelnoise.clean_class import counted_joint, fit_clean_class
from labelnoise.clean_class.evidence import FOLDS
from labelnoise.clean_class.interval import clean_class_interval
from labelnoise.neighbors import nearest_neighbors
from labelnoise.noise import class_conditional, symmetric
from labelnoise.scores import true_transition_matrix
from tests.conftest import (
    clusters,
    noise_on_unclear,
    pair_matrix,
    random_matrix,
    symmetric_matrix,
    trivial_error,
)

pytestmark = pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")  # of triples


def uneven_matrix(K):
    """Symmetric noise whose rate is .05 in the first class and .6 in the last."""
    rates = np.linspace(0.05, 0.6, K)[:, None]
    return (1 - rates) * np.eye(K) + rates / (K - 1) * (1 - np.eye(K))


def given(X, labels):
    """Neighbours, and T and class prior of the triples."""
    near = nearest_neighbors(X, 18).indices
    triples = HOC(refine=False).fit(None, labels, neighbors=near[:, :2])
    return near, (triples.transition_matrix_, triples.class_prior_)


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


@pytest.fixture(scope="module")
def overlapping():
    """Four clusters that overlap a little: nearest neighbours differ in class now and then."""
    return clusters(4, 1500, 2, separation=0.8)


@pytest.fixture(scope="module")
def fit(overlapping):
    """The model of overlapping clusters with noise of pairs: X, clean, labels, neighbours, fit."""
    X, y = overlapping
    labels = class_conditional(y, pair_matrix(4, 0.3, 0.1), random_state=0).labels
    near, of_triples = given(X, labels)
    return X, y, labels, near, fit_clean_class(X, labels, near, of_triples)


@pytest.mark.parametrize("data", ["digits", "overlapping"])
@pytest.mark.parametrize("kind", ["pair", "random", "uneven", "symmetric"])
def test_t_is_found(data, kind, request):
    """T is at most half as far off as the better of two constant answers, and nearer than triples.

    For symmetric noise one of these, "symmetric at the true rate", is right but for sampling.
    """
    X, y = request.getfixturevalue(data)
    K = y.max() + 1
    matrices = {
        "pair": pair_matrix(K, 0.3),
        "random": random_matrix(K, np.random.default_rng(0)),
        "uneven": uneven_matrix(K),
        "symmetric": symmetric_matrix(K, 0.3),
    }
    labels = class_conditional(y, matrices[kind], random_state=0).labels
    truth = true_transition_matrix(y, labels, K)
    near, of_triples = given(X, labels)
    found = fit_clean_class(X, labels, near, of_triples)
    error = transition_error(found.transition_matrix, truth)
    assert error < transition_error(of_triples[0], truth)
    if kind == "symmetric":
        assert error < 0.06
    else:
        assert error <= 0.5 * trivial_error(truth, y, labels)
    assert found.noise_rate == pytest.approx((labels != y).mean(), abs=0.03)


def test_posterior_adds_up(fit):
    """Rows sum to 1; sums by label are those of the class prior and T, to the last digits."""
    _, y, labels, _, found = fit
    np.testing.assert_allclose(found.posterior.sum(axis=1), 1, atol=1e-5)
    joint = counted_joint(found.posterior, labels, 4) / len(labels)
    expected = found.class_prior[:, None] * found.transition_matrix
    np.testing.assert_allclose(joint, expected, atol=1e-7)
    own = found.posterior[np.arange(len(labels)), labels]
    assert 1 - own.mean(dtype=float) == pytest.approx(found.noise_rate, abs=1e-7)
    right = (found.posterior.argmax(axis=1) == y).mean()
    assert right > (labels == y).mean() + 0.2
    # How sure it is tells how often it is right.
    assert found.posterior.max(axis=1).mean() == pytest.approx(right, abs=0.03)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_given_share_of_the_triples(overlapping, share):
    """The joint lies on the line between the two ends, and the posterior adds up to it."""
    X, y = overlapping
    labels = noise_on_unclear(X, y, 0.2, 0)
    near, of_triples = given(X, labels)
    found = fit_clean_class(X, labels, near, of_triples, share=share)
    ends = [p[:, None] * T for T, p in (found.given_h, of_triples)]
    ends = [end * np.bincount(labels) / len(labels) / end.sum(axis=0) for end in ends]
    expected = (1 - share) * ends[0] + share * ends[1]
    joint = found.class_prior[:, None] * found.transition_matrix
    np.testing.assert_allclose(joint, expected, atol=1e-4)
    sums = counted_joint(found.posterior, labels, 4) / len(labels)
    np.testing.assert_allclose(sums, joint, atol=1e-6)


def test_order_of_rows_and_names_of_classes_do_not_matter(fit, rng):
    """Shuffled and renamed, the same T, posterior and decision."""
    X, _, labels, _, expected = fit
    shuffled, number = rng.permutation(len(X)), np.array([2, 0, 3, 1])
    renamed = number[labels[shuffled]]
    found = fit_clean_class(X[shuffled], renamed, *given(X[shuffled], renamed))
    both = np.ix_(number, number)
    np.testing.assert_allclose(found.transition_matrix[both], expected.transition_matrix, atol=1e-6)
    np.testing.assert_allclose(found.class_prior[number], expected.class_prior, atol=1e-6)
    posterior = found.posterior[:, number][np.argsort(shuffled)]
    np.testing.assert_allclose(posterior, expected.posterior, atol=1e-3)
    assert found.case.depends == expected.case.depends


@pytest.mark.parametrize("factor", [3.7, 1e-3])
def test_scale_of_the_features_does_not_matter(fit, factor):
    """Standardised features are the same but for rounding, and so is T."""
    X, _, labels, near, expected = fit
    found = fit_clean_class(factor * X, labels, near, expected.of_triples)
    np.testing.assert_allclose(found.transition_matrix, expected.transition_matrix, atol=2e-3)


def test_new_rows_are_predicted(overlapping):
    """h of examples that were not fitted names their class, and is a probability."""
    X, y = overlapping
    labels = class_conditional(y, pair_matrix(4, 0.3, 0.1), random_state=0).labels
    old, new = slice(0, 1200), slice(1200, None)
    near, of_triples = given(X[old], labels[old])
    found = fit_clean_class(X[old], labels[old], near, of_triples)
    direction = X / np.linalg.norm(X, axis=1, keepdims=True)
    nearest = np.argsort(-direction[new] @ direction[old].T, axis=1)[:, :18]
    h = found.predict_proba(X[new], nearest)
    np.testing.assert_allclose(h.sum(axis=1), 1, atol=1e-5)
    assert (h.argmax(axis=1) == y[new]).mean() > 0.9
    assert h[np.arange(300), y[new]].mean() > 0.85


def test_draws_are_around_the_t_given_h(fit):
    """Values of T that sampling allows: rows of probabilities, whose mean is near T given h."""
    _, y, labels, _, found = fit
    assert found.draws.shape == (500, 4, 4)
    assert 0 <= found.draws.min() <= found.draws.max() <= 1
    np.testing.assert_allclose(found.draws.sum(axis=2), 1, atol=0.01)
    np.testing.assert_allclose(found.draws.mean(axis=0), found.given_h[0], atol=0.005)
    interval = clean_class_interval(found, 0.95)
    low, high = interval.transition_matrix
    truth = true_transition_matrix(y, labels, 4)
    assert ((low - 0.005 <= truth) & (truth <= high + 0.005)).mean() > 0.8
    assert (high - low)[truth > 0.2].max() < 0.2


def test_progress_reaches_its_total(overlapping):
    """Each fold of both rounds is a step, and so is the decision."""
    X, y = overlapping
    labels, steps = symmetric(y, 0.3, random_state=0).labels, []
    fit_clean_class(X, labels, *given(X, labels), progress=lambda *step: steps.append(step))
    assert steps == [(number, 2 * FOLDS + 1) for number in range(1, 2 * FOLDS + 2)]
