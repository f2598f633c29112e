"""Which label triples occur: the one statistic that everything after it is computed from.

A triple is the labels of an example (the centre) and of two of its neighbours. If the three
share their clean class i, the model says that it occurs with probability
``c3[a, b, c] = sum_i p[i] T[i, a] T[i, b] T[i, c]``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise._files import write_then_rename
from labelnoise.neighbors import Progress, nearest_neighbors

_ROUNDING = 1e-12  # relative to the largest weight: less is left over from sums
_LARGEST_CLASS_COUNT = 2_000_000  # a triple is counted under one int64 key below K^3


@dataclass(frozen=True, repr=False, eq=False)
class Consensus:
    """Distinct label triples with their weights.

    ``Consensus + Consensus`` merges two shards, and ``-`` takes one out again.

    Parameters
    ----------
    triples : int array of shape (M, 3)
        Distinct triples of class numbers: the centre's, then the two neighbours' in
        increasing order (which of the two is nearer is not kept).
    weights : float array of shape (M,)
        The weight of each triple. A centre's triples together weigh 1, or what was given.
    n_classes : int
        K; class numbers are 0 to K - 1.
    n_centers : int
        How many examples the triples are centred on. An example counts once, however many
        triples it is the centre of; with unequal weights it is the number of equal ones that
        would say as much, ``(sum w)^2 / sum w^2``.
    """

    triples: np.ndarray
    weights: np.ndarray
    n_classes: int
    n_centers: int

    def __post_init__(self) -> None:
        if self.triples.ndim != 2 or self.triples.shape != (len(self.weights), 3):
            raise LabelNoiseError(
                f"Expected triples of shape (M, 3) and as many weights, but their shapes are "
                f"{self.triples.shape} and {self.weights.shape}"
            )
        _class_numbers(self.triples, self.n_classes, least=0)
        if len(self.weights) and not (np.isfinite(self.weights).all() and self.weights.min() >= 0):
            raise LabelNoiseError("Expected finite weights >= 0, but some are not")

    @classmethod
    def from_neighbors(
        cls,
        labels: np.ndarray,
        neighbors: np.ndarray,
        n_classes: int,
        *,
        center_weight: np.ndarray | None = None,
    ) -> Consensus:
        """Count the triples that neighbours form, with all pairs among a centre's neighbours.

        Parameters
        ----------
        labels : int array of shape (N,)
            Class numbers; -1 is unlabelled, and a triple with such a member is not counted.
        neighbors : int array of shape (N, k)
            Row numbers of each example's neighbours, k >= 2.
        n_classes : int
        center_weight : float array of shape (N,), optional
            How much each example counts as a centre (as a neighbour it always counts). 0 leaves
            it out.

        Examples
        --------
        >>> import numpy as np
        >>> labels = np.array([0, 0, 1])
        >>> neighbors = np.array([[1, 2], [0, 2], [0, 1]])
        >>> Consensus.from_neighbors(labels, neighbors, 2).triples.tolist()
        [[0, 0, 1], [1, 0, 0]]
        """
        n, k = neighbors.shape
        if k < 2:
            raise LabelNoiseError(
                f"Expected at least 2 neighbors of each example, but there is {k}"
            )
        labels, n_classes = _class_numbers(labels, n_classes), int(n_classes)
        weight = np.ones(n) if center_weight is None else np.asarray(center_weight, float)
        if weight.shape != (n,) or not np.isfinite(weight).all() or (weight < 0).any():
            raise LabelNoiseError(
                f"Expected center_weight to be {n} finite numbers >= 0, but its shape is "
                f"{weight.shape} and its least value {weight.min(initial=np.inf)}"
            )
        around = labels[neighbors]
        pairs = list(combinations(range(k), 2))
        usable = [(around[:, i] >= 0) & (around[:, j] >= 0) for i, j in pairs]
        centre = (labels >= 0) & (weight > 0) & np.any(usable, axis=0)
        share = weight / np.maximum(np.sum(usable, axis=0), 1)
        triples, weights = [], []
        for (i, j), both in zip(pairs, usable, strict=True):
            rows = np.flatnonzero(both & centre)
            triples.append(np.column_stack([labels[rows], around[rows, i], around[rows, j]]))
            weights.append(share[rows])
        used = weight[centre] / weight.max(initial=1e-300)
        n_centers = round(used.sum() ** 2 / max((used**2).sum(), 1e-300))
        return cls._of(np.concatenate(triples), np.concatenate(weights), n_classes, n_centers)

    @classmethod
    def from_labels(cls, labels: np.ndarray, n_classes: int) -> Consensus:
        """Count triples that are given: three labels of each example, as an (N, 3) array.

        Rows with an unlabelled (-1) member are not counted.
        """
        labels = np.asarray(labels)
        if labels.ndim != 2 or labels.shape[1] != 3:
            raise LabelNoiseError(
                f"Expected three labels for each example, but labels has shape {labels.shape}"
            )
        labels, n_classes = _class_numbers(labels, n_classes), int(n_classes)
        labels = labels[(labels >= 0).all(axis=1)]
        return cls._of(labels, np.ones(len(labels)), n_classes, len(labels))

    @classmethod
    def from_rounds(
        cls,
        X: np.ndarray,
        labels: np.ndarray,
        n_classes: int,
        *,
        n_rounds: int = 50,
        sample_size: int = 15_000,
        metric: str = "cosine",
        random_state: int | np.random.Generator | None = None,
        progress: Progress | None = None,
    ) -> Consensus:
        """Count as the paper does: in each of G rounds, triples inside a random sample E.

        The two neighbours are searched within the sample, as the paper's public code does.
        A sample as large as the data is the same in each round, so it is counted once.
        """
        n, n_classes = len(X), int(n_classes)
        if sample_size >= n:
            return cls.from_neighbors(labels, nearest_neighbors(X, 2, metric).indices, n_classes)
        rng = np.random.default_rng(random_state)
        result = cls._of(np.empty((0, 3), int), np.empty(0), n_classes, 0)
        seen = np.zeros(n, bool)
        for done in range(n_rounds):
            sample = rng.choice(n, sample_size, replace=False)
            seen[sample] = True
            inside = nearest_neighbors(X[sample], 2, metric).indices
            result += cls.from_neighbors(labels[sample], inside, n_classes)
            if progress:
                progress(done + 1, n_rounds)
        return cls(result.triples, result.weights, n_classes, int((seen & (labels >= 0)).sum()))

    @classmethod
    def from_model(
        cls, transition_matrix: np.ndarray, class_prior: np.ndarray, n_centers: int = 1
    ) -> Consensus:
        """Give the exact consensus of (T, p): every triple, weighted by its probability."""
        K = len(class_prior)
        a, (b, c) = np.arange(K), np.triu_indices(K)
        orders = np.where(b == c, 1.0, 2.0)
        joint = class_prior[:, None] * transition_matrix
        chance = joint.T @ (transition_matrix[:, b] * transition_matrix[:, c] * orders)
        triples = np.column_stack([np.repeat(a, len(b)), np.tile(b, K), np.tile(c, K)])
        return cls._of(triples, chance.ravel() * n_centers, K, n_centers)

    @classmethod
    def _of(cls, triples: np.ndarray, weights: np.ndarray, K: int, n_centers: int) -> Consensus:
        """Sort the two neighbours, and add the weights of equal triples."""
        if K > _LARGEST_CLASS_COUNT:
            raise LabelNoiseError(
                f"Expected at most {_LARGEST_CLASS_COUNT} classes, but there are {K}"
            )
        centre, low, high = triples[:, 0], triples[:, 1:].min(1), triples[:, 1:].max(1)
        key, place = np.unique((centre.astype(np.int64) * K + low) * K + high, return_inverse=True)
        distinct = np.column_stack([key // K**2, key // K % K, key % K]).astype(np.int32)
        total = np.bincount(place.ravel(), weights=weights, minlength=len(key))
        if len(weights) and weights.min() < 0:  # something was taken away
            least = float(total.min())
            if least < -_ROUNDING * weights.max() or n_centers < 0:
                raise LabelNoiseError(
                    f"Expected a consensus that is part of the one it is taken from, but a triple "
                    f"would weigh {least:.3g}, around {n_centers} examples"
                )
            left = total > _ROUNDING * weights.max()
            distinct, total = distinct[left], total[left]
        return cls(distinct, total, K, n_centers)

    def __add__(self, other: Consensus) -> Consensus:
        if not isinstance(other, Consensus):
            return NotImplemented
        return self._joined(other, other.weights, other.n_centers)

    def __sub__(self, other: Consensus) -> Consensus:
        if not isinstance(other, Consensus):
            return NotImplemented
        return self._joined(other, -other.weights, -other.n_centers)

    def _joined(self, other: Consensus, weights: np.ndarray, n_centers: int) -> Consensus:
        if self.n_classes != other.n_classes:
            raise LabelNoiseError(
                f"Expected the same number of classes in both consensuses, but there are "
                f"{self.n_classes} and {other.n_classes}"
            )
        triples = np.concatenate([self.triples, other.triples])
        return self._of(
            triples,
            np.concatenate([self.weights, weights]),
            self.n_classes,
            self.n_centers + n_centers,
        )

    def __radd__(self, other: object) -> Consensus:
        return self if other == 0 else NotImplemented  # the start of sum()

    def __repr__(self) -> str:
        return (
            f"Consensus({len(self.weights):,} distinct triples around {self.n_centers:,} "
            f"examples, {self.n_classes} classes)"
        )

    @property
    def frequencies(self) -> np.ndarray:
        """(M,) share of each triple; they sum to 1."""
        return self.weights / self.weights.sum()

    @property
    def c1(self) -> np.ndarray:
        """(K,) frequency of each label among the centres."""
        return np.bincount(self.triples[:, 0], self.frequencies, self.n_classes)

    @property
    def c2(self) -> np.ndarray:
        """(K, K) frequency of a centre's label (rows) with a neighbour's (columns)."""
        result = np.zeros((self.n_classes, self.n_classes))
        for neighbor in (1, 2):
            np.add.at(result, (self.triples[:, 0], self.triples[:, neighbor]), self.frequencies / 2)
        return result

    @property
    def c3(self) -> np.ndarray:
        """(K, K, K) frequency of a centre's label with its neighbours', in either order.

        Dense: for a look at a few classes. The solvers use the triples.
        """
        result = np.zeros((self.n_classes,) * 3)
        a, b, c = self.triples.T
        np.add.at(result, (a, b, c), self.frequencies / 2)
        np.add.at(result, (a, c, b), self.frequencies / 2)
        return result

    def sorted_triples(self) -> tuple[np.ndarray, np.ndarray]:
        """Forget which member is the centre: distinct sorted triples and their frequencies.

        This is all that the symmetric model, in which neighbours surely share the class, uses.
        """
        ordered = np.sort(self.triples, axis=1)
        merged = self._of(ordered, self.frequencies, self.n_classes, self.n_centers)
        occurs = merged.weights > 0
        return merged.triples[occurs], merged.weights[occurs]

    def label_counts(self) -> np.ndarray:
        """(K,) how many centres have each label."""
        return self.c1 * self.n_centers

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a NumPy archive (no pickle); `load` reads it."""
        with write_then_rename(path) as file:
            np.savez_compressed(
                file,
                triples=self.triples,
                weights=self.weights,
                n_classes=self.n_classes,
                n_centers=self.n_centers,
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Consensus:
        """Read what `save` wrote."""
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as saved:
                return cls(
                    saved["triples"],
                    saved["weights"],
                    int(saved["n_classes"]),
                    int(saved["n_centers"]),
                )
        except Exception as error:  # zlib, zipfile and NumPy raise all kinds
            raise LabelNoiseError(
                f"Expected a consensus saved by Consensus.save, but {path} cannot be read as "
                f"one: {error}"
            ) from error


def _class_numbers(labels: Any, n_classes: int, least: int = -1) -> np.ndarray:
    """Class numbers as integers that cannot overflow; -1 is unlabelled."""
    labels = np.asarray(labels)
    if labels.dtype.kind not in "iub":
        raise LabelNoiseError(
            f"Expected class numbers (integers), but their type is {labels.dtype}"
        )
    if labels.size and not least <= labels.min() <= labels.max() < n_classes:
        unlabelled = "-1 (unlabelled)" if least else "0"
        raise LabelNoiseError(
            f"Expected class numbers from {unlabelled} to n_classes - 1 = {n_classes - 1}, but "
            f"they range from {labels.min()} to {labels.max()}"
        )
    return labels.astype(np.int64)


def expected_consensus(
    transition_matrix: np.ndarray, class_prior: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Give the model's c1 (K,), c2 (K, K) and c3 (K, K, K), written as on paper.

    ``c1 = T' p``, ``c2 = sum_i p_i T_i T_i'``, ``c3 = sum_i p_i T_i x T_i x T_i``.
    """
    T, p = transition_matrix, class_prior
    return (
        T.T @ p,
        np.einsum("i,ij,ik->jk", p, T, T),
        np.einsum("i,ij,ik,il->jkl", p, T, T, T),
    )
