"""Datalab's issue type, and the algebra of noise matrices by cleanlab's own functions."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph

from labelnoise import HOC, from_cleanlab, to_cleanlab
from labelnoise.noise import class_conditional, symmetric
from tests.conftest import imbalanced_prior, pair_matrix, random_matrix, symmetric_matrix

pytest.importorskip("cleanlab")
pytest.importorskip("datasets")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of packages that cleanlab imports
    from cleanlab import Datalab
    from cleanlab.benchmarking.noise_generation import (
        generate_noise_matrix_from_trace,
        generate_noisy_labels,
        noise_matrix_is_valid,
    )
    from cleanlab.internal.latent_algebra import (
        compute_inv_noise_matrix,
        compute_noise_matrix_from_inverse,
        compute_ps_py_inv_noise_matrix,
        compute_py,
        compute_py_inv_noise_matrix,
        compute_pyx,
    )
    from datasets import ClassLabel, Dataset, Features, Value

    import labelnoise.integrations.cleanlab  # noqa: F401

K = 5


@pytest.fixture(scope="module")
def digits():
    """Features, true digits, and labels that are wrong in a fifth of the cases."""
    X, y = load_digits(return_X_y=True)
    return X, y, symmetric(y, 0.2, random_state=0).labels


@pytest.fixture(scope="module")
def lab(digits):
    X, _, labels = digits
    lab = Datalab({"label": [f"digit {k}" for k in labels]}, label_name="label", verbosity=0)
    lab.find_issues(issue_types={"hoc": {"features": X}})
    return lab


def test_datalab_finds_what_hoc_finds(lab, digits):
    """Scores, issues, T and names are those of the estimator, on the rows of the data."""
    X, y, labels = digits
    est = HOC().fit(X, labels)
    frame, found = lab.get_issues("hoc"), est.suspects()
    assert list(frame) == ["is_hoc_issue", "hoc_score"]
    assert sorted(frame.index[frame["is_hoc_issue"]]) == sorted(found.index)
    np.testing.assert_allclose(frame["hoc_score"], found.label_score)
    assert (labels != y)[frame["is_hoc_issue"]].mean() > 0.9
    info = lab.get_info("hoc")
    np.testing.assert_allclose(info["transition_matrix"], est.transition_matrix_)
    np.testing.assert_allclose(from_cleanlab(info["noise_matrix"]), est.transition_matrix_)
    assert info["given_label"] == [f"digit {k}" for k in labels]
    assert info["predicted_label"] == [f"digit {k}" for k in found.predicted_label]
    summary = lab.get_issue_summary("hoc").iloc[0]
    assert summary["score"] == pytest.approx(1 - est.noise_rate_)
    assert summary["num_issues"] == len(found)


def test_datalab_reports_it(lab, capsys):
    """The report of Datalab has a section on it, with the noise rate."""
    lab.report(num_examples=3)
    said = capsys.readouterr().out
    assert "hoc issues" in said
    assert f"noise_rate: {lab.get_info('hoc')['noise_rate']}" in said


def test_datalab_hands_a_graph_and_settings_through(digits):
    """A graph of neighbours does instead of features; other parameters are the estimator's."""
    X, _, labels = digits
    graph = kneighbors_graph(X, 5, mode="distance")
    lab = Datalab({"label": labels.tolist()}, label_name="label", verbosity=0)
    lab.find_issues(issue_types={"hoc": {"knn_graph": graph, "n_neighbors": 3}})
    est = HOC(n_neighbors=3).fit(None, labels, neighbors=graph)
    np.testing.assert_allclose(lab.get_info("hoc")["transition_matrix"], est.transition_matrix_)


def test_datalab_with_a_class_that_does_not_occur(digits):
    """Class numbers are those of the ClassLabel, not of the labels that occur."""
    X, _, labels = digits
    kept = labels != 4
    names = [f"digit {k}" for k in range(10)]
    features = Features({"label": ClassLabel(names=names), "id": Value("int64")})
    rows = {"label": labels[kept].tolist(), "id": list(range(kept.sum()))}
    lab = Datalab(Dataset.from_dict(rows, features), label_name="label", verbosity=0)
    with pytest.warns(match="digit 4|label 4"):
        lab.find_issues(issue_types={"hoc": {"features": X[kept]}})
    info = lab.get_info("hoc")
    assert info["transition_matrix"].shape == (10, 10)
    assert info["given_label"] == [names[k] for k in labels[kept]]


