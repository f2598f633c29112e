"""LocalHOC: a transition matrix for each neighbourhood, for noise that depends on the example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from labelnoise._errors import LabelNoiseError
from labelnoise._estimator import Stored, expect_one_of, expect_whole, source_numbers, warn_of
from labelnoise._labels import encode_labels
from labelnoise.hoc import ManyMatrices, Progress
from labelnoise.neighbors import METRICS, Points, nearest_neighbors
from labelnoise.scores import transition_error, true_transition_matrix
from labelnoise.solvers.batch import Batch, solve_batch, solve_batch_paper

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
_BATCH_BYTES = 2**28  # of one array over local problems, all first labels and all pairs


class LocalHOC(ManyMatrices):
    """Estimate a transition matrix for each of many neighbourhoods of the data.

    Noise that depends on the example is nearly the same for examples that are alike. Around a
    random example that is not yet covered, its `local_size` nearest form a local data set, and
    so on; HOC runs on each. A neighbourhood holds few classes, and says nothing of the rows of
    the others: each row is blended with that of the global T by how much of its class there is.

    Parameters
    ----------
    n_local : int, default=300
        How many local data sets. Once all examples are covered, further centres are drawn from
        all.
    local_size : int, default=250
        How many nearest examples a centre brings along.
    solver : {"likelihood", "paper"}, default="likelihood"
        The likelihood starts from the global T; "paper" is the sum of norms, by Adam. All local
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

    Notes
    -----
    Not for noise that is the same everywhere, nor where a few hundred examples are too few to tell
    a local matrix from the global one: in benchmarks/results/local.md the global T is nearer to
    the local truth in seven cases of eight.

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
        chosen: dict[str, Any] = {"solver": "paper", **_PAPER[name], **settings}
        return cls(**chosen)

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
        n, K = len(labels), len(classes)
        source = source_numbers(sources, n)
        rows, notes = self._usable_rows(X, labels, None, 2)
        if self.local_size >= len(rows):
            raise LabelNoiseError(
                f"Expected local_size < the number of labelled examples, but local_size = "
                f"{self.local_size}, and there are {len(rows)}"
            )
        X, labels = (X if len(rows) == n else X[rows]), labels[rows]
        found = nearest_neighbors(
            X,
            2,
            self.metric,
            sources=None if source is None else source[rows],
            progress=None if progress is None else lambda *at: progress("neighbors", *at),
        )
        self.global_ = self._solve_global(labels, found.indices, classes, notes)
        warn_of(self.global_.diagnostics_)

        rng = np.random.default_rng(self.random_state)
        points = Points(X, self.metric)
        members, first = self._cover(points, rng)
        if self.n_rounds is None:
            which = np.repeat(np.arange(self.n_local), members.shape[1])
            centre = members.ravel()
            triples = labels[np.column_stack([centre, found.indices[centre]])]
        else:
            which, triples = self._rounds(points, members, labels, rng)
        T, p = self._solve(which, triples, K, rng)
        self.transition_matrices_ = blend(T, p, self.global_.transition_matrix_, self.zeta)
        self.classes_, self.class_priors_ = classes, p
        self.members_ = rows[members]
        self.assignment_ = np.full(n, -1)
        self.assignment_[rows] = first
        return self

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

    def _cover(self, points: Points, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Members of each local data set (L, M + 1), and the first that each example is in."""
        n = len(points.X)
        members = np.empty((self.n_local, self.local_size + 1), np.intp)
        first = np.full(n, -1)
        out = np.empty((1, n), np.float32)
        for number in range(self.n_local):
            uncovered = np.flatnonzero(first < 0)
            centre = rng.choice(uncovered) if len(uncovered) else rng.integers(n)
            scores = points.scores(slice(centre, centre + 1), slice(0, n), out)[0]
            scores[centre] = -np.inf
            nearest = np.argpartition(-scores, self.local_size)[: self.local_size]
            members[number, 0], members[number, 1:] = centre, np.sort(nearest)
            inside = members[number]
            first[inside] = np.where(first[inside] < 0, number, first[inside])
        return members, first

    def _rounds(
        self,
        points: Points,
        members: np.ndarray,
        labels: np.ndarray,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Triples inside random samples of each local data set, and the set each is of."""
        assert self.n_rounds is not None
        assert self.sample_size is not None
        size = members.shape[1]
        triples = np.empty((self.n_local, self.n_rounds, self.sample_size, 3), np.intp)
        for number, inside in enumerate(members):
            local = Points(points.X[inside], self.metric)
            out = np.empty((size, size), np.float32)
            scores = local.scores(slice(0, size), slice(0, size), out)
            np.fill_diagonal(scores, -np.inf)
            for round_ in range(self.n_rounds):
                sample = rng.choice(size, self.sample_size, replace=False)
                among = scores[np.ix_(sample, sample)]
                place = np.arange(self.sample_size)
                one = among.argmax(axis=1)
                among[place, one] = -np.inf
                two = among.argmax(axis=1)
                triples[number, round_] = np.column_stack(
                    [labels[inside[sample[at]]] for at in (place, one, two)]
                )
        which = np.repeat(np.arange(self.n_local), self.n_rounds * self.sample_size)
        return which, triples.reshape(-1, 3)

    def _solve(
        self, which: np.ndarray, triples: np.ndarray, K: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """T (L, K, K) and p (L, K) of the local problems, as many at a time as memory allows."""
        at_once = max(1, _BATCH_BYTES // (8 * K * K * (K + 1) // 2))
        parts = []
        for begin in range(0, self.n_local, at_once):
            count = min(at_once, self.n_local - begin)
            mine = (which >= begin) & (which < begin + count)
            number, part = which[mine] - begin, triples[mine]
            batch = Batch(number, part, count, K)
            if self.solver == "paper":
                at = number * K + part[:, 0]
                c1 = np.bincount(at, minlength=count * K)
                pairs = np.concatenate([at * K + part[:, 1], at * K + part[:, 2]])
                c2 = np.bincount(pairs, minlength=count * K * K)
                size = batch.sizes
                parts.append(
                    solve_batch_paper(
                        batch,
                        c1.reshape(count, K) / size[:, None],
                        c2.reshape(count, K, K) / (2 * size[:, None, None]),
                        rng,
                        sparse=self.sparsity > 0,
                    )
                )
            else:
                start = (self.global_.transition_matrix_, self.global_.class_prior_)
                parts.append(solve_batch(batch, *start, self.sparsity))
        return np.concatenate([T for T, _ in parts]), np.concatenate([p for _, p in parts])


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
    result = np.empty(len(est.members_))
    for number, inside in enumerate(est.members_):
        inside = inside[both[inside]]
        truth = true_transition_matrix(codes[0][inside], codes[1][inside], K)
        prior = np.bincount(codes[0][inside], minlength=K) / max(len(inside), 1)
        truth = blend(truth[None], prior[None], overall, est.zeta)[0]
        result[number] = transition_error(est.transition_matrices_[number], truth)
    return result
