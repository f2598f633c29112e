"""Diagnostics: each speaks where it should, is silent elsewhere, and names what it found."""

import numpy as np
import pytest

from labelnoise import Consensus, feasibility
from labelnoise.assumptions import (
    _Pure,
    check_assumptions,
    check_dependence,
    check_groups,
    check_near_duplicates,
    check_pure,
    check_ranks_agree,
)
from labelnoise.diagnostics import check_fit, check_guarantee, check_rows
from labelnoise.groups import Difference, Differences
from labelnoise.linear import noisy_posteriors
from labelnoise.neighbors import nearest_neighbors
from labelnoise.noise import class_conditional, symmetric
from labelnoise.solvers import solve
from tests.conftest import clusters, pair_matrix, symmetric_matrix

ANIMALS = np.array(["cat", "dog", "fox"])


def corrupted(classes, T, seed=0):
    return class_conditional(classes.ravel(), T, random_state=seed).labels.reshape(classes.shape)


def found_in(X, labels, K):
    """Findings of the purest examples, by name."""
    neighbors = nearest_neighbors(X, 6, "euclidean").indices
    solution = solve(Consensus.from_neighbors(labels, neighbors[:, :2], K))
    model = solution.transition_matrix, solution.class_prior
    found = check_pure(labels, neighbors, noisy_posteriors(X, labels, K), *model)
    return {finding.name: finding for finding in found}


def test_weak_rows_are_those_whose_intervals_overlap():
    """The row that could have its maximum elsewhere is named, with what it is confused with."""
    T = np.array([[0.8, 0.1, 0.1], [0.2, 0.45, 0.35], [0.1, 0.1, 0.8]])
    interval = np.array([T - 0.1, T + 0.1])
    finding = check_rows(T, interval, ANIMALS)
    assert not finding.ok
    assert finding.value == pytest.approx(0.35 - 0.45)
    assert "dog is labelled dog 35% to 55% of the time, and fox 25% to 45%" in finding.sentence
    assert check_rows(T, np.array([T - 0.04, T + 0.04]), ANIMALS).ok


def test_guarantee_is_theorem_2():
    """With even classes and even noise, ``T_ii > (1 - 1/K + (K-1)/K) / (K-1)``."""
    for rate, holds in ((0.3, True), (0.36, False)):
        T = symmetric_matrix(3, rate)
        finding = check_guarantee(T, np.full(3, 1 / 3), ANIMALS)
        assert finding.value == pytest.approx(1 - rate - (2 / 3 + 2 / 3) / 2)
        assert (finding.value > 0) == holds
        assert finding.ok, "it is sufficient, not necessary"


def test_guarantee_names_the_rare_class():
    """A class of one in a hundred is not covered, whatever its noise."""
    sentence = check_guarantee(np.eye(3), np.array([0.495, 0.495, 0.01]), ANIMALS).sentence
    assert "does not cover fox, which is rare" in sentence


def test_fit_names_the_labels_that_fit_worst():
    """A cat, a dog and a fox that are found together more often than any T explains are named."""
    model = Consensus.from_model(symmetric_matrix(3, 0.2), np.full(3, 1 / 3), 20_000)
    solution = solve(model)
    assert check_fit(model, solution, classes=ANIMALS).ok
    extra = Consensus.from_labels(np.tile([0, 1, 2], (2000, 1)), 3)
    finding = check_fit(model + extra, solve(model + extra), classes=ANIMALS)
    assert not finding.ok
    assert "labels cat, dog, fox (2960 times" in finding.sentence
    assert "p = " in finding.sentence


def test_feasible_share_is_found_from_a_known_pure_part(rng):
    """Triples of which 60% are of one class: their share comes out, within its own error."""
    n, K = 30_000, 3
    classes = np.repeat(rng.integers(0, K, n)[:, None], 3, axis=1)
    mixed = rng.random(n) < 0.4
    classes[mixed, 1] = (classes[mixed, 0] + 1) % K
    keep = ~mixed & (rng.random(n) < 0.2)
    pure = _Pure(corrupted(classes, pair_matrix(K, 0.3, 0.1)), keep, K)
    assert 0.003 < pure.feasible_error() < 0.05
    assert pure.feasible() == pytest.approx(1 - mixed.mean(), abs=2.5 * pure.feasible_error())


def test_feasible_speaks_of_overlap_only():
    """Overlapping clusters are found out, about as far as they overlap; far ones are feasible."""
    for separation, ok in ((4.0, True), (0.6, False)):
        X, clean = clusters(4, 4000, 0, separation=separation)
        finding = found_in(X, corrupted(clean, symmetric_matrix(4, 0.2)), 4)["feasible"]
        truth = feasibility(clean, nearest_neighbors(X, 2, "euclidean").indices)
        assert finding.ok == ok
        assert finding.value == pytest.approx(truth, abs=0.1)


def test_memorised_features_are_those_that_place_examples_by_their_label():
    """The same noisy labels: features that follow them hide the noise, clean ones show it."""
    X, clean = clusters(4, 2000, 0)
    labels = corrupted(clean, symmetric_matrix(4, 0.2))
    assert found_in(X, labels, 4)["memorised"].ok
    rng = np.random.default_rng(1)
    by_label = 4 * rng.standard_normal((4, 16))[labels] + rng.standard_normal((2000, 16))
    assert not found_in(by_label, labels, 4)["memorised"].ok


