"""h, a softmax of the evidence, and T, found together from the noisy labels.

``P(y | x) = sum_k h_k(x) T[k, y]`` with ``h = softmax(sum_m a_m s_m(x) + c)``: one slope for each
kind of evidence, one intercept for each class, and T by its ratios ``r[k, j] = T[k, j] / T[k, k]``,
which are below 1. Where noise depends on the example, the ratios have a factor
``exp(b * rank(x) + c * likeness_j(x))``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit
from scipy.stats import rankdata

from labelnoise._arrays import HOST, Arrays
from labelnoise.clean_class.evidence import ENOUGH, LEAST_CHANCE, Evidence

PRIOR_LABELS = 1.0  # for each class, the T of the triples counts as this many labels
BLOCK = 160_000  # examples times classes in one block


class Dependence(NamedTuple):
    """What noise may depend on, beside the class."""

    rank: Any
    """(N,) from -1/2, the clearest example, to 1/2."""
    likeness: Any
    """(K, N) logarithm of h, with mean 0 over classes."""

    @classmethod
    def of(cls, h: Any, arrays: Arrays = HOST) -> Dependence:
        """From h (K, N)."""
        xp = arrays.xp
        # Equals share a rank: examples are sorted by label, which the rank must not tell.
        rank = (rankdata(arrays.get(-xp.amax(h, axis=0))) - 0.5) / h.shape[1] - 0.5
        likeness = xp.log(h + 1e-4)
        return cls(arrays.put(rank.astype(np.float32)), likeness - likeness.mean(axis=0))


@dataclass(frozen=True, eq=False)
class Model:
    """Slopes, intercepts, T by its ratios, and how noise depends on the example."""

    slopes: np.ndarray
    intercepts: np.ndarray
    ratios: np.ndarray
    """(K, K), 0 on the diagonal."""
    b: float = 0.0
    c: float = 0.0
    log_likelihood: float = -np.inf
    """Penalised."""

    @property
    def transition_matrix(self) -> np.ndarray:
        """(K, K) T; where noise depends on the example, that of an average one."""
        raw = self.ratios + np.eye(len(self.ratios))
        T: np.ndarray = raw / raw.sum(axis=1, keepdims=True)
        return T

    def h(self, scores: Any, arrays: Arrays = HOST) -> Any:
        """(K, n) P(clean class) of scores (m, K, n)."""
        h = arrays.put(self.slopes, np.float32) @ scores.reshape(len(scores), -1)
        h = h.reshape(scores.shape[1:])
        h += arrays.put(self.intercepts, np.float32)[:, None]
        h -= arrays.xp.amax(h, axis=0)
        arrays.xp.exp(h, out=h)
        h /= h.sum(axis=0)
        return h


def start_from(data: Evidence, T: np.ndarray) -> Model:
    """Where a search begins: T, and classes as frequent as their labels."""
    m, K, n = data.scores.shape
    ratios = np.clip(T / np.maximum(np.diag(T), 1e-12)[:, None], 1e-3, 0.97)
    np.fill_diagonal(ratios, 0)
    model = Model(np.ones(m), np.zeros(K), ratios)
    shares = np.maximum(np.bincount(data.labels, minlength=K), 1) / n
    some = data.scores[:, :, :: 1 + n // 5000]
    for _ in range(10):
        h = data.arrays.get(model.h(some, data.arrays)).mean(axis=1)
        missing = np.log(shares / np.maximum(h, LEAST_CHANCE))
        model = replace(model, intercepts=model.intercepts + missing)
    return model


def fit(
    data: Evidence,
    start: Model,
    expected: np.ndarray,
    depends: Dependence | None = None,
) -> Model:
    """Maximise the likelihood of the labels, with a prior of `PRIOR_LABELS` labels of each class.

    `expected` (K, K) is the T that the prior's labels follow. Slopes, b and c have a standard
    normal prior; b and c are 0 unless noise `depends` on the example.
    """
    m, K, n = data.scores.shape
    off = ~np.eye(K, dtype=bool)
    ends = [m, m + K, m + K * K]
    blocks = list(_blocks(data))
    precision = np.zeros(m + K * K + 2 * (depends is not None))
    precision[:m] = precision[m + K * K :] = 1.0

    def unpack(parameters: np.ndarray) -> Model:
        slopes, intercepts, logits, both = np.split(parameters, ends)
        ratios = np.zeros((K, K))
        ratios[off] = expit(logits)
        return Model(slopes, intercepts, ratios, *both.tolist())

    def sums_of(model: Model, of_block: Callable[..., np.ndarray]) -> Any:
        return sum(shared(lambda block: of_block(data, model, depends, *block), blocks))

    def objective(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        model = unpack(parameters)
        sums = sums_of(model, _sums)
        value, by_model, by_ratios, by_both = np.split(sums, [1, 1 + m + K, 1 + m + K + K * K])
        T = model.transition_matrix
        penalised = float(value[0]) + PRIOR_LABELS * (expected * np.log(T + 1e-12)).sum()
        by_ratios = by_ratios.reshape(K, K) + PRIOR_LABELS * (expected - T)
        by_ratios *= 1 - model.ratios
        gradient = np.concatenate([by_model, by_ratios[off], by_both]) - precision * parameters
        return precision @ parameters**2 / 2 - penalised, -gradient

    def scale(model: Model) -> np.ndarray:
        """About the root of the objective's second derivative by each parameter."""
        T, shares = model.transition_matrix, np.bincount(data.labels, minlength=K) / n
        of_labels = (n * shares[:, None] + PRIOR_LABELS) * T * (1 - T) * (1 - model.ratios) ** 2
        own = np.concatenate([np.full(m, 0.3 * n), 0.1 * n * shares, of_labels[off]])
        if depends is not None:
            own = np.append(own, sums_of(model, _squares))
        return np.sqrt(own + precision + 1e-2)

    begin = np.concatenate(
        [start.slopes, start.intercepts, logit(np.clip(start.ratios[off], 1e-9, 0.999))]
    )
    if depends is not None:
        begin = np.append(begin, [start.b, start.c])
    with data.arrays.sharing() as shared:
        size = scale(start)

        def in_scale(z: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = objective(begin + z / size)
            return value, gradient / size

        # Slopes are not negative: no evidence speaks against the class that it names.
        least = np.where(np.arange(len(begin)) < m, -begin * size, -np.inf)
        options = {"maxcor": 20, "ftol": 2e-7, "gtol": 1e-9}
        bounds = np.column_stack([least, np.full(len(begin), np.inf)])
        search: Any = {"jac": True, "method": "L-BFGS-B", "bounds": bounds, "options": options}
        found = minimize(in_scale, np.zeros(len(begin)), **search)
    return replace(unpack(begin + found.x / size), log_likelihood=-float(found.fun))


def explained(data: Evidence, model: Model, depends: Dependence | None = None) -> tuple[Any, Any]:
    """(K, N) h, and P(clean class | evidence, own label)."""
    arrays, (_, K, n) = data.arrays, data.scores.shape
    clean, posterior = arrays.empty((K, n)), arrays.empty((K, n))
    for label, rows in _blocks(data):
        seen = _explain(data, model, depends, label, rows)
        clean[:, rows], posterior[:, rows] = seen.h, seen.posterior
    return clean, posterior


def covariance_of_ratios(data: Evidence, model: Model, least: float) -> tuple[Any, Any]:
    """Covariance of the ratios above `least`, and the information of each ratio off the diagonal.

    Ratios near 0 are left out of the covariance: they are at their bound.
    """
    m, K, _ = data.scores.shape
    first, found = m + K, model.ratios[~np.eye(K, dtype=bool)]
    information = _information(data, model)
    information[np.diag_indices(len(information))] += 1e-2
    own = PRIOR_LABELS / (K - 1) / np.maximum(found, least) ** 2
    information[first:, first:] += np.diag(own)
    free = np.append(np.ones(first, bool), found > least)
    covariance = np.linalg.inv(information[np.ix_(free, free)])[first:, first:]
    return covariance, np.diag(information)[first:]


class _Explained(NamedTuple):
    """How the examples of a block came by their label; (K, rows) but for `likely`."""

    h: Any
    factor: Any
    """Of the ratios; one column where noise depends on the class alone."""
    right: Any
    """Chance that the label is right, by class."""
    posterior: Any
    likely: Any
    """(rows,) chance of the label."""


def _blocks(data: Evidence) -> Iterator[tuple[int, slice]]:
    """Labels, and some of the examples that have them."""
    K = data.scores.shape[1]
    most = max(1024, data.arrays.larger * BLOCK // K)
    ends = np.searchsorted(data.labels, np.arange(K + 1))
    for label, (first, end) in enumerate(pairwise(ends.tolist())):
        yield from ((label, slice(n, min(n + most, end))) for n in range(first, end, most))


def _explain(
    data: Evidence, model: Model, depends: Dependence | None, label: int, rows: slice
) -> _Explained:
    arrays, xp = data.arrays, data.arrays.xp
    h = model.h(data.scores[:, :, rows], arrays)
    h += LEAST_CHANCE
    r = arrays.put(model.ratios, np.float32)
    factor = xp.ones_like(h[:, :1])
    if depends is not None:
        factor = model.b * depends.rank[rows] + model.c * depends.likeness[:, rows]
        factor = xp.exp(xp.clip(factor, -30, 30))
    right = 1 / (1 + r @ factor)
    chance = r[:, label, None] * factor[label] * right
    chance[label] = right[label]
    posterior = h * chance
    likely = posterior.sum(axis=0)
    posterior /= likely
    return _Explained(h, factor, right, posterior, likely)


def _by_both(
    seen: _Explained, r: Any, depends: Dependence, label: int, rows: slice
) -> tuple[Any, Any]:
    """(rows,) derivatives of the log-likelihood by b and c."""
    likeness, weight = depends.likeness[:, rows], seen.posterior * seen.right
    wrong = 1 - seen.posterior[label]
    by_b = depends.rank[rows] * (wrong - (seen.posterior - weight).sum(axis=0))
    expected = (weight * (r @ (seen.factor * likeness))).sum(axis=0)
    return by_b, likeness[label] * wrong - expected


def _squares(
    data: Evidence, model: Model, depends: Dependence, label: int, rows: slice
) -> np.ndarray:
    """Sums of squares of the derivatives by b and c."""
    seen = _explain(data, model, depends, label, rows)
    r = data.arrays.put(model.ratios, np.float32)
    both = _by_both(seen, r, depends, label, rows)
    return np.array([float((by * by).sum(dtype=data.arrays.xp.float64)) for by in both])


def _sums(
    data: Evidence, model: Model, depends: Dependence | None, label: int, rows: slice
) -> np.ndarray:
    """Log-likelihood of a block, and its derivatives: slopes, intercepts, log ratios, b and c."""
    arrays, xp = data.arrays, data.arrays.xp
    seen = _explain(data, model, depends, label, rows)
    own = seen.posterior.sum(axis=1, dtype=xp.float64)
    weight = seen.posterior * seen.right
    by_both = []
    if depends is None:
        by_ratios = -model.ratios * arrays.get(weight.sum(axis=1, dtype=xp.float64))[:, None]
    else:
        by_ratios = -model.ratios * arrays.get(weight @ seen.factor.T).astype(np.float64)
        r = arrays.put(model.ratios, np.float32)
        by_both = [float(d.sum(dtype=xp.float64)) for d in _by_both(seen, r, depends, label, rows)]
    by_ratios[:, label] += arrays.get(own)
    by_logits = seen.posterior - seen.h
    by_slopes = [float((by_logits * s).sum(dtype=xp.float64)) for s in data.scores[:, :, rows]]
    by_intercepts = arrays.get(by_logits.sum(axis=1, dtype=xp.float64))
    value = float(xp.log(seen.likely).sum(dtype=xp.float64))
    return np.concatenate([[value], by_slopes, by_intercepts, by_ratios.ravel(), by_both])


def _information(data: Evidence, model: Model) -> np.ndarray:
    """Sum over examples of the outer product of the log-likelihood's derivatives.

    By slopes, intercepts and the ratios off the diagonal, where noise depends on the class alone.
    """
    arrays, xp = data.arrays, data.arrays.xp
    _, K, n = data.scores.shape
    every = 1 + n // (ENOUGH * K)
    off = arrays.put(~np.eye(K, dtype=bool))

    def product(block: tuple[int, slice]) -> Any:
        label, rows = block
        rows = slice(rows.start, rows.stop, every)
        seen = _explain(data, model, None, label, rows)
        by_ratios = xp.zeros((K, *seen.h.shape), dtype=xp.float32)
        by_ratios[:] = -(seen.posterior * seen.right)[:, None]
        by_ratios[:, label] += seen.h * seen.right / seen.likely
        by_logits = seen.posterior - seen.h
        by_slopes = (data.scores[:, :, rows] * by_logits).sum(axis=1)
        matrix = xp.concatenate([by_slopes, by_logits, by_ratios[off]])
        return matrix @ matrix.T

    with arrays.sharing() as shared:
        total = sum(shared(product, _blocks(data)))
    return every * arrays.get(total).astype(np.float64)
