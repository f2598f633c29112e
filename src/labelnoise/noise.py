"""Label noise made to order: clean labels in, noisy labels and the true T out.

Each example has a row of T, and one uniform number picks its noisy label from it. The row comes
from the class (`symmetric`, `pair_flip`, `class_conditional`), from the class and the group
(`group_dependent`), or from the class and the features (`instance_dependent`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from scipy.stats import truncnorm
from sklearn.preprocessing import StandardScaler

from labelnoise._blocks import row_blocks
from labelnoise._errors import LabelNoiseError
from labelnoise._validation import expect_one_of
from labelnoise._validation import transition_matrix as checked_matrix
from labelnoise.labels import encode_labels

SCALES = ("raw", "standard", "unit")

_FLIP_RATE_SD = 0.1  # of q_n, line 2 of the paper's algorithm
_PAPER_CAP = 0.9  # above a rate of one half

RandomState = int | np.random.Generator | None


@dataclass(frozen=True, eq=False, repr=False)
class NoisyLabels:
    """Noisy labels, and the probabilities they were drawn from."""

    kind: str
    """Name of the noise, as "symmetric"."""
    labels: np.ndarray
    """(N,) noisy labels, of the same kind as the clean ones."""
    classes: np.ndarray
    """(K,) labels in the order of the rows and columns of T."""
    transition_matrix: np.ndarray
    """(K, K) the true T, rows clean. Where T differs between examples: row i is the average
    over the examples of clean class i, or over all examples for a class that has none."""
    rate: float
    """Realised share of labels that changed."""
    rows: np.ndarray | None = None
    """(N, K) each example's own row ``T(x_n)[y_n]``; None where the class alone decides."""
    n_lowered: int = 0
    """How many flip rates q_n were lowered because the cap cannot be met above."""

    def __repr__(self) -> str:
        lowered = f", n_lowered={self.n_lowered}" if self.n_lowered else ""
        return (
            f"NoisyLabels({self.kind}, N={len(self.labels)}, K={len(self.classes)}, "
            f"rate={self.rate:.4f}{lowered})"
        )


def symmetric(
    y: ArrayLike,
    rate: float,
    *,
    classes: ArrayLike | None = None,
    random_state: RandomState = None,
) -> NoisyLabels:
    """Flip each label with probability `rate`, to any other class equally often.

    Parameters
    ----------
    y : array of shape (N,)
        Clean labels: ints, strings.
    rate : float
        Total probability of a flip, 0 to 1. Each other class gets ``rate / (K - 1)``.
    classes : array of shape (K,), optional
        Labels in the order of T's rows; may name classes that `y` lacks. Default: the sorted
        distinct labels of `y`.
    random_state : int, Generator or None
        Seed.

    Examples
    --------
    >>> noisy = symmetric([0, 1, 2] * 1000, rate=0.4, random_state=0)
    >>> noisy
    NoisyLabels(symmetric, N=3000, K=3, rate=0.3973)
    >>> noisy.transition_matrix
    array([[0.6, 0.2, 0.2],
           [0.2, 0.6, 0.2],
           [0.2, 0.2, 0.6]])
    """
    _check_rate(rate)
    clean, names = _encode(y, classes)
    k = len(names)
    T = np.where(np.eye(k, dtype=bool), 1 - rate, rate / (k - 1))
    return _from_class("symmetric", clean, names, T, random_state)


def pair_flip(
    y: ArrayLike,
    rate: float,
    *,
    classes: ArrayLike | None = None,
    random_state: RandomState = None,
) -> NoisyLabels:
    """Flip each label with probability `rate` to the next class; the last one to the first.

    Parameters
    ----------
    rate : float
        Probability of a flip, 0 to 1.
    y, classes, random_state
        As for `symmetric`; the order of `classes` says what "next" means.

    Examples
    --------
    >>> noisy = pair_flip(["cat", "deer", "dog"], rate=1.0, classes=["cat", "dog", "deer"])
    >>> noisy.labels.tolist()
    ['dog', 'cat', 'deer']
    """
    _check_rate(rate)
    clean, names = _encode(y, classes)
    T = (1 - rate) * np.eye(len(names)) + rate * np.roll(np.eye(len(names)), 1, axis=1)
    return _from_class("pair flip", clean, names, T, random_state)


