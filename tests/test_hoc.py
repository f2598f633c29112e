"""The estimator as people use it."""

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import kneighbors_graph
from sklearn.utils.estimator_checks import check_estimator

from labelnoise import (
    HOC,
    Consensus,
    LabelNoiseError,
    LabelNoiseWarning,
    transition_error,
)
from labelnoise.neighbors import nearest_neighbors
from labelnoise.noise import class_conditional, pair_flip, symmetric
from tests.conftest import clusters, symmetric_matrix

# Checks that scikit-learn leaves out, each with its reason.
DOES_NOT_APPLY = {
    "check_array_api_input": "the estimator works on NumPy arrays; scikit-learn runs this check "
    "only where SCIPY_ARRAY_API is set"
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "est", [HOC(), HOC.paper(n_rounds=2, sample_size=10, random_state=4)], ids=str
)
def test_scikit_learn_checks(est):
    """HOC keeps scikit-learn's contract: every check passes but those listed."""
    results = check_estimator(est, on_skip=None)
    skipped = {result["check_name"] for result in results if result["status"] != "passed"}
    assert skipped <= set(DOES_NOT_APPLY)
    assert len(results) > 30


@pytest.fixture(scope="module")
def data():
    """Four well-separated classes with 30% pair noise: X, clean, noisy, T."""
    X, y = clusters(4, 2000, 0)
    noisy = pair_flip(y, 0.3, random_state=0)
    return X, y, noisy.labels, noisy.transition_matrix


@pytest.fixture(scope="module")
def est(data):
    """The default, fitted to the data."""
    return HOC().fit(data[0], data[2])


@pytest.fixture(scope="module")
def plain(data):
    """The T of the triples alone, fitted to the data."""
    return HOC(refine=False).fit(data[0], data[2])


@pytest.mark.parametrize("kind", ["est", "plain"])
def test_recovers_t(data, kind, request):
    """Where neighbours share their class, T and the rate are found to sampling error."""
    _, y, noisy, T = data
    est = request.getfixturevalue(kind)
    assert transition_error(est.transition_matrix_, T) < 0.05
    assert est.noise_rate_ == pytest.approx((y != noisy).mean(), abs=0.02)
    np.testing.assert_allclose(est.class_prior_, np.bincount(y) / len(y), atol=0.02)
    assert est.diagnostics_.ok


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")  # moments: a poor fit
@pytest.mark.parametrize("solver", ["likelihood", "moments", "paper"])
def test_each_solver_from_features_to_t(data, solver):
    """Each solver finds T from features and labels."""
    X, _, noisy, T = data
    est = HOC(solver=solver, refine=False, random_state=0).fit(X, noisy)
    assert transition_error(est.transition_matrix_, T) < 0.15


def test_paper_settings(data):
    """HOC.paper() is G rounds of |E| samples with the norms, the same for the same seed."""
    X, _, noisy, T = data
    est = HOC.paper()
    assert (est.solver, est.n_rounds, est.sample_size) == ("paper", 50, 15_000)
    small = HOC.paper(n_rounds=3, sample_size=1000, random_state=1)
    first = small.fit(X, noisy).transition_matrix_
    assert transition_error(first, T) < 0.2
    np.testing.assert_array_equal(clone(small).fit(X, noisy).transition_matrix_, first)


