"""GroupHOC: a transition matrix for each known group, and which groups label differently.

A triple's members may belong to different groups, and each member's label was made by the
matrix of its own group. So one model holds all groups together: for members of the groups
g, h and l ``P(a, b, c | g, h, l) = sum_i P(i | g, h, l) T_g[i, a] T_h[i, b] T_l[i, c]``.

The groups tell of the class, too, all three of them: a neighbour from a source that has few cats
makes a cat less likely. With the class prior of the centre's group in place of P(i | g, h, l),
groups that differ in nothing but their classes came out as labelling differently.

A label and its group together are called a token here: token ``g K + a`` is label a given in
group g. The groups of a triple, in order, are its composition.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln
from scipy.stats import norm
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from labelnoise._blocks import row_blocks
from labelnoise._errors import LabelNoiseError, LabelNoiseWarning
from labelnoise._labels import encode_labels
from labelnoise.hoc import HOC
from labelnoise.neighbors import Neighbors, given_neighbors, nearest_neighbors

NEIGHBORS_FROM = ("all", "own")

_CONCENTRATIONS = np.geomspace(1, 1e6, 61)  # the last one stands for "the groups are alike"
_EM_STEPS = 500
_ENOUGH_GAIN = 1e-4  # of the log-likelihood in a step, where 1 is what sampling changes
_ABOUT_AS_LIKELY = 0.1  # in log-likelihood
_SHARED_ROUNDS = 3  # of fitting one T for all and the worth of its priors in turn
_START_FLOOR = 0.01
_FLOOR = 0.001  # share of a row spread over all labels: a chance of 0 could never be corrected
_LEAST_EXPECTED = 3  # labels expected of an entry, from which on it is compared
_NEGLIGIBLE = 1e-6
_CLASSES_APART = 0.1  # share of a group's examples that would have to change their class


class GroupHOC(BaseEstimator):
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
        class (cameras, hospitals, languages): each group is then searched by itself. A group
        of `n_neighbors` examples or fewer has no triples of its own, and gets the matrix of
        all data.
    shrinkage : "auto" or float, default="auto"
        How many examples of a class the matrix of all data is worth, beside the group's own.
        "auto" estimates it for each class from how much the groups differ; 0 is none.
    n_neighbors : int, default=2
        As in `HOC`.
    metric : {"cosine", "euclidean"}, default="cosine"
        Which examples are near.
    classes : list of labels, optional
        All classes, in the order that T's rows shall have.
    unlabeled : label, optional
        A label that stands for "not labelled". None and NaN always do.

    Attributes
    ----------
    groups_ : array of shape (G,)
        The groups, in order.
    transition_matrices_ : array of shape (G, K, K)
        ``T[g, i, j]`` is the chance that a true i is labelled j in group g. Rows sum to 1.
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
    ``P(a, b, c | g, h, l) = sum_i P(i | g, h, l) T_g[i, a] T_h[i, b] T_l[i, c]``. It is fitted by
    EM from `global_`: the posterior of the class of each triple is counted for each member in
    its own group, first with one T for all groups, then with one for each. Row i of a group has
    a Dirichlet prior around the mean of all groups, whose concentration maximises the
    likelihood of the counts in all groups. An example is in about three triples, so counts are
    divided by that before they are set against the prior.

    ``P(i | g, h, l)`` is counted for each combination of groups and shrunk in the same way, to
    what it is if neighbours belong to groups independently given their class,
    ``p[i] (p_g[i] / p[i]) (p_h[i] / p[i]) (p_l[i] / p[i])``, up to scale.

    A group whose neighbours more often differ in their true class looks noisier than it is, as
    does a data set with plain `HOC`: compare groups by representations that serve all of them.

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

    def fit(self, X: Any, y: Any = None, *, groups: Any = None, neighbors: Any = None) -> GroupHOC:
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

        Returns
        -------
        GroupHOC
            Itself.
        """
        self._check_settings()
        labels, self.classes_ = encode_labels(y, self.classes, self.unlabeled)
        self.groups_, self.assignment_ = _encode_groups(groups, labels)
        self.global_ = HOC(n_neighbors=self.n_neighbors, metric=self.metric, classes=self.classes_)
        # The settings and X are met at HOC's door.
        self.global_._check_settings()
        rows, found, is_centre = self._neighbors(X, labels, neighbors)
        labels, group = labels[rows], self.assignment_[rows]
        self._fit_global(labels, found, is_centre)
        self._triples = _Triples.around(
            labels, group, found.indices, is_centre, len(self.groups_), len(self.classes_)
        )
        self._fit_groups()
        return self

    def _check_settings(self) -> None:
        if self.neighbors_from not in NEIGHBORS_FROM:
            raise LabelNoiseError(
                f"Expected neighbors_from to be one of {NEIGHBORS_FROM}, but neighbors_from = "
                f"{self.neighbors_from!r}"
            )
        number = isinstance(self.shrinkage, int | float | np.number)
        if not (self.shrinkage == "auto" or (number and 0 <= float(self.shrinkage) < np.inf)):
            raise LabelNoiseError(
                f"Expected shrinkage to be 'auto' or a finite number >= 0, but shrinkage = "
                f"{self.shrinkage!r}"
            )

    def _neighbors(
        self, X: Any, labels: np.ndarray, given: Any
    ) -> tuple[np.ndarray, Neighbors, np.ndarray]:
        """Rows that take part, neighbours among them, and which rows may be centres."""
        n, k, own = len(labels), self.n_neighbors, self.neighbors_from == "own"
        if X is None and given is None:
            raise LabelNoiseError("Expected X or neighbors, but both are None")
        if X is not None:
            X = self.global_._checked(X)
            self.n_features_in_ = X.shape[1]
            if len(X) != n:
                raise LabelNoiseError(
                    f"Expected as many labels as rows of X, but X has {len(X)} rows and y {n} "
                    f"labels"
                )
        if given is not None:
            rows = np.arange(n)
            if not own:
                return rows, given_neighbors(given, n, k), np.ones(n, bool)
            found, is_centre = _own_among(given, self.assignment_, k)
        else:
            rows, notes = self.global_._usable_rows(X, labels)
            for note in notes:
                warnings.warn(note.sentence, LabelNoiseWarning, stacklevel=3)
            if not own:
                found = nearest_neighbors(X[rows], k, self.metric)
                return rows, found, np.ones(len(rows), bool)
            found, is_centre = _own_search(X[rows], self.assignment_[rows], k, self.metric)
        if not is_centre.any():
            raise LabelNoiseError(
                f"Expected more than n_neighbors = {k} examples of a group near each other, but no "
                f"example has {k} neighbours in its own group: use neighbors_from='all'"
            )
        return rows, found, is_centre

    def _fit_global(self, labels: np.ndarray, found: Neighbors, is_centre: np.ndarray) -> None:
        n, k = found.indices.shape
        neighbors: Any = found.indices
        if found.distances is not None:
            ends = np.arange(0, n * k + 1, k)
            neighbors = sp.csr_array(
                (found.distances.ravel(), found.indices.ravel(), ends), shape=(n, n)
            )
        # -1 is an ordinary label to HOC: unlabelled examples are passed as None.
        names = np.array([*self.classes_.tolist(), None], object)[labels]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LabelNoiseWarning)
            self.global_.fit(None, names, neighbors=neighbors, center_weight=is_centre)
        for finding in self.global_.diagnostics_:
            # One T need not explain groups that differ: that it does not is no warning here.
            if not finding.ok and finding.name != "fit":
                warnings.warn(finding.sentence, LabelNoiseWarning, stacklevel=3)

    def _fit_groups(self) -> None:
        K = len(self.classes_)
        model = _Model(self._triples, self.global_.class_prior_)
        fit = model.start(self.global_.transition_matrix_)
        for _ in range(_SHARED_ROUNDS):
            fit = model.weigh_priors(model.em(fit, np.full(K, np.inf)))
        self._shared = (fit.T[0], fit.prior)
        fit = replace(fit, T=model.start(fit.T[0]).T)
        raw = model.em(fit, np.zeros(K))
        # Once, from groups that were not yet shrunk: counts made with a shrunk T look more alike
        # than the groups are, and in turn with the concentration end in one T for all.
        if self.shrinkage == "auto":
            worth = _concentration(raw.counts, raw.centre)
        else:
            worth = np.full(K, float(self.shrinkage))
        self._unshrunk = raw.T
        fit = model.em(model.weigh_priors(raw), worth)
        self.transition_matrices_, self.class_priors_ = fit.T, fit.mix
        self.transition_matrix_ = fit.centre
        self.concentration_ = worth
        self.shrinkage_ = _share_of_centre(fit.counts, worth)

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

        In simulations of groups that are alike this names a difference less often than `level`
        says. That neighbours share their class is assumed, as everywhere: where they often do
        not, groups that differ in their classes are told apart although they label alike, and
        ``caution`` says so. The chances in the sentences are the groups' own, not shrunk.
        """
        check_is_fitted(self)
        if not (isinstance(level, int | float) and 0 < level < 1):
            raise LabelNoiseError(f"Expected level to be between 0 and 1, but level = {level!r}")
        tested = _Excess(self._triples, *self._shared).compare()
        order = np.argsort([excess.p_value for excess in tested], kind="stable")
        # Holm: the smallest is multiplied by their number, the next by one less, and so on.
        adjusted = np.array([tested[i].p_value for i in order]) * np.arange(len(order), 0, -1)
        adjusted = np.minimum(np.maximum.accumulate(adjusted), 1)
        clear = [
            self._describe(tested[i], float(value), level)
            for i, value in zip(order, adjusted, strict=True)
            if value <= level
        ]
        p_value = float(adjusted[0]) if len(adjusted) else float("nan")
        return Differences(tuple(clear), p_value, level, len(tested), self._caution())

    def _caution(self) -> str:
        """What to say where a difference may be one of neighbourhoods, not of labels."""
        apart = np.abs(self.class_priors_ - self.global_.class_prior_).sum(axis=1).max() / 2
        # Whether neighbours share their class the triples alone do not tell for certain: a fit
        # that is good by diagnostics_["fit"] was seen with a third of them wrong.
        if apart < _CLASSES_APART:
            return ""
        return (
            "Caution: the groups differ in their classes. If neighbours often differ in their true "
            "class, then classes with worse neighbours look noisier, and so does a group that has "
            "more of them: trust this as far as the representations separate the classes."
        )

    def _describe(self, excess: _Entry, p_value: float, level: float) -> Difference:
        g, i, j = excess.group, excess.row, excess.column
        if len(self.groups_) == 2 and (self._gap(g, i, j) < 0) == (i != j):
            g = 1 - g  # of two, name the one that errs more
        there = np.arange(len(self.groups_)) != g
        value = float(self._unshrunk[g, i, j])
        gap = self._gap(g, i, j)
        margin = float(norm.isf(level / 2)) * excess.deviation
        group, true, label = self.groups_[g], self.classes_[i], self.classes_[j]
        others = f"group {self.groups_[there][0]}" if there.sum() == 1 else "the others"
        sentence = (
            f"group {group} labels true {true} {'correctly' if i == j else f'as {label}'} "
            f"{'more' if gap > 0 else 'less'} often than {others}: {value:.1%} against "
            f"{value - gap:.1%}, a difference of {100 * abs(gap):.1f} (+-{100 * margin:.1f}) points"
        )
        return Difference(group, true, label, value, value - gap, margin, p_value, sentence)

    def _gap(self, g: int, i: int, j: int) -> float:
        """By how much an entry of a group's T, not shrunk, is above that of the others."""
        weight = self.class_priors_[:, i] * np.bincount(self.assignment_)
        weight[g] = 0
        others = weight @ self._unshrunk[:, i, j] / max(weight.sum(), 1e-300)
        return float(self._unshrunk[g, i, j] - others)

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.single_output = True
        return tags


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
    caution: str = ""
    """Why they may not be differences of labelling; empty where nothing speaks against it."""

    @property
    def differ(self) -> bool:
        """Whether the groups differ at all, at this level."""
        return bool(self.p_value <= self.level)

    def __getitem__(self, index: Any) -> Any:
        return self.found[index]

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[Difference]:
        return iter(self.found)

    def __repr__(self) -> str:
        if not self.n_compared:
            return "The groups have too few labels to be compared."
        if not self.differ:
            return (
                f"No difference between the groups is clear (p = {self.p_value:.2g}, "
                f"{self.n_compared} entries of T compared)."
            )
        head = f"The groups label differently (p = {self.p_value:.2g}):"
        lines = [head, *(f"  {difference.sentence}" for difference in self)]
        return "\n".join([*lines, self.caution] if self.caution else lines)


