"""Evidence of each example's clean class, from all but its own label.

Linear models of the features score each class, each trained without the fold that it scores. The
neighbours then vote: each with the class that its own score and its own label suggest, and once
more by their labels alone, as the linear models may be wrong in some region. Votes for a fold are
cast with models that have not seen the fold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from labelnoise._arrays import HOST, Arrays
from labelnoise._blocks import row_blocks
from labelnoise.linear import HeldOut

SCALES = (2, 6, 18)
"""So many nearest neighbours vote."""

_FOLDS = 5
_LABELS_OF_A_CLASS, _C = (2000, 5000), (0.03, 1.0)  # of the linear models, interpolated
_STEPS = 40  # of their search
_UNIFORM = 0.1  # share of uniform noise in the T of all evidence: no label is impossible


@dataclass(frozen=True, eq=False)
class Evidence:
    """Scores of each class and labels, with the examples sorted by label."""

    scores: Any
    """(m, K, N) float32, in each of the m kinds of evidence a logarithm of mean 0."""
    labels: np.ndarray
    """(N,) class numbers, sorted."""
    arrays: Arrays = HOST


@dataclass(frozen=True, eq=False)
class Sample:
    """The examples that evidence is taken from, in an order that is the data's own."""

    X: np.ndarray
    labels: np.ndarray
    neighbors: np.ndarray
    """(N, k) row numbers, the nearest first."""
    order: np.ndarray
    """(N,) row numbers, sorted by label."""
    models: HeldOut
    arrays: Arrays = HOST


def ordered(X: np.ndarray, labels: np.ndarray, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows sorted by label (N,) and classes (K,), in an order that does not depend on theirs.

    Sums are rounded differently in another order, which a search would magnify.
    """
    direction = np.random.default_rng(0).standard_normal(X.shape[1])
    place = np.concatenate([X[rows] @ direction for rows in row_blocks(*X.shape)])
    ends = np.bincount(labels, minlength=K).cumsum()
    by_class = np.split(np.lexsort((place, labels)), ends[:-1])
    classes = np.argsort([place[rows[len(rows) // 2]] for rows in by_class])
    return np.concatenate([by_class[k] for k in classes]), classes


def sample(
    X: np.ndarray,
    labels: np.ndarray,
    neighbors: np.ndarray,
    order: np.ndarray,
    K: int,
    sources: np.ndarray | None = None,
    arrays: Arrays = HOST,
) -> Sample:
    """Divide the examples into folds, by their place in the class or by source."""
    if sources is None:
        counts = np.bincount(labels)
        fold = np.empty_like(order)
        fold[order] = np.arange(len(order)) - np.repeat(counts.cumsum() - counts, counts)
    else:
        fold = np.unique(sources, return_inverse=True)[1]
    per_class = min(len(labels) / K, _LABELS_OF_A_CLASS[1])
    C = float(np.exp(np.interp(per_class, _LABELS_OF_A_CLASS, np.log(_C))))
    models = HeldOut(X, labels, C, fold % _FOLDS, order, arrays)
    return Sample(X, labels, neighbors, order, models, arrays)


def evidence(data: Sample, T: np.ndarray, step: Callable[[], None], every: int = 1) -> Evidence:
    """Collect the evidence, given T, of one example in `every`."""
    arrays, (n, K), k = data.arrays, (len(data.labels), len(T)), data.neighbors.shape[1]
    xp, labels = arrays.xp, arrays.put(data.labels)
    T = (1 - _UNIFORM) * T + _UNIFORM / K
    scales = sorted({min(most, k) for most in SCALES})
    shown = np.bincount(data.labels, minlength=K) / n
    by_class = arrays.put(T.T, np.float32)[labels]
    by_label = arrays.put(np.log(T / shown).T, np.float32)[labels]
    place = np.full(n, -1)
    chosen = data.order[::every]
    place[chosen] = np.arange(len(chosen))
    scores = arrays.empty((2 + len(scales), K, len(chosen)))
    for rows, linear in data.models.scores(T, every=every, steps=_STEPS):
        rows = rows[place[rows] >= 0]
        own = arrays.put(place[rows])
        suggested = xp.exp(linear - xp.amax(linear, axis=1, keepdims=True))
        suggested *= by_class
        suggested /= suggested.sum(axis=1, keepdims=True)
        before = suggested.mean(axis=0)
        scores[0][:, own] = linear[arrays.put(rows)].T
        votes, alone = 0 * suggested[: len(rows)], 0 * suggested[: len(rows)]
        for number, column in enumerate(arrays.put(data.neighbors[rows, : scales[-1]].T), 1):
            votes += suggested[column]
            alone += by_label[column]
            if number in scales:
                scores[1 + scales.index(number)][:, own] = xp.log(votes + before).T
        scores[-1][:, own] = alone.T
        step()
    scores -= scores.mean(axis=1, keepdims=True)
    return Evidence(scores, data.labels[chosen], arrays)
