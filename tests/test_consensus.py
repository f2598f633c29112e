"""Counting label triples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelnoise import Consensus, LabelNoiseError
from labelnoise.consensus import expected_consensus, independent_centres
from labelnoise.neighbors import nearest_neighbors
from tests.conftest import clusters, imbalanced_prior, random_matrix


def counted_by_hand(labels, neighbors, K, weight=None):
    """The dense c3 with a loop over centres and pairs, either order of the neighbours."""
    result = np.zeros((K, K, K))
    for n, row in enumerate(neighbors):
        pairs = [(b, c) for i, b in enumerate(row) for c in row[i + 1 :]]
        pairs = [(b, c) for b, c in pairs if labels[b] >= 0 and labels[c] >= 0]
        if labels[n] < 0 or not pairs:
            continue
        for b, c in pairs:
            share = (1 if weight is None else weight[n]) / len(pairs) / 2
            result[labels[n], labels[b], labels[c]] += share
            result[labels[n], labels[c], labels[b]] += share
    return result


@pytest.mark.parametrize("k", [2, 3, 6])
def test_counts_agree_with_a_loop(k, rng):
    """The counts are those of a plain loop, with weights and unlabelled examples too."""
    labels = rng.integers(-1, 4, 80)
    neighbors = np.array([rng.choice(80, k, replace=False) for _ in range(80)])
    weight = rng.random(80) * (rng.random(80) > 0.2)
    for w in (None, weight):
        consensus = Consensus.from_neighbors(labels, neighbors, 4, center_weight=w)
        by_hand = counted_by_hand(labels, neighbors, 4, w)
        np.testing.assert_allclose(consensus.c3 * consensus.weights.sum(), by_hand)
        np.testing.assert_allclose(consensus.c1, by_hand.sum((1, 2)) / by_hand.sum())
        np.testing.assert_allclose(consensus.c2, by_hand.sum(2) / by_hand.sum())


def test_formula_on_paper_agrees_with_the_sparse_form(rng):
    """The exact consensus of (T, p) is sum_i p_i T_i x T_i x T_i."""
    for K in (2, 3, 7):
        T, p = random_matrix(K, rng), imbalanced_prior(K, 20)
        consensus = Consensus.from_model(T, p)
        c1, c2, c3 = expected_consensus(T, p)
        np.testing.assert_allclose(consensus.c3, c3, atol=1e-15)
        np.testing.assert_allclose(consensus.c2, c2, atol=1e-15)
        np.testing.assert_allclose(consensus.c1, c1, atol=1e-15)


def test_shards_add_up(rng):
    """The consensus of two parts, added, is that of the whole, to the last count."""
    labels = rng.integers(0, 5, (200, 3))
    whole = Consensus.from_labels(labels, 5)
    merged = Consensus.from_labels(labels[:70], 5) + Consensus.from_labels(labels[70:], 5)
    np.testing.assert_array_equal(whole.triples, merged.triples)
    np.testing.assert_array_equal(whole.weights, merged.weights)
    assert merged.n_centers == 200


def test_order_of_neighbours_does_not_matter(rng):
    """(a, b, c) and (a, c, b) are the same triple."""
    labels = rng.integers(0, 3, (50, 3))
    swapped = labels[:, [0, 2, 1]]
    np.testing.assert_array_equal(
        Consensus.from_labels(labels, 3).weights, Consensus.from_labels(swapped, 3).weights
    )


def test_sorted_triples_forget_the_centre():
    """(0, 1, 1) and (1, 0, 1) become one triple with both frequencies."""
    triples, frequencies = Consensus.from_labels(
        np.array([[0, 1, 1], [1, 0, 1], [0, 0, 1], [1, 1, 1]]), 2
    ).sorted_triples()
    assert triples.tolist() == [[0, 0, 1], [0, 1, 1], [1, 1, 1]]
    assert frequencies.tolist() == [0.25, 0.5, 0.25]


def test_small_integer_types_do_not_overflow(rng):
    """Labels and class counts of any integer type are counted as large ones are."""
    labels = rng.integers(0, 1000, (5000, 3))
    plain = Consensus.from_labels(labels, 1000)
    small = Consensus.from_labels(labels.astype(np.int16), np.int16(1000))
    np.testing.assert_array_equal(small.triples, plain.triples)
    assert set(map(tuple, plain.triples)) == {(a, *sorted((b, c))) for a, b, c in labels.tolist()}


def test_unequal_weights_count_as_fewer_examples():
    """n_centers is the number of equal weights that would say as much."""
    neighbors = np.array([[1, 2], [0, 2], [0, 1], [0, 1]])
    labels = np.array([0, 1, 0, 1])
    for weight, expected in (
        ([1, 1, 1, 1], 4),
        ([5, 5, 5, 5], 4),
        ([1, 1, 0, 0], 2),
        ([9, 1, 0, 0], 1),
    ):
        consensus = Consensus.from_neighbors(labels, neighbors, 2, center_weight=np.array(weight))
        assert consensus.n_centers == expected


def test_sum_and_equality(rng):
    """sum() merges shards; two consensuses are compared as objects, without an error."""
    parts = [Consensus.from_labels(rng.integers(0, 3, (20, 3)), 3) for _ in range(3)]
    assert sum(parts).weights.sum() == 60
    assert parts[0] != parts[1]


def test_rounds_count_within_samples():
    """Each round gives sample_size triples; a sample of everything is counted once."""
    X, y = clusters(3, 200, 0)
    rounds = Consensus.from_rounds(X, y, 3, n_rounds=5, sample_size=40, random_state=0)
    assert rounds.weights.sum() == 200
    again = Consensus.from_rounds(X, y, 3, n_rounds=5, sample_size=40, random_state=0)
    np.testing.assert_array_equal(rounds.weights, again.weights)
    assert rounds.n_centers <= 200
    assert Consensus.from_rounds(X, y, 3, n_rounds=5, sample_size=500).weights.sum() == 200


def test_saved_and_loaded(tmp_path, rng):
    """What is loaded is what was saved, without pickle."""
    consensus = Consensus.from_labels(rng.integers(0, 5, (100, 3)), 5)
    consensus.save(tmp_path / "c.npz")
    loaded = Consensus.load(tmp_path / "c.npz")
    np.testing.assert_array_equal(loaded.triples, consensus.triples)
    np.testing.assert_array_equal(loaded.weights, consensus.weights)
    assert (loaded.n_classes, loaded.n_centers) == (5, 100)
    assert [path.name for path in tmp_path.iterdir()] == ["c.npz"]


def test_loading_something_else_says_so(tmp_path):
    """A missing file, another archive and a pickle are met with one sentence."""
    np.savez(tmp_path / "other.npz", a=1)
    np.save(tmp_path / "pickle.npy", np.array([{}], object))
    np.save(tmp_path / "plain.npy", np.ones(3))
    (tmp_path / "empty.npz").touch()
    Consensus.from_labels(np.array([[0, 1, 1]]), 2).save(tmp_path / "good.npz")
    whole = (tmp_path / "good.npz").read_bytes()
    (tmp_path / "half.npz").write_bytes(whole[: len(whole) // 2])
    np.savez(tmp_path / "class.npz", triples=[[0, 1, 9]], weights=[1.0], n_classes=3, n_centers=1)
    for name in (
        "missing.npz",
        "other.npz",
        "pickle.npy",
        "plain.npy",
        "empty.npz",
        "half.npz",
        "class.npz",
    ):
        with pytest.raises(LabelNoiseError, match=name):
            Consensus.load(tmp_path / name)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros((4, 2), int), r"three labels.*\(4, 2\)"),
        (np.array([[0, 1, 5]]), "from 0 to 5"),
        (np.array([[0, 1, -2]]), "from -2 to 1"),
        (np.array([[0, 1, 1.5]]), "float64"),
    ],
)
def test_bad_labels(labels, message):
    """The message has the rule and the value."""
    with pytest.raises(LabelNoiseError, match=message):
        Consensus.from_labels(labels, 3)


def test_bad_merge_and_weights(rng):
    """Consensuses of different classes do not add up; weights must be finite and >= 0."""
    labels = rng.integers(0, 2, (10, 3))
    with pytest.raises(LabelNoiseError, match="2 and 3"):
        Consensus.from_labels(labels, 2) + Consensus.from_labels(labels, 3)
    neighbors = np.array([[1, 2], [0, 2], [0, 1]])
    for weight in (np.array([1, 1, -1.0]), np.array([1, 1, np.nan]), np.ones(2)):
        with pytest.raises(LabelNoiseError, match="center_weight"):
            Consensus.from_neighbors(labels[:3, 0], neighbors, 2, center_weight=weight)
    with pytest.raises(LabelNoiseError, match="at least 2 neighbors"):
        Consensus.from_neighbors(labels[:3, 0], neighbors[:, :1], 2)


@given(st.integers(3, 40), st.integers(0, 2**32 - 1))
def test_non_overlapping_triples_share_nothing_and_leave_no_room(n, seed):
    rng = np.random.default_rng(seed)
    neighbors = np.array([rng.choice(np.delete(np.arange(n), i), 2, False) for i in range(n)])
    triples = np.column_stack([np.arange(n), neighbors])
    chosen = independent_centres(neighbors)
    taken = triples[chosen].ravel()
    assert len(set(taken.tolist())) == len(taken)
    assert np.isin(triples, taken).any(axis=1).all()


def test_independent_triples_alone_are_counted(rng):
    """The centres of E_3*: fewer, and no example is in two triples, unlabelled ones in none."""
    X, y = clusters(3, 600, 0)
    labels = np.where(rng.random(600) < 0.1, -1, y)
    neighbors = nearest_neighbors(X, 2).indices
    counted = Consensus.from_neighbors(labels, neighbors, 3, independent=True)
    usable = (labels >= 0) & (labels[neighbors] >= 0).all(axis=1)
    centres = independent_centres(neighbors, usable)
    assert counted.n_centers == counted.weights.sum() == len(centres)
    assert 600 / 9 < len(centres) <= 200
    weight = np.isin(np.arange(600), centres).astype(float)
    same = Consensus.from_neighbors(labels, neighbors, 3, center_weight=weight)
    np.testing.assert_array_equal(counted.c3, same.c3)


def test_the_papers_order_of_the_neighbours():
    """c2 pairs a centre with its nearest neighbour, and c3 keeps which one is nearer."""
    labels, neighbors = np.array([0, 1, 2, 1]), np.array([[2, 1], [0, 2], [3, 1], [2, 0]])
    counted = Consensus.from_neighbors(labels, neighbors, 3, ordered=True)
    c2, c3 = np.zeros((3, 3)), np.zeros((3, 3, 3))
    for n, (one, two) in enumerate(neighbors):
        c2[labels[n], labels[one]] += 0.25
        c3[labels[n], labels[one], labels[two]] += 0.25
    np.testing.assert_array_equal(counted.c2, c2)
    np.testing.assert_array_equal(counted.c3, c3)
    assert counted.c3_squared == (c3**2).sum()
    plain = Consensus.from_neighbors(labels, neighbors, 3)
    assert plain.c3_squared == pytest.approx((plain.c3**2).sum())
    np.testing.assert_allclose(plain.sorted_triples()[1], counted.sorted_triples()[1])
    assert (counted + counted).ordered
    assert not (counted + plain).ordered


def test_rounds_with_neighbours_in_all_data():
    """The paper text's reading: centres in E, neighbours anywhere, so they are nearer."""
    X, y = clusters(5, 800, 0, separation=0.7)
    rng = np.random.default_rng(3)
    times = np.zeros(800)
    for _ in range(6):
        times[rng.choice(800, 100, replace=False)] += 1
    neighbors = nearest_neighbors(X, 2).indices
    expected = Consensus.from_neighbors(y, neighbors, 5, center_weight=times, ordered=True)
    how = {"n_rounds": 6, "sample_size": 100}
    inside, anywhere = (
        Consensus.from_rounds(X, y, 5, **how, neighbors_in=where, random_state=3)
        for where in ("sample", "all")
    )
    np.testing.assert_allclose(anywhere.c3, expected.c3)
    assert anywhere.n_centers == inside.n_centers == (times > 0).sum()
    assert np.einsum("iii", anywhere.c3) > np.einsum("iii", inside.c3) + 0.05
    with pytest.raises(LabelNoiseError, match="neighbors_in = 'E'"):
        Consensus.from_rounds(X, y, 5, **how, neighbors_in="E")


