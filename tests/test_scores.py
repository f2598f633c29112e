"""Scores against the truth, and other tools' conventions."""

import numpy as np
import pytest

from labelnoise import (
    LabelNoiseError,
    feasibility,
    from_cleanlab,
    to_cleanlab,
    transition_error,
)
from labelnoise.scores import clean_accuracy, clean_confusion, true_transition_matrix
from tests.conftest import pair_matrix, random_matrix


def test_error_is_the_mean_absolute_row_difference():
    """Two rows off by .2 in two places each: .4."""
    T = np.array([[0.8, 0.2], [0.2, 0.8]])
    assert transition_error(np.eye(2), T) == pytest.approx(0.4)
    assert transition_error(T, T) == 0
    assert transition_error(np.eye(2), np.eye(2)[::-1]) == 2


def test_true_t_is_counted():
    """T from clean and noisy labels; a class that does not occur is left as it is."""
    T = true_transition_matrix([0, 0, 0, 0, 1], [0, 0, 0, 1, 1], 3)
    np.testing.assert_array_equal(T, [[0.75, 0.25, 0], [0, 1, 0], [0, 0, 1]])


def test_feasibility_looks_at_two_neighbours():
    """Both neighbours must share the clean label; a third does not count."""
    clean = np.array(["a", "a", "a", "b"])
    neighbors = np.array([[1, 2, 3], [0, 3, 2], [0, 1, 3], [0, 1, 2]])
    assert feasibility(clean, neighbors) == 0.5


def test_feasibility_for_any_number_of_neighbours():
    """More neighbours are harder to satisfy."""
    clean = np.array(["a", "a", "a", "b"])
    neighbors = np.array([[1, 2, 3], [0, 3, 2], [0, 1, 3], [0, 1, 2]])
    assert [feasibility(clean, neighbors, k) for k in (1, 2, 3)] == [0.75, 0.5, 0.0]
    with pytest.raises(LabelNoiseError, match="k = 4"):
        feasibility(clean, neighbors, 4)


def noisy_test(n, seed, K=4):
    """Clean classes, a classifier's predictions, noisy labels and their T."""
    rng = np.random.default_rng(seed)
    T = random_matrix(K, np.random.default_rng(1))
    clean = rng.choice(K, n, p=np.arange(1, K + 1) / (K * (K + 1) / 2))
    right = rng.random(n) < 0.95 - 0.1 * clean
    predicted = np.where(right, clean, (clean + rng.integers(1, K, n)) % K)
    noisy = (rng.random(n)[:, None] > np.cumsum(T, axis=1)[clean, :-1]).sum(axis=1)
    return clean, predicted, noisy, T


def test_clean_confusion_is_that_on_paper():
    """C~ = T' C for the confusion of exact shares, and back; a singular T has no way back."""
    rng = np.random.default_rng(0)
    T, C = random_matrix(3, rng), rng.dirichlet(np.ones(9)).reshape(3, 3)
    noisy = np.einsum("ij,ih->jh", T, C)
    np.testing.assert_allclose(clean_confusion(noisy, T), C)
    with pytest.raises(LabelNoiseError, match=r"smallest singular value is .*merge"):
        clean_confusion(noisy, np.full((3, 3), 1 / 3))
    with pytest.raises(LabelNoiseError, match="each of the 3 labels"):
        clean_confusion(noisy[:2], T)


def test_the_accuracy_that_noisy_labels_hide():
    """The clean accuracy and recalls come out, where the noisy accuracy is far off."""
    clean, predicted, noisy, T = noisy_test(40_000, 0)
    found = clean_accuracy(noisy, predicted, T)
    true = (predicted == clean).mean()
    assert abs(found.noisy_accuracy - true) > 0.2
    assert found.accuracy == pytest.approx(true, abs=0.02)
    recalls = [(predicted == clean)[clean == i].mean() for i in range(4)]
    np.testing.assert_allclose(found.recall, recalls, atol=0.05)
    assert found.confusion.sum() == pytest.approx(1)
    assert repr(found).endswith("on clean ones")


@pytest.mark.parametrize("n_of_T", [None, 300])
def test_the_interval_covers_and_takes_in_the_error_of_T(n_of_T):
    """About 95% of the intervals hold the accuracy, with T known or estimated; not all do."""
    covered, rng = [], np.random.default_rng(0)
    for seed in range(150):
        _, predicted, noisy, T = noisy_test(1_500, seed)
        variance = None
        if n_of_T is not None:
            counts = np.array([rng.multinomial(n_of_T, row) for row in T])
            T = counts / n_of_T
            variance = T * (1 - T) / n_of_T
        found = clean_accuracy(noisy, predicted, T, variance=variance)
        true = 0.95 - 0.1 * (np.arange(4) @ np.arange(1, 5)) / 10
        covered.append(found.interval[0] <= true <= found.interval[1])
    assert 0.9 <= np.mean(covered) < 1
    wider = clean_accuracy(noisy, predicted, T, variance=np.full((4, 4), 0.002)).interval
    alone = clean_accuracy(noisy, predicted, T).interval
    assert np.ptp(wider) > 1.2 * np.ptp(alone)


def test_names_and_missing_labels_are_met():
    """Labels may be words; those without one are left out; what does not fit is said."""
    T = np.array([[0.9, 0.1], [0.1, 0.9]])
    labels, predicted = ["cat", "dog", None, "dog"] * 50, ["cat", "dog", "cat", "cat"] * 50
    found = clean_accuracy(labels, predicted, T, classes=["dog", "cat"])
    assert found.classes.tolist() == ["dog", "cat"]
    assert found.noisy_accuracy == pytest.approx(2 / 3)
    with pytest.raises(LabelNoiseError, match="3 labels, 2 predictions"):
        clean_accuracy(["a", "b", "a"], ["a", "b"], T)
    with pytest.raises(LabelNoiseError, match="variances >= 0 of shape"):
        clean_accuracy(["a", "b"], ["a", "b"], T, variance=[-1, 0])
    with pytest.raises(LabelNoiseError, match="there are none"):
        clean_accuracy([None, None], ["a", "b"], T, classes=["a", "b"])


def test_cleanlab_has_columns_where_we_have_rows():
    """The converters transpose, there and back, and catch a matrix the wrong way round."""
    T = pair_matrix(3, 0.2)
    T[0] = [0.6, 0.3, 0.1]
    np.testing.assert_allclose(to_cleanlab(T), T.T, rtol=1e-15)
    np.testing.assert_allclose(from_cleanlab(to_cleanlab(T)), T, rtol=1e-15)
    with pytest.raises(LabelNoiseError, match="transposed"):
        to_cleanlab(T.T)
    with pytest.raises(LabelNoiseError, match="transposed"):
        from_cleanlab(T)


@pytest.mark.parametrize(
    "call",
    [
        lambda: transition_error(np.eye(2), np.eye(3)),
        lambda: transition_error(np.ones((2, 3)), np.ones((2, 3))),
        lambda: feasibility([0, 1], [[0]]),
        lambda: true_transition_matrix([0, 1], [0], 2),
        lambda: to_cleanlab(np.ones((2, 3))),
    ],
)
def test_bad_shapes(call):
    """Shapes that do not fit are said."""
    with pytest.raises(LabelNoiseError, match="shape"):
        call()
