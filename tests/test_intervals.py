"""Error bars: what they claim, against simulation, definitions and each other."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial import cKDTree

from labelnoise import Consensus, LabelNoiseError
from labelnoise.consensus import independent_centres
from labelnoise.intervals import ConfidenceInterval, confidence_interval, information
from labelnoise.solvers import solve
from tests.conftest import pair_matrix, random_matrix, symmetric_matrix

PRIOR = np.array([0.2, 0.3, 0.5])


def neighborhoods(T, p, n, seed, k=2):
    """Labels, and the k nearest of points that lie in one cube for each class."""
    rng = np.random.default_rng([seed, n])
    clean = rng.choice(len(p), n, p=p)
    X = np.column_stack([rng.random((n, 3)), 10.0 * clean])
    labels = (rng.random(n)[:, None] > np.cumsum(T, axis=1)[clean, :-1]).sum(axis=1)
    return labels, cKDTree(X).query(X, k=k + 1)[1][:, 1:]


def estimate_and_interval(T, p, n, seed, *, k=2, weight=None, known=True, **settings):
    labels, neighbors = neighborhoods(T, p, n, seed, k)
    consensus = Consensus.from_neighbors(labels, neighbors, len(p), center_weight=weight)
    found = solve(consensus)
    if known:
        settings |= {"labels": labels, "neighbors": neighbors, "center_weight": weight}
    T, p = found.transition_matrix, found.class_prior
    return found, confidence_interval(consensus, T, p, **settings)


def value_of(found, name):
    if name == "noise_rate":
        return 1 - found.class_prior @ np.diag(found.transition_matrix)
    return getattr(found, name)


def inside(ends, truth):
    return (ends[0] <= truth) & (truth <= ends[1])


def width(ends):
    return ends[1] - ends[0]


def test_information_is_that_of_the_definition(rng):
    """``sum over abc of dq dq' / q``, with numerical derivatives."""
    theta = rng.random((3, 3))

    def q(x):
        x = x.reshape(3, 3)
        return np.einsum("ai,bi,ci->abc", x, x, x).ravel()

    step = 1e-6 * np.eye(9)
    slopes = np.array([(q(theta.ravel() + e) - q(theta.ravel() - e)) / 2e-6 for e in step])
    np.testing.assert_allclose(information(theta), slopes / q(theta) @ slopes.T, rtol=1e-6)


def test_widths_are_those_of_the_estimates_spread():
    """Also p's, which is less spread than triples that share a class would suggest."""
    T = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.02, 0.03, 0.95]])
    runs = [estimate_and_interval(T, PRIOR, 3000, seed) for seed in range(80)]
    for name in ("transition_matrix", "class_prior", "noise_rate"):
        spread = np.std([value_of(found, name) for found, _ in runs], axis=0)
        claimed = np.mean([width(getattr(bars, name)) for _, bars in runs], axis=0) / 3.92
        assert 0.85 < np.mean(claimed / spread) < 1.15
    assert 0.92 < np.mean([inside(bars.transition_matrix, T) for _, bars in runs]) < 0.98


def test_taken_as_independent_they_cover_too_little():
    T = symmetric_matrix(3, 0.2)
    runs = [estimate_and_interval(T, PRIOR, 2000, seed, known=False)[1] for seed in range(40)]
    assert runs[0].method == "independent"
    assert np.mean([inside(bars.transition_matrix, T) for bars in runs]) < 0.88


@pytest.mark.parametrize("settings", [{}, {"k": 4}])
def test_ends_enclose_the_estimate_and_grow_with_the_level(settings, rng):
    T = random_matrix(3, rng)
    found, bars = estimate_and_interval(T, PRIOR, 1000, 0, level=0.9, **settings)
    wider = estimate_and_interval(T, PRIOR, 1000, 0, level=0.99, **settings)[1]
    for name in ("transition_matrix", "class_prior", "noise_rate"):
        ends, wide, value = getattr(bars, name), getattr(wider, name), value_of(found, name)
        assert ends.shape == (2, *np.shape(value))
        assert inside(ends, value).all()
        assert ((wide[0] >= 0) & (wide[0] <= ends[0]) & (ends[1] < wide[1]) & (wide[1] <= 1)).all()
    assert repr(bars).endswith(f"({bars.level}, sandwich)")


def test_an_entry_estimated_as_zero_ends_near_the_rule_of_three():
    """No such label among n examples: 3.84 / n, as the class of each is nearly certain here."""
    n = 4000
    found, bars = estimate_and_interval(pair_matrix(4, 0.2), np.ones(4) / 4, n, 0)
    zero = pair_matrix(4, 0.2) == 0
    assert bars.on_boundary[zero].all()
    assert not bars.on_boundary[~zero].any()
    low, high = bars.transition_matrix[:, zero] * n / 4
    assert (low <= found.transition_matrix[zero]).all()
    assert ((high > 2) & (high < 6)).all()


def test_clean_labels_have_a_noise_rate_from_zero_up():
    """Of 1000 labels none is wrong: about 3.84 in 1000 at most."""
    _, bars = estimate_and_interval(np.eye(3), PRIOR, 1000, 0)
    assert bars.noise_rate[0] < 1e-6
    assert 3e-3 < bars.noise_rate[1] < 5e-3


