"""Assumptions: each check speaks where it should, is silent elsewhere, and says what it found."""

import numpy as np
import pytest

from labelnoise import HOC, Consensus, feasibility
from labelnoise._errors import LabelNoiseWarning
from labelnoise.assumptions import (
    _Pure,
    check_assumptions,
    check_dependence,
    check_distance,
    check_independence,
    check_near_duplicates,
    check_pure,
    check_ranks_agree,
    neighbor_agreement,
)
from labelnoise.linear import noisy_posteriors
from labelnoise.neighbors import nearest_neighbors
from labelnoise.noise import class_conditional, symmetric
from labelnoise.solvers import solve
from tests.conftest import clusters, pair_matrix, symmetric_matrix


def corrupted(classes, T, seed=0):
    return class_conditional(classes.ravel(), T, random_state=seed).labels.reshape(classes.shape)


def found_in(X, labels, K):
    """Findings of the purest examples, by name."""
    neighbors = nearest_neighbors(X, 6, "euclidean").indices
    solution = solve(Consensus.from_neighbors(labels, neighbors[:, :2], K))
    model = solution.transition_matrix, solution.class_prior
    found = check_pure(labels, neighbors, noisy_posteriors(X, labels, K), *model)
    return {finding.name: finding for finding in found}


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


def test_agreement_is_counted_by_rank_and_distance():
    """Four examples on a line, counted by hand."""
    X = np.array([[0.0], [1.0], [3.0], [7.0]])
    agreement = neighbor_agreement(nearest_neighbors(X, 2, "euclidean"), np.array([0, 0, 0, 1]))
    assert agreement.by_rank.tolist() == [0.75, 0.75]
    assert agreement.distance == pytest.approx([1, 1, 2, 4])
    assert agreement.by_distance.tolist() == [1, 1, 1, 0]
    assert agreement.chance == 0.5  # 3 of the 6 pairs


def test_agreement_by_distance_is_in_parts_of_equal_size(rng):
    """The nearest tenth has the least distances, and all examples count."""
    X, clean = clusters(3, 1000, 0)
    near = nearest_neighbors(X, 6, "euclidean")
    agreement = neighbor_agreement(near, rng.permutation(clean))
    assert (np.diff(agreement.distance) > 0).all()
    assert agreement.distance.mean() == pytest.approx(near.distances[:, 0].mean())
    assert agreement.by_distance.mean() == pytest.approx(agreement.by_rank[0])
    assert agreement.by_distance.mean() == pytest.approx(agreement.chance, abs=0.06)


@pytest.mark.parametrize("worse", [False, True])
def test_distance_speaks_if_labels_agree_less_far_out(rng, worse):
    """A class with much noise that spreads widely is no sign; noise far out in each class is."""
    X, clean = clusters(2, 4000, 0)
    wide = clean == 1
    X[wide] = X[wide].mean(axis=0) + 3 * (X[wide] - X[wide].mean(axis=0))
    near = nearest_neighbors(X, 6, "euclidean")
    nearest = near.distances[:, 0]
    middle = np.where(wide, np.median(nearest[wide]), np.median(nearest[~wide]))
    rate = np.where(nearest > middle, 0.4, 0.1) if worse else np.where(wide, 0.4, 0.1)
    labels = np.where(rng.random(4000) < rate, 1 - clean, clean)
    T = solve(Consensus.from_neighbors(labels, near.indices[:, :2], 2)).transition_matrix
    assert check_distance(near, labels, T).ok != worse


def linked(clean, n_sharing, rng, wrong=0.0):
    """Neighbours (N, 6): the parts of one thing first, then any of the class, or `wrong` of it."""
    n, parts = len(clean), n_sharing + 1
    own = np.arange(n) // parts * parts
    neighbors = np.empty((n, 6), np.intp)
    for rank in range(6):
        if rank < n_sharing:
            neighbors[:, rank] = own + (np.arange(n) + 1 + rank) % parts
        else:
            other = np.where(rng.random(n) < wrong * (rank + 1) / 6, (clean + 1) % 3, clean)
            for k in range(3):
                members = np.flatnonzero(clean == k)
                neighbors[other == k, rank] = rng.choice(members, (other == k).sum())
    return neighbors