def test_joint_and_inverse(est):
    """The joint sums to 1, and the inverse is P(clean | label) with rows of labels."""
    assert est.joint_.sum() == pytest.approx(1)
    np.testing.assert_allclose(est.joint_.sum(axis=1), est.class_prior_)
    inverse = est.inverse_transition_matrix_
    np.testing.assert_allclose(inverse.sum(axis=1), 1)
    label = est.joint_.sum(axis=0)
    np.testing.assert_allclose(inverse * label[:, None], est.joint_.T)


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")  # of two classes out of four
def test_labels_may_be_anything(data, plain):
    """Strings, pandas, polars, booleans: the same T, with classes_ in the labels' order."""
    X, _, noisy, _ = data
    names = np.array(["cat", "dog", "emu", "fox"])
    for features, labels in (
        (X, names[noisy]),
        (X, names[noisy].astype(object)),
        (pd.DataFrame(X), pd.Series(names[noisy])),
        (pd.DataFrame(X), pd.Series(names[noisy], dtype="category")),
        (pl.DataFrame(X), pl.Series(names[noisy])),
        (pd.DataFrame(X), pd.Series(names[noisy], dtype="string")),
        (X, names[noisy].tolist()),
    ):
        est = HOC(refine=False).fit(features, labels)
        assert est.classes_.tolist() == names.tolist()
        np.testing.assert_array_equal(est.transition_matrix_, plain.transition_matrix_)
    for labels, classes in (
        (noisy.astype(float), [0, 1, 2, 3]),
        (noisy > 1, [False, True]),
        (noisy - 1, [-1, 0, 1, 2]),
    ):
        assert HOC(refine=False).fit(X, labels).classes_.tolist() == classes


@pytest.mark.parametrize("form", ["nan", "none", "list", "masked", "pandas", "polars", "named"])
def test_unlabelled_examples_are_left_out(data, form, rng):
    """However a missing label is written, the estimate is that of the labelled examples."""
    X, _, noisy, _ = data
    missing = rng.random(len(noisy)) < 0.3
    expected = HOC(refine=False).fit(X[~missing], noisy[~missing])
    unlabeled = None
    if form == "nan":
        labels = np.where(missing, np.nan, noisy)
    elif form == "none":
        labels = np.where(missing, None, noisy.astype(object))
    elif form == "list":
        labels = [float("nan") if m else int(v) for m, v in zip(missing, noisy, strict=True)]
    elif form == "masked":
        labels = np.ma.masked_array(noisy, missing)
    elif form == "pandas":
        labels = pd.Series(np.where(missing, pd.NA, noisy.astype(object)), dtype="Int64")
    elif form == "polars":
        labels = pl.Series([None if m else int(v) for m, v in zip(missing, noisy, strict=True)])
    else:
        labels, unlabeled = np.where(missing, -1, noisy), -1
    est = HOC(refine=False, unlabeled=unlabeled).fit(X, labels)
    np.testing.assert_array_equal(est.transition_matrix_, expected.transition_matrix_)
    assert est.classes_.tolist() == [0, 1, 2, 3]


def test_strings_with_nan_are_strings_with_missing_ones(data):
    """NaN in a list or a column of strings is a missing label, not a class called nan."""
    X, _, noisy, _ = data
    labels = [float("nan") if i % 5 == 0 else f"c{v}" for i, v in enumerate(noisy)]
    for form in (labels, pd.Series(labels), np.array(labels, object)):
        assert HOC(refine=False).fit(X, form).classes_.tolist() == ["c0", "c1", "c2", "c3"]


def test_minus_one_is_a_label_unless_said_otherwise(data):
    """-1 is an ordinary class by default."""
    X, _, noisy, _ = data
    assert -1 in HOC(refine=False).fit(X, np.where(noisy == 0, -1, noisy)).classes_


def test_classes_that_do_not_occur(data, plain):
    """`classes` fixes the order of the rows and keeps a place for labels never seen."""
    X, _, noisy, _ = data
    with pytest.warns(LabelNoiseWarning, match="label 9 never occurs"):
        est = HOC(classes=[3, 2, 9, 1, 0]).fit(X, noisy)
    assert est.classes_.tolist() == [3, 2, 9, 1, 0]
    keep = [4, 3, 1, 0]
    np.testing.assert_allclose(
        est.transition_matrix_[np.ix_(keep, keep)], plain.transition_matrix_, atol=1e-6
    )
    assert est.class_prior_[2] == 0
    assert not np.isnan(est.inverse_transition_matrix_).any()


def test_neighbors_from_elsewhere(data):
    """Row numbers or a graph found elsewhere give what our own search gives, without X."""
    X, _, noisy, _ = data
    own = HOC(refine=False, metric="euclidean").fit(X, noisy)
    indices = nearest_neighbors(X, 2, "euclidean").indices
    graph = kneighbors_graph(X, 3, mode="distance")
    for neighbors in (indices, graph):
        est = HOC().fit(None, noisy, neighbors=neighbors)
        np.testing.assert_array_equal(est.transition_matrix_, own.transition_matrix_)


