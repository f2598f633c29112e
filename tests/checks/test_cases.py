"""Cases in which a number would be wrong: each is recognised, and honest data are not accused."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from labelnoise import HOC, LabelNoiseWarning
from labelnoise.noise import class_conditional, symmetric
from tests.conftest import clusters

pytestmark = pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")


@pytest.fixture(scope="module")
def digits():
    """Features, labels of which a fifth are wrong, and true classes."""
    X, y = load_digits(return_X_y=True)
    return X, symmetric(y, 0.2, random_state=0).labels, y


def hidden_layer(X, labels, epochs):
    """Features of a network that was trained on the labels."""
    net = MLPClassifier((256, 64), batch_size=64, max_iter=epochs, random_state=0)
    found = (X - X.mean(axis=0)) / 4
    net.fit(found, labels)
    for weights, bias in zip(net.coefs_[:2], net.intercepts_[:2], strict=True):
        found = np.maximum(found @ weights + bias, 0)
    return found


def names(est, severity):
    return {finding.name for finding in est.diagnostics_ if finding.severity == severity}


def test_honest_data_raise_no_alarm(digits):
    """No serious finding, and a number that is near the truth."""
    X, labels, y = digits
    est = HOC().fit(X, labels)
    assert names(est, "serious") == set()
    assert est.noise_rate_ == pytest.approx((labels != y).mean(), abs=0.03)
    assert "of the labels are wrong" in str(est)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("epochs", [25, 80])
def test_features_that_were_learnt_from_these_labels(digits, epochs):
    """The interval reaches to the truth, or no number is given; the remedy is named."""
    X, labels, y = digits
    est = HOC().fit(hidden_layer(X, labels, epochs), labels)
    assert "learnt" in names(est, "serious")
    low, high = est.confidence_interval().noise_rate
    assert low <= (labels != y).mean() <= high
    finding = est.diagnostics_["learnt"]
    assert "features that have not seen them" in finding.remedy
    assert str(est).index(finding.sentence) < len(str(finding)) + 400
    assert str(est).startswith("SERIOUS")


def test_one_hot_labels_among_the_features(digits):
    """The columns are named, and no number is given, in words or in JSON."""
    X, labels, _ = digits
    est = HOC().fit(np.column_stack([X, 8 * np.eye(10)[labels]]), labels)
    assert "column 64 tells 0" in est.diagnostics_["columns"].sentence
    assert not est.diagnostics_.estimable
    assert "of the labels are wrong" not in str(est)
    assert est.to_dict()["noise_rate"] is None


def test_labels_that_are_all_predicted_are_clean_or_known():
    """Clean labels of separate classes: either, said beside the number, and how to find out."""
    X, y = clusters(3, 600, 0)
    est = HOC(metric="euclidean").fit(X, y)
    assert "learnt" in names(est, "note")
    assert "if the features do not know the labels" in str(est)
    assert "to_verify" in str(est)


@pytest.mark.parametrize("jitter", [0, 0.3, 3])
def test_copies_with_their_labels(digits, jitter):
    """Exact or moved: the interval reaches to the truth."""
    X, labels, y = digits
    rng = np.random.default_rng(0)
    at = np.repeat(np.arange(600), 3)
    near = X[at] + jitter * rng.standard_normal((1800, 64))
    est = HOC().fit(near, labels[at])
    assert "copied labels" in names(est, "serious")
    low, high = est.confidence_interval().noise_rate
    assert low <= est.noise_rate_ <= high
    assert high > (labels != y)[:600].mean() - 0.03


def test_sources_answer_for_copies(digits):
    """With sources=, copies are no neighbours, and nothing is found."""
    X, labels, y = digits
    at = np.repeat(np.arange(600), 3)
    est = HOC().fit(X[at], labels[at], sources=at)
    assert "copied labels" not in names(est, "serious")
    assert est.noise_rate_ == pytest.approx((labels != y)[:600].mean(), abs=0.05)


def nothing(kind):
    """Features and labels from which nothing can be estimated."""
    rng = np.random.default_rng(0)
    X, labels = rng.standard_normal((600, 16)), rng.integers(0, 5, 600)
    if kind == "constant":
        return np.ones((600, 16)), labels
    if kind == "ids":
        return X, np.arange(600)
    return (X, np.arange(600) // 3) if kind == "three" else (X, labels)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("random", "any two examples in"),
        ("constant", "constant"),
        ("ids", "look like ids"),
        ("three", "3.0 examples of each"),
    ],
)
def test_nothing_to_estimate_from(kind, why):
    """No number, but the reason."""
    X, labels = nothing(kind)
    est = HOC(metric="euclidean").fit(X, labels)
    text = str(est)
    assert "cannot be estimated, because" in text
    assert why in text
    assert "of the labels are wrong" not in text


def test_few_examples_are_said():
    """Forty of a class are few, a hundred are not."""
    X, y = clusters(4, 400, 0)
    labels = symmetric(y, 0.2, random_state=0).labels
    assert HOC().fit(X, labels).diagnostics_["size"].severity == "ok"
    assert HOC().fit(X[:160], labels[:160]).diagnostics_["size"].severity == "note"


def test_equal_rows_are_named():
    """Two labels that are given alike, whatever the class."""
    X, y = clusters(3, 2000, 0)
    T = [[0.45, 0.45, 0.1], [0.45, 0.45, 0.1], [0.1, 0.1, 0.8]]
    labels = np.array(["cat", "dog", "fox"])[class_conditional(y, T, random_state=0).labels]
    found = HOC().fit(X, labels).diagnostics_["pairs"]
    assert not found.ok
    assert "cat and dog are labelled alike" in found.sentence
    apart = class_conditional(y, [[0.7, 0.3, 0], [0, 0.7, 0.3], [0.3, 0, 0.7]], random_state=0)
    assert HOC().fit(X, apart.labels).diagnostics_["pairs"].ok


def test_a_class_with_most_labels_wrong():
    """Its row cannot be told, and that is said."""
    X, y = clusters(3, 2000, 0)
    T = [[0.3, 0.7, 0], [0.05, 0.9, 0.05], [0, 0.1, 0.9]]
    with pytest.warns(LabelNoiseWarning, match="not informative: 0"):
        HOC().fit(X, class_conditional(y, T, random_state=0).labels)


@pytest.mark.parametrize(
    ("name", "other", "option"), [("n/a", "b", "'n/a'"), ("", "b", "''"), (-1, 1, "-1")]
)
def test_classes_that_mean_no_label(name, other, option):
    """The option is named; with it the finding is gone."""
    X, y = clusters(3, 600, 0)
    labels = np.array([name, other, "c" if isinstance(name, str) else 2])[y]
    found = HOC(metric="euclidean").fit(X, labels).diagnostics_["names"]
    assert found.severity == "note"
    assert f"unlabeled={option}" in found.remedy
    est = HOC(metric="euclidean", unlabeled=name).fit(X, labels)
    assert est.diagnostics_["names"].severity == "ok"


def test_minus_one_and_one_are_two_classes():
    """As good as others."""
    X, y = clusters(2, 600, 0)
    est = HOC(metric="euclidean").fit(X, np.array([-1, 1])[y])
    assert est.diagnostics_["names"].severity == "ok"


def test_the_other_metric_where_it_predicts_labels_better():
    """Classes that differ in size, not in direction."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 900)
    X = (1 + 3 * y[:, None]) * np.abs(1 + 0.1 * rng.standard_normal((900, 5)))
    labels = symmetric(y, 0.2, random_state=0).labels
    found = HOC().fit(X, labels).diagnostics_["metric"]
    assert not found.ok
    assert "euclidean" in found.remedy
    assert HOC(metric="euclidean").fit(X, labels).diagnostics_["metric"].ok


