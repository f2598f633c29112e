"""Several people's labels for each example: T without features, one for all or one for each.

The labels that an example was given are looks at one true class, as those of near neighbours
are in `HOC`, but here the class is surely the same. The triples of an example's labels go
through the same consensus and solver; from there the likelihood of all labels is maximised.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.utils.validation import check_is_fitted

from labelnoise._errors import LabelNoiseError, LabelNoiseWarning
from labelnoise._estimator import (
    Estimator,
    Stored,
    warn_of,
)
from labelnoise._validation import expect_one_of, expect_shrinkage, expect_two_classes
from labelnoise.checks import Diagnostics, Finding, check_solution
from labelnoise.estimators.annotator_checks import (
    check_counts,
    check_independence,
    check_one_matrix,
    check_overlap,
    check_triples,
)
from labelnoise.examples import can_refine
from labelnoise.hoc import HOC
from labelnoise.labels import encode_labels
from labelnoise.neighbors import METRICS
from labelnoise.solvers import class_order, solve
from labelnoise.solvers.latent import LatentClasses, LatentFit, label_triples, solve_latent
from labelnoise.solvers.rows import normalised
from labelnoise.summary import confusion_lines

_LARGEST_LISTED = 10
_SMALLEST_CHANCE = 0.01  # of being right, when the order of the classes is chosen


class AnnotatorHOC(Estimator):
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
    classes, unlabeled
        As for `HOC`.

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
    classes_ : array of shape (K,)
        Labels in the order of the rows.
    annotators_ : array of shape (A,)
        Names of the annotators: a data frame's columns, else 0 to A - 1.
    shrinkage_ : float
        The strength of the shrinkage that was used.
    consensus_ : Consensus
        The label triples that gave the start.
    posterior_ : array of shape (N, K)
        P(true class | its labels) of each example, and its features where X was given.
    diagnostics_ : Diagnostics
        What the estimate stands on: print it.

    Notes
    -----
    The model is ``P(l_1, ..., l_A) = sum_i p[i] prod_a T_a[i, l_a]`` over the annotators a that
    labelled the example: given the true class, annotators err independently. With `T_a` for
    each annotator it is the model of Dawid and Skene (1979). Three labels of an example identify
    it if the matrices are non-singular (Kruskal), two do not: ``sum_i p_i T_a[i]' T_b[i]`` has
    many solutions. With X, a model of the clean class takes the place of the third label.

    Where annotators are weak or know different classes the likelihood has several optima. EM
    starts from T of the triples of labels, from their vote, and from a vote in which one
    annotator counts more, for each of the eight with most labels; the best is taken. Which class
    is which the likelihood does not tell: with `per_annotator`, the order is taken in which the
    product of all annotators' chances to be right is largest.

    Not for annotators who copy from each other or see each other's labels, nor where most of
    them are wrong in the same way: that way is then taken for the truth.

    Examples
    --------
    >>> import numpy as np
    >>> from labelnoise.estimators.annotators import AnnotatorHOC
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

    _stored: ClassVar = {
        "classes": Stored("K", "names"),
        "annotators": Stored("A", "names"),
        "transition_matrix": Stored("KK"),
        "transition_matrices": Stored("AKK"),
        "class_prior": Stored("K"),
        "noise_rates": Stored("A", "numbers"),
        "shrinkage": Stored("", "numbers"),
    }

    def __init__(
        self,
        *,
        per_annotator: bool = False,
        shrinkage: float | str = "auto",
        metric: str = "cosine",
        classes: Sequence[Any] | np.ndarray | None = None,
        unlabeled: Any = None,
    ) -> None:
        self.per_annotator = per_annotator
        self.shrinkage = shrinkage
        self.metric = metric
        self.classes = classes
        self.unlabeled = unlabeled

    def fit(self, labels: Any, *, X: Any = None, sources: Any = None) -> AnnotatorHOC:
        """Estimate from a table of labels.

        Parameters
        ----------
        labels : array or data frame of shape (N, A)
            The label of each example (row) by each annotator (column): numbers or strings.
            None and NaN are missing. pandas makes it of a table with a row for each label:
            ``table.pivot(index="example", columns="annotator", values="label")``.
        X : array of shape (N, d), optional
            Representations. A model of the clean class then takes the place of the class prior, if
            there are ten examples for each class.
        sources : array of shape (N,), optional
            As for `HOC.fit`, with X.

        Returns
        -------
        AnnotatorHOC
            Itself.
        """
        expect_one_of("metric", self.metric, METRICS)
        expect_shrinkage(self.shrinkage)
        given, classes, annotators = _encode(labels, self.classes, self.unlabeled)
        occurring = expect_two_classes(classes, given)
        if X is not None:
            X = self._features(X)
            if len(X) != len(given):
                raise LabelNoiseError(
                    f"Expected as many rows of labels as of X, but X has {len(X)} rows and "
                    f"labels {len(given)}"
                )
        est = None if X is None else self._hoc(given, classes, X, sources)
        if est is None:
            _expect_triples(given)
        self.classes_, self.annotators_ = classes, annotators
        self._solve(given, occurring, est)
        warn_of(self.diagnostics_)
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
            if not hasattr(self, "posterior_"):
                raise LabelNoiseError(
                    "Expected labels, but labels is None, and those of fit are not in a file"
                )
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
        model = LatentClasses(given, group, len(self.classes_))
        return model.posterior(matrices, self.class_prior_)[0][model.row]

    def predict(self, labels: Any = None) -> np.ndarray:
        """Give the most probable true class of each example, (N,); `labels` as above."""
        return self.classes_[self.predict_proba(labels).argmax(axis=1)]

    @property
    def noise_rate_(self) -> float:
        """Estimated share of wrong labels."""
        check_is_fitted(self)
        return float(1 - self.class_prior_ @ np.diag(self.transition_matrix_))

    def __str__(self) -> str:
        if not hasattr(self, "transition_matrix_"):
            return repr(self)
        classes, rates = [str(name) for name in self.classes_], self.noise_rates_
        joint = self.class_prior_[:, None] * self.transition_matrix_
        order = np.argsort(-rates, kind="stable")[:_LARGEST_LISTED]
        more = f", the {_LARGEST_LISTED} least exact of them" if len(rates) > len(order) else ""
        lines = [
            f"{self.noise_rate_:.1%} of the labels are wrong, by an estimate from the labels of "
            f"{len(rates)} annotators in {len(classes)} classes.",
            f"Wrong by annotator{more}:",
            *(f"  {self.annotators_[a]}: {rates[a]:.1%}" for a in order),
            *confusion_lines(self.transition_matrix_, joint, classes),
            str(self.diagnostics_),
        ]
        return "\n".join(lines)

    def _hoc(
        self, given: np.ndarray, classes: np.ndarray, X: np.ndarray, sources: Any
    ) -> HOC | None:
        """The estimate from one label of each example; annotators take turns.

        None where there are too few examples for its model of the clean class.
        """
        has = given >= 0
        turn = 1 + np.arange(len(given)) % np.maximum(has.sum(axis=1), 1)
        chosen = (np.cumsum(has, axis=1) == turn[:, None]).argmax(axis=1)
        label = given[np.arange(len(given)), chosen]
        if not can_refine(X, label, len(classes)):
            return None
        y = [classes[k] if k >= 0 else None for k in label]
        est = HOC(metric=self.metric, classes=classes)
        with warnings.catch_warnings():  # its findings are about one label of each example
            warnings.simplefilter("ignore", LabelNoiseWarning)
            est.fit(X, y, sources=sources)
        return None if est.clean_class_ is None else est

    def _solve(self, views: np.ndarray, occurring: np.ndarray, est: HOC | None) -> None:
        """Fit labels (N, A).

        With a `HOC` of one label of each example, its model of the clean class is the prior.
        """
        A, size = len(self.annotators_), len(self.classes_)
        group = np.arange(A) if self.per_annotator else np.zeros(A, int)
        # Classes whose label never occurs take no part, as EM would invent examples of them.
        number = np.full(size + 1, -1)
        number[occurring] = np.arange(len(occurring))
        clean = None if est is None else _clean_class_prior(est, len(views))[:, occurring]
        model = LatentClasses(number[views], group, len(occurring), clean)
        self.consensus_ = label_triples(views, size) if est is None else est.consensus_
        solution = solve(self.consensus_)
        if est is not None:
            T, p = est.transition_matrix_, est.class_prior_
            solution = replace(solution, transition_matrix=T, class_prior=p)
        inside = np.ix_(occurring, occurring)
        start = solution.transition_matrix[inside], solution.class_prior[occurring]
        worth = None if self.shrinkage == "auto" else float(self.shrinkage)
        fit, self.shrinkage_ = solve_latent(model, *start, worth if self.per_annotator else 0.0)
        posterior = model.posterior(fit.matrices, fit.prior)[0]
        counts = model.counts(posterior)
        pooled, order = _pooled(fit, counts) if self.per_annotator else _one_for_all(fit)
        if est is not None:  # features tell which class is which
            order = np.arange(len(occurring))

        def whole(matrices: np.ndarray) -> np.ndarray:
            result = np.broadcast_to(np.eye(size), (*matrices.shape[:-2], size, size)).copy()
            result[..., occurring[:, None], occurring] = matrices[..., order, :]
            return result

        matrices = whole(fit.matrices)
        self.transition_matrix_, self.transition_matrices_ = whole(pooled), matrices[group]
        self.class_prior_, self.posterior_ = np.zeros(size), np.zeros((len(views), size))
        self.class_prior_[occurring] = fit.prior[order]
        self.posterior_[:, occurring] = posterior[model.row][:, order]
        self.noise_rates_ = 1 - np.einsum("i,aii->a", self.class_prior_, self.transition_matrices_)
        if not self.per_annotator:
            self.noise_rates_ = _expected_wrong(views, self.posterior_, self.noise_rate_)
        solution = replace(
            solution,
            transition_matrix=self.transition_matrix_,
            class_prior=self.class_prior_,
            occurring=np.isin(np.arange(size), occurring),
            converged=fit.converged,
            steps=fit.steps,
            start=fit.start,
        )
        findings = check_solution(self.consensus_, solution, self.classes_)
        if est is None:
            findings.append(check_triples(views, self.consensus_.n_centers))
        findings += self._findings(views, counts.sum(axis=(1, 2)), len(occurring))
        self.diagnostics_ = Diagnostics(tuple(findings))

    def _findings(self, own: np.ndarray, n_labels: np.ndarray, K: int) -> list[Finding]:
        """What the labels say of the annotators; K classes occur."""
        names, findings = self.annotators_, []
        if self.per_annotator:
            findings.append(check_overlap(own, names))
            findings.append(check_counts(n_labels, K, self.shrinkage_, names))
        else:
            findings.append(check_one_matrix(own, self.posterior_, self.transition_matrix_, names))
        matrices = self.transition_matrices_
        return [*findings, check_independence(own, self.posterior_, matrices, names)]


def _clean_class_prior(est: HOC, n: int) -> np.ndarray:
    """(n, K) P(clean class | features) by a fitted estimate, without the label it was fitted to."""
    data, T = est.examples_, est.transition_matrix_
    prior = np.tile(est.class_prior_, (n, 1))
    labelled = data.labels >= 0
    known = est.clean_class_.posterior / np.maximum(T.T[data.labels[labelled]], 1e-12)
    prior[data.rows[labelled]] = known / known.sum(axis=1, keepdims=True)
    return prior


def _one_for_all(fit: LatentFit) -> tuple[np.ndarray, np.ndarray]:
    """The common matrix, and which of its rows is which class."""
    return fit.matrices[0], class_order(fit.matrices[0], fit.prior)


def _pooled(fit: LatentFit, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The matrix of a label picked at random, and which row is which class.

    The order is that in which the product of all annotators' chances to be right is largest. A
    habit of one, however strong, makes others' labels improbable; what is right they share.
    """
    pooled = normalised(counts.sum(axis=0), np.eye(counts.shape[1]))
    right = np.log(np.maximum(fit.matrices, _SMALLEST_CHANCE)).sum(axis=0)
    _, label_of_row = linear_sum_assignment(right, maximize=True)
    return pooled, np.argsort(label_of_row)


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


def _expect_triples(given: np.ndarray) -> None:
    most = int((given >= 0).sum(axis=1).max())
    if most < 3:
        remedy = (
            "use HOC, which estimates T from one label and those of two neighbours"
            if most == 1
            else "give X, with ten examples for each class"
        )
        raise LabelNoiseError(
            f"Expected at least three labels of some examples, but none has more than {most}, and "
            f"two labels do not identify T: collect more labels, or {remedy}"
        )


def _expected_wrong(own: np.ndarray, posterior: np.ndarray, otherwise: float) -> np.ndarray:
    """(A,) mean of P(wrong) over each annotator's labels."""
    result = np.full(own.shape[1], otherwise)
    for a, labels in enumerate(own.T):
        rows = np.flatnonzero(labels >= 0)
        if len(rows):
            result[a] = 1 - posterior[rows, labels[rows]].mean()
    return result
