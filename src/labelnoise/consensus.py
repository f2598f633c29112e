"""Which label triples occur: the statistic that all estimates are computed from.

A triple is the labels of an example (the centre) and of two of its neighbours. If the three
share their clean class i, the model says that it occurs with probability
``c3[a, b, c] = sum_i p[i] T[i, a] T[i, b] T[i, c]``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise._validation import class_numbers
from labelnoise.io.atomic import write_then_rename
from labelnoise.neighbors import Progress, nearest_neighbors

ROUNDS_SEARCH = ("sample", "all")

_MOST_CLASSES = 2_000_000  # K^3, the number of keys of triples, must fit int64


@dataclass(frozen=True, repr=False, eq=False)
class Consensus:
    """Distinct label triples with their weights.

    ``Consensus + Consensus`` merges two shards.

    Parameters
    ----------
    triples : int array of shape (M, 3)
        Distinct triples of class numbers: the centre's, then the two neighbours'.
    weights : float array of shape (M,)
        The weight of each triple. A centre's triples together weigh 1, or what was given.
    n_classes : int
        K; class numbers are 0 to K - 1.
    n_centers : int
        How many examples the triples are centred on. An example counts once, however many
        triples it is the centre of; with unequal weights it is the number of equal ones that
        would say as much, ``(sum w)^2 / sum w^2``.
    ordered : bool, default=False
        Whether the nearer neighbour comes second and the other one third, as in the paper. By
        default the neighbours' labels are in increasing order, which is all that the likelihood
        needs.
    """

    triples: np.ndarray
    weights: np.ndarray
    n_classes: int
    n_centers: int
    ordered: bool = False

    def __post_init__(self) -> None:
        if self.triples.ndim != 2 or self.triples.shape != (len(self.weights), 3):
            raise LabelNoiseError(
                f"Expected triples of shape (M, 3) and as many weights, but their shapes are "
                f"{self.triples.shape} and {self.weights.shape}"
            )
        class_numbers(self.triples, self.n_classes, name="triples")
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
        independent: bool = False,
        ordered: bool = False,
    ) -> Consensus:
        """Count the triples that neighbours form, with all pairs among a centre's neighbours.

        Parameters
        ----------
        labels : int array of shape (N,)
            Class numbers; -1 is unlabelled, and a triple with such a member is not counted.
        neighbors : int array of shape (N, k)
            Row numbers of each example's neighbours, k >= 2, nearest first.
        n_classes : int
        center_weight : float array of shape (N,), optional
            How much each example counts as a centre (as a neighbour it always counts). 0 leaves
            it out.
        independent : bool, default=False
            Count only the centres of `independent_centres`, the paper's ``E_3*``. They are about
            a fifth of all, so T has a larger error from them.
        ordered : bool, default=False
            Keep which neighbour is nearer.

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
        labels, n_classes = class_numbers(labels, n_classes, least=-1), int(n_classes)
        weight = np.ones(n) if center_weight is None else np.asarray(center_weight, float)
        if weight.shape != (n,) or not np.isfinite(weight).all() or (weight < 0).any():
            raise LabelNoiseError(
                f"Expected center_weight to be {n} finite numbers >= 0, but its shape is "
                f"{weight.shape} and its least value {weight.min(initial=np.inf)}"
            )
        if independent:
            usable = weight * (labels >= 0) * (labels[neighbors] >= 0).all(axis=1) > 0
            weight = weight * np.isin(np.arange(n), independent_centres(neighbors, usable))
        centre, triples, share = triples_around(np.where(weight > 0, labels, -1), labels[neighbors])
        used = weight[np.unique(centre)] / weight.max(initial=1e-300)
        n_centers = round(used.sum() ** 2 / max((used**2).sum(), 1e-300))
        return cls._of(triples, weight[centre] * share, n_classes, n_centers, ordered)

    @classmethod
    def from_labels(cls, labels: np.ndarray, n_classes: int, *, ordered: bool = False) -> Consensus:
        """Count triples that are given: three labels of each example, as an (N, 3) array.

        Rows with an unlabelled (-1) member are not counted.
        """
        labels = np.asarray(labels)
        if labels.ndim != 2 or labels.shape[1] != 3:
            raise LabelNoiseError(
                f"Expected three labels for each example, but labels has shape {labels.shape}"
            )
        labels, n_classes = class_numbers(labels, n_classes, least=-1), int(n_classes)
        labels = labels[(labels >= 0).all(axis=1)]
        return cls._of(labels, np.ones(len(labels)), n_classes, len(labels), ordered)

    @classmethod
    def from_rounds(
        cls,
        X: np.ndarray,
        labels: np.ndarray,
        n_classes: int,
        *,
        n_rounds: int = 50,
        sample_size: int = 15_000,
        neighbors_in: str = "sample",
        metric: str = "cosine",
        random_state: int | np.random.Generator | None = None,
        progress: Progress | None = None,
    ) -> Consensus:
        """Count as the paper does: in each of G rounds, the triples around a random sample E.

        Parameters
        ----------
        neighbors_in : {"sample", "all"}
            Where the two neighbours are searched for: within the sample, as the paper's public
            code does, or in all data, as its text can be read. In all data they are nearer, and
            one search serves all rounds.

        Notes
        -----
        Neighbours keep their order, as in the paper's c2 and c3. A sample as large as the data is
        the same in each round, so it is counted once.
        """
        n, n_classes = len(X), int(n_classes)
        if neighbors_in not in ROUNDS_SEARCH:
            raise LabelNoiseError(
                f"Expected neighbors_in to be one of {ROUNDS_SEARCH}, but neighbors_in = "
                f"{neighbors_in!r}"
            )
        if sample_size >= n:
            found = nearest_neighbors(X, 2, metric).indices
            return cls.from_neighbors(labels, found, n_classes, ordered=True)
        rng = np.random.default_rng(random_state)
        times = np.zeros(n)
        result = cls._of(np.empty((0, 3), int), np.empty(0), n_classes, 0, True)
        for done in range(n_rounds):
            sample = rng.choice(n, sample_size, replace=False)
            times[sample] += 1
            if neighbors_in == "sample":
                inside = nearest_neighbors(X[sample], 2, metric).indices
                result += cls.from_neighbors(labels[sample], inside, n_classes, ordered=True)
            if progress:
                progress(done + 1, n_rounds)
        if neighbors_in == "all":
            found = nearest_neighbors(X, 2, metric).indices
            result = cls.from_neighbors(labels, found, n_classes, center_weight=times, ordered=True)
        n_centers = int(((times > 0) & (labels >= 0)).sum())
        return replace(result, n_centers=n_centers)

    @classmethod
    def from_model(
        cls,
        transition_matrix: np.ndarray,
        class_prior: np.ndarray,
        n_centers: int = 1,
        *,
        neighbor_matrix: np.ndarray | None = None,
    ) -> Consensus:
        """Give the exact consensus of (T, p): every triple, weighted by its probability.

        `neighbor_matrix` takes the place of T for the two neighbours, if they differ in class.
        """
        K, M = len(class_prior), transition_matrix if neighbor_matrix is None else neighbor_matrix
        a, (b, c) = np.arange(K), np.triu_indices(K)
        orders = np.where(b == c, 1.0, 2.0)
        joint = class_prior[:, None] * transition_matrix
        chance = joint.T @ (M[:, b] * M[:, c] * orders)
        triples = np.column_stack([np.repeat(a, len(b)), np.tile(b, K), np.tile(c, K)])
        return cls._of(triples, chance.ravel() * n_centers, K, n_centers)

    @classmethod
    def _of(
        cls,
        triples: np.ndarray,
        weights: np.ndarray,
        K: int,
        n_centers: int,
        ordered: bool = False,
    ) -> Consensus:
        """Sort the two neighbours, unless they are ordered, and merge equal triples."""
        if K > _MOST_CLASSES:
            raise LabelNoiseError(f"Expected at most {_MOST_CLASSES} classes, but there are {K}")
        centre, near = triples[:, 0].astype(np.int64), triples[:, 1:]
        near = near if ordered else np.sort(near, axis=1)
        key, place = np.unique((centre * K + near[:, 0]) * K + near[:, 1], return_inverse=True)
        distinct = np.column_stack([key // K**2, key // K % K, key % K]).astype(np.int32)
        total = np.bincount(place.ravel(), weights=weights, minlength=len(key))
        return cls(distinct, total, K, n_centers, ordered)

    def __add__(self, other: Consensus) -> Consensus:
        if not isinstance(other, Consensus):
            return NotImplemented
        if self.n_classes != other.n_classes:
            raise LabelNoiseError(
                f"Expected the same number of classes in both consensuses, but there are "
                f"{self.n_classes} and {other.n_classes}"
            )
        return self._of(
            np.concatenate([self.triples, other.triples]),
            np.concatenate([self.weights, other.weights]),
            self.n_classes,
            self.n_centers + other.n_centers,
            self.ordered and other.ordered,
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
        """(K, K) frequency of a centre's label (rows) with a neighbour's (columns).

        If the triples are ordered: with its nearest neighbour's, as in the paper.
        """
        result, members = np.zeros((self.n_classes, self.n_classes)), self.triples.T
        for near in members[1:2] if self.ordered else members[1:]:
            np.add.at(result, (members[0], near), self.frequencies)
        return result / result.sum()

    @property
    def c3(self) -> np.ndarray:
        """(K, K, K) frequency of a centre's label with its neighbours', ordered or in either order.

        Dense: for a look at a few classes. The solvers use the triples.
        """
        result = np.zeros((self.n_classes,) * 3)
        a, b, c = self.triples.T
        np.add.at(result, (a, b, c), self.frequencies / 2)
        np.add.at(result, (a, b, c) if self.ordered else (a, c, b), self.frequencies / 2)
        return result

    @property
    def c3_squared(self) -> float:
        """Sum of the squares of c3, without making it."""
        same = self.triples[:, 1] == self.triples[:, 2]
        return float((self.frequencies**2 * np.where(same | self.ordered, 1, 0.5)).sum())

    def sorted_triples(self) -> tuple[np.ndarray, np.ndarray]:
        """Distinct sorted triples and their frequencies, whichever member is the centre.

        The symmetric model, in which neighbours share the class, needs no more.
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
                ordered=self.ordered,
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
                    bool(saved["ordered"]) if "ordered" in saved else False,
                )
        except Exception as error:  # zlib, zipfile and NumPy raise all kinds
            raise LabelNoiseError(
                f"Expected a consensus saved by Consensus.save, but {path} cannot be read as "
                f"one: {error}"
            ) from error


def triples_around(
    labels: np.ndarray, around: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Triples of each label (N,) with all pairs of its neighbours' labels (N, k).

    Gives the row of each centre (M,), the triples (M, 3), and one over the number of triples that
    the centre has (M,). -1 is unlabelled, and a triple with such a member is left out.
    """
    rows, found = [], []
    for i, j in combinations(range(around.shape[1]), 2):
        triples = np.column_stack([labels, around[:, i], around[:, j]])
        rows.append(np.flatnonzero((triples >= 0).all(axis=1)))
        found.append(triples[rows[-1]])
    centre = np.concatenate(rows)
    return centre, np.concatenate(found), 1 / np.bincount(centre, minlength=len(labels))[centre]


def independent_centres(neighbors: np.ndarray, usable: np.ndarray | None = None) -> np.ndarray:
    """Choose centres whose triples share no example: the paper's ``E_3*``.

    The paper's ``E_3*`` is the largest such set, which is hard to find (set packing). This takes
    each centre in turn if neither it nor one of its neighbours (N, k) belongs to one taken
    before: with two neighbours at least a third of the largest set.

    Parameters
    ----------
    neighbors : int array of shape (N, k)
    usable : bool array of shape (N,), optional
        Which examples may be centres.
    """
    free = [True] * len(neighbors)
    chosen = []
    candidates = np.arange(len(neighbors)) if usable is None else np.flatnonzero(usable)
    for centre, around in zip(candidates.tolist(), neighbors[candidates].tolist(), strict=True):
        if free[centre] and all(free[one] for one in around):
            chosen.append(centre)
            for one in (centre, *around):
                free[one] = False
    return np.array(chosen, np.intp)


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
