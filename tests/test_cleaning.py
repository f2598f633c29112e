"""The posterior of the clean class, the suspects it names, and what one does with them."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import average_precision_score
from sklearn.neighbors import kneighbors_graph

from labelnoise import LabelNoiseError, cleaning, transition_error
from labelnoise.cleaning import (
    ask_order,
    clean_posterior,
    counted_transition_matrix,
    drop,
    find_suspects,
    fit_clean_model,
    relabel,
    reweight,
    verify,
    with_own_label,
)
from labelnoise.noise import pair_flip
from tests.conftest import clusters, pair_matrix, symmetric_matrix

HAND = np.array([[0.9, 0.1, 0.0], [0.2, 0.7, 0.1], [0.3, 0.3, 0.4], [0.1, 0.1, 0.8]])
HAND_LABELS = np.array([0, 0, 1, -1])


def precision(posterior, labels, wrong):
    return average_precision_score(wrong, 1 - reweight(posterior, labels))


@pytest.fixture(scope="module")
def data():
    """Four classes that overlap a little, with 30% pair noise: X, clean, noisy, T."""
    X, clean = clusters(4, 1200, 0, separation=1.0)
    noisy = pair_flip(clean, 0.3, random_state=0)
    return X, clean, noisy.labels, noisy.transition_matrix


@pytest.fixture(scope="module")
def model(data):
    X, _, noisy, T = data
    return fit_clean_model(X[:1000], noisy[:1000], T)


@pytest.fixture(scope="module")
def drawn():
    """Classes drawn from a known posterior: posterior, labels, clean."""
    rng = np.random.default_rng(0)
    n, K = 20_000, 4
    T, clean = pair_matrix(K, 0.3, background=0.05), rng.integers(K, size=n)
    labels = (rng.random((n, 1)) > np.cumsum(T, axis=1)[clean]).sum(axis=1)
    # Two further looks through T: what is around the example, with an exact posterior.
    looks = (rng.random((2, n, 1)) > np.cumsum(T, axis=1)[clean]).sum(axis=2)
    eta = T.T[looks[0]] * T.T[looks[1]]
    return with_own_label(eta / eta.sum(axis=1, keepdims=True), labels, T), labels, clean


def test_own_label_follows_bayes_rule():
    """Label 0 is three times as frequent in class 0: from even odds, 3 to 1."""
    T = np.array([[0.9, 0.1], [0.3, 0.7]])
    posterior = with_own_label(np.full((3, 2), 0.5), np.array([0, 1, -1]), T)
    np.testing.assert_allclose(posterior, [[0.75, 0.25], [0.125, 0.875], [0.5, 0.5]])


def test_own_label_is_not_in_its_own_evidence(data, monkeypatch):
    """Another label of one example leaves its eta as it was, and moves those around it."""
    X, _, noisy, T = data
    X, noisy = X[:300], noisy[:300]
    # These two are fitted to all labels: a few numbers in common, held fixed here.
    layer = SimpleNamespace(transition_matrix=T)
    monkeypatch.setattr(cleaning, "fit_transition_layer", lambda *args: layer)
    monkeypatch.setattr(
        cleaning, "minimize_scalar", lambda *args, **options: SimpleNamespace(x=0.5)
    )
    before = fit_clean_model(X, noisy, T).out_of_fold
    changed = noisy.copy()
    changed[7] = (noisy[7] + 2) % 4
    after = fit_clean_model(X, changed, T).out_of_fold
    np.testing.assert_array_equal(after[7], before[7])
    assert np.abs(after - before).max() > 1e-3


def test_finds_the_wrong_labels(data):
    """The ranking beats a vote of neighbours by far, and suggestions are mostly right."""
    X, clean, noisy, T = data
    wrong = noisy != clean
    near = cleaning.nearest_neighbors(X, 10).indices
    vote = average_precision_score(wrong, (noisy[near] != noisy[:, None]).mean(axis=1))
    posterior = clean_posterior(X, noisy, T)
    suspects = find_suspects(posterior, noisy)
    assert precision(posterior, noisy, wrong) > max(0.9, vote + 0.1)
    assert (suspects.suggested == clean[suspects.index])[suspects.probability > 0.8].mean() > 0.9
    assert suspects.expected_errors == pytest.approx(wrong.sum(), rel=0.15)


def test_withstands_a_wrong_T(data):
    """T with far too much noise, or with none, still ranks well."""
    X, clean, noisy, _ = data
    for T in (symmetric_matrix(4, 0.6), np.eye(4)):
        assert precision(clean_posterior(X, noisy, T), noisy, noisy != clean) > 0.85


def test_neighbors_alone_will_do(data):
    """Without features the neighbours' labels decide, as rows or as a graph."""
    X, clean, noisy, T = data
    graph = kneighbors_graph(X, 30, mode="distance")
    rows = graph.indices.reshape(len(X), 30)
    posterior = clean_posterior(None, noisy, T, neighbors=graph)
    assert precision(posterior, noisy, noisy != clean) > 0.8
    nearest_first = np.take_along_axis(rows, graph.data.reshape(rows.shape).argsort(axis=1), 1)
    again = clean_posterior(None, noisy, T, neighbors=nearest_first)
    np.testing.assert_allclose(again, posterior, atol=1e-6)