def class_conditional(
    y: ArrayLike,
    transition_matrix: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    random_state: RandomState = None,
) -> NoisyLabels:
    """Draw each noisy label from the row of T that belongs to its clean class.

    Parameters
    ----------
    transition_matrix : array of shape (K, K)
        T, rows clean; rows sum to 1.
    y, classes, random_state
        As for `symmetric`.

    Examples
    --------
    >>> noisy = class_conditional(["ham", "spam"] * 500, [[1, 0], [0.3, 0.7]], random_state=0)
    >>> noisy
    NoisyLabels(class-conditional, N=1000, K=2, rate=0.1420)
    """
    clean, names = _encode(y, classes)
    T = checked_matrix(transition_matrix, "transition_matrix", len(names))
    return _from_class("class-conditional", clean, names, T, random_state)


def group_dependent(
    y: ArrayLike,
    groups: ArrayLike,
    transition_matrices: Mapping[Hashable, ArrayLike],
    *,
    classes: ArrayLike | None = None,
    random_state: RandomState = None,
) -> NoisyLabels:
    """Draw each noisy label from the T of its group; ``rows`` has each example's own row.

    Parameters
    ----------
    groups : array of shape (N,)
        The group of each example.
    transition_matrices : mapping from group to array of shape (K, K)
        T of each group, rows clean; rows sum to 1.
    y, classes, random_state
        As for `symmetric`.

    Examples
    --------
    >>> careful, careless = [[1, 0], [0, 1]], [[0.5, 0.5], [0.5, 0.5]]
    >>> noisy = group_dependent(
    ...     [0, 1] * 500, ["ann"] * 500 + ["bob"] * 500, {"ann": careful, "bob": careless},
    ...     random_state=0,
    ... )
    >>> noisy.transition_matrix
    array([[0.75, 0.25],
           [0.25, 0.75]])
    """
    clean, names = _encode(y, classes)
    group_of = np.asarray(groups)
    if group_of.shape != clean.shape:
        raise LabelNoiseError(
            f"Expected groups of shape ({len(clean)},), one for each label, but groups has "
            f"shape {group_of.shape}"
        )
    distinct, group_code = np.unique(group_of, return_inverse=True)
    for group in distinct.tolist():
        if group not in transition_matrices:
            raise LabelNoiseError(
                f"Expected a transition matrix for each group, but group {group!r} has none"
            )
    T = np.stack(
        [
            checked_matrix(transition_matrices[one], f"transition_matrices[{one!r}]", len(names))
            for one in distinct.tolist()
        ]
    )

    def rows_if(assumed: np.ndarray) -> np.ndarray:
        return T[group_code, assumed]

    rng = np.random.default_rng(random_state)
    return _from_rows("group-dependent", clean, names, rows_if, rng)