def test_fit_consensus_is_what_fit_does(data, plain):
    """fit(X, y) is a convenience over fit_consensus, also of merged shards."""
    X, _, noisy, _ = data
    indices = nearest_neighbors(X, 2).indices
    halves = [
        Consensus.from_neighbors(noisy, indices, 4, center_weight=half)
        for half in (np.arange(2000) < 700, np.arange(2000) >= 700)
    ]
    est = HOC(classes=list("abcd")).fit_consensus(halves[0] + halves[1])
    np.testing.assert_array_equal(est.transition_matrix_, plain.transition_matrix_)
    assert est.classes_.tolist() == list("abcd")
    with pytest.raises(LabelNoiseError, match="classes has 3 and the consensus 4"):
        HOC(classes=[1, 2, 3]).fit_consensus(halves[0])


def test_more_neighbours_use_all_pairs(data):
    """k = 4 gives each centre six triples of weight 1/6."""
    X, _, noisy, T = data
    est = HOC(refine=False, n_neighbors=4).fit(X, noisy)
    assert est.consensus_.weights.sum() == pytest.approx(2000)
    assert transition_error(est.transition_matrix_, T) < 0.05


def test_order_of_examples_does_not_matter(data, plain, rng):
    """Shuffled examples give the same T of the triples to rounding."""
    X, _, noisy, _ = data
    order = rng.permutation(len(X))
    again = HOC(refine=False).fit(X[order], noisy[order])
    np.testing.assert_allclose(again.transition_matrix_, plain.transition_matrix_, atol=1e-9)


def test_prints_well(data):
    """A fitted estimate says how many labels are wrong, which confusions, and T itself."""
    X, _, noisy, _ = data
    names = np.array(["cat", "dog", "emu", "fox"])
    text = str(HOC(refine=False).fit(X, names[noisy]))
    assert "of the labels are wrong" in text
    assert "of true cat are labelled dog" in text
    assert "Transition matrix" in text
    assert text.splitlines()[-1] == "11 checks passed, 2 not tested; est.diagnostics_ has all."
    assert str(HOC()) == "HOC()"


def test_saved_and_loaded_without_pickle(data, tmp_path):
    """JSON brings back every number, the classes, the settings and the diagnostics."""
    X, _, noisy, _ = data
    for labels in (noisy, np.array(["ä", "<b>", "c", "d"])[noisy]):
        est = HOC(metric="euclidean", classes=np.unique(labels), n_neighbors=np.int64(2))
        est.fit(None, labels, neighbors=nearest_neighbors(X, 2).indices)
        path = tmp_path / "estimate.json"
        est.save(path)
        loaded = HOC.load(path)
        np.testing.assert_array_equal(loaded.transition_matrix_, est.transition_matrix_)
        np.testing.assert_array_equal(loaded.class_prior_, est.class_prior_)
        assert loaded.classes_.tolist() == est.classes_.tolist()
        assert loaded.classes_.dtype == est.classes_.dtype
        assert loaded.metric == "euclidean"
        assert loaded.diagnostics_ == est.diagnostics_
        assert loaded.noise_rate_ == est.noise_rate_
        assert "of the labels are wrong" in str(loaded)
        assert json.loads(path.read_text())["noise_rate"] == est.noise_rate_
    assert [p.name for p in tmp_path.iterdir()] == ["estimate.json"]


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")  # copies do not fit
def test_sources_are_no_neighbours(data, rng):
    """Frames of one video, with one label: T is right only if they are kept apart."""
    X, _, noisy, T = (part[:1500] for part in data)
    video = np.repeat(np.arange(len(X)), 3)
    frames = X[video] + 0.01 * rng.standard_normal((len(video), X.shape[1]))
    labels = noisy[video]
    assert transition_error(HOC(refine=False).fit(frames, labels).transition_matrix_, T) > 0.3
    names = np.array([f"video {number}" for number in video])
    est = HOC(refine=False).fit(frames, labels, sources=names)
    assert transition_error(est.transition_matrix_, T) < 0.1
    given = nearest_neighbors(frames, 40).indices
    again = HOC().fit(None, labels, neighbors=given, sources=names)
    np.testing.assert_array_equal(again.transition_matrix_, est.transition_matrix_)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (np.zeros(5), r"sources has shape \(5,\) and there are 6 labels"),
        (["a", None, "b", "c", "d", "e"], r"row 1 has none \(1 such"),
        (np.arange(6) % 2, "the number of sources is 2"),
    ],
)
def test_bad_sources(sources, message):
    """Sources that are too few, missing, or only one."""
    with pytest.raises(LabelNoiseError, match=message):
        HOC().fit(np.eye(6), LABELS, sources=sources)


