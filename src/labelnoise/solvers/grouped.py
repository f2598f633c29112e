"""One T for each group of examples, by EM on all triples together.

A triple's members may belong to different groups, and each member's label was made by the
matrix of its own group. So one model holds all groups together: for members of the groups
g, h and l ``P(a, b, c | g, h, l) = sum_i P(i | g, h, l) T_g[i, a] T_h[i, b] T_l[i, c]``.

All three groups carry information about the class: a neighbour from a source that has few cats
makes a cat less likely. With the class prior of the centre's group in place of P(i | g, h, l),
groups that differ only in their classes came out as labelling differently.

A label and its group together are called a token here: token ``g K + a`` is label a given in
group g. The groups of a triple, in order, are its composition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from labelnoise.solvers.rows import concentration, normalised
from labelnoise.solvers.search import em
from labelnoise.solvers.triples import TokenTriples

_EM_STEPS = 500
_ENOUGH_GAIN = 1e-4  # of the log-likelihood in a step, where 1 is what sampling changes
_SHARED_ROUNDS = 3  # of fitting one T for all and the worth of its priors in turn
_START_FLOOR = 0.01
_FLOOR = 0.001  # share of a row spread over all labels: a chance of 0 could never be corrected


class GroupTriples:
    """Every triple, with its members and its weight: those of a centre together weigh 1."""

    def __init__(
        self,
        label: np.ndarray,
        group: np.ndarray,
        neighbors: np.ndarray,
        is_centre: np.ndarray,
        G: int,
    ) -> None:
        """Take labels (N,), groups (N,) and neighbours (N, k) around those who are centres."""
        self.label, self.group, self.G = label, group, G
        n, k = neighbors.shape
        pairs = np.array(list(combinations(range(k), 2)))
        centre = np.repeat(np.arange(n), len(pairs))
        members = np.column_stack([centre, neighbors[:, pairs].reshape(-1, 2)])
        self.members = members[is_centre[centre] & (label[members] >= 0).all(axis=1)]
        self.weight = 1 / np.bincount(self.members[:, 0], minlength=n)[self.members[:, 0]]
        self.compositions, _, self.composition = _distinct(group[self.members], G)


@dataclass(frozen=True)
class GroupSolution:
    """What `solve_groups` found."""

    T: np.ndarray
    """(G, K, K) each group's, shrunk."""
    unshrunk: np.ndarray
    """(G, K, K) the same from the group's own data."""
    centre: np.ndarray
    """(K, K) the mean that groups are shrunk to."""
    mix: np.ndarray
    """(G, K) class prior of each group."""
    worth: np.ndarray
    """(K,) examples of each class that the mean is worth."""
    share: np.ndarray
    """(G, K) share that the mean has in each row."""
    shared_T: np.ndarray
    """(K, K) if all groups had one."""
    shared_prior: np.ndarray
    """(C, K) class prior of each composition, if they had."""


def solve_groups(
    triples: GroupTriples, T: np.ndarray, p: np.ndarray, worth: float | None = None
) -> GroupSolution:
    """Find each group's T by EM from one (T, p), first as one T for all, then as one for each.

    `worth` is how many examples of a class the mean of all groups is worth beside the group's
    own. By default it is estimated for each class from how much the groups differ.
    """
    model, K = GroupModel(triples, p), len(p)
    fit = model.start(T)
    for _ in range(_SHARED_ROUNDS):
        fit = model.weigh_priors(model.em(fit, np.full(K, np.inf)))
    shared = fit
    raw = model.em(replace(fit, T=model.start(fit.T[0]).T), np.zeros(K))
    # Once, from groups that were not yet shrunk: counts made with a shrunk T look more alike
    # than the groups are, and in turn with the concentration end in one T for all.
    each = concentration(raw.counts, raw.centre) if worth is None else np.full(K, worth)
    fit = model.em(model.weigh_priors(raw), each)
    share = _share_of_centre(fit.counts, each)
    return GroupSolution(fit.T, raw.T, fit.centre, fit.mix, each, share, shared.T[0], shared.prior)


@dataclass(frozen=True)
class _Fit:
    """Where EM stands."""

    T: np.ndarray  # (G, K, K)
    centre: np.ndarray  # (K, K) the mean that groups are shrunk to
    mix: np.ndarray  # (G, K) class prior of each group
    prior: np.ndarray  # (C, K) class prior of each composition
    counts: np.ndarray  # (G, K, K) labels of each class that T was made of
    in_composition: np.ndarray  # (C, K) classes that the prior was made of
    mix_worth: float  # examples that the overall class prior is worth in each group
    prior_worth: float  # triples that independence is worth in each composition
    value: float = -np.inf  # log-likelihood, before the last step


