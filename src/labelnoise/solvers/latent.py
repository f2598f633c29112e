"""Matrices of several annotators by maximum likelihood of all labels: EM from several starts.

The model is ``P(l_1, ..., l_A) = sum_i p[i] prod_a T_a[i, l_a]`` over those who labelled the
example. Annotators of one group have one matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp

from labelnoise.consensus import Consensus
from labelnoise.solvers.rows import concentration, normalised
from labelnoise.solvers.search import em

_MOST_TRIPLES = 20  # of one example: as many as six labels have
_START_STEPS = 50  # EM steps from each start, before the best one is continued
_SMALLEST_CHANCE = 1e-12


@dataclass(frozen=True)
class LatentFit:
    """One point that EM reached."""

    matrices: np.ndarray
    """(G, K, K), one for each group of annotators, rows clean."""
    prior: np.ndarray
    """(K,)."""
    start: str
    objective: float = -np.inf
    steps: int = 0
    converged: bool = False


class LatentClasses:
    """The likelihood of all labels, with a matrix for each group of columns.

    Examples with equal labels are kept once: three labels of ten classes are at most 1000
    different rows. A row counts how often each (group, label) occurs, so that the
    log-likelihoods of the classes are one sparse product and an M-step another.
    """

    def __init__(
        self, views: np.ndarray, group: np.ndarray, K: int, clean: np.ndarray | None = None
    ) -> None:
        """Take class numbers (N, A), -1 where missing, and each column's group (A,).

        `clean` (N, K) is P(class | features), which then takes the place of the class prior.
        """
        self.K = K
        self.n_groups = int(group.max()) + 1
        row, column = np.nonzero(views >= 0)
        place = group[column] * K + views[row, column]
        shape = (len(views), self.n_groups * K)
        labels = sp.csr_array((np.ones(len(row)), (row, place)), shape)
        labels.sum_duplicates()
        # Equal rows have equal products with a random vector; different ones almost surely differ.
        key = labels @ np.random.default_rng(0).random(shape[1])
        _, first, self.row, weight = np.unique(
            key, return_index=True, return_inverse=True, return_counts=True
        )
        if clean is not None:  # each example has a prior of its own
            first = self.row = np.arange(len(views))
            weight = np.ones(len(views), np.intp)
        self.clean = None if clean is None else np.log(np.maximum(clean, _SMALLEST_CHANCE))
        self.labels = sp.csr_array(labels[first])
        self.transposed = sp.csr_array(self.labels.T)
        # Examples without labels do not count, not even for the prior.
        self.weight = np.where(np.diff(self.labels.indptr) > 0, weight, 0).astype(float)

    def posterior(self, matrices: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, float]:
        """(U, K) P(class | labels) of each distinct row, and the log-likelihood of all."""
        logs = np.log(np.maximum(matrices, _SMALLEST_CHANCE)).transpose(0, 2, 1)
        before = np.log(np.maximum(prior, 1e-300)) if self.clean is None else self.clean
        joint = self.labels @ logs.reshape(-1, self.K) + before
        total = logsumexp(joint, axis=1)
        return np.exp(joint - total[:, None]), float(self.weight @ total)

    def counts(self, posterior: np.ndarray) -> np.ndarray:
        """(G, K, K) how many labels (columns) each group gave to each class (rows)."""
        return self._by_group(self.transposed @ (posterior * self.weight[:, None]))

    def drawn_counts(self, matrices: np.ndarray, prior: np.ndarray) -> np.ndarray:
        """`counts` with a class drawn for each example.

        Expected counts vary less between annotators than counts do: judged by them, annotators
        differ too little, are drawn together, and differ less still.
        """
        rng = np.random.default_rng(0)
        posterior, _ = self.posterior(matrices, prior)
        drawn = rng.multinomial(self.weight.astype(int), posterior)
        return self._by_group(self.transposed @ drawn.astype(float))

    def _by_group(self, counts: np.ndarray) -> np.ndarray:
        return counts.reshape(self.n_groups, self.K, self.K).transpose(0, 2, 1)

    def start(self, matrices: np.ndarray, prior: np.ndarray, name: str) -> LatentFit:
        """A start off the boundary, which EM never leaves."""
        matrices, prior = 0.99 * matrices + 0.01 / self.K, 0.99 * prior + 0.01 / self.K
        return LatentFit(matrices, prior, name)

    def votes(self) -> list[LatentFit]:
        """Starts in which each example is what its labels say.

        All of them alike, as Dawid and Skene start; then those of one group more than the others,
        for each of the eight largest: where annotators are weak, one of these leads higher.
        """
        each = [np.eye(self.K)] * self.n_groups
        shares = {
            "vote": normalised(self.labels @ np.concatenate(each), np.full(self.K, 1 / self.K))
        }
        size = self.counts(shares["vote"]).sum(axis=(1, 2))
        for group in np.argsort(-size, kind="stable")[: 8 * (self.n_groups > 1)]:
            own = self.labels[:, group * self.K : (group + 1) * self.K].toarray()
            believed = normalised(own, shares["vote"])
            shares[f"annotator {group}"] = 0.7 * believed + 0.3 * shares["vote"]
        starts = []
        for name, share in shares.items():
            counts = self.counts(share)
            common = normalised(counts.sum(axis=0), np.eye(self.K))
            prior = self.weight @ share / self.weight.sum()
            starts.append(self.start(normalised(counts + common, common), prior, name))
        return starts

    def em(self, fit: LatentFit, worth: float, steps: int = 2000) -> LatentFit:
        """Expectation-maximisation, the rows of each group drawn to the common ones.

        The common matrix, which moves with the groups', counts for `worth` labels of each class.
        """

        def step(at: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
            posterior, _ = self.posterior(*at)
            counts = self.counts(posterior)
            common = normalised(counts.sum(axis=0), at[0][0])
            prior = self.weight @ posterior / self.weight.sum()
            return normalised(counts + worth * common, at[0]), prior

        def settled(before: tuple[np.ndarray, ...], after: tuple[np.ndarray, ...]) -> bool:
            changes = (np.abs(a - b).max() for a, b in zip(after, before, strict=True))
            return bool(max(changes) <= 1e-6)

        at, done, converged = em(step, (fit.matrices, fit.prior), steps, settled)
        posterior, objective = self.posterior(*at)
        if worth:
            common = normalised(self.counts(posterior).sum(axis=0), at[0][0])
            logs = np.log(np.maximum(at[0], _SMALLEST_CHANCE))
            objective += float((worth * common * logs).sum())
        return LatentFit(*at, fit.start, objective, fit.steps + done, converged)


def solve_latent(
    model: LatentClasses, T: np.ndarray, p: np.ndarray, worth: float | None = None
) -> tuple[LatentFit, float]:
    """The most likely matrices, from the best of several starts, and the strength of shrinkage.

    Starts are the one (T, p) for all and what votes say. Each group's rows are drawn to the common
    ones as if these were `worth` labels of each class, which by default is estimated.
    """
    shrunk = 1.0 if worth is None else worth
    starts = [model.start(np.repeat(T[None], model.n_groups, axis=0), p, "triples")]
    if model.clean is None:
        starts += model.votes()
    tried = [model.em(start, shrunk, _START_STEPS) for start in starts]
    fit = model.em(max(tried, key=lambda one: one.objective), shrunk)
    if worth is None:
        for _ in range(2):  # with more rounds the strength drifted upwards at K = 20
            shrunk = _strength(model.drawn_counts(fit.matrices, fit.prior))
            fit = model.em(fit, shrunk)
    return fit, shrunk


def _strength(counts: np.ndarray) -> float:
    """How many labels the common rows are worth, by how much the annotators' rows differ."""
    common = normalised(counts.sum(axis=0), np.eye(counts.shape[1]))
    return float(concentration(counts, common, one_for_all=True)[0])


def label_triples(views: np.ndarray, K: int) -> Consensus:
    """Count the triples among each example's labels, (N, A) class numbers, -1 where missing.

    Each example with three labels or more weighs 1, whatever the number of its triples. Of more
    than 20 triples, 20 are drawn.
    """
    rng = np.random.default_rng(0)
    count = (views >= 0).sum(axis=1)
    present_first = np.argsort(views < 0, axis=1, kind="stable")
    result = Consensus(np.empty((0, 3), np.int32), np.empty(0), K, 0)
    for m in np.unique(count[count >= 3]).tolist():
        rows = np.flatnonzero(count == m)
        labels = np.take_along_axis(views[rows], present_first[rows, :m], 1)
        if m * (m - 1) * (m - 2) // 6 <= _MOST_TRIPLES:
            members = list(combinations(range(m), 3))
        else:
            members = [tuple(rng.choice(m, 3, replace=False)) for _ in range(_MOST_TRIPLES)]
        for triple in members:
            counted = Consensus.from_labels(labels[:, list(triple)], K)
            result += Consensus(counted.triples, counted.weights / len(members), K, 0)
        result = replace(result, n_centers=result.n_centers + len(rows))
    return result