def test_loading_something_else_says_so(est, tmp_path):
    """Files that are missing, not JSON, of another kind or tampered with: one sentence."""
    est.save(tmp_path / "good.json")
    content = json.loads((tmp_path / "good.json").read_text())
    for name, text in {
        "text.json": "hello",
        "list.json": "[]",
        "other.json": '{"format": "x", "version": 1}',
        "rows.json": json.dumps({**content, "transition_matrix": [[1, 1], [0, 1]]}),
        "prior.json": json.dumps({**content, "class_prior": [1, 1, 1, 1]}),
        "setting.json": json.dumps({**content, "settings": {"unknown": 1}}),
        "local.json": json.dumps({**content, "estimator": "LocalHOC"}),
    }.items():
        (tmp_path / name).write_text(text)
    for name in ("missing", "text", "list", "other", "rows", "prior", "setting", "local"):
        with pytest.raises(LabelNoiseError, match=rf"{name}\.json"):
            HOC.load(tmp_path / f"{name}.json")


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")  # the fit warns as well
def test_duplicated_data_are_found_out(data):
    """Each row loaded twice, with its label: said, because T moves towards the identity."""
    X, _, noisy, T = data
    twice, labels = np.concatenate([X, X]), np.concatenate([noisy, noisy])
    with pytest.warns(LabelNoiseWarning, match=r"4000 examples \(100.0%\) are exact duplicates"):
        est = HOC(refine=False).fit(twice, labels)
    assert np.diag(est.transition_matrix_).mean() > np.diag(T).mean() + 0.1
    assert not est.diagnostics_["duplicates"].ok
    assert est.diagnostics_["duplicates"].value == 1


def test_repeated_rows_with_their_own_labels_do_no_harm():
    """Few distinct rows, as in a table, are no trouble when each copy was labelled by itself."""
    rng = np.random.default_rng(0)
    kinds, y = clusters(4, 40, 0)
    which = rng.integers(0, 40, 3000)
    noisy = symmetric(y[which], 0.3, random_state=0)
    with pytest.warns(LabelNoiseWarning, match="exact duplicates"):
        est = HOC(refine=False, metric="euclidean").fit(kinds[which], noisy.labels)
    assert transition_error(est.transition_matrix_, noisy.transition_matrix) < 0.15


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")  # of which there are more
def test_all_rows_alike():
    """Data without any information end in an estimate with warnings, not in a crash."""
    with pytest.warns(LabelNoiseWarning, match="exact duplicates"):
        est = HOC().fit(np.ones((600, 2)), np.arange(600) % 3)
    np.testing.assert_allclose(est.transition_matrix_.sum(axis=1), 1)


def test_few_duplicates_are_noted_without_a_warning(data):
    """Ten copies among thousands are mentioned, and no more."""
    X, _, noisy, _ = data
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        est = HOC(refine=False).fit(
            np.concatenate([X, X[:10]]), np.concatenate([noisy, noisy[:10]])
        )
    assert "20 examples" in est.diagnostics_["duplicates"].sentence


def test_zero_vectors_are_left_out_and_said(data):
    """A zero vector has no direction: by cosine it takes no part."""
    X, _, noisy, _ = data
    expected = HOC(refine=False).fit(X[100:], noisy[100:])
    X = X.copy()
    X[:100] = 0
    with pytest.warns(LabelNoiseWarning, match="100 examples are zero vectors"):
        est = HOC(refine=False).fit(X, noisy)
    np.testing.assert_array_equal(est.transition_matrix_, expected.transition_matrix_)


