"""Several annotators' labels: T for all, T for each, and what is said of bad tables."""

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

from labelnoise import HOC, Consensus, LabelNoiseError, LabelNoiseWarning, transition_error
from labelnoise.estimators.annotators import AnnotatorHOC, label_triples
from labelnoise.noise import symmetric
from labelnoise.solvers import latent, solve
from labelnoise.solvers.latent import LatentClasses
from tests.conftest import clusters, pair_matrix, random_matrix, symmetric_matrix


def annotate(truth, matrices, seed=0, missing=0.0):
    """Labels (N, A) by annotators with the given matrices, -1 where missing."""
    rng = np.random.default_rng(seed)
    labels = np.column_stack(
        [(rng.random((len(truth), 1)) > T.cumsum(1)[truth][:, :-1]).sum(1) for T in matrices]
    )
    return np.where(rng.random(labels.shape) < missing, -1, labels)


@pytest.fixture(scope="module")
def truth():
    return np.random.default_rng(1).choice(3, 3000, p=[0.5, 0.3, 0.2])


@pytest.fixture(scope="module")
def alike(truth):
    """Four annotators with one T between them, a fifth of the labels missing."""
    T = pair_matrix(3, 0.3, 0.1)
    return T, annotate(truth, [T] * 4, missing=0.2)


@pytest.fixture(scope="module")
def unlike(truth):
    """A good annotator, a middling one, one who guesses, and one who is mostly wrong."""
    T = np.stack(
        [
            symmetric_matrix(3, 0.1),
            pair_matrix(3, 0.3),
            np.full((3, 3), 1 / 3),
            pair_matrix(3, 0.8),
            symmetric_matrix(3, 0.3),
        ]
    )
    return T, annotate(truth, T)


def test_one_matrix_for_all(alike, truth):
    """Alike annotators: T, p and the noise rate to sampling error, and nothing to warn of."""
    T, labels = alike
    est = AnnotatorHOC(unlabeled=-1).fit(labels)
    assert transition_error(est.transition_matrix_, T) < 0.05
    np.testing.assert_allclose(est.class_prior_, [0.5, 0.3, 0.2], atol=0.03)
    given = labels >= 0
    wrong = (labels != truth[:, None])[given].mean()
    assert est.noise_rate_ == pytest.approx(wrong, abs=0.02)
    np.testing.assert_allclose(est.noise_rates_, wrong, atol=0.04)
    assert est.transition_matrices_.shape == (4, 3, 3)
    assert est.diagnostics_.ok


def test_three_labels_are_the_triples_of_hoc(truth):
    """With three labels each, one T for all is what HOC finds in the same triples."""
    labels = annotate(truth, [pair_matrix(3, 0.3, 0.1)] * 3)
    est = AnnotatorHOC().fit(labels)
    hoc = HOC().fit_consensus(Consensus.from_labels(labels, 3))
    np.testing.assert_allclose(est.transition_matrix_, hoc.transition_matrix_, atol=1e-4)
    np.testing.assert_allclose(est.class_prior_, hoc.class_prior_, atol=1e-4)


def test_a_matrix_for_each(unlike, truth):
    """A guesser and an adversary are found as such, and the vote is beaten."""
    T, labels = unlike
    est = AnnotatorHOC(per_annotator=True).fit(labels)
    for found, true in zip(est.transition_matrices_, T, strict=True):
        assert transition_error(found, true) < 0.15
    np.testing.assert_allclose(est.noise_rates_, (labels != truth[:, None]).mean(0), atol=0.03)
    np.testing.assert_allclose(est.transition_matrix_, T.mean(axis=0), atol=0.05)
    vote = np.stack([(labels == j).sum(axis=1) for j in range(3)], axis=1).argmax(axis=1)
    assert (est.predict() == truth).mean() > (vote == truth).mean() + 0.03
    assert est.diagnostics_["overlap"].ok
    assert est.diagnostics_["independence"].ok


def test_different_annotators_are_noticed(unlike, alike):
    """One T for all says so where it does not describe them, and only there."""
    _, labels = unlike
    with pytest.warns(LabelNoiseWarning) as said:
        AnnotatorHOC().fit(labels)
    assert any("per_annotator=True" in str(one.message) for one in said)


