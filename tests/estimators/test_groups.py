"""A transition matrix for each group, and whether groups differ."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.neighbors import kneighbors_graph

from labelnoise import HOC, LabelNoiseError, LabelNoiseWarning, transition_error
from labelnoise.estimators.groups import GroupHOC
from labelnoise.neighbors import nearest_neighbors
from labelnoise.noise import group_dependent, symmetric
from labelnoise.solvers.rows import concentration
from tests.conftest import clusters, symmetric_matrix

K = 4
PLAIN = symmetric_matrix(K, 0.2)
CONFUSED = PLAIN.copy()
CONFUSED[1, [1, 2]] = PLAIN[1, 1] - 0.25, PLAIN[1, 2] + 0.25


def grouped(n, shares, matrices, seed, y_of_group=None):
    """Clusters whose examples belong to groups at random, and labels from each group's T."""
    X, y = clusters(K, n, seed)
    rng = np.random.default_rng([seed, 1])
    group = rng.choice(len(shares), n, p=shares)
    if y_of_group is not None:  # keep examples by how frequent their class is in their group
        keep = rng.random(n) < np.asarray(y_of_group)[group, y]
        X, y, group = X[keep], y[keep], group[keep]
    names = np.array(list("ABCDEFG"), "U5")[group]
    T = dict(zip("ABCDEFG", matrices, strict=False))
    return X, y, group_dependent(y, names, T, random_state=seed).labels, names


@pytest.fixture(scope="module")
def three():
    """Group B of three takes true 1 for 2; A and C do not."""
    return grouped(4500, [0.4, 0.3, 0.3], [PLAIN, CONFUSED, PLAIN], 0)


@pytest.fixture(scope="module")
def est(three):
    """The default, fitted to the three groups."""
    X, _, noisy, names = three
    return GroupHOC().fit(X, noisy, groups=names)


@pytest.mark.parametrize("refine", [True, False])
def test_recovers_each_groups_t(three, est, refine):
    """Each group's T is found, by the model or its own triples, and closer than the one of all."""
    X, y, noisy, names = three
    if not refine:
        est = GroupHOC(refine=False).fit(X, noisy, groups=names)
    assert est.groups_.tolist() == ["A", "B", "C"]
    assert est.transition_matrices_.shape == (3, K, K)
    np.testing.assert_allclose(est.transition_matrices_.sum(axis=2), 1)
    np.testing.assert_allclose(est.class_priors_.sum(axis=1), 1)
    for T, truth in zip(est.transition_matrices_, (PLAIN, CONFUSED, PLAIN), strict=True):
        assert transition_error(T, truth) < 0.13
    drawn = (noisy[(names == "B") & (y == 1)] == 2).mean()
    assert est.transition_matrices_[1, 1, 2] == pytest.approx(drawn, abs=0.04)
    assert est.transition_matrix_[1, 2] < drawn - 0.08


def test_neighbours_of_another_group_do_no_harm():
    """A group whose neighbours are another group's still gets its own T, not a mixture."""
    careless = symmetric_matrix(K, 0.5)
    X, _, noisy, names = grouped(4000, [0.9, 0.1], [np.eye(K), careless], 3)
    est = GroupHOC(shrinkage=0).fit(X, noisy, groups=names)
    assert transition_error(est.transition_matrices_[0], np.eye(K)) < 0.03
    assert transition_error(est.transition_matrices_[1], careless) < 0.15


def test_small_group_takes_the_global_t_and_a_large_one_its_own(three):
    """Ten examples say next to nothing beside the rest; thousands speak for themselves."""
    X, _, noisy, names = three
    names = names.copy()
    names[np.flatnonzero(names == "A")[:10]] = "tiny"
    est = GroupHOC().fit(X, noisy, groups=names)
    A, B, tiny = (est.groups_.tolist().index(name) for name in ("A", "B", "tiny"))
    assert transition_error(est.transition_matrices_[tiny], est.transition_matrix_) < 0.1
    assert (est.shrinkage_[tiny] > 0.75).all()
    assert est.shrinkage_[B, 1] < 0.25
    assert transition_error(est.transition_matrices_[A], PLAIN) < 0.08
    raw = GroupHOC(shrinkage=0).fit(X, noisy, groups=names)
    assert transition_error(raw.transition_matrices_[tiny], PLAIN) > 0.3
    assert (raw.shrinkage_ == 0).all()