def test_unlabelled_examples_are_predicted_but_not_suspected(data):
    """They have no vote and no error; `relabel` fills them in."""
    X, clean, noisy, T = data
    missing = np.arange(len(X)) % 4 == 0
    labels = np.where(missing, -1, noisy)
    posterior = clean_posterior(X, labels, T)
    suspects = find_suspects(posterior, labels)
    assert not missing[suspects.index].any()
    assert suspects.n_labels == (~missing).sum()
    assert (relabel(posterior, labels)[missing] == clean[missing]).mean() > 0.85


def test_predicts_new_examples(data, model):
    """New rows are told by their neighbours in training."""
    X, clean, _, _ = data
    assert (model.predict_proba(X[1000:]).argmax(axis=1) == clean[1000:]).mean() > 0.85


def test_counted_T_agrees_with_the_expected_errors(data):
    """Its noise rate is the mean probability of being wrong, and it is nearer than a poor T."""
    X, _, noisy, truth = data
    poor = 0.7 * truth + 0.3 / 4
    posterior = clean_posterior(X, noisy, poor)
    T = counted_transition_matrix(posterior, noisy)
    rate = 1 - posterior.mean(axis=0) @ np.diag(T)
    assert rate == pytest.approx(find_suspects(posterior, noisy).expected_errors / len(X))
    assert transition_error(T, truth) < 0.7 * transition_error(poor, truth)


def test_counted_T_of_a_class_without_examples_is_that_of_the_identity():
    T = counted_transition_matrix([[1, 0, 0], [0.5, 0.5, 0]], [0, 1])
    np.testing.assert_allclose(T, [[2 / 3, 1 / 3, 0], [0, 1, 0], [0, 0, 1]])


def test_suspects_speak_the_users_language():
    """Row, label, suggestion and probability, the surest first, as many as are expected."""
    suspects = find_suspects(HAND, HAND_LABELS, ["cat", "dog", "emu"])
    assert suspects.expected_errors == pytest.approx(0.1 + 0.8 + 0.7)
    columns = {name: column.tolist() for name, column in suspects.columns().items()}
    chances = columns.pop("probability")
    assert columns == {"index": [1, 2], "given": ["cat", "dog"], "suggested": ["dog", "emu"]}
    assert chances == pytest.approx([0.8, 0.7])
    assert len(suspects) == 2
    assert "2 of 3 labels (53.3%) are probably wrong." in str(suspects)
    assert "1  cat           dog           80.0%" in str(suspects)


def test_no_suspects_print_as_one_line():
    assert str(find_suspects([[1.0, 0.0]], [0])).count("\n") == 0


