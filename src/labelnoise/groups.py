"""GroupHOC: a transition matrix for each known group, and which groups label differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted

from labelnoise._errors import LabelNoiseError
from labelnoise._estimator import (
    Stored,
    encode_names,
    expect_one_of,
    expect_shrinkage,
    expect_whole,
    source_numbers,
    warn_of,
)
from labelnoise.hoc import ManyMatrices
from labelnoise.neighbors import METRICS, first_neighbors, listed_neighbors, nearest_neighbors
from labelnoise.solvers.grouped import GroupTriples, odds, solve_groups
from labelnoise.solvers.rows import normalised

NEIGHBORS_FROM = ("all", "own")

_LEAST_EXPECTED = 3  # labels expected of an entry, from which on it is compared
_NEGLIGIBLE = 1e-6
_OVER_THE_MEDIAN = 3.0  # the largest share of confusion over the median one, measured
_MOST_CONFUSED = 2.0  # the largest there may be; it exceeds 1 where neighbours are hardly better


class GroupHOC(ManyMatrices):
    """Estimate a transition matrix for each group: annotator, source or sub-population.

    All groups are fitted together. A small group takes what its data cannot say from the
    matrix of all data, and how much that is the data decide.

    Parameters
    ----------
    neighbors_from : {"all", "own"}, default="all"
        Where neighbours are looked for. "all" is right when the groups label the same kind of
        examples (annotators of one data set, shifts, batches): neighbours in other groups are
        nearer, a small group has neighbours at all, and each label is explained by the matrix
        of the group that gave it. "own" is right when groups are different populations, whose
        representations do not mix or in which neighbours across groups differ in their true
        class (cameras, hospitals, languages). A group that is too small to be searched by itself
        gets the matrix of all data.
    shrinkage : "auto" or float, default="auto"
        How many examples of a class the matrix of all data is worth, beside the group's own.
        "auto" estimates it for each class from how much the groups differ; 0 is none.
    n_neighbors, metric, classes, unlabeled
        As for `HOC`.

    Attributes
    ----------
    groups_ : array of shape (G,)
        The groups, in order.
    transition_matrices_ : array of shape (G, K, K)
        ``T[g, i, j]`` is the chance that a true i is labelled j in group g. Rows sum to 1.
    unshrunk_matrices_ : array of shape (G, K, K)
        The same from each group's own data.
    class_priors_ : array of shape (G, K)
        Estimated share of each true class in each group.
    noise_rates_ : array of shape (G,)
        Estimated share of wrong labels in each group.
    assignment_ : int array of shape (N,)
        Number of each example's group: ``transition_matrices_[assignment_]`` is what a loss
        takes.
    shrinkage_ : array of shape (G, K)
        Share of each row that comes from the matrix of all data: 0 is all the group's own.
    concentration_ : array of shape (K,)
        How many examples of the class the matrix of all data is worth.
    transition_matrix_ : array of shape (K, K)
        The mean of the groups' T, each counting by its examples, to which small groups are
        shrunk.
    global_ : HOC
        The estimate from all data together without the groups, from which the fit starts. It
        comes out near `transition_matrix_`, and not so near where the groups tell much of the
        classes, or where no one T explains them.
    classes_ : array of shape (K,)
        Labels in the order of the rows.

    Notes
    -----
    With groups g, h, l of an example and its two neighbours the model is
    ``P(a, b, c | g, h, l) = sum_i P(i | g, h, l) T_g[i, a] T_h[i, b] T_l[i, c]``, fitted by EM from
    `global_`, first with one T for all groups, then with one for each. Row i of a group has a
    Dirichlet prior around the mean of all groups, whose concentration maximises the likelihood
    of all groups' counts. ``P(i | g, h, l)`` is shrunk in the same way to what it is if neighbours
    belong to groups independently given their class.

    Not for groups in which neighbours are good to different degrees: one whose neighbours more
    often differ in their true class looks noisier than it is, as a data set does with `HOC`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from labelnoise.groups import GroupHOC
    >>> from labelnoise.noise import group_dependent
    >>> X, y = load_digits(return_X_y=True)
    >>> source = np.where(np.arange(len(y)) % 3 == 0, "B", "A")
    >>> careless = np.eye(10)
    >>> careless[3, [3, 5]] = 0.6, 0.4
    >>> noisy = group_dependent(y, source, {"A": np.eye(10), "B": careless}, random_state=0)
    >>> est = GroupHOC().fit(X, noisy.labels, groups=source)
    >>> est.transition_matrices_.shape
    (2, 10, 10)
    >>> bool(est.transition_matrices_[1, 3, 5] > 0.2)
    True
    >>> est.differences()[0].sentence.split(":")[0]
    'group B labels true 3 as 5 more often than group A'
    """

    _stored: ClassVar = {
        "classes": Stored("K", "names"),
        "groups": Stored("G", "names"),
        "transition_matrices": Stored("GKK"),
        "unshrunk_matrices": Stored("GKK"),
        "class_priors": Stored("GK"),
        "assignment": Stored("N", "G"),
        "shrinkage": Stored("GK", "numbers"),
        "concentration": Stored("K", "numbers"),
        "transition_matrix": Stored("KK"),
    }

    def __init__(
        self,
        *,
        neighbors_from: str = "all",
        shrinkage: str | float = "auto",
        n_neighbors: int = 2,
        metric: str = "cosine",
        classes: Sequence[Any] | np.ndarray | None = None,
        unlabeled: Any = None,
    ) -> None:
        self.neighbors_from = neighbors_from
        self.shrinkage = shrinkage
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.classes = classes
        self.unlabeled = unlabeled

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        neighbors: Any = None,
        sources: Any = None,
    ) -> GroupHOC:
        """Estimate a T for each group from representations, noisy labels and groups.

        Parameters
        ----------
        X : array or data frame of shape (N, d), or None
            Representations. None if `neighbors` is given.
        y : array of shape (N,)
            Noisy labels. None and NaN are unlabelled, and such examples are left out.
        groups : array of shape (N,)
            The group of each example: numbers or strings, none missing.
        neighbors : int array of shape (N, k) or sparse array of shape (N, N), optional
            Neighbours found elsewhere: row numbers, nearest first, or a graph of distances.
            With ``neighbors_from="own"`` those of other groups are passed over, so give more
            than `n_neighbors`; an example with fewer in its own group is the centre of no
            triple.
        sources : array of shape (N,), optional
            As for `HOC.fit`: examples of one source are no neighbours of each other.

        Returns
        -------
        GroupHOC
            Itself.
        """
        expect_one_of("neighbors_from", self.neighbors_from, NEIGHBORS_FROM)
        expect_one_of("metric", self.metric, METRICS)
        expect_whole("n_neighbors", self.n_neighbors, 2)
        expect_shrinkage(self.shrinkage)
        X, labels, classes = self._read(X, y)
        names, group = _encode_groups(groups, labels)
        source = source_numbers(sources, len(labels))
        rows, notes = self._usable_rows(X, labels, neighbors, self.n_neighbors)
        X = X if X is None or len(rows) == len(X) else X[rows]
        source = None if source is None else source[rows]
        if self.neighbors_from == "own":
            indices, is_centre = self._own(X, labels[rows], group[rows], neighbors, source)
        else:
            near = self._neighbors(X, labels[rows], neighbors, source, self.n_neighbors)
            indices, is_centre = near.indices, np.ones(len(rows), bool)
        self.global_ = self._solve_global(labels[rows], indices, classes, notes, is_centre)
        start = self.global_.transition_matrix_, self.global_.class_prior_
        triples = GroupTriples(labels[rows], group[rows], indices, is_centre, len(names))
        worth = None if self.shrinkage == "auto" else float(self.shrinkage)
        found = solve_groups(triples, *start, worth)
        self.classes_, self.groups_, self.assignment_ = classes, names, group
        self.transition_matrices_, self.unshrunk_matrices_ = found.T, found.unshrunk
        self.class_priors_, self.transition_matrix_ = found.mix, found.centre
        self.concentration_, self.shrinkage_ = found.worth, found.share
        self._alike = triples, found.shared_T, found.shared_prior
        self._compared: list[_Entry] | None = None
        # One T need not explain groups that differ: that it does not is no warning here.
        warn_of(finding for finding in self.global_.diagnostics_ if finding.name != "fit")
        return self

    def _own(
        self,
        X: Any,
        labels: np.ndarray,
        group: np.ndarray,
        given: Any,
        source: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Neighbours inside each example's group, and who has enough of them to be a centre."""
        n, k = len(labels), self.n_neighbors
        # Who is no centre has anyone for a neighbour.
        indices, is_centre = (np.arange(n)[:, None] + np.arange(1, k + 1)) % n, np.zeros(n, bool)
        if given is not None:
            listed = listed_neighbors(given, n, k)
            own = group[listed.indices] == group[:, None]
            found, is_centre = first_neighbors(listed, k, own, labels >= 0, source)
            if is_centre.any():
                indices[is_centre] = found.indices[is_centre]
        else:
            for g in np.unique(group):
                rows = np.flatnonzero(group == g)
                inside = None if source is None else source[rows]
                if len(rows if inside is None else np.unique(inside)) > k:
                    found = nearest_neighbors(X[rows], k, self.metric, sources=inside)
                    indices[rows], is_centre[rows] = rows[found.indices], True
        if not is_centre.any():
            raise LabelNoiseError(
                f"Expected more than n_neighbors = {k} examples of a group near each other, but no "
                f"example has {k} neighbours in its own group: use neighbors_from='all'"
            )
        return indices, is_centre

    @property
    def noise_rates_(self) -> np.ndarray:
        """(G,) estimated share of wrong labels in each group."""
        check_is_fitted(self)
        return 1 - np.einsum("gi,gii->g", self.class_priors_, self.transition_matrices_)

    def transition_for(self, index: Any) -> np.ndarray:
        """(K, K) T of the group of example `index`; (m, K, K) for m row numbers."""
        check_is_fitted(self)
        return self.transition_matrices_[self.assignment_[index]]

    def differences(self, level: float = 0.05) -> Differences:
        """Test whether the groups label differently, and say which entries of T differ.

        Parameters
        ----------
        level : float
            Chance of naming any difference where there is none.

        Returns
        -------
        Differences
            Print it: a sentence for each entry that differs, the clearest first.

        Notes
        -----
        Under one T for all groups, and class priors that depend on the groups (so that groups
        which differ only in their classes are alike), the labels j counted for class i in a
        group exceed their expectation ``T[i, j]`` by nothing but chance. The excess in the group
        is compared with that in the others. Its variance is added up over all pairs of triples
        that share members, and is at least that of counting each label as often as it is in a
        triple. Entries with fewer than three expected labels in the group, or in the others,
        are not compared. P-values are adjusted for the number of entries by Holm's method.

        Where neighbours differ in their true class, a group with more of class j has more of it
        among the neighbours of class i, too: were that all there is to ``T[i, j]``, it would be
        ``T[i, j] p_g[j] / p[j]`` in group g, up to scale. How far the entries go that way is
        estimated from all of them, and only what exceeds three times that is named.

        In simulations of groups that are alike this names a difference less often than `level`
        says. The chances in the sentences are the groups' own, not shrunk.
        """
        check_is_fitted(self)
        if not (isinstance(level, int | float) and 0 < level < 1):
            raise LabelNoiseError(f"Expected level to be between 0 and 1, but level = {level!r}")
        tested = self._entries()
        order = np.argsort([entry.p_value for entry in tested], kind="stable")
        # Holm: the smallest is multiplied by their number, the next by one less, and so on.
        adjusted = np.array([tested[i].p_value for i in order]) * np.arange(len(order), 0, -1)
        adjusted = np.minimum(np.maximum.accumulate(adjusted), 1)
        clear = [
            self._describe(tested[i], float(value), level)
            for i, value in zip(order, adjusted, strict=True)
            if value <= level
        ]
        p_value = float(adjusted[0]) if len(adjusted) else float("nan")
        return Differences(tuple(clear), p_value, level, len(tested))

    def _entries(self) -> list[_Entry]:
        if self._compared is None:
            self._compared = _Test(*self._alike, self.class_priors_).compare()
        return self._compared

    def _describe(self, entry: _Entry, p_value: float, level: float) -> Difference:
        g, i, j = entry.group, entry.row, entry.column
        value = self.unshrunk_matrices_[:, i, j]
        weight = self.class_priors_[:, i] * np.bincount(self.assignment_)
        rest = np.maximum(weight.sum() - weight, 1e-300)
        gap = value - (weight @ value - weight * value) / rest  # to the other groups together
        if len(self.groups_) == 2 and (gap[g] < 0) == (i != j):
            g = 1 - g  # of two, name the one that errs more
        margin = float(norm.isf(level / 2) * abs(gap[g]) / max(entry.deviations, 1e-300))
        group, true, label = self.groups_[g], self.classes_[i], self.classes_[j]
        others = f"group {self.groups_[1 - g]}" if len(self.groups_) == 2 else "the others"
        sentence = (
            f"group {group} labels true {true} {'correctly' if i == j else f'as {label}'} "
            f"{'more' if gap[g] > 0 else 'less'} often than {others}: {value[g]:.1%} against "
            f"{value[g] - gap[g]:.1%}, a difference of {100 * abs(gap[g]):.1f} "
            f"(+-{100 * margin:.1f}) points"
        )
        own, other = float(value[g]), float(value[g] - gap[g])
        return Difference(group, true, label, own, other, margin, p_value, sentence)

    def _content(self) -> dict[str, Any]:
        return super()._content() | {"compared": [vars(entry) for entry in self._entries()]}

    @classmethod
    def _from_content(cls, content: dict[str, Any]) -> Self:
        est = super()._from_content(content)
        est._compared = [_Entry(**entry) for entry in content["compared"]]
        G, K, _ = est.transition_matrices_.shape
        if not all(e.group < G and max(e.row, e.column) < K for e in est._compared):
            raise ValueError("an entry that was compared is outside T")
        return est

    def __str__(self) -> str:
        if not hasattr(self, "transition_matrices_"):
            return repr(self)
        sizes = np.bincount(self.assignment_)
        lines = [
            f"{self.global_.noise_rate_:.1%} of the labels are wrong in all groups together, by an "
            f"estimate from {sizes.sum():,} examples in {len(self.groups_)} groups."
        ]
        taken = (self.class_priors_ * self.shrinkage_).sum(axis=1)
        lines += [
            f"  group {name}: {rate:.1%} of {size:,} (of its T, {share:.0%} comes from all data)"
            for name, rate, size, share in zip(
                self.groups_, self.noise_rates_, sizes, taken, strict=True
            )
        ]
        return "\n".join([*lines, str(self.differences())])


