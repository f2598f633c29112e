"""The noise generators draw what they say they draw."""

import numpy as np
import pytest
from scipy.stats import truncnorm

from labelnoise import noise
from labelnoise._errors import LabelNoiseError
from labelnoise.noise import (
    class_conditional,
    group_dependent,
    instance_dependent,
    pair_flip,
    symmetric,
)

UNEVEN = np.array([[0.7, 0.3, 0.0], [0.1, 0.5, 0.4], [0.0, 0.0, 1.0]])


def counted_transition(clean, noisy, k):
    """Share of noisy labels j among the examples of clean class i, and the class sizes."""
    counts = np.zeros((k, k))
    np.add.at(counts, (clean, noisy), 1)
    sizes = counts.sum(axis=1, keepdims=True)
    return counts / sizes, sizes


def assert_drawn_from(T, clean, noisy):
    """Each entry within 5 standard errors of a binomial share, and exact where T is 0 or 1."""
    counted, sizes = counted_transition(clean, noisy, len(T))
    assert (np.abs(counted - T) <= 5 * np.sqrt(T * (1 - T) / sizes)).all()


def example_data(n=4000, d=20, k=5, seed=0):
    """Standard normal features and labels that have nothing to do with them."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.integers(k, size=n)


def own_and_others(rows, clean):
    """Probability of the own class (N,) and of the K - 1 others (N, K - 1)."""
    own = np.zeros(rows.shape, dtype=bool)
    own[np.arange(len(clean)), clean] = True
    return rows[own], rows[~own].reshape(len(rows), -1)


# Noise that depends on the class alone


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.8, 1.0])
def test_symmetric_draws_from_its_matrix(rate):
    """Symmetric labels follow T, which has 1 - rate on the diagonal and the rest spread evenly."""
    clean = np.random.default_rng(0).integers(4, size=20_000)
    noisy = symmetric(clean, rate, random_state=1)
    expected = np.where(np.eye(4, dtype=bool), 1 - rate, rate / 3)
    np.testing.assert_allclose(noisy.transition_matrix, expected)
    assert_drawn_from(noisy.transition_matrix, clean, noisy.labels)


def test_symmetric_rate_counts_real_flips_only():
    """The share of changed labels is the rate itself: no flip lands on the own class."""
    clean = np.random.default_rng(0).integers(3, size=40_000)
    noisy = symmetric(clean, 0.6, random_state=2)
    assert noisy.rate == np.mean(noisy.labels != clean)
    assert abs(noisy.rate - 0.6) <= 5 * np.sqrt(0.6 * 0.4 / 40_000)
    assert (symmetric(clean, 1.0, random_state=2).labels != clean).all()


def test_pair_flip_goes_to_the_next_class():
    """Class i becomes i or i + 1, the last class itself or the first, at the rate asked for."""
    clean = np.random.default_rng(0).integers(4, size=20_000)
    noisy = pair_flip(clean, 0.45, random_state=1)
    assert set(np.unique((noisy.labels - clean) % 4)) == {0, 1}
    assert_drawn_from(noisy.transition_matrix, clean, noisy.labels)
    assert noisy.transition_matrix[3, 0] == pytest.approx(0.45)
    assert noisy.transition_matrix[0, 1] == pytest.approx(0.45)


def test_class_conditional_draws_from_any_matrix():
    """Labels follow an uneven T whose rows are clean classes, zero entries never being drawn."""
    clean = np.random.default_rng(0).integers(3, size=20_000)
    noisy = class_conditional(clean, UNEVEN, random_state=1)
    np.testing.assert_allclose(noisy.transition_matrix, UNEVEN)
    assert_drawn_from(UNEVEN, clean, noisy.labels)
    assert noisy.rows is None
    assert noisy.n_lowered == 0


def test_matrix_a_little_off_is_rescaled():
    """A float32 matrix is accepted and comes back with rows that sum to 1 in float64."""
    T = np.full((7, 7), 1 / 7, dtype=np.float32)
    noisy = class_conditional(np.arange(7), T, random_state=0)
    np.testing.assert_allclose(noisy.transition_matrix.sum(axis=1), 1, rtol=0, atol=1e-15)


class Uniforms(np.random.Generator):
    """A generator whose uniforms are all the same."""

    def __init__(self, value):
        super().__init__(np.random.PCG64(0))
        self.value = value

    def random(self, size):
        """`size` times the value."""
        return np.full(size, self.value)


@pytest.mark.parametrize("shortfall", [0.0, 1e-9, -1e-9])
def test_draw_survives_rounding_at_both_ends(shortfall):
    """The smallest and the largest uniform draw the first and the last class that can occur."""
    rows = np.array([[0.0, 0.25, 0.75 - shortfall, 0.0], [0.1, 0.2, 0.3, 0.4 - shortfall]])
    for value, expected in [(0.0, [1, 0]), (np.nextafter(1, 0), [2, 3])]:
        assert noise._draw(rows, np.arange(2), Uniforms(value)).tolist() == expected


def test_draw_does_not_depend_on_blocks(monkeypatch):
    """Blocks are a matter of memory: one row a block draws the same labels."""
    clean = np.random.default_rng(0).integers(3, size=500)
    whole = class_conditional(clean, UNEVEN, random_state=3).labels
    monkeypatch.setattr("labelnoise._blocks.BLOCK_BYTES", 1)
    np.testing.assert_array_equal(class_conditional(clean, UNEVEN, random_state=3).labels, whole)


# Labels in, labels out


def test_strings_stay_strings():
    """String labels come back as strings, in the places where int labels would have flipped."""
    names = np.array(["bird", "cat", "dog"])
    clean = np.random.default_rng(0).integers(3, size=300)
    as_ints = class_conditional(clean, UNEVEN, random_state=5)
    as_strings = class_conditional(names[clean], UNEVEN, random_state=5)
    assert as_strings.classes.tolist() == names.tolist()
    np.testing.assert_array_equal(as_strings.labels, names[as_ints.labels])
    assert as_ints.labels.dtype == clean.dtype
    assert symmetric(list(names[clean]), 0.2, random_state=0).labels.dtype.kind == "U"


def test_classes_name_an_absent_class_and_the_order():
    """Classes that y lacks take part, and T's rows follow the order given, not the sorted one."""
    noisy = pair_flip(["b", "long name", "b"], 1.0, classes=["long name", "b", "absent"])
    assert noisy.labels.tolist() == ["absent", "b", "absent"]
    assert noisy.transition_matrix.shape == (3, 3)
    assert noisy.classes.tolist() == ["long name", "b", "absent"]


