"""Whether noise depends on the example, and where T then is between its two ends."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from labelnoise import HOC
from labelnoise.clean_class import fit_clean_class
from labelnoise.clean_class.dependence import CLEAR, FLAT, SHOWN, agreement_fall
from labelnoise.neighbors import nearest_neighbors
from labelnoise.noise import class_conditional
from tests.conftest import clusters, noise_on_unclear, pair_matrix, random_matrix, symmetric_matrix

pytestmark = pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")  # of triples


def fitted(X, labels):
    """The model, from the T of triples."""
    near = nearest_neighbors(X, 18).indices
    triples = HOC(refine=False, n_neighbors=2).fit(None, labels, neighbors=near[:, :2])
    of_triples = triples.transition_matrix_, triples.class_prior_
    return fit_clean_class(X, labels, near, of_triples)


def test_not_shown_where_noise_depends_on_the_class():
    """In at least nine of ten data sets with class-dependent noise, T given h stands."""
    matrices = [symmetric_matrix(4, 0.3), pair_matrix(4, 0.3), None]
    shown = 0
    for seed in range(10):
        X, y = clusters(4, 800, seed, separation=(0.6, 1.0, 2.0)[seed % 3])
        T = matrices[seed // 3 % 3]
        T = random_matrix(4, np.random.default_rng(seed)) if T is None else T
        found = fitted(X, class_conditional(y, T, random_state=seed).labels)
        shown += found.case.depends
        if not found.case.depends:
            assert found.case.share == 0
            np.testing.assert_array_equal(found.transition_matrix, found.given_h[0])
    assert shown <= 1


@pytest.fixture(scope="module")
def digits():
    """Digits whose labels are wrong where they are nearly as near to another class."""
    X, y = load_digits(return_X_y=True)
    return X, y, noise_on_unclear(X, y, 0.2, 0)


@pytest.mark.parametrize("data", ["digits", "clusters"])
def test_shown_where_noise_is_on_unclear_examples(data, digits):
    """The likelihood gains far more than by chance, with b > 0, and T moves to the triples'."""
    if data == "digits":
        X, _, labels = digits
    else:
        X, y = clusters(4, 1500, 1, separation=1.0)
        labels = noise_on_unclear(X, y, 0.2, 0)
    found = fitted(X, labels)
    assert found.case.depends
    assert found.case.gain > 2 * SHOWN
    assert found.case.b > 0
    rates = [1 - p @ np.diag(T) for T, p in (found.given_h, found.of_triples)]
    assert rates[0] < found.noise_rate <= rates[1] + 0.01
    flat_or_unclear = found.case.fall < FLAT or not found.case.clear
    share = 1.0 if flat_or_unclear else np.sqrt(rates[0])
    assert found.case.share == pytest.approx(share, abs=1e-3)
    # The joint of class and label lies between those of the two ends, by this share.
    shares = np.bincount(labels) / len(labels)
    ends = [p[:, None] * T for T, p in (found.given_h, found.of_triples)]
    ends = [end * shares / end.sum(axis=0) for end in ends]
    joint = found.class_prior[:, None] * found.transition_matrix
    between = (1 - found.case.share) * ends[0] + found.case.share * ends[1]
    np.testing.assert_allclose(joint, between, atol=1e-3)


def test_clear_is_said_of_the_least_clear_class(digits):
    """Two classes in one place have no clear examples, though others have."""
    X, y = clusters(4, 1500, 0)
    X[y == 3] += X[y == 2].mean(axis=0) - X[y == 3].mean(axis=0)
    found = fitted(X, y)
    assert found.case.clearest < CLEAR
    assert fitted(*clusters(4, 1500, 0)).case.clearest > 0.99


def test_agreement_falls_with_rank():
    """By the share of equal labels among the two nearest against the furthest third."""
    labels = np.array([0, 0, 0, 1, 1, 1, 0, 1, 0])
    near = np.array([[1, 2, 3, 4, 5, 6, 7, 8]] * 9)  # any; of the label 0 there are 1, 2, 6, 8
    same = labels[near] == labels[:, None]
    expected = 1 - same[:, 2:].mean() / same[:, :2].mean()
    assert agreement_fall(labels, near) == pytest.approx(expected)
    X, y = clusters(4, 1000, 0)  # neighbours of any rank are of the class
    noisy = np.where(np.random.default_rng(0).random(1000) < 0.3, (y + 1) % 4, y)
    assert abs(agreement_fall(noisy, nearest_neighbors(X, 18).indices)) < 0.03
    X, y = load_digits(return_X_y=True)  # of few examples, far neighbours are others
    assert agreement_fall(y[::8], nearest_neighbors(X[::8], 18).indices) > 0.15