@dataclass(frozen=True)
class Difference:
    """An entry of T in which a group differs from the others."""

    group: Any
    true_class: Any
    label: Any
    value: float
    """The group's chance that the true class gets this label."""
    others: float
    """The same in the other groups together."""
    margin: float
    """Half the width of the interval of ``value - others``, this entry taken by itself."""
    p_value: float
    """Adjusted for the number of entries compared."""
    sentence: str


@dataclass(frozen=True, repr=False)
class Differences(Sequence[Difference]):
    """In which entries of T the groups differ, the clearest first; prints as sentences."""

    found: tuple[Difference, ...]
    p_value: float
    """Of "all groups label alike". NaN where there was too little to compare."""
    level: float
    n_compared: int
    """How many entries had enough labels to be compared."""

    @property
    def differ(self) -> bool:
        """Whether the groups differ at all, at this level."""
        return bool(self.p_value <= self.level)

    def __getitem__(self, index: Any) -> Any:
        return self.found[index]

    def __len__(self) -> int:
        return len(self.found)

    def __repr__(self) -> str:
        if not self.n_compared:
            return "The groups have too few labels to be compared."
        if not self.differ:
            return (
                f"No difference between the groups is clear (p = {self.p_value:.2g}, "
                f"{self.n_compared} entries of T compared)."
            )
        head = f"The groups label differently (p = {self.p_value:.2g}):"
        return "\n".join([head, *(f"  {difference.sentence}" for difference in self)])