def test_triples_that_share_nothing_are_independent(rng):
    """The sandwich of centres without overlap is the formula for independent triples."""
    T = random_matrix(3, rng)
    chosen = independent_centres(neighborhoods(T, PRIOR, 3000, 0)[1])
    weight = np.isin(np.arange(3000), chosen).astype(float)
    known = estimate_and_interval(T, PRIOR, 3000, 0, weight=weight)[1]
    unknown = estimate_and_interval(T, PRIOR, 3000, 0, weight=weight, known=False)[1]
    np.testing.assert_allclose(known.transition_matrix, unknown.transition_matrix, atol=1e-9)
    np.testing.assert_allclose(known.noise_rate, unknown.noise_rate, atol=1e-9)


def test_only_the_ratio_of_weights_matters_and_unequal_ones_say_less(rng):
    T, weight = random_matrix(3, rng), rng.random(3000) ** 2
    equal = estimate_and_interval(T, PRIOR, 3000, 0)[1].transition_matrix
    one = estimate_and_interval(T, PRIOR, 3000, 0, weight=weight)[1].transition_matrix
    ten = estimate_and_interval(T, PRIOR, 3000, 0, weight=10 * weight)[1].transition_matrix
    np.testing.assert_allclose(one, ten, atol=1e-6)
    assert width(one).mean() > 1.1 * width(equal).mean()


def test_an_unlabelled_member_leaves_its_triple_out(rng):
    labels, neighbors = neighborhoods(symmetric_matrix(3, 0.2), PRIOR, 1000, 0)
    labels[rng.random(1000) < 0.1] = -1
    whole = (labels >= 0) & (labels[neighbors] >= 0).all(axis=1)
    ends = []
    for weight in (None, whole.astype(float)):
        data = {"labels": labels, "neighbors": neighbors, "center_weight": weight}
        consensus = Consensus.from_neighbors(labels, neighbors, 3, center_weight=weight)
        found = solve(consensus)
        bars = confidence_interval(consensus, found.transition_matrix, found.class_prior, **data)
        ends.append(bars.transition_matrix)
    np.testing.assert_allclose(*ends)


def test_a_class_that_is_not_there_can_have_any_row():
    T = np.eye(3)
    T[:2, :2] = symmetric_matrix(2, 0.2)
    _, bars = estimate_and_interval(T, np.array([0.5, 0.5, 0]), 1000, 0)
    np.testing.assert_array_equal(bars.transition_matrix[:, 2], [[0] * 3, [1] * 3])
    assert 0 == bars.class_prior[0, 2] < bars.class_prior[1, 2] < 0.01


def test_the_variance_is_that_of_the_estimates_spread():
    """The mean variance of the entries of T is that over 80 data sets; of an absent class, 1/4."""
    T = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.02, 0.03, 0.95]])
    runs = [estimate_and_interval(T, PRIOR, 3000, seed) for seed in range(80)]
    spread = np.var([found.transition_matrix for found, _ in runs], axis=0)
    claimed = np.mean([bars.variance for _, bars in runs], axis=0)
    assert 0.75 < np.mean(claimed) / np.mean(spread) < 1.3
    by_ends = replace(runs[0][1], variance=None).transition_variance()
    np.testing.assert_allclose(by_ends, runs[0][1].transition_variance(), rtol=0.3)
    T = np.eye(3)
    T[:2, :2] = symmetric_matrix(2, 0.2)
    _, bars = estimate_and_interval(T, np.array([0.5, 0.5, 0]), 1000, 0)
    np.testing.assert_array_equal(bars.variance[2], 0.25)
    again = ConfidenceInterval.from_dict(bars.to_dict(), 3)
    np.testing.assert_array_equal(again.variance, bars.variance)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"level": 95}, "level between 0 and 1, but 95"),
        ({"neighbors": None}, "both labels and neighbors"),
        ({"neighbors": np.zeros((5, 2))}, r"neighbors of shape \(n_samples, k\)"),
        ({"labels": np.zeros(300, int)}, "that the consensus was counted from"),
        ({"transition_matrix": np.eye(2)}, "T and p of 3 classes"),
    ],
)
def test_bad_input_is_named(settings, message):
    T = symmetric_matrix(3, 0.2)
    labels, neighbors = neighborhoods(T, PRIOR, 300, 0)
    given = {"transition_matrix": T, "class_prior": PRIOR, "labels": labels, "neighbors": neighbors}
    consensus = Consensus.from_neighbors(labels, neighbors, 3)
    with pytest.raises(LabelNoiseError, match=message):
        confidence_interval(consensus, **given | settings)


def test_too_many_classes_have_no_interval():
    T, p = np.eye(105), np.ones(105) / 105
    with pytest.raises(LabelNoiseError, match="at most 11000 entries"):
        confidence_interval(Consensus.from_model(T, p, 1000), T, p)


def test_rows_that_are_equal_have_no_interval():
    T = np.array([[0.6, 0.3, 0.1], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]])
    with pytest.raises(LabelNoiseError, match="two rows are equal"):
        confidence_interval(Consensus.from_model(T, PRIOR, 1000), T, PRIOR)