class GroupModel:
    """Chance of the distinct triples of tokens, and EM.

    An example is in several triples. With w the weight of those it is in, counting it w times
    has the sampling error of ``(sum w)^2 / sum w^2`` examples: `scale` makes counts sum to that,
    so that they can be set against a prior worth so many examples.
    """

    def __init__(self, triples: GroupTriples, overall: np.ndarray) -> None:
        self.triples, self.overall = triples, overall
        self.G, self.K = triples.G, len(overall)
        self.compositions = triples.compositions
        token = triples.group * self.K + triples.label
        self.tokens, first, place = _distinct(token[triples.members], self.G * self.K)
        self.composition = triples.composition[first]
        self.weight = np.bincount(place, triples.weight)
        often = np.bincount(triples.members.ravel(), np.repeat(triples.weight, 3))
        self.scale = often.sum() / (often**2).sum()
        size = np.bincount(triples.group[: len(often)], often, self.G)
        self.size = size / size.sum()
        self.counted = TokenTriples(
            self.tokens, self.weight, self.G * self.K, self.K, self.composition
        )

    def counts(self, T: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Labels of each class (G, K, K), classes in each composition (C, K), log-likelihood."""
        G, K = self.G, self.K
        columns = T.transpose(0, 2, 1).reshape(G * K, K)
        labels, chance, classes = self.counted.expected(columns, prior)
        by_class = labels.reshape(G, K, K).transpose(0, 2, 1)
        value = float(self.weight @ np.log(chance))
        return self.scale * by_class, self.scale * classes, self.scale * value

    def start(self, T: np.ndarray) -> _Fit:
        """Begin with one T (K, K), kept off the boundary that EM never leaves."""
        T = _interior(T, self.overall, _START_FLOOR)
        mix = np.tile(self.overall, (self.G, 1))
        prior = np.tile(self.overall, (len(self.compositions), 1))
        all_T = np.tile(T, (self.G, 1, 1))
        worth = float(self.K)
        return _Fit(all_T, T, mix, prior, 0 * all_T, 0 * prior, worth, worth)

    def em(self, fit: _Fit, worth: np.ndarray) -> _Fit:
        """Fit T and the class priors. The mean of all groups is worth so many examples (K,).

        With infinity all groups have one T.
        """

        def step(at: _Fit) -> _Fit:
            counts, classes, value = self.counts(at.T, at.prior)
            centre = _interior(normalised(counts.sum(axis=0), at.centre), self.overall, _FLOOR)
            share = _share_of_centre(counts, worth)[:, :, None]
            mix = normalised(counts.sum(axis=2) + at.mix_worth * self.overall, at.mix)
            return replace(
                at,
                T=share * centre + (1 - share) * normalised(counts, at.T),
                centre=centre,
                mix=mix,
                prior=normalised(classes + at.prior_worth * self._independent(mix), at.prior),
                counts=counts,
                in_composition=classes,
                value=value,
            )

        def settled(before: _Fit, after: _Fit) -> bool:
            return abs(after.value - before.value) < _ENOUGH_GAIN

        return em(step, replace(fit, value=-np.inf), _EM_STEPS, settled)[0]

    def weigh_priors(self, fit: _Fit) -> _Fit:
        """Find how much the classes differ between groups, and compositions from independence."""
        by_group, independent = fit.counts.sum(axis=2), self._independent(fit.mix)
        return replace(
            fit,
            mix_worth=float(concentration(by_group[:, None], self.overall[None])[0]),
            prior_worth=float(concentration(fit.in_composition[:, None], independent[:, None])[0]),
        )

    def _independent(self, mix: np.ndarray) -> np.ndarray:
        """(C, K) class prior of each composition if groups are independent given the class.

        Where neighbours were searched by group they are not, and it is that of the group.
        """
        if (self.compositions[:, 0] == self.compositions[:, 2]).all():
            return mix[self.compositions[:, 0]]
        # The mean of the groups themselves: against any other, each step of EM would make
        # classes that are frequent in all groups more so, until one is left.
        overall = self.size @ mix
        product = overall * odds(mix, overall)[self.compositions].prod(axis=1)
        size = product.sum(axis=1, keepdims=True)
        return np.where(size > 1e-200, product / np.maximum(size, 1e-200), self.overall)


def _distinct(triples: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct sorted triples of numbers below `size`, where each is first, which each is."""
    key = np.sort(triples, axis=1).astype(np.int64) @ [size**2, size, 1]
    key, first, which = np.unique(key, return_index=True, return_inverse=True)
    return np.column_stack([key // size**2, key // size % size, key % size]), first, which.ravel()


def odds(mix: np.ndarray, overall: np.ndarray) -> np.ndarray:
    """How much more frequent each class is in each group than overall."""
    return np.divide(mix, overall, out=np.zeros_like(mix), where=overall > 0)


def _share_of_centre(counts: np.ndarray, worth: np.ndarray) -> np.ndarray:
    """(G, K) share that the centre has in each row: all of it in a row without counts."""
    own = counts.sum(axis=2)
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(worth) | (own + worth <= 0), 1.0, worth / (own + worth))


def _interior(T: np.ndarray, p: np.ndarray, share: float) -> np.ndarray:
    """T with some of each row spread over all labels that occur."""
    occurring = p > 0
    spread = share * np.outer(occurring, occurring / occurring.sum())
    return (T + spread) / (T + spread).sum(axis=1, keepdims=True)