def test_alike_groups_share_one_matrix():
    """Where groups do not differ, shrinkage takes the matrix of all data nearly as it is."""
    X, _, noisy, names = grouped(2000, [0.5, 0.3, 0.2], [PLAIN] * 3, 5)
    est = GroupHOC().fit(X, noisy, groups=names)
    raw = GroupHOC(shrinkage=0).fit(X, noisy, groups=names)
    errors = [
        sum(transition_error(T, PLAIN) for T in fit.transition_matrices_) for fit in (est, raw)
    ]
    assert errors[0] < 0.8 * errors[1]
    assert est.shrinkage_.mean() > 0.5


def test_concentration_is_found(rng):
    """The concentration of rows drawn around a centre comes out near the one they have."""
    centre = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.5, 0.3, 0.1]])
    worth = np.array([10.0, 100.0])
    rows = np.stack(
        [[rng.dirichlet(w * m) for w, m in zip(worth, centre, strict=True)] for _ in range(60)]
    )
    counts = np.stack([[rng.multinomial(500, row) for row in group] for group in rows])
    found = concentration(counts, centre)
    np.testing.assert_allclose(np.log(found / worth), 0, atol=0.4)
    alike = np.stack([[rng.multinomial(500, m) for m in centre] for _ in range(60)])
    assert (concentration(alike, centre) > 5000).all()


def test_differences_name_the_row(est):
    """The group, the true class and the label are named, with numbers that are right."""
    found = est.differences()
    assert found.differ
    assert found.p_value < 1e-6
    entries = {(d.group, d.true_class, d.label): d for d in found}
    entry = entries["B", 1, 2]
    assert abs(entry.value - entry.others - 0.25) < 1.5 * entry.margin
    assert 0.02 < entry.margin < 0.15
    assert entry.sentence.startswith("group B labels true 1 as 2 more often than the others: ")
    assert "(+-" in entry.sentence
    assert entries["B", 1, 1].sentence.startswith("group B labels true 1 correctly less often")
    assert {d.true_class for d in found} == {1}
    assert "label differently" in str(found)


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")  # not informative
def test_poor_neighbours_are_not_taken_for_differences():
    """In overlapping clusters, alike groups with other classes are not told apart."""
    X, y = clusters(K, 8000, 0, separation=0.6)
    rng = np.random.default_rng(1)
    names = np.where(rng.random(8000) < np.where(y < 2, 0.8, 0.2), "A", "B")
    noisy = symmetric(y, 0.2, random_state=2).labels
    assert not GroupHOC().fit(X, noisy, groups=names).differences().differ
    worse = np.where((names == "A") & (y == 1) & (rng.random(8000) < 0.5), 2, noisy)
    found = GroupHOC().fit(X, worse, groups=names).differences()
    assert ("A", 1, 2) in {(d.group, d.true_class, d.label) for d in found}


def test_two_groups_name_the_one_that_errs():
    """Of two groups, the sentence is about the one with more errors, whichever is first."""
    for matrices, name in (([PLAIN, CONFUSED], "B"), ([CONFUSED, PLAIN], "A")):
        X, _, noisy, names = grouped(3000, [0.5, 0.5], matrices, 1)
        found = GroupHOC().fit(X, noisy, groups=names).differences()
        assert {(d.group, d.true_class) for d in found} == {(name, 1)}


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")
def test_alike_groups_are_not_told_apart():
    """With one T for all, differences are named in about 5% of data sets or fewer.

    The groups differ in their classes, which must not count as a difference of T. The whole
    calibration is in tests/statistical.
    """
    mix = [[1, 1, 1, 1], [1, 0.7, 0.4, 0.2], [0.3, 0.5, 1, 1]]
    T = symmetric_matrix(K, 0.35)
    fired = 0
    for seed in range(10):
        X, _, noisy, names = grouped(1000, [0.4, 0.4, 0.2], [T] * 3, seed, mix)
        fired += GroupHOC().fit(X, noisy, groups=names).differences().differ
    assert fired <= 2


def test_groups_that_lie_apart_within_a_class():
    """Neighbours of the own group, mostly, and other classes: still not told apart."""
    fired = 0
    for seed in range(5):
        X, y = clusters(K, 1000, seed)
        rng = np.random.default_rng([seed, 1])
        group = rng.random(1000) < np.where(y < 2, 0.75, 0.25)
        X = X + 3 * group[:, None] * rng.standard_normal(16)
        noisy = symmetric(y, 0.35, random_state=seed).labels
        fired += GroupHOC().fit(X, noisy, groups=group).differences().differ
    assert fired <= 1