def test_labels_need_not_count_from_zero():
    """Labels -1 and 40 are just names."""
    noisy = pair_flip([-1, 40, 40], 1.0)
    assert noisy.labels.tolist() == [40, -1, -1]


def every_generator(random_state):
    """Labels of each generator on the same data."""
    X, y = example_data(n=300, k=3)
    matrices = {0: UNEVEN, 1: np.full((3, 3), 1 / 3)}
    return [
        symmetric(y, 0.4, random_state=random_state).labels,
        pair_flip(y, 0.4, random_state=random_state).labels,
        class_conditional(y, UNEVEN, random_state=random_state).labels,
        group_dependent(y, np.arange(300) % 2, matrices, random_state=random_state).labels,
        instance_dependent(X, y, 0.4, random_state=random_state).labels,
    ]


def test_seed_decides_the_labels():
    """The same seed or an equal Generator gives the same labels, another seed others."""
    for same, again, other in zip(
        every_generator(7), every_generator(7), every_generator(8), strict=True
    ):
        np.testing.assert_array_equal(same, again)
        assert (same != other).any()
    _, y = example_data(n=300, k=3)
    np.testing.assert_array_equal(
        symmetric(y, 0.4, random_state=7).labels,
        symmetric(y, 0.4, random_state=np.random.default_rng(7)).labels,
    )


def test_result_prints_in_one_line():
    """A result prints its kind, sizes and realised rate, and lowered flip rates where any."""
    assert str(pair_flip([0, 1], 1.0)) == "NoisyLabels(pair flip, N=2, K=2, rate=1.0000)"
    X, y = example_data(n=200, k=2)
    noisy = instance_dependent(X, y, 0.9, random_state=0)
    assert repr(noisy).endswith(f"rate={noisy.rate:.4f}, n_lowered={noisy.n_lowered})")


# Instance-dependent noise


