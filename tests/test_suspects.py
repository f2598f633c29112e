"""Labels that are probably wrong: ranked, weighed, dropped, relabelled."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score

from labelnoise import HOC, LabelNoiseError
from labelnoise.neighbors import nearest_neighbors
from labelnoise.noise import class_conditional, pair_flip
from labelnoise.suspects import drop, find_suspects, relabel, reweight
from tests.conftest import clusters, pair_matrix

POSTERIOR = np.array([[0.9, 0.1, 0.0], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6], [0.4, 0.3, 0.3]])
LABELS = np.array([0, 0, 1, -1])


@pytest.fixture(scope="module")
def fitted():
    """Digits with pairs confused and a hundred of them unlabelled: clean, given, estimate."""
    X, y = load_digits(return_X_y=True)
    names = np.array([f"digit {k}" for k in range(10)], object)
    noisy = class_conditional(y, pair_matrix(10, 0.3, 0.05), random_state=0).labels
    given = names[noisy]
    given[:100] = None
    return names[y], given, HOC().fit(X, given)


def test_suspects_are_wrong_and_suggestions_right(fitted):
    """Rows, given labels and suggestions are those of the data, unlabelled rows are left out."""
    clean, given, est = fitted
    found = est.suspects()
    assert found.n_labels == 1697
    assert found.index.min() >= 100
    np.testing.assert_array_equal(given[found.index], found.given)
    assert (clean[found.index] == found.suggested).mean() > 0.9
    assert (np.diff(found.probability) <= 0).all()
    wrong = (given != clean)[100:].sum()
    assert found.expected_errors == pytest.approx(wrong, rel=0.05)
    assert len(found) == round(found.expected_errors)


def test_ranking_beats_simple_ones(fitted):
    """Wrong labels come first: more so than by votes of neighbours, or a label's own row of T."""
    clean, given, est = fitted
    labelled = np.arange(100, len(given))
    X = load_digits().data
    wrong = (given != clean)[labelled]
    number = np.unique(given[labelled].astype(str), return_inverse=True)[1]
    suspicion = 1 - reweight(est.predict_proba(), number)
    near = nearest_neighbors(X[labelled], 10).indices
    votes = (number[near] != number[:, None]).mean(axis=1)
    by_label = 1 - np.diag(est.inverse_transition_matrix_)[number]
    ours = average_precision_score(wrong, suspicion)
    assert ours > 0.97
    for other in (votes, by_label):
        assert ours > average_precision_score(wrong, other) + 0.02


def test_probabilities_are_calibrated(fitted):
    """Of labels that are said to be wrong with a chance of p, about p are."""
    clean, given, est = fitted
    number = np.unique(given[100:].astype(str), return_inverse=True)[1]
    chance = 1 - reweight(est.predict_proba(), number)
    wrong = (given != clean)[100:]
    for low, high in ((0, 0.1), (0.1, 0.9), (0.9, 1.01)):
        some = (low <= chance) & (chance < high)
        deviation = np.sqrt(max((chance * (1 - chance))[some].sum(), 1))
        assert abs(wrong[some].sum() - chance[some].sum()) < 4 * deviation + 0.03 * some.sum()


def test_predicted_labels_are_cleaner(fitted):
    """Relabelled, and dropped, the labels that are left are far less often wrong."""
    clean, given, est = fitted
    number = np.unique(given[100:].astype(str), return_inverse=True)[1]
    classes = est.classes_
    posterior = est.predict_proba()
    fixed = classes[relabel(posterior, number)]
    before = (given != clean)[100:].mean()
    assert (fixed != clean[100:]).mean() < 0.1 * before
    kept = drop(posterior, number)
    assert (given != clean)[100:][kept].mean() < 0.1 * before
    assert kept.mean() > 0.95 * (1 - before)


def test_without_features_neighbours_tell():
    """From neighbours alone, suspects are found all the same, and add up to the noise rate."""
    X, y = clusters(4, 1500, 0)
    labels = pair_flip(y, 0.2, random_state=0).labels
    est = HOC().fit(None, labels, neighbors=nearest_neighbors(X, 2).indices)
    found = est.suspects()
    assert found.expected_errors / 1500 == pytest.approx(est.noise_rate_, abs=0.005)
    assert (labels != y)[found.index].mean() > 0.75
    assert (found.suggested == y[found.index]).mean() > 0.75


def test_from_a_posterior():
    """As many as are expected to be wrong, the surest first; rows may have numbers of their own."""
    found = find_suspects(POSTERIOR, LABELS, ["a", "b", "c"], np.array([10, 11, 12, 13]))
    assert found.expected_errors == pytest.approx(0.1 + 0.8 + 0.7)
    assert found.n_labels == 3
    columns = {name: column.tolist() for name, column in found.columns().items()}
    assert columns == {
        "index": [11, 12],
        "given": ["a", "b"],
        "suggested": ["b", "c"],
        "probability": pytest.approx([0.8, 0.7]),
    }
    assert find_suspects(POSTERIOR, LABELS).given.tolist() == [0, 1]


def test_what_to_do_with_them():
    """Weights are chances to be right, dropped is what is below, relabelled what is above."""
    np.testing.assert_allclose(reweight(POSTERIOR, LABELS), [0.9, 0.2, 0.3, 0])
    assert drop(POSTERIOR, LABELS).tolist() == [True, False, False, False]
    assert drop(POSTERIOR, LABELS, 0.25).tolist() == [True, False, True, False]
    assert relabel(POSTERIOR, LABELS).tolist() == [0, 1, 2, -1]
    assert relabel(POSTERIOR, LABELS, 0.65).tolist() == [0, 1, 1, -1]
    assert relabel(POSTERIOR, LABELS, 0.4).tolist() == [0, 1, 2, 0]


def test_prints_well():
    """How many, and the first ten of them with their probabilities."""
    n = 40
    posterior = np.column_stack([np.linspace(0.1, 0.2, n), 1 - np.linspace(0.1, 0.2, n)])
    lines = str(find_suspects(posterior, np.zeros(n, int), ["cat", "dog"])).splitlines()
    assert lines[0] == "34 of 40 labels (85.0%) are probably wrong."
    assert lines[2].split() == ["0", "cat", "dog", "90.0%"]
    assert len(lines) == 13
    assert lines[-1] == "... and 24 more"
    none = str(find_suspects(np.eye(2), [0, 1]))
    assert none == "0 of 2 labels (0.0%) are probably wrong."


@pytest.mark.parametrize(
    ("posterior", "labels", "classes", "message"),
    [
        ([[0.5, 0.6]], [0], None, "sum to 1, but row 0"),
        (POSTERIOR, [0, 1], None, "one for each example"),
        (POSTERIOR, [0, 1, 2, 3], None, "from 0 to 3|range from"),
        (POSTERIOR, ["a"] * 4, None, "class numbers"),
        (POSTERIOR, LABELS, ["a", "b"], "Expected 3 classes, as posterior has, but there are 2"),
    ],
)
def test_bad_input(posterior, labels, classes, message):
    """Each mistake gives one LabelNoiseError with the rule and the value."""
    with pytest.raises(LabelNoiseError, match=message):
        find_suspects(posterior, labels, classes)
