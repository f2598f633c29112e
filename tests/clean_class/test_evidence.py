"""Evidence names the clean class, and has not seen the example's own label."""

import numpy as np
import pytest

from labelnoise.clean_class.evidence import FOLDS, VOTERS, collect, ordered, sample
from labelnoise.neighbors import nearest_neighbors
from labelnoise.noise import symmetric
from tests.conftest import clusters, symmetric_matrix

T = symmetric_matrix(4, 0.3)


def collected(X, labels, neighbors, sources=None, every=1):
    """Evidence, the row numbers of its examples, and the voters."""
    order = np.argsort(labels, kind="stable")
    data = sample(X, labels, neighbors, order, sources)
    found, voters = collect(data, T, lambda: None, every)
    return found, order[::every], voters


def by_row(found, rows):
    scores = np.empty_like(found.scores)
    scores[:, :, rows] = found.scores
    return scores


@pytest.fixture(scope="module")
def data():
    """Four classes that overlap, 30% symmetric noise: X, clean, labels, neighbours."""
    X, y = clusters(4, 1000, 0, separation=0.8)
    return X, y, symmetric(y, 0.3, random_state=0).labels, nearest_neighbors(X, 18).indices


def test_an_examples_own_label_does_not_count(data):
    """A changed label moves the evidence of those that it is near, and not its own."""
    X, _, labels, near = data
    fold = np.arange(len(X))  # the same folds before and after
    before = by_row(*collected(X, labels, near, fold)[:2])
    for row in np.bincount(near[:, :2].ravel()).argsort()[-3:]:  # near to many
        changed = labels.copy()
        changed[row] = (labels[row] + 1) % 4
        after = by_row(*collected(X, changed, near, fold)[:2])
        moved = np.abs(after - before).max(axis=1)  # (kinds, N)
        assert moved[:, row].max() < 0.005
        nearest = np.flatnonzero((near[:, :2] == row).any(axis=1))
        assert moved[1:, nearest].mean(axis=1).min() > 0.01  # votes, and labels
        other = np.setdiff1d(np.flatnonzero(fold % FOLDS != fold[row] % FOLDS), [row])
        assert moved[0, other].min() > 0


def test_each_kind_of_evidence_names_the_class(data):
    """Scores by features, by neighbours' votes and by their labels agree with the clean class."""
    X, y, labels, near = data
    found, rows, _ = collected(X, labels, near)
    assert found.scores.shape == (3, 4, 1000)
    np.testing.assert_array_equal(found.labels, labels[rows])
    right = (found.scores.argmax(axis=1) == y[rows]).mean(axis=1)
    assert right.min() > (labels == y).mean() + 0.1
    assert right[0] > 0.9
    np.testing.assert_allclose(found.scores.mean(axis=1), 0, atol=1e-5)


def test_votes_are_those_of_the_formula(data):
    """The log sum of what neighbours suggest, and the sum of log T of their labels."""
    X, _, labels, near = data
    _, _, voters = collected(X, labels, near)
    scores = voters.evidence(X[:20], near[:20])
    suggested = voters.suggested
    np.testing.assert_allclose(suggested.sum(axis=1), 1, rtol=1e-5)
    before = suggested.mean(axis=0)  # one vote
    expected = [voters.linear.scores(X[:20])]
    expected.append(np.log(suggested[near[:20, :VOTERS]].sum(axis=1) + before))
    mixed = 0.9 * T + 0.1 / 4  # no label is impossible
    chance = np.log(mixed / (np.bincount(labels) / len(labels)))
    expected.append(chance.T[labels[near[:20]]].sum(axis=1))
    expected = np.stack(expected) - np.mean(expected, axis=2, keepdims=True)
    np.testing.assert_allclose(scores, expected.transpose(0, 2, 1), atol=1e-3)


def test_only_the_nearest_vote(data):
    """Neighbours beyond the 18 nearest change nothing; without some of these, much does."""
    X, _, labels, near = data
    more = np.column_stack([near, np.zeros((len(X), 5), int)])
    votes = [collected(X, labels, some)[0].scores[1] for some in (near, more, near[:, :4])]
    np.testing.assert_array_equal(votes[1], votes[0])
    assert np.abs(votes[2] - votes[0]).mean() > 0.1


def test_part_of_the_examples(data):
    """With every fourth example the evidence is of these, and much the same."""
    X, _, labels, near = data
    whole, rows, _ = collected(X, labels, near)
    part, some, _ = collected(X, labels, near, every=4)
    assert part.scores.shape[2] == len(some) == 250
    np.testing.assert_array_equal(part.labels, labels[some])
    both = by_row(whole, rows)[:, :, some].argmax(axis=1), part.scores.argmax(axis=1)
    assert (both[0] == both[1]).mean() > 0.85


def test_a_source_is_in_one_fold(data):
    """Frames of one video are trained on together, or not at all; else folds share each class."""
    X, _, labels, near = data
    order = np.argsort(labels, kind="stable")
    video = np.arange(len(X)) // 3
    fold = sample(X, labels, near, order, video).models.fold
    assert all(len(set(fold[video == v])) == 1 for v in range(20))
    assert set(fold) == set(range(FOLDS))
    plain = sample(X, labels, near, order).models.fold
    counts = np.stack([np.bincount(plain[labels == k], minlength=FOLDS) for k in range(4)])
    assert np.ptp(counts, axis=1).max() <= 1


def test_order_is_that_of_the_data(data, rng):
    """Neither the order of rows nor the numbers of the classes change the order of examples."""
    X, _, labels, _ = data
    order, classes = ordered(X, labels, 4)
    assert sorted(order) == list(range(len(X)))
    shuffled, number = rng.permutation(len(X)), np.array([2, 0, 3, 1])
    again, renamed = ordered(X[shuffled], number[labels[shuffled]], 4)
    np.testing.assert_array_equal(shuffled[again], order)
    np.testing.assert_array_equal(renamed, number[classes])