def test_shrinkage_follows_how_much_annotators_differ(alike, unlike):
    """Matrices that are alike are drawn together, matrices that are not are left apart."""
    T, labels = alike
    together = AnnotatorHOC(per_annotator=True, unlabeled=-1).fit(labels)
    apart = AnnotatorHOC(per_annotator=True, unlabeled=-1, shrinkage=0).fit(labels)
    assert together.shrinkage_ > 100
    assert apart.shrinkage_ == 0
    assert np.ptp(together.transition_matrices_, axis=0).max() < 0.6 * (
        np.ptp(apart.transition_matrices_, axis=0).max()
    )
    error = [
        np.mean([transition_error(found, T) for found in est.transition_matrices_])
        for est in (together, apart)
    ]
    assert error[0] < error[1]
    assert AnnotatorHOC(per_annotator=True).fit(unlike[1]).shrinkage_ < 20


def test_annotator_with_one_label(unlike):
    """One label does not make a matrix: it is the common one, and a warning says whose."""
    _, labels = unlike
    rare = np.full((len(labels), 1), None)
    rare[7] = 2
    table = np.hstack([labels[:, [0, 1, 4]].astype(object), rare])
    with pytest.warns(LabelNoiseWarning, match=r"1 of 4 annotators gave fewer.*: 3 \(1\)"):
        est = AnnotatorHOC(per_annotator=True).fit(table)
    assert transition_error(est.transition_matrices_[3], est.transition_matrix_) < 0.2
    with pytest.warns(LabelNoiseWarning, match=r"1 of 4 annotators.*: 3 \(0\)"):
        est = AnnotatorHOC(per_annotator=True, unlabeled=9).fit(
            np.where(np.arange(4) == 3, 9, labels[:, [0, 1, 4, 4]])
        )
    np.testing.assert_allclose(est.transition_matrices_[3], est.transition_matrix_, atol=1e-6)


def test_likelihood_is_the_formula(rng):
    """The sparse form is sum_i p_i prod_a T_a[i, l_a], and its posterior the terms of it."""
    K, T, p = 3, np.stack([random_matrix(3, rng) for _ in range(4)]), np.array([0.5, 0.3, 0.2])
    labels = annotate(rng.integers(0, K, 50), T, missing=0.4)
    model = LatentClasses(labels, np.arange(4), K)
    joint = np.array(
        [
            [p[i] * np.prod([T[a, i, k] for a, k in enumerate(row) if k >= 0]) for i in range(K)]
            for row in labels
        ]
    )
    posterior, log_likelihood = model.posterior(T, p)
    np.testing.assert_allclose(posterior[model.row], joint / joint.sum(1, keepdims=True))
    labelled = (labels >= 0).any(axis=1)
    assert log_likelihood == pytest.approx(np.log(joint.sum(1))[labelled].sum())
    counts = model.counts(posterior)
    for a in range(4):
        for k in range(K):
            expected = posterior[model.row][labels[:, a] == k].sum(axis=0)
            np.testing.assert_allclose(counts[a, :, k], expected, atol=1e-12)


def test_em_never_loses_likelihood(unlike):
    """Each step of EM raises the likelihood, from either start."""
    model = LatentClasses(unlike[1], np.arange(5), 3)
    fit = model.votes()[0]
    before = -np.inf
    for _ in range(20):
        fit = model.em(fit, 0.0, 1)
        assert fit.objective >= before
        before = fit.objective


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")  # not informative
@pytest.mark.parametrize(
    ("fails", "seeds"), [("vote", [1]), ("triples", [6]), ("both", [20, 30, 48])]
)
def test_some_start_finds_what_the_others_miss(fails, seeds):
    """EM from the triples or the vote ends in a clearly worse optimum, the estimator does not.

    In which of several cases both do depends on how a machine rounds.
    """
    A, K, gained = 4, 8, []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        T = 0.2 * np.eye(K) + 0.8 * rng.dirichlet(np.full(K, 0.15), (A, K))
        labels = annotate(rng.choice(K, 700, p=np.full(K, 1 / K)), T, seed + 1000)
        model = LatentClasses(labels, np.arange(A), K)
        solution = solve(label_triples(labels, K))
        common = np.repeat(solution.transition_matrix[None], A, axis=0)
        starts = {
            "vote": model.votes()[0],
            "triples": model.start(common, solution.class_prior, ""),
        }
        reached = {name: model.em(start, 0.0, 500).objective for name, start in starts.items()}
        est = AnnotatorHOC(per_annotator=True, shrinkage=0).fit(labels)
        own = model.posterior(est.transition_matrices_, est.class_prior_)[1]
        gained.append(own - (max(reached.values()) if fails == "both" else reached[fails]))
        assert own >= max(reached.values()) - 0.5
    assert max(gained) > 20


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")  # not informative
def test_habits_do_not_name_the_classes():
    """The habits of one annotator, which the others do not have, are not taken for the truth."""
    rng = np.random.default_rng(0)
    A, K = 4, 8
    T = 0.2 * np.eye(K) + 0.8 * rng.dirichlet(np.full(K, 0.15), (A, K))
    est = AnnotatorHOC(per_annotator=True).fit(annotate(rng.integers(0, K, 2000), T))
    assert (est.transition_matrix_.argmax(axis=1) != np.arange(K)).any()
    for found, true in zip(est.transition_matrices_, T, strict=True):
        assert transition_error(found, true) < 0.25