def instance_dependent(
    X: ArrayLike,
    y: ArrayLike,
    rate: float,
    *,
    scale: str = "unit",
    cap: float | Literal["auto"] | None = "auto",
    classes: ArrayLike | None = None,
    random_state: RandomState = None,
) -> NoisyLabels:
    """Flip labels to where a random linear map of the features points.

    Parameters
    ----------
    X : array of shape (N, d)
        Finite features. Read in blocks of rows, so a memory map will do.
    rate : float
        Location of the flip rates q_n, 0 to 1. Truncation moves their mean: 0.05 gives 0.10.
    scale : {"unit", "standard", "raw"}
        How X is scaled first: rows to norm 1; columns to mean 0 and variance 1; or not, as in the
        paper. With thousands of raw or standard features, an example has one class to flip to.
    cap : float, "auto" or None
        Keep ``T_ij(x) <= cap * T_ii(x)``. "auto" is the paper's: 0.9 for ``rate > 0.5``. A q_n
        for which no row meets the cap is lowered, and counted in ``n_lowered``.
    y, classes, random_state
        As for `symmetric`.

    Notes
    -----
    Algorithm 2 of the paper: with ``q_n ~ N(rate, 0.1^2)`` truncated to [0, 1] and W (d, K)
    standard normal, ``T(x_n)[i, j] = q_n softmax_{j != i}(x_n W)_j``, and ``1 - q_n`` for j = i.
    The excess over the cap raises the other classes by the same amount, up to the cap.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(2000, 16)), rng.integers(4, size=2000)
    >>> instance_dependent(X, y, rate=0.05, random_state=0)
    NoisyLabels(instance-dependent, scale unit, N=2000, K=4, rate=0.1010)
    """
    _check_rate(rate)
    expect_one_of("scale", scale, SCALES)
    ratio = _cap_ratio(cap, rate)
    clean, names = _encode(y, classes)
    n, k = len(clean), len(names)
    features = _expect_rows(np.asarray(X), n)
    rng = np.random.default_rng(random_state)
    low, high = -rate / _FLIP_RATE_SD, (1 - rate) / _FLIP_RATE_SD
    q = truncnorm.rvs(low, high, loc=rate, scale=_FLIP_RATE_SD, size=n, random_state=rng)
    q = np.clip(q, 0, 1)  # rate + SD * draw may round to just outside
    scores = _project(features, rng.standard_normal((features.shape[1], k)), scale)
    largest = 1.0 if ratio is None else ratio * (k - 1) / (1 + ratio * (k - 1))
    n_lowered, q = int(np.sum(q > largest)), np.minimum(q, largest)

    def rows_if(assumed: np.ndarray) -> np.ndarray:
        return _instance_rows(scores, assumed, q, ratio)

    found = _from_rows(f"instance-dependent, scale {scale}", clean, names, rows_if, rng)
    return replace(found, n_lowered=n_lowered)


def _from_class(
    kind: str, clean: np.ndarray, names: np.ndarray, T: np.ndarray, random_state: RandomState
) -> NoisyLabels:
    """Noisy labels where the clean class alone decides the row."""
    noisy = _draw(T, clean, np.random.default_rng(random_state))
    return NoisyLabels(
        kind=kind,
        labels=names[noisy],
        classes=names,
        transition_matrix=T,
        rate=float(np.mean(noisy != clean)),
    )


def _from_rows(
    kind: str,
    clean: np.ndarray,
    names: np.ndarray,
    rows_if: Callable[[np.ndarray], np.ndarray],
    rng: np.random.Generator,
) -> NoisyLabels:
    """Noisy labels where each example has a row of its own; `rows_if` gives it for each class."""
    rows = rows_if(clean)
    noisy = _draw(rows, np.arange(len(clean)), rng)
    return NoisyLabels(
        kind=kind,
        labels=names[noisy],
        classes=names,
        transition_matrix=_average_transition(rows_if, rows, clean),
        rate=float(np.mean(noisy != clean)),
        rows=rows,
    )