def literal_algorithm(X, y, rate, k, seed):
    """The paper's algorithm line by line, one example at a time."""
    rng = np.random.default_rng(seed)
    q = truncnorm.rvs(
        (0 - rate) / 0.1, (1 - rate) / 0.1, loc=rate, scale=0.1, size=len(X), random_state=rng
    )
    W = rng.standard_normal((X.shape[1], k))
    uniform = rng.random(len(X))
    rows, labels = [], []
    for n in range(len(X)):
        p = X[n] @ W
        p[y[n]] = -np.inf
        p = np.exp(p - p.max())
        p = q[n] * p / p.sum()
        p[y[n]] = 1 - q[n]
        rows.append(p)
        labels.append(next(j for j in range(k) if uniform[n] < p[: j + 1].sum() or j == k - 1))
    return np.array(rows), np.array(labels), q


@pytest.mark.parametrize("scale", ["raw", "standard", "unit"])
def test_agrees_with_the_algorithm_as_printed(scale, monkeypatch):
    """The vectorised form gives the rows and labels of a literal loop, for each scale."""
    X, y = example_data(n=400, d=8, k=4)
    X = 3 * X + np.arange(8)
    scaled = {
        "raw": X,
        "standard": (X - X.mean(axis=0)) / X.std(axis=0),
        "unit": X / np.linalg.norm(X, axis=1, keepdims=True),
    }[scale]
    rows, labels, q = literal_algorithm(scaled, y, 0.3, 4, seed=11)
    monkeypatch.setattr(
        "labelnoise._blocks.BLOCK_BYTES", 150 * 8 * 8
    )  # several blocks, the last one short
    noisy = instance_dependent(X, y, 0.3, scale=scale, random_state=11)
    np.testing.assert_allclose(noisy.rows, rows, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(noisy.labels, labels)
    np.testing.assert_array_equal(own_and_others(noisy.rows, y)[0], 1 - q)


def test_instance_labels_follow_their_rows():
    """Counts agree with the average T, and with the rows of examples that have a clear target."""
    X, y = example_data(n=30_000, d=20, k=3)
    noisy = instance_dependent(X, y, 0.4, random_state=1)
    for i in range(3):
        np.testing.assert_allclose(
            noisy.transition_matrix[i], noisy.rows[y == i].mean(axis=0), rtol=1e-12
        )
    assert_drawn_from(noisy.transition_matrix, y, noisy.labels)
    # An average T alone would pass above; here the examples differ from each other.
    likely = noisy.rows[:, 0] > 0.25
    for part in (likely & (y == 1), ~likely & (y == 1)):
        expected = noisy.rows[part, 0]
        standard_error = np.sqrt(np.sum(expected * (1 - expected))) / part.sum()
        assert abs(np.mean(noisy.labels[part] == 0) - expected.mean()) <= 5 * standard_error


def test_instance_rate_is_the_realised_one():
    """The rate reported is the share of labels that changed."""
    X, y = example_data()
    noisy = instance_dependent(X, y, 0.3, random_state=0)
    assert noisy.rate == np.mean(noisy.labels != y)


@pytest.mark.parametrize("ratio", [None, 0.9])
def test_equal_examples_have_equal_rows(ratio):
    """Equal features, class and flip rate give one and the same row; other features do not."""
    X, _ = example_data(n=50, d=6)
    X[1:25] = X[0]
    scores = noise._project(X, np.random.default_rng(0).normal(size=(6, 4)), "unit")
    rows = noise._instance_rows(scores, np.full(50, 2), np.full(50, 0.4), ratio)
    np.testing.assert_allclose(rows[1:25], rows[:1].repeat(24, axis=0), rtol=1e-12)
    assert np.abs(rows[25:] - rows[0]).max(axis=1).min() > 1e-3


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.6, 0.97])
def test_rate_is_the_truncated_mean(rate):
    """As printed, flip rates average to the mean of the truncated normal, not to the rate."""
    X, y = example_data(n=40_000, d=2, k=10)
    noisy = instance_dependent(X, y, rate, cap=None, random_state=3)
    q = 1 - own_and_others(noisy.rows, y)[0]
    mean, variance = truncnorm.stats(-rate / 0.1, (1 - rate) / 0.1, loc=rate, scale=0.1)
    assert abs(q.mean() - mean) <= 5 * np.sqrt(variance / len(q))
    assert abs(noisy.rate - mean) <= 5 * np.sqrt(mean * (1 - mean) / len(q))


def test_truncation_moves_the_mean_as_documented():
    """A rate of 0.05 gives 0.10, which the docstring promises."""
    X, y = example_data(n=40_000, d=2, k=10)
    q = 1 - own_and_others(instance_dependent(X, y, 0.05, random_state=0).rows, y)[0]
    assert q.mean() == pytest.approx(0.1009, abs=5 * q.std() / np.sqrt(len(q)))


