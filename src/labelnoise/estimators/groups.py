"""GroupHOC: a transition matrix for each known group, and which groups label differently."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted

from labelnoise._errors import LabelNoiseError, LabelNoiseWarning
from labelnoise._estimator import (
    Stored,
    all_at_once,
    encode_names,
)
from labelnoise._validation import expect_between, expect_one_of, expect_shrinkage, expect_whole
from labelnoise.clean_class import PartMatrices, transition_given
from labelnoise.estimators.parts import ManyMatrices
from labelnoise.hoc import HOC, Progress
from labelnoise.intervals import holm
from labelnoise.neighbors import METRICS
from labelnoise.solvers.rows import concentration, normalised
from labelnoise.solvers.search import em

_LEAST_EXPECTED = 3  # entries of T with fewer expected labels are not compared


class GroupHOC(ManyMatrices):
    """Estimate a transition matrix for each group: annotator, source or sub-population.

    All groups are fitted together. A small group takes what its data cannot say from the
    matrix of all data, and how much that is the data decide.

    Parameters
    ----------
    refine : bool, default=True
        As for `HOC`: the groups' matrices follow from the one model of the clean class. With
        False HOC runs on the triples of each group by itself, as in the paper. Without features,
        labels of the given neighbours take the place of the model.
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
        That of `global_`.
    global_ : HOC
        The estimate from all data together without the groups.
    classes_ : array of shape (K,)
        Labels in the order of the rows.

    Notes
    -----
    The model of the clean class gives P(clean class | features) of each example. Given that, the T
    of a group maximises the likelihood of the group's labels, by EM. Row i of a group has a
    Dirichlet prior around the T of all data, whose concentration maximises the likelihood of all
    groups' counts.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from labelnoise.estimators.groups import GroupHOC
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
        refine: bool = True,
        shrinkage: str | float = "auto",
        n_neighbors: int = 2,
        metric: str = "cosine",
        classes: Sequence[Any] | np.ndarray | None = None,
        unlabeled: Any = None,
    ) -> None:
        self.refine = refine
        self.shrinkage = shrinkage
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.classes = classes
        self.unlabeled = unlabeled

    @all_at_once
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        neighbors: Any = None,
        sources: Any = None,
        verified: Any = None,
        progress: Progress | None = None,
    ) -> GroupHOC:
        """Estimate a T for each group from representations, noisy labels and groups.

        Parameters
        ----------
        X : array or data frame of shape (N, d)
            Representations.
        y : array of shape (N,)
            Noisy labels. None and NaN are unlabelled, and such examples are left out.
        groups : array of shape (N,)
            The group of each example: numbers or strings, none missing.
        neighbors, sources, verified, progress
            As for `HOC.fit`.

        Returns
        -------
        GroupHOC
            Itself.
        """
        expect_one_of("metric", self.metric, METRICS)
        expect_whole("n_neighbors", self.n_neighbors, 2)
        expect_shrinkage(self.shrinkage)
        given, labels, _ = self._read(X, y)
        names, group = _encode_groups(groups, labels)
        est = self._hoc(refine=self.refine)
        self.global_ = est.fit(
            X, y, neighbors=neighbors, sources=sources, verified=verified, progress=progress
        )
        data, T = est.examples_, est.transition_matrix_
        use = data.labels >= 0
        part, own = group[data.rows[use]], data.labels[use]
        known = est.predict_proba()
        if est.has_features_to_trust or given is None:
            known = _of_groups(known, part, len(names))
            found = transition_given(known, own, T, part, len(names), self._worth())
        else:
            found = self._solve_each(given, y, names, group, sources)
        self.transition_matrices_, self.unshrunk_matrices_, mass, worth = found
        self.classes_, self.groups_, self.assignment_ = est.classes_, names, group
        self.class_priors_ = normalised(mass, est.class_prior_)
        self.transition_matrix_, self.concentration_ = T, worth
        self.shrinkage_ = worth / np.maximum(worth + mass, 1e-300)
        self._compared = _compare(known, own, T, part, len(names))
        return self

    def _worth(self) -> float | None:
        return None if self.shrinkage == "auto" else float(self.shrinkage)

    def _hoc(self, refine: bool) -> HOC:
        return HOC(
            refine=refine,
            n_neighbors=self.n_neighbors,
            metric=self.metric,
            classes=self.classes,
            unlabeled=self.unlabeled,
        )

    def _solve_each(
        self, X: Any, y: Any, names: np.ndarray, group: np.ndarray, sources: Any
    ) -> PartMatrices:
        """HOC on each group's own triples, shrunk to the T of all."""
        classes, T = self.global_.classes_, self.global_.transition_matrix_
        labels = np.asarray(y, object)
        counts = np.zeros((len(names), *T.shape))
        for number in range(len(names)):
            rows = np.flatnonzero(group == number)
            source = None if sources is None else np.asarray(sources)[rows]
            est = self._hoc(refine=False).set_params(classes=classes)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", LabelNoiseWarning)
                    est.fit(None if X is None else X[rows], labels[rows].tolist(), sources=source)
            except LabelNoiseError:  # too small to be searched by itself
                continue
            counts[number] = len(est.examples_.labels) * est.joint_
        worth = self._worth()
        if worth is None:
            own = concentration(counts, normalised(counts.sum(axis=0), T))
        else:
            own = np.full(len(T), worth)
        shrunk = normalised(counts + own[:, None] * T, T)
        return PartMatrices(shrunk, normalised(counts, T), counts.sum(axis=2), own)

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
        Under one T for all groups, the labels j of the examples that are probably of class i differ
        from their expectation ``T[i, j]`` by nothing but chance. The mean excess in the group is
        compared with that in the others; its variance is that of the examples, which are
        independent. Entries with fewer than three expected labels in the group, or in the others,
        are not compared. P-values are adjusted for the number of entries by Holm's method. The
        chances in the sentences are the groups' own, not shrunk.
        """
        check_is_fitted(self)
        expect_between("level", level)
        tested = self._compared
        adjusted = holm(np.array([entry.p_value for entry in tested]))
        clear = [
            self._describe(tested[i], float(adjusted[i]), level)
            for i in np.argsort(adjusted, kind="stable")
            if adjusted[i] <= level
        ]
        p_value = float(adjusted.min()) if len(adjusted) else float("nan")
        return Differences(tuple(clear), p_value, level, len(tested))

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
        return super()._content() | {"compared": [vars(entry) for entry in self._compared]}

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


def _of_groups(posterior: np.ndarray, part: np.ndarray, n_parts: int) -> np.ndarray:
    """The posterior where each group has class shares of its own, found by EM.

    Where classes overlap, an example of a group with more cats is more probably a cat.
    """
    overall = posterior.mean(axis=0)
    size = np.maximum(np.bincount(part, minlength=n_parts), 1)

    def step(state: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        own = posterior * (state[1] / np.maximum(overall, 1e-300))[part]
        own /= np.maximum(own.sum(axis=1, keepdims=True), 1e-300)
        return own, np.stack([np.bincount(part, column, n_parts) / size for column in own.T], 1)

    start = posterior, np.tile(overall, (n_parts, 1))
    found, _, _ = em(step, start, 50, lambda old, new: np.abs(new[1] - old[1]).max() < 1e-4)
    return found[0]


def _compare(
    posterior: np.ndarray, labels: np.ndarray, T: np.ndarray, part: np.ndarray, n_parts: int
) -> list[_Entry]:
    """Each entry of each group with enough labels to be compared."""
    K = len(T)
    known = posterior / np.maximum(T.T[labels], 1e-12)
    known /= np.maximum(known.sum(axis=1, keepdims=True), 1e-300)
    result = []
    for i in range(K):
        # What features say of class i, as a weight of each example.
        weight = known[:, i]
        total = np.bincount(part, weight, n_parts)
        for j in range(K):
            # Labels j of class i, less those that T expects of it.
            excess = posterior[:, i] * (labels == j) - weight * T[i, j]
            mean, square = np.bincount(part, excess, n_parts), np.bincount(part, excess**2, n_parts)
            for g in range(1 if n_parts == 2 else n_parts):
                here, there = total[g], total.sum() - total[g]
                if min(T[i, j], 1 - T[i, j]) * min(here, there) < _LEAST_EXPECTED:
                    continue
                gap = mean[g] / here - (mean.sum() - mean[g]) / there
                variance = square[g] / here**2 + (square.sum() - square[g]) / there**2
                z = abs(gap) / np.sqrt(max(variance, 1e-300))
                result.append(_Entry(g, i, j, float(2 * norm.sf(z)), float(z)))
    return result
