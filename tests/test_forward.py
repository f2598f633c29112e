"""Forward-corrected classifiers."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import softmax
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.estimator_checks import check_estimator
from threadpoolctl import threadpool_limits

from labelnoise import (
    ForwardClassifier,
    LabelNoiseError,
    LabelNoiseWarning,
    transition_error,
)
from labelnoise.clean_class import linear
from labelnoise.noise import pair_flip
from tests.conftest import clusters, pair_matrix, symmetric_matrix

# Checks that scikit-learn leaves out, each with its reason.
DOES_NOT_APPLY = {"check_array_api_input": "runs only where SCIPY_ARRAY_API is set"}


@pytest.fixture(scope="module")
def data():
    """Four classes that overlap a little, with 40% pair noise: X, clean, noisy, T."""
    X, clean = clusters(4, 2000, 0, separation=1.0)
    noisy = pair_flip(clean, 0.4, random_state=0)
    return X, clean, noisy.labels, noisy.transition_matrix


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "est", [ForwardClassifier(), ForwardClassifier(GaussianNB(), max_iter=3, random_state=0)]
)
def test_scikit_learn_checks(est):
    """ForwardClassifier keeps scikit-learn's contract: every check passes but those listed."""
    results = check_estimator(est, on_skip=None)
    skipped = {result["check_name"] for result in results if result["status"] != "passed"}
    assert skipped <= set(DOES_NOT_APPLY)
    assert len(results) > 40


@pytest.mark.parametrize("K", [2, 4])
def test_without_noise_it_is_logistic_regression(data, K):
    """With T = I the solution is scikit-learn's, also for two classes."""
    X, clean, _, _ = data
    X, clean = X[clean < K], clean[clean < K]
    ours = ForwardClassifier(transition_matrix=np.eye(K), C=0.5).fit(X, clean)
    theirs = LogisticRegression(C=0.5, tol=1e-8).fit(X, clean)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-3)


def test_minimises_the_forward_loss_as_on_paper(data):
    """The gradient of ``-sum_n log (T' f(x_n))[y_n] + |w|^2 / 2C`` vanishes at the solution."""
    X, _, noisy, T = data
    est = ForwardClassifier(transition_matrix=T, C=0.1).fit(X, noisy)

    def mean_loss(parameters):
        coef, intercept = parameters[:-4].reshape(4, -1), parameters[-4:]
        chance = softmax(X @ coef.T + intercept, axis=1) @ T
        own = chance[np.arange(len(X)), noisy]
        return (-np.log(own).sum() + (coef**2).sum() / 0.2) / len(X)

    solution = np.concatenate([est.coef_.ravel(), est.intercept_])
    assert np.abs(approx_fprime(solution, mean_loss)).max() < 1e-4
    assert np.abs(approx_fprime(0.9 * solution, mean_loss)).max() > 1e-3


def test_undoes_the_noise(data):
    """With T it predicts nearly as well as from clean labels; without it, far worse."""
    X, clean, noisy, T = data
    train, test = slice(0, 1200), slice(1200, None)

    def accuracy(labels, T):
        est = ForwardClassifier(transition_matrix=T, C=0.1).fit(X[train], labels[train])
        return est.score(X[test], clean[test])

    assert accuracy(noisy, T) > accuracy(clean, np.eye(4)) - 0.02
    assert accuracy(noisy, T) > accuracy(noisy, np.eye(4)) + 0.05


def test_estimates_t_where_none_is_given():
    """By default T is HOC's, which is kept."""
    X, clean = clusters(3, 900, 0)
    noisy = pair_flip(clean, 0.3, random_state=0)
    est = ForwardClassifier().fit(X, noisy.labels)
    np.testing.assert_array_equal(est.transition_matrix_, est.hoc_.transition_matrix_)
    assert transition_error(est.transition_matrix_, noisy.transition_matrix) < 0.15
    assert est.score(X, clean) > 0.99


