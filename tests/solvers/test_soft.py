"""Soft clusterability: recovery with S given, and what the check says."""

import numpy as np
import pytest

from labelnoise import Consensus, LabelNoiseError, transition_error
from labelnoise.checks import check_solution
from labelnoise.checks.soft import check_soft, one_number, soft_consensus, solve_soft
from labelnoise.consensus import expected_consensus
from labelnoise.solvers import solve
from tests.conftest import (
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
    assert transition_error(solve(exact).transition_matrix, T) > 0.05


@pytest.mark.parametrize("K", [2, 3, 10])
def test_one_number_recovers_T(K):
    """With S of one number T comes back from an exact consensus."""
    T, p, e = pair_matrix(K, 0.3, 0.05), imbalanced_prior(K, 3), 0.2 / K
    found = solve_soft(soft_consensus(T, p, one_number(e, K)), e, tol=1e-12)
    np.testing.assert_allclose(found.transition_matrix, T, atol=1e-5)
    np.testing.assert_allclose(found.S, one_number(e, K), atol=1e-5)


def test_S_of_zero_is_plain_HOC():
    """With S = I the soft likelihood has plain HOC's optimum."""
    consensus = sampled_consensus(symmetric_matrix(4, 0.3), imbalanced_prior(4, 3), 5000, 0)
    soft, plain = solve_soft(consensus, 0.0, tol=1e-10), solve(consensus)
    np.testing.assert_allclose(soft.transition_matrix, plain.transition_matrix, atol=1e-5)
    np.testing.assert_allclose(soft.S, np.eye(4))


def test_sampled_triples_with_independent_errors_gain_from_S(rng):
    """Where neighbours err independently, the soft model's T is nearer the truth than plain's."""
    K = 5
    T = symmetric_matrix(K, 0.2)
    true_S = one_number(0.05, K)
    consensus = labelled(independent_triples(true_S, 20_000, rng), T, rng)
    found = solve_soft(consensus, true_S)
    plain = solve(consensus)
    error = transition_error(found.transition_matrix, T)
    assert error < 0.7 * transition_error(plain.transition_matrix, T)


def test_the_names_of_classes_do_not_matter(rng):
    """Renaming the labels of the triples and of S renames T, and changes nothing else."""
    K, order = 4, np.array([2, 0, 3, 1])
    T, S = random_matrix(K, rng), confusion(K, 0.15)
    exact = soft_consensus(T, imbalanced_prior(K, 2), S)
    renamed = Consensus(order[exact.triples], exact.weights, K, 1)
    renamed = renamed + Consensus(exact.triples[:0], exact.weights[:0], K, 0)
    renamed_S = np.empty((K, K))
    renamed_S[np.ix_(order, order)] = S
    before, after = solve_soft(exact, S, tol=1e-11), solve_soft(renamed, renamed_S, tol=1e-11)
    np.testing.assert_allclose(
        after.transition_matrix[np.ix_(order, order)], before.transition_matrix, atol=1e-3
    )


def test_a_label_that_never_occurs_has_the_identity_row(rng):
    """A class without labels gets a prior of 0 and identity rows in T and S."""
    T, p = random_matrix(3, rng), np.full(3, 1 / 3)
    inner = soft_consensus(T, p, one_number(0.05, 3))
    wider = Consensus(inner.triples + (inner.triples >= 1), inner.weights, 4, 1)  # no label 1
    for S in (0.05, one_number(0.05, 4)):
        found = solve_soft(wider, S)
        assert found.class_prior[1] == 0
        np.testing.assert_array_equal(found.transition_matrix[1], np.eye(4)[1])
        np.testing.assert_array_equal(found.S[1], np.eye(4)[1])
        np.testing.assert_allclose(found.S.sum(axis=1), 1)


def test_a_soft_solution_is_checked_like_any_other():
    """The identifiability checks of plain HOC take a soft solution."""
    T, p = symmetric_matrix(3, 0.2), np.full(3, 1 / 3)
    exact = soft_consensus(T, p, one_number(0.05, 3), n_centers=1000)
    findings = check_solution(exact, solve_soft(exact, 0.05), np.arange(3))
    assert all(finding.ok for finding in findings)


def test_the_check_passes_where_the_assumption_holds(rng):
    """Independent errors fit."""
    S = confusion(5, 0.2)
    consensus = labelled(independent_triples(S, 20_000, rng), symmetric_matrix(5, 0.2), rng)
    assert check_soft(consensus, solve_soft(consensus, S)).ok


def test_the_check_says_that_errors_are_shared(rng):
    """Errors that all three share at varying degrees do not fit, whichever S is given."""
    consensus = labelled(ambiguous_triples(5, 0.8, 50_000, rng), symmetric_matrix(5, 0.1), rng)
    found = check_soft(consensus, solve_soft(consensus, confusion(5, 0.2)))
    assert not found.ok
    assert "do not explain" in found.sentence


def test_errors_shared_in_few_kinds_of_places_cannot_be_told(rng):
    """With K kinds of places T is wrong, and triples cannot show it."""
    K = 5
    T, place = symmetric_matrix(K, 0.2), confusion(K, 0.2)
    kinds = place[rng.integers(0, K, 20_000)]
    classes = np.column_stack([drawn_classes(kinds, rng) for _ in range(3)])
    consensus = labelled(classes, T, rng)
    found = solve_soft(consensus, 0)
    assert check_soft(consensus, found).ok
    np.testing.assert_allclose(found.transition_matrix, place @ T, atol=0.05)


def test_overlap_makes_the_check_less_sure(rng):
    """Triples that overlap count for fewer."""
    triples = independent_triples(confusion(3, 0.2), 5_000, rng)
    consensus = labelled(triples, symmetric_matrix(3, 0.2), rng)
    found = solve_soft(consensus, 0)
    alone, overlapping = check_soft(consensus, found), check_soft(consensus, found, 4.0)
    assert overlapping.value < alone.value / 2


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
        (None, r"Expected S of shape \(3, 3\)"),
        ([["a", "b"]], "array of numbers"),
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
        solve_soft(many, 0)
    with pytest.raises(LabelNoiseError, match="empty"):
        solve_soft(Consensus.from_labels(np.full((2, 3), -1), 3), 0)