def _encode_groups(groups: Any, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Groups in order, and the number of each example's."""
    if groups is None:
        raise LabelNoiseError(
            "Expected groups, one for each example, but groups is None: without groups use HOC"
        )
    values = np.asarray(groups)
    if values.shape != labels.shape:
        raise LabelNoiseError(
            f"Expected one group for each example, but groups has shape {values.shape} and there "
            f"are {len(labels)} labels"
        )
    missing = _missing(values)
    if missing.any():
        raise LabelNoiseError(
            f"Expected a group for each example, but row {np.flatnonzero(missing)[0]} has none "
            f"({missing.sum()} such rows): leave them out, or make them a group of their own"
        )
    try:
        names, number = np.unique(values, return_inverse=True)
    except TypeError as error:
        raise LabelNoiseError(
            f"Expected groups of one kind, but they cannot be put in order: {error}"
        ) from error
    if len(names) < 2:
        raise LabelNoiseError(
            f"Expected at least two groups, but the number of groups is {len(names)}: "
            f"{names.tolist()}. For one group use HOC"
        )
    labelled = np.bincount(number[labels >= 0], minlength=len(names))
    if not labelled.all():
        empty = names[labelled == 0]
        raise LabelNoiseError(
            f"Expected a labelled example in each group, but group {empty[0]!s} has none "
            f"({len(empty)} such groups): leave its examples out, or join it with another group"
        )
    return names, number.astype(np.intp)


def _missing(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "O":
        # NaN is not equal to itself, and of pandas.NA not even that can be said.
        itself = [value is not None and (value == value) is True for value in values.tolist()]
        return ~np.array(itself, bool)
    return np.asarray(values != values)


def _own_search(
    X: np.ndarray, group: np.ndarray, k: int, metric: str
) -> tuple[Neighbors, np.ndarray]:
    """Each example's neighbours inside its group; groups too small for it have no centres."""
    n = len(X)
    indices = (np.arange(n)[:, None] + np.arange(1, k + 1)) % n  # placeholders: not centres
    distances, is_centre = np.ones((n, k)), np.zeros(n, bool)
    for g in np.unique(group):
        rows = np.flatnonzero(group == g)
        if len(rows) > k:
            inside = nearest_neighbors(X[rows], k, metric)
            indices[rows], distances[rows] = rows[inside.indices], inside.distances
            is_centre[rows] = True
    return Neighbors(indices, distances), is_centre


def _own_among(given: Any, group: np.ndarray, k: int) -> tuple[Neighbors, np.ndarray]:
    """Of neighbours given, the first k of the own group; who has fewer is no centre."""
    n = len(group)
    if sp.issparse(given):
        graph: Any = sp.coo_array(given)  # type: ignore[call-overload]
        width = int(np.bincount(graph.row[graph.row != graph.col], minlength=n).min())
    else:
        given = np.asarray(given)
        itself = (given == np.arange(n)[:, None]).any() if given.ndim == 2 else False
        width = given.shape[1] - int(itself) if given.ndim == 2 and len(given) == n else k
    found = given_neighbors(given, n, max(width, k))
    other = group[found.indices] != group[:, None]
    first = np.argsort(other, axis=1, kind="stable")[:, :k]
    distances = found.distances
    if distances is not None:
        distances = np.take_along_axis(distances, first, 1)
    return Neighbors(np.take_along_axis(found.indices, first, 1), distances), (~other).sum(1) >= k


@dataclass(frozen=True)
class _Triples:
    """Every triple, with its members and its weight: those of a centre together weigh 1."""

    members: np.ndarray  # (M, 3) examples, the centre first
    weight: np.ndarray  # (M,)
    compositions: np.ndarray  # (C, 3) groups that occur in one triple
    composition: np.ndarray  # (M,) which of them
    label: np.ndarray  # (N,)
    group: np.ndarray  # (N,)
    G: int
    K: int

    @classmethod
    def around(
        cls,
        label: np.ndarray,
        group: np.ndarray,
        neighbors: np.ndarray,
        is_centre: np.ndarray,
        G: int,
        K: int,
    ) -> _Triples:
        n, k = neighbors.shape
        pairs = np.array(list(combinations(range(k), 2)))
        members = np.column_stack(
            [np.repeat(np.arange(n), len(pairs)), neighbors[:, pairs].reshape(-1, 2)]
        )
        members = members[is_centre[members[:, 0]] & (label[members] >= 0).all(axis=1)]
        weight = 1 / np.bincount(members[:, 0], minlength=n)[members[:, 0]]
        in_order = np.sort(group[members], axis=1).astype(np.int64)
        key, composition = np.unique((in_order @ [G**2, G, 1]), return_inverse=True)
        compositions = np.column_stack([key // G**2, key // G % G, key % G])
        return cls(members, weight, compositions, composition.ravel(), label, group, G, K)

    @property
    def token(self) -> np.ndarray:
        """(N,) label and group in one number."""
        return self.group * self.K + self.label


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


class _Model:
    """Chance of the distinct triples of tokens, and EM.

    An example is in several triples. With w the weight of those it is in, counting it w times
    has the sampling error of ``(sum w)^2 / sum w^2`` examples: `scale` makes counts sum to that,
    so that they can be set against a prior worth so many examples.
    """

    def __init__(self, triples: _Triples, overall: np.ndarray) -> None:
        self.G, self.K = triples.G, triples.K
        self.overall = overall
        self.compositions = triples.compositions
        tokens = np.sort(triples.token[triples.members], axis=1).astype(np.int64)
        S = self.G * self.K
        key = (tokens[:, 0] * S + tokens[:, 1]) * S + tokens[:, 2]
        distinct, first, place = np.unique(key, return_index=True, return_inverse=True)
        self.tokens = np.column_stack([distinct // S**2, distinct // S % S, distinct % S])
        self.composition = triples.composition[first]
        self.weight = np.bincount(place.ravel(), triples.weight)
        often = np.bincount(triples.members.ravel(), np.repeat(triples.weight, 3))
        self.scale = often.sum() / (often**2).sum()
        size = np.bincount(triples.group[triples.members].ravel(), np.repeat(triples.weight, 3))
        self.size = np.pad(size, (0, self.G - len(size))) / size.sum()
        self.blocks = list(row_blocks(len(self.weight), 3 * self.K))
        self.holds = [_incidence(self.tokens[block], S) for block in self.blocks]
        self.composed = [
            _incidence(self.composition[block, None], len(self.compositions))
            for block in self.blocks
        ]

    def counts(self, T: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Labels of each class (G, K, K), classes in each composition (C, K), log-likelihood."""
        G, K = self.G, self.K
        chance_of = T.transpose(0, 2, 1).reshape(G * K, K)
        labels, classes, total = np.zeros((G * K, K)), np.zeros(prior.shape), 0.0
        for block, holds, composed in zip(self.blocks, self.holds, self.composed, strict=True):
            share = prior[self.composition[block]]
            for member in self.tokens[block].T:
                share *= chance_of[member]
            chance = share.sum(axis=1) + 1e-300
            total += float(self.weight[block] @ np.log(chance))
            share *= (self.weight[block] / chance)[:, None]
            labels += holds @ share
            classes += composed @ share
        by_class = labels.reshape(G, K, K).transpose(0, 2, 1)
        return self.scale * by_class, self.scale * classes, self.scale * total

    def start(self, T: np.ndarray) -> _Fit:
        """Begin with one T (K, K), kept off the boundary that EM never leaves."""
        T = _interior(T, self.overall, _START_FLOOR)
        mix = np.broadcast_to(self.overall, (self.G, self.K)).copy()
        prior = np.broadcast_to(self.overall, (len(self.compositions), self.K)).copy()
        all_T = np.broadcast_to(T, (self.G, self.K, self.K)).copy()
        worth = float(self.K)
        return _Fit(all_T, T, mix, prior, 0 * all_T, 0 * prior, worth, worth)

    def em(self, fit: _Fit, worth: np.ndarray) -> _Fit:
        """Fit T and the class priors. The mean of all groups is worth so many examples (K,).

        With infinity all groups have one T.
        """
        T, centre, mix, prior, before = fit.T, fit.centre, fit.mix, fit.prior, -np.inf
        for _ in range(_EM_STEPS):
            counts, classes, value = self.counts(T, prior)
            centre = _interior(_normalised(counts.sum(axis=0), centre), self.overall, _FLOOR)
            share = _share_of_centre(counts, worth)[:, :, None]
            T = share * centre + (1 - share) * _normalised(counts, T)
            mix = _normalised(counts.sum(axis=2) + fit.mix_worth * self.overall, mix)
            prior = _normalised(classes + fit.prior_worth * self._independent(mix), prior)
            if abs(value - before) < _ENOUGH_GAIN:
                break
            before = value
        return replace(
            fit, T=T, centre=centre, mix=mix, prior=prior, counts=counts, in_composition=classes
        )

    def weigh_priors(self, fit: _Fit) -> _Fit:
        """Find how much the classes differ between groups, and compositions from independence."""
        by_group, independent = fit.counts.sum(axis=2), self._independent(fit.mix)
        return replace(
            fit,
            mix_worth=float(_concentration(by_group[:, None], self.overall[None])[0]),
            prior_worth=float(_concentration(fit.in_composition[:, None], independent[:, None])[0]),
        )

    def _independent(self, mix: np.ndarray) -> np.ndarray:
        """(C, K) class prior of each composition if groups are independent given the class.

        Where neighbours were searched by group they are not, and it is that of the group.
        """
        # The mean of the groups themselves: against any other, each step of EM would make
        # classes that are frequent in all groups more so, until one is left.
        overall = self.size @ mix
        odds = np.divide(mix, overall, out=np.zeros_like(mix), where=overall > 0)
        product = overall * odds[self.compositions].prod(axis=1)
        alone = self.compositions[:, 0] == self.compositions[:, 2]
        if alone.all():
            product = mix[self.compositions[:, 0]]
        size = product.sum(axis=1, keepdims=True)
        return np.where(size > 1e-200, product / np.maximum(size, 1e-200), self.overall)


def _label_sums(amount: np.ndarray, label: np.ndarray, K: int) -> np.ndarray:
    """(K,) amount that falls on each label."""
    return np.bincount(label.ravel(), amount.ravel(), K)


def _incidence(numbers: np.ndarray, size: int) -> sp.csr_array:
    """(size, m) how often each number is in each of m rows."""
    m, width = numbers.shape
    columns = np.repeat(np.arange(m), width)
    return sp.csr_array((np.ones(m * width), (numbers.ravel(), columns)), shape=(size, m))


def _share_of_centre(counts: np.ndarray, worth: np.ndarray) -> np.ndarray:
    """(G, K) share that the centre has in each row: all of it in a row without counts."""
    own = counts.sum(axis=2)
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(worth) | (own + worth <= 0), 1.0, worth / (own + worth))


def _normalised(counts: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Rows as shares; a row without counts stays as it was."""
    size = counts.sum(axis=-1, keepdims=True)
    return np.divide(counts, size, out=otherwise.copy(), where=size > 1e-200)


def _interior(T: np.ndarray, p: np.ndarray, share: float) -> np.ndarray:
    """T with some of each row spread over all labels that occur."""
    occurring = p > 0
    spread = share * np.outer(occurring, occurring / occurring.sum())
    return (T + spread) / (T + spread).sum(axis=1, keepdims=True)


def _concentration(counts: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """How many counts the prior is worth, for each row: the most likely given all groups.

    With a prior Dirichlet(w m) counts c that sum to n have the Dirichlet-multinomial chance
    ``Gamma(w) / Gamma(w + n) prod_j Gamma(w m_j + c_j) / Gamma(w m_j)``. A centre that is the mean
    of the groups themselves fits the largest of them by construction, which says nothing of
    how alike they are: its freedom is given back as in restricted maximum likelihood, by half
    the log of the mean's information ``sum_g n_g w / (n_g + w)`` for each free label.

    Parameters
    ----------
    counts : array of shape (G, R, K)
    centre : array of shape (R, K), the mean of the groups, or (G, R, K), known of each
    """
    size = counts.sum(axis=2)
    free = 0 if centre.ndim == 3 else (centre * size.sum(axis=0)[:, None] >= 1).sum(axis=1) - 1
    value = np.empty((len(_CONCENTRATIONS), counts.shape[1]))
    for number, worth in enumerate(_CONCENTRATIONS):
        prior = np.maximum(worth * centre, 1e-12)
        value[number] = (gammaln(worth) - gammaln(worth + size)).sum(axis=0)
        value[number] += (gammaln(prior + counts) - gammaln(prior)).sum(axis=(0, 2))
        information = (size * worth / (size + worth)).sum(axis=0)
        value[number] -= np.maximum(free, 0) / 2 * np.log(np.maximum(information, 1e-300))
    # Rows without errors hardly tell: of concentrations about as likely take the largest.
    as_likely = value >= value.max(axis=0) - _ABOUT_AS_LIKELY
    return _CONCENTRATIONS[len(_CONCENTRATIONS) - 1 - as_likely[::-1].argmax(axis=0)]


@dataclass(frozen=True)
class _Entry:
    group: int
    row: int
    column: int
    p_value: float
    deviation: float  # standard error of the difference to the others


class _Excess:
    """By how much labels exceed what one T for all expects, in each group against the others."""

    def __init__(self, triples: _Triples, T: np.ndarray, prior: np.ndarray) -> None:
        self.triples, self.T, self.prior = triples, T, prior
        self.chance = np.zeros(len(triples.weight))
        for i in range(triples.K):
            self.chance += self._share(i)

    def _share(self, i: int) -> np.ndarray:
        members, label = self.triples.members, self.triples.label
        prior: np.ndarray = self.prior[self.triples.composition, i]
        return prior * self.T[i][label[members]].prod(axis=1)

    def compare(self) -> list[_Entry]:
        """Each entry of each group with enough labels to be compared."""
        return [entry for i in range(self.triples.K) for entry in self._compare_row(i)]

    def _compare_row(self, i: int) -> list[_Entry]:
        triples, row = self.triples, self.T[i]
        posterior = self._share(i) / np.maximum(self.chance, 1e-300)
        active = np.flatnonzero(posterior > _NEGLIGIBLE)
        if not len(active):
            return []
        members, weight, r = triples.members[active], triples.weight[active], posterior[active]
        label, group = triples.label[members], triples.group[members]
        n, G = len(triples.label), triples.G
        often = np.bincount(members.ravel(), np.repeat(weight * r, 3), n)
        size = np.bincount(triples.group, often, G)
        squares = np.bincount(triples.group, often**2, G)
        share = size / size.sum()
        centres, unit = np.unique(members[:, 0], return_inverse=True)
        overlap = self._overlap(members, unit, len(centres), n)
        spread = row * (1 - row)

        entries = []
        # Of two groups one differs from the other as the other from it.
        for g in range(1 if G == 2 else G):
            here = size[g] ** 2 / max(squares[g], 1e-300)
            there = (size.sum() - size[g]) ** 2 / max(squares.sum() - squares[g], 1e-300)
            expected = np.minimum(row, 1 - row) * min(here, there)
            columns = np.flatnonzero(expected >= _LEAST_EXPECTED)
            if not len(columns):
                continue
            contrast = (group == g) - share[g]
            amount = contrast * (weight * r)[:, None]
            excess = _label_sums(amount, label, len(row)) - amount.sum() * row
            # Around what each side has itself: a true difference is no variance.
            scatter = self._scatter(amount, label, group == g, unit, len(centres))
            robust = (scatter * (overlap @ scatter)).sum(axis=0)
            squared = ((1 - share[g]) ** 2) * squares[g] + share[g] ** 2 * (
                squares.sum() - squares[g]
            )
            variance = np.maximum(robust, spread * squared)
            information = size[g] * (1 - share[g]) * self._known(contrast, label, r, weight, row)
            z = excess / np.sqrt(np.maximum(variance, 1e-300))
            entries += [
                _Entry(
                    g,
                    i,
                    int(j),
                    float(2 * norm.sf(abs(z[j]))),
                    float(np.sqrt(variance[j]) / information),
                )
                for j in columns
            ]
        return entries

    def _scatter(
        self,
        amount: np.ndarray,
        label: np.ndarray,
        inside: np.ndarray,
        unit: np.ndarray,
        units: int,
    ) -> np.ndarray:
        """(units, K) labels around each centre less what is usual on its members' side."""
        K = self.triples.K
        cell = (unit[:, None] * K + label).ravel()
        result: np.ndarray = np.bincount(cell, amount.ravel(), units * K).reshape(units, K)
        for side in (inside, ~inside):
            part = np.where(side, amount, 0.0)
            usual = _label_sums(part, label, K) / (part.sum() or 1.0)
            result -= np.outer(np.bincount(unit, part.sum(axis=1), units), usual)
        return result

    @staticmethod
    def _overlap(members: np.ndarray, unit: np.ndarray, units: int, n: int) -> sp.csr_array:
        """(units, units) 1 where the triples around two centres share a member."""
        flat = (np.repeat(unit, 3), members.ravel())
        holds = sp.csr_array((np.ones(members.size), flat), shape=(units, n))
        shared = sp.csr_array(holds @ holds.T)
        shared.data[:] = 1
        return shared

    @staticmethod
    def _known(
        contrast: np.ndarray, label: np.ndarray, r: np.ndarray, weight: np.ndarray, row: np.ndarray
    ) -> float:
        """Share of the information that is left when the true class is only inferred.

        The variance of a triple's score over that which it would have with the class known.
        """
        power = (row**2).sum()
        squared = np.zeros(len(r))
        for one in range(3):
            for two in range(3):
                same = label[:, one] == label[:, two]
                product = same - row[label[:, one]] - row[label[:, two]] + power
                squared += contrast[:, one] * contrast[:, two] * product
        complete = (1 - power) * (weight * r) @ (contrast**2).sum(axis=1)
        return float(np.clip((weight * r**2) @ squared / max(complete, 1e-300), 0.05, 1))
