"""Soft clusterability: recovery with S given, as one number and estimated, and what is told."""

import numpy as np
import pytest

from labelnoise import Consensus, LabelNoiseError, transition_error
from labelnoise.checks import check_solution, overlap_of
from labelnoise.checks.soft import check_soft, one_number, soft_consensus, solve_soft
from labelnoise.consensus import expected_consensus
from labelnoise.neighbors import nearest_neighbors
from labelnoise.noise import symmetric
from labelnoise.solvers import solve
from tests.conftest import (
    clusters,
    imbalanced_prior,
    pair_matrix,
    random_matrix,
    sampled_consensus,
    symmetric_matrix,
)


def confusion(K, wrong):
    """S in which class i is confused with i + 1."""
    return (1 - wrong) * np.eye(K) + wrong * np.roll(np.eye(K), 1, axis=1)


def drawn_classes(rows, rng):
    """A class from each row of probabilities."""
    return (rng.random((len(rows), 1)) > np.cumsum(rows, axis=1)[:, :-1]).sum(axis=1)


def labelled(classes, T, rng):
    """The consensus of triples of clean classes whose labels follow T."""
    labels = np.column_stack([drawn_classes(T[member], rng) for member in classes.T])
    return Consensus.from_labels(labels, len(T))


def independent_triples(S, n, rng):
    """Clean classes of triples whose neighbours err independently."""
    centre = rng.integers(0, len(S), n)
    return np.column_stack([centre, drawn_classes(S[centre], rng), drawn_classes(S[centre], rng)])


def ambiguous_triples(K, share, n, rng):
    """Clean classes of triples that err together, in places where two classes mix."""
    one = rng.integers(0, K, n)
    ratio = np.where(rng.random(n) < share, rng.random(n), 0)
    members = [np.where(rng.random(n) < ratio, (one + 1) % K, one) for _ in range(3)]
    return np.column_stack(members)


def test_the_exact_consensus_is_that_on_paper(rng):
    """c3[a, b, c] = sum_i p_i T[i, a] (ST)[i, b] (ST)[i, c]; with S = I it is plain HOC's."""
    T, p, S = random_matrix(4, rng), imbalanced_prior(4, 3), confusion(4, 0.2)
    M = S @ T
    np.testing.assert_allclose(
        soft_consensus(T, p, S).c3, np.einsum("i,ia,ib,ic->abc", p, T, M, M), atol=1e-15
    )
    np.testing.assert_allclose(
        soft_consensus(T, p, np.eye(4)).c3, expected_consensus(T, p)[2], atol=1e-15
    )


@pytest.mark.parametrize("K", [2, 3, 10])
@pytest.mark.parametrize("kind", ["symmetric", "pair"])
def test_a_given_S_recovers_T(K, kind):
    """With the true S, T and p come back from an exact consensus, and plain HOC's do not."""
    T = symmetric_matrix(K, 0.3) if kind == "symmetric" else pair_matrix(K, 0.3, 0.05)
    p, S = imbalanced_prior(K, 3), confusion(K, 0.2)
    exact = soft_consensus(T, p, S)
    found = solve_soft(exact, S, tol=1e-12)
    np.testing.assert_allclose(found.transition_matrix, T, atol=1e-5)
    np.testing.assert_allclose(found.class_prior, p, atol=1e-5)
    np.testing.assert_allclose(found.neighbor_matrix, S @ T, atol=1e-5)
    assert found.kind == "given"
    assert transition_error(solve(exact).transition_matrix, T) > 0.05


@pytest.mark.parametrize("K", [2, 3, 10])
@pytest.mark.parametrize("given", [True, False])
def test_one_number_recovers_T(K, given):
    """With S of one number, given or estimated, T comes back from an exact consensus."""
    T, p, e = pair_matrix(K, 0.3, 0.05), imbalanced_prior(K, 3), 0.2 / K
    found = solve_soft(
        soft_consensus(T, p, one_number(e, K)), e if given else "one number", tol=1e-12
    )
    np.testing.assert_allclose(found.transition_matrix, T, atol=1e-5)
    np.testing.assert_allclose(found.S, one_number(e, K), atol=1e-5)