def _encode_groups(groups: Any, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Groups in order, and the number of each example's."""
    if groups is None:
        raise LabelNoiseError(
            "Expected groups, one for each example, but groups is None: without groups use HOC"
        )
    names, number = encode_names(groups, len(labels), "group")
    if len(names) < 2:
        raise LabelNoiseError(
            f"Expected at least two groups, but the number of groups is {len(names)}: "
            f"{names.tolist()}. For one group use HOC"
        )
    empty = names[np.bincount(number[labels >= 0], minlength=len(names)) == 0]
    if len(empty):
        raise LabelNoiseError(
            f"Expected a labelled example in each group, but group {empty[0]!s} has none "
            f"({len(empty)} such groups): leave its examples out, or join it with another group"
        )
    return names, number


@dataclass(frozen=True)
class _Entry:
    group: int
    row: int
    column: int
    p_value: float
    deviations: float  # of the excess, in standard errors


class _Test:
    """Whether labels of each group exceed what one T for all expects, against the others."""

    def __init__(
        self, triples: GroupTriples, T: np.ndarray, prior: np.ndarray, mix: np.ndarray
    ) -> None:
        self.triples, self.T, self.prior = triples, T, prior
        size = np.bincount(triples.group, minlength=triples.G)
        self.odds = odds(mix, size @ mix / size.sum())
        self.chance = sum(self._share(i) for i in range(len(T)))

    def _share(self, i: int) -> np.ndarray:
        triples = self.triples
        chance: np.ndarray = self.T[i][triples.label[triples.members]].prod(axis=1)
        return chance * self.prior[triples.composition, i]

    def compare(self) -> list[_Entry]:
        """Each entry of each group with enough labels to be compared."""
        rows = [found for i in range(len(self.T)) for found in self._excesses(i)]
        if not rows:
            return []
        place, excess, shift, error = (np.array(column) for column in zip(*rows, strict=True))
        # The share of confusion that most entries agree on: a weighted median.
        share = excess / np.where(shift == 0, 1e-300, shift)
        order = np.argsort(share)
        weight = np.cumsum((np.abs(shift) / error)[order])
        middle = float(share[order][np.searchsorted(weight, weight[-1] / 2)])
        most = np.clip(_OVER_THE_MEDIAN * middle, 0, _MOST_CONFUSED)
        rest = excess - most * shift
        clear = np.where((excess > 0) == (rest > 0), np.minimum(abs(excess), abs(rest)), 0)
        values = (2 * norm.sf(clear / error)).tolist(), (np.abs(excess) / error).tolist()
        return [
            _Entry(g, i, j, p_value, deviations)
            for (g, i, j), p_value, deviations in zip(place.tolist(), *values, strict=True)
        ]

    def _excesses(self, i: int) -> list[tuple[tuple[int, int, int], float, float, float]]:
        """Of entries (g, i, j): excess, how much confusion alone would make, standard error."""
        triples, row, G, K = self.triples, self.T[i], self.triples.G, len(self.T)
        posterior = self._share(i) / np.maximum(self.chance, 1e-300)
        active = np.flatnonzero(posterior > _NEGLIGIBLE)
        if not len(active):
            return []
        members, weight = triples.members[active], (triples.weight * posterior)[active]
        label, group = triples.label[members], triples.group[members]
        often = np.bincount(members.ravel(), np.repeat(weight, 3), len(triples.label))
        size = np.bincount(triples.group, often, G)
        squares = np.bincount(triples.group, often**2, G)
        centre, unit = np.unique(members[:, 0], return_inverse=True)
        overlap = _overlap(members, unit, len(often))
        # If the row were neighbours of other classes, and not wrong labels.
        confused = normalised(row * self.odds, np.tile(row, (G, 1)))

        found = []
        # Of two groups one differs from the other as the other from it.
        for g in range(1 if G == 2 else G):
            share, rest = size[g] / size.sum(), squares.sum() - squares[g]
            here = size[g] ** 2 / max(squares[g], 1e-300)
            there = (size.sum() - size[g]) ** 2 / max(rest, 1e-300)
            columns = np.flatnonzero(np.minimum(row, 1 - row) * min(here, there) >= _LEAST_EXPECTED)
            if not len(columns):
                continue
            inside = group == g
            amount = (inside - share) * weight[:, None]
            counted = _sums(amount, label, K)
            excess = counted - amount.sum() * row
            shift = _sums(amount, group, G) @ confused - amount.sum() * row
            # Around what each side has itself: a true difference is no variance.
            scatter = _sums(amount, unit[:, None] * K + label, len(centre) * K).reshape(-1, K)
            for part in (np.where(inside, amount, 0), np.where(inside, 0, amount)):
                usual = _sums(part, label, K) / (part.sum() or 1.0)
                scatter -= np.outer(np.bincount(unit, part.sum(axis=1)), usual)
            robust = (scatter * (overlap @ scatter)).sum(axis=0)
            counting = (1 - share) ** 2 * squares[g] + share**2 * rest
            error = np.sqrt(np.maximum(np.maximum(robust, row * (1 - row) * counting), 1e-300))
            found += [((g, i, j), excess[j], shift[j], error[j]) for j in columns.tolist()]
        return found


def _sums(amount: np.ndarray, number: np.ndarray, size: int) -> np.ndarray:
    """(size,) amount that falls on each number."""
    return np.bincount(number.ravel(), amount.ravel(), size)


def _overlap(members: np.ndarray, unit: np.ndarray, n: int) -> sp.csr_array:
    """(units, units) 1 where the triples around two centres share a member."""
    flat = (np.repeat(unit, 3), members.ravel())
    holds = sp.csr_array((np.ones(members.size), flat), shape=(int(unit.max()) + 1, n))
    shared = sp.csr_array(holds @ holds.T)
    shared.data[:] = 1
    return shared
