"""A transition matrix for each neighbourhood."""

import json

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from labelnoise import (
    HOC,
    Consensus,
    LabelNoiseError,
    LabelNoiseWarning,
    LocalHOC,
    transition_error,
)
from labelnoise.checks.local import check_local_conditions
from labelnoise.estimators.local import blend, local_errors
from labelnoise.neighbors import nearest_neighbors
from labelnoise.noise import symmetric
from labelnoise.solvers.local import LocalProblems, solve_local, solve_local_paper
from labelnoise.solvers.paper import Norms
from labelnoise.solvers.triples import DenseTriples, SparseTriples, draw_triples
from tests.conftest import clusters, imbalanced_prior, random_matrix, symmetric_matrix


@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_checks():
    """LocalHOC keeps scikit-learn's contract."""
    results = check_estimator(LocalHOC(n_local=3, local_size=5, random_state=0), on_skip=None)
    skipped = {result["check_name"] for result in results if result["status"] != "passed"}
    assert skipped <= {"check_array_api_input"}


@pytest.fixture(scope="module")
def two_halves():
    """Four clusters whose noise is light on one side of a plane and heavy on the other."""
    X, y = clusters(4, 4000, 0)
    rng = np.random.default_rng(0)
    heavy = np.isin(y, [2, 3])
    rate = np.where(heavy, 0.5, 0.05)
    wrong = rng.random(len(y)) < rate
    noisy = np.where(wrong, (y + rng.integers(1, 4, len(y))) % 4, y)
    return X, y, noisy


@pytest.fixture(scope="module")
def local(two_halves):
    """The default, fitted to the two halves."""
    return LocalHOC(n_local=30, local_size=300, random_state=0).fit(two_halves[0], two_halves[2])


@pytest.fixture(scope="module")
def by_triples(two_halves):
    """From triples alone, in fewer neighbourhoods."""
    est = LocalHOC(n_local=25, local_size=100, refine=False, random_state=3)
    return est.fit(two_halves[0], two_halves[2])


@pytest.mark.parametrize("kind", ["local", "by_triples"])
def test_finds_where_labels_are_bad(two_halves, kind, request):
    """Local matrices differ as the noise does, which the global T cannot."""
    _, y, _ = two_halves
    est = request.getfixturevalue(kind)
    own = est.transition_for(slice(None))[np.arange(len(y)), y, y]
    covered = est.assignment_ >= 0
    assert own[covered & (y < 2)].mean() == pytest.approx(0.95, abs=0.03)
    assert own[covered & (y >= 2)].mean() == pytest.approx(0.5, abs=0.06)


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")
def test_matrices_of_classes_that_differ_within():
    """A class whose labels are worse in one place than in another has a row for each place."""
    X, place = clusters(4, 2000, 5)
    y, rng = place // 2, np.random.default_rng(0)  # each class has two places
    noisy = np.where(rng.random(2000) < np.array([0.05, 0.4])[place % 2], 1 - y, y)
    est = LocalHOC(n_local=20, local_size=200, random_state=0).fit(X, noisy)
    assert est.global_.features_know_labels  # the places tell how labels are wrong
    own = 1 - est.transition_for(slice(None))[np.arange(2000), y, y]
    for worse, rate in enumerate((0.05, 0.4)):
        at = (place % 2 == worse) & (est.assignment_ >= 0)
        assert own[at].mean() == pytest.approx(rate, abs=0.06)


@pytest.mark.parametrize("kind", ["local", "by_triples"])
def test_a_neighbourhood_holds_few_classes(kind, request):
    """Each of these clusters is one class; by triples alone the local prior is sparse."""
    est = request.getfixturevalue(kind)
    assert est.class_priors_.max(axis=1).mean() > 0.9
    if kind == "by_triples":
        assert (est.class_priors_ == 0).mean() > 0.5
    np.testing.assert_allclose(est.class_priors_.sum(axis=1), 1)
    np.testing.assert_allclose(est.transition_matrices_.sum(axis=2), 1)


def test_cover_and_assignment(two_halves, by_triples):
    """A centre is uncovered when drawn; an example takes the first set that it is in."""
    X, est = two_halves[0], by_triples
    assert est.members_.shape == (25, 101)
    nearest = nearest_neighbors(X, 100).indices
    seen = np.zeros(len(X), bool)
    expected = np.full(len(X), -1)
    for number, members in enumerate(est.members_):
        centre = members[0]
        assert not seen[centre]
        assert set(members[1:]) == set(nearest[centre])
        expected[members[~seen[members]]] = number
        seen[members] = True
    np.testing.assert_array_equal(est.assignment_, expected)


