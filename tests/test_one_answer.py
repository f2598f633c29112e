"""How wrong are the labels? One answer, whichever door one comes in by, for one fit."""

import re

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, load_iris, load_wine, make_classification
from sklearn.neighbors import kneighbors_graph

from labelnoise import HOC, GroupHOC, LabelNoiseError, LocalHOC, transition_error
from labelnoise import examples as examples_module
from labelnoise.clean_class import linear as linear_module
from labelnoise.neighbors import nearest_neighbors
from labelnoise.noise import class_conditional, instance_dependent, symmetric
from labelnoise.scores import true_transition_matrix
from tests.conftest import clusters, noise_on_unclear, pair_matrix, random_matrix

pytestmark = pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")


def drawn(y, T, seed=0):
    return class_conditional(y, T, random_state=seed).labels


def made(name):
    """Features, clean and noisy labels of a small data set."""
    rng = np.random.default_rng(0)
    if name.startswith("digits"):
        X, y = load_digits(return_X_y=True)
        noise = {
            "pair": lambda: drawn(y, pair_matrix(10, 0.3)),
            "random": lambda: drawn(y, random_matrix(10, rng)),
            "unclear": lambda: noise_on_unclear(X, y, 0.2, 0),
            "instance": lambda: instance_dependent(X, y, 0.3, random_state=0).labels,
        }[name.split()[1]]()
    elif name.startswith("clusters"):
        X, y = clusters(4, 1200, 1, separation=float(name.split()[1]))
        noise = drawn(y, random_matrix(4, rng))
    elif name == "clusters, unclear":
        X, y = clusters(4, 1200, 1, separation=1.0)
        noise = noise_on_unclear(X, y, 0.2, 0)
    else:
        X, y = {
            "iris": lambda: load_iris(return_X_y=True),
            "wine": lambda: load_wine(return_X_y=True),
            "table": lambda: make_classification(
                900, 12, n_informative=6, n_classes=3, random_state=0
            ),
            "unclear": lambda: clusters(4, 1200, 1, separation=1.0),
        }[name]()
        noise = (
            noise_on_unclear(X, y, 0.2, 0)
            if name == "unclear"
            else drawn(y, random_matrix(y.max() + 1, rng))
        )
    return X, y, noise


NAMES = [
    *("digits pair", "digits random", "digits unclear", "digits instance", "clusters 0.6"),
    *("clusters 1.0", "clusters 4.0", "unclear", "iris", "wine", "table"),
]


@pytest.mark.parametrize("name", NAMES)
def test_one_answer(name):
    """Noise rate, suspects, report, what is printed and groups drawn at random agree."""
    X, _, labels = made(name)
    groups = np.random.default_rng(1).integers(0, 2, len(X))
    by_group = GroupHOC().fit(X, labels, groups=groups)
    est = by_group.global_
    rate = est.noise_rate_
    suspects = est.suspects()
    assert suspects.expected_errors / suspects.n_labels == pytest.approx(rate, abs=1e-3)
    report = est.report()
    assert report.noise_rate == rate
    assert report.suspects.n_found == len(suspects)
    assert len(suspects) / suspects.n_labels == pytest.approx(rate, abs=0.005)
    printed = re.search(r"(\d+\.\d)% of the labels are wrong", str(est))
    assert float(printed[1]) / 100 == pytest.approx(rate, abs=0.0006)
    of_groups = by_group.noise_rates_ @ np.bincount(groups) / len(groups)
    assert of_groups == pytest.approx(rate, abs=0.005)
    assert by_group.report().noise_rate == pytest.approx(rate, abs=0.005)
    low, high = est.confidence_interval().noise_rate
    assert low <= rate <= high


@pytest.fixture(scope="module")
def data():
    """Four classes that overlap, labels by a random T: X, clean, labels."""
    X, y = clusters(4, 1200, 3, separation=0.8)
    return X, y, drawn(y, random_matrix(4, np.random.default_rng(0)))


@pytest.fixture(scope="module")
def est(data):
    """The default, fitted to the data."""
    return HOC().fit(data[0], data[2])