def _draw(rows: np.ndarray, row_of: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw a column for each example from ``rows[row_of]``, by inverse CDF, one uniform each."""
    uniform = rng.random(len(row_of))
    drawn = np.empty(len(row_of), dtype=np.intp)
    for block in row_blocks(len(row_of), rows.shape[1]):
        cdf = np.cumsum(rows[row_of[block]], axis=1)
        # Rounding may end the CDF just off 1. Scaled by its own end, a uniform below 1 stays
        # below that end, so no class past the last, nor one of probability 0, is ever drawn.
        drawn[block] = np.sum(cdf <= uniform[block, None] * cdf[:, -1:], axis=1)
    return drawn


def _average_transition(
    rows_if: Callable[[np.ndarray], np.ndarray], rows: np.ndarray, clean: np.ndarray
) -> np.ndarray:
    """Average row of each clean class; `rows_if` gives the rows under assumed clean classes."""
    k = rows.shape[1]
    T = np.empty((k, k))
    for i in range(k):
        own = rows[clean == i]
        # A class without examples still needs a row: what its noise would be on the others.
        T[i] = (own if len(own) else rows_if(np.full(len(clean), i))).mean(axis=0)
    return T


def _expect_rows(X: np.ndarray, n: int) -> np.ndarray:
    if X.ndim != 2 or len(X) != n:
        raise LabelNoiseError(
            f"Expected X of shape ({n}, d), one row for each label, but X has shape {X.shape}"
        )
    return X


def _project(X: np.ndarray, W: np.ndarray, scale: str) -> np.ndarray:
    """Scores ``x_n W`` of shape (N, K), X scaled a block at a time and never copied whole."""
    standard = StandardScaler()
    if scale == "standard":
        for _, x in _finite_blocks(X):
            standard.partial_fit(x)
    scores = np.empty((len(X), W.shape[1]))
    for block, x in _finite_blocks(X):
        if scale == "standard":
            x = standard.transform(x)
        elif scale == "unit":
            norm = np.linalg.norm(x, axis=1, keepdims=True)
            x /= np.where(norm > 0, norm, 1)
        scores[block] = x @ W
    return scores


def _finite_blocks(X: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Blocks of rows as fresh float64 arrays, with the slice each came from."""
    for block in row_blocks(*X.shape):
        x = np.array(X[block], dtype=np.float64)
        bad = ~np.isfinite(x).all(axis=1)
        if bad.any():
            raise LabelNoiseError(
                "Expected X without NaN or infinity, but row "
                f"{block.start + int(np.argmax(bad))} has one"
            )
        yield block, x


def _instance_rows(
    scores: np.ndarray, clean: np.ndarray, q: np.ndarray, ratio: float | None
) -> np.ndarray:
    """Rows ``T(x_n)[clean_n]`` of shape (N, K): lines 5 to 7 of the algorithm, then the cap."""
    rows = scores.copy()
    own = np.zeros(rows.shape, dtype=bool)
    own[np.arange(len(clean)), clean] = True
    rows[own] = -np.inf
    rows = q[:, None] * softmax(rows, axis=1)
    if ratio is not None:
        others = rows[~own].reshape(len(rows), -1)
        rows[~own] = _spread_excess(others, ratio * (1 - q)).ravel()
    rows[own] = 1 - q
    return rows


def _spread_excess(others: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Cut each row at its limit and raise the rest evenly, so that the row's sum is kept.

    The answer is ``min(others + level, limit)`` with one level for each row. If the m largest
    are the ones cut, the level follows from the sum; the right m is the first for which the
    next largest then stays within the limit.
    """
    width = others.shape[1]
    descending = -np.sort(-others, axis=1)
    cut = np.arange(width)
    rest = np.cumsum(descending[:, ::-1], axis=1)[:, ::-1]  # sum of all but the m largest
    total = rest[:, :1]
    level = (total - cut * limit[:, None] - rest) / (width - cut)
    fits = descending + level <= limit[:, None]
    fits[:, -1] = True  # a row exactly at its limit everywhere may miss it by rounding
    first = np.argmax(fits, axis=1)[:, None]
    return np.minimum(others + np.take_along_axis(level, first, axis=1), limit[:, None])


def _cap_ratio(cap: float | str | None, rate: float) -> float | None:
    """The cap in force, or None."""
    if cap is None:
        return None
    if isinstance(cap, str):
        if cap != "auto":
            raise LabelNoiseError(f"Expected cap to be a number, 'auto' or None, but cap = {cap!r}")
        return _PAPER_CAP if rate > 0.5 else None
    if not 0 < cap <= 1:
        raise LabelNoiseError(f"Expected 0 < cap <= 1, but cap = {cap}")
    return float(cap)


def _check_rate(rate: float) -> None:
    if not 0 <= rate <= 1:
        raise LabelNoiseError(f"Expected 0 <= rate <= 1, but rate = {rate}")


def _encode(y: ArrayLike, classes: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
    """Row number in T of each label, and the classes in that order."""
    clean, names = encode_labels(y, classes)
    if (clean < 0).any():
        raise LabelNoiseError(
            f"Expected y without missing labels, but {(clean < 0).sum()} of {len(clean)} are"
        )
    if len(names) < 2:
        raise LabelNoiseError(f"Expected at least two classes, but classes = {names.tolist()}")
    return clean, names