def test_singular_and_uninformative_t_warn():
    """Two classes that are labelled alike, or a class mostly mislabelled, give a warning."""
    X, y = clusters(3, 4000, 1)
    alike = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.1, 0.9]])
    with pytest.warns(
        LabelNoiseWarning,
        match="nearly singular|not informative|No example seems to be|overlaps so much",
    ):
        HOC().fit(X, class_conditional(y, alike, random_state=0).labels)
    mostly_wrong = np.array([[0.3, 0.6, 0.1], [0.0, 0.9, 0.1], [0.1, 0.1, 0.8]])
    with pytest.warns(LabelNoiseWarning, match="not informative: 0 is labelled as another"):
        est = HOC().fit(X, class_conditional(y, mostly_wrong, random_state=0).labels)
    assert transition_error(est.transition_matrix_, mostly_wrong) < 0.1


def test_rare_class_is_said():
    """A class with a handful of labels is reported, not crashed on."""
    X, y = clusters(3, 2000, 2)
    keep = (y != 2) | (np.cumsum(y == 2) <= 6)
    with pytest.warns(LabelNoiseWarning, match="label 2 occurs fewer than"):
        HOC().fit(X[keep], symmetric(y[keep], 0.0, random_state=0).labels)


def nan_at(value):
    X = np.ones((6, 2))
    X[3, 1] = value
    return X


LABELS = np.array([0, 1, 0, 1, 0, 1])


@pytest.mark.parametrize(
    ("X", "y", "settings", "message"),
    [
        (nan_at(np.nan), LABELS, {}, r"row 3, column 1 is nan \(1 such values in 1 rows\)"),
        (nan_at(np.inf), LABELS, {}, "row 3, column 1 is inf"),
        (np.eye(2), LABELS[:2], {}, "at least 3 examples, but n_samples = 2"),
        (np.eye(6), LABELS[:5], {}, "X has 6 rows and y 5"),
        (np.eye(6), np.zeros(6, int), {}, r"number of classes is 1: \[0\]"),
        (np.eye(6), [None] * 6, {}, "number of classes is 0"),
        (np.eye(6), LABELS, {"classes": [0, 2]}, r"classes = \[0, 2\].*has \[1\] \(3 such"),
        (np.eye(6), LABELS, {"classes": [0, 0, 1]}, "distinct labels"),
        (np.eye(6), LABELS, {"n_neighbors": 6}, "n_neighbors = 6, and there are 6"),
        (np.eye(6), LABELS, {"n_neighbors": 1}, "n_neighbors = 1"),
        (np.eye(6), LABELS, {"n_neighbors": 2.5}, "n_neighbors = 2.5"),
        (np.eye(6), LABELS, {"solver": "newton"}, "solver = 'newton'"),
        (np.eye(6), LABELS, {"metric": "manhattan"}, "metric = 'manhattan'"),
        (np.eye(6), LABELS, {"n_rounds": 0}, "n_rounds = 0"),
        (np.eye(6), [0.5, 1.5, 2, 0, 1, 2], {}, "fractional numbers such as 0.5"),
        (np.eye(6), None, {}, "y to be passed"),
        (np.eye(6), [0, "0", 1, "1", 0, 1], {}, "of one kind.*int, str"),
        (np.eye(6), [1e30, 2e30, 1, 2, 1, 2], {}, "too large"),
        (np.eye(6), np.array(["2020-01-01"] * 6, "M8[D]"), {}, "datetime64"),
        (np.eye(6), [b"a", b"b"] * 3, {}, "bytes"),
        (np.eye(6), [[0, 1]] * 6, {}, r"shape \(6, 2\)"),
        (np.eye(6), LABELS * 1j, {}, "omplex"),
        (np.eye(6), LABELS, {"n_neighbors": None}, "n_neighbors = None"),
        (np.eye(6), LABELS, {"sample_size": 5}, "n_rounds = None, sample_size = 5"),
        (np.eye(6), LABELS, {"n_rounds": 2, "n_neighbors": 3}, "n_neighbors = 3"),
        (np.eye(6), LABELS, {"classes": [0, 1, None]}, "distinct labels"),
        (sp.csr_array(np.eye(6)), LABELS, {}, "parse"),
        (None, LABELS, {}, "both are None"),
        (np.zeros((6, 0)), LABELS, {}, "0 feature"),
        (np.array([["a"] * 2] * 6), LABELS, {}, "convert|float|numeric"),
    ],
)
def test_bad_input(X, y, settings, message):
    """Each mistake gives one LabelNoiseError with the rule and the value."""
    with pytest.raises(LabelNoiseError, match=message):
        HOC(**settings).fit(X, y)