def test_triples_weigh_one_an_example():
    """Every example with three labels weighs 1, with all triples of its labels alike."""
    views = np.array([[0, 1, 1, 2], [0, 0, 0, -1], [1, 1, -1, -1]])
    consensus = label_triples(views, 3)
    assert consensus.n_centers == 2
    assert consensus.weights.sum() == pytest.approx(2)
    triples, shares = consensus.sorted_triples()
    found = {tuple(t): 2 * w for t, w in zip(triples.tolist(), shares.tolist(), strict=True)}
    assert found == pytest.approx({(0, 0, 0): 1, (0, 1, 1): 0.25, (0, 1, 2): 0.5, (1, 1, 2): 0.25})
    many = label_triples(np.random.default_rng(0).integers(0, 3, (5, 40)), 3)
    assert many.weights.sum() == pytest.approx(5)


def test_any_kind_of_label(alike):
    """Numbers with NaN, strings with None or NaN, data frames: one result, with names kept."""
    labels = alike[1][:1000]
    plain = AnnotatorHOC(unlabeled=-1).fit(labels)
    missing = labels < 0
    names = np.array(["ant", "bee", "cat"])
    strings = np.where(missing, None, names[labels].astype(object))
    objects = np.where(missing, pd.NA, labels.astype(object))
    for table, classes in (
        (np.where(missing, np.nan, labels), [0, 1, 2]),
        (strings, names),
        (np.where(missing, np.nan, strings).tolist(), names),
        (pl.DataFrame(strings.tolist(), orient="row"), names),
        (pd.DataFrame(objects, columns=list("pqrs")).astype("Int64"), [0, 1, 2]),
    ):
        est = AnnotatorHOC().fit(table)
        np.testing.assert_array_equal(est.transition_matrix_, plain.transition_matrix_)
        np.testing.assert_array_equal(est.predict_proba(table), plain.predict_proba(labels))
        assert est.classes_.tolist() == list(classes)
        assert set(est.predict()) <= set(classes)
    assert est.annotators_.tolist() == list("pqrs")


def test_missing_class_keeps_its_place(alike):
    """`classes` fixes the order, and a class without labels gets the identity's row."""
    T, labels = alike
    with pytest.warns(LabelNoiseWarning, match="label 7 never occurs"):
        est = AnnotatorHOC(unlabeled=-1, classes=[2, 7, 1, 0]).fit(labels)
    assert est.class_prior_[1] == 0
    np.testing.assert_array_equal(est.transition_matrix_[1], np.eye(4)[1])
    keep = np.ix_([3, 2, 0], [3, 2, 0])
    assert transition_error(est.transition_matrix_[keep], T) < 0.05
    np.testing.assert_allclose(est.predict_proba().sum(axis=1), 1)


def test_new_examples(alike, unlike):
    """New rows are judged as the old ones were; with one T, by any number of annotators."""
    est = AnnotatorHOC(unlabeled=-1).fit(alike[1])
    np.testing.assert_allclose(est.predict_proba(alike[1]), est.predict_proba(), atol=1e-12)
    none = est.predict_proba(np.full((1, 6), -1))
    np.testing.assert_allclose(none[0], est.class_prior_, atol=1e-12)
    each = AnnotatorHOC(per_annotator=True).fit(unlike[1])
    # Who mostly says i + 1 for a true i is taken at that word.
    assert each.predict_proba([[None, None, None, 1, None]])[0].argmax() == 0
    with pytest.raises(LabelNoiseError, match=r"5 annotators of fit.*shape \(1, 2\)"):
        each.predict([[0, 1]])


