"""HOC: the estimators, thin over neighbours, consensus, solvers and diagnostics."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

import labelnoise
from labelnoise._errors import LabelNoiseError, LabelNoiseWarning
from labelnoise._files import write_then_rename
from labelnoise._labels import class_names, encode_labels
from labelnoise.consensus import Consensus
from labelnoise.diagnostics import (
    Diagnostics,
    Finding,
    check_duplicates,
    check_fit,
    check_solution,
    overlap_of,
)
from labelnoise.neighbors import METRICS, given_neighbors, nearest_neighbors
from labelnoise.solvers import SOLVERS, solve

Progress = Callable[[str, int, int], None]

_PAPER_SAMPLE = 15_000
_OVERLAP_OF_ROUNDS = 3.0  # each example is in three triples of a round, on average
_FORMAT = "labelnoise estimate"
_LARGEST_PRINTED = 12


class HOC(BaseEstimator):
    """Estimate the noise transition matrix of a labelled data set, without clean labels.

    Near neighbours mostly share their true class, so the labels that an example and its two
    nearest neighbours carry are three looks at one class. HOC (High-Order Consensus) counts
    which triples of labels occur and finds the one T that explains them.

    Parameters
    ----------
    solver : {"likelihood", "moments", "paper"}, default="likelihood"
        How T is found from the triples. See `labelnoise.solvers.solve`.
    n_neighbors : int, default=2
        With more than 2, all pairs among an example's neighbours form a triple with it: less
        variance under heavy noise, and a little more bias, as further neighbours differ more.
    metric : {"cosine", "euclidean"}, default="cosine"
        Which examples are near. Zero vectors have no cosine and are left out.
    n_rounds, sample_size : int, optional
        Count as the paper does, in `n_rounds` random samples of `sample_size` examples with
        neighbours inside the sample. By default all examples are used once.
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
    diagnostics_ : Diagnostics
        What the estimate stands on: print it.
    consensus_ : Consensus
        The label triples that were counted.

    Notes
    -----
    The model is ``P(a, b, c) = sum_i p[i] T[i, a] T[i, b] T[i, c]``. With T non-singular and
    each row's maximum on its diagonal, T is unique (Theorem 1 of Zhu, Song and Liu,
    "Clusterability as an Alternative to Anchor Points When Learning with Noisy Labels", 2021).

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

    def __init__(
        self,
        *,
        solver: str = "likelihood",
        n_neighbors: int = 2,
        metric: str = "cosine",
        n_rounds: int | None = None,
        sample_size: int | None = None,
        classes: Sequence[Any] | np.ndarray | None = None,
        unlabeled: Any = None,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.solver = solver
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.n_rounds = n_rounds
        self.sample_size = sample_size
        self.classes = classes
        self.unlabeled = unlabeled
        self.random_state = random_state

    @classmethod
    def paper(cls, *, n_rounds: int = 50, sample_size: int = _PAPER_SAMPLE, **settings: Any) -> HOC:
        """Give the paper's procedure: G rounds of \\|E\\| samples, the norms, Adam.

        As in the paper's public code, neighbours are found inside each sample.
        """
        return cls(solver="paper", n_rounds=n_rounds, sample_size=sample_size, **settings)

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        neighbors: Any = None,
        center_weight: Any = None,
        progress: Progress | None = None,
    ) -> HOC:
        """Estimate T from representations and noisy labels.

        Parameters
        ----------
        X : array or data frame of shape (N, d), or None
            Representations. None if `neighbors` is given.
        y : array of shape (N,)
            Noisy labels: numbers or strings. None and NaN are unlabelled, and such examples
            are left out.
        neighbors : int array of shape (N, k) or sparse array of shape (N, N), optional
            Neighbours found elsewhere: row numbers, nearest first, or a graph of distances.
        center_weight : array of shape (N,), optional
            How much each example counts as the centre of a triple. 0: only as a neighbour.
        progress : callable, optional
            Called as ``progress(stage, done, total)``; the stages are "neighbors" (or
            "counting", with `n_rounds`) and "solving".

        Returns
        -------
        HOC
            Itself.
        """
        self._check_settings()
        if X is None and neighbors is None:
            raise LabelNoiseError("Expected X or neighbors, but both are None")
        if self.n_rounds is not None and (neighbors is not None or center_weight is not None):
            raise LabelNoiseError(
                "Expected neighbors and center_weight to be None with n_rounds, which finds its "
                "own neighbours in each round, but one of them was given"
            )
        X, labels, classes = self._read(X, y)
        n, K = len(labels), len(classes)
        stage = _stages(progress)
        rows, notes = np.arange(n), list[Finding]()
        if neighbors is None:
            rows, notes = self._usable_rows(X, labels)
            labels = labels[rows]
            X = X if len(rows) == n else X[rows]
        notes.append(check_duplicates(X, labels))

        if self.n_rounds is not None:
            indices = None
            consensus = Consensus.from_rounds(
                X,
                labels,
                K,
                n_rounds=self.n_rounds,
                sample_size=self.sample_size or _PAPER_SAMPLE,
                metric=self.metric,
                random_state=self.random_state,
                progress=stage("counting"),
            )
        else:
            if neighbors is not None:
                found = given_neighbors(neighbors, n, self.n_neighbors, labels >= 0)
            else:
                found = nearest_neighbors(
                    X, self.n_neighbors, self.metric, progress=stage("neighbors")
                )
            indices = found.indices
            weight = None if center_weight is None else _checked_weight(center_weight, n)[rows]
            consensus = Consensus.from_neighbors(labels, indices, K, center_weight=weight)
        solving = stage("solving")
        if solving:
            solving(0, 1)
        self._solve(consensus, classes, notes, labels, indices)
        if solving:
            solving(1, 1)
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
        return self

    def _check_settings(self) -> None:
        for name, value, allowed in (
            ("solver", self.solver, SOLVERS),
            ("metric", self.metric, METRICS),
        ):
            if value not in allowed:
                raise LabelNoiseError(
                    f"Expected {name} to be one of {allowed}, but {name} = {value!r}"
                )
        for name, least in (("n_neighbors", 2), ("n_rounds", 1), ("sample_size", 3)):
            value = getattr(self, name)
            if value is None and name != "n_neighbors":
                continue
            if not (isinstance(value, int | np.integer) and value >= least):
                raise LabelNoiseError(
                    f"Expected {name} to be a whole number >= {least}, but {name} = {value!r}"
                )
        if self.n_rounds is None and self.sample_size is not None:
            raise LabelNoiseError(
                f"Expected n_rounds with sample_size, but n_rounds = None, sample_size = "
                f"{self.sample_size}"
            )
        if self.n_rounds is not None and self.n_neighbors != 2:
            raise LabelNoiseError(
                f"Expected n_neighbors = 2 with n_rounds, but n_neighbors = {self.n_neighbors}"
            )

    def _read(self, X: Any, y: Any) -> tuple[Any, np.ndarray, np.ndarray]:
        """Features (or None), class numbers, classes."""
        if X is not None:
            X = self._checked(X)
        labels, classes = encode_labels(y, self.classes, self.unlabeled)
        n = len(labels)
        if X is not None and len(X) != n:
            raise LabelNoiseError(
                f"Expected as many labels as rows of X, but X has {len(X)} rows and y {n} "
                f"labels: inconsistent numbers of samples"
            )
        if n < 3:
            raise LabelNoiseError(f"Expected at least 3 examples, but n_samples = {n}")
        occurring = np.unique(labels[labels >= 0])
        if len(occurring) < 2:
            raise LabelNoiseError(
                f"Expected at least two classes in y, but the number of classes is "
                f"{len(occurring)}: {classes[occurring].tolist()}"
            )
        return X, labels, classes

    def _checked(self, X: Any) -> np.ndarray:
        if sp.issparse(X):
            raise LabelNoiseError("Expected a dense X, but it is sparse: use X.toarray()")
        try:
            X = validate_data(self, X, dtype="numeric", ensure_all_finite=False)
        except ValueError as error:
            raise LabelNoiseError(str(error)) from error
        if X.dtype.kind not in "fiub":
            raise LabelNoiseError(f"Expected features to be numbers, but their type is {X.dtype}")
        if len(X) < 3:
            raise LabelNoiseError(f"Expected at least 3 examples, but n_samples = {len(X)}")
        if X.dtype.kind == "f":
            finite = np.isfinite(X)
            if not finite.all():
                row, column = np.argwhere(~finite)[0]
                raise LabelNoiseError(
                    f"Expected finite features, but X contains NaN or infinity: row {row}, "
                    f"column {column} is {X[row, column]} ({(~finite).sum()} such values in "
                    f"{(~finite).any(axis=1).sum()} rows). Fill them in or drop those rows"
                )
        return X

    def _usable_rows(self, X: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, list[Finding]]:
        """Rows that take part, and what to say of those that do not."""
        usable = labels >= 0
        notes = []
        if self.metric == "cosine":
            zero = ~X.any(axis=1)
            if zero.any():
                usable &= ~zero
                notes.append(
                    Finding(
                        "zero vectors",
                        False,
                        float(zero.mean()),
                        f"{zero.sum()} examples are zero vectors, which have no direction and "
                        f"so no nearest neighbour by cosine: they were left out. Use "
                        f"metric='euclidean', or see why the encoder gives zeros.",
                    )
                )
        rows = np.flatnonzero(usable)
        if self.n_neighbors >= len(rows):
            raise LabelNoiseError(
                f"Expected n_neighbors < the number of labelled examples, but n_neighbors = "
                f"{self.n_neighbors}, and there are {len(rows)}"
            )
        return rows, notes

    def _solve(
        self,
        consensus: Consensus,
        classes: np.ndarray,
        notes: list[Finding],
        labels: np.ndarray | None = None,
        neighbors: np.ndarray | None = None,
    ) -> None:
        """Solve, and check the result; triples overlap as neighbours tell, where known."""
        solution = solve(consensus, self.solver, random_state=self.random_state)
        T, p = solution.transition_matrix, solution.class_prior
        if labels is None:
            overlap = 1.0
        elif neighbors is None:
            overlap = _OVERLAP_OF_ROUNDS
        else:
            overlap = overlap_of(neighbors, labels, T, p)
        fit = check_fit(consensus, solution, self.solver, overlap)
        self.classes_, self.consensus_ = classes, consensus
        self.transition_matrix_, self.class_prior_ = T, p
        self.diagnostics_ = Diagnostics(
            (*check_solution(consensus, solution, classes), fit, *notes)
        )
        for finding in self.diagnostics_:
            if not finding.ok:
                warnings.warn(finding.sentence, LabelNoiseWarning, stacklevel=3)

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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the estimate to a JSON file; `load` reads it. The counted triples are not in it.

        (They have a file of their own: ``est.consensus_.save(path)``.)
        """
        check_is_fitted(self, "transition_matrix_")
        settings = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in self.get_params().items()
        }
        settings["classes"] = None if self.classes is None else class_names(self.classes).tolist()
        if not isinstance(settings["random_state"], int):
            settings["random_state"] = None
        content = {
            "format": _FORMAT,
            "version": 1,
            "written_by": f"labelnoise {labelnoise.__version__}",
            "settings": settings,
            "classes": self.classes_.tolist(),
            "noise_rate": self.noise_rate_,
            "class_prior": self.class_prior_.tolist(),
            "transition_matrix": self.transition_matrix_.tolist(),
            "n_features_in": getattr(self, "n_features_in_", None),
            "diagnostics": [vars(finding) for finding in self.diagnostics_],
        }
        with write_then_rename(path) as file:
            file.write(json.dumps(content, indent=1, allow_nan=False).encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> HOC:
        """Read an estimate that `save` wrote."""
        try:
            content = json.loads(Path(path).read_text("utf-8"))
            if content["format"] != _FORMAT or content["version"] != 1:
                raise ValueError(f"its format is {content['format']!r}, {content['version']!r}")
            est = cls(**content["settings"])
            est.classes_ = np.array(content["classes"])
            est.class_prior_ = np.array(content["class_prior"], float)
            est.transition_matrix_ = np.array(content["transition_matrix"], float)
            est.diagnostics_ = Diagnostics(tuple(Finding(**f) for f in content["diagnostics"]))
            if content["n_features_in"] is not None:
                est.n_features_in_ = int(content["n_features_in"])
            K = len(est.classes_)
            rows = est.transition_matrix_.sum(axis=1)
            if est.transition_matrix_.shape != (K, K) or est.class_prior_.shape != (K,):
                raise ValueError("the sizes of T, p and classes differ")
            if not np.allclose(rows, 1) or not np.isclose(est.class_prior_.sum(), 1):
                raise ValueError("T's rows or p do not sum to 1")
            if est.transition_matrix_.min() < 0 or est.class_prior_.min() < 0:
                raise ValueError("T or p is negative")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LabelNoiseError(
                f"Expected an estimate written by HOC.save, but {path} cannot be read as one: "
                f"{error}"
            ) from error
        return est

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.single_output = True
        return tags


def _stages(progress: Progress | None) -> Callable[[str], Callable[[int, int], None] | None]:
    """Name the stage of each call of `progress`."""

    def stage(name: str) -> Callable[[int, int], None] | None:
        return None if progress is None else lambda done, total: progress(name, done, total)

    return stage


def _checked_weight(center_weight: Any, n: int) -> np.ndarray:
    weight = np.asarray(center_weight, float)
    if weight.shape != (n,):
        raise LabelNoiseError(
            f"Expected one center_weight for each example, but its shape is {weight.shape} and "
            f"there are {n} examples"
        )
    return weight


def _summary(est: HOC) -> str:
    T, classes = est.transition_matrix_, [str(name) for name in est.classes_]
    K = len(classes)
    lines = [
        f"{est.noise_rate_:.1%} of the labels are wrong, by an estimate from label triples around "
        f"{est.consensus_.n_centers:,} examples in {K} classes."
        if hasattr(est, "consensus_")
        else f"{est.noise_rate_:.1%} of the labels are wrong, by an estimate for {K} classes."
    ]
    confusions = est.joint_ - np.diag(np.diag(est.joint_))
    largest = np.argsort(-confusions, axis=None)[:5]
    sentences = [
        f"  {T[i, j]:.1%} of true {classes[i]} are labelled {classes[j]}"
        for i, j in zip(*np.unravel_index(largest, T.shape), strict=True)
        if i != j and T[i, j] >= 0.0005
    ]
    if sentences:
        lines += ["Most frequent confusions:", *sentences]
    if K <= _LARGEST_PRINTED:
        width = max(5, *(len(name) for name in classes))
        lines.append("Transition matrix, in percent (rows: true class, columns: label):")
        lines.append(" " * (width + 2) + " ".join(f"{name:>{width}}" for name in classes))
        for name, row in zip(classes, T, strict=True):
            lines.append(f"  {name:>{width}}" + "".join(f" {100 * v:>{width}.1f}" for v in row))
    lines.append(str(est.diagnostics_))
    return "\n".join(lines)