def test_bad_center_weight_and_rounds(data):
    """Weights of the wrong length, and neighbours with rounds, are refused."""
    X, _, noisy, _ = data
    with pytest.raises(LabelNoiseError, match=r"its shape is \(5,\)"):
        HOC().fit(X, noisy, center_weight=np.ones(5))
    with pytest.raises(LabelNoiseError, match="with n_rounds"):
        HOC(n_rounds=2).fit(X, noisy, center_weight=np.ones(len(X)))
    with pytest.raises(LabelNoiseError, match="with n_rounds"):
        HOC(n_rounds=2).fit(X, noisy, sources=np.arange(len(X)))


def test_a_failed_fit_changes_nothing(data, est):
    """After a refused refit the earlier estimate is whole; before any, it is not fitted."""
    X, _, noisy, _ = data
    before = str(est), est.predict_proba(), est.predict_proba(X[:50])
    for features, labels in ((X[:5], ["a", "b", "c"]), (X * 1e200, noisy[:-1])):
        with pytest.raises(LabelNoiseError):
            est.fit(features, labels)
        with pytest.raises(LabelNoiseError):
            est.fit_consensus("nothing that was counted")
        assert str(est) == before[0]
        np.testing.assert_array_equal(est.predict_proba(), before[1])
        np.testing.assert_array_equal(est.predict_proba(X[:50]), before[2])
    fresh = HOC()
    with pytest.raises(LabelNoiseError):
        fresh.fit(X, noisy[:10])
    with pytest.raises(NotFittedError):
        _ = fresh.noise_rate_


def test_two_classes_print_only_confusions(data):
    """What is printed as a confusion is one."""
    X, y, _, _ = data
    text = str(HOC(refine=False).fit(X, symmetric(y > 1, 0.2, random_state=0).labels))
    assert "of true False are labelled True" in text
    assert "of true False are labelled False" not in text


def test_weights_of_any_scale(data, plain):
    """Only the proportions of center_weight matter."""
    X, _, noisy, _ = data
    scaled = HOC().fit(X, noisy, center_weight=np.full(len(X), 1e-6))
    np.testing.assert_allclose(scaled.transition_matrix_, plain.transition_matrix_, atol=1e-6)
    assert scaled.diagnostics_.ok


def test_progress_names_its_stages(data):
    """Progress is reported by stage, and ends at the total."""
    seen = []
    HOC().fit(data[0], data[2], progress=lambda *at: seen.append(at))
    HOC.paper(n_rounds=3, sample_size=200, random_state=0).fit(
        data[0], data[2], progress=lambda *at: seen.append(at)
    )
    assert {stage for stage, _, _ in seen} == {"neighbors", "counting", "solving", "refining"}
    assert [total for stage, done, total in seen if stage == "refining" and done == total]
    assert ("counting", 3, 3) in seen
    assert seen[-1] == ("solving", 1, 1)


def test_intervals_hold_the_truth_and_know_the_overlap():
    """Nearly all entries of T are inside; triples that share examples make the interval wider."""
    X, y = clusters(5, 4000, seed=0)
    noisy = symmetric(y, 0.3, random_state=0)
    est = HOC(refine=False).fit(X, noisy.labels)
    interval = est.confidence_interval()
    assert interval.method == "sandwich"
    low, high = interval.transition_matrix
    truth = symmetric_matrix(5, 0.3)
    assert ((low <= truth) & (truth <= high)).mean() > 0.85
    assert low.min() >= 0
    assert (low <= est.transition_matrix_).all()
    assert (est.transition_matrix_ <= high).all()
    independent = HOC().fit_consensus(est.consensus_).confidence_interval()
    assert independent.method == "independent"
    assert np.ptp(independent.noise_rate) < np.ptp(interval.noise_rate)