@pytest.mark.parametrize(
    ("rate", "cap", "capped"),
    [(0.5, "auto", False), (0.51, "auto", True), (0.4, 0.9, True), (0.6, None, False)],
)
def test_cap_applies_when_it_should(rate, cap, capped):
    """By default the cap comes in above a rate of one half; a number or None overrides that."""
    X, y = example_data(k=5)
    noisy = instance_dependent(X, y, rate, cap=cap, scale="raw", random_state=0)
    own, others = own_and_others(noisy.rows, y)
    assert (others <= 0.9 * own[:, None] + 1e-12).all() == capped


@pytest.mark.parametrize("scale", ["raw", "unit"])
@pytest.mark.parametrize("k", [2, 3, 10])
@pytest.mark.parametrize("ratio", [0.9, 0.5, 1.0])
def test_capped_rows_are_probabilities(scale, k, ratio):
    """After the cap rows are non-negative, sum to 1, obey the cap and keep 1 - q for the class."""
    X, y = example_data(d=50, k=k)
    noisy = instance_dependent(X, y, 0.6, cap=ratio, scale=scale, random_state=0)
    free = instance_dependent(X, y, 0.6, cap=None, scale=scale, random_state=0)
    own, others = own_and_others(noisy.rows, y)
    largest = ratio * (k - 1) / (1 + ratio * (k - 1))
    asked = 1 - own_and_others(free.rows, y)[0]
    assert noisy.rows.min() >= 0
    np.testing.assert_allclose(noisy.rows.sum(axis=1), 1, rtol=0, atol=1e-12)
    assert (others <= ratio * own[:, None] + 1e-12).all()
    np.testing.assert_allclose(1 - own, np.minimum(asked, largest), rtol=0, atol=1e-12)
    assert noisy.n_lowered == np.sum(asked > largest)


@pytest.mark.parametrize(("k", "largest"), [(2, 0.474), (3, 0.643), (10, 0.890)])
def test_infeasible_flip_rates_are_lowered_and_counted(k, largest):
    """Flip rates that no spreading can bring under the cap stop at the limit METHOD.md gives."""
    X, y = example_data(k=k)
    noisy = instance_dependent(X, y, 0.95, random_state=0)
    q = 1 - own_and_others(noisy.rows, y)[0]
    assert q.max() == pytest.approx(largest, abs=5e-4)
    assert 0 < noisy.n_lowered == np.sum(q > q.max() - 1e-9)


def poured(others, limit):
    """Cut at the limit and share the excess out evenly, again and again: the slow truth."""
    others = others.copy()
    while (others > limit + 1e-14).any():
        excess = np.sum(np.maximum(others - limit, 0))
        others = np.minimum(others, limit)
        open_ = others < limit - 1e-14
        others[open_] += excess / open_.sum()
    return others


def test_excess_is_spread_evenly():
    """The closed form of the spreading agrees with pouring the excess over round by round."""
    rng = np.random.default_rng(0)
    others = 0.6 * rng.dirichlet(np.full(6, 0.3), size=200)
    limit = rng.uniform(0.11, 0.4, size=200)
    spread = noise._spread_excess(others, limit)
    for n in range(200):
        np.testing.assert_allclose(spread[n], poured(others[n], limit[n]), rtol=0, atol=1e-12)
    untouched = others.max(axis=1) <= limit
    assert 0 < untouched.sum() < 200
    np.testing.assert_array_equal(spread[untouched], others[untouched])


def test_scale_decides_how_flips_spread():
    """At 3072 dimensions raw and standardised features saturate; rows of norm 1 are graded."""
    rng = np.random.default_rng(0)
    # Spread as the pixels of natural images, centred as networks take them.
    X, y = rng.normal(0, 0.25, size=(400, 3072)), rng.integers(10, size=400)

    def median_largest(scale):
        own, others = own_and_others(
            instance_dependent(X, y, 0.3, scale=scale, random_state=0).rows, y
        )
        return np.median(others.max(axis=1) / (1 - own))

    assert median_largest("raw") > 0.99
    assert median_largest("standard") > 0.99
    assert median_largest("unit") == pytest.approx(0.31, abs=0.03)