def test_two_labels_are_refused_without_features():
    """Two labels do not identify T; with X they do."""
    X, y = clusters(3, 2000, 0)
    T = np.stack([symmetric_matrix(3, 0.2), pair_matrix(3, 0.4)])
    labels = annotate(y, T)
    with pytest.raises(LabelNoiseError, match=r"two labels do not identify T.*give X"):
        AnnotatorHOC().fit(labels)
    est = AnnotatorHOC(per_annotator=True).fit(labels, X=X)
    assert (est.predict() == y).mean() > 0.99
    for one, true in zip(est.transition_matrices_, T, strict=True):
        assert transition_error(one, true) < 0.12


def test_neighbours_of_another_class_do_no_harm():
    """Neighbours that often differ in class bias the triples, but not two labels with X."""
    X, y = clusters(4, 5000, 3, separation=0.5)
    T = symmetric_matrix(4, 0.3)
    labels = annotate(y, [T, T])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelNoiseWarning)
        hoc = HOC(refine=False).fit(X, labels[:, 0])
        est = AnnotatorHOC().fit(labels, X=X)
    assert transition_error(est.transition_matrix_, T) < 0.1
    assert transition_error(hoc.transition_matrix_, T) > 0.15


def test_copies_of_the_same_source():
    """A frame's neighbour in its own video, labelled by copying, says nothing of its class."""
    X, y = clusters(3, 1000, 0)
    video = np.repeat(np.arange(1000), 2)
    T = symmetric_matrix(3, 0.3)
    labels = annotate(y, [T, T])[video]
    frames = X[video] + 0.01 * np.random.default_rng(0).standard_normal((2000, X.shape[1]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelNoiseWarning)
        est = AnnotatorHOC().fit(labels, X=frames, sources=video)
    assert transition_error(est.transition_matrix_, T) < 0.1


def test_a_long_table(alike):
    """pandas' pivot of a row for each label gives what the table gives, with names."""
    labels = alike[1][:500]
    example, annotator = np.nonzero(labels >= 0)
    label = np.array(["ant", "bee", "cat"])[labels[example, annotator]]
    names = np.array(list("pqrs"))[annotator]
    table = pd.DataFrame({"example": example, "annotator": names, "label": label})
    table = table.pivot(index="example", columns="annotator", values="label")
    est = AnnotatorHOC().fit(table)
    plain = AnnotatorHOC(unlabeled=-1).fit(labels)
    np.testing.assert_allclose(est.transition_matrix_, plain.transition_matrix_)
    assert est.annotators_.tolist() == list("pqrs")
    assert est.classes_.tolist() == ["ant", "bee", "cat"]


def test_saved_and_loaded(unlike, tmp_path):
    """A file judges new labels as the estimate did, and has no examples of its own."""
    names = pd.DataFrame(unlike[1], columns=list("pqrst"))
    est = AnnotatorHOC(per_annotator=True, classes=range(3), shrinkage=np.float64(2)).fit(names)
    est.save(tmp_path / "crew.json")
    loaded = AnnotatorHOC.load(tmp_path / "crew.json")
    np.testing.assert_array_equal(loaded.predict_proba(names), est.predict_proba(names))
    np.testing.assert_array_equal(loaded.noise_rates_, est.noise_rates_)
    assert loaded.annotators_.tolist() == list("pqrst")
    assert loaded.diagnostics_ == est.diagnostics_
    assert loaded.shrinkage_ == 2
    with pytest.raises(LabelNoiseError, match="not in a file"):
        loaded.predict()
    content = json.loads((tmp_path / "crew.json").read_text())
    for change in ({"annotators": list("pq")}, {"class_prior": [1, 0]}, {"shrinkage": "much"}):
        (tmp_path / "bad.json").write_text(json.dumps(content | change))
        with pytest.raises(LabelNoiseError, match=r"AnnotatorHOC.save, or by .*, but .*bad\.json"):
            AnnotatorHOC.load(tmp_path / "bad.json")


def test_annotators_without_common_examples(truth):
    """Two crews that never meet are told so; each crew's matrices are found all the same."""
    T = [symmetric_matrix(3, 0.2)] * 3 + [pair_matrix(3, 0.35)] * 3
    labels = annotate(truth, T)
    half = np.arange(len(truth)) < 1500
    labels[np.ix_(half, [3, 4, 5])] = -1
    labels[np.ix_(~half, [0, 1, 2])] = -1
    with pytest.warns(LabelNoiseWarning, match=r"2 sets that have no example in common.*3, 4, 5"):
        est = AnnotatorHOC(per_annotator=True, unlabeled=-1).fit(labels)
    for found, true in zip(est.transition_matrices_, T, strict=True):
        assert transition_error(found, true) < 0.2


def test_copied_labels_are_noticed(truth):
    """An annotator who copies another agrees with it more than independent errors explain."""
    labels = annotate(truth, [symmetric_matrix(3, 0.3)] * 5)
    labels[:, 1] = np.where(np.arange(3000) % 3 > 0, labels[:, 0], labels[:, 1])
    with pytest.warns(LabelNoiseWarning, match="does not explain how often annotators agree"):
        AnnotatorHOC(per_annotator=True).fit(labels)


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")  # of the classes, too
def test_few_triples_warn():
    """A handful of examples with three labels is said to be too few."""
    labels = annotate(np.arange(200) % 2, [symmetric_matrix(2, 0.1)] * 3)
    labels[12:, 2] = -1
    with pytest.warns(LabelNoiseWarning, match="12 of 200 labelled examples have at least three"):
        AnnotatorHOC(unlabeled=-1).fit(labels)


def test_settings_are_scikit_learns(alike):
    """Parameters are stored untouched and cloned; the result is deterministic."""
    est = AnnotatorHOC(per_annotator=True, unlabeled=-1, shrinkage=5)
    assert clone(est).get_params() == est.get_params()
    first = est.fit(alike[1]).transition_matrices_
    assert est.shrinkage_ == 5
    np.testing.assert_array_equal(clone(est).fit(alike[1]).transition_matrices_, first)


def test_steps_that_run_out_are_said(alike, monkeypatch):
    """A limit of steps that is too low gives a warning."""
    monkeypatch.setattr(latent.LatentClasses.em, "__defaults__", (1,))
    monkeypatch.setattr(latent, "_START_STEPS", 1)
    with pytest.warns(LabelNoiseWarning, match="ran out of its"):
        AnnotatorHOC(per_annotator=True, unlabeled=-1).fit(alike[1])


def test_prints_a_summary():
    """The least exact annotator comes first; before fit it is scikit-learn's line."""
    truth = np.random.default_rng(1).integers(0, 3, 900)
    each = [symmetric(truth, rate, random_state=a).labels for a, rate in enumerate((0.1, 0.3, 0.2))]
    est = AnnotatorHOC(per_annotator=True)
    assert str(est) == "AnnotatorHOC(per_annotator=True)"
    lines = str(est.fit(np.column_stack(each))).splitlines()
    assert lines[0].startswith(f"{est.noise_rate_:.1%} of the labels are wrong")
    assert [line.split(":")[0].strip() for line in lines[2:5]] == ["1", "2", "0"]
    assert "Most frequent confusions:" in lines
    assert str(est.diagnostics_).splitlines()[-1] == lines[-1]


TABLE = np.array([[0, 1, 0], [1, 1, 0], [0, 0, 0], [1, 1, 1]])


@pytest.mark.parametrize(
    ("labels", "settings", "more", "message"),
    [
        ([0, 1, 0], {}, {}, r"\(n_examples, n_annotators\).*shape \(3,\)"),
        ([[0, 1], [0]], {}, {}, r"shape \(2,\)"),
        (np.zeros((0, 3)), {}, {}, r"shape \(0, 3\)"),
        (np.zeros((5, 3), int), {}, {}, r"number of classes is 1: \[0\]"),
        ([[None] * 3] * 4, {}, {}, "number of classes is 0"),
        (TABLE[:, :1], {}, {}, "none has more than 1.*use HOC"),
        (TABLE[:, :2], {}, {}, "none has more than 2, and two labels do not identify T"),
        (TABLE / 2, {}, {}, "fractional"),
        (TABLE, {"classes": [0, 2]}, {}, r"classes = \[0, 2\]"),
        (TABLE, {"metric": "manhattan"}, {}, "metric = 'manhattan'"),
        (TABLE, {"shrinkage": -1}, {}, "shrinkage = -1"),
        (TABLE, {"shrinkage": "some"}, {}, "shrinkage = 'some'"),
        (TABLE, {}, {"X": np.eye(5)}, "X has 5 rows and labels 4"),
        (TABLE, {}, {"X": np.full((4, 2), np.nan)}, "NaN"),
        (TABLE[:, :1], {}, {"X": np.eye(4)}, "use HOC"),
    ],
)
def test_bad_input(labels, settings, more, message):
    """Each mistake gives one LabelNoiseError with the rule and the value."""
    with pytest.raises(LabelNoiseError, match=message):
        AnnotatorHOC(**settings).fit(labels, **more)
