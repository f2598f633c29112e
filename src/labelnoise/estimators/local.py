"""LocalHOC: a transition matrix for each neighbourhood, for noise that depends on the example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from labelnoise._errors import LabelNoiseError
from labelnoise._estimator import (
    Stored,
    all_at_once,
    source_numbers,
    warn_of,
)
from labelnoise._validation import expect_one_of, expect_whole
from labelnoise.checks import Diagnostics
from labelnoise.checks.local import (
    check_coverage,
    check_local_conditions,
    check_noise_clusterability,
)
from labelnoise.clean_class import transition_given
from labelnoise.estimators.parts import ManyMatrices
from labelnoise.hoc import HOC, Progress
from labelnoise.labels import encode_labels
from labelnoise.neighbors import METRICS, Points
from labelnoise.scores import transition_error, true_transition_matrix
from labelnoise.solvers.local import LocalProblems, solve_local, solve_local_paper

_PAPER = {
    "cifar10": {
        "n_local": 300,
        "local_size": 250,
        "n_rounds": 30,
        "sample_size": 100,
        "zeta": 1.0,
        "sparsity": 1.0,
    },
    "cifar100": {
        "n_local": 5,
        "local_size": 10_000,
        "n_rounds": 30,
        "sample_size": 5_000,
        "zeta": 0.5,
        "sparsity": 0.0,
    },
}
_SOLVERS = ("likelihood", "paper")
_BATCH_BYTES = 2**28  # of the largest array of the problems that are solved together


class LocalHOC(ManyMatrices):
    """Estimate a transition matrix for each of many neighbourhoods of the data.

    Noise that depends on the example is nearly the same for similar examples. A random example
    that no local data set holds yet becomes a centre, and its `local_size` nearest form a local
    data set. Its T follows from the one model of the clean class, each row shrunk to that of the
    global T by as much as explains best how far neighbourhoods differ. With refine=False HOC runs
    on the triples of each local data set, and rows are blended with the global T by the local
    share of their class, as in the paper.

    Parameters
    ----------
    n_local : int, default=300
        How many local data sets. Once all examples are covered, further centres are drawn from
        all.
    local_size : int, default=250
        How many nearest examples a centre brings along.
    refine : bool, default=True
        As for `HOC`. The settings from `solver` to `sparsity` are for False.
    solver : {"likelihood", "paper"}, default="likelihood"
        The likelihood starts from the global T. "paper" is the sum of norms, by 501 steps of
        Adam from the public code's start, and blends with the T of `HOC.paper`. All local
        problems are solved together.
    n_rounds, sample_size : int, optional
        Count as the paper does, in random samples of each local data set with neighbours inside
        the sample. By default a member's two nearest of all examples are used.
    zeta : float, default=1.0
        Row i becomes ``(1 - zeta + p_i) T_local[i] + (zeta - p_i) T[i]`` with p_i the local
        share of class i; a negative weight of T[i] counts as 0.
    sparsity : float, default=1.0
        How much evidence, in triples, a class must have to be in a local data set at all. For
        "paper", whether its sparse prior is used (> 0).
    metric, classes, unlabeled, random_state
        As for `HOC`. The centres are drawn with `random_state`.

    Attributes
    ----------
    transition_matrices_ : array of shape (n_local, K, K)
    class_priors_ : array of shape (n_local, K)
    members_ : int array of shape (n_local, local_size + 1)
        Row numbers of each local data set, its centre first.
    assignment_ : int array of shape (N,)
        The first local data set that an example is in; -1 where it is in none.
    global_ : HOC
        The estimate from all data.
    classes_ : array of shape (K,)
    diagnostics_ : Diagnostics
        "coverage": how many examples the local data sets hold. "noise clusterability": whether
        labels near a centre are wrong as often as those further away. "local conditions": in how
        many local data sets T is non-singular and informative (Corollary 1).

    Notes
    -----
    In benchmarks/results/local.md the local matrices are nearer to the local truth than the
    global T in five cases of six; those of the triples (refine=False) in one.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from labelnoise import LocalHOC
    >>> from labelnoise.noise import instance_dependent
    >>> X, y = load_digits(return_X_y=True)
    >>> noisy = instance_dependent(X, y, 0.2, random_state=0)
    >>> est = LocalHOC(n_local=20, local_size=150, random_state=0).fit(X, noisy.labels)
    >>> est.transition_matrices_.shape
    (20, 10, 10)
    >>> est.transition_for([0, 1, 2]).shape
    (3, 10, 10)
    """

    _stored: ClassVar = {
        "classes": Stored("K", "names"),
        "transition_matrices": Stored("LKK"),
        "class_priors": Stored("LK"),
        "members": Stored("LM", "N"),
        "assignment": Stored("N", "L"),
    }

    def __init__(
        self,
        *,
        n_local: int = 300,
        local_size: int = 250,
        refine: bool = True,
        solver: str = "likelihood",
        n_rounds: int | None = None,
        sample_size: int | None = None,
        zeta: float = 1.0,
        sparsity: float = 1.0,
        metric: str = "cosine",
        classes: Sequence[Any] | np.ndarray | None = None,
        unlabeled: Any = None,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_local = n_local
        self.local_size = local_size
        self.refine = refine
        self.solver = solver
        self.n_rounds = n_rounds
        self.sample_size = sample_size
        self.zeta = zeta
        self.sparsity = sparsity
        self.metric = metric
        self.classes = classes
        self.unlabeled = unlabeled
        self.random_state = random_state

    @classmethod
    def paper(cls, name: str = "cifar10", **settings: Any) -> LocalHOC:
        """Give the paper's settings for "cifar10" or "cifar100", with its objective."""
        if name not in _PAPER:
            raise LabelNoiseError(f"Expected one of {tuple(_PAPER)}, but name = {name!r}")
        chosen: dict[str, Any] = {"refine": False, "solver": "paper", **_PAPER[name], **settings}
        return cls(**chosen)

    @all_at_once
    def fit(
        self, X: Any, y: Any = None, *, sources: Any = None, progress: Progress | None = None
    ) -> LocalHOC:
        """Estimate the global T and a T for each neighbourhood.

        Parameters
        ----------
        X : array or data frame of shape (N, d)
            Representations.
        y : array of shape (N,)
            Noisy labels; None and NaN are unlabelled, and such examples are in no local set.
        sources : array of shape (N,), optional
            As for `HOC.fit`: examples of one source form no triple, but may be in one local set.
        progress : callable, optional
            Called as ``progress(stage, done, total)``.
        """
        self._check_settings()
        if self.n_rounds is not None and sources is not None:
            raise LabelNoiseError("Expected sources to be None with n_rounds, but they were given")
        X, labels, classes = self._read(X, y)
        n, source = len(labels), source_numbers(sources, len(labels))
        rows, notes = self._usable_rows(X, labels, None, 2)
        notes = notes[:-1]  # `global_` looks for copies
        if self.local_size >= len(rows):
            raise LabelNoiseError(
                f"Expected local_size < the number of labelled examples, but local_size = "
                f"{self.local_size}, and there are {len(rows)}"
            )
        X, labels = (X if len(rows) == n else X[rows]), labels[rows]
        source = None if source is None else source[rows]
        est = self._global(classes)
        self.global_ = est.fit(X, classes[labels], sources=source, progress=progress)

        rng = np.random.default_rng(self.random_state)
        points = Points(X, self.metric)
        members, nearer, first = self._cover(points, rng)
        around, which, triples = self._triples(points, members, labels, rng)
        if est.has_features_to_trust:
            T, p = self._given_the_model(est, members, labels)
            self.transition_matrices_ = T
        else:
            T, p = self._solve(which, triples, len(classes), rng)
            self.transition_matrices_ = blend(T, p, est.transition_matrix_, self.zeta)
        self.classes_, self.class_priors_ = classes, p
        self.members_ = rows[members]
        self.assignment_ = np.full(n, -1)
        self.assignment_[rows] = first
        self.diagnostics_ = Diagnostics(
            (
                *notes,
                check_coverage(self.assignment_, self.n_local, self.local_size),
                check_noise_clusterability(labels, around, nearer, T, p),
                check_local_conditions(T, p, self.local_size),
            )
        )
        warn_of(notes, stacklevel=4)
        return self

    def _given_the_model(
        self, est: HOC, members: np.ndarray, labels: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """T (L, K, K) and p (L, K) by the global model's posterior of the members' classes."""
        assert est.clean_class_ is not None
        which, rows = np.repeat(np.arange(self.n_local), members.shape[1]), members.ravel()
        known = est.clean_class_.posterior[rows]
        found = transition_given(known, labels[rows], est.transition_matrix_, which, self.n_local)
        return found.transition_matrices, found.mass / members.shape[1]

    def _global(self, classes: np.ndarray) -> HOC:
        """The estimate of all data: `HOC.paper` where the paper's procedure is asked for."""
        if self.n_rounds is not None and self.solver == "paper":
            return HOC.paper(metric=self.metric, classes=classes, random_state=self.random_state)
        refine = self.refine and self.n_rounds is None
        return HOC(refine=refine, metric=self.metric, classes=classes)

    def transition_for(self, index: Any) -> np.ndarray:
        """Give the T of an example, (K, K), or of several, (n, K, K), by row number.

        ``transition_for(slice(None))`` is that of all examples, which a loss can take. An
        example in no local data set has the global T.
        """
        check_is_fitted(self, "transition_matrices_")
        every = np.concatenate([self.transition_matrices_, self.global_.transition_matrix_[None]])
        return every[self.assignment_[index]]

    def _check_settings(self) -> None:
        expect_one_of("solver", self.solver, _SOLVERS)
        expect_one_of("metric", self.metric, METRICS)
        expect_whole("n_local", self.n_local, 1)
        expect_whole("local_size", self.local_size, 3)
        for name, least in (("n_rounds", 1), ("sample_size", 3)):
            if getattr(self, name) is not None:
                expect_whole(name, getattr(self, name), least)
        if (self.n_rounds is None) != (self.sample_size is None):
            raise LabelNoiseError(
                f"Expected n_rounds and sample_size together, but n_rounds = {self.n_rounds}, "
                f"sample_size = {self.sample_size}"
            )
        if self.sample_size is not None and self.sample_size > self.local_size + 1:
            raise LabelNoiseError(
                f"Expected sample_size <= local_size + 1, but sample_size = {self.sample_size}, "
                f"local_size = {self.local_size}"
            )
        if not 0 <= self.zeta <= 1:
            raise LabelNoiseError(f"Expected 0 <= zeta <= 1, but zeta = {self.zeta}")
        if not self.sparsity >= 0:
            raise LabelNoiseError(f"Expected sparsity >= 0, but sparsity = {self.sparsity}")

    def _cover(
        self, points: Points, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Members of each local data set (L, M + 1), which half is nearer, each example's first."""
        n = len(points.X)
        members = np.empty((self.n_local, self.local_size + 1), np.intp)
        nearer = np.empty(members.shape, bool)
        first = np.full(n, -1)
        for number in range(self.n_local):
            uncovered = np.flatnonzero(first < 0)
            centre = rng.choice(uncovered) if len(uncovered) else rng.integers(n)
            scores = points.scores(slice(centre, centre + 1), slice(0, n))[0]
            scores[centre] = -np.inf
            nearest = np.argpartition(-scores, self.local_size)[: self.local_size]
            scores[centre] = np.inf
            members[number, 0], members[number, 1:] = centre, np.sort(nearest)
            inside = members[number]
            nearer[number] = scores[inside] >= np.median(scores[inside])
            first[inside] = np.where(first[inside] < 0, number, first[inside])
        return members, nearer, first

    def _triples(
        self,
        points: Points,
        members: np.ndarray,
        labels: np.ndarray,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Triples of each local data set, and the set each belongs to.

        With `n_rounds` of random samples inside each local data set, else of all members. Before
        them each member (L, M + 1, 3) with its two nearest, inside or among all.
        """
        if self.n_rounds is None or self.sample_size is None:
            near: Any = self.global_.examples_.near
            around = np.column_stack([np.arange(len(labels)), near.indices[:, :2]])[members]
            which = np.repeat(np.arange(self.n_local), members.shape[1])
            return around, which, labels[around].reshape(-1, 3)
        size = members.shape[1]
        triples = np.empty((self.n_local, self.n_rounds, self.sample_size, 3), np.int32)
        around = np.empty((*members.shape, 3), np.intp)
        for number, inside in enumerate(members):
            local = Points(points.X[inside], self.metric)
            scores = local.scores(slice(0, size), slice(0, size))
            np.fill_diagonal(scores, -np.inf)
            around[number] = inside[_two_best(scores.copy())]
            for round_ in range(self.n_rounds):
                sample = rng.choice(size, self.sample_size, replace=False)
                near = _two_best(scores[np.ix_(sample, sample)])
                triples[number, round_] = labels[inside[sample[near]]]
        which = np.repeat(np.arange(self.n_local), self.n_rounds * self.sample_size)
        return around, which, triples.reshape(-1, 3)

    def _solve(
        self, which: np.ndarray, triples: np.ndarray, K: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """T (L, K, K) and p (L, K) of the local problems, as many at a time as memory allows."""
        each = max(K * min(K * (K + 1) // 2, len(triples) // self.n_local), K * K)
        at_once = max(1, _BATCH_BYTES // (8 * each))
        parts = []
        for begin in range(0, self.n_local, at_once):
            count = min(at_once, self.n_local - begin)
            mine = (which >= begin) & (which < begin + count)
            problems = LocalProblems(which[mine] - begin, triples[mine], count, K)
            if self.solver == "paper":
                parts.append(solve_local_paper(problems, rng, sparse=self.sparsity > 0))
            else:
                start = (self.global_.transition_matrix_, self.global_.class_prior_)
                parts.append(solve_local(problems, *start, self.sparsity))
        return np.concatenate([T for T, _ in parts]), np.concatenate([p for _, p in parts])

    def __str__(self) -> str:
        if not hasattr(self, "transition_matrices_"):
            return repr(self)
        return (
            f"{self.global_.noise_rate_:.1%} of the labels are wrong by the global T, beside "
            f"{len(self.members_)} local ones.\n{self.diagnostics_}"
        )


def _two_best(scores: np.ndarray) -> np.ndarray:
    """(m, 3) each row's own number and its two columns with the highest scores, which are lost."""
    place = np.arange(len(scores))
    one = scores.argmax(axis=1)
    scores[place, one] = -np.inf
    return np.column_stack([place, one, scores.argmax(axis=1)])


def blend(
    local: np.ndarray, local_prior: np.ndarray, overall: np.ndarray, zeta: float
) -> np.ndarray:
    """Rows of local matrices (L, K, K), blended with those of the overall T (K, K).

    ``(1 - zeta + p_i) T_local[i] + (zeta - p_i) T[i]``; where p_i exceeds zeta the printed
    formula has a negative weight, which is taken as 0.
    """
    weight = np.maximum(zeta - local_prior, 0)[:, :, None]
    return (1 - weight) * local + weight * overall


def local_errors(est: LocalHOC, clean: Any, y: Any) -> np.ndarray:
    """Errors (n_local,) of the local matrices of a fitted `LocalHOC`, as the paper scores them.

    The truth of a local data set is counted from its members and blended with the global truth
    as the estimate is: a few hundred examples do not fix the rows of classes they hardly hold.
    The paper reports mean and spread.

    Parameters
    ----------
    est : LocalHOC
        Fitted.
    clean, y : arrays of shape (N,)
        Clean and noisy labels of the data it was fitted on.
    """
    K = len(est.classes_)
    codes = [encode_labels(labels, est.classes_, est.unlabeled)[0] for labels in (clean, y)]
    both = (codes[0] >= 0) & (codes[1] >= 0)
    overall = true_transition_matrix(codes[0][both], codes[1][both], K)
    matrices = est.transition_matrices_
    if est.refine and not est.global_.features_know_labels:  # they are shrunk, and not blended
        own = matrices, est.class_priors_
        matrices = blend(*own, est.global_.transition_matrix_, est.zeta)
    result = np.empty(len(est.members_))
    for number, inside in enumerate(est.members_):
        inside = inside[both[inside]]
        truth = true_transition_matrix(codes[0][inside], codes[1][inside], K)
        prior = np.bincount(codes[0][inside], minlength=K) / max(len(inside), 1)
        truth = blend(truth[None], prior[None], overall, est.zeta)[0]
        result[number] = transition_error(matrices[number], truth)
    return result