def test_the_fit_beats_constant_answers(data, est):
    """What the tests below hold equal is far nearer to the truth than the T of the triples."""
    _, y, labels = data
    truth = true_transition_matrix(y, labels, 4)
    error = transition_error(est.transition_matrix_, truth)
    assert error < 0.6 * transition_error(est.triples_transition_matrix_, truth)
    assert est.noise_rate_ == pytest.approx((labels != y).mean(), abs=0.03)
    assert (est.predict() == y).mean() > 0.9


def test_unlabelled_rows_change_nothing(data, est):
    """Rows without a label, here and there among the others, are as if they were not there."""
    X, _, labels = data
    rng = np.random.default_rng(0)
    place = np.sort(rng.choice(1500, 1200, replace=False))
    more = rng.standard_normal((1500, X.shape[1]))
    given = np.full(1500, np.nan)
    more[place], given[place] = X, labels
    found = HOC().fit(more, given)
    np.testing.assert_allclose(found.transition_matrix_, est.transition_matrix_, atol=1e-6)
    np.testing.assert_allclose(found.predict_proba(), est.predict_proba(), atol=1e-5)
    np.testing.assert_array_equal(found.suspects().index, place[est.suspects().index])


@pytest.mark.parametrize("form", ["rows", "graph", "distances"])
def test_given_neighbours_give_the_same(data, form):
    """With features, neighbours found elsewhere give what the own search gives."""
    X, _, labels = data
    expected = HOC(metric="euclidean").fit(X, labels)
    neighbors = {
        "rows": lambda: nearest_neighbors(X, 18, "euclidean").indices,
        "graph": lambda: kneighbors_graph(X, 18, mode="distance"),
        "distances": lambda: sp.coo_array(kneighbors_graph(X, 20, mode="distance")),
    }[form]()
    found = HOC(metric="euclidean").fit(X, labels, neighbors=neighbors)
    np.testing.assert_allclose(found.transition_matrix_, expected.transition_matrix_, atol=1e-6)
    np.testing.assert_allclose(found.predict_proba(), expected.predict_proba(), atol=1e-4)


def test_order_and_names_do_not_matter(data, est, rng):
    """Shuffled rows, and classes named in another order, give the same T, renamed."""
    X, _, labels = data
    order, names = rng.permutation(len(X)), np.array(["dog", "ant", "emu", "bee"])
    found = HOC().fit(X[order], names[labels[order]])
    number = np.searchsorted(found.classes_, names)
    T = found.transition_matrix_[np.ix_(number, number)]
    np.testing.assert_allclose(T, est.transition_matrix_, atol=1e-6)
    assert set(order[found.suspects().index]) == set(est.suspects().index)


def test_one_search_and_one_training(data, monkeypatch):
    """fit, suspects, diagnose, report and intervals search once, and train each model once."""
    X, _, labels = data
    calls = {"search": 0, "train": 0}

    def counted(module, name, what):
        function = getattr(module, name)

        def call(*arguments, **options):
            calls[what] += 1
            return function(*arguments, **options)

        monkeypatch.setattr(module, name, call)

    counted(examples_module, "nearest_neighbors", "search")
    counted(linear_module, "fit_softmax", "train")
    est = HOC().fit(X, labels)
    assert calls["search"] == 1
    trained = calls["train"]
    assert trained > 0
    est.suspects()
    est.diagnose()
    est.report()
    est.confidence_interval()
    est.predict_proba()
    est.predict_proba(X[:10])
    str(est)
    assert calls == {"search": 1, "train": trained}
    groups = np.arange(len(X)) % 2
    GroupHOC().fit(X, labels, groups=groups).report()
    assert calls == {"search": 2, "train": 2 * trained}
    LocalHOC(n_local=3, local_size=100, random_state=0).fit(X, labels).report()
    assert calls == {"search": 3, "train": 3 * trained}
    plain = HOC(refine=False).fit(X, labels)
    assert calls == {"search": 4, "train": 3 * trained}
    for _ in range(2):  # the model that belongs to the triples' T is fitted once
        plain.suspects()
        plain.report()
    assert calls["train"] == 4 * trained
    assert calls["search"] <= 5