def test_unit_rows_forget_their_length():
    """With unit rows only the direction counts, and a zero row spreads its flips evenly."""
    X, y = example_data(n=100, d=6, k=4)
    noisy = instance_dependent(X, y, 0.3, random_state=0)
    stretched = X * np.linspace(0.1, 50, 100)[:, None]
    np.testing.assert_allclose(
        instance_dependent(stretched, y, 0.3, random_state=0).rows, noisy.rows, rtol=1e-10
    )
    X[0] = 0
    own, others = own_and_others(instance_dependent(X, y, 0.3, random_state=0).rows, y)
    np.testing.assert_allclose(others[0], (1 - own[0]) / 3)


def test_standard_columns_forget_their_units():
    """Standardised columns do not know units or offsets, and a constant column counts for 0."""
    X, y = example_data(n=100, d=6, k=4)
    X[:, 5] = 0
    rows = instance_dependent(X, y, 0.3, scale="standard", random_state=0).rows
    moved = X * [1, 10, 0.1, 5, 2, 1] + [0, 3, -2, 100, 0, 0.1]
    np.testing.assert_allclose(
        instance_dependent(moved, y, 0.3, scale="standard", random_state=0).rows, rows, rtol=1e-8
    )


def test_features_are_left_as_they_were():
    """Scaling works on copies of blocks, whatever the type of the features."""
    X, y = example_data(n=50, k=3)
    for features in (X, X.astype(np.float32), (10 * X).astype(np.int8)):
        before = features.copy()
        for scale in noise.SCALES:
            instance_dependent(features, y, 0.3, scale=scale, random_state=0)
        np.testing.assert_array_equal(features, before)


def test_absent_class_gets_the_row_it_would_have():
    """A class without examples has the average row that all the examples would have in it."""
    X, y = example_data(n=200, k=3)
    noisy = instance_dependent(X, y, 0.3, classes=[0, 1, 2, 3], random_state=0)
    alone = instance_dependent(X, np.full(200, 3), 0.3, classes=[0, 1, 2, 3], random_state=0)
    np.testing.assert_allclose(noisy.transition_matrix[3], alone.rows.mean(axis=0))


def test_groups_draw_from_their_own_matrices():
    """Each group's labels follow its own T, the rows are that T's, and T is their average."""
    rng = np.random.default_rng(0)
    clean, groups = rng.integers(3, size=30_000), rng.choice(["a", "b"], p=[0.3, 0.7], size=30_000)
    matrices = {"b": np.eye(3)[[1, 2, 0]], "a": UNEVEN, "unused": np.eye(3)}
    noisy = group_dependent(clean, groups, matrices, random_state=0)
    for name in ("a", "b"):
        member = groups == name
        assert_drawn_from(np.asarray(matrices[name]), clean[member], noisy.labels[member])
        np.testing.assert_allclose(noisy.rows[member], matrices[name][clean[member]])
    for i in range(3):
        np.testing.assert_allclose(
            noisy.transition_matrix[i], noisy.rows[clean == i].mean(axis=0), rtol=1e-12
        )
    assert noisy.rate == np.mean(noisy.labels != clean)


def test_group_average_of_an_absent_class():
    """The row of an absent class weighs the groups' matrices by their sizes."""
    noisy = group_dependent(
        [0, 1, 0, 1], [7, 7, 7, 9], {7: UNEVEN, 9: np.eye(3)}, classes=[0, 1, 2], random_state=0
    )
    np.testing.assert_allclose(noisy.transition_matrix[2], 0.75 * UNEVEN[2] + 0.25 * np.eye(3)[2])


# Bad input

