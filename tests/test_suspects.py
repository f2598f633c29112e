"""Labels that are probably wrong: ranked, weighed, dropped, relabelled."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score

from labelnoise import HOC, LabelNoiseError
from labelnoise.neighbors import nearest_neighbors
from labelnoise.noise import class_conditional, pair_flip
from labelnoise.suspects import Suspect, drop, find_suspects, relabel, reweight
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
    assert found.index.tolist() == [11, 12]
    assert found.given.tolist() == ["a", "b"]
    assert found.suggested.tolist() == ["b", "c"]
    assert found.probability.tolist() == pytest.approx([0.8, 0.7])
    assert found.label_score.tolist()[10:] == pytest.approx([0.9, 0.2, 0.3, np.nan], nan_ok=True)
    assert found.given_label.tolist()[9:] == [None, "a", "a", "b", None]
    assert found.predicted_label.tolist()[9:] == [None, "a", "b", "c", "a"]
    assert find_suspects(POSTERIOR, LABELS).given.tolist() == [0, 1]


def test_a_row_for_every_example():
    """The frame has the data's own index and cleanlab's names; only labelled rows are scored."""
    X, y = clusters(3, 300, 0)
    index = pd.Index([f"photo {i}" for i in range(300)])
    labels = pd.Series(pair_flip(y, 0.2, random_state=0).labels, index, dtype="Int64")
    labels.iloc[:20] = pd.NA
    X[299] = 0  # which has no direction
    with pytest.warns(match="1 examples are zero vectors"):
        est = HOC().fit(pd.DataFrame(X), labels)
    found, frame = est.suspects(), est.suspects().to_frame()
    assert frame.index.equals(index)
    assert list(frame) == list(Suspect._fields[1:])
    scored = frame.iloc[20:299]
    assert frame["given_label"].isna().tolist() == labels.isna().tolist()
    assert (frame["given_label"].iloc[20:] == labels.iloc[20:]).all()
    assert frame["label_score"].isna().sum() == frame["predicted_label"].isna().sum() == 21
    right = est.predict_proba()[np.arange(279), labels.iloc[20:299].astype(int)]
    np.testing.assert_allclose(scored["label_score"], right)
    np.testing.assert_allclose(scored["probability_wrong"], 1 - right)
    assert set(frame.index[frame["is_label_issue"]]) == set(index[found.index])
    issues = scored[scored["is_label_issue"]]
    assert (issues["predicted_label"] != issues["given_label"]).all()
    assert (scored["predicted_label"] == y[20:299]).mean() > 0.95
    assert f"{index[found.index[0]]:>9}" in str(found)


def test_an_index_is_that_of_labels_or_else_of_features():
    """Without a data frame, rows are numbered."""
    X, y = clusters(3, 200, 0)
    table = pd.DataFrame(X, index=range(200, 0, -1))
    for data, labels, expected in (
        (X, y, pd.RangeIndex(200)),
        (table, y.tolist(), table.index),
        (table, pd.Series(y, pd.RangeIndex(5, 205)), pd.RangeIndex(5, 205)),
        (pl.DataFrame(X), pl.Series(y), pd.RangeIndex(200)),
    ):
        assert HOC().fit(data, labels).suspects().to_frame().index.equals(expected)


def test_iterates_over_suspects(fitted):
    """The surest first, as tuples of Python objects, of which pandas makes a table."""
    found = fitted[2].suspects()
    rows = list(found)
    assert len(rows) == len(found)
    assert [row.row for row in rows] == found.index.tolist()
    assert all(type(row.is_label_issue) is bool and row.is_label_issue for row in rows)
    frame = pd.DataFrame(found)
    assert list(frame) == list(Suspect._fields)
    np.testing.assert_allclose(frame["label_score"], 1 - found.probability)
    assert frame["given_label"].tolist() == found.given.tolist()


def test_verified_labels_in_the_frame(fitted):
    """A label that was found to be wrong stays an issue, with the true label; it is no suspect."""
    clean, given, _ = fitted
    est = HOC().fit(load_digits().data, given)
    first, second = est.suspects().index[:2]
    est.verify({int(first): clean[first], int(second): given[second]})
    found, frame = est.suspects(), est.suspects().to_frame()
    assert frame.loc[first].tolist()[:4] == [True, 0, given[first], clean[first]]
    assert frame.loc[second].tolist()[:4] == [False, 1, given[second], given[second]]
    assert not {first, second} & {row.row for row in found}
    assert found.n_labels == 1695


def test_files_have_the_same_columns(fitted, tmp_path):
    """All rows or some, with names or without; what is missing stays empty."""
    found = fitted[2].suspects()
    found.save(tmp_path / "all.csv", names=[f"{i}.png" for i in range(1797)])
    table = pd.read_csv(tmp_path / "all.csv")
    assert list(table) == ["row", "name", *Suspect._fields[1:]]
    assert table["name"].tolist() == [f"{i}.png" for i in range(1797)]
    frame = found.to_frame()
    assert table["label_score"].isna().tolist() == frame["label_score"].isna().tolist()
    np.testing.assert_allclose(table["label_score"], frame["label_score"], atol=1e-6)
    assert table["given_label"][100:].tolist() == frame["given_label"][100:].tolist()
    found.save(tmp_path / "some.tsv", rows=found.index)
    some = pd.read_csv(tmp_path / "some.tsv", sep="\t")
    assert some["row"].tolist() == found.index.tolist()
    assert list(some) == list(Suspect._fields)


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
