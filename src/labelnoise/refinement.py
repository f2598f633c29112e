"""T from all that the features say, beside what triples of labels say.

Triples take the overlap of classes for noise. A model of the clean class takes noise that features
foretell for overlap. Where noise depends on the class alone, the model is right; where labels are
wrong on hard examples, or in some regions, the truth lies between the two, and how strongly noise
depends on how clear an example is tells which case it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh, solve_triangular
from scipy.optimize import minimize
from scipy.special import expit, logit
from scipy.stats import rankdata
from threadpoolctl import threadpool_limits

from labelnoise._arrays import HOST, Arrays
from labelnoise._blocks import row_blocks
from labelnoise._errors import LabelNoiseError
from labelnoise.diagnostics import Finding
from labelnoise.hoc import SCALES, SIGNS_OF_BIAS
from labelnoise.intervals import ConfidenceInterval
from labelnoise.linear import MOST_TRAINED, MOST_VALUES, HeldOut, columns_with_products

_FOLDS = 5
_C = (0.03, 1.0)  # of the linear model, with so many labels of a class
_LABELS = (2000, 5000)
_LABELS_A_COLUMN = 4  # of each class, for products: with fewer, classes changed places
_LINEAR_STEPS = 40
_UNIFORM = 0.1  # share of uniform noise in the T that the model of the clean class starts from
_VOTES_BEFORE = 0.01  # a vote for each class before neighbours are counted
_OF_ONE_CLASS = 0.9  # chance of a neighbour, when labels alone vote
_CLEAREST = 0.05  # share of each class's examples
_CLEAR = 0.9  # chance that they are of their class; with less T is often off by .1, or far more
_NEARLY_ALL = 0.995
# A priori, overlap is as probable as 1 / its power: that of all examples; of the clearest, with
_PURITY, _MOST_PURITY = 10.0, 50.0  # the square root of their number as a power, or this
_LEAST_OVERLAP = np.array([0.05, 0.01])
_OTHERS = 9  # classes that an example may overlap with; fewer have less power, and least overlap
_COMMON_PRECISION = 0.001  # of slopes a priori: classes may be as sharp as they are
_OWN_PRECISION = 3.0  # of a class's slope around the common one
_PRIOR_LABELS = (1.0, 10.0, 20.0)  # of a class, for which the triples' T stands: least, first, most
_UNCLEAR = 0.9  # of the diagonal's entry, that another in its row has
_UNIFORM_AGAIN = 0.02  # as _UNIFORM, when the model is trained again
_ROWS = 16_384  # in a block
_WORTH_SHARING = 10_000_000  # examples times classes, for several threads to be faster than one
_COPIES = 24  # of a number for each example and class, that a GPU has room for
_ENOUGH = 200_000  # examples
_TO_BEGIN = 20_000  # examples, or _LABELS[0] of each class
_LEAST_MASS = 5.0  # examples of a class for it to have a row of its own
_SIGNIFICANT = (4.0, 7.0)  # log-likelihood: from the first on a dependence counts, in full at the
_LARGE = (0.12, 0.25)  # second; and so does the size of b
_ATTRACTED = (0.3, 0.5)  # and c
_POSITIVE = (0.0, 0.15)  # b is, in full at the second
_HIDDEN = 0.2  # wrong labels that overlap hides on hard examples, over the root of the others
_TOO_MUCH = (0.45, 0.65)  # overlap, of the most there can be, for such noise to be told from it
_TELLING = (0.01, 0.015)  # log-likelihood that each example gains, for it to be told all the same
_MOST_SHARE = 0.75  # of the triples' T
_RESEMBLING = (30.0, 150.0)  # none, if wrong labels are as alike as so many labels of a class say
_WITHIN = 2.0  # it gets none if it is as far away as so many times its variance may set it
_LEAST_LIKENESS = 1e-4
_MOST_INTERVAL_PARAMETERS = 3000
_DRAWS = 500
_MOST_OPERATIONS = 1e11  # for an information matrix; beyond it, of a part of the examples
_STEPS = (10, 20, 170)  # of a search, between which the curvature is looked at anew
_FIRST_STEPS = (10, 20, 30)  # of one that tells which start is better
_NEGLIGIBLE, _EXACTNESS = 0.05, (1e-7, 1e-6)  # log-likelihood, and that of each example
_SOME, _BALANCING = 5000, 10  # examples, and times that classes are balanced for a start
_MOST_CURVED = 500  # parameters; of more, the curvature at the start tells too little
_CURVATURE_OPERATIONS = 4e9
_DAMPING = 0.01  # of the curvature, relative
_AT_BOUND = 1e-3
_LEAST_RATIO = 1e-4  # of a wrong label that does not happen, to the right one
_SURE = 3.0  # standard errors, for a wrong label to happen
_SPARSE = (0.8, 1 / 3)  # T is, if this share of wrong labels, or more, is in this share of entries
_COST = 1.0  # most log-likelihood for each entry that is 0, as in Akaike's criterion
_DIGITS = 4  # of the T that a search starts from
_MOST = np.array([5.0, 1.0])  # b and c either way: few examples may seem to depend without limit
_NEAR = 0.02  # noise rates, for it not to matter which is right
_STRENGTHS = np.geomspace(0.1, 1e4, 41)  # of a prior that rows of T are alike
_GENTLY = (1e-3, 1e-2, 0.1)  # parts of these strengths that come first
_LEAST_CHANCE = 1e-7  # of a class, so that no label is impossible


@dataclass(frozen=True, eq=False)
class Refinement:
    """An estimate from features and triples, and what it was made of."""

    of_features: np.ndarray
    """(K, K) T of the model of the clean class."""
    prior_of_features: np.ndarray
    of_triples: np.ndarray
    """(K, K) T that explains the triples."""
    prior_of_triples: np.ndarray
    labels: np.ndarray
    """(K,) share of each label."""
    n: int
    depends: float
    """0 if noise seems to depend on the class alone, 1 if surely not."""
    share: float
    """Of the triples' T in the result."""
    dependence: float
    """Logarithm of the odds of a wrong label at the least clear example over the clearest."""
    attraction: float
    """Power of a class's clean probability at an example in the odds of its label, if wrong."""
    evidence: float
    """Log-likelihood that is gained by both, less the cost of their prior."""
    clearest: float
    """Chance that the clearest examples of a class are of it, for the class with the least."""
    draws: np.ndarray | None
    """(draws, K, K) values of `of_features` that the data allow; None for very many classes."""

    @property
    def transition_matrix(self) -> np.ndarray:
        """(K, K) mixed of both."""
        return (1 - self.share) * self.of_features + self.share * self.of_triples

    @property
    def class_prior(self) -> np.ndarray:
        """(K,) mixed likewise: of all examples, not of a part."""
        return (1 - self.share) * self.prior_of_features + self.share * self.prior_of_triples

    def interval(
        self, level: float, of_triples: ConfidenceInterval | None = None
    ) -> ConfidenceInterval:
        """Intervals of the features' T; with those of the triples', such that both are within."""
        if not 0 < level < 1:
            raise LabelNoiseError(f"Expected 0 < level < 1, but level = {level}")
        if self.draws is None:
            raise LabelNoiseError(
                f"Expected about 50 classes at most for intervals of a refined T, but there are "
                f"{len(self.labels)}: use refine=False"
            )
        T, rng = self.draws, np.random.default_rng(0)
        labels = rng.multinomial(self.n, self.labels, len(T)) / self.n
        prior = (labels[:, None] @ np.linalg.pinv(T))[:, 0].clip(0)
        prior /= prior.sum(axis=1, keepdims=True)
        rate = (1 - (prior * np.diagonal(T, axis1=1, axis2=2)).sum(axis=1)).clip(0)
        tails = [(1 - level) / 2, (1 + level) / 2]
        ends = [np.quantile(values, tails, axis=0) for values in (T, prior, rate)]
        boundary = self.of_features < _AT_BOUND
        ends[0][0, boundary] = 0
        if of_triples is not None:
            others = of_triples.transition_matrix, of_triples.class_prior, of_triples.noise_rate
            ends = [
                np.stack([np.minimum(mine[0], other[0]), np.maximum(mine[1], other[1])])
                for mine, other in zip(ends, others, strict=True)
            ]
        caveat = "" if self._clear else "T may be further off, as classes overlap much: see clear"
        if of_triples is not None:
            caveat = "it reaches over two estimates: see refined"
        of_T, of_prior, of_rate = ends
        return ConfidenceInterval(level, of_T, of_prior, of_rate, "information", boundary, caveat)

    def reordered(self, classes: np.ndarray) -> Refinement:
        """The same with the classes in another order: the first was number ``classes[0]``."""
        both = np.ix_(classes, classes)
        return replace(
            self,
            of_features=self.of_features[both],
            prior_of_features=self.prior_of_features[classes],
            of_triples=self.of_triples[both],
            prior_of_triples=self.prior_of_triples[classes],
            labels=self.labels[classes],
            draws=None if self.draws is None else self.draws[:, both[0], both[1]],
        )

    def findings(self) -> tuple[Finding, Finding]:
        """Say which case was found, and whether classes lie far enough apart."""
        return self._finding_of_case(), self._finding_of_clearest()

    @property
    def _clear(self) -> bool:
        return self.clearest >= _CLEAR

    def _finding_of_clearest(self) -> Finding:
        clearest = f"the {_CLEAREST:.0%} of its examples that are clearest"
        share = "nearly all" if self.clearest > _NEARLY_ALL else f"{self.clearest:.1%} or more"
        sentence = (
            f"The features tell each class: of {clearest}, {share} are of it."
            if self._clear
            else f"A class overlaps so much with others that of {clearest} only "
            f"{self.clearest:.1%} are of it, by the features. How much is noise then rests on the "
            f"form of the model, and T may be far off: use representations in which classes lie "
            f"further apart, or have some hundred labels verified."
        )
        return Finding("clear", self._clear, self.clearest, sentence)

    def _finding_of_case(self) -> Finding:
        found = _noise_rate(self.of_features, self.prior_of_features)
        shown = _noise_rate(self.of_triples, self.prior_of_triples)
        factor = np.exp(abs(self.dependence))
        where = "is hard to tell" if self.dependence > 0 else "is foretold well"
        case = (
            f"Labels seem wrong more often where the class {where} (odds times {factor:.1f} "
            f"or more)"
            if abs(self.dependence) > _LARGE[0]
            else "Wrong labels are of classes that the example resembles"
        )
        taken = "between the two" if self.share else "from the features"
        sentence = (
            f"{case}, which no method tells from classes that overlap: the features show "
            f"{found:.1%} wrong and the triples {shown:.1%}, and T is taken {taken}. Some hundred "
            f"verified labels would tell."
            if self.depends
            else f"Noise does not seem to depend on how clear an example is: the features show "
            f"{found:.1%} wrong, beside classes that overlap (triples alone show {shown:.1%})."
        )
        ok = not self.depends
        if not ok:
            chance = 0.0 if self.draws is None else np.ptp(self.interval(0.95).noise_rate)
            ok = bool(abs(shown - found) < max(_NEAR, chance))
        return Finding("refined", ok, self.share, sentence)

    def allow_for(self, finding: Finding) -> Finding:
        """A finding about the triples does not touch the features' T, if that is known."""
        known = self._clear and not self.depends
        if finding.ok or finding.name not in SIGNS_OF_BIAS or not known:
            return finding
        sentence = f"{finding.sentence} T was refined by the features, and allows for it."
        return replace(finding, ok=True, sentence=sentence)