def test_labels_may_be_strings_and_missing(data):
    """Examples without a label are left out, and the classes keep their names."""
    X, _, noisy, T = data
    names = np.array(["ant", "bee", "cow", "dog"], object)[noisy]
    names[::3] = None
    est = ForwardClassifier(transition_matrix=T).fit(X, names)
    kept = np.arange(len(X)) % 3 > 0
    numbers = ForwardClassifier(transition_matrix=T).fit(X[kept], noisy[kept])
    np.testing.assert_array_equal(est.coef_, numbers.coef_)
    assert est.classes_.tolist() == ["ant", "bee", "cow", "dog"]
    assert set(est.predict(X)) == set(est.classes_)


def test_blocks_threads_and_float32_give_the_same(data, monkeypatch):
    """How the sum over examples is split, and its precision, does not show."""
    X, _, noisy, T = data
    expected = ForwardClassifier(transition_matrix=T).fit(X, noisy).predict_proba(X)
    monkeypatch.setattr(linear, "_BLOCK_BYTES", 50_000)
    with threadpool_limits(3):
        split = ForwardClassifier(transition_matrix=T).fit(X, noisy).predict_proba(X)
    np.testing.assert_allclose(split, expected, atol=1e-4)
    narrow = X.astype(np.float32)
    single = ForwardClassifier(transition_matrix=T).fit(narrow, noisy).predict_proba(narrow)
    np.testing.assert_allclose(single, expected, atol=5e-3)


def test_far_outliers_do_not_overflow():
    """An example that is labelled against all odds has a finite loss, also in float32."""
    X = np.array([[-1.0], [-1.0], [1.0], [1.0], [1e4]] * 20, np.float32)
    y = np.array([0, 0, 1, 1, 0] * 20)
    est = ForwardClassifier(transition_matrix=symmetric_matrix(2, 0.3), C=100).fit(X, y)
    assert np.isfinite(est.coef_).all()
    assert np.isfinite(est.predict_proba(X)).all()


def test_em_agrees_with_the_direct_search(data):
    """A logistic regression trained by EM comes to the predictions of our own."""
    X, _, noisy, T = data
    direct = ForwardClassifier(transition_matrix=T).fit(X, noisy)
    em = ForwardClassifier(LogisticRegression(), transition_matrix=T, random_state=0).fit(X, noisy)
    assert (direct.predict(X) == em.predict(X)).mean() > 0.97
    assert 2 < em.n_iter_ < 30


def test_em_corrects_a_model_that_remembers_its_examples(data):
    """A forest that can learn each label by heart gains from T, too."""
    X, clean, noisy, T = data
    forest = RandomForestClassifier(10, max_features=4, random_state=0)
    train, test = slice(0, 600), slice(600, None)
    plain = forest.fit(X[train], noisy[train]).score(X[test], clean[test])
    est = ForwardClassifier(forest, transition_matrix=T, random_state=0)
    assert est.fit(X[train], noisy[train]).score(X[test], clean[test]) > plain + 0.1


def test_says_when_the_search_did_not_finish(data):
    """A search that runs out of steps warns."""
    X, _, noisy, T = data
    with pytest.warns(LabelNoiseWarning, match="max_iter = 2"):
        ForwardClassifier(transition_matrix=T, max_iter=2).fit(X, noisy)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"transition_matrix": np.eye(3)}, "shape \\(4, 4\\), but its shape is \\(3, 3\\)"),
        ({"transition_matrix": pair_matrix(4, 0.3).T * 2}, "sum to 1, but row 0"),
        ({"transition_matrix": np.eye(4)[[0, 0, 2, 3]]}, "column of 1 is zero"),
        ({"C": 0, "transition_matrix": np.eye(4)}, "C > 0, but C = 0"),
        ({"max_iter": 0}, "max_iter to be a whole number >= 1"),
        ({"estimator": KNeighborsClassifier()}, "sample_weight, but it is of type KNeighbors"),
    ],
)
def test_bad_settings(data, settings, message):
    """Settings are met with the rule and the value."""
    X, _, noisy, _ = data
    with pytest.raises(LabelNoiseError, match=message):
        ForwardClassifier(**{"transition_matrix": np.eye(4), **settings}).fit(X, noisy)
