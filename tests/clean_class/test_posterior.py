"""The posterior of the clean class: its sums, its fit to a given joint, T of a part of the data."""

import numpy as np
import pytest

from labelnoise import transition_error
from labelnoise.clean_class import counted_joint, tilted, transition_given
from tests.conftest import pair_matrix, random_matrix, symmetric_matrix

K = 4


def drawn(n, matrices, seed, alpha=0.3):
    """h (N, K), labels by the T of each example's part, and the part."""
    rng = np.random.default_rng(seed)
    h = rng.dirichlet(np.full(K, alpha), n)
    part = rng.integers(0, len(matrices), n)
    y = (rng.random((n, 1)) > h.cumsum(axis=1)[:, :-1]).sum(axis=1)
    chances = np.stack(matrices)[part, y]
    return h, (rng.random((n, 1)) > chances.cumsum(axis=1)[:, :-1]).sum(axis=1), part


def posterior_of(h, labels, T):
    posterior = h * T.T[labels]
    return posterior / posterior.sum(axis=1, keepdims=True)


def likeliest(h, labels, steps=500):
    """T given h by EM, written out."""
    T = symmetric_matrix(K, 0.5)
    for _ in range(steps):
        joint = counted_joint(posterior_of(h, labels, T), labels, K)
        T = joint / joint.sum(axis=1, keepdims=True)
    return T


def test_joint_is_the_sum_over_examples(rng):
    """Entry (k, j) adds up the chances of class k over examples labelled j; shards add up."""
    posterior, labels = rng.dirichlet(np.ones(K), 500), rng.integers(0, K - 1, 500)
    expected, rows = np.zeros((K, K)), np.arange(500)
    for chances, label in zip(posterior, labels, strict=True):
        expected[:, label] += chances
    np.testing.assert_allclose(counted_joint(posterior, labels, K), expected)
    parts = [counted_joint(posterior[part], labels[part], K) for part in (rows[:200], rows[200:])]
    np.testing.assert_allclose(sum(parts), expected)
    assert (expected[:, K - 1] == 0).all()


def test_tilted_meets_a_given_joint(rng):
    """Sums by class and label are those asked for; within these, examples keep their order."""
    h, labels, _ = drawn(3000, [symmetric_matrix(K, 0.3)], 0)
    posterior = posterior_of(h, labels, symmetric_matrix(K, 0.3))
    joint = pair_matrix(K, 0.4, 0.1) * rng.dirichlet(np.full(K, 20))[:, None]
    joint *= np.bincount(labels) / 3000 / joint.sum(axis=0)
    assert np.abs(counted_joint(posterior, labels, K) / 3000 - joint).max() > 0.01
    found = tilted(posterior, labels, joint)
    np.testing.assert_allclose(counted_joint(found, labels, K) / 3000, joint, atol=1e-5)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
    rows = np.flatnonzero(labels == 1)
    ratio = (found[rows, 0] / found[rows, 2]) / (posterior[rows, 0] / posterior[rows, 2])
    usual = (posterior[rows][:, [0, 2]] > 1e-3).all(axis=1)
    np.testing.assert_allclose(ratio[usual], np.median(ratio[usual]), rtol=0.01)


def test_tilted_to_its_own_joint_changes_nothing():
    """A posterior that has the joint already stays as it is."""
    h, labels, _ = drawn(1000, [symmetric_matrix(K, 0.3)], 1)
    posterior = posterior_of(h, labels, symmetric_matrix(K, 0.3))
    found = tilted(posterior, labels, counted_joint(posterior, labels, K) / 1000)
    np.testing.assert_allclose(found, posterior, atol=1e-5)


def test_tilted_to_no_noise():
    """Where nothing off the diagonal is asked for, each label is right."""
    h, labels, _ = drawn(1000, [symmetric_matrix(K, 0.3)], 1)
    posterior = posterior_of(h, labels, symmetric_matrix(K, 0.3))
    found = tilted(posterior, labels, np.diag(np.bincount(labels) / 1000))
    np.testing.assert_allclose(found[np.arange(1000), labels], 1, atol=1e-4)


def test_t_given_h_is_the_likeliest():
    """From the posterior of another T, the T of the labels is found, as by EM on paper."""
    truth = random_matrix(K, np.random.default_rng(0))
    h, labels, part = drawn(5000, [truth], 2)
    start = symmetric_matrix(K, 0.4)
    found = transition_given(posterior_of(h, labels, start), labels, start, part, 1, 0.0)
    assert transition_error(found.unshrunk[0], truth) < 0.25 * transition_error(start, truth)
    np.testing.assert_allclose(found.unshrunk[0], likeliest(h, labels), atol=2e-3)
    np.testing.assert_array_equal(found.transition_matrices, found.unshrunk)


def test_two_parts_have_their_own_t():
    """Each part's T is found, near what is found from its examples alone."""
    truths = [symmetric_matrix(K, 0.1), pair_matrix(K, 0.4)]
    h, labels, part = drawn(4000, truths, 3)
    T = likeliest(h, labels)
    found = transition_given(posterior_of(h, labels, T), labels, T, part, 2)
    for g, truth in enumerate(truths):
        error = transition_error(found.transition_matrices[g], truth)
        assert error < 0.4 * transition_error(T, truth)
        alone = likeliest(h[part == g], labels[part == g])
        np.testing.assert_allclose(found.unshrunk[g], alone, atol=5e-3)
    np.testing.assert_allclose(found.mass.sum(axis=1), np.bincount(part), rtol=1e-6)
    assert (found.worth < 1000).any()


def test_one_part_has_the_t_of_all():
    """The T of all data is what "T given h" of all data gives, whatever it is worth."""
    h, labels, _ = drawn(2000, [pair_matrix(K, 0.3, 0.1)], 4)
    T = likeliest(h, labels)
    part = np.zeros(2000, int)
    for worth in (None, 0.0, 100.0):
        found = transition_given(posterior_of(h, labels, T), labels, T, part, 1, worth)
        np.testing.assert_allclose(found.transition_matrices[0], T, atol=1e-4)


def test_parts_that_do_not_differ_share_one_t():
    """By empirical Bayes, the T of all data is worth far more than parts that are alike."""
    truth = pair_matrix(K, 0.3, 0.1)
    h, labels, part = drawn(4000, [truth] * 5, 5, alpha=0.02)
    T = likeliest(h, labels)
    found = transition_given(posterior_of(h, labels, T), labels, T, part, 5)
    apart = np.abs(found.unshrunk - T).mean()
    assert np.abs(found.transition_matrices - T).mean() < 0.3 * apart
    assert (found.worth > 1000).sum() >= K - 1


@pytest.mark.parametrize("worth", [0.0, 50.0, 1e9])
def test_worth_draws_parts_to_the_t_of_all(worth):
    """A part without examples has the T of all; with 0 the others have their own."""
    truths = [symmetric_matrix(K, 0.1), pair_matrix(K, 0.4)]
    h, labels, part = drawn(3000, truths, 6)
    T = likeliest(h, labels)
    found = transition_given(posterior_of(h, labels, T), labels, T, part, 3, worth)
    np.testing.assert_allclose(found.transition_matrices[2], T)
    apart = np.abs(found.transition_matrices[:2] - T).max()
    own = np.abs(found.unshrunk[:2] - T).max()
    if worth == 0:
        assert apart == own > 0.1
    elif worth == 50:
        assert 0.5 * own < apart < own
    else:
        assert apart < 1e-4