def test_groups_are_different_populations():
    """Where one group's classes lie on another's, only its own neighbours are right."""
    X, y = clusters(K, 4000, 2)
    names = np.where(np.arange(4000) % 2 == 0, "here", "there")
    shifted = np.where(names == "there", (y + 1) % K, y)  # the same places mean other classes
    noisy = symmetric(shifted, 0.2, random_state=0).labels
    with pytest.warns(LabelNoiseWarning):  # of all data together
        own = GroupHOC(refine=False, shrinkage=0).fit(X, noisy, groups=names)
    assert max(transition_error(T, PLAIN) for T in own.transition_matrices_) < 0.15
    assert transition_error(own.transition_matrix_, PLAIN) > 0.5


def test_given_neighbours(three):
    """With features, row numbers or a graph give what the own search gives; without, nearly so."""
    X, _, noisy, names = (part[:1500] for part in three)
    settings = {"metric": "euclidean"}
    expected = GroupHOC(**settings).fit(X, noisy, groups=names).transition_matrices_
    nearest = nearest_neighbors(X, 18, "euclidean").indices
    found = GroupHOC(**settings).fit(X, noisy, groups=names, neighbors=nearest)
    np.testing.assert_allclose(found.transition_matrices_, expected, atol=1e-6)
    est = {}
    for name, given in (("rows", nearest), ("graph", kneighbors_graph(X, 18, mode="distance"))):
        est[name] = GroupHOC().fit(None, noisy, groups=names, neighbors=given)
        for T, truth in zip(est[name].transition_matrices_, (PLAIN, CONFUSED, PLAIN), strict=True):
            assert transition_error(T, truth) < 0.3
        assert est[name].unshrunk_matrices_[1, 1, 2] > est[name].unshrunk_matrices_[0, 1, 2]
    np.testing.assert_array_equal(*(one.transition_matrices_ for one in est.values()))


def test_unlabelled_among_given_neighbours(three):
    """A neighbour without a label tells nothing, and is no trouble."""
    X, _, noisy, names = (part[:900] for part in three)
    labels = np.where(np.arange(900) % 9 == 0, -1, noisy)
    idx = nearest_neighbors(X, 4).indices
    est = GroupHOC(unlabeled=-1, n_neighbors=4).fit(None, labels, groups=names, neighbors=idx)
    assert est.classes_.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(est.transition_matrices_.sum(axis=2), 1)
    assert est.noise_rates_[1] > est.noise_rates_[0]


def test_own_search_of_a_group_too_small(three):
    """A group of two has no two neighbours of its own: it gets the matrix of all data."""
    X, _, noisy, names = three
    names = names[:900].copy()
    names[:2] = "pair"
    est = GroupHOC(refine=False).fit(X[:900], noisy[:900], groups=names)
    pair = est.groups_.tolist().index("pair")
    np.testing.assert_allclose(est.transition_matrices_[pair], est.transition_matrix_, atol=2e-3)
    assert (est.shrinkage_[pair] == 1).all()


def test_assignment_for_a_loss(three):
    """Each example, labelled or not, finds the T of its group."""
    X, _, noisy, names = three
    labels = noisy[:900].astype(float)
    labels[::7] = np.nan
    est = GroupHOC().fit(X[:900], labels, groups=pd.Series(names[:900], dtype="category"))
    assert est.assignment_.shape == (900,)
    np.testing.assert_array_equal(est.groups_[est.assignment_], names[:900])
    np.testing.assert_array_equal(
        est.transition_for(7), est.transition_matrices_["ABC".index(names[7])]
    )
    assert est.transition_for([0, 1]).shape == (2, K, K)
    labelled = ~np.isnan(labels)
    alone = GroupHOC().fit(X[:900][labelled], labels[labelled], groups=names[:900][labelled])
    np.testing.assert_allclose(est.transition_matrices_, alone.transition_matrices_)


def test_saved_and_loaded(est, tmp_path):
    """A file brings back each group's T, whose each example is, and the test of differences."""
    est.save(tmp_path / "groups.json")
    loaded = GroupHOC.load(tmp_path / "groups.json")
    np.testing.assert_array_equal(loaded.transition_for([0, 1]), est.transition_for([0, 1]))
    np.testing.assert_array_equal(loaded.shrinkage_, est.shrinkage_)
    np.testing.assert_array_equal(loaded.groups_, est.groups_)
    assert str(loaded) == str(est)
    assert loaded.differences(0.01).found == est.differences(0.01).found
    assert loaded.global_.diagnostics_ == est.global_.diagnostics_
    content = json.loads((tmp_path / "groups.json").read_text())
    entry = content["compared"][0]
    for change in (
        {"groups": ["A"]},
        {"assignment": [0, 3]},
        {"class_priors": [[0.5] * K] * 3},
        {"compared": [entry | {"group": 3}]},
        {"global": content["global"] | {"classes": [0, 1]}},
        {"shrinkage": None},
    ):
        (tmp_path / "bad.json").write_text(json.dumps(content | change))
        with pytest.raises(LabelNoiseError, match=r"GroupHOC.save, or by .*, but .*bad\.json"):
            GroupHOC.load(tmp_path / "bad.json")


