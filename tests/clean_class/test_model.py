"""h and T together: the likelihood on paper, its derivatives, its maximum."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax

from labelnoise import transition_error
from labelnoise.clean_class import model as module
from labelnoise.clean_class.evidence import Evidence
from labelnoise.clean_class.model import (
    Dependence,
    Model,
    covariance_of_ratios,
    explained,
    fit,
    start_from,
)
from tests.conftest import pair_matrix, random_matrix, symmetric_matrix, trivial_error

K = 3


def drawn(n, T, seed=0, b=0.0, c=0.0, sharpness=2.0):
    """Evidence of two kinds whose softmax is the chance of the class, and labels by T, b and c."""
    rng = np.random.default_rng(seed)
    size = len(T)
    scores = sharpness * rng.standard_normal((2, size, n))
    scores -= scores.mean(axis=1, keepdims=True)
    h = softmax(scores.sum(axis=0), axis=0)
    y = (rng.random(n) > h.cumsum(axis=0)).sum(axis=0)
    chances = chances_of(T, h, b, c)[y, :, np.arange(n)]
    labels = (rng.random(n)[:, None] > chances.cumsum(axis=1)).sum(axis=1)
    order = np.argsort(labels, kind="stable")
    return Evidence(scores[:, :, order], labels[order]), y[order]


def chances_of(T, h, b, c):
    """(K, K, N) P(label j | class k, example): the ratios to the diagonal times their factor."""
    depends = Dependence.of(h)
    factor = np.exp(b * depends.rank + c * depends.likeness)
    raw = (T / np.diag(T)[:, None])[:, :, None] * factor
    raw[np.arange(len(T)), np.arange(len(T))] = 1
    return raw / raw.sum(axis=1, keepdims=True)


def on_paper(data, model, expected, depends=None):
    """The penalised log-likelihood, written out."""
    n, size = len(data.labels), len(expected)
    scores = np.asarray(data.scores, np.float64)
    h = (
        softmax(np.tensordot(model.slopes, scores, 1) + model.intercepts[:, None], axis=0)
        + module.LEAST_CHANCE
    )
    factor = np.ones((size, n))
    if depends is not None:
        factor = np.exp(model.b * depends.rank + model.c * depends.likeness)
    raw = model.ratios[:, :, None] * factor
    raw[np.arange(size), np.arange(size)] = 1
    T = raw / raw.sum(axis=1, keepdims=True)
    value = np.log((h * T[:, data.labels, np.arange(n)]).sum(axis=0)).sum()
    value += (expected * np.log(model.transition_matrix + 1e-12)).sum()
    return value - ((model.slopes**2).sum() + model.b**2 + model.c**2) / 2


@pytest.mark.parametrize("depends", [False, True])
def test_gradient_is_that_of_finite_differences(depends, monkeypatch, rng):
    """Of the function that the search is given, by each parameter, away from its maximum."""
    data, _ = drawn(300, pair_matrix(K, 0.3, 0.1))
    seen, step = [], 0.03

    def captured(function, start, **options):
        assert len(start) == 2 + K + K * (K - 1) + 2 * depends
        for _ in range(3):
            at = start + 3 * rng.standard_normal(len(start))
            moved = [[function(at + u)[0], function(at - u)[0]] for u in step * np.eye(len(at))]
            seen.append((function(at)[1], np.diff(moved)[:, 0] / (-2 * step)))
        return minimize(function, start, **options)

    monkeypatch.setattr(module, "minimize", captured)
    expected = symmetric_matrix(K, 0.2)
    begin = start_from(data, expected)
    how = Dependence.of(explained(data, begin)[0]) if depends else None
    fit(data, replace(begin, b=0.3, c=-0.2), expected, how)
    for gradient, differences in seen:
        assert np.abs(gradient).max() > 0.5
        np.testing.assert_allclose(gradient, differences, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("depends", [False, True])
def test_likelihood_is_the_formula(depends):
    """What the fit reports is the penalised log-likelihood on paper, at its maximum."""
    data, _ = drawn(500, pair_matrix(K, 0.3, 0.1))
    expected = symmetric_matrix(K, 0.2)
    begin = start_from(data, expected)
    how = Dependence.of(explained(data, begin)[0]) if depends else None
    found = fit(data, begin, expected, how)
    value = on_paper(data, found, expected, how)
    assert found.log_likelihood == pytest.approx(value, abs=0.01)
    rng = np.random.default_rng(0)
    for _ in range(20):
        near = replace(
            found,
            slopes=found.slopes * np.exp(0.1 * rng.standard_normal(2)),
            intercepts=found.intercepts + 0.1 * rng.standard_normal(K),
            ratios=found.ratios * np.exp(0.1 * rng.standard_normal((K, K))),
        )
        assert on_paper(data, near, expected, how) < value


@pytest.mark.parametrize(
    "T", [pair_matrix(5, 0.4), random_matrix(5, np.random.default_rng(3))], ids=["pair", "random"]
)
def test_slopes_and_t_are_found_together(T):
    """From evidence whose softmax is h, both slopes are 1, and T is that of the labels."""
    data, y = drawn(8000, T)
    found = fit(data, start_from(data, symmetric_matrix(5, 0.5)), symmetric_matrix(5, 0.5))
    error = transition_error(found.transition_matrix, T)
    assert error < 0.5 * trivial_error(T, y, data.labels)
    assert error < 0.08
    np.testing.assert_allclose(found.slopes, 1, atol=0.15)
    assert np.abs(found.intercepts).max() < 0.3


def test_evidence_against_a_class():
    """A class that no example seems to be of gets an intercept that is finite, and its share."""
    data, _ = drawn(300, symmetric_matrix(K, 0.2))
    data.scores[:, 0] -= 80
    start = start_from(data, symmetric_matrix(K, 0.2))
    assert np.isfinite(start.intercepts).all()
    found = fit(data, start, symmetric_matrix(K, 0.2))
    assert np.isfinite(found.log_likelihood)
    assert explained(data, found)[0].mean(axis=1).min() > 0.2


def test_evidence_that_says_nothing_has_no_slope():
    """A kind that is noise gets a slope near 0, and one that points the wrong way gets none."""
    data, _ = drawn(4000, symmetric_matrix(K, 0.2))
    useless = np.random.default_rng(5).standard_normal((1, K, 4000))
    useless -= useless.mean(axis=1, keepdims=True)
    wrong = np.concatenate([data.scores, useless, -data.scores[:1]])
    data = replace(data, scores=wrong)
    found = fit(data, start_from(data, symmetric_matrix(K, 0.3)), symmetric_matrix(K, 0.3))
    assert 0 <= found.slopes[2] < 0.1
    assert (found.slopes >= 0).all()
    assert found.slopes[1] > 0.7


def test_dependence_is_found():
    """Noise drawn with a b and c has a likelihood that grows by them, with their signs."""
    T = symmetric_matrix(K, 0.2)
    for b, c in ((2.0, 0.0), (-2.0, 0.5)):
        data, _ = drawn(6000, T, b=b, c=c, sharpness=1.2)
        plain = fit(data, start_from(data, T), T)
        how = Dependence.of(explained(data, plain)[0])
        found = fit(data, plain, T, how)
        assert found.log_likelihood > plain.log_likelihood + 3
        assert np.sign(found.b) == np.sign(b)
        assert abs(found.b - b) < 1.2


def test_h_and_posterior_are_probabilities():
    """Both sum to 1, and the posterior is h times the chance of the own label."""
    T = pair_matrix(K, 0.3, 0.1)
    data, _ = drawn(400, T)
    found = fit(data, start_from(data, T), T)
    h, posterior = explained(data, found)
    np.testing.assert_allclose(h.sum(axis=0), 1, atol=1e-5)
    np.testing.assert_allclose(posterior.sum(axis=0), 1, atol=1e-5)
    expected = h * found.transition_matrix[:, data.labels]
    np.testing.assert_allclose(posterior, expected / expected.sum(axis=0), atol=1e-4)
    np.testing.assert_allclose(found.transition_matrix.sum(axis=1), 1)
    np.testing.assert_allclose(found.h(np.zeros((2, K, 1))).sum(), 1, atol=1e-6)


def test_rank_tells_nothing_of_the_label():
    """Equally clear examples share a rank, in the middle of theirs."""
    h = np.array([[0.9, 0.5, 0.5, 0.5], [0.1, 0.5, 0.5, 0.5]])
    depends = Dependence.of(h)
    np.testing.assert_allclose(depends.rank, [-0.375, 0.125, 0.125, 0.125])
    np.testing.assert_allclose(depends.likeness.mean(axis=0), 0, atol=1e-6)
    assert depends.likeness[0, 0] > 1


def test_covariance_is_that_of_repeated_samples():
    """Standard errors of the ratios are near their spread over data drawn again."""
    T = pair_matrix(K, 0.3, 0.2)
    off = ~np.eye(K, dtype=bool)
    ratios, errors = [], []
    for seed in range(30):
        data, _ = drawn(1500, T, seed)
        found = fit(data, start_from(data, T), T)
        ratios.append(found.ratios[off])
        if seed < 3:
            covariance, information = covariance_of_ratios(data, found, 1e-3)
            assert covariance.shape == (6, 6)
            assert (1 / information <= np.diag(covariance) * (1 + 1e-6)).all()
            errors.append(np.sqrt(np.diag(covariance)))
    np.testing.assert_allclose(np.mean(errors, axis=0), np.std(ratios, axis=0), rtol=0.45)


def test_average_example_of_a_model():
    """T of a model that depends on the example is that of an average one: without b and c."""
    ratios = np.array([[0.0, 0.25], [0.5, 0.0]])
    found = Model(np.ones(1), np.zeros(2), ratios, b=1.0, c=1.0).transition_matrix
    np.testing.assert_allclose(found, [[0.8, 0.2], [1 / 3, 2 / 3]])