def test_the_order_survives_a_file(tmp_path):
    """A saved consensus is read back, order and all."""
    counted = Consensus.from_labels(np.array([[0, 1, 0], [1, 1, 0]]), 2, ordered=True)
    counted.save(tmp_path / "c.npz")
    again = Consensus.load(tmp_path / "c.npz")
    assert again.ordered
    np.testing.assert_array_equal(again.c3, counted.c3)


def test_the_binary_example():
    """The paper's 2, 4 and 8 equations for two classes with error rates e1 and e2."""
    e1, e2, p1 = 0.2, 0.3, 0.6
    T, p = np.array([[1 - e1, e1], [e2, 1 - e2]]), np.array([p1, 1 - p1])
    c1, c2, c3 = expected_consensus(T, p)
    assert c1[0] == pytest.approx(p1 * (1 - e1) + (1 - p1) * e2)
    assert c1[1] == pytest.approx(p1 * e1 + (1 - p1) * (1 - e2))
    assert c2[0, 0] == pytest.approx(p1 * (1 - e1) ** 2 + (1 - p1) * e2**2)
    assert c2[0, 1] == c2[1, 0] == pytest.approx(p1 * (1 - e1) * e1 + (1 - p1) * e2 * (1 - e2))
    assert c2[1, 1] == pytest.approx(p1 * e1**2 + (1 - p1) * (1 - e2) ** 2)
    two_to_one = p1 * (1 - e1) ** 2 * e1 + (1 - p1) * e2**2 * (1 - e2)
    one_to_two = p1 * (1 - e1) * e1**2 + (1 - p1) * e2 * (1 - e2) ** 2
    np.testing.assert_allclose([c3[0, 0, 1], c3[0, 1, 0], c3[1, 0, 0]], two_to_one)
    np.testing.assert_allclose([c3[0, 1, 1], c3[1, 0, 1], c3[1, 1, 0]], one_to_two)
    assert c3[0, 0, 0] == pytest.approx(p1 * (1 - e1) ** 3 + (1 - p1) * e2**3)
    assert c3[1, 1, 1] == pytest.approx(p1 * e1**3 + (1 - p1) * (1 - e2) ** 3)


def test_the_consensus_equations_as_printed(rng):
    """c2_r = (T o T_r)' p and c3_rs = (T o T_r o T_s)' p, with T_r = T S_r, for all r and s."""
    K = 4
    T, p = random_matrix(K, rng), imbalanced_prior(K, 3)
    c1, c2, c3 = expected_consensus(T, p)
    np.testing.assert_allclose(c1, T.T @ p)
    i = np.arange(K)
    for r in range(K):
        S_r = np.eye(K)[:, (i + r) % K]  # columns e_(r+1), ..., e_K, e_1, ..., e_r
        T_r = T @ S_r
        np.testing.assert_allclose(c2[i, (i + r) % K], (T * T_r).T @ p)
        for s in range(K):
            T_s = T @ np.eye(K)[:, (i + s) % K]
            np.testing.assert_allclose(c3[i, (i + r) % K, (i + s) % K], (T * T_r * T_s).T @ p)