@pytest.mark.parametrize("K", [2, 3, 10])
def test_S_is_estimated_beside_T(K, rng):
    """T, p and all of S come back from an exact consensus."""
    T, p = random_matrix(K, rng), imbalanced_prior(K, 3)
    S = 0.8 * np.eye(K) + 0.2 * rng.dirichlet(np.ones(K), K)
    found = solve_soft(soft_consensus(T, p, S), tol=1e-12)
    assert found.divergence < 1e-10
    np.testing.assert_allclose(found.transition_matrix, T, atol=1e-3)
    np.testing.assert_allclose(found.S, S, atol=1e-3)
    np.testing.assert_allclose(found.S.sum(axis=1), 1)


def test_S_of_zero_is_plain_HOC():
    """With S = I the soft likelihood has plain HOC's optimum."""
    consensus = sampled_consensus(symmetric_matrix(4, 0.3), imbalanced_prior(4, 3), 5000, 0)
    soft, plain = solve_soft(consensus, 0.0, tol=1e-10), solve(consensus)
    np.testing.assert_allclose(soft.transition_matrix, plain.transition_matrix, atol=1e-5)
    np.testing.assert_allclose(soft.S, np.eye(4))


@pytest.mark.parametrize("S", ["estimate", "one number"])
@pytest.mark.parametrize("kind", ["exact", "sampled"])
def test_no_confusion_is_found_where_there_is_none(S, kind):
    """On plain HOC's triples S comes out as about the identity, and T as plain HOC's."""
    K = 10
    T, p = pair_matrix(K, 0.3), np.full(K, 1 / K)
    consensus = (
        Consensus.from_model(T, p, 50_000)
        if kind == "exact"
        else sampled_consensus(T, p, 50_000, seed=1)
    )
    found = solve_soft(consensus, S)
    assert np.diag(found.S).min() > 0.95
    assert transition_error(found.transition_matrix, T) < 0.05


@pytest.mark.parametrize("S", ["estimate", "one number", "given"])
def test_sampled_triples_with_independent_errors_gain_from_S(S, rng):
    """Where neighbours err independently, the soft model's T is nearer the truth than plain's."""
    K = 5
    T = symmetric_matrix(K, 0.2)
    true_S = one_number(0.05, K)
    consensus = labelled(independent_triples(true_S, 20_000, rng), T, rng)
    found = solve_soft(consensus, true_S if S == "given" else S)
    plain = solve(consensus)
    error = transition_error(found.transition_matrix, T)
    assert error < 0.7 * transition_error(plain.transition_matrix, T)


def test_the_names_of_classes_do_not_matter(rng):
    """Renaming the labels renames T and S, and changes nothing else."""
    K, order = 4, np.array([2, 0, 3, 1])
    T, S = random_matrix(K, rng), confusion(K, 0.15)
    exact = soft_consensus(T, imbalanced_prior(K, 2), S)
    renamed = Consensus(order[exact.triples], exact.weights, K, 1)
    renamed = renamed + Consensus(exact.triples[:0], exact.weights[:0], K, 0)
    for kind in ("estimate", "one number"):
        before, after = solve_soft(exact, kind, tol=1e-11), solve_soft(renamed, kind, tol=1e-11)
        both = np.ix_(order, order)
        np.testing.assert_allclose(
            after.transition_matrix[both], before.transition_matrix, atol=1e-3
        )
        np.testing.assert_allclose(after.S[both], before.S, atol=1e-3)


def test_a_label_that_never_occurs_has_the_identity_row(rng):
    """A class without labels gets a prior of 0 and identity rows in T and S, S given or not."""
    T, p = random_matrix(3, rng), np.full(3, 1 / 3)
    inner = soft_consensus(T, p, one_number(0.05, 3))
    wider = Consensus(inner.triples + (inner.triples >= 1), inner.weights, 4, 1)  # no label 1
    for S in ("estimate", 0.05, one_number(0.05, 4)):
        found = solve_soft(wider, S)
        assert found.class_prior[1] == 0
        np.testing.assert_array_equal(found.transition_matrix[1], np.eye(4)[1])
        np.testing.assert_array_equal(found.S[1], np.eye(4)[1])
        np.testing.assert_allclose(found.S.sum(axis=1), 1)


def test_a_soft_solution_is_checked_like_any_other():
    """The identifiability checks of plain HOC take a soft solution."""
    T, p = symmetric_matrix(3, 0.2), np.full(3, 1 / 3)
    exact = soft_consensus(T, p, one_number(0.05, 3), n_centers=1000)
    findings = check_solution(exact, solve_soft(exact), np.arange(3))
    assert all(finding.ok for finding in findings)


