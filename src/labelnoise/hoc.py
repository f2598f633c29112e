"""HOC: the estimator, thin over neighbours, consensus, solvers, the clean class and checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from labelnoise._errors import LabelNoiseError
from labelnoise._estimator import (
    Stored,
    all_at_once,
    source_numbers,
    stages,
    warn_of,
)
from labelnoise._validation import checked_weights, expect_one_of, expect_whole
from labelnoise.checks import (
    Diagnostics,
    Finding,
    check_examples,
    check_guarantee,
    check_refined,
    check_rows,
    check_search,
    check_triples,
    widened,
)
from labelnoise.clean_class import trust_triples
from labelnoise.clean_class.interval import clean_class_interval
from labelnoise.consensus import Consensus
from labelnoise.examples import Examples, can_refine, clean_class_of, neighbors_of
from labelnoise.fitted import FittedEstimate
from labelnoise.intervals import ConfidenceInterval, confidence_interval
from labelnoise.labels import class_names
from labelnoise.neighbors import METRICS, SEARCHES, chosen_search
from labelnoise.neighbors.agreement import neighbor_agreement
from labelnoise.solvers import SOLVERS, solve
from labelnoise.summary import quick_interval, summary

Progress = Callable[[str, int, int], None]

_PAPER_SAMPLE = 15_000
_PERMUTED = 0.25  # a row of the triples' T with its maximum off the diagonal by more, and a
_AT_DIAGONAL = 0.9  # T given h with an entry so near to the diagonal's: the classes are permuted


class HOC(FittedEstimate):
    """Estimate the noise transition matrix of a labelled data set, without clean labels.

    Near neighbours mostly share their true class, so the labels that an example and its two
    nearest neighbours carry are three looks at one class. HOC (High-Order Consensus) counts
    which triples of labels occur and finds the one T that explains them. Neighbours that differ in
    class look like noise, so a model of the clean class, fitted to features and labels, then tells
    classes that overlap from noise.

    Parameters
    ----------
    refine : bool, default=True
        Tell classes that overlap from noise by a model of the clean class: see
        `labelnoise.clean_class`. Not for features of a network that was trained on these very
        labels, which predict wrong labels too. It needs features, ten examples for each class, and
        at most 50 million examples times classes. Without these, and with `n_rounds` or
        `center_weight`, T is that of the triples.
    solver : {"likelihood", "moments", "paper", "paper-text"}, default="likelihood"
        How T is found from the triples. See `labelnoise.solvers.solve`.
    n_neighbors : int, default=2
        With more than 2, all pairs among an example's neighbours form a triple with it: less
        variance under heavy noise, and a little more bias, as further neighbours differ more.
    metric : {"cosine", "euclidean"}, default="cosine"
        Which examples are near. Zero vectors have no cosine and are left out.
    search : {"auto", "exact", "approximate"}, default="auto"
        How neighbours are found. "auto" is exact where that takes about three minutes at most (up
        to some 340,000 examples of 128 features with two threads) or a GPU does it. Else
        `diagnostics_` has a finding "search": how many of the nearest were found, and what the
        others would do to T.
    device : {"auto", "cpu", "cuda"} or "cuda:1", default="auto"
        Where neighbours are searched for exactly, and T is refined; on the CPU with `sources`.
        "auto" takes a GPU that PyTorch can use if the search would take more than ten seconds
        without. The neighbours are the same, and T but for what rounding does to a search.
    n_rounds, sample_size : int, optional
        Count as the paper does, in `n_rounds` random samples of `sample_size` examples with
        neighbours inside the sample. By default all examples are used once.
    neighbors_in : {"sample", "all"}, default="sample"
        With `n_rounds`: whether neighbours are searched for in each sample or in all data.
    classes : list of labels, optional
        All classes, in the order that T's rows shall have, if some labels may not occur.
    unlabeled : label, optional
        A label that stands for "not labelled", such as -1. None and NaN always do.
    random_state : int or Generator, optional
        Only for `n_rounds` and the start of "paper". The default uses no randomness.

    Attributes
    ----------
    transition_matrix_ : array of shape (K, K)
        ``T[i, j]`` is the chance that a true i is labelled j. Rows sum to 1.
    class_prior_ : array of shape (K,)
        Estimated share of each true class.
    noise_rate_ : float
        Estimated share of wrong labels.
    classes_ : array of shape (K,)
        Labels in the order of the rows.
    joint_ : array of shape (K, K)
        P(clean, label).
    inverse_transition_matrix_ : array of shape (K, K)
        P(clean | label), rows are labels.
    triples_transition_matrix_ : array of shape (K, K)
        T that explains the triples: with refine=False the same as `transition_matrix_`.
    diagnostics_ : Diagnostics
        What the estimate stands on: print it.
    consensus_ : Consensus
        The label triples that were counted.
    verified_ : Verification or None
        What verified labels say: set by `verify`.

    Notes
    -----
    The model is ``P(a, b, c) = sum_i p[i] T[i, a] T[i, b] T[i, c]``. With T non-singular and
    each row's maximum on its diagonal, T is unique (Theorem 1 of Zhu, Song and Liu,
    "Clusterability as an Alternative to Anchor Points When Learning with Noisy Labels", 2021).

    With refine=False not for representations in which neighbours often differ in their true class:
    T then shows that confusion as noise. Not for copies whose labels were copied too.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from labelnoise import HOC
    >>> from labelnoise.noise import symmetric
    >>> X, y = load_digits(return_X_y=True)
    >>> noisy = symmetric(y, 0.2, random_state=0)
    >>> est = HOC().fit(X, noisy.labels)
    >>> est.transition_matrix_.shape
    (10, 10)
    >>> bool(abs(est.noise_rate_ - noisy.rate) < 0.05)
    True
    """

    _stored: ClassVar = {
        "classes": Stored("K", "names"),
        "class_prior": Stored("K"),
        "transition_matrix": Stored("KK"),
        "triples_transition_matrix": Stored("KK"),
    }
    diagnostics_: Diagnostics
    _saved_interval: ConfidenceInterval | None = None

    def __init__(
        self,
        *,
        refine: bool = True,
        solver: str = "likelihood",
        n_neighbors: int = 2,
        metric: str = "cosine",
        search: str = "auto",
        device: str = "auto",
        n_rounds: int | None = None,
        sample_size: int | None = None,
        neighbors_in: str = "sample",
        classes: Sequence[Any] | np.ndarray | None = None,
        unlabeled: Any = None,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.refine = refine
        self.solver = solver
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.search = search
        self.device = device
        self.n_rounds = n_rounds
        self.sample_size = sample_size
        self.neighbors_in = neighbors_in
        self.classes = classes
        self.unlabeled = unlabeled
        self.random_state = random_state

    @classmethod
    def paper(cls, *, n_rounds: int = 50, sample_size: int = _PAPER_SAMPLE, **settings: Any) -> HOC:
        """Give the paper's procedure: G rounds of \\|E\\| samples, the norms, Adam.

        As in the paper's public code, neighbours are found inside each sample. For the reading
        that its text allows: ``HOC.paper(neighbors_in="all")``. For its text's start of Adam:
        ``HOC.paper(solver="paper-text")``.
        """
        paper: dict[str, Any] = {"refine": False, "solver": "paper", "n_rounds": n_rounds}
        return cls(**paper | {"sample_size": sample_size} | settings)

    @all_at_once
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        neighbors: Any = None,
        sources: Any = None,
        center_weight: Any = None,
        verified: Any = None,
        progress: Progress | None = None,
    ) -> HOC:
        """Estimate T from representations and noisy labels.

        Parameters
        ----------
        X : array or data frame of shape (N, d), or None
            Representations. None if `neighbors` is given. A Dask array, or the
            `labelnoise.distributed.Shards` of files: then workers of the current Dask client
            read and compare the rows.
        y : array of shape (N,)
            Noisy labels: numbers or strings. None and NaN are unlabelled, and such examples
            are left out.
        neighbors : int array of shape (N, k) or sparse array of shape (N, N), optional
            Neighbours found elsewhere: row numbers, nearest first, or a graph of distances.
        sources : array of shape (N,), optional
            Where each example comes from: a video, an annotator's batch. Examples of one source
            are not taken for neighbours of each other, and fall into one fold, as their labels
            were not given independently. Where `neighbors` are given, give more than are needed.
        center_weight : array of shape (N,), optional
            How much each example counts as the centre of a triple. 0: only as a neighbour.
        verified : mapping, Series, data frame, path of a CSV file, or a list of these, optional
            True labels of some rows: see `verify`.
        progress : callable, optional
            Called as ``progress(stage, done, total)``; the stages are "neighbors" (or
            "counting", with `n_rounds`), "solving" and "refining".

        Returns
        -------
        HOC
            Itself.
        """
        self._check_settings()
        stage = stages(progress)
        if _in_shards(X):
            if any(v is not None for v in (neighbors, sources, self.n_rounds, verified)):
                raise LabelNoiseError(
                    "Expected neighbors, sources, n_rounds and verified to be None for rows in "
                    "shards, but one of them was given"
                )
            from labelnoise.distributed import fit_shards

            fit_shards(self, X, y, center_weight, progress)
            return self
        given = any(value is not None for value in (neighbors, sources, center_weight))
        if self.n_rounds is not None and given:
            raise LabelNoiseError(
                "Expected neighbors, sources and center_weight to be None with n_rounds, which "
                "finds its own neighbours in each round, but one of them was given"
            )
        X, labels, classes = self._read(X, y)
        n, K = len(labels), len(classes)
        source = source_numbers(sources, n)
        weight = None if center_weight is None else checked_weights(center_weight, n)
        rows, notes = self._usable_rows(X, labels, neighbors, self.n_neighbors)
        labels, source = labels[rows], None if source is None else source[rows]
        weight = None if weight is None else weight[rows]
        X = X if X is None or len(rows) == n else X[rows]
        if self.n_rounds is not None:
            near = None
            consensus = Consensus.from_rounds(
                X,
                labels,
                K,
                n_rounds=self.n_rounds,
                sample_size=self.sample_size or _PAPER_SAMPLE,
                neighbors_in=self.neighbors_in,
                metric=self.metric,
                random_state=self.random_state,
                progress=stage("counting"),
            )
        else:
            near = neighbors_of(
                X,
                labels,
                self.n_neighbors,
                self.metric,
                given=neighbors,
                sources=source,
                refine=self._refines(weight) and can_refine(X, labels, K),
                progress=stage("neighbors"),
                **self._how(),
            )
            indices = near.indices[:, : self.n_neighbors]
            consensus = Consensus.from_neighbors(
                labels, indices, K, center_weight=weight, ordered=self.solver.startswith("paper")
            )
        self.examples_ = Examples(X, labels, rows, near, source, weight)
        self._solve(consensus, classes, notes, stage("solving"))
        if near is not None and neighbors is None:
            self._check_search()
        if near is not None and near.distances is not None:
            self.agreement_ = neighbor_agreement(near, labels)
        if near is not None and self._refines(weight):
            self._refine(stage("refining"))
        self._check_examples()
        if verified is not None:
            self.verify(verified)
        warn_of(self.diagnostics_, stacklevel=4)
        return self

    @all_at_once
    def fit_consensus(self, consensus: Consensus) -> HOC:
        """Estimate T from triples that were counted elsewhere: shards, or several annotators.

        Which triples share examples is not known here: the fit is judged as if none did.
        """
        self._check_settings()
        if not isinstance(consensus, Consensus):
            raise LabelNoiseError(
                f"Expected a Consensus, but it is of type {type(consensus).__name__}"
            )
        K = consensus.n_classes
        classes = np.arange(K) if self.classes is None else class_names(self.classes)
        if len(classes) != K:
            raise LabelNoiseError(
                f"Expected as many classes as the consensus has, but classes has "
                f"{len(classes)} and the consensus {K}"
            )
        self._solve(consensus, classes, [])
        warn_of(self.diagnostics_, stacklevel=4)
        return self

    def _refines(self, weight: np.ndarray | None) -> bool:
        return self.refine and self.solver == "likelihood" and weight is None

    def _how(self) -> dict[str, Any]:
        """How neighbours are searched for."""
        return {"search": self.search, "device": self.device}

    def _check_settings(self) -> None:
        expect_one_of("solver", self.solver, tuple(SOLVERS))
        expect_one_of("metric", self.metric, METRICS)
        expect_one_of("search", self.search, SEARCHES)
        expect_whole("n_neighbors", self.n_neighbors, 2)
        for name, least in (("n_rounds", 1), ("sample_size", 3)):
            if getattr(self, name) is not None:
                expect_whole(name, getattr(self, name), least)
        if self.n_rounds is None and self.sample_size is not None:
            raise LabelNoiseError(
                f"Expected n_rounds with sample_size, but n_rounds = None, sample_size = "
                f"{self.sample_size}"
            )
        if self.n_rounds is not None and self.n_neighbors != 2:
            raise LabelNoiseError(
                f"Expected n_neighbors = 2 with n_rounds, but n_neighbors = {self.n_neighbors}"
            )

    def _solve(
        self,
        consensus: Consensus,
        classes: np.ndarray,
        notes: list[Finding],
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Solve, and check the result; triples overlap as neighbours tell, where known."""
        if progress:
            progress(0, 1)
        solution = solve(consensus, self.solver, random_state=self.random_state)
        T, p = solution.transition_matrix, solution.class_prior
        self.classes_, self.consensus_, self._by_triples = classes, consensus, []
        self.transition_matrix_ = self.triples_transition_matrix_ = T
        self.class_prior_ = self.triples_class_prior_ = p
        found = check_triples(consensus, solution, self.solver, self.examples_, classes)
        self.diagnostics_ = Diagnostics((*found, *notes))
        if progress:
            progress(1, 1)

    def _check_search(self) -> None:
        """Say how many of the nearest an approximate search found."""
        data = self.examples_
        n, d = data.X.shape
        if chosen_search(self.search, n, d, self.device, data.sources) == "approximate":
            ends = self.transition_matrix_, self.class_prior_
            near = data.near.indices[:, :2]
            found = check_search(data.X, data.labels, near, self.metric, data.sources, *ends)
            self.diagnostics_ = Diagnostics((*self.diagnostics_, found))

    def _refine(self, progress: Callable[[int, int], None] | None) -> None:
        """Let the model of the clean class decide where T stands, and check that."""
        of_triples = self.triples_transition_matrix_, self.triples_class_prior_
        found = clean_class_of(
            self.examples_, of_triples, self.metric, progress=progress, **self._how()
        )
        if found is None or _permuted(of_triples[0], found.given_h[0]):
            return
        self.clean_class_ = found
        self.transition_matrix_, self.class_prior_ = found.transition_matrix, found.class_prior
        self.diagnostics_ = check_refined(self.diagnostics_, self.consensus_, found, self.classes_)

    def _check_examples(self) -> None:
        """Check what the estimate stands on; where features know the labels, trust the triples."""
        data, found = self.examples_, self.clean_class_
        near = None if data.near is None else data.near.indices
        how = {"classes": self.classes_, "metric": self.metric, "unlabeled": self.unlabeled}
        findings = check_examples(data.X, data.labels, near, found, **how)
        self.diagnostics_ = self.diagnostics_.replaced(findings)
        if found is not None and self.features_know_labels:
            self.clean_class_ = found = trust_triples(found)
            self.transition_matrix_, self.class_prior_ = found.transition_matrix, found.class_prior

    def confidence_interval(self, level: float = 0.95) -> ConfidenceInterval:
        """Give intervals for T, the class prior and the noise rate: population values, per entry.

        They say what sampling does to the estimate. Those of T given the features hold if noise
        depends on the class alone. Where T stands between two ends, they cover both. Those of the
        triples' T hold if neighbours share their class. After `fit_consensus` triples are taken
        to share no examples, which narrows the intervals if they do. After `verify` the noise
        rate's assumes nothing, if the rows were a random sample.

        Parameters
        ----------
        level : float, default=0.95
            Chance to cover the true value.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from labelnoise.noise import symmetric
        >>> X, y = load_digits(return_X_y=True)
        >>> est = HOC().fit(X, symmetric(y, 0.2, random_state=0).labels)
        >>> low, high = est.confidence_interval().noise_rate
        >>> bool(low < 0.21 < high)
        True
        """
        check_is_fitted(self)
        if not hasattr(self, "consensus_"):
            if self._saved_interval is not None and self._saved_interval.level == level:
                return self._saved_interval
            raise LabelNoiseError(
                f"Expected an estimate with its triples, but a loaded one has none for level = "
                f"{level}: fit it again, or save its consensus_ and use fit_consensus"
            )
        if self.verified_ is not None and self.verified_.rate is not None:
            return self._verified_interval(level)
        if self.solver != "likelihood" or self.n_rounds is not None:
            raise LabelNoiseError(
                f"Expected solver='likelihood' without n_rounds, whose errors are known, "
                f"but solver = {self.solver!r}, n_rounds = {self.n_rounds}"
            )
        found, data = self.clean_class_, self.examples_
        if found is not None and not found.case.share:
            return widened(clean_class_interval(found, level), self.diagnostics_, found, data)
        counted: dict[str, Any] = {}
        if data is not None and data.near is not None:
            near = data.near.indices[:, : self.n_neighbors]
            counted = {"labels": data.labels, "neighbors": near}
            counted["center_weight"] = data.center_weight
        of_triples = self.triples_transition_matrix_, self.triples_class_prior_
        interval = confidence_interval(self.consensus_, *of_triples, level=level, **counted)
        if found is not None:
            interval = clean_class_interval(found, level, interval)
        return widened(interval, self.diagnostics_, found, data)

    def diagnose(self, progress: Progress | None = None) -> Diagnostics:
        """Look closer at what the estimate stands on; `diagnostics_` then has these findings too.

        Which rows of T the data pin down, and for which the paper's Theorem 2 holds.
        """
        check_is_fitted(self)
        T, p, classes = self.transition_matrix_, self.class_prior_, self.classes_
        found = [check_guarantee(T, p, classes)]
        interval = quick_interval(self)
        if interval is not None:
            found.append(check_rows(T, interval.transition_matrix, classes))
        self.diagnostics_ = self.diagnostics_.replaced(found)
        return self.diagnostics_

    def __str__(self) -> str:
        return summary(self) if hasattr(self, "transition_matrix_") else repr(self)

    def _content(self) -> dict[str, Any]:
        interval = quick_interval(self)
        return super()._content() | {
            "noise_rate": self.noise_rate_ if self.diagnostics_.estimable else None,
            "confidence_interval": None if interval is None else interval.to_dict(),
        }

    @classmethod
    def _from_content(cls, content: dict[str, Any]) -> Self:
        est = super()._from_content(content)
        if content["confidence_interval"] is not None:
            K = len(est.classes_)
            interval = ConfidenceInterval.from_dict(content["confidence_interval"], K)
            est._saved_interval = interval
        return est


def _in_shards(X: Any) -> bool:
    """Whether it is a Dask array or `labelnoise.io.shards.Shards`: neither is imported here."""
    return type(X).__module__.startswith(("dask.array", "labelnoise.io.shards"))


def _permuted(of_triples: np.ndarray, given_h: np.ndarray) -> bool:
    """Whether a class surely has most of its labels wrong, which the T given h cannot say."""
    elsewhere = of_triples.max(axis=1) - np.diag(of_triples) > _PERMUTED
    second = np.sort(given_h, axis=1)[:, -2]
    return bool((elsewhere & (second > _AT_DIAGONAL * np.diag(given_h))).any())