@pytest.mark.parametrize("refine", [True, False])
def test_uncovered_examples_take_the_global_t(two_halves, refine):
    """Where no local set reaches, T is that of HOC with the same settings."""
    X, _, noisy = (part[:1500] for part in two_halves)
    est = LocalHOC(n_local=2, local_size=50, refine=refine, random_state=0).fit(X, noisy)
    outside = int(np.flatnonzero(est.assignment_ < 0)[0])
    np.testing.assert_array_equal(
        est.transition_for(outside), HOC(refine=refine).fit(X, noisy).transition_matrix_
    )
    assert est.transition_for([0, outside]).shape == (2, 4, 4)


def test_all_covered_draws_further_centres(two_halves):
    """More local sets than a cover needs is no error."""
    X, _, noisy = two_halves
    est = LocalHOC(n_local=12, local_size=3000, refine=False, random_state=0).fit(X, noisy)
    assert (est.assignment_ >= 0).all()


def test_unlabelled_examples_are_in_no_local_set(two_halves):
    """Their T is the global one, and row numbers stay those of X."""
    X, _, noisy = two_halves
    labels = noisy.astype(float)
    labels[::2] = np.nan
    est = LocalHOC(n_local=10, local_size=50, refine=False, random_state=0).fit(X, labels)
    assert (est.assignment_[::2] == -1).all()
    assert (est.members_ % 2 == 1).all()


@pytest.mark.parametrize("solver", ["likelihood", "paper"])
def test_the_papers_rounds(two_halves, solver):
    """Counting in rounds within each set gives nearly what counting all of it gives."""
    X, y, noisy = (part[:2000] for part in two_halves)
    settings = {"n_local": 8, "local_size": 200, "random_state": 0, "solver": solver}
    plain = LocalHOC(refine=False, **settings).fit(X, noisy)
    rounds = LocalHOC(refine=False, n_rounds=10, sample_size=100, **settings).fit(X, noisy)
    np.testing.assert_array_equal(plain.members_, rounds.members_)
    for est in (plain, rounds):
        assert local_errors(est, y, noisy).mean() < 0.15


def test_paper_settings_by_name():
    """The paper's settings for its two data sets."""
    small, large = LocalHOC.paper("cifar10"), LocalHOC.paper("cifar100")
    assert (small.n_local, small.local_size, small.sample_size, small.zeta) == (300, 250, 100, 1)
    assert (large.n_local, large.local_size, large.sample_size, large.zeta) == (
        5,
        10_000,
        5_000,
        0.5,
    )
    assert small.n_rounds == large.n_rounds == 30
    assert small.solver == "paper"
    with pytest.raises(LabelNoiseError, match="name = 'mnist'"):
        LocalHOC.paper("mnist")


def test_blend_is_clipped(rng):
    """Weights follow the formula, and a class more frequent than zeta keeps its local row."""
    local, overall = random_matrix(3, rng), random_matrix(3, rng)
    p = np.array([0.7, 0.2, 0.1])
    blended = blend(local[None], p[None], overall, 0.5)[0]
    np.testing.assert_allclose(blended[0], local[0])
    np.testing.assert_allclose(blended[1], 0.7 * local[1] + 0.3 * overall[1])
    np.testing.assert_allclose(blended[2], 0.6 * local[2] + 0.4 * overall[2])


def batch_of(problems, K):
    which = np.repeat(np.arange(len(problems)), [len(labels) for labels in problems])
    return LocalProblems(which, np.concatenate(problems), len(problems), K)


def test_batch_agrees_with_single_problems(rng):
    """Each problem of a batch has the joint and the contraction of its own dense model."""
    K = 4
    problems = [draw_triples(random_matrix(K, rng), np.ones(K) / K, n, rng) for n in (50, 80)]
    batch = batch_of(problems, K)
    T = np.stack([random_matrix(K, rng) for _ in problems])
    p = rng.dirichlet(np.ones(K), len(problems))
    for form in (DenseTriples, SparseTriples):
        sizes = np.array([50, 80])[batch.problem]
        model = form(np.sort(batch.triples, axis=1), 1 / sizes, K, batch.problem, 2)
        joint, contraction = model.joint(T, p), model.contraction(T)
        for number, labels in enumerate(problems):
            one = DenseTriples(*Consensus.from_labels(labels, K).sorted_triples(), K)
            np.testing.assert_allclose(joint[number], one.joint(T[number], p[number]))
            np.testing.assert_allclose(contraction[number], one.contraction(T[number]))


