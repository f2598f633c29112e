"""HOC: the estimators, thin over neighbours, consensus, solvers and diagnostics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from labelnoise._arrays import HOST
from labelnoise._errors import LabelNoiseError
from labelnoise._estimator import (
    Estimator,
    Stored,
    expect_one_of,
    expect_whole,
    source_numbers,
    warn_of,
)
from labelnoise._labels import class_names, encode_labels
from labelnoise.consensus import Consensus
from labelnoise.diagnostics import (
    SURELY,
    Diagnostics,
    Finding,
    check_duplicates,
    check_fit,
    check_guarantee,
    check_matrix,
    check_rows,
    check_search,
    check_solution,
    overlap_of,
)
from labelnoise.intervals import ConfidenceInterval, confidence_interval
from labelnoise.neighbors import (
    METRICS,
    SEARCHES,
    chosen_device,
    chosen_search,
    joined_neighbors,
)
from labelnoise.soft import SoftSolution, check_soft, solve_soft
from labelnoise.solvers import SOLVERS, solve

if TYPE_CHECKING:
    from labelnoise.assumptions import NeighborAgreement
    from labelnoise.cleaning import CleanModel, Suspects
    from labelnoise.refinement import Refinement

Progress = Callable[[str, int, int], None]

_PAPER_SAMPLE = 15_000
SCALES = (2, 6, 18)  # so many nearest neighbours vote when T is refined
LARGEST_REFINED = 50_000_000  # examples times classes, for T to be refined
_LEAST_EXAMPLES = 10  # for each class, on average

# A row of the triples' T may have its maximum off the diagonal by SURELY standard errors, or
_BY_CHANCE = 0.25  # by so much; or
_AS_NEAR = 0.9  # by more, if the features' T has no other entry as near to the diagonal's
_ENOUGH_ELSEWHERE = 0.5  # of a class of mean size, for such rows to count
_FEATURES_ALONE = "noise depends on the example, and triples do not tell T: see refined"
_OVERLAP_OF_ROUNDS = 3.0  # each example is in three triples of a round, on average
_LARGEST_PRINTED = 12
_MOST_PAIRS = 5e6  # of triples with a common example, for intervals that count them
_LARGEST_QUICK = 40  # classes for which intervals take about a second
SIGNS_OF_BIAS = ("fit", "ranks", "distance", "feasible")


class HOC(Estimator):
    """Estimate the noise transition matrix of a labelled data set, without clean labels.

    Near neighbours mostly share their true class, so the labels that an example and its two
    nearest neighbours carry are three looks at one class. HOC (High-Order Consensus) counts
    which triples of labels occur and finds the one T that explains them. What the features tell of
    the classes then refines it, as neighbours that differ in class look like noise.

    Parameters
    ----------
    refine : bool, default=True
        Refine the T of the triples by a model of the clean class, as `labelnoise.refinement` says.
        Not for features of a network that was trained on these very labels: they foretell its
        errors, which the model then takes for classes. It needs X, "likelihood", ten examples for
        each class, and at most 50 million examples times classes; without these, and with `soft`,
        `n_rounds`, `neighbors` or `center_weight`, T is that of the triples.
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
    soft : float, (K, K) array, "one number" or "estimate", optional
        Let neighbours be of another class than the example: the chance e of each other class, all
        chances S, or which of the two to estimate, as `labelnoise.soft.solve_soft` takes them.
        Only with solver="likelihood". It rests on the two neighbours erring independently of each
        other, which in real representations they do not: a good S is worth much, and an estimated
        one takes up a small part of the confusion (benchmarks/results/soft.md).
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
    soft_matrix_ : array of shape (K, K) or None
        With `soft`: ``S[i, j]``, the chance that a neighbour of a true i is a true j.
    diagnostics_ : Diagnostics
        What the estimate stands on: print it.
    agreement_ : NeighborAgreement or None
        How often neighbours carry the same label, by rank and distance: set by `diagnose`.
    consensus_ : Consensus
        The label triples that were counted.

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
        "soft_matrix": Stored("KK", optional=True),
    }
    _counted: dict[str, Any]  # what `intervals.confidence_interval` asks for
    _data: dict[str, Any]  # X, labels, neighbors, row numbers; and a model, once it is asked for
    _refinement: Refinement | None = None
    _saved_interval: ConfidenceInterval | None = None
    agreement_: NeighborAgreement | None = None
    diagnostics_: Diagnostics

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
        soft: Any = None,
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
        self.soft = soft
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

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        neighbors: Any = None,
        sources: Any = None,
        center_weight: Any = None,
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
            are not taken for neighbours of each other, as their labels were not given
            independently. Give more `neighbors` than are needed, where they are given.
        center_weight : array of shape (N,), optional
            How much each example counts as the centre of a triple. 0: only as a neighbour.
        progress : callable, optional
            Called as ``progress(stage, done, total)``; the stages are "neighbors" (or
            "counting", with `n_rounds`), "solving" and "refining".

        Returns
        -------
        HOC
            Itself.
        """
        self._check_settings()
        given = any(value is not None for value in (neighbors, sources, center_weight))
        if self.n_rounds is not None and given:
            raise LabelNoiseError(
                "Expected neighbors, sources and center_weight to be None with n_rounds, which "
                "finds its own neighbours in each round, but one of them was given"
            )
        if _in_shards(X):
            if neighbors is not None or sources is not None or self.n_rounds is not None:
                raise LabelNoiseError(
                    "Expected neighbors, sources and n_rounds to be None for rows in shards, but "
                    "one of them was given"
                )
            from labelnoise.distributed import fit_shards

            fit_shards(self, X, y, center_weight, progress)
            return self
        X, labels, classes = self._read(X, y)
        n, K = len(labels), len(classes)
        source = source_numbers(sources, n)
        stage = _stages(progress)
        rows, notes = self._usable_rows(X, labels, neighbors, self.n_neighbors)
        labels = labels[rows]
        X = X if len(rows) == n else X[rows]

        refining = self._can_refine(X, labels, K, neighbors, center_weight)
        if self.n_rounds is not None:
            indices = None
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
            source = None if source is None else source[rows]
            k = self.n_neighbors
            if refining:
                others = len(labels if source is None else np.unique(source)) - 1
                k = max(k, min(SCALES[-1], others))
            nearby = self._neighbors(
                X, labels, neighbors, source, k, stage("neighbors"), **self._how()
            ).indices
            indices = nearby[:, : self.n_neighbors]
            weight = None if center_weight is None else _checked_weight(center_weight, n)[rows]
            consensus = Consensus.from_neighbors(labels, indices, K, center_weight=weight)
        solving = stage("solving")
        if solving:
            solving(0, 1)
        self._solve(consensus, classes, notes, labels, indices)
        if solving:
            solving(1, 1)
        if indices is not None:
            self._counted = {"labels": labels, "neighbors": indices, "center_weight": weight}
        self._data = {
            "X": X,
            "labels": labels,
            "neighbors": neighbors,
            "sources": source,
            "rows": rows,
            "n": n,
        }
        if indices is not None and neighbors is None:
            self._data["nearby"] = nearby
            d = X.shape[1]
            if chosen_search(self.search, len(X), d, self.device, source) == "approximate":
                T, p = self.transition_matrix_, self.class_prior_
                found = check_search(X, labels, indices, self.metric, source, T, p)
                self.diagnostics_ = Diagnostics((*self.diagnostics_, found))
        if refining:
            self._refine(X, labels, nearby, source, stage("refining"))
        warn_of(self.diagnostics_)
        return self

    def update(self, X: Any, y: Any) -> HOC:
        """Let new examples join those that the estimate was fitted to.

        The neighbours, and so the triples, are those that `fit` would find among all, but only new
        examples are compared with all. The solver starts from the present T, and T is refined anew.
        Not after `neighbors`, `sources`, `center_weight` or `n_rounds`.

        Parameters
        ----------
        X : array of shape (M, d)
        y : array of shape (M,)
            Labels among `classes_`; None and NaN are left out.
        """
        check_is_fitted(self)
        data = getattr(self, "_data", {})
        weighted = data and self._counted.get("center_weight") is not None
        if "nearby" not in data or data["sources"] is not None or weighted:
            raise LabelNoiseError(
                "Expected an estimate that was fitted to X and y alone, but it was loaded, or "
                "fitted with neighbors, sources, center_weight or n_rounds, or to shards or triples"
            )
        X = self._features(X, reset=False)
        labels, _ = encode_labels(y, self.classes_, self.unlabeled)
        if len(labels) != len(X):
            raise LabelNoiseError(
                f"Expected as many labels as rows of X, but X has {len(X)} rows and y "
                f"{len(labels)} labels"
            )
        rows, notes = self._usable_rows(X, labels, None, -1)
        n, K = data["n"] + len(labels), len(self.classes_)
        X = np.concatenate([data["X"], X[rows]])
        labels = np.append(data["labels"], labels[rows])
        nearby = joined_neighbors(X, data["nearby"], self.metric)
        indices = nearby[:, : self.n_neighbors]
        said = {found.name: found for found in (*self.diagnostics_, *notes)}
        notes = [said[name] for name in ("search", "zero vectors") if name in said]
        notes.append(check_duplicates(X, labels))
        consensus = Consensus.from_neighbors(labels, indices, K)
        start = self._of_triples() if self.solver == "likelihood" else None
        self._solve(consensus, self.classes_, notes, labels, indices, start)
        self._counted = {"labels": labels, "neighbors": indices, "center_weight": None}
        rows = np.append(data["rows"], rows + data["n"])
        self._data = data | {"X": X, "labels": labels, "rows": rows, "nearby": nearby, "n": n}
        self._data.pop("model", None)
        if self._can_refine(X, labels, K, None, None):
            self._refine(X, labels, nearby, None, None)
        warn_of(self.diagnostics_)
        return self

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
        warn_of(self.diagnostics_)
        return self

    def _can_refine(
        self, X: Any, labels: np.ndarray, K: int, neighbors: Any, center_weight: Any
    ) -> bool:
        return bool(
            self.refine
            and X is not None
            and neighbors is None
            and center_weight is None
            and self.solver == "likelihood"
            and self.soft is None
            and self.n_rounds is None
            and len(np.unique(labels)) == K
            and _LEAST_EXAMPLES * K <= len(X) <= LARGEST_REFINED / K
        )

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
        if self.soft is not None and self.solver != "likelihood":
            raise LabelNoiseError(
                f"Expected solver='likelihood' with soft, but solver = {self.solver!r}"
            )

    def _solve(
        self,
        consensus: Consensus,
        classes: np.ndarray,
        notes: list[Finding],
        labels: np.ndarray | None = None,
        neighbors: np.ndarray | None = None,
        start: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        """Solve, and check the result; triples overlap as neighbours tell, where known."""
        solution = (
            solve(consensus, self.solver, start=start, random_state=self.random_state)
            if self.soft is None
            else solve_soft(consensus, self.soft)
        )
        plain = solution.plain if isinstance(solution, SoftSolution) else solution
        if labels is None:
            overlap = 1.0
        elif neighbors is None:
            overlap = _OVERLAP_OF_ROUNDS
        else:
            overlap = overlap_of(neighbors, labels, plain.transition_matrix, plain.class_prior)
        self.soft_matrix_: np.ndarray | None = None
        if isinstance(solution, SoftSolution):
            self.soft_matrix_ = solution.S
            fit = check_soft(consensus, solution, overlap)
        else:
            fit = [check_fit(consensus, solution, self.solver, overlap, classes)]
        self.classes_, self.consensus_ = classes, consensus
        self._counted, self._data, self.agreement_ = {}, {}, None
        self._refinement = None
        self.transition_matrix_ = self.triples_transition_matrix_ = solution.transition_matrix
        self.class_prior_ = solution.class_prior
        self.diagnostics_ = Diagnostics(
            (*check_solution(consensus, solution, classes), *fit, *notes)
        )

    def _refine(
        self,
        X: np.ndarray,
        labels: np.ndarray,
        neighbors: np.ndarray,
        sources: np.ndarray | None,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        from labelnoise.refinement import refine

        device, arrays = chosen_device(self.device, len(X), X.shape[1], sources), HOST
        if device != "cpu":
            from labelnoise.gpu import arrays_on

            arrays = arrays_on(device)
        T, p = self.transition_matrix_, self.class_prior_
        variance = self._variance_of_triples()
        found = refine(
            X, labels, neighbors, T, p, variance, sources=sources, progress=progress, arrays=arrays
        )
        # The model's ratios have the maxima of rows on the diagonal: it is not believed where it is
        # about to have one elsewhere, and the triples surely do.
        refined, highest = found.of_features, T.argmax(axis=1)
        by_chance = SURELY * np.sqrt(np.diag(variance) + variance[np.arange(len(T)), highest])
        elsewhere = np.sort(refined, axis=1)[:, -2] > _AS_NEAR * np.diag(refined)
        elsewhere &= T.max(axis=1) - np.diag(T) > np.maximum(_BY_CHANCE, by_chance)
        if p @ elsewhere > _ENOUGH_ELSEWHERE / len(p):
            return
        self._refinement = found
        self.transition_matrix_, self.class_prior_ = found.transition_matrix, found.class_prior
        T, p, counts = found.transition_matrix, found.class_prior, self.consensus_.label_counts()
        drawn = found.draws
        chance = 0.0 if drawn is None else np.linalg.svd(drawn, compute_uv=False)[:, -1].std()
        of_matrix = check_matrix(self.consensus_, T, p, counts > 0, self.classes_, chance)
        anew = {finding.name: finding for finding in of_matrix}
        findings = [anew.get(f.name, found.allow_for(f)) for f in self.diagnostics_]
        self.diagnostics_ = Diagnostics((*findings, *found.findings()))

    def _variance_of_triples(self) -> np.ndarray:
        """(K, K) of T; of very many classes 0, not known.

        If very many triples share an example, as if none did.
        """
        T, p = self.transition_matrix_, self.class_prior_
        if len(T) > _LARGEST_QUICK:
            return np.zeros_like(T)
        counted, sharing = self._counted, np.bincount(self._counted["neighbors"].ravel())
        if (sharing.astype(float) ** 2).sum() > _MOST_PAIRS:
            counted = {}
        try:
            variance = confidence_interval(self.consensus_, T, p, **counted).transition_variance()
        except LabelNoiseError:  # triples do not tell the rows apart
            return np.full_like(T, np.inf)
        return variance

    def _of_triples(self) -> tuple[np.ndarray, np.ndarray]:
        """T and p that explain the triples."""
        refined = self._refinement
        p = self.class_prior_ if refined is None else refined.prior_of_triples
        return self.triples_transition_matrix_, p

    def confidence_interval(self, level: float = 0.95) -> ConfidenceInterval:
        """Give intervals for T, the class prior and the noise rate: population values, per entry.

        They say what chance does to the estimate. Those of the triples' T hold if neighbours share
        their class. Where they do not, the bias is larger than the interval, which says so (its
        `caveat`) if `diagnostics_` has signs of it; `diagnose` looks for more of them. Those of a
        refined T hold if noise depends on the class alone; where it does not, they reach over the
        intervals of both estimates that T was taken from. After `fit_consensus` triples are taken
        to share no examples, which narrows the intervals if they do.

        Parameters
        ----------
        level : float, default=0.95
            Chance to cover the true value.
            For up to about 100 classes (50 if T was refined).

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from labelnoise.noise import symmetric
        >>> X, y = load_digits(return_X_y=True)
        >>> est = HOC().fit(X, symmetric(y, 0.2, random_state=0).labels)
        >>> est.confidence_interval()
        20.2% to 23.8% of the labels are wrong (0.95, information)
        """
        check_is_fitted(self)
        if not hasattr(self, "consensus_"):
            if self._saved_interval is not None and self._saved_interval.level == level:
                return self._saved_interval
            raise LabelNoiseError(
                f"Expected an estimate with its triples, but a loaded one has none for level = "
                f"{level}: fit it again, or save its consensus_ and use fit_consensus"
            )
        if self.solver != "likelihood" or self.soft is not None or self.n_rounds is not None:
            raise LabelNoiseError(
                f"Expected solver='likelihood' without soft and n_rounds, whose errors are known, "
                f"but solver = {self.solver!r}, soft = {self.soft!r}, n_rounds = {self.n_rounds}"
            )
        refined = self._refinement
        if refined is not None and not refined.depends:
            return refined.interval(level)
        try:
            interval = confidence_interval(
                self.consensus_,
                *self._of_triples(),
                level=level,
                **self._counted,
            )
        except LabelNoiseError:
            if refined is None:
                raise
            # The triples tell nothing of T, which is that of the features.
            return replace(refined.interval(level), caveat=_FEATURES_ALONE)
        if refined is not None:
            return refined.interval(level, interval)
        signs = [
            found.name
            for found in self.diagnostics_
            if found.name in SIGNS_OF_BIAS and not found.ok
        ]
        if not signs:
            return interval
        seen = ", ".join(signs)
        caveat = f"the bias may be larger than this interval: see {seen} in the diagnostics"
        return replace(interval, caveat=caveat)

    def diagnose(self, progress: Progress | None = None) -> Diagnostics:
        """Look closer at what the estimate stands on; `diagnostics_` then has these findings too.

        Whether neighbours share their class and how many triples are feasible, whether labels were
        copied between neighbours, whether the representations have learnt the noisy labels, whether
        noise depends on the example, near duplicates, rows of T that the data do not pin down. It
        takes longer than the fit. Whether noise depends on a known group, `GroupHOC` tells.

        Parameters
        ----------
        progress : callable, optional
            Called as ``progress(stage, done, total)``.
        """
        from labelnoise.assumptions import N_NEIGHBORS, check_assumptions

        check_is_fitted(self)
        data = getattr(self, "_data", {})
        if data.get("X") is None or len(data["labels"]) <= N_NEIGHBORS:
            raise LabelNoiseError(
                f"Expected an estimate that was fitted to more than {N_NEIGHBORS} representations, "
                f"but it was loaded, or fitted to neighbours, counted triples or shards"
            )
        T, p, classes = self.transition_matrix_, self.class_prior_, self.classes_
        X, labels, sources = data["X"], data["labels"], data["sources"]
        if data["neighbors"] is not None:  # then unlabelled examples and zero vectors are in it
            rows, _ = self._usable_rows(X, labels, None, N_NEIGHBORS)
            X, labels = X[rows], labels[rows]
            sources = None if sources is None else sources[rows]
        self.agreement_, assumed = check_assumptions(
            X,
            labels,
            len(classes),
            self.metric,
            *self._of_triples(),
            sources=sources,
            progress=_stages(progress)("looking closer"),
            **self._how(),
        )
        if self._refinement is not None:
            assumed = tuple(map(self._refinement.allow_for, assumed))
        found = [*assumed, check_guarantee(T, p, classes)]
        interval = _quick_interval(self)
        if interval is not None:
            found.append(check_rows(T, interval.transition_matrix, classes))
        new = {finding.name for finding in found}
        before = [finding for finding in self.diagnostics_ if finding.name not in new]
        self.diagnostics_ = Diagnostics((*before, *found))
        return self.diagnostics_

    def predict_proba(self, X: Any = None, y: Any = None) -> np.ndarray:
        """Give P(clean class), from the features and the labels around, and the own label.

        Parameters
        ----------
        X : array of shape (M, d), optional
            New examples. None: those that the estimate was fitted to, with their labels; each one's
            evidence then comes from models that were trained without it.
        y : array of shape (M,), optional
            Labels of new examples; None and NaN are unlabelled.

        Returns
        -------
        array of shape (M, K)
            Rows sum to 1, columns in the order of `classes_`. Without X, rows are the examples
            that took part in the estimate: those that are labelled.
        """
        from labelnoise.cleaning import with_own_label

        model = self._clean_model()
        if X is None:
            if y is not None:
                raise LabelNoiseError("Expected no y without X, but y was given")
            return with_own_label(model.out_of_fold, model.labels, model.transition_matrix)
        clean = model.predict_proba(self._features(X, reset=False))
        if y is None:
            return clean
        labels, _ = encode_labels(y, self.classes_, self.unlabeled)
        if len(labels) != len(clean):
            raise LabelNoiseError(
                f"Expected as many labels as rows of X, but X has {len(clean)} rows and y "
                f"{len(labels)} labels"
            )
        return with_own_label(clean, labels, model.transition_matrix)

    def suspects(self, verified: Mapping[int, Any] | None = None) -> Suspects:
        """Rank the labels that are probably wrong, each with its probability and a suggestion.

        Parameters
        ----------
        verified : dict, optional
            The true labels of some rows, {row number: label}. A few hundred, best of random rows,
            correct the probabilities.

        Returns
        -------
        Suspects
            As many as are expected to be wrong, less those verified. Print it, or take its
            `columns()`. Their expected number is found by another model than `noise_rate_`, and
            differs a little.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from labelnoise.noise import symmetric
        >>> X, y = load_digits(return_X_y=True)
        >>> noisy = symmetric(y, 0.2, random_state=0)
        >>> suspects = HOC().fit(X, noisy.labels).suspects()
        >>> bool((noisy.labels != y)[suspects.index].mean() > 0.9)
        True
        """
        from labelnoise.cleaning import find_suspects, verify

        posterior, labels, rows = self.predict_proba(), self._data["labels"], self._data["rows"]
        finding = None
        if verified:
            place = {int(row): number for number, row in enumerate(rows)}
            unknown = [row for row in verified if row not in place]
            if unknown:
                raise LabelNoiseError(
                    f"Expected verified rows that are labelled examples of the data, but row "
                    f"{unknown[0]!r} is none ({len(unknown)} such rows)"
                )
            numbers, _ = encode_labels(list(verified.values()), self.classes_)
            checked = dict(zip((place[row] for row in verified), numbers.tolist(), strict=True))
            posterior, _, finding = verify(posterior, labels, checked)
        found = find_suspects(posterior, labels, self.classes_)
        index = rows[found.index]
        open_ = ~np.isin(index, list(verified or ()))
        return replace(
            found,
            **{
                name: column[open_] for name, column in (found.columns() | {"index": index}).items()
            },
            verified=None if finding is None else finding.sentence,
        )

    def _clean_model(self) -> CleanModel:
        from labelnoise.cleaning import fit_clean_model

        check_is_fitted(self)
        if not getattr(self, "_data", None):
            raise LabelNoiseError(
                "Expected an estimate that was fitted to labels of examples, but it was loaded, or "
                "fitted to counted triples or to shards: use fit, with an array in memory"
            )
        if "model" not in self._data:
            X, neighbors = self._data["X"], self._data["neighbors"]
            self._data["model"] = fit_clean_model(
                X,
                self._data["labels"],
                self.triples_transition_matrix_,
                neighbors=neighbors if X is None else None,
                metric=self.metric,
                **self._how(),
            )
        model: CleanModel = self._data["model"]
        return model

    @property
    def noise_rate_(self) -> float:
        """Estimated share of wrong labels."""
        check_is_fitted(self, "transition_matrix_")
        return float(1 - self.class_prior_ @ np.diag(self.transition_matrix_))

    @property
    def joint_(self) -> np.ndarray:
        """(K, K) P(clean, label)."""
        check_is_fitted(self, "transition_matrix_")
        return self.class_prior_[:, None] * self.transition_matrix_

    @property
    def inverse_transition_matrix_(self) -> np.ndarray:
        """(K, K) P(clean | label), rows are labels. That of a label with no mass is its own."""
        labels = self.joint_.T
        mass = labels.sum(axis=1, keepdims=True)
        return np.where(mass > 0, labels / np.where(mass > 0, mass, 1), np.eye(len(labels)))

    def __str__(self) -> str:
        if not hasattr(self, "transition_matrix_"):
            return repr(self)
        return _summary(self)

    def _content(self) -> dict[str, Any]:
        interval = _quick_interval(self)
        return super()._content() | {
            "noise_rate": self.noise_rate_,
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


class ManyMatrices(Estimator):
    """Base of the estimators with a T for each part of the data, and a `HOC` of all as `global_`.

    A subclass has `n_neighbors`, and as `assignment_` the part of each example, or -1.
    """

    def _solve_global(
        self,
        labels: np.ndarray,
        indices: np.ndarray,
        classes: np.ndarray,
        notes: list[Finding],
        is_centre: np.ndarray | None = None,
    ) -> HOC:
        est = HOC(
            refine=False,
            n_neighbors=indices.shape[1],
            metric=self.metric,
            classes=self.classes,
            unlabeled=self.unlabeled,
        )
        consensus = Consensus.from_neighbors(labels, indices, len(classes), center_weight=is_centre)
        est._solve(consensus, classes, notes, labels, indices)
        return est

    def _content(self) -> dict[str, Any]:
        return super()._content() | {"global": self.global_._content()}

    @classmethod
    def _from_content(cls, content: dict[str, Any]) -> Self:
        est = super()._from_content(content)
        est.global_ = HOC._from_content(content["global"])
        if len(est.global_.classes_) != len(est.classes_):
            raise ValueError("the T of all data has another size")
        return est


def _stages(progress: Progress | None) -> Callable[[str], Callable[[int, int], None] | None]:
    """Name the stage of each call of `progress`."""

    def stage(name: str) -> Callable[[int, int], None] | None:
        return None if progress is None else lambda done, total: progress(name, done, total)

    return stage


def _in_shards(X: Any) -> bool:
    """Whether it is a Dask array or `labelnoise.shards.Shards`: neither is imported here."""
    return type(X).__module__.startswith(("dask.array", "labelnoise.shards"))


def _checked_weight(center_weight: Any, n: int) -> np.ndarray:
    try:
        weight = np.asarray(center_weight, float)
    except (TypeError, ValueError) as error:
        raise LabelNoiseError(f"Expected center_weight to be numbers, but {error}") from error
    if weight.shape != (n,):
        raise LabelNoiseError(
            f"Expected one center_weight for each example, but its shape is {weight.shape} and "
            f"there are {n} examples"
        )
    return weight


def _summary(est: HOC) -> str:
    T, classes = est.transition_matrix_, [str(name) for name in est.classes_]
    K = len(classes)
    interval = _quick_interval(est)
    triples = f"around {est.consensus_.n_centers:,} examples " if hasattr(est, "consensus_") else ""
    refined = "refined" in {finding.name for finding in est.diagnostics_}
    lines = [
        f"{est.noise_rate_:.1%} of the labels are wrong, by an estimate from label triples "
        f"{triples}in {K} classes{', and from the features' if refined else ''}."
    ]
    if interval is not None:
        low, high = interval.noise_rate
        lines.append(
            f"By chance it could be {low:.1%} to {high:.1%} (95% interval, {interval.condition})."
        )
        if interval.caveat:
            lines.append(f"WARNING  {interval.caveat.capitalize()}.")
    lines += confusion_lines(T, est.joint_, classes, interval)
    lines.append(str(est.diagnostics_))
    return "\n".join(lines)


def confusion_lines(
    T: np.ndarray, joint: np.ndarray, classes: list[str], interval: ConfidenceInterval | None = None
) -> list[str]:
    """The largest confusions as sentences, and T as a table if it is not too large for one."""
    confusions, lines, sentences = joint - np.diag(np.diag(joint)), [], []
    largest = np.argsort(-confusions, axis=None)[:5]
    for i, j in zip(*np.unravel_index(largest, T.shape), strict=True):
        if i != j and T[i, j] >= 0.0005:
            ends = "" if interval is None else _ends(*interval.transition_matrix[:, i, j])
            sentences.append(
                f"  {T[i, j]:.1%}{ends} of true {classes[i]} are labelled {classes[j]}"
            )
    if sentences:
        lines += ["Most frequent confusions:", *sentences]
    if len(T) <= _LARGEST_PRINTED:
        width = max(5, *(len(name) for name in classes))
        lines.append("Transition matrix, in percent (rows: true class, columns: label):")
        lines.append(" " * (width + 2) + " ".join(f"{name:>{width}}" for name in classes))
        for name, row in zip(classes, T, strict=True):
            lines.append(f"  {name:>{width}}" + "".join(f" {100 * v:>{width}.1f}" for v in row))
    return lines


def _quick_interval(est: HOC) -> ConfidenceInterval | None:
    """The intervals, where there are any and they take no time."""
    if len(est.classes_) > _LARGEST_QUICK:
        return None
    try:
        return est.confidence_interval()
    except LabelNoiseError:
        return None


def _ends(low: float, high: float) -> str:
    return f" ({100 * low:.1f} to {100 * high:.1f})"
