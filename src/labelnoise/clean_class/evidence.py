"""Evidence of each example's clean class that has not seen the example's own label.

Linear models of the features score each class; each model is trained without the fold that it
scores. The neighbours then vote, each for the class that a linear model and the neighbour's own
label suggest. They vote once more by their labels alone, because a linear model may be wrong in a
whole region. Votes for a fold are cast with models that have not seen the fold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from labelnoise._arrays import HOST, Arrays
from labelnoise.clean_class.linear import HeldOut, LinearModel

VOTERS = 18
"""How many of the nearest neighbours vote."""

FOLDS = 3
INVERSE_PENALTY = 0.1  # C of the linear models
LEAST_CHANCE = 1e-6  # of a class: its logarithm stays finite
UNIFORM_SHARE = 0.1  # of uniform noise in the T that votes use: no label is impossible
ENOUGH = 2000  # examples of a class, where not all are needed


@dataclass(frozen=True, eq=False)
class Evidence:
    """Scores of each class, and noisy labels, with the examples sorted by label."""

    scores: Any
    """(m, K, N) float32: the logarithm of each of m kinds of evidence, with mean 0 over classes."""
    labels: np.ndarray
    """(N,) class numbers, sorted."""
    arrays: Arrays = HOST


@dataclass(frozen=True, eq=False)
class Sample:
    """The examples that evidence is collected from."""

    X: np.ndarray
    labels: np.ndarray
    neighbors: np.ndarray
    """(N, k) row numbers, the nearest first."""
    order: np.ndarray
    """(N,) row numbers, sorted by label."""
    models: HeldOut
    arrays: Arrays = HOST


@dataclass(frozen=True, eq=False)
class Voters:
    """What collects evidence of examples that were not fitted."""

    linear: LinearModel
    """The mean of the folds' models."""
    suggested: Any
    """(N, K) class of each fitted example, by the linear models and its label."""
    by_label: Any
    """(N, K) logarithm of P(label | class) / P(label) for the label of each fitted example."""
    arrays: Arrays

    def evidence(self, X: np.ndarray, neighbors: np.ndarray) -> Any:
        """Scores (m, K, M) of new examples (M, d), given their fitted neighbours (M, k)."""
        linear, near = (self.arrays.put(part) for part in (self.linear.scores(X), neighbors))
        scores = _scores(linear, self.suggested, self.by_label, near, self.arrays)
        return scores - scores.mean(axis=1, keepdims=True)


def ordered(X: np.ndarray, labels: np.ndarray, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows sorted by label (N,), and classes (K,), in an order that depends on the data alone.

    Sums in another order round differently, and a search magnifies the difference. Rows of a class
    are sorted by the distance from the mean, which rotation does not change.
    """
    place = ((X - X.mean(axis=0, dtype=np.float64)) ** 2).sum(axis=1)
    ends = np.bincount(labels, minlength=K).cumsum()
    by_class = np.split(np.lexsort((place, labels)), ends[:-1])
    classes = np.argsort([place[rows[len(rows) // 2]] for rows in by_class])
    return np.concatenate([by_class[k] for k in classes]), classes


def sample(
    X: np.ndarray,
    labels: np.ndarray,
    neighbors: np.ndarray,
    order: np.ndarray,
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
    models = HeldOut(X, labels, INVERSE_PENALTY, fold % FOLDS, order, arrays)
    return Sample(X, labels, neighbors, order, models, arrays)


def collect(
    data: Sample, T: np.ndarray, step: Callable[[], None], every: int = 1
) -> tuple[Evidence, Voters]:
    """Collect the evidence, given T, of one example in `every`."""
    arrays, (n, K) = data.arrays, (len(data.labels), len(T))
    labels = arrays.put(data.labels)
    T = (1 - UNIFORM_SHARE) * T + UNIFORM_SHARE / K
    shown = np.bincount(data.labels, minlength=K) / n
    chance = arrays.put(T.T, np.float32)[labels]
    by_label = arrays.put(np.log(T / shown).T, np.float32)[labels]
    chosen = data.order[::every]
    place = np.full(n, -1)
    place[chosen] = np.arange(len(chosen))
    scores = arrays.empty((3, K, len(chosen)))
    models, total = [], 0
    for rows, model in data.models.fit(T, every):
        linear = data.models.scores(model)
        suggested = _suggested(linear, chance, arrays.xp)
        rows = rows[place[rows] >= 0]
        own = arrays.put(place[rows])
        near = arrays.put(data.neighbors[rows])
        scores[:, :, own] = _scores(linear[arrays.put(rows)], suggested, by_label, near, arrays)
        models.append(model)
        total = total + suggested
        step()
    scores -= scores.mean(axis=1, keepdims=True)
    voters = Voters(data.models.mean_model(models), total / len(models), by_label, arrays)
    return Evidence(scores, data.labels[chosen], arrays), voters


def _suggested(linear: Any, chance: Any, xp: Any) -> Any:
    """(N, K) class that a linear model and the example's own label suggest."""
    result = xp.exp(linear - xp.amax(linear, axis=1, keepdims=True))
    result *= chance
    result /= result.sum(axis=1, keepdims=True)
    return result


def _scores(linear: Any, suggested: Any, by_label: Any, near: Any, arrays: Arrays) -> Any:
    """(3, K, M) scores by the features, by neighbours' votes and by their labels alone."""
    votes, alone = 0 * linear, 0 * linear
    for column in near[:, :VOTERS].T:
        votes += suggested[column]
        alone += by_label[column]
    # One vote, so that no class has none. A sum of float32 would depend on the order of examples.
    votes += suggested.mean(axis=0, dtype=arrays.xp.float64) + LEAST_CHANCE
    return arrays.xp.stack([linear.T, arrays.xp.log(votes).T, alone.T])