@pytest.mark.parametrize("wrong", [0.0, 0.3])
def test_ranks_speak_if_further_neighbours_differ(rng, wrong):
    """Neighbours 5 and 6 of another class in 30% of cases are noticed, through 20% noise."""
    clean = rng.integers(0, 3, 5000)
    neighbors = np.empty((5000, 6), np.intp)
    for rank, share in enumerate((0, 0, wrong / 2, wrong / 2, wrong, wrong)):
        target = np.where(rng.random(5000) < share, (clean + 1) % 3, clean)
        for k in range(3):
            members = np.flatnonzero(clean == k)
            neighbors[target == k, rank] = rng.choice(members, (target == k).sum())
    finding = check_ranks_agree(corrupted(clean, symmetric_matrix(3, 0.2)), neighbors, 3)
    assert finding.ok == (wrong == 0)


@pytest.mark.parametrize("depends", [False, True])
def test_dependence_is_seen_where_one_T_cannot_explain_it(rng, depends):
    """Noise of .3 all over, against noise of the same average, mostly on easy examples."""
    n = 12_000
    clean = rng.integers(0, 3, n)
    X = 2 * np.eye(3)[clean] + rng.standard_normal((n, 3))
    margin = X[np.arange(n), clean] - X.mean(axis=1)
    rate = np.where(margin > np.median(margin), 0.45, 0.15) if depends else 0.3
    labels = np.where(rng.random(n) < rate, (clean + 1) % 3, clean)
    neighbors = nearest_neighbors(X, 6, "euclidean").indices
    finding = check_dependence(X, labels, neighbors, noisy_posteriors(X, labels, 3))
    assert finding.value is not None
    assert finding.ok != depends
    assert ("easy ones of a class are mislabelled more often" in finding.sentence) == depends


def test_dependence_is_not_judged_by_a_linear_model_of_curved_classes(rng):
    """Classes at opposite corners of a square: no answer, rather than a wrong one."""
    X = rng.choice([-2.0, 2.0], (10_000, 2)) + 0.5 * rng.standard_normal((10_000, 2))
    labels = (X[:, 0] * X[:, 1] > 0).astype(np.intp)
    neighbors = nearest_neighbors(X, 6, "euclidean").indices
    finding = check_dependence(X, labels, neighbors, noisy_posteriors(X, labels, 2))
    assert (finding.ok, finding.value) == (True, None)
    assert "linear model" in finding.sentence


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_near_copies_are_counted(rng, metric):
    """One in ten has a near copy with its label: a fifth of all examples, near enough."""
    X = rng.standard_normal((2000, 8))
    X = np.concatenate([X, X[:200] + 0.01 * rng.standard_normal((200, 8))])
    labels = np.concatenate([rng.integers(0, 3, 2000)] * 2)[:2200]
    finding = check_near_duplicates(nearest_neighbors(X, 6, metric), labels, metric)
    assert not finding.ok
    assert finding.value == pytest.approx(400 / 2200, abs=0.01)
    assert "same in 100% of cases" in finding.sentence
    alone = check_near_duplicates(nearest_neighbors(X[:2000], 6, metric), labels, metric)
    assert alone.ok
    assert alone.value < 0.005


def test_near_copies_are_neither_exact_copies_nor_chance(rng):
    """Exact copies are another check's; in the plane many examples are near by chance."""
    X = np.repeat(rng.standard_normal((500, 8)), 2, axis=0)
    labels = np.zeros(1000, np.intp)
    assert check_near_duplicates(nearest_neighbors(X, 6, "euclidean"), labels, "euclidean").ok
    plane = nearest_neighbors(rng.random((1000, 2)), 6, "euclidean")
    assert check_near_duplicates(plane, labels, "euclidean").value is None


def test_groups_say_their_clearest_difference():
    """The finding takes over the first sentence, and is silent where groups are alike."""
    difference = Difference("a", 0, 1, 0.3, 0.1, 0.05, 0.001, "Group a labels 0 as 1 more often.")
    finding = check_groups(Differences((difference,), 0.001, 0.05, 9))
    assert not finding.ok
    assert finding.sentence.startswith("Group a labels 0 as 1 more often. One T")
    assert check_groups(Differences((), 0.6, 0.05, 9)).ok


def test_all_assumptions_with_a_class_of_three_examples():
    """A class that is missing from most parts of the data is no obstacle."""
    X, clean = clusters(3, 1000, 0)
    labels = symmetric(clean, 0.1, random_state=0).labels
    labels[:3] = 3
    seen = []
    T, p = symmetric_matrix(4, 0.1), np.array([0.33, 0.33, 0.33, 0.01])
    found = check_assumptions(X, labels, 4, "euclidean", T, p, lambda *at: seen.append(at))
    assert [finding.name for finding in found] == [
        "ranks",
        "feasible",
        "memorised",
        "dependence",
        "near duplicates",
    ]
    assert all(finding.ok for finding in found)
    assert seen[-1][0] == seen[-1][1]