def test_the_papers_solver_is_judged_by_its_own_objective(digits):
    """A T that minimises it is no wrong optimum, though the likelihood prefers another."""
    X, labels, _ = digits
    est = HOC.paper(n_rounds=10, sample_size=900, random_state=0).fit(X, labels)
    assert est.diagnostics_["fit"].ok
    assert est.diagnostics_["learnt"].severity == "not tested"


def test_no_negative_zero_is_printed():
    """Clean labels: 0.0%, in all findings and lines."""
    X, y = clusters(4, 800, 0)
    est = HOC(metric="euclidean").fit(X, y)
    assert "-0.0%" not in f"{est}{est.diagnostics_}"


def test_findings_are_kept_in_json(digits, tmp_path):
    """Severity, remedy and that there is no number come back."""
    X, labels, _ = digits
    est = HOC().fit(np.column_stack([X, 8 * np.eye(10)[labels]]), labels)
    est.save(tmp_path / "noise.json")
    stored = json.loads((tmp_path / "noise.json").read_text())["diagnostics"]
    assert {"severity", "remedy"} <= set(stored[0])
    loaded = HOC.load(tmp_path / "noise.json")
    assert loaded.diagnostics_ == est.diagnostics_
    assert not loaded.diagnostics_.estimable
    assert "of the labels are wrong" not in str(loaded)