@pytest.mark.parametrize("parts", [2, 3, 5])
@pytest.mark.parametrize("together", [False, True])
def test_independence_sees_labels_that_parts_of_one_thing_share(rng, parts, together):
    """One label for all parts is a step after the last of them; a label for each is none."""
    clean = np.repeat(rng.integers(0, 3, 3000 // parts), parts)
    labels = corrupted(clean, symmetric_matrix(3, 0.3))
    if together:
        labels = np.repeat(labels[::parts], parts)
    finding = check_independence(labels, linked(clean, parts - 1, rng))
    assert finding.ok != together
    if together:
        nearest = "neighbour" if parts == 2 else f"{parts - 1} neighbours"
        assert f"of the nearest {nearest} in 100.0% of cases" in finding.sentence


def test_independence_takes_no_even_fall_for_a_step(rng):
    """Further neighbours that differ more and more in their class are another check's."""
    clean = rng.integers(0, 3, 20_000)
    neighbors = linked(clean, 0, rng, wrong=0.5)
    labels = corrupted(clean, symmetric_matrix(3, 0.2))
    assert not check_ranks_agree(labels, neighbors, 3).ok
    assert check_independence(labels, neighbors).ok


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


def test_dependence_is_not_tested_with_more_than_ten_classes():
    """With 20 it takes noise between pairs of classes for dependence."""
    labels = np.arange(11_000) % 11
    neighbors = np.zeros((11_000, 6), np.intp)
    finding = check_dependence(np.ones((11_000, 2)), labels, neighbors, np.eye(11)[labels])
    assert (finding.ok, finding.value) == (True, None)
    assert "more than 10 classes" in finding.sentence


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


def test_all_assumptions_with_a_class_of_three_examples():
    """A class that is missing from most parts of the data is no obstacle."""
    X, clean = clusters(3, 1000, 0)
    labels = symmetric(clean, 0.1, random_state=0).labels
    labels[:3] = 3
    seen = []
    T, p = symmetric_matrix(4, 0.1), np.array([0.33, 0.33, 0.33, 0.01])
    _, found = check_assumptions(
        X, labels, 4, "euclidean", T, p, progress=lambda *at: seen.append(at)
    )
    assert [finding.name for finding in found] == [
        "ranks",
        "distance",
        "independence",
        "feasible",
        "memorised",
        "dependence",
        "near duplicates",
    ]
    assert all(finding.ok for finding in found)
    assert seen[-1][0] == seen[-1][1]


def test_a_closer_look_sets_the_agreement_and_a_new_fit_forgets_it():
    X, clean = clusters(3, 600, 0)
    est = HOC(metric="euclidean").fit(X, symmetric(clean, 0.2, random_state=0).labels)
    assert est.agreement_ is None
    est.diagnose()
    assert est.agreement_.by_rank.shape == (6,)
    assert est.agreement_.by_rank.min() > 1.5 * est.agreement_.chance
    assert est.fit(X, clean).agreement_ is None


def test_a_closer_look_keeps_to_the_sources():
    """Copies that `fit` was told of are no surprise; without sources they are."""
    X, clean = clusters(3, 600, 0)
    rows = np.repeat(np.arange(600), 2)
    labels = symmetric(clean, 0.3, random_state=0).labels[rows]
    X = X[rows] + 1e-3 * np.random.default_rng(0).standard_normal((1200, X.shape[1]))
    told = HOC(refine=False, metric="euclidean").fit(X, labels, sources=rows).diagnose()
    with pytest.warns(LabelNoiseWarning, match="not given independently"):
        untold = HOC(refine=False, metric="euclidean").fit(X, labels).diagnose()
    for name in ("independence", "near duplicates"):
        assert told[name].ok
        assert not untold[name].ok


def test_a_closer_look_leaves_out_what_is_unlabelled():
    """With given neighbours such examples are among the data, and so are zero vectors."""
    X, clean = clusters(3, 600, 0)
    y = [None if row % 5 == 0 else int(label) for row, label in enumerate(clean)]
    X[1] = 0
    est = HOC().fit(X, y, neighbors=nearest_neighbors(X, 2).indices)
    assert est.diagnose()["ranks"].ok
    labelled = [row for row in range(600) if row != 1 and row % 5]
    share = np.bincount(clean[labelled]) / len(labelled)
    assert est.agreement_.chance == pytest.approx((share**2).sum(), abs=0.01)


def test_intervals_say_that_the_bias_may_be_larger():
    """Only where a sign of neighbours of other classes was found, and wherever they are shown."""
    for separation, poor in ((4.0, False), (0.6, True)):
        X, clean = clusters(4, 2000, 0, separation=separation)
        est = HOC(refine=False).fit(X, symmetric(clean, 0.2, random_state=0).labels)
        est.diagnose()
        for shown in (repr(est.confidence_interval()), str(est)):
            assert ("bias may be larger than this interval: see" in shown.lower()) == poor
        assert ("feasible" in est.confidence_interval().caveat) == poor
