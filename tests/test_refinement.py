"""T from features and triples together."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import expit, logit, softmax

from labelnoise import HOC, LabelNoiseError, transition_error
from labelnoise._arrays import HOST
from labelnoise.linear import HeldOut
from labelnoise.neighbors import nearest_neighbors
from labelnoise.noise import class_conditional, pair_flip, symmetric
from labelnoise.refinement import (
    _MOST,
    _bounded,
    _CleanModel,
    _Dependence,
    _how_alike,
    _linear_models,
    _scores,
    _to_begin_with,
)
from labelnoise.scores import true_transition_matrix
from tests.conftest import clusters, random_matrix, symmetric_matrix

K = 4


@pytest.fixture(scope="module")
def overlapping():
    """Classes that overlap: two of five neighbours are of another class."""
    return clusters(K, 6000, seed=0, separation=0.6)


@pytest.mark.parametrize(
    "T",
    [symmetric_matrix(K, 0.3), np.roll(np.eye(K), 1, axis=1) * 0.3 + 0.7 * np.eye(K), None],
    ids=["symmetric", "pair", "random"],
)
def test_overlap_is_not_taken_for_noise(overlapping, T):
    X, y = overlapping
    T = random_matrix(K, np.random.default_rng(0)) if T is None else T
    est = HOC().fit(X, class_conditional(y, T, random_state=1).labels)
    of_triples = transition_error(est.triples_transition_matrix_, T)
    assert transition_error(est.transition_matrix_, T) < of_triples / 3
    prior = np.bincount(y) / len(y)
    np.testing.assert_allclose(est.class_prior_, prior, atol=0.04)
    assert est.diagnostics_["refined"].ok
    assert est.diagnostics_["refined"].value == 0


def unequal_clusters(n=8000):
    """Classes well apart, the largest fifteen times the smallest."""
    rng = np.random.default_rng(5)
    prior = np.geomspace(1, 15, 8)
    y = rng.choice(8, n, p=prior / prior.sum())
    X = 1.8 * rng.standard_normal((8, 12))[y]
    return X + rng.uniform(0.6, 1.4, (8, 12))[y] * rng.standard_normal((n, 12)), y


@pytest.mark.parametrize(("rate", "most"), [(0.1, 0.03), (0.3, 0.03), (0.7, 0.2)])
def test_many_examples_may_be_equally_clear(rate, most):
    """Which of them has which label tells nothing of how noise depends on clearness.

    With 70% of wrong labels, the triples' T has the maximum of a small class elsewhere.
    """
    X, y = unequal_clusters()
    noisy = symmetric(y, rate, random_state=11)
    T = true_transition_matrix(y, noisy.labels, 8)
    est = HOC().fit(X, noisy.labels)
    assert est.diagnostics_["refined"].value == 0
    assert transition_error(est.transition_matrix_, T) < most
    assert est.diagnostics_["nonsingular"].ok
    assert est.diagnostics_["informative"].ok
    if rate == 0.7:
        assert (est.triples_transition_matrix_.argmax(axis=1) != np.arange(8)).any()


def test_features_need_not_be_linear():
    """Classes that no line parts: neighbours vote, and the linear model is of no use."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (4000, 2))
    y = (np.floor(X).sum(axis=1) % 2).astype(int)
    noisy = symmetric(y, 0.3, random_state=1)
    est = HOC(metric="euclidean").fit(X, noisy.labels)
    assert transition_error(est.transition_matrix_, noisy.transition_matrix) < 0.05


def test_classes_that_differ_in_spread():
    """A narrow class within a wide one: the wide one's neighbours are of the narrow, but products
    of features tell them apart.
    """
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 6000)
    X = rng.standard_normal((6000, 12)) * np.where(y, 1, 2)[:, None]
    noisy = symmetric(y, 0.2, random_state=1)
    est = HOC(metric="euclidean").fit(X, noisy.labels)
    assert transition_error(est.triples_transition_matrix_, noisy.transition_matrix) > 0.1
    assert transition_error(est.transition_matrix_, noisy.transition_matrix) < 0.03