def test_intervals_leave_out_who_was_left_out():
    """Rows without labels, and weights of 0, are no trouble for the interval."""
    X, y = clusters(3, 500, seed=0)
    y = y.astype(float)
    y[:50] = np.nan
    est = HOC().fit(X, y, center_weight=np.arange(500) % 3)
    assert est.confidence_interval(0.5).level == 0.5


@pytest.mark.parametrize("settings", [{"solver": "moments"}, {"n_rounds": 2, "sample_size": 100}])
def test_no_intervals_where_errors_are_not_known(settings):
    """Solvers other than the likelihood, and rounds, give no interval and say why."""
    X, y = clusters(3, 300, seed=0)
    est = HOC(random_state=0, **settings).fit(X, y)
    with pytest.raises(LabelNoiseError, match="Expected solver='likelihood' without n_rounds"):
        est.confidence_interval()


def test_a_loaded_estimate_has_the_interval_it_was_saved_with(est, tmp_path):
    """The file has the interval of 95%, and no other; one that was tampered with is refused."""
    est.save(tmp_path / "a.json")
    loaded = HOC.load(tmp_path / "a.json")
    expected = est.confidence_interval().transition_matrix
    np.testing.assert_array_equal(loaded.confidence_interval().transition_matrix, expected)
    assert str(loaded.confidence_interval()) == str(est.confidence_interval())
    with pytest.raises(LabelNoiseError, match=r"a loaded one has none for level = 0\.9"):
        loaded.confidence_interval(0.9)
    content = json.loads((tmp_path / "a.json").read_text())
    content["confidence_interval"]["noise_rate"] = [0.5, 0.2]
    (tmp_path / "b.json").write_text(json.dumps(content))
    with pytest.raises(LabelNoiseError, match=r"an interval (ends before it|does not contain)"):
        HOC.load(tmp_path / "b.json")


def test_new_examples_are_predicted_by_what_is_around_them():
    """The clean class of rows that were not fitted is right; their own label counts, if given."""
    X, y = clusters(4, 1500, seed=0)
    labels = symmetric(y, 0.3, random_state=0).labels
    est = HOC().fit(X[:1000], labels[:1000])
    clean = est.predict_proba(X[1000:])
    assert (clean.argmax(axis=1) == y[1000:]).mean() > 0.98
    own = est.predict_proba(X[1000:], labels[1000:])
    at = np.arange(500), labels[1000:]
    assert (own[at] >= clean[at] - 1e-9).all()  # a label speaks for its class
    np.testing.assert_allclose(own.sum(axis=1), 1)
    names = est.predict(X[1000:])
    np.testing.assert_array_equal(names, est.classes_[clean.argmax(axis=1)])
    with pytest.raises(LabelNoiseError, match="X has 500 rows and y 3 labels"):
        est.predict_proba(X[1000:], [0, 1, 2])
    with pytest.raises(LabelNoiseError, match="no y without X"):
        est.predict_proba(y=labels)


@pytest.mark.parametrize("loaded", [True, False])
def test_no_suspects_without_the_data(est, tmp_path, loaded):
    """A file and counted triples have no examples to suspect, which is said."""
    if loaded:
        est.save(tmp_path / "a.json")
        est = HOC.load(tmp_path / "a.json")
    else:
        est = HOC().fit_consensus(est.consensus_)
    with pytest.raises(LabelNoiseError, match="it was loaded, or fitted to counted triples"):
        est.suspects()


def test_a_closer_look_adds_findings_once(data):
    """diagnose looks at what fit did not, and a second look adds nothing."""
    est = HOC(refine=False).fit(data[0], data[2])
    n_before = len(est.diagnostics_)
    assert all(finding.ok for finding in est.diagnose())
    assert len(est.diagnose()) == len(est.diagnostics_) > n_before