def test_batch_recovers_each_t(rng):
    """From one start, problems with different T end at their own."""
    K = 3
    truths = [symmetric_matrix(K, rate) for rate in (0.1, 0.3)]
    prior = imbalanced_prior(K, 2)
    batch = batch_of([draw_triples(T, prior, 30_000, rng) for T in truths], K)
    for sparsity in (0.0, 1.0):
        found, p = solve_local(batch, symmetric_matrix(K, 0.2), np.ones(K) / K, sparsity)
        for T, truth in zip(found, truths, strict=True):
            assert transition_error(T, truth) < 0.05
        np.testing.assert_allclose(p, np.broadcast_to(prior, (2, K)), atol=0.03)


def test_sparsity_removes_a_class_without_evidence(rng):
    """A class that would explain less than a triple is not there; one that does stays."""
    K = 3
    T = symmetric_matrix(K, 0.3)
    batch = batch_of([draw_triples(T, np.array([0.6, 0.4, 0.0]), 400, rng)], K)
    _, dense = solve_local(batch, T, np.ones(K) / K, 0.0)
    _, sparse = solve_local(batch, T, np.ones(K) / K, 2.0)
    assert sparse[0, 2] < 1e-6 <= dense[0, 2]
    assert sparse[0, 1] > 0.2


def test_batched_norms_descend_as_single_ones(rng):
    """The batched paper objective reaches the loss that the single solver reaches."""
    K = 3
    problems = [draw_triples(random_matrix(K, rng), np.ones(K) / K, 800, rng) for _ in range(3)]
    consensuses = [Consensus.from_labels(labels, K) for labels in problems]
    batch = batch_of(problems, K)
    T, p = solve_local_paper(batch, np.random.default_rng(0), sparse=False)
    for number, consensus in enumerate(consensuses):
        norms = Norms.of(consensus)
        single = norms.loss_and_gradient(random_matrix(K, rng)[None], np.ones((1, K)) / K)[0]
        reached = norms.loss_and_gradient(T[number : number + 1], p[number : number + 1])[0]
        assert reached < 0.1
        assert reached < single / 2


def test_same_seed_same_answer(two_halves):
    """The centres, and so everything, follow from random_state."""
    X, _, noisy = two_halves
    runs = [
        LocalHOC(n_local=5, local_size=50, refine=False, random_state=seed).fit(X, noisy)
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(runs[0].transition_matrices_, runs[1].transition_matrices_)
    assert (runs[0].members_[:, 0] != runs[2].members_[:, 0]).any()


def test_saved_and_loaded(two_halves, tmp_path):
    """A file brings back each example's T."""
    X, y, noisy = two_halves
    rng = np.random.default_rng(0)
    est = LocalHOC(n_local=5, local_size=50, random_state=rng).fit(X, noisy)
    est.save(tmp_path / "local.json")
    loaded = LocalHOC.load(tmp_path / "local.json")
    every = slice(None)
    np.testing.assert_array_equal(loaded.transition_for(every), est.transition_for(every))
    np.testing.assert_array_equal(local_errors(loaded, y, noisy), local_errors(est, y, noisy))
    assert loaded.random_state is None
    content = json.loads((tmp_path / "local.json").read_text())
    for change in (
        {"assignment": [5] * 4000},
        {"members": [[4000]] * 5},
        {"class_priors": content["class_priors"][:4]},
        {"global": None},
        {"estimator": "GroupHOC"},
    ):
        (tmp_path / "bad.json").write_text(json.dumps(content | change))
        with pytest.raises(LabelNoiseError, match=r"LocalHOC.save, or by .*, but .*bad\.json"):
            LocalHOC.load(tmp_path / "bad.json")


def test_what_is_left_out_is_said(two_halves):
    """Zero vectors take no part, and the user hears of it."""
    X, _, noisy = two_halves
    X = X.copy()
    X[:100] = 0
    with pytest.warns(LabelNoiseWarning, match="100 examples are zero vectors"):
        est = LocalHOC(n_local=3, local_size=50, refine=False, random_state=0).fit(X, noisy)
    assert "100 examples" in est.diagnostics_["zero vectors"].sentence
    assert (est.members_ >= 100).all()


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")  # copies do not fit
def test_sources_form_no_triples(two_halves):
    """Frames of one video are in one local set, but not in one triple."""
    X, y, noisy = (part[:1500] for part in two_halves)
    video = np.repeat(np.arange(1500), 3)
    frames = X[video] + 0.01 * np.random.default_rng(0).standard_normal((4500, X.shape[1]))
    est = LocalHOC(n_local=10, local_size=300, refine=False, random_state=0)
    together = local_errors(est.fit(frames, noisy[video]), y[video], noisy[video]).mean()
    apart = est.fit(frames, noisy[video], sources=video)
    assert local_errors(apart, y[video], noisy[video]).mean() < together / 2
    with pytest.raises(LabelNoiseError, match="with n_rounds"):
        LocalHOC.paper(local_size=300).fit(frames, noisy[video], sources=video)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"local_size": 4000}, "local_size = 4000, and there are 4000"),
        ({"n_local": 0}, "n_local = 0"),
        ({"zeta": 1.5}, "zeta = 1.5"),
        ({"sparsity": -1}, "sparsity = -1"),
        ({"solver": "moments"}, "solver = 'moments'"),
        ({"n_rounds": 3}, "n_rounds and sample_size together"),
        ({"n_rounds": 3, "sample_size": 999}, "sample_size = 999, local_size = 250"),
    ],
)
def test_bad_settings(two_halves, settings, message):
    """The message has the rule and the value."""
    with pytest.raises(LabelNoiseError, match=message):
        LocalHOC(**settings).fit(two_halves[0], two_halves[2])