def test_products_only_where_they_tell_labels_better(overlapping):
    """Classes that lie apart differ by lines: products would only add chance."""
    X, y = overlapping
    T, order = symmetric_matrix(K, 0.2), np.argsort(y, kind="stable")
    fold = np.arange(len(y)) % 5
    for spread, width in ((1, X.shape[1]), (1 + y[:, None], X.shape[1] * (X.shape[1] + 3) // 2)):
        labels = class_conditional(y, T, random_state=0).labels
        assert _linear_models(spread * X, labels, T, fold, order, HOST).width == width
    few = np.arange(0, len(y), 10)
    some = np.argsort(y[few], kind="stable")
    args = (2 * (1 + y[few, None]) * X[few], labels[few], T, fold[few], some, HOST)
    assert _linear_models(*args).width == X.shape[1]


def test_no_score_has_seen_the_own_label():
    """Neither that of the features, nor votes; the label alone changes P(y), by 1 / N."""
    X, y = clusters(3, 300, seed=0, separation=0.5)
    labels, T = symmetric(y, 0.3, random_state=0).labels, symmetric_matrix(3, 0.3)
    near, fold = nearest_neighbors(X, 18).indices, np.arange(len(X)) % 5

    def scores(labels):
        return _scores(HeldOut(X, labels, 0.3, fold), near, T, 1, lambda: None)

    as_given = scores(labels)
    for example in range(5):
        other = labels.copy()
        other[example] = (other[example] + 1) % 3
        changed = np.abs(scores(other) - as_given)
        assert changed[:, :, example].max() < 0.02
        assert changed.max() > 0.1


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")
@pytest.mark.parametrize(("separation", "clear"), [(3.0, True), (0.2, False)])
def test_classes_without_clear_examples_are_said(separation, clear):
    """Then the form of the model decides what is noise."""
    X, y = clusters(4, 4000, seed=0, separation=separation)
    noisy = symmetric(y, 0.2, random_state=0)
    est = HOC(metric="euclidean").fit(X, noisy.labels)
    finding = est.diagnostics_["clear"]
    assert finding.ok == clear
    assert finding.value == pytest.approx(0.99 if clear else 0.71, abs=0.1)
    near = transition_error(est.transition_matrix_, noisy.transition_matrix) < 0.1
    assert near == clear
    assert ("see clear" in est.confidence_interval().caveat) != clear


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")
@pytest.mark.parametrize("next_class", [0.9, 1 / 3], ids=["of some classes", "of any"])
def test_noise_on_hard_examples_is_said(overlapping, next_class):
    """The harder the class is to tell, the more labels are wrong: T is between two estimates.

    If wrong labels are of any class alike, they do not look right, and are found: where that can be
    told, as with this seed, the triples' T has no share; with two of six seeds it cannot, and has.
    """
    X, y = overlapping
    centres = np.stack([X[y == k].mean(axis=0) for k in range(K)])
    clear = softmax(-((X[:, None] - centres) ** 2).sum(axis=2) / 2, axis=1).max(axis=1)
    rank = np.argsort(np.argsort(-clear)) / len(y) - 0.5
    rng = np.random.default_rng(2)
    wrong = rng.random(len(y)) < expit(logit(0.3) + 2.5 * rank)
    others = [next_class, *[(1 - next_class) / (K - 2)] * (K - 2)]
    labels = np.where(wrong, (y + 1 + rng.choice(K - 1, len(y), p=others)) % K, y)
    est = HOC().fit(X, labels)
    assert "where the class is hard to tell" in est.diagnostics_["refined"].sentence
    assert est._refinement.dependence == pytest.approx(2.5, abs=0.5)
    T = true_transition_matrix(y, labels, K)
    assert transition_error(est.transition_matrix_, T) < (0.15 if next_class == 0.9 else 0.06)
    share = est.diagnostics_["refined"].value
    assert (0 < share < 0.75) if next_class == 0.9 else share == 0
    np.testing.assert_allclose(
        est.transition_matrix_,
        (1 - share) * est._refinement.of_features + share * est.triples_transition_matrix_,
    )
    interval = est.confidence_interval()
    assert "two estimates" in interval.caveat
    for T in (est._refinement.of_features, est.triples_transition_matrix_):
        assert (interval.transition_matrix[0] <= T + 1e-9).all()
        assert (interval.transition_matrix[1] >= T - 1e-9).all()


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")
def test_what_features_lack_is_hardly_taken_for_noise():
    """Ordered classes, whose borders no feature tells well, look noisy where they meet."""
    errors = []
    for seed in (2, 3):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((8000, 10)) @ (rng.standard_normal((10, 10)) / 2 + np.eye(10))
        place = X[:, 0] + 0.4 * X[:, 1] * X[:, 2] + 0.35 * rng.standard_normal(len(X))
        y = np.searchsorted(np.quantile(place, [0.25, 0.5, 0.75]), place)
        noisy = symmetric(y, 0.1, random_state=seed)
        est = HOC().fit(X, noisy.labels)
        assert est._refinement.depends == 1
        errors.append(transition_error(est.transition_matrix_, noisy.transition_matrix))
    assert np.mean(errors) < 0.17


@pytest.mark.filterwarnings("ignore:Labels seem wrong")  # by chance, in one of the twelve
def test_intervals_cover(overlapping):
    X, y = overlapping
    T, inside = symmetric_matrix(K, 0.3), []
    for seed in range(12):
        labels = class_conditional(y, T, random_state=seed).labels
        low, high = HOC().fit(X, labels).confidence_interval().transition_matrix
        inside.append((low <= T) & (high >= T))
    assert np.mean(inside) > 0.85


def test_intervals_of_many_classes_of_few_examples_lie_around_the_estimate():
    X, y = clusters(25, 2500, seed=0, separation=1.5)
    noisy = symmetric(y, 0.3, random_state=0)
    est = HOC().fit(X, noisy.labels)
    interval = est.confidence_interval()
    low, high = interval.transition_matrix
    assert ((low <= est.transition_matrix_) & (high >= est.transition_matrix_)).all()
    assert np.mean((low <= noisy.transition_matrix) & (high >= noisy.transition_matrix)) > 0.9
    assert interval.noise_rate[0] < np.mean(y != noisy.labels) < interval.noise_rate[1]
    assert np.ptp(interval.noise_rate) < 0.05


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")
def test_intervals_where_triples_tell_nothing(overlapping):
    """The features' own, with a caveat."""
    X, y = overlapping
    est = HOC().fit(X, symmetric(y, 0.2, random_state=0).labels)
    est._refinement = replace(est._refinement, depends=1.0)
    two = est.confidence_interval()
    assert "two estimates" in two.caveat
    est.triples_transition_matrix_ = np.full((K, K), 1 / K)
    alone = est.confidence_interval()
    assert "triples do not tell T" in alone.caveat
    assert np.ptp(alone.noise_rate) < np.ptp(two.noise_rate)


def test_intervals_stay_within_bounds_where_labels_never_meet(overlapping):
    X, y = overlapping
    est = HOC().fit(X, pair_flip(y, 0.3, random_state=0).labels)
    interval = est.confidence_interval()
    assert interval.method == "information"
    assert interval.transition_matrix.min() >= 0
    assert interval.transition_matrix.max() <= 1
    for (low, high), value in (
        (interval.transition_matrix, est.transition_matrix_),
        (interval.class_prior, est.class_prior_),
        (interval.noise_rate, est.noise_rate_),
    ):
        assert ((low <= value) & (value <= high)).all()
    assert interval.on_boundary.any()
    with pytest.raises(LabelNoiseError, match="method='sandwich' for a refined T"):
        est.confidence_interval(method="bootstrap")
    with pytest.raises(LabelNoiseError, match="0 < level < 1"):
        est.confidence_interval(2.0)


def test_wrong_labels_that_do_not_happen_have_no_chance(overlapping):
    """Under pair noise, where classes overlap; under symmetric noise all of them happen."""
    X, y = overlapping
    pair = HOC().fit(X, pair_flip(y, 0.3, random_state=0).labels)
    happens = np.eye(K) + np.roll(np.eye(K), 1, axis=1) > 0
    np.testing.assert_array_equal(pair.transition_matrix_ > 0, happens)
    few = HOC().fit(X, symmetric(y, 0.05, random_state=0).labels)
    assert (few.transition_matrix_ > 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_classes_that_lie_apart_are_not_taken_for_soft_ones(seed):
    """A little overlap without noise would explain the labels as well."""
    X, y = clusters(5, 4000, seed=seed, separation=2.0)
    labels = symmetric(y, 0.3, random_state=seed).labels
    est = HOC().fit(X, labels)
    truth = true_transition_matrix(y, labels, 5)
    assert transition_error(est.transition_matrix_, truth) < 0.01


def test_t_is_that_of_the_examples():
    """Where classes lie apart the wrong labels can be counted, whatever chance did to them."""
    off = []
    for seed in range(4):
        X, y = clusters(5, 1000, seed=seed, separation=3.0)
        noisy = symmetric(y, 0.3, random_state=seed)
        counted = true_transition_matrix(y, noisy.labels, 5)
        est = HOC().fit(X, noisy.labels)
        by_chance = transition_error(noisy.transition_matrix, counted)
        assert transition_error(est.transition_matrix_, counted) < by_chance / 3
        off.append(abs(est.class_prior_ - np.bincount(y) / 1000).max())
    assert np.mean(off) < 0.01


def test_symmetric_noise_comes_out_as_that(overlapping):
    """What chance does to a class's wrong labels is not taken for a difference between them."""
    X, y = overlapping
    errors = {}
    for alike in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not alike:
                patch.setattr("labelnoise.refinement._how_alike", lambda *_: (0.0, 0.0))
            errors[alike] = []
            for seed in range(4):
                labels = symmetric(y, 0.3, random_state=seed).labels
                T = HOC().fit(X, labels).transition_matrix_
                errors[alike].append(transition_error(T, true_transition_matrix(y, labels, K)))
    assert np.mean(errors[True]) < 0.8 * np.mean(errors[False])


def test_how_alike_wrong_labels_are(rng):
    """As much as explains how far they are apart, beside what chance does."""
    T, by_chance = symmetric_matrix(6, 0.3), 0.005 * rng.standard_normal((500, 6, 6))
    labels, precision = _how_alike(T + by_chance[0], T + by_chance)
    assert labels > 1000
    assert precision > 1000
    unlike = random_matrix(6, rng)
    labels, precision = _how_alike(unlike, np.clip(unlike + by_chance, 0.001, 1))
    assert labels < 20
    assert precision < 20
    # Draws that are as wide as the differences leave these to chance.
    wide = np.clip(unlike + 30 * by_chance, 0.001, 1)
    assert _how_alike(unlike, wide)[0] > 5 * labels
    two = T[:2, :2]  # classes: a single wrong label is alike
    assert _how_alike(two, two + by_chance[:, :2, :2])[0] == 0


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")
@pytest.mark.parametrize("T", [symmetric_matrix(4, 0.1), symmetric_matrix(4, 0.3)])
def test_classes_that_overlap_much_are_not_noise_on_hard_examples(T):
    """A wrong form of the classes looks like dependence, which would explain all overlap."""
    X, y = clusters(4, 8000, seed=1, separation=0.35)
    labels = class_conditional(y, T, random_state=0).labels
    est = HOC().fit(X, labels)
    assert transition_error(est.transition_matrix_, true_transition_matrix(y, labels, 4)) < 0.2


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")
@pytest.mark.parametrize("seed", range(3))
def test_two_classes_of_nearly_alike_rows(seed):
    """Triples hardly tell them, and may show one class alone: the features do."""
    X, y = clusters(2, 20_000, seed=seed, separation=3.0)
    labels = class_conditional(y, symmetric_matrix(2, 0.47), random_state=seed).labels
    est = HOC().fit(X, labels)
    assert transition_error(est.transition_matrix_, true_transition_matrix(y, labels, 2)) < 0.05


def test_a_strong_prior_does_not_lead_astray():
    """Wrong labels look alike here, by a prior worth thousands of labels, more than there are."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 6, 600)
    X = (5 * rng.standard_normal((6, 8)))[y] + rng.standard_normal((600, 8))
    wrong, labels = rng.random(600) < 0.4, y.copy()
    labels[wrong] = (y[wrong] + rng.integers(1, 6, wrong.sum())) % 6
    assert HOC().fit(X, labels).noise_rate_ == pytest.approx((labels != y).mean(), abs=0.03)


def test_few_sources():
    """Neighbours are of different sources: of three, there are two."""
    X, y = clusters(3, 600, seed=0, separation=3.0)
    labels = symmetric(y, 0.2, random_state=0).labels
    done = []
    est = HOC().fit(
        X, labels, sources=np.arange(600) % 3, progress=lambda stage, *of: done.append((stage, of))
    )
    assert transition_error(est.transition_matrix_, true_transition_matrix(y, labels, 3)) < 0.05
    steps = [of for stage, of in done if stage == "refining"]
    assert steps[-1][0] == steps[-1][1] == len(steps)


def test_what_the_model_begins_with():
    """The less the triples tell T, the more alike its wrong labels; maxima are on the diagonal."""
    T = np.array([[0.6, 0.4, 0.0], [0.1, 0.4, 0.5], [0.1, 0.1, 0.8]])
    prior = np.array([0.2, 0.3, 0.5])
    sure = _to_begin_with(T, prior, np.zeros((3, 3)))
    np.testing.assert_allclose(sure[[0, 2]], T[[0, 2]])
    np.testing.assert_allclose(sure[1], np.array([1, 5, 5]) / 11)
    unsure = _to_begin_with(T, prior, np.full((3, 3), 1e3))
    np.testing.assert_allclose(unsure, symmetric_matrix(3, 1 - prior @ np.diag(T)))
    nothing = _to_begin_with(T, prior, np.full((3, 3), np.inf))
    np.testing.assert_allclose(nothing, symmetric_matrix(3, 1 / 3), atol=1e-4)


def test_derivatives(rng):
    """What the search is told of the likelihood, by differences."""
    n, m = 60, 2
    labels = np.sort(rng.integers(0, 3, n))
    scores = rng.standard_normal((m, 3, n)).astype(np.float32)
    model = _CleanModel(scores, labels, symmetric_matrix(3, 0.2))
    start = np.append(model.start(symmetric_matrix(3, 0.3)), [0.4, 0.2])
    dependence = _Dependence.of(rng.dirichlet(np.ones(3), n).T)
    model.watch(start)
    model.alike = 5.0, 3.0
    start[model.n_slopes + model.K] += 1  # wrong labels that are not alike
    seen = {}

    def remember(objective, x0, *_):
        value, seen["gradient"] = objective(x0)
        seen["numeric"] = approx_fprime(x0, lambda x: objective(x)[0], 1e-3)
        return x0, value, 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("labelnoise.refinement._search", remember)
        model.fit(start, dependence)
    np.testing.assert_allclose(seen["gradient"], seen["numeric"], atol=2e-3)


def test_information(rng):
    """It is what each example's own derivatives add up to, by differences."""
    labels = np.sort(rng.integers(0, 3, 30))
    scores = rng.standard_normal((2, 3, 30)).astype(np.float32)
    model = _CleanModel(scores, labels, symmetric_matrix(3, 0.2))
    dependence = _Dependence.of(rng.dirichlet(np.ones(3), 30).T)
    start = np.append(model.start(symmetric_matrix(3, 0.3)), [0.4, 0.2])
    ratios = slice(model.n_slopes + model.K, model.size)

    def likelihoods(parameters):
        return np.concatenate(
            [np.log(model._explain(b, parameters, dependence).likely) for b in model.blocks()]
        )

    inner = np.ones(len(start))
    inner[ratios] = expit(start[ratios]) * (1 - expit(start[ratios]))
    inner[model.size :] = 1 - (_bounded(start) / _MOST) ** 2
    each = approx_fprime(start, likelihoods, 1e-3) / inner
    found = model._information(start, dependence, np.inf)
    np.testing.assert_allclose(found, each.T @ each, atol=0.02 * np.abs(found).max())


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")
def test_what_cannot_be_refined_is_what_the_triples_say(overlapping):
    X, y = overlapping
    few = HOC().fit(X[:30], np.arange(30) % K)
    mostly_wrong = np.array([[0.2, 0.7, 0.1, 0], [0, 0.9, 0.1, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    apart, y = clusters(K, 2000, seed=0)
    labels = class_conditional(y, mostly_wrong, random_state=0).labels
    assert "refined" not in {finding.name for finding in few.diagnostics_}
    est = HOC().fit(apart, labels)
    assert "refined" not in {finding.name for finding in est.diagnostics_}
    np.testing.assert_array_equal(est.transition_matrix_, est.triples_transition_matrix_)


def test_a_saved_estimate_keeps_both(overlapping, tmp_path):
    X, y = overlapping
    est = HOC().fit(X, symmetric(y, 0.3, random_state=0).labels)
    est.save(tmp_path / "T.json")
    again = HOC.load(tmp_path / "T.json")
    np.testing.assert_array_equal(again.transition_matrix_, est.transition_matrix_)
    np.testing.assert_array_equal(again.triples_transition_matrix_, est.triples_transition_matrix_)
    np.testing.assert_array_equal(
        again.confidence_interval().transition_matrix, est.confidence_interval().transition_matrix
    )