def refine(
    X: np.ndarray,
    labels: np.ndarray,
    neighbors: np.ndarray,
    of_triples: np.ndarray,
    prior_of_triples: np.ndarray,
    variance_of_triples: np.ndarray,
    *,
    sources: np.ndarray | None = None,
    progress: Callable[[int, int], None] | None = None,
    arrays: Arrays = HOST,
) -> Refinement:
    """Refine the T of label triples by features X (N, d), neighbours (N, k) and labels (N,).

    Notes
    -----
    A linear model, trained with the triples' T as a last layer, tells the clean class of examples
    that it was not trained on; it is of products of features too, where these are few and that
    tells the labels better. Neighbours then vote, each with the clean class that this model and
    the neighbour's label suggest, and once more by their labels alone. The model of the clean
    class is a softmax of these scores, weighted by a slope for each, and class; slopes and T
    together maximise the likelihood of the labels. No score of an example has seen its own label.
    With the T that is found, all this is done again. What the labels leave open, a prior decides:
    classes overlap little, the clearest twentieth of each class's examples is of that class, wrong
    labels are as alike as the estimate makes probable, and some more labels of each class are as
    the triples' T would have them, 1 to 20, the more the wider T's intervals are. If most wrong
    labels are in few entries of T, and the others may as well be 0, they are. The result is the T
    of these examples: what their features and labels make of their classes is counted.

    Then the odds of a wrong label j get a factor ``exp(b r + c u_j)``: r is the rank of the
    example from the clearest, -1/2, to the least clear, 1/2, and u_j how much it looks like j; b
    and c are standard normal beforehand. If the likelihood says that they are not 0, T is that of
    this model. But if b > 0, what features lack to tell classes by looks like such noise, too: so
    much is taken to be noise that, beside the rate r that is found without it, ``.2 sqrt(r)`` of
    the labels are wrong, and nothing where classes overlap very much, unless each example gains
    much likelihood by it. T is so far from the one model to the other; or beyond, as the triples'
    T gets such a share that this much is added, unless wrong labels are of all classes alike, or
    its (K, K) variance alone may have set it apart.
    """
    direction = np.random.default_rng(0).standard_normal(X.shape[1])
    place = np.concatenate([X[rows] @ direction for rows in row_blocks(*X.shape)])
    # In an order of rows and of classes that is the data's own: both may come in any.
    ends = np.bincount(labels, minlength=len(of_triples)).cumsum()
    by_class = np.split(np.lexsort((place, labels)), ends[:-1])
    classes = np.argsort([place[rows[len(rows) // 2]] for rows in by_class])
    number = np.argsort(classes)
    both = np.ix_(classes, classes)
    trained = min(min(len(X), MOST_TRAINED) * columns_with_products(X.shape[1]), MOST_VALUES)
    needed = 4 * (_COPIES * len(X) * len(classes) + 3 * trained)
    arrays = replace(arrays, free=arrays.free - needed) if needed < arrays.free else HOST
    # Threads of BLAS that start and stop for small products took a second, at times.
    with arrays.in_full(), threadpool_limits(1, "blas"):
        found = _refine_in_order(
            X,
            number[labels],
            neighbors,
            of_triples[both],
            prior_of_triples[classes],
            variance_of_triples[both],
            np.concatenate([by_class[k] for k in classes]),
            sources,
            progress,
            arrays,
        )
    return found.reordered(number)


def _to_begin_with(T: np.ndarray, prior: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """T nearer to one whose wrong labels are alike, as far as chance may have set it apart.

    The model has the maxima of rows on the diagonal: so has this.
    """
    right = float(prior @ np.diag(T))
    if np.isinf(variance).any():  # triples tell nothing, and no way leads from a T that does not
        right = (1 + 1 / len(T)) / 2
    alike = _symmetric(right, len(T))
    share = min(1.0, _by_chance(T - alike, prior, variance))
    T = (1 - share) * T + share * alike
    T += np.diag(T.max(axis=1) - np.diag(T))
    # Rounded, as a search magnifies what classes in another order change in the last digits.
    T = np.round(T / T.sum(axis=1, keepdims=True), _DIGITS)
    result: np.ndarray = T / T.sum(axis=1, keepdims=True)
    return result


def _symmetric(right: float, K: int) -> np.ndarray:
    """T (K, K) of symmetric noise."""
    return np.where(np.eye(K, dtype=bool), right, (1 - right) / (K - 1))


def _by_chance(apart: np.ndarray, prior: np.ndarray, variance: np.ndarray) -> float:
    """Variance of T over the square of how far it is from another, of all examples."""
    weight = prior[:, None] + 1e-6
    return float((weight * variance).sum() / max((weight * apart**2).sum(), 1e-12))


def _refine_in_order(
    X: np.ndarray,
    labels: np.ndarray,
    neighbors: np.ndarray,
    of_triples: np.ndarray,
    prior_of_triples: np.ndarray,
    variance_of_triples: np.ndarray,
    order: np.ndarray,
    sources: np.ndarray | None,
    progress: Callable[[int, int], None] | None,
    arrays: Arrays,
) -> Refinement:
    K, n = len(of_triples), len(labels)
    fold = _folds(labels, order, sources)
    steps = 2 * (1 + int(fold.max())) + 3
    done = iter(range(1, steps + 1))

    def step() -> None:
        if progress:
            progress(next(done), steps)

    begin = _to_begin_with(of_triples, prior_of_triples, variance_of_triples)
    # A T to start from needs no more examples.
    every = 1 + n // min(_ENOUGH, max(_TO_BEGIN, _LABELS[0] * K))
    held_out = _linear_models(X, labels, _less_sure(begin, _UNIFORM), fold, order, arrays)
    prepare = partial(_scores, held_out, neighbors)

    def fit_first(T: np.ndarray, step: Callable[[], None]) -> tuple[_CleanModel, np.ndarray]:
        T = _less_sure(T, _UNIFORM)
        scores = prepare(T, every, step)[:, :, ::every]
        model = _CleanModel(scores, labels[order[::every]], begin, arrays=arrays)
        # In another optimum a class may stand for a part of the next: the likelihood tells.
        return model, model.fit_best([model.start(np.full((K, K), 1 / K)), model.start(T)])

    model, parameters = fit_first(begin, step)
    T = model.result(parameters)[1]
    few = model.size <= _MOST_INTERVAL_PARAMETERS
    if few and (np.sort(T, axis=1)[:, -2] > _UNCLEAR * np.diag(T)).any():
        # The triples' T may have led there: one whose wrong labels are alike may not.
        right = round(float(prior_of_triples @ np.diag(begin)), _DIGITS)
        other, others = fit_first(_symmetric(right, K), lambda: None)
        if other.log_likelihood(others) > model.log_likelihood(parameters):
            model, parameters = other, others
            T = model.result(parameters)[1]
        del other
    step()
    T = _less_sure(T, _UNIFORM_AGAIN)
    model = _CleanModel(prepare(T, 1, step), labels[order], begin, model.prior_labels, arrays)
    parameters = model.fit_best([model.start(T), parameters])
    step()
    case = _case_of(model, parameters)
    step()
    of_features, prior = case.transition_matrix, case.class_prior
    if few and not case.believed and (sparse := model.fit_sparse(parameters, prior)) is not None:
        parameters = sparse
        _, of_features, prior = model.result(parameters)
    least = prior * n < _LEAST_MASS
    of_features[least] = begin[least]
    found, shown = (_noise_rate(T, prior) for T in (of_features, of_triples))
    share = 0.0
    if shown > found:
        share = min(_MOST_SHARE, case.missing / (shown - found))
        share *= 1 - _between(model.alike[0], _RESEMBLING)
        by_chance = _by_chance(of_features - of_triples, prior, variance_of_triples)
        share *= max(0.0, 1 - _WITHIN * by_chance)
    draws = None
    if few:
        # Around the T that was taken; what the prior of overlap does to it is one standard error.
        more = np.random.default_rng(1).standard_normal(_DRAWS)[:, None, None] * case.by_prior
        # Drawn ratios are cut off at 0, which takes from the diagonal: it has a mean of its own.
        draws = model.draws(parameters, min(model.alike[0], _PRIOR_LABELS[0]))
        draws += of_features - np.where(model.off, model.transition(parameters), draws.mean(axis=0))
        draws = np.clip(draws + more, 0, 1)
    return Refinement(
        of_features=of_features,
        prior_of_features=prior,
        of_triples=of_triples,
        prior_of_triples=prior_of_triples,
        labels=np.bincount(labels, minlength=K) / n,
        n=n,
        depends=case.sure,
        share=share,
        dependence=case.b,
        attraction=case.c,
        evidence=case.evidence,
        clearest=case.clearest,
        draws=draws,
    )


def _folds(labels: np.ndarray, order: np.ndarray, sources: np.ndarray | None) -> np.ndarray:
    """(N,) numbers of folds: by place in the class, whatever the classes' order, or by source."""
    if sources is None:
        counts = np.bincount(labels)
        fold = np.empty_like(order)
        fold[order] = np.arange(len(order)) - np.repeat(counts.cumsum() - counts, counts)
    else:
        fold = np.unique(sources, return_inverse=True)[1]
    return fold % _FOLDS


def _linear_models(
    X: np.ndarray,
    labels: np.ndarray,
    T: np.ndarray,
    fold: np.ndarray,
    order: np.ndarray,
    arrays: Arrays,
) -> HeldOut:
    """Linear in the features, or in their products too, if that tells the labels better."""
    C = float(np.exp(np.interp(min(len(labels), _ENOUGH) / len(T), _LABELS, np.log(_C))))
    models = HeldOut(X, labels, C, fold, order, arrays)
    width = columns_with_products(models.width)
    if width == models.width or len(labels) / len(T) < _LABELS_A_COLUMN * width:
        return models
    free = replace(arrays, free=arrays.free - 4 * X.size)
    richer = HeldOut(X, labels, C, fold, order, free, products=True)
    plain, rich = (
        kind.log_likelihood(T, _TO_BEGIN, steps=_LINEAR_STEPS) for kind in (models, richer)
    )
    return richer if rich > plain else models


def _less_sure(T: np.ndarray, uniform: float) -> np.ndarray:
    """T with a share of uniform noise."""
    return (1 - uniform) * T + uniform / len(T)


class _Case(NamedTuple):
    """What noise seems to depend on, and the T if it does."""

    b: float
    c: float
    evidence: float
    """Log-likelihood that is gained by both, less the cost of their prior."""
    sure: float
    """From 0, noise depends on the class alone, to 1, surely not."""
    believed: float
    """Share of the model in which it is so, in T."""
    missing: float
    """Rate of wrong labels that even it does not find."""
    transition_matrix: np.ndarray
    class_prior: np.ndarray
    by_prior: np.ndarray
    """(K, K) what the prior of overlap does to T."""
    clearest: float
    """Chance that the clearest examples of a class are of it, for the class with the least."""


def _case_of(model: _CleanModel, parameters: np.ndarray) -> _Case:
    """Whether noise depends on the class alone, as the model with these parameters has it."""
    clean, T, prior = model.result(parameters)
    dependence = _Dependence.of(clean, model.arrays)
    # What overlap explains as well is no dependence, so here it is as large as it likes.
    soft, value = model.fit(parameters, pure=False)
    depending, gained = model.fit(np.append(soft, [0, 0]), dependence, pure=False)
    softer, soft_T, _ = model.result(soft)
    mass = prior * model.n
    by_prior, occurs = T - soft_T, mass >= min(_LEAST_MASS, mass.max())
    clearest = _of_clearest(model.arrays.get(softer)[occurs], prior[occurs])
    (b, c), evidence = _bounded(depending).tolist(), gained - value
    significant = _between(evidence, _SIGNIFICANT)
    sure = significant * max(_between(abs(b), _LARGE), _between(c, _ATTRACTED))
    believed = missing = 0.0
    if sure:
        depending, _ = model.fit(np.append(parameters, depending[-2:]), dependence)
        _, mean, mean_prior = model.result(depending, dependence)
        least = _noise_rate(T, prior)
        found = max(_noise_rate(mean, mean_prior) - least, 1e-6)
        # What the features lack to tell classes by looks like noise on hard examples, too.
        overlap = 1 - float((clean**2).sum(axis=0).mean())
        likely = _HIDDEN * np.sqrt(least) / found
        likely *= 1 - _between(overlap / (1 - 1 / len(T)), _TOO_MUCH)
        if likely < 1:
            likely += (1 - likely) * _between(evidence / model.n, _TELLING)
        likely = 1 + (likely - 1) * _between(b, _POSITIVE)
        believed = sure * min(likely, 1.0)
        missing = sure * max(likely - 1, 0.0) * found
        T = (1 - believed) * T + believed * mean
        prior = (1 - believed) * prior + believed * mean_prior
    return _Case(b, c, evidence, sure, believed, missing, T, prior, by_prior, clearest)


def _of_clearest(clean: np.ndarray, prior: np.ndarray) -> float:
    """Mean P(clean class), (K, N), of the clearest of a class, for that with the least."""
    n = clean.shape[1]
    first = n - np.maximum((_CLEAREST * n * prior).astype(int), 1)
    least = min(np.partition(c, i)[i:].mean() for c, i in zip(clean, first, strict=True))
    return min(float(least), 1.0)


def _noise_rate(T: np.ndarray, prior: np.ndarray) -> float:
    return 1 - float(prior @ np.diag(T))


def _between(value: float, ends: tuple[float, float]) -> float:
    return float(np.clip((value - ends[0]) / (ends[1] - ends[0]), 0, 1))


@dataclass(frozen=True, eq=False)
class _Dependence:
    """What noise may depend on: how clear an example is, and which classes it resembles."""

    rank: Any
    """(N,) from -1/2, the clearest, to 1/2."""
    likeness: Any
    """(K, N) logarithm of the clean probability, of mean 0."""
    xp: Any

    @classmethod
    def of(cls, clean: Any, arrays: Arrays = HOST) -> _Dependence:
        """From P(clean class), (K, N)."""
        xp = arrays.xp
        # Equals have one rank: examples come sorted by label, of which it must not tell.
        rank = (rankdata(arrays.get(-xp.amax(clean, axis=0))) - 0.5) / clean.shape[1] - 0.5
        likeness = xp.log(clean + _LEAST_LIKENESS)
        return cls(arrays.put(rank.astype(np.float32)), likeness - likeness.mean(axis=0), xp)

    def odds(self, parameters: np.ndarray, rows: slice) -> Any:
        """(K, rows) factors on the odds of each label that is wrong."""
        b, c = _bounded(parameters).tolist()
        odds = b * self.rank[rows] + c * self.likeness[:, rows]
        return self.xp.exp(self.xp.clip(odds, -30, 30))


def _scores(
    held_out: HeldOut, neighbors: np.ndarray, T: np.ndarray, every: int, step: Callable[[], None]
) -> Any:
    """(m, K, N) log-scores of each clean class, in order.

    By features, of models that are trained on one example in `every`; by so many neighbours; by
    their labels alone.
    """
    arrays, (n, K) = held_out.arrays, (len(neighbors), len(T))
    xp, labels = arrays.xp, arrays.put(held_out.labels)
    scales = sorted({min(most, neighbors.shape[1]) for most in SCALES})
    # In some region the linear model may be wrong, and so its votes: labels vote by themselves too.
    shown = np.bincount(held_out.labels, minlength=K) / n
    told = np.log(_OF_ONE_CLASS * T / shown + 1 - _OF_ONE_CLASS)
    by_label, by_class = arrays.put(told.T, np.float32)[labels], arrays.put(T.T, np.float32)[labels]
    place = np.empty(n, np.int64)
    place[held_out.order] = np.arange(n)
    result = arrays.empty((2 + len(scales), K, n))
    for rows, linear in held_out.scores(T, every=every, steps=_LINEAR_STEPS):
        own = arrays.put(place[rows])
        suggested = xp.exp(linear - xp.amax(linear, axis=1, keepdims=True))
        suggested *= by_class
        suggested /= suggested.sum(axis=1, keepdims=True)
        share = suggested.mean(axis=0, dtype=xp.float64)
        before = xp.asarray(_VOTES_BEFORE * K * share + 1e-6, dtype=xp.float32)
        result[0][:, own] = linear[arrays.put(rows)].T
        votes, alone = 0 * suggested[: len(rows)], 0 * suggested[: len(rows)]
        for number, column in enumerate(arrays.put(neighbors[rows, : scales[-1]].T), 1):
            votes += suggested[column]
            alone += by_label[column]
            if number in scales:
                result[1 + scales.index(number)][:, own] = xp.log(votes + before).T
        result[-1][:, own] = alone.T
        step()
    result -= result.mean(axis=1, keepdims=True)
    return result


class _Explained(NamedTuple):
    """What the model says of examples that have one label; (K, rows) but for `likely`."""

    h: Any
    """Chance of each clean class, given the features."""
    ratios: Any
    """(K, K) ``T[k, j] / T[k, k]``, of which the diagonal is 0."""
    odds: Any
    """Factors on those of each label; of one column where there are none."""
    total: Any
    """Odds that the label is wrong, by class."""
    right: Any
    """Chance that it is right."""
    posterior: Any
    """Chance of each clean class, given the label too."""
    likely: Any
    """(rows,) chance of the label."""

    def by_dependence(
        self, weight: Any, label: int, rows: slice, dependence: _Dependence
    ) -> tuple[Any, Any]:
        """(rows,) derivatives of the log-likelihood by b and by c; weight is posterior * right."""
        wrong, likeness = 1 - self.posterior[label], dependence.likeness[:, rows]
        by_b = dependence.rank[rows] * (wrong - (weight * self.total).sum(axis=0))
        expected = (weight * (self.ratios @ (self.odds * likeness))).sum(axis=0)
        return by_b, likeness[label] * wrong - expected


class _CleanModel:
    """``P(y | x) = sum_k h_k(x) T[k, y]``, h a softmax of slopes times scores, and intercepts.

    Parameters are slopes (m, K), intercepts (K,), the logits of ``r[k, j] = T[k, j] / T[k, k]``;
    and what b and c follow from, where the odds of a wrong label j have a factor
    ``exp(b * rank + c * likeness_j)``.
    """

    def __init__(
        self,
        scores: Any,
        labels: np.ndarray,
        expected: np.ndarray,
        prior_labels: float = _PRIOR_LABELS[1],
        arrays: Arrays = HOST,
    ) -> None:
        K, self.expected, self.prior_labels = len(expected), expected, prior_labels
        self.arrays, self.scores = arrays, arrays.put(scores)
        self.double = partial(arrays.xp.asarray, dtype=arrays.xp.float64)
        # Labels are sorted, so that a block has one column of T.
        self.ends = np.searchsorted(labels, np.arange(K + 1))
        self.m, self.K, self.n = len(scores), K, len(labels)
        self.off = ~np.eye(K, dtype=bool)
        self.happens = self.off
        """(K, K) wrong labels whose ratio is estimated: of the others it is almost 0."""
        self.clearest: Any = None
        """(K, n) 1 for the clearest examples of a class, of which a prior says that they are."""
        self.scores_of_clearest: Any = None
        """(m, K, n)"""
        self.n_clearest = 0.0
        self.alike = 0.0, 0.0
        """How strongly a prior says that a class's wrong labels, and classes' noise, are alike."""
        others = min(1.0, (K - 1) / _OTHERS)
        of_clearest = min(_MOST_PURITY, np.sqrt(_CLEAREST * self.n))
        self.purity = others**1.5 * np.array([_PURITY, of_clearest])
        self.least_overlap = np.array([others**2, 1]) * _LEAST_OVERLAP
        self.n_slopes = self.m * K
        self.size = self.n_slopes + K * K

    def start(self, T: np.ndarray) -> np.ndarray:
        slopes = np.full((self.m, self.K), 0.6)
        slopes[0] = 2  # from classes that are told well: what only T can explain, T explains
        ratios = np.clip((T / np.diag(T)[:, None])[self.off], 1e-3, 0.97)
        # Each class has its label's share, or none might ever be taken for some class.
        shares, intercepts = np.maximum(np.diff(self.ends), 1) / self.n, np.zeros(self.K)
        scores = self.scores[:, :, :: 1 + self.n // _SOME]
        for _ in range(_BALANCING):
            h = self.arrays.get(self.clean(slopes, intercepts, scores)).mean(axis=1)
            intercepts += np.log(shares / h)
        return np.concatenate([slopes.ravel(), intercepts, logit(ratios)])

    def blocks(self) -> Iterator[tuple[int, slice]]:
        for label, (first, end) in enumerate(pairwise(self.ends)):
            yield from ((label, rows) for rows in self._slices(first, end))

    def _slices(self, first: int, end: int) -> Iterator[slice]:
        most = max(_ROWS, _ROWS * self.arrays.larger // self.K)
        yield from (slice(n, min(n + most, end)) for n in range(first, end, most))

    def unpack(self, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        ratios = np.zeros((self.K, self.K))
        ratios[self.off] = expit(parameters[self.n_slopes + self.K : self.size])
        ratios[self.off & ~self.happens] = _LEAST_RATIO
        slopes = parameters[: self.n_slopes].reshape(self.m, self.K)
        return slopes, parameters[self.n_slopes : self.n_slopes + self.K], ratios

    def clean(self, slopes: np.ndarray, intercepts: np.ndarray, scores: Any) -> Any:
        """(K, rows) h of scores (m, K, rows)."""
        xp, put = self.arrays.xp, self.arrays.put
        h = (put(slopes.T, np.float32)[:, None] @ scores.swapaxes(0, 1))[:, 0]
        h += put(intercepts, np.float32)[:, None]
        h -= xp.amax(h, axis=0)
        xp.exp(h, out=h)
        h /= h.sum(axis=0)
        h += _LEAST_CHANCE
        return h

    def fit(
        self,
        start: np.ndarray,
        dependence: _Dependence | None = None,
        steps: tuple[int, ...] = _STEPS,
        pure: bool = True,
    ) -> tuple[np.ndarray, float]:
        """Parameters of the largest penalised log-likelihood, and that.

        By L-BFGS, in coordinates in which the likelihood curves about alike in all directions. Not
        `pure`: without the prior that examples, and the clearest above all, are of one class.
        """
        blocks, of_clearest = list(self.blocks()), list(self._slices(0, self.clearest.shape[1]))
        get = self.arrays.get

        def objective(parameters: np.ndarray) -> tuple[float, np.ndarray]:
            slopes, _, ratios = self.unpack(parameters)
            of = partial(self._sums, parameters=parameters, dependence=dependence, pure=pure)
            parts = (shared if self.n * self.K > _WORTH_SHARING else map)(of, blocks)
            sums = [get(sum(values)) for values in zip(*parts, strict=True)]
            values, by_slopes, by_intercepts, by_ratios, *by_dependence = sums
            likelihood, weights, penalty = values[0], np.ones(len(values)), 0.0
            if pure:
                parts = (self._sums_of_clearest(rows, parameters) for rows in of_clearest)
                surely, *by_surely = (get(sum(values)) for values in zip(*parts, strict=True))
                counted = np.array([self.n, self.n_clearest])
                overlap = self.least_overlap + 1 - np.append(values[1:], surely) / counted
                weights = np.append(1, self.purity / overlap / counted)
                penalty = self.purity @ np.log(overlap)
                by_slopes = np.concatenate([by_slopes, by_surely[0]], axis=1)
                by_intercepts = np.concatenate([by_intercepts, by_surely[1]])
            by_slopes, by_intercepts = (weights @ by_slopes).T, weights @ by_intercepts
            common = slopes.mean(axis=1, keepdims=True)
            own = slopes - common
            penalty += (_COMMON_PRECISION * (common**2).sum() + _OWN_PRECISION * (own**2).sum()) / 2
            by_slopes = by_slopes - _COMMON_PRECISION * common / self.K - _OWN_PRECISION * own
            T = _transition(ratios)
            penalty -= self.prior_labels * (self.expected * np.log(T + 1e-12)).sum()
            by_ratios += self.prior_labels * (self.expected - T)
            if pure:
                cost, by_log_ratios = self._unlike(ratios)
                penalty += cost
                by_ratios -= by_log_ratios
            by_logits = (by_ratios * (1 - ratios) * self.happens)[self.off]
            gradient = [by_slopes.ravel(), by_intercepts, by_logits]
            if dependence is not None:
                both = _bounded(parameters)
                penalty += (both**2).sum() / 2  # standard normal a priori
                inner = 1 - (both / _MOST) ** 2
                gradient.append(inner * (by_dependence - both))
            return (penalty - likelihood) / self.n, -np.concatenate(gradient) / self.n

        found, value = start, np.inf
        exactness = float(np.clip(_NEGLIGIBLE / self.n, *_EXACTNESS))
        with self.arrays.sharing() as shared:
            for most in steps:
                curvature = self._curvature(found, dependence, shared)
                found, value, taken = _search(objective, found, curvature, most, exactness)
                if taken < most:
                    break
        return found, -value * self.n

    def _unlike(self, ratios: np.ndarray) -> tuple[float, np.ndarray]:
        """Cost of wrong labels that are not alike, and its derivatives by log ratios."""
        labels, precision = self.alike
        shares, log_odds = _wrong_labels(ratios)
        apart = log_odds - log_odds.mean()
        cost = precision * (apart**2).sum() / 2
        cost -= labels * self.K * np.log((self.K - 1) * shares[self.off] + 1e-12).mean()
        within = labels * (shares - self.off / (self.K - 1))
        return cost, within + precision * apart[:, None] * shares

    def fit_best(self, starts: list[np.ndarray]) -> np.ndarray:
        """Fit from the best of some starts, with a prior that is strong where data leave T open.

        Open is what chance does to T, beside how far T is from that of the triples.
        """
        self.watch(starts[0])
        fits = [self.fit(start, steps=_FIRST_STEPS) for start in starts]
        best = max(fits, key=lambda fit: fit[1])[0]
        self.watch(best)
        if self.size > _MOST_INTERVAL_PARAMETERS:
            return self.fit(best)[0]
        least, _, most = _PRIOR_LABELS
        apart = ((self.result(best)[1] - self.expected) ** 2).sum()
        draws = self.draws(best)
        left_open = draws.var(axis=0).sum() / max(apart, 1e-12)
        # Rounded, as the draws' last digits depend on the number of threads.
        self.prior_labels = round(float(np.clip(most * left_open, least, most)), 2)
        labels, precision = _how_alike(self.transition(best), draws)
        # A strong prior at once may lead the search astray.
        for part in _GENTLY:
            if part * max(labels, precision) > 1:
                self.alike = part * labels, part * precision
                best = self.fit(best, steps=_FIRST_STEPS)[0]
        self.alike = labels, precision
        return self.fit(best)[0]

    def watch(self, parameters: np.ndarray) -> None:
        """Find the clearest twentieth of each class's examples, and all that are as clear.

        Where that is more than a quarter of all, some of them stand for the others.
        """
        arrays, clean = self.arrays, self.result(parameters)[0]
        shares, every = np.diff(self.ends) / self.n, 1 + self.n // _ENOUGH
        least = [
            float(arrays.xp.quantile(chance[::every], 1 - _CLEAREST * share))
            for chance, share in zip(clean, shares, strict=True)
        ]
        clearest = clean >= arrays.put(np.array(least, np.float32))[:, None]
        watched = np.flatnonzero(arrays.get(clearest.any(axis=0)))
        watched = arrays.put(watched[:: 1 + len(watched) // max(self.n // 4, _SOME)])
        self.clearest = arrays.empty((self.K, len(watched)))
        self.clearest[:] = clearest[:, watched]
        self.n_clearest = float(self.clearest.sum())
        self.scores_of_clearest = self.scores[:, :, watched]

    def fit_sparse(self, parameters: np.ndarray, prior: np.ndarray) -> np.ndarray | None:
        """Fit with few wrong labels that happen, if most are such and it explains all as well.

        Where classes overlap, the likelihood's maximum has a little of every confusion. `prior` is
        the class prior of the fit with all of them, whose parameters are given.
        """
        found, covariance, _ = self._ratios(parameters)
        sure = found > _AT_BOUND
        sure[sure] = found[sure] > _SURE * np.sqrt(np.diag(covariance))
        wrong = (prior[:, None] * self.transition(parameters))[self.off]
        mass, entries = _SPARSE
        if wrong[sure].sum() < mass * wrong.sum() or sure.mean() > entries:
            return None
        dense, expected = self.log_likelihood(parameters), self.expected
        self.happens, alike = np.zeros_like(self.off), self.alike
        self.happens[self.off], self.alike = sure, (0.0, alike[1])
        self.expected = np.where(self.happens | ~self.off, expected, _LEAST_RATIO)
        self.expected /= self.expected.sum(axis=1, keepdims=True)
        sparse, _ = self.fit(parameters)
        if dense - self.log_likelihood(sparse) < _COST * (~sure).sum():
            return sparse
        self.happens, self.expected, self.alike = self.off, expected, alike
        return None

    def log_likelihood(self, parameters: np.ndarray) -> float:
        """Of all labels, without penalties."""
        xp = self.arrays.xp
        likely = (self._explain(block, parameters).likely for block in self.blocks())
        return float(sum(xp.log(chance).sum(dtype=xp.float64) for chance in likely))

    def _curvature(
        self,
        parameters: np.ndarray,
        dependence: _Dependence | None,
        shared: Callable[..., Any],
    ) -> np.ndarray | None:
        """Lower triangular L, such that the objective's second derivatives are about L L'.

        None for many parameters.
        """
        if self.size > _MOST_CURVED:
            return None
        _, _, ratios = self.unpack(parameters)
        inner, own = np.ones(len(parameters)), np.zeros(len(parameters))
        by_logits = ratios * (1 - ratios) * self.happens
        inner[self.n_slopes + self.K : self.size] = by_logits[self.off]
        if dependence is not None:
            inner[self.size :] = 1 - (_bounded(parameters) / _MOST) ** 2
        T = _transition(ratios)
        own[: self.n_slopes] = _OWN_PRECISION
        of_labels = self.prior_labels * T * (1 - T) * (1 - ratios) ** 2
        labels, precision = self.alike
        by_odds = labels / (self.K - 1) + precision * _wrong_labels(ratios)[0] ** 2
        of_labels += by_odds * (1 - ratios) ** 2
        own[self.n_slopes + self.K : self.size] = of_labels[self.off]
        information = self._information(parameters, dependence, _CURVATURE_OPERATIONS, shared)
        information = information * inner * inner[:, None] + np.diag(own)
        scale = np.sqrt(np.diag(information) + 1e-2)
        scaled = information / scale / scale[:, None] + _DAMPING * np.eye(len(scale))
        return scale[:, None] * np.linalg.cholesky(scaled) / np.sqrt(self.n)

    def _information(
        self,
        parameters: np.ndarray,
        dependence: _Dependence | None,
        operations: float,
        shared: Callable[..., Any] = map,
    ) -> np.ndarray:
        """Sum over examples of the outer product of their log-likelihood's derivatives.

        By slopes, intercepts, ``r[k, j] = T[k, j] / T[k, k]`` instead of its logit, b and c.
        """
        every = 1 + int(self.n * len(parameters) ** 2 / operations)
        xp, off = self.arrays.xp, self.arrays.put(self.off)

        def product(block: tuple[int, slice]) -> Any:
            label, rows = block
            rows = slice(rows.start, rows.stop, every)
            seen = self._explain((label, rows), parameters, dependence)
            weight = seen.posterior * seen.right
            by_ratios = -weight[:, None] * seen.odds
            by_ratios[:, label] += seen.h * seen.right * seen.odds[label] / seen.likely
            by_logits = seen.posterior - seen.h
            derivatives = [
                (by_logits * self.scores[:, :, rows]).reshape(self.n_slopes, -1),
                by_logits,
                by_ratios[off],
            ]
            if dependence is not None:
                by_both = seen.by_dependence(weight, label, rows, dependence)
                derivatives.append(xp.stack(by_both))
            matrix = xp.concatenate(derivatives)
            return matrix @ matrix.T

        total = sum(shared(product, self.blocks()))
        return every * self.arrays.get(total).astype(np.float64)

    def _explain(
        self,
        block: tuple[int, slice],
        parameters: np.ndarray,
        dependence: _Dependence | None = None,
    ) -> _Explained:
        """How the examples of a block have come by their label."""
        label, rows = block
        slopes, intercepts, ratios = self.unpack(parameters)
        h = self.clean(slopes, intercepts, self.scores[:, :, rows])
        r = self.arrays.put(ratios, np.float32)
        if dependence is None:
            odds = self.arrays.put(np.ones((self.K, 1), np.float32))
        else:
            odds = dependence.odds(parameters, rows)
        total = r @ odds
        right = 1 / (1 + total)
        chance = r[:, label, None] * odds[label] * right
        chance[label] = right[label]
        posterior = h * chance
        likely = posterior.sum(axis=0)
        posterior /= likely
        return _Explained(h, r, odds, total, right, posterior, likely)

    def _sums(
        self,
        block: tuple[int, slice],
        parameters: np.ndarray,
        dependence: _Dependence | None,
        pure: bool,
    ) -> tuple:
        """Sums over a block: its log-likelihood and its derivatives by slopes and intercepts.

        If `pure`, also the purity of its examples, and its derivatives. Then the likelihood's by
        ratios, times the ratios, by b and by c.
        """
        label, rows = block
        xp = self.arrays.xp
        seen = self._explain(block, parameters, dependence)
        own = self.double(seen.posterior.sum(axis=1))
        by_dependence = []
        if dependence is None:
            by_ratios = -seen.ratios * (own[:, None] * seen.right)
        else:
            weight = seen.posterior * seen.right
            by_ratios = -seen.ratios * self.double(weight @ seen.odds.T)
            by_both = seen.by_dependence(weight, label, rows, dependence)
            by_dependence = [d.sum(dtype=xp.float64) for d in by_both]
        by_ratios[:, label] += own
        by_logits, values = self.arrays.empty((1 + pure, *seen.h.shape)), [xp.log(seen.likely)]
        xp.subtract(seen.posterior, seen.h, out=by_logits[0])
        if pure:
            square = seen.h * seen.h
            values.append(square.sum(axis=0))
            xp.multiply(seen.h, -values[1], out=by_logits[1])
            by_logits[1] += square
            by_logits[1] *= 2
        values = xp.stack([part.sum(dtype=xp.float64) for part in values])
        by_slopes, by_intercepts = self._by_model(by_logits, self.scores[:, :, rows])
        return values, by_slopes, by_intercepts, by_ratios, *by_dependence

    def _sums_of_clearest(self, rows: slice, parameters: np.ndarray) -> tuple:
        """Sums over the clearest: the chance that they are of their class, and its derivatives."""
        scores = self.scores_of_clearest[:, :, rows]
        slopes, intercepts, _ = self.unpack(parameters)
        h = self.clean(slopes, intercepts, scores)
        surely = h * self.clearest[:, rows]
        chance = surely.sum(axis=0)
        by_logits = (surely - h * chance)[None]
        return chance.sum(dtype=self.arrays.xp.float64), *self._by_model(by_logits, scores)

    def _by_model(self, by_logits: Any, scores: Any) -> tuple[Any, Any]:
        """Sums of derivatives by slopes (K, p, m) and intercepts (p, K), from those by logits."""
        by_slopes = by_logits.swapaxes(0, 1) @ scores.swapaxes(0, 1).swapaxes(1, 2)
        return self.double(by_slopes), self.double(by_logits.sum(axis=2))

    def result(
        self, parameters: np.ndarray, dependence: _Dependence | None = None
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        """P(clean class) (K, N), T (K, K) and the class prior (K,), of these examples."""
        arrays, joint = self.arrays, np.zeros((self.K, self.K))
        clean = arrays.empty((self.K, self.n))
        for label, rows in self.blocks():
            seen = self._explain((label, rows), parameters, dependence)
            clean[:, rows] = seen.h
            joint[:, label] += arrays.get(seen.posterior.sum(axis=1, dtype=arrays.xp.float64))
        mass, joint = joint.sum(axis=1), joint * (self.happens | ~self.off)
        T = np.where(mass[:, None] > 0, joint, self.transition(parameters))
        return clean, T / T.sum(axis=1, keepdims=True), mass / self.n

    def transition(self, parameters: np.ndarray) -> np.ndarray:
        """T (K, K), in which wrong labels that do not happen have no chance at all."""
        return _transition(self.unpack(parameters)[2] * self.happens)

    def _ratios(
        self, parameters: np.ndarray, alike: float = 0.0
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ratios, the covariance of those not at their bound 0, and the information of each.

        Of a ratio at its bound, the others take no notice. So many labels of each class tell that
        its wrong labels are alike: without any, few examples may leave ratios wide open.
        """
        found, first = self.unpack(parameters)[2][self.off], self.n_slopes + self.K
        with self.arrays.sharing() as shared:
            information = self._information(parameters, None, _MOST_OPERATIONS, shared)
        information[np.diag_indices(self.size)] += 1e-2
        information[np.diag_indices(self.n_slopes)] += _OWN_PRECISION
        own = self.prior_labels * self.expected[self.off] + alike / (self.K - 1)
        information[first:, first:] += np.diag(own / np.maximum(found, _AT_BOUND) ** 2)
        free = np.append(np.ones(first, bool), found > _AT_BOUND)
        covariance = np.linalg.inv(information[np.ix_(free, free)])[first:, first:]
        return found, covariance, np.diag(information)[first:]

    def draws(self, parameters: np.ndarray, alike: float = 0.0) -> np.ndarray:
        """(_DRAWS, K, K) values of T that the data allow: normal around the estimate.

        Each entry by itself: those at their bound 0 vary, and leave the rest of the row alone.
        """
        found, covariance, information = self._ratios(parameters, alike)
        normal = np.random.default_rng(0).standard_normal((_DRAWS, len(found)))
        free = found > _AT_BOUND
        drawn = found + np.abs(normal) / np.sqrt(information)
        drawn[:, free] = found[free] + normal[:, free] @ np.linalg.cholesky(covariance).T
        values = np.zeros((_DRAWS, self.K, self.K))
        values[:, self.off] = np.where(free, np.clip(drawn, 0, 1), 0)
        total = 1 + values.sum(axis=2, keepdims=True)
        values[:, self.off] = np.clip(drawn, 0, 1)
        values[:, ~self.off] = 1
        return values / total


def _search(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    curvature: np.ndarray | None,
    steps: int,
    exactness: float,
) -> tuple[np.ndarray, float, int]:
    """Parameters of the least objective, that, and the steps taken, by L-BFGS.

    In coordinates z of which parameters are ``start + inv(L') z``, with L the curvature. A step
    that gains less than `exactness`, relative, is the last.
    """

    def parameters(z: np.ndarray) -> np.ndarray:
        if curvature is None:
            return start + z
        return start + solve_triangular(curvature, z, lower=True, trans="T")

    least = np.inf, np.zeros(len(start))

    def by_z(z: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal least
        value, gradient = objective(parameters(z))
        if value < least[0]:
            least = value, z.copy()
        if curvature is not None:
            gradient = solve_triangular(curvature, gradient, lower=True)
        return value, gradient

    options = {"maxiter": steps, "maxcor": 20, "ftol": exactness, "gtol": 1e-7}
    search: Any = {"jac": True, "method": "L-BFGS-B", "options": options}
    found = minimize(by_z, np.zeros(len(start)), **search)
    return parameters(least[1]), float(least[0]), found.nit


def _bounded(parameters: np.ndarray) -> np.ndarray:
    """Give b and c, of parameters that end with them."""
    return _MOST * np.tanh(parameters[-2:] / _MOST)


def _wrong_labels(ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Share of each label among a class's wrong ones (..., K, K), and the log odds of any."""
    odds = np.maximum(ratios.sum(axis=-1), 1e-9)
    return ratios / odds[..., None], np.log(odds)


def _how_alike(T: np.ndarray, draws: np.ndarray) -> tuple[float, float]:
    """How alike a class's wrong labels are, and the noise of classes: as much as explains T best.

    Empirical Bayes: T's deviations from being alike are part chance, as in the draws (n, K, K).
    First in labels of each class for which the prior stands, then in 1 / variance of log odds.
    """
    K, off = len(T), ~np.eye(len(T), dtype=bool)
    (shares, log_odds), (drawn_shares, drawn_log_odds) = (
        _wrong_labels(values * off / np.diagonal(values, axis1=-2, axis2=-1)[..., None])
        for values in (T, draws)
    )

    def strength(parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> float:
        """Of the largest likelihood of deviations, given drawn ones and their prior covariance."""
        likelihood = np.zeros(len(_STRENGTHS))
        for apart, drawn, prior in parts:
            by_chance = np.cov(drawn.T).reshape(prior.shape) + 1e-9 * np.eye(len(prior))
            spread, axes = eigh(prior, by_chance)
            variance = 1 + spread / _STRENGTHS[:, None]
            likelihood -= (np.log(variance) + (apart @ axes) ** 2 / variance).sum(axis=1)
        return float(_STRENGTHS[likelihood.argmax()])

    u, others = 1 / (K - 1), [np.flatnonzero(row)[:-1] for row in off]  # the last follows
    prior = u * np.eye(K - 2) - u**2
    of_rows = [
        (shares[k, some] - u, drawn_shares[:, k, some], prior) for k, some in enumerate(others)
    ]
    contrasts = np.linalg.svd(np.full((1, K), 1.0))[2][1:].T  # what the mean does not tell
    of_classes = (log_odds @ contrasts, drawn_log_odds @ contrasts, np.eye(K - 1))
    return strength(of_rows) if K > 2 else 0.0, strength([of_classes])


def _transition(ratios: np.ndarray) -> np.ndarray:
    """T (..., K, K) of ``T[k, j] / T[k, k]``, whose diagonal is given as 0."""
    raw = ratios + np.eye(ratios.shape[-1])
    return raw / raw.sum(axis=-1, keepdims=True)