X4, Y4 = np.eye(4), [0, 1, 0, 1]
TWO = [[0.9, 0.1], [0.2, 0.8]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: symmetric(Y4, 1.2), "Expected 0 <= rate <= 1, but rate = 1.2"),
        (lambda: pair_flip(Y4, -0.1), "Expected 0 <= rate <= 1, but rate = -0.1"),
        (
            lambda: instance_dependent(X4, Y4, float("nan")),
            "Expected 0 <= rate <= 1, but rate = nan",
        ),
        (
            lambda: symmetric([], 0.1),
            "Expected at least two classes, but classes = []",
        ),
        (
            lambda: symmetric([Y4], 0.1),
            "Expected one label for each example, but y has shape (1, 4)",
        ),
        (
            lambda: symmetric([0.0, 1.0, float("nan")], 0.1),
            "Expected y without missing labels, but 1 of 3 are",
        ),
        (
            lambda: symmetric(["a", "b", None], 0.1),
            "Expected y without missing labels, but 1 of 3 are",
        ),
        (
            lambda: symmetric([3, 3], 0.1),
            "Expected at least two classes, but classes = [3]",
        ),
        (
            lambda: symmetric(Y4, 0.1, classes=[0, 1, 1]),
            "Expected classes to be a list of distinct labels, but classes = [0, 1, 1]",
        ),
        (
            lambda: symmetric(Y4, 0.1, classes=[[0, 1]]),
            "Expected a list of labels, but classes has shape (1, 2)",
        ),
        (
            lambda: symmetric(Y4, 0.1, classes=[0, 2]),
            "Expected labels among classes = [0, 2], but y has [1] (2 such labels)",
        ),
        (
            lambda: symmetric(Y4, 0.1, classes=["0", "1"]),
            "Expected labels among classes = ['0', '1'], but y has [0, 1] (4 such labels)",
        ),
        (
            lambda: class_conditional(Y4, np.eye(3)),
            "Expected transition_matrix of shape (2, 2), but its shape is (3, 3)",
        ),
        (
            lambda: class_conditional(Y4, [[0.5, 0.5], [0.5, 0.4]]),
            "Expected the rows of transition_matrix to be probabilities >= 0 that sum to 1, but "
            "row 1 is [0.5, 0.4] (1 such rows): is the matrix transposed?",
        ),
        (
            lambda: class_conditional(Y4, [[1.1, -0.1], [0, 1]]),
            "Expected the rows of transition_matrix to be probabilities >= 0 that sum to 1, but "
            "row 0 is [1.1, -0.1] (1 such rows): is the matrix transposed?",
        ),
        (
            lambda: class_conditional(Y4, [[float("nan"), 1], [0, 1]]),
            "Expected the rows of transition_matrix to be probabilities >= 0 that sum to 1, but "
            "row 0 is [nan, 1.0] (1 such rows): is the matrix transposed?",
        ),
        (
            lambda: group_dependent(Y4, ["a", "a", "b", "b"], {"a": TWO}),
            "Expected a transition matrix for each group, but group 'b' has none",
        ),
        (
            lambda: group_dependent(Y4, ["a"] * 4, {"a": np.ones((2, 2))}),
            "Expected the rows of transition_matrices['a'] to be probabilities >= 0 that sum to 1, "
            "but row 0 is [1.0, 1.0] (2 such rows): is the matrix transposed?",
        ),
        (
            lambda: group_dependent(Y4, ["a"] * 3, {"a": TWO}),
            "Expected groups of shape (4,), one for each label, but groups has shape (3,)",
        ),
        (
            lambda: instance_dependent(X4[:3], Y4, 0.1),
            "Expected X of shape (4, d), one row for each label, but X has shape (3, 4)",
        ),
        (
            lambda: instance_dependent(X4[0], Y4, 0.1),
            "Expected X of shape (4, d), one row for each label, but X has shape (4,)",
        ),
        (
            lambda: instance_dependent(np.diag([1, 1, np.inf, 1]), Y4, 0.1),
            "Expected X without NaN or infinity, but row 2 has one",
        ),
        (
            lambda: instance_dependent(np.diag([1, np.nan, 1, 1]), Y4, 0.1, scale="standard"),
            "Expected X without NaN or infinity, but row 1 has one",
        ),
        (
            lambda: instance_dependent(X4, Y4, 0.1, scale="minmax"),
            "Expected scale to be one of ('raw', 'standard', 'unit'), but scale = 'minmax'",
        ),
        (
            lambda: instance_dependent(X4, Y4, 0.1, cap="paper"),
            "Expected cap to be a number, 'auto' or None, but cap = 'paper'",
        ),
        (
            lambda: instance_dependent(X4, Y4, 0.1, cap=0),
            "Expected 0 < cap <= 1, but cap = 0",
        ),
    ],
)
def test_bad_input_is_told(call, message):
    """Each mistake is met with the rule and the value that broke it."""
    with pytest.raises(LabelNoiseError) as raised:
        call()
    assert str(raised.value) == message


def test_bad_row_is_named_across_blocks(monkeypatch):
    """The row number in the message is that of X, not of the block."""
    monkeypatch.setattr("labelnoise._blocks.BLOCK_BYTES", 1)
    with pytest.raises(LabelNoiseError, match="but row 3 has one"):
        instance_dependent(np.diag([1, 1, 1, np.nan]), Y4, 0.1)