@pytest.mark.filterwarnings("ignore::labelnoise.LabelNoiseWarning")  # copies do not fit
@pytest.mark.parametrize("refine", [True, False])
def test_sources_are_no_neighbours(refine):
    """Frames of one video, with one label, are kept apart."""
    X, _, noisy, names = grouped(1500, [0.5, 0.5], [PLAIN, CONFUSED], 1)
    video = np.repeat(np.arange(1500), 3)
    frames = X[video] + 0.01 * np.random.default_rng(0).standard_normal((4500, X.shape[1]))
    data = {"groups": names[video], "sources": video}
    est = GroupHOC(refine=refine).fit(frames, noisy[video], **data)
    for T, truth in zip(est.transition_matrices_, (PLAIN, CONFUSED), strict=True):
        assert transition_error(T, truth) < 0.15


def test_prints_and_clones(est):
    """A fit says each group's noise and the differences; settings survive a clone."""
    text = str(est)
    assert "in 3 groups" in text
    assert "group B: " in text
    assert "true 1 as 2" in text
    assert est.noise_rates_[1] > est.noise_rates_[0]
    assert clone(est).get_params() == est.get_params()
    assert str(GroupHOC()) == "GroupHOC()"
    assert isinstance(est.global_, HOC)


def test_too_few_labels_to_compare():
    """Groups of a few examples cannot be compared, and that is what it says."""
    X, _, noisy, names = grouped(300, [0.5, 0.5], [PLAIN] * 2, 0)
    names[:] = "A"
    names[:6] = "B"
    found = GroupHOC().fit(X, noisy, groups=names).differences()
    assert not found.differ
    assert np.isnan(found.p_value)
    assert "too few labels" in str(found)


X6, Y6, G6 = np.eye(6), np.array([0, 1, 0, 1, 0, 1]), np.array(list("aaabbb"))


@pytest.mark.parametrize(
    ("settings", "y", "groups", "message"),
    [
        ({}, Y6, None, "groups is None"),
        ({}, Y6, G6[:5], r"groups has shape \(5,\) and there are 6 labels"),
        ({}, Y6, ["a", None, "a", "b", "b", "b"], r"row 1 has none \(1 such"),
        ({}, Y6, ["a", "a", np.nan, "b", "b", "b"], "row 2 has none"),
        ({}, Y6, [0, 1, np.nan, 1, 0, np.nan], r"row 2 has none \(2 such"),
        ({}, Y6, pd.Series([1, 2, pd.NA, 1, 2, 1], dtype="Int64"), "row 2 has none"),
        ({}, Y6, np.array(["a", 1, "a", 1, "a", 1], object), "cannot be put in order"),
        ({}, Y6, ["a", pd.NA, True, 1j, "b", "b"], "row 1 has none"),
        ({}, Y6, ["a", (1,), "a", "b", "b", "b"], "groups to be names, but they are not"),
        ({}, Y6, ["a"] * 6, r"number of groups is 1: \['a'\]. For one group use HOC"),
        ({}, [0, 1, 0, None, None, None], G6, "group b has none"),
        ({"shrinkage": -1}, Y6, G6, "shrinkage = -1"),
        ({"shrinkage": "much"}, Y6, G6, "shrinkage = 'much'"),
        ({"n_neighbors": 1}, Y6, G6, "n_neighbors = 1"),
        ({"metric": "manhattan"}, Y6, G6, "metric = 'manhattan'"),
        ({}, Y6[:5], G6[:5], "X has 6 rows and y 5"),
    ],
)
def test_bad_input(settings, y, groups, message):
    """Each mistake gives one LabelNoiseError with the rule and the value."""
    with pytest.raises(LabelNoiseError, match=message):
        GroupHOC(**settings).fit(X6, y, groups=groups)


def test_bad_neighbors_and_level(est):
    """No neighbours at all, neighbours out of range, and a level that is none are refused."""
    with pytest.raises(LabelNoiseError, match="both are None"):
        GroupHOC().fit(None, Y6, groups=G6)
    for neighbors in (np.full((6, 2), 9), csr_array((6, 6)), np.zeros(6, int)):
        with pytest.raises(LabelNoiseError, match="neighbors"):
            GroupHOC().fit(None, Y6, groups=G6, neighbors=neighbors)
    with pytest.raises(LabelNoiseError, match="level = 5"):
        est.differences(level=5)
