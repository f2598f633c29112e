"""Several people's labels for each example: T without features, one for all or one for each.

The labels that an example was given are looks at one true class, as those of near neighbours
are in `HOC`, but here the class is surely the same. The triples of an example's labels go
through the same consensus and solver; from there the likelihood of all labels is maximised.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment, minimize_scalar
from scipy.sparse.csgraph import connected_components
from scipy.special import gammaln, logsumexp
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from labelnoise._errors import LabelNoiseError, LabelNoiseWarning
from labelnoise._labels import encode_labels
from labelnoise.consensus import Consensus
from labelnoise.diagnostics import Diagnostics, Finding, check_solution
from labelnoise.neighbors import METRICS, given_neighbors, nearest_neighbors
from labelnoise.solvers import Solution, solve

_MOST_TRIPLES = 20  # of one example; all those of six labels. The triples only give the start
_START_STEPS = 100  # of EM from each start, before the best one is continued
_SHRINKAGE_ROUNDS = 2  # with more it drifted upwards at K=20 and three annotators, measured
_SMALLEST_CHANCE = 1e-12
_TOLERANCE = 1e-6  # largest change of a parameter in a step of EM at which it stops
_FEW_EXAMPLES = 30
_FEW_LABELS_PER_CLASS = 10
_MANY_DEVIATIONS = 4  # a chance of 1 in 16,000; some two hundred pairs of annotators are tested
_NOTABLE_SHARE = 0.02  # departures below it do not move T enough to warn of them
_MOST_COMPARED = 20  # annotators whose pairs are tested


class AnnotatorHOC(BaseEstimator):
    """Estimate noise transition matrices from several annotators' labels, without features.

    Parameters
    ----------
    per_annotator : bool, default=False
        False: one T for all annotators. True: one for each, for which each needs many labels
        (or is shrunk towards the others, see `shrinkage`).
    shrinkage : "auto" or float, default="auto"
        With `per_annotator`: how many labels of each true class the annotators' common matrix
        counts for in the matrix of each. "auto" estimates it from how much annotators differ,
        so that matrices that hardly differ become nearly equal. 0 is maximum likelihood.
    metric : {"cosine", "euclidean"}, default="cosine"
        Which examples are near, where `fit` is given X.
    classes : list of labels, optional
        All classes, in the order that T's rows shall have, if some labels may not occur.
    unlabeled : label, optional
        A label that stands for "not labelled", such as -1. None and NaN always do.
    max_iter : int, default=2000
        Most steps of expectation-maximisation.

    Attributes
    ----------
    transition_matrix_ : array of shape (K, K)
        ``T[i, j]`` is the chance that a true i is labelled j. With `per_annotator` it is that
        of a label picked at random: the annotators' matrices, averaged by their labels.
    transition_matrices_ : array of shape (A, K, K)
        Each annotator's T; A times the same without `per_annotator`.
    class_prior_ : array of shape (K,)
        Estimated share of each true class.
    noise_rate_ : float
        Estimated share of wrong labels.
    noise_rates_ : array of shape (A,)
        Estimated share of wrong labels of each annotator. With one T for all, the mean of
        P(wrong) over the labels that the annotator gave.
    neighbor_matrix_ : array of shape (K, K) or None
        Where neighbours completed the triples: chance that an example of true class i has a
        neighbour labelled j.
    classes_ : array of shape (K,)
        Labels in the order of the rows.
    annotators_ : array of shape (A,)
        Names of the columns of a data frame, else 0 to A - 1.
    shrinkage_ : float
        The strength of the shrinkage that was used.
    consensus_ : Consensus
        The label triples that gave the start.
    posterior_ : array of shape (N, K)
        P(true class | its labels) of each example, a neighbour's label included where used.
    diagnostics_ : Diagnostics
        What the estimate stands on: print it.

    Notes
    -----
    The model is ``P(l_1, ..., l_A) = sum_i p[i] prod_a T_a[i, l_a]`` over the annotators a that
    labelled the example: given the true class, annotators err independently. With `T_a` for
    each annotator it is the model of Dawid and Skene (1979). Three labels of an example identify
    it if the matrices are non-singular (Kruskal), two do not: ``sum_i p_i T_a[i]' T_b[i]`` has
    many solutions. With fewer than three labels, a label of the nearest neighbour serves as the
    third. It has a matrix of its own, so that neighbours need not share their class: it is
    enough that, given the example's class, their labels are independent of its own.

    Where annotators are weak or know different classes the likelihood has several optima. Two
    starts are tried, T from the triples of labels by the solver of `HOC` and the matrices that
    follow from a majority vote, and the one that leads higher is taken.

    Examples
    --------
    >>> import numpy as np
    >>> from labelnoise.annotators import AnnotatorHOC
    >>> from labelnoise.noise import symmetric
    >>> truth = np.random.default_rng(0).integers(0, 3, 2000)
    >>> rates = [0.1, 0.2, 0.4]
    >>> each = [symmetric(truth, rate, random_state=a).labels for a, rate in enumerate(rates)]
    >>> labels = np.column_stack(each)
    >>> est = AnnotatorHOC(per_annotator=True).fit(labels)
    >>> est.noise_rates_.round(1)
    array([0.1, 0.2, 0.4])
    >>> bool((est.predict(labels) == truth).mean() > 0.9)
    True
    """

    def __init__(
        self,
        *,
        per_annotator: bool = False,
        shrinkage: float | str = "auto",
        metric: str = "cosine",
        classes: Sequence[Any] | np.ndarray | None = None,
        unlabeled: Any = None,
        max_iter: int = 2000,
    ) -> None:
        self.per_annotator = per_annotator
        self.shrinkage = shrinkage
        self.metric = metric
        self.classes = classes
        self.unlabeled = unlabeled
        self.max_iter = max_iter

    def fit(self, labels: Any, *, X: Any = None, neighbors: Any = None) -> AnnotatorHOC:
        """Estimate from a table of labels.

        Parameters
        ----------
        labels : array or data frame of shape (N, A)
            The label of each example (row) by each annotator (column): numbers or strings.
            None and NaN are missing.
        X : array of shape (N, d), optional
            Representations, with which examples that have only one or two labels are given
            one of their nearest neighbour's.
        neighbors : int array of shape (N, k) or sparse array of shape (N, N), optional
            The same with neighbours found elsewhere; the first of each row is used.

        Returns
        -------
        AnnotatorHOC
            Itself.
        """
        self._check_settings()
        given, self.classes_, self.annotators_ = _encode(labels, self.classes, self.unlabeled)
        occurring = np.unique(given[given >= 0])
        if len(occurring) < 2:
            raise LabelNoiseError(
                f"Expected at least two classes among the labels, but the number of classes is "
                f"{len(occurring)}: {self.classes_[occurring].tolist()}"
            )
        # Classes whose label never occurs take no part, and come back at the end.
        number = np.full(len(self.classes_) + 1, -1)
        number[occurring] = np.arange(len(occurring))
        views = number[given]
        if X is not None or neighbors is not None:
            views = np.column_stack([views, self._neighbor_view(views, X, neighbors)])
        self._expect_triples(views)
        self._solve(views, occurring)
        for finding in self.diagnostics_:
            if not finding.ok:
                warnings.warn(finding.sentence, LabelNoiseWarning, stacklevel=2)
        return self

    def predict_proba(self, labels: Any = None) -> np.ndarray:
        """Give P(true class | the example's labels), of shape (N, K).

        Parameters
        ----------
        labels : array or data frame of shape (N, A), optional
            Labels as in `fit`, by the same annotators in the same order (by any, with one T for
            all). By default the examples of `fit`, with their neighbours' labels where those
            were used. An example without labels has the class prior.
        """
        check_is_fitted(self)
        if labels is None:
            return self.posterior_.copy()
        given, _, _ = _encode(labels, self.classes_, self.unlabeled)
        group = np.zeros(given.shape[1], int)
        matrices = self.transition_matrix_[None]
        if self.per_annotator:
            if given.shape[1] != len(self.annotators_):
                raise LabelNoiseError(
                    f"Expected labels of the {len(self.annotators_)} annotators of fit, but "
                    f"labels has shape {given.shape}"
                )
            group, matrices = np.arange(given.shape[1]), self.transition_matrices_
        model = _LatentClasses(given, group, len(self.classes_))
        return model.posterior(matrices, self.class_prior_)[0][model.row]

    def predict(self, labels: Any = None) -> np.ndarray:
        """Give the most probable true class of each example, (N,); `labels` as above."""
        return self.classes_[self.predict_proba(labels).argmax(axis=1)]

    @property
    def noise_rate_(self) -> float:
        """Estimated share of wrong labels."""
        check_is_fitted(self)
        return float(1 - self.class_prior_ @ np.diag(self.transition_matrix_))

    def _check_settings(self) -> None:
        if self.metric not in METRICS:
            raise LabelNoiseError(
                f"Expected metric to be one of {METRICS}, but metric = {self.metric!r}"
            )
        number = isinstance(self.shrinkage, int | float | np.number)
        if self.shrinkage != "auto" and not (number and 0 <= float(self.shrinkage) < np.inf):
            raise LabelNoiseError(
                f'Expected shrinkage to be "auto" or a number >= 0, but shrinkage = '
                f"{self.shrinkage!r}"
            )
        if not (isinstance(self.max_iter, int | np.integer) and self.max_iter >= 1):
            raise LabelNoiseError(
                f"Expected max_iter to be a whole number >= 1, but max_iter = {self.max_iter!r}"
            )

    def _neighbor_view(self, views: np.ndarray, X: Any, neighbors: Any) -> np.ndarray:
        """(N,) a label of the nearest labelled neighbour of examples with one or two labels."""
        n, count = len(views), (views >= 0).sum(axis=1)
        nearest = np.full(n, -1)
        if neighbors is not None:
            nearest = given_neighbors(neighbors, n, 1).indices[:, 0]
        else:
            try:
                X = check_array(X, dtype="numeric")
            except ValueError as error:
                raise LabelNoiseError(str(error)) from error
            if len(X) != n:
                raise LabelNoiseError(
                    f"Expected as many rows of labels as of X, but X has {len(X)} rows and "
                    f"labels {n}"
                )
            usable = count > 0
            if self.metric == "cosine":
                usable &= X.any(axis=1)  # a zero vector has no direction
            rows = np.flatnonzero(usable)
            if len(rows) > 1:
                nearest[rows] = rows[nearest_neighbors(X[rows], 1, self.metric).indices[:, 0]]
        short = np.flatnonzero((count > 0) & (count < 3) & (nearest >= 0) & (count[nearest] > 0))
        # One label only: a neighbour of another class gives several that are wrong together. Its
        # annotators take turns.
        around = views[nearest[short]]
        turn = 1 + short % count[nearest[short]]
        chosen = (np.cumsum(around >= 0, axis=1) == turn[:, None]).argmax(axis=1)
        result = np.full(n, -1)
        result[short] = around[np.arange(len(short)), chosen]
        return result

    def _expect_triples(self, views: np.ndarray) -> None:
        A = len(self.annotators_)
        if ((views >= 0).sum(axis=1) >= 3).any():
            return
        most = int((views[:, :A] >= 0).sum(axis=1).max())
        if most == 1:
            remedy = "or use HOC, which estimates T from one label and those of two neighbours"
        elif views.shape[1] > A:
            remedy = "as no example that has two has a labelled neighbour to complete the triple"
        else:
            remedy = "or give X or neighbors, so that a neighbour's label completes the triple"
        raise LabelNoiseError(
            f"Expected at least three labels of some examples, but none has more than {most}, and "
            f"two labels do not identify T: collect more labels, {remedy}"
        )

    def _solve(self, views: np.ndarray, occurring: np.ndarray) -> None:
        K, A = len(occurring), len(self.annotators_)
        own = views[:, :A]
        completed = views.shape[1] > A and bool((views[:, A] >= 0).any())
        if not completed:
            views = own
        group = np.arange(A) if self.per_annotator else np.zeros(A, int)
        if completed:
            group = np.append(group, group[-1] + 1)
        model = _LatentClasses(views, group, K)
        shrunk = np.zeros((model.n_groups, 1, 1))
        if self.per_annotator:
            shrunk[:A] = 1.0

        consensus = label_triples(views, K)
        solution = solve(consensus)
        fit = self._maximum(model, shrunk, solution)
        posterior = model.posterior(fit.matrices, fit.prior)[0]
        counts = model.counts(posterior)[: A if self.per_annotator else 1]
        pooled = fit.matrices[0]
        if self.per_annotator:
            pooled = _rows(counts.sum(axis=0), np.eye(K))
        labels_per_group = counts.sum(axis=(1, 2))

        # The model does not know which class is which: the common matrix decides.
        order = _class_order(pooled, fit.prior)
        ordered, prior, matrices = pooled[order], fit.prior[order], fit.matrices[:, order]
        posterior = posterior[model.row][:, order]
        solution = replace(
            solution,
            transition_matrix=ordered,
            class_prior=prior,
            converged=fit.converged,
            steps=fit.steps,
            start=fit.start,
        )
        own_matrices = matrices[group[:A]]
        rates = 1 - np.einsum("i,aii->a", prior, own_matrices)
        if not self.per_annotator:
            rates = _expected_wrong(own, posterior, float(rates[0]))

        size = len(self.classes_)

        def whole(inner: np.ndarray) -> np.ndarray:
            result = np.broadcast_to(np.eye(size), (*inner.shape[:-2], size, size)).copy()
            result[..., occurring[:, None], occurring] = inner
            return result

        self.transition_matrix_ = whole(ordered)
        self.transition_matrices_ = whole(own_matrices)
        self.neighbor_matrix_ = whole(matrices[-1]) if completed else None
        self.class_prior_ = np.zeros(size)
        self.class_prior_[occurring] = prior
        self.posterior_ = np.zeros((len(views), size))
        self.posterior_[:, occurring] = posterior
        self.noise_rates_ = rates
        self.shrinkage_ = float(shrunk[0, 0, 0])
        self.consensus_ = consensus
        names = self.annotators_
        findings = check_solution(consensus, solution, self.classes_[occurring])
        findings.append(_check_classes(self.classes_, occurring))
        findings.append(_check_triples(views, consensus.n_centers, completed))
        if completed:
            findings.append(_check_neighbors(views[:, A], matrices[-1], ordered, prior))
        if self.per_annotator:
            findings.append(_check_overlap(views, names))
            findings.append(_check_counts(own, labels_per_group, K, self.shrinkage_, names))
        else:
            findings.append(_check_one_matrix(own, posterior, ordered, names))
        findings.append(_check_independence(own, posterior, own_matrices, names))
        self.diagnostics_ = Diagnostics(tuple(findings))

    def _maximum(self, model: _LatentClasses, shrunk: np.ndarray, solution: Solution) -> _Fit:
        """The best of the starts, continued; `shrunk` is set to the strength it ends with."""
        T, p = solution.transition_matrix, solution.class_prior
        if self.per_annotator and self.shrinkage != "auto":
            shrunk *= float(self.shrinkage)
        starts = [
            model.start(np.repeat(T[None], model.n_groups, axis=0), p, "triples"),
            model.vote(),
        ]
        tried = [model.em(start, shrunk, min(_START_STEPS, self.max_iter)) for start in starts]
        fit = max(tried, key=lambda one: one.objective)
        fit = model.em(fit, shrunk, self.max_iter)
        if self.per_annotator and self.shrinkage == "auto":
            for _ in range(_SHRINKAGE_ROUNDS):
                counts = model.drawn_counts(fit.matrices, fit.prior)
                strength = _strength(counts[shrunk[:, 0, 0] > 0])
                shrunk[shrunk > 0] = strength
                fit = model.em(fit, shrunk, self.max_iter)
        return fit


def label_triples(views: np.ndarray, K: int) -> Consensus:
    """Count the triples among each example's labels, (N, A) class numbers, -1 where missing.

    Each example with three labels or more weighs 1, whatever the number of its triples. Of more
    than 20 triples, 20 are drawn.
    """
    rng = np.random.default_rng(0)
    count = (views >= 0).sum(axis=1)
    present_first = np.argsort(views < 0, axis=1, kind="stable")
    result = Consensus(np.empty((0, 3), np.int32), np.empty(0), K, 0)
    for m in np.unique(count[count >= 3]).tolist():
        rows = np.flatnonzero(count == m)
        labels = np.take_along_axis(views[rows], present_first[rows, :m], 1)
        if m * (m - 1) * (m - 2) // 6 <= _MOST_TRIPLES:
            members = list(combinations(range(m), 3))
        else:
            members = [tuple(rng.choice(m, 3, replace=False)) for _ in range(_MOST_TRIPLES)]
        for triple in members:
            counted = Consensus.from_labels(labels[:, list(triple)], K)
            result += Consensus(counted.triples, counted.weights / len(members), K, 0)
        result = replace(result, n_centers=result.n_centers + len(rows))
    return result


@dataclass(frozen=True)
class _Fit:
    """One point that EM reached."""

    matrices: np.ndarray
    """(G, K, K), one for each group of annotators, rows clean."""
    prior: np.ndarray
    start: str
    objective: float = -np.inf
    steps: int = 0
    converged: bool = False


class _LatentClasses:
    """The likelihood of all labels, with a matrix for each group of columns.

    Examples with equal labels are kept once: three labels of ten classes are at most 1000
    different rows. A row counts how often each (group, label) occurs, so that the
    log-likelihoods of the classes are one sparse product and an M-step another.
    """

    def __init__(self, views: np.ndarray, group: np.ndarray, K: int) -> None:
        self.K = K
        self.n_groups = int(group.max()) + 1
        row, column = np.nonzero(views >= 0)
        place = group[column] * K + views[row, column]
        shape = (len(views), self.n_groups * K)
        labels = sp.csr_array((np.ones(len(row)), (row, place)), shape)
        labels.sum_duplicates()
        # Equal rows have equal products with a random vector, and others surely have not.
        key = labels @ np.random.default_rng(0).random(shape[1])
        _, first, self.row, weight = np.unique(
            key, return_index=True, return_inverse=True, return_counts=True
        )
        self.labels = sp.csr_array(labels[first])
        self.transposed = sp.csr_array(self.labels.T)
        # Who has no label says nothing, of the prior either.
        self.weight = np.where(np.diff(self.labels.indptr) > 0, weight, 0).astype(float)

    def posterior(self, matrices: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, float]:
        """(U, K) P(class | labels) of each distinct row, and the log-likelihood of all."""
        logs = np.log(np.maximum(matrices, _SMALLEST_CHANCE)).transpose(0, 2, 1)
        joint = self.labels @ logs.reshape(-1, self.K) + np.log(np.maximum(prior, 1e-300))
        total = logsumexp(joint, axis=1)
        return np.exp(joint - total[:, None]), float(self.weight @ total)

    def counts(self, posterior: np.ndarray) -> np.ndarray:
        """(G, K, K) how many labels (columns) each group gave to each class (rows)."""
        return self._by_group(self.transposed @ (posterior * self.weight[:, None]))

    def drawn_counts(self, matrices: np.ndarray, prior: np.ndarray) -> np.ndarray:
        """`counts` with a class drawn for each example.

        Expected counts vary less between annotators than counts do: judged by them, annotators
        differ too little, are drawn together, and differ less still.
        """
        rng = np.random.default_rng(0)
        posterior, _ = self.posterior(matrices, prior)
        drawn = rng.multinomial(self.weight.astype(int), posterior)
        return self._by_group(self.transposed @ drawn.astype(float))

    def _by_group(self, counts: np.ndarray) -> np.ndarray:
        return counts.reshape(self.n_groups, self.K, self.K).transpose(0, 2, 1)

    def start(self, matrices: np.ndarray, prior: np.ndarray, name: str) -> _Fit:
        """A start off the boundary, which EM never leaves."""
        matrices, prior = 0.99 * matrices + 0.01 / self.K, 0.99 * prior + 0.01 / self.K
        return _Fit(matrices, prior, name)

    def vote(self) -> _Fit:
        """The start of Dawid and Skene: each example is what its labels say, in their shares."""
        votes = self.labels @ np.tile(np.eye(self.K), (self.n_groups, 1))
        share = votes / np.maximum(votes.sum(axis=1, keepdims=True), 1)
        counts = self.counts(share)
        common = _rows(counts.sum(axis=0), np.eye(self.K))
        prior = self.weight @ share / self.weight.sum()
        return self.start(_rows(counts + common, common), prior, "vote")

    def em(self, fit: _Fit, shrunk: np.ndarray, steps: int) -> _Fit:
        """Expectation-maximisation, the rows of a group drawn to the common ones.

        `shrunk` (G, 1, 1) is how many labels of each class the common matrix counts for. It is
        that of the groups for which this is not 0, and moves with them.
        """
        matrices, prior = fit.matrices, fit.prior
        some = shrunk[:, 0, 0] > 0
        done, change = 0, np.inf
        while done < steps and change > _TOLERANCE:
            posterior, _ = self.posterior(matrices, prior)
            counts = self.counts(posterior)
            common = _rows(counts[some].sum(axis=0), matrices[0])
            updated = _rows(counts + shrunk * common, matrices)
            share = self.weight @ posterior / self.weight.sum()
            change = max(np.abs(updated - matrices).max(), np.abs(share - prior).max())
            matrices, prior = updated, share
            done += 1
        posterior, objective = self.posterior(matrices, prior)
        if some.any():
            common = _rows(self.counts(posterior)[some].sum(axis=0), matrices[0])
            logs = np.log(np.maximum(matrices, _SMALLEST_CHANCE))
            objective += float((shrunk * common * logs).sum())
        return _Fit(
            matrices, prior, fit.start, objective, fit.steps + done, bool(change <= _TOLERANCE)
        )


def _class_order(T: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Which row is which class, by the rows' maxima where they differ: see `solve`."""
    label = T.argmax(axis=1)
    if len(set(label.tolist())) < len(T):
        _, label = linear_sum_assignment(prior[:, None] * T, maximize=True)
    return np.argsort(label)


def _rows(counts: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Rows that sum to 1; those without counts are taken from `otherwise`."""
    total = counts.sum(axis=-1, keepdims=True)
    return np.where(total > 0, counts / np.where(total > 0, total, 1), otherwise)


def _strength(counts: np.ndarray) -> float:
    """How many labels the common rows are worth, by how much the annotators' rows differ.

    Maximises the likelihood of the counts (A, K, K) when each annotator's row is drawn from a
    Dirichlet distribution around the common one (empirical Bayes).
    """
    common = _rows(counts.sum(axis=0), np.eye(counts.shape[1]))
    common = 0.999 * common + 0.001 / len(common)
    total = counts.sum(axis=2)

    def cost(log_strength: float) -> float:
        s = np.exp(log_strength)
        rows = gammaln(s) - gammaln(s + total)
        cells = gammaln(s * common + counts) - gammaln(s * common)
        return -float(rows.sum() + cells.sum())

    return float(np.exp(minimize_scalar(cost, bounds=(np.log(0.1), np.log(1e5))).x))


def _encode(labels: Any, classes: Any, unlabeled: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Class numbers (N, A), -1 where missing, the classes, and the annotators' names."""
    # A list of strings with a NaN among them would become the string "nan".
    table = np.asarray(labels) if hasattr(labels, "__array__") else np.array(labels, dtype=object)
    if table.ndim != 2 or 0 in table.shape:
        raise LabelNoiseError(
            f"Expected labels of shape (n_examples, n_annotators), a row for each example and "
            f"None or NaN where one is missing, but labels has shape {table.shape}"
        )
    columns = getattr(labels, "columns", None)
    names = np.arange(table.shape[1]) if columns is None else np.asarray(list(columns))
    codes, classes = encode_labels(table.ravel(), classes, unlabeled)
    return codes.reshape(table.shape), classes, names


def _expected_wrong(own: np.ndarray, posterior: np.ndarray, otherwise: float) -> np.ndarray:
    """(A,) mean of P(wrong) over each annotator's labels."""
    result = np.full(own.shape[1], otherwise)
    for a, labels in enumerate(own.T):
        rows = np.flatnonzero(labels >= 0)
        if len(rows):
            result[a] = 1 - posterior[rows, labels[rows]].mean()
    return result


def _check_classes(classes: np.ndarray, occurring: np.ndarray) -> Finding:
    absent = [str(name) for name in np.delete(classes, occurring)]
    if not absent:
        return Finding("all classes", True, 0.0, "Every class occurs among the labels.")
    return Finding(
        "all classes",
        False,
        float(len(absent)),
        f"The label {_some(absent)} never occurs, so nothing can be said of its row, which is set "
        f"to that of the identity, with a prior of 0.",
    )


def _check_triples(views: np.ndarray, n: int, completed: bool) -> Finding:
    """Whether enough examples have the three labels that identify T."""
    labelled = int((views >= 0).any(axis=1).sum())
    few = n < _FEW_EXAMPLES
    whose = " with their neighbour's" if completed else ""
    return Finding(
        "triples",
        not few,
        float(n),
        f"{n:,} of {labelled:,} labelled examples have at least three labels"
        f"{whose}, which is what identifies T"
        + (
            ": they are too few, and T is hardly more than a guess. Collect a third label for "
            "more examples, or give X."
            if few
            else "."
        ),
    )


def _check_neighbors(
    view: np.ndarray, matrix: np.ndarray, T: np.ndarray, prior: np.ndarray
) -> Finding:
    """How much worse a neighbour's label is than an own one."""
    own, near = float(prior @ np.diag(T)), float(prior @ np.diag(matrix))
    return Finding(
        "neighbours",
        True,
        near,
        f"{(view >= 0).sum():,} examples with fewer than three labels were given one of their "
        f"nearest neighbour's. It is right in {near:.1%}, an own label in {own:.1%}. That "
        f"neighbours are of another class does no harm, as they have a matrix of their own; that "
        f"examples which are hard to label have such neighbours makes T a little too good.",
    )


def _check_overlap(views: np.ndarray, names: np.ndarray) -> Finding:
    """Whether annotators are linked by examples that several of them labelled."""
    given = sp.csr_array((views >= 0).astype(float))
    _, part = connected_components(given.T @ given, directed=False)
    present = np.flatnonzero((views[:, : len(names)] >= 0).any(axis=0))
    sets, sizes = np.unique(part[present], return_counts=True)
    parts = len(sets)
    if parts == 1:
        return Finding(
            "overlap", True, 1.0, "Annotators are linked by examples that several labelled."
        )
    apart = present[part[present] != sets[sizes.argmax()]].tolist()
    named = _some([str(names[a]) for a in apart])
    return Finding(
        "overlap",
        False,
        float(parts),
        f"Annotators fall into {parts} sets that have no example in common. That the classes of "
        f"{named} are those of the others rests on their names and on the shrinkage alone: have "
        f"some examples labelled by both.",
    )


def _check_counts(
    own: np.ndarray, labels: np.ndarray, K: int, strength: float, names: np.ndarray
) -> Finding:
    """Which annotators gave too few labels to have a matrix of their own."""
    few = np.flatnonzero(labels < _FEW_LABELS_PER_CLASS * K - 0.5)
    if not len(few):
        return Finding(
            "annotators",
            True,
            float(labels.min()),
            f"Every annotator gave at least {labels.min():,.0f} labels. The common matrix counts "
            f"for {strength:,.1f} labels of each class beside each annotator's own.",
        )
    shown = [f"{names[a]} ({labels[a]:.0f})" for a in few.tolist()]
    return Finding(
        "annotators",
        False,
        float(labels.min()),
        f"{len(few)} of {own.shape[1]} annotators gave fewer than {_FEW_LABELS_PER_CLASS} labels "
        f"per class: {_some(shown)}. Their matrices are mostly the common one, which counts for "
        f"{strength:,.1f} labels of each class: do not judge them by it.",
    )


def _check_one_matrix(
    own: np.ndarray, posterior: np.ndarray, T: np.ndarray, names: np.ndarray
) -> Finding:
    """Whether annotators are wrong as often as one T for all expects of their examples."""
    worst, far, said = 0.0, False, ""
    for a, labels in enumerate(own.T):
        rows = np.flatnonzero(labels >= 0)
        if len(rows) < _FEW_EXAMPLES:
            continue
        wrong = 1 - posterior[rows, labels[rows]]
        expected = posterior[rows] @ (1 - np.diag(T))
        deviations = _deviations(wrong - expected)
        notable = abs(wrong.mean() - expected.mean()) > _NOTABLE_SHARE
        if notable and abs(deviations) > max(abs(worst), _MANY_DEVIATIONS):
            far = True
            said = f"{names[a]} is wrong in {wrong.mean():.1%}, expected {expected.mean():.1%}"
        worst = max(worst, deviations, key=abs)
    return Finding(
        "one matrix",
        not far,
        float(worst),
        f"One T for all does not describe the annotators: {said}. Use per_annotator=True."
        if far
        else "One T for all describes how often each annotator is wrong.",
    )


def _check_independence(
    own: np.ndarray, posterior: np.ndarray, matrices: np.ndarray, names: np.ndarray
) -> Finding:
    """Whether pairs of annotators agree as often as the model expects of their examples."""
    most = np.argsort(-(own >= 0).sum(axis=0), kind="stable")[:_MOST_COMPARED]
    worst, far, said, tested = 0.0, False, "", 0
    for a, b in combinations(sorted(most.tolist()), 2):
        rows = np.flatnonzero((own[:, a] >= 0) & (own[:, b] >= 0))
        if len(rows) < _FEW_EXAMPLES:
            continue
        tested += 1
        agree = own[rows, a] == own[rows, b]
        expected = posterior[rows] @ (matrices[a] * matrices[b]).sum(axis=1)
        deviations = _deviations(agree - expected)
        notable = abs(agree.mean() - expected.mean()) > _NOTABLE_SHARE
        if notable and abs(deviations) > max(abs(worst), _MANY_DEVIATIONS):
            far = True
            said = (
                f"{names[a]} and {names[b]} agree on {agree.mean():.1%} of their {len(rows):,} "
                f"common examples, expected {expected.mean():.1%}"
            )
        worst = max(worst, deviations, key=abs)
    if not tested:
        said = "Whether annotators err independently was not tested: no two have enough in common."
    elif far:
        said = (
            f"The model does not explain how often annotators agree: {said}. They differ from "
            f"each other more than the model allows, or one copied another, or some examples "
            f"are harder than others of their class, so that errors coincide and T shows less "
            f"noise than there is."
        )
    else:
        said = "Pairs of annotators agree as often as independent errors explain."
    return Finding("independence", not far, float(worst), said)


def _deviations(differences: np.ndarray) -> float:
    """The mean of the differences, in standard errors."""
    error = differences.std() / np.sqrt(len(differences))
    return float(differences.mean() / max(error, 1e-12))


def _some(names: Sequence[str], most: int = 5) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