def test_datalab_says_what_is_missing(lab, capsys):
    """Without features or a graph, one sentence says what to hand over."""
    Datalab({"label": [0, 1] * 50}, label_name="label").find_issues(issue_types={"hoc": {}})
    assert "Error in hoc: Expected features or a knn_graph" in capsys.readouterr().out


MODELS = {
    "symmetric": (symmetric_matrix(K, 0.3), np.full(K, 1 / K)),
    "pair": (pair_matrix(K, 0.3), imbalanced_prior(K, 4)),
    "any": (random_matrix(K, np.random.default_rng(1)), imbalanced_prior(K, 3)),
}


@pytest.mark.parametrize(("T", "p"), MODELS.values(), ids=MODELS)
def test_the_algebra_agrees(T, p):
    """Joint, inverse and prior: cleanlab's functions take and give what the estimator has."""
    est = HOC()
    est.transition_matrix_, est.class_prior_ = T, p
    noise_matrix, inverse = to_cleanlab(T), est.inverse_transition_matrix_.T
    shares = est.joint_.sum(axis=0)  # of each label
    np.testing.assert_allclose(compute_inv_noise_matrix(p, noise_matrix), inverse, atol=1e-5)
    np.testing.assert_allclose(
        from_cleanlab(compute_noise_matrix_from_inverse(shares, inverse)), T, atol=1e-5
    )
    prior, back = compute_py_inv_noise_matrix(shares, noise_matrix)
    np.testing.assert_allclose(prior, p, atol=1e-5)
    np.testing.assert_allclose(back, inverse, atol=1e-5)
    counts = np.round(1e6 * shares).astype(int)
    for method in ("cnt", "eqn", "marginal", "marginal_ps"):
        found = compute_py(
            shares, noise_matrix, inverse, py_method=method, true_labels_class_counts=1e6 * p
        )
        np.testing.assert_allclose(found, p, atol=1e-4)
    labels = np.repeat(np.arange(K), counts)
    found_shares, found_prior, _ = compute_ps_py_inv_noise_matrix(labels, noise_matrix)
    np.testing.assert_allclose(found_shares, shares, atol=1e-5)
    np.testing.assert_allclose(found_prior, p, atol=1e-4)


@pytest.mark.parametrize(("T", "p"), MODELS.values(), ids=MODELS)
def test_predictions_of_the_clean_class_agree(T, p, rng):
    """cleanlab's P(clean | x) from P(label | x) undoes ours, on posteriors that T made."""
    clean = rng.dirichlet(np.full(K, 0.3), 200)
    inverse = (p[:, None] * T / (p @ T)).T  # rows are labels
    found = compute_pyx(clean @ T, to_cleanlab(T), inverse.T)
    assert found.shape == clean.shape
    np.testing.assert_allclose(found.sum(axis=1), 1)
    top = clean.max(axis=1) > 0.95
    assert (found[top].argmax(axis=1) == clean[top].argmax(axis=1)).all()


@pytest.mark.parametrize(("T", "p"), MODELS.values(), ids=MODELS)
def test_the_noise_that_is_made_is_the_same(T, p, rng):
    """Both generators draw labels by one T, once it is the right way round."""
    clean = np.repeat(np.arange(K), np.round(20_000 * p).astype(int))
    np.random.seed(0)  # noqa: NPY002  cleanlab's generator has no other
    theirs = generate_noisy_labels(clean, to_cleanlab(T))
    ours = class_conditional(clean, T, random_state=0).labels
    for labels in (theirs, ours):
        for i in range(K):
            share = np.bincount(labels[clean == i], minlength=K) / (clean == i).sum()
            deviation = np.sqrt(T[i] * (1 - T[i]) / (clean == i).sum())
            assert (np.abs(share - T[i]) <= 4.5 * deviation + 1e-3).all()


@pytest.mark.parametrize("trace", [0.6 * K, 0.9 * K])
def test_their_random_matrices_are_ours(trace):
    """A noise matrix of a given trace is a T of that trace, valid by both."""
    matrix = generate_noise_matrix_from_trace(K, trace, py=np.full(K, 1 / K), seed=0)
    T = from_cleanlab(matrix)
    assert np.trace(T) == pytest.approx(trace)
    np.testing.assert_allclose(T.sum(axis=1), 1)
    assert noise_matrix_is_valid(to_cleanlab(T), np.full(K, 1 / K))
    np.testing.assert_allclose(to_cleanlab(T), matrix)