def test_what_one_does_with_a_posterior():
    """Weights, who stays, new labels, and whom to ask about first."""
    np.testing.assert_allclose(reweight(HAND, HAND_LABELS), [0.9, 0.2, 0.3, 0])
    assert drop(HAND, HAND_LABELS).tolist() == [True, False, False, False]
    assert drop(HAND, HAND_LABELS, least=0.25).tolist() == [True, False, True, False]
    assert relabel(HAND, HAND_LABELS).tolist() == [0, 1, 1, 2]
    assert relabel(HAND, HAND_LABELS, least=0.75).tolist() == [0, 0, 1, 2]
    assert ask_order(HAND).tolist() == [2, 1, 3, 0]


def test_verified_labels_that_agree_change_little(drawn):
    """A right posterior is confirmed, and stays nearly what it was."""
    posterior, labels, clean = drawn
    found = verify(posterior, labels, dict(enumerate(clean[:300].tolist())))
    assert found.finding.ok
    assert "agrees with" in found.finding.sentence
    assert np.abs(found.posterior - posterior)[300:].mean() < 0.02
    np.testing.assert_array_equal(found.posterior[:300], np.eye(4)[clean[:300]])


@pytest.mark.parametrize("asked", ["all", "doubtful"])
def test_verified_labels_put_a_wrong_posterior_right(drawn, asked):
    """Too much trust in labels is found out and undone, also from doubtful labels alone."""
    truth, labels, clean = drawn
    skewed = truth**0.6 * np.where(np.eye(4)[labels] > 0, 6, 1)
    skewed /= skewed.sum(axis=1, keepdims=True)
    rows = np.flatnonzero(reweight(skewed, labels) < (2 if asked == "all" else 0.8))[:300]
    found = verify(skewed, labels, dict(zip(rows.tolist(), clean[rows].tolist(), strict=True)))
    assert not found.finding.ok
    assert "more than" in found.finding.sentence
    right = [reweight(p, labels) for p in (truth, skewed, found.posterior)]
    assert np.abs(right[2] - right[0]).mean() < 0.4 * np.abs(right[1] - right[0]).mean()
    T = pair_matrix(4, 0.3, background=0.05)
    before = transition_error(counted_transition_matrix(skewed, labels), T)
    assert transition_error(found.transition_matrix, T) < 0.5 * before


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit_clean_model(None, [0, 1], np.eye(2)), "Expected X or neighbors"),
        (lambda: fit_clean_model(np.eye(3), [0, 1], np.eye(2)), "label for each of the 3"),
        (lambda: fit_clean_model(np.eye(3), [0, 0, 0], np.eye(2)), "at least two classes"),
        (lambda: fit_clean_model(np.eye(3), [0, 1, 2], np.eye(2)), "class numbers"),
        (lambda: fit_clean_model(np.eye(3), [0, 1, 1], 2 * np.eye(2)), "sum to 1"),
        (lambda: find_suspects(HAND, HAND_LABELS, ["a", "b"]), "Expected 3 classes"),
        (lambda: reweight(2 * HAND, HAND_LABELS), "sum to 1, but row 0"),
        (lambda: reweight(HAND, [0, 1]), "label for each of the 4"),
        (lambda: ask_order(HAND[0]), "of shape"),
        (lambda: verify(HAND, HAND_LABELS, {}), "row numbers"),
        (lambda: verify(HAND, HAND_LABELS, {4: 0}), "from 0 to 3"),
        (lambda: verify(HAND, HAND_LABELS, {0: 3}), "class numbers"),
    ],
)
def test_bad_input_is_met_at_the_door(call, message):
    with pytest.raises(LabelNoiseError, match=message):
        call()


def test_new_examples_must_fit_the_model(data, model):
    X, _, noisy, T = data
    with pytest.raises(LabelNoiseError, match="16 features, as in training"):
        model.predict_proba(X[:5, :3])
    near = cleaning.nearest_neighbors(X, 5).indices
    with pytest.raises(LabelNoiseError, match="fitted to neighbors alone"):
        fit_clean_model(None, noisy, T, neighbors=near).predict_proba(X)