def test_the_checks_pass_where_the_assumption_holds(rng):
    """Independent errors fit, and show in the difference of centre and neighbours."""
    triples = independent_triples(confusion(5, 0.2), 20_000, rng)
    consensus = labelled(triples, symmetric_matrix(5, 0.2), rng)
    fit, evidence = check_soft(consensus, solve_soft(consensus))
    assert fit.ok
    assert evidence.ok
    assert evidence.value > 10


def test_the_checks_say_that_errors_are_shared(rng):
    """Errors that all three share at varying degrees do not fit, and show no difference."""
    consensus = labelled(ambiguous_triples(5, 0.8, 50_000, rng), symmetric_matrix(5, 0.1), rng)
    fit, evidence = check_soft(consensus, solve_soft(consensus))
    assert not fit.ok
    assert "do not explain" in fit.sentence
    assert not evidence.ok
    assert "cannot tell" in evidence.sentence


def test_errors_shared_in_few_kinds_of_places_cannot_be_told(rng):
    """With K kinds of places T is wrong, and triples cannot show it: the checks say so."""
    K = 5
    T, place = symmetric_matrix(K, 0.2), confusion(K, 0.2)
    kinds = place[rng.integers(0, K, 20_000)]
    classes = np.column_stack([drawn_classes(kinds, rng) for _ in range(3)])
    consensus = labelled(classes, T, rng)
    found = solve_soft(consensus)
    fit, evidence = check_soft(consensus, found)
    assert fit.ok
    assert not evidence.ok
    np.testing.assert_allclose(found.transition_matrix, place @ T, atol=0.05)


def test_the_checks_are_quiet_on_pure_clusters():
    """With real, overlapping neighbours that share the class, nothing is found wrong."""
    X, y = clusters(4, 4000, seed=0)
    labels = symmetric(y, 0.3, random_state=0).labels
    indices = nearest_neighbors(X, 2).indices
    near = Consensus.from_neighbors(labels, indices, 4)
    found = solve_soft(near)
    overlap = overlap_of(indices, labels, found.transition_matrix, found.class_prior)
    fit, evidence = check_soft(near, found, overlap)
    assert fit.ok
    assert not evidence.ok


def test_overlap_makes_the_checks_less_sure(rng):
    """Triples that overlap count for fewer."""
    triples = independent_triples(confusion(3, 0.2), 5_000, rng)
    consensus = labelled(triples, symmetric_matrix(3, 0.2), rng)
    found = solve_soft(consensus)
    alone, overlapping = check_soft(consensus, found)[1], check_soft(consensus, found, 4.0)[1]
    assert overlapping.value == pytest.approx(alone.value / 2)


@pytest.mark.parametrize(
    ("S", "words"),
    [
        (0.34, "0 <= e < 1/K = 0.3333.*e = 0.34"),
        (1 / 3, "0 <= e < 1/K"),
        (-0.1, "e = -0.1"),
        (float("nan"), "e = nan"),
        (np.full((3, 3), 0.3), "sum to 1.*row 0"),
        (np.array([[1, 0, 0], [0, 1, 0], [-0.5, 0, 1.5]]), "row 2"),
        (np.full((3, 3), np.nan), "row 0"),
        (np.full((3, 3), 1 / 3), "diagonal.*e < 1/K"),
        (np.eye(4), r"shape \(3, 3\).*\(4, 4\)"),
        ("guess", "'one number' or 'estimate', but S = 'guess'"),
        (None, "Expected S"),
        ([["a", "b"]], "cannot be read as numbers"),
    ],
)
def test_a_bad_S_is_met_at_the_door(S, words):
    """Not row-stochastic, e >= 1/K, a wrong shape or name: one sentence with rule and value."""
    consensus = Consensus.from_model(symmetric_matrix(3, 0.2), np.full(3, 1 / 3))
    with pytest.raises(LabelNoiseError, match=words):
        solve_soft(consensus, S)


def test_too_many_classes_and_no_triples_are_said():
    """The dense model has a limit, and an empty consensus no answer."""
    many = Consensus.from_labels(np.repeat(np.arange(101), 3).reshape(-1, 3), 101)
    with pytest.raises(LabelNoiseError, match="at most 100"):
        solve_soft(many)
    with pytest.raises(LabelNoiseError, match="empty"):
        solve_soft(Consensus.from_labels(np.full((2, 3), -1), 3))