def test_coverage_is_said(two_halves):
    """How many examples no local data set holds, beside H and M."""
    X, _, noisy = two_halves
    est = LocalHOC(n_local=5, local_size=50, random_state=0).fit(X, noisy)
    held = int((est.assignment_ >= 0).sum())
    coverage = est.diagnostics_["coverage"]
    assert coverage.value == held / 4000
    assert f"(5, 50)-coverage: the local data sets hold {held} of 4,000" in str(est)
    assert f"the other {4000 - held:,} take the global T" in coverage.sentence


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")  # one T does not explain it
def test_noise_clusterability_is_tested(rng):
    """Noise that is the same throughout passes; noise that a plane divides does not."""
    X, y = clusters(5, 6000, 1, separation=6)
    middle = np.array([np.median(X[y == k, 0]) for k in range(5)])[y]
    other = (y + rng.integers(1, 5, 6000)) % 5
    even, divided = (
        np.where(rng.random(6000) < rate, other, y)
        for rate in (0.25, np.where(X[:, 0] > middle, 0.5, 0.0))
    )
    settings = {"n_local": 30, "local_size": 800, "metric": "euclidean", "random_state": 0}
    found = [
        LocalHOC(**settings).fit(X, noisy).diagnostics_["noise clusterability"]
        for noisy in (even, divided)
    ]
    assert found[0].ok
    assert not found[1].ok
    assert found[1].value > 3 * found[0].value
    assert "use a smaller local_size" in found[1].sentence


def test_local_conditions_of_corollary_1():
    """Rows of the classes that are there must be independent, their maxima on the diagonal."""
    T = np.stack([symmetric_matrix(3, 0.3)] * 4)
    T[1, :2] = [0.45, 0.45, 0.1]
    T[2, 0] = [0.3, 0.6, 0.1]
    T[3, 0] = [0.3, 0.6, 0.1]
    p = np.array([[0.4, 0.4, 0.2]] * 3 + [[0.001, 0.5, 0.499]])
    finding = check_local_conditions(T, p, 250)
    assert finding.value == 0.5
    assert "in 2 of 4 local data sets" in finding.sentence


def test_the_paper_blends_with_its_own_global_t(two_halves):
    """LocalHOC.paper() takes the T of HOC.paper() for the rows that a local data set lacks."""
    X, _, noisy = (part[:1500] for part in two_halves)
    est = LocalHOC.paper(n_local=3, local_size=120, random_state=0).fit(X, noisy)
    overall = HOC.paper(random_state=0).fit(X, noisy).transition_matrix_
    np.testing.assert_array_equal(est.global_.transition_matrix_, overall)
    np.testing.assert_array_equal(
        est.transition_for(np.flatnonzero(est.assignment_ < 0)[0]), overall
    )


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")  # few examples of each class
@pytest.mark.parametrize("solver", ["likelihood", "paper"])
def test_many_classes_take_the_sparse_form(solver):
    """A few tiny sets of 60 classes: the work is that of the triples, not of all K^3."""
    X, y = clusters(60, 1500, 0)
    est = LocalHOC(n_local=4, local_size=20, solver=solver, random_state=0)
    est.fit(X, symmetric(y, 0.2, classes=np.arange(60), random_state=0).labels)
    np.testing.assert_allclose(est.transition_matrices_.sum(axis=2), 1)
    triples = np.random.default_rng(0).integers(0, 60, (84, 3))
    problems = LocalProblems(np.repeat(np.arange(4), 21), triples, 4, 60)
    assert isinstance(problems.model, SparseTriples)
