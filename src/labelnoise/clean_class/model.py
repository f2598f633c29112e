"""The model: h, a softmax of the evidence, and T, found together from the labels.

``P(y | x) = sum_k h_k(x) T[k, y]`` with ``h = softmax(sum_m a_m s_m(x) + c)``: one slope for each
kind of evidence, an intercept for each class, and T by the ratios ``r[k, j] = T[k, j] / T[k, k]``,
which are below 1. Where noise depends on the example, the ratio has a factor ``odds_j(x)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.special import expit, logit

from labelnoise._arrays import HOST, Arrays

PRIOR_LABELS = 10.0  # of each class, for which the T of the triples stands
SLOPE_PRECISION = 0.1  # a priori: without it, classes that lie apart have slopes without bound
_BLOCK = 160_000  # examples times classes
_MOST_CURVED = 500  # parameters; of more, the curvature at the start tells too little
_CURVATURE_OPERATIONS = 4e9
_STEPS = (10, 20, 100)
ROUNDS, STEPS, NEGLIGIBLE = 20, 15, 0.1
B_PREC = 1.0
START = 1.0


@dataclass(frozen=True, eq=False)
class Data:
    """Evidence and labels, sorted by label, so that a block of examples has one column of T."""

    scores: Any
    """(m, K, N) evidence, float32."""
    labels: np.ndarray
    """(N,) class numbers, sorted."""
    arrays: Arrays = HOST

    @property
    def shape(self) -> tuple[int, int, int]:
        m, K, n = self.scores.shape
        return m, K, n

    def blocks(self) -> Iterator[tuple[int, slice]]:
        """Labels, and the examples that have them, some at a time."""
        _, K, _ = self.shape
        most = max(1024, self.arrays.larger * _BLOCK // K)
        ends = np.searchsorted(self.labels, np.arange(K + 1))
        for label, (first, end) in enumerate(pairwise(ends.tolist())):
            for start in range(first, end, most):
                yield label, slice(start, min(start + most, end))

    def every(self, step: int) -> Data:
        """One example in `step`."""
        return replace(self, scores=self.arrays.put(self.scores[:, :, ::step]), labels=self.labels[::step])


class Dependence(NamedTuple):
    """What noise may depend on, beside the class."""

    rank: Any
    """(N,) from -1/2, the clearest example, to 1/2."""
    likeness: Any
    """(K, N) logarithm of h, of mean 0."""


@dataclass(frozen=True, eq=False)
class Model:
    """Slopes, intercepts, ratios, and how noise depends on the example."""

    slopes: np.ndarray
    intercepts: np.ndarray
    ratios: np.ndarray
    """(K, K), 0 on the diagonal."""
    dependence: np.ndarray
    """(2,) b and c: of the rank, and of the likeness."""
    log_likelihood: float = -np.inf
    """Penalised."""

    @property
    def transition_matrix(self) -> np.ndarray:
        """(K, K) T, of an average example where noise depends on it."""
        raw = self.ratios + np.eye(len(self.ratios))
        return raw / raw.sum(axis=1, keepdims=True)

    def clean(self, scores: Any, arrays: Arrays = HOST) -> Any:
        """(K, n) h of scores (m, K, n)."""
        h = arrays.put(self.slopes, np.float32) @ scores.reshape(len(scores), -1)
        h = h.reshape(scores.shape[1:])
        h += arrays.put(self.intercepts, np.float32)[:, None]
        h -= arrays.xp.amax(h, axis=0)
        arrays.xp.exp(h, out=h)
        h /= h.sum(axis=0)
        return h


def ratios_of(T: np.ndarray) -> np.ndarray:
    """Ratios of T (K, K) to its diagonal, off the boundary."""
    ratios = np.clip(T / np.maximum(np.diag(T), 1e-12)[:, None], 1e-3, 0.97)
    np.fill_diagonal(ratios, 0)
    return ratios


def first_model(data: Data, T: np.ndarray) -> Model:
    """Where a search begins: T, and classes as frequent as their labels."""
    m, K, n = data.shape
    model = Model(np.full(m, START), np.zeros(K), ratios_of(T), np.zeros(2))
    shares = np.maximum(np.bincount(data.labels, minlength=K), 1) / n
    some = data.every(1 + n // 5000)
    for _ in range(10):
        h = data.arrays.get(model.clean(some.scores, data.arrays)).mean(axis=1)
        model = replace(model, intercepts=model.intercepts + np.log(shares / h))
    return model


class Seen(NamedTuple):
    h: Any
    factor: Any
    total: Any
    right: Any
    posterior: Any
    likely: Any


def explain(data: Data, model: Model, depends: Dependence | None, block: tuple[int, slice]) -> Seen:
    """How the examples of a block have come by their label."""
    arrays, xp = data.arrays, data.arrays.xp
    label, rows = block
    h = model.clean(data.scores[:, :, rows], arrays)
    r = arrays.put(model.ratios, np.float32)
    if depends is None:
        factor = xp.ones_like(h[:, :1])
    else:
        b, c = model.dependence.tolist()
        factor = b * depends.rank[rows] + c * depends.likeness[:, rows]
        xp.exp(xp.clip(factor, -30, 30), out=factor)
    total = r @ factor
    right = 1 / (1 + total)
    chance = r[:, label, None] * factor[label] * right
    chance[label] = right[label]
    posterior = h * chance
    likely = posterior.sum(axis=0) + 1e-30
    posterior /= likely
    return Seen(h, factor, total, right, posterior, likely)


def gradient_of(data, model, depends, block):
    """Sums over a block"""
    arrays, xp = data.arrays, data.arrays.xp
    label, rows = block
    double = partial(xp.sum, dtype=xp.float64)
    seen = explain(data, model, depends, block)
    weight = seen.posterior * seen.right
    if depends is None:
        by_ratios = -model.ratios * arrays.get(weight.sum(axis=1, dtype=xp.float64))[:, None]
        by_both = np.zeros(2)
    else:
        by_ratios = -model.ratios * arrays.get(weight @ seen.factor.T).astype(np.float64)
        by_both = np.array([float(d.sum(dtype=xp.float64)) for d in by_dependence(seen, weight, model, depends, block, arrays)])
    by_ratios[:, label] += arrays.get(seen.posterior.sum(axis=1, dtype=xp.float64))
    by_ratios[label, label] = 0
    value = float(xp.log(seen.likely).sum(dtype=xp.float64))
    by_logits = seen.posterior - seen.h
    scores = data.scores[:, :, rows]
    by_slopes = np.array([float((by_logits * score).sum(dtype=xp.float64)) for score in scores])
    return value, by_slopes, arrays.get(by_logits.sum(axis=1, dtype=xp.float64)), by_ratios, by_both


def by_dependence(seen, weight, model, depends, block, arrays):
    label, rows = block
    likeness = depends.likeness[:, rows]
    r = arrays.put(model.ratios, np.float32)
    wrong = 1 - seen.posterior[label]
    by_b = depends.rank[rows] * (wrong - (weight * seen.total).sum(axis=0))
    expected = (weight * (r @ (seen.factor * likeness))).sum(axis=0)
    return by_b, likeness[label] * wrong - expected


def information(data: Data, model: Model, depends: Dependence | None = None, operations=_CURVATURE_OPERATIONS) -> np.ndarray:
    """Sum over examples of the outer product of the log-likelihood's derivatives.

    By slopes, intercepts, log ratios, b and c.
    """
    arrays, xp = data.arrays, data.arrays.xp
    m, K, n = data.shape
    size = m + K * K + 2 * (depends is not None)
    every = 1 + int(n * size**2 / operations)
    off = arrays.put(~np.eye(K, dtype=bool))
    r = arrays.put(model.ratios, np.float32)

    def product(block):
        label, rows = block
        rows = slice(rows.start, rows.stop, every)
        seen = explain(data, model, depends, (label, rows))
        weight = seen.posterior * seen.right
        by_ratios = -weight[:, None] * (r[:, :, None] * seen.factor)
        by_ratios[:, label] += seen.posterior
        by_logits = seen.posterior - seen.h
        scores = data.scores[:, :, rows]
        derivatives = [(scores * by_logits).sum(axis=1), by_logits, by_ratios[off]]
        if depends is not None:
            derivatives.append(xp.stack(by_dependence(seen, weight, model, depends, (label, rows), arrays)))
        matrix = xp.concatenate(derivatives)
        return matrix @ matrix.T

    return every * arrays.get(sum(map(product, data.blocks()))).astype(np.float64)


def fit(
    data: Data,
    start: Model,
    expected: np.ndarray,
    depends: Dependence | None = None,
    *,
    prior_labels=None,
    steps: tuple[int, ...] = _STEPS,
) -> Model:
    """The model of the largest likelihood of the labels, with a prior for T."""
    m, K, n = data.shape
    off = ~np.eye(K, dtype=bool)
    blocks = list(data.blocks())
    prior_labels = PRIOR_LABELS if prior_labels is None else prior_labels

    def pack(model: Model) -> np.ndarray:
        parts = [model.slopes, model.intercepts, logit(model.ratios[off])]
        return np.concatenate(parts if depends is None else [*parts, model.dependence])

    def unpack(parameters: np.ndarray) -> Model:
        slopes, intercepts, logits, both = np.split(parameters, [m, m + K, m + K * K])
        ratios = np.zeros((K, K))
        ratios[off] = expit(logits)
        b = np.zeros(2) if depends is None else both
        return Model(slopes, intercepts, ratios, b)

    def objective(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        model = unpack(parameters)
        parts = [gradient_of(data, model, depends, block) for block in blocks]
        value, by_slopes, by_intercepts, by_ratios, by_both = (sum(p) for p in zip(*parts, strict=True))
        T, b = model.transition_matrix, model.dependence
        value += prior_labels * (expected * np.log(T + 1e-12)).sum()
        value -= SLOPE_PRECISION * (model.slopes**2).sum() / 2 + B_PREC * (b**2).sum() / 2
        by_ratios = by_ratios + prior_labels * (expected - T)
        gradient = [
            by_slopes - SLOPE_PRECISION * model.slopes,
            by_intercepts,
            (by_ratios * (1 - model.ratios))[off],
        ]
        if depends is not None:
            gradient.append(by_both - B_PREC * b)
        return -value / n, -np.concatenate(gradient) / n

    def curvature(model: Model) -> np.ndarray | None:
        if m + K * K > _MOST_CURVED:
            return None
        inner = np.ones(m + K * K + 2 * (depends is not None))
        inner[m + K : m + K * K] = (1 - model.ratios)[off]
        own = np.zeros(len(inner))
        own[:m] = SLOPE_PRECISION
        T = model.transition_matrix
        own[m + K : m + K * K] = (prior_labels * T * (1 - T) * (1 - model.ratios) ** 2)[off]
        if depends is not None:
            own[-2:] = B_PREC
        matrix = information(data, model, depends) * inner * inner[:, None] + np.diag(own)
        scale = np.sqrt(np.diag(matrix) + 1e-2)
        scaled = matrix / scale / scale[:, None] + 0.01 * np.eye(len(scale))
        return scale[:, None] * np.linalg.cholesky(scaled) / np.sqrt(n)

    model, value = start, np.inf
    for _ in range(ROUNDS):
        found = search(objective, pack(model), curvature(model), STEPS)
        model, before, value = unpack(found.x), value, found.fun * n
        if before - value < NEGLIGIBLE:
            break
    return replace(model, log_likelihood=-value)


def search(objective, start, curvature, steps):
    """by L-BFGS, in coordinates z of which parameters are ``start + inv(L') z``"""

    def parameters(z):
        return start + (z if curvature is None else solve_triangular(curvature, z, lower=True, trans="T"))

    def by_z(z):
        value, gradient = objective(parameters(z))
        if curvature is not None:
            gradient = solve_triangular(curvature, gradient, lower=True)
        return value, gradient

    options = {"maxiter": steps, "maxcor": 20, "ftol": 1e-9, "gtol": 1e-9}
    found = minimize(by_z, np.zeros(len(start)), jac=True, method="L-BFGS-B", options=options)
    found.x = parameters(found.x)
    return found


def explained(data: Data, model: Model, depends: Dependence | None = None) -> tuple[Any, np.ndarray]:
    """(K, N) h, and the (K, K) counts of clean class and label that it makes of the labels."""
    arrays, xp = data.arrays, data.arrays.xp
    _, K, n = data.shape
    clean, joint = arrays.empty((K, n)), np.zeros((K, K))
    for label, rows in data.blocks():
        seen = explain(data, model, depends, (label, rows))
        clean[:, rows] = seen.h
        joint[:, label] += arrays.get(seen.posterior.sum(axis=1, dtype=xp.float64))
    return clean, joint