def test_the_triples_answer_is_one_too(data):
    """With refine=False suspects, report and predictions belong to the triples' T."""
    X, y, labels = data
    est = HOC(refine=False).fit(X, labels)
    suspects = est.suspects()
    assert suspects.expected_errors / 1200 == pytest.approx(est.noise_rate_, abs=0.01)
    assert est.report().noise_rate == est.noise_rate_
    assert (est.predict() == y).mean() > 0.85


def test_sources_reach_every_step():
    """Three frames a source, labelled once: the rate and the suspects are right with sources."""
    X, y = clusters(4, 500, 0)
    labels = symmetric(y, 0.25, random_state=0).labels
    video = np.repeat(np.arange(500), 3)
    rng = np.random.default_rng(0)
    frames = X[video] + 0.01 * rng.standard_normal((1500, X.shape[1]))
    truth = (labels != y).mean()
    est = HOC().fit(frames, labels[video], sources=video)
    assert est.noise_rate_ == pytest.approx(truth, abs=0.03)
    suspects = est.suspects()
    assert suspects.expected_errors / 1500 == pytest.approx(truth, abs=0.03)
    assert (labels != y)[video][suspects.index].mean() > 0.95
    assert (video[est.examples_.near.indices] != video[:, None]).all()
    without = HOC().fit(frames, labels[video])
    assert without.noise_rate_ < truth - 0.1
    plain = HOC(refine=False).fit(frames, labels[video], sources=video).suspects()
    assert plain.expected_errors / 1500 == pytest.approx(truth, abs=0.05)


@pytest.mark.parametrize("kind", ["hoc", "group", "local"])
def test_a_refused_refit_changes_nothing(data, kind):
    """After a fit that is refused, an estimator predicts and prints what it did before."""
    X, _, labels = (part[:600] for part in data)
    groups = {"groups": np.arange(600) % 2} if kind == "group" else {}
    est = {
        "hoc": HOC(),
        "group": GroupHOC(),
        "local": LocalHOC(n_local=3, local_size=50, random_state=0),
    }[kind].fit(X, labels, **groups)
    model = est if kind == "hoc" else est.global_
    before = str(est), model.predict_proba(), model.predict_proba(X[:20])
    attributes = dict(vars(est))
    for features, y in ((X * 1e200, labels[:-1]), (X, labels[:-1]), (X[:2], labels[:2])):
        with pytest.raises(LabelNoiseError):
            est.fit(features, y, **groups)
    assert vars(est).keys() == attributes.keys()
    assert all(value is attributes[name] for name, value in vars(est).items())
    model = est if kind == "hoc" else est.global_
    assert str(est) == before[0]
    np.testing.assert_array_equal(model.predict_proba(), before[1])
    np.testing.assert_array_equal(model.predict_proba(X[:20]), before[2])


def test_new_rows_are_predicted(data):
    """Half of the rows predict the clean class of the other half, with or without its labels."""
    X, y, labels = data
    est = HOC().fit(X[:800], labels[:800])
    plain = (labels[800:] == y[800:]).mean()
    for given in (None, labels[800:]):
        assert (est.predict(X[800:], given) == y[800:]).mean() > max(plain + 0.2, 0.85)


def test_saved_and_loaded(est, tmp_path):
    """The file has the answer and its interval, and says what it does not have."""
    est.save(tmp_path / "est.json")
    loaded = HOC.load(tmp_path / "est.json")
    assert loaded.noise_rate_ == est.noise_rate_
    assert loaded.report().noise_rate == est.report().noise_rate
    assert str(loaded).splitlines()[1] == str(est).splitlines()[1]
    np.testing.assert_array_equal(loaded.triples_transition_matrix_, est.triples_transition_matrix_)
    for ask in (loaded.suspects, loaded.predict_proba):
        with pytest.raises(LabelNoiseError, match="it was loaded"):
            ask()
