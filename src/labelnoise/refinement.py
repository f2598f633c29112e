"""T from all that the features say, beside what triples of labels say.

Triples take the overlap of classes for noise. A model of the clean class takes noise that features
foretell for overlap. Where noise depends on the class alone, the model is right; where labels are
wrong on hard examples, or in some regions, the truth lies between the two, and how strongly noise
depends on how clear an example is tells which case it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit, softmax
from scipy.stats import rankdata
from threadpoolctl import threadpool_limits

from labelnoise._blocks import row_blocks, thread_count
from labelnoise._errors import LabelNoiseError
from labelnoise.diagnostics import Finding
from labelnoise.hoc import SCALES, SIGNS_OF_BIAS
from labelnoise.intervals import ConfidenceInterval
from labelnoise.linear import out_of_fold_scores

_FOLDS = 3
_C = 0.03  # of the linear model, as in `noisy_posteriors`
_UNIFORM = 0.1  # share of uniform noise in the T that the model of the clean class starts from
_VOTES_BEFORE = 0.1  # a vote for each class before neighbours are counted
_COMMON_PRECISION = 0.001  # of slopes a priori: classes may be as sharp as they are
_OWN_PRECISION = 3.0  # of a class's slope around the common one
_PRIOR_LABELS = (1.0, 10.0, 20.0)  # of a class, for which the triples' T stands: least, first, most
_UNIFORM_AGAIN = 0.02  # as _UNIFORM, when the model is trained again
_ROWS = 8192  # in a block
_ENOUGH = 200_000  # examples
_LEAST_MASS = 5.0  # examples of a class for it to have a row of its own
_SIGNIFICANT = (4.0, 7.0)  # log-likelihood: from the first on a dependence counts, in full at the
_LARGE = (0.15, 0.35)  # second; and so does the size of b
_ALIKE = (0.2, 0.3)  # and c
_SHARE_OF_HARD = 0.25  # of the triples' T, where noise grows with difficulty
_SHARE_OF_ALIKE = 0.5  # where wrong labels are of classes that an example resembles
_LEAST_LIKENESS = 1e-4
_MOST_INTERVAL_PARAMETERS = 3000
_DRAWS = 500
_MOST_OPERATIONS = 1e11  # for an information matrix; beyond it, of a part of the examples
_AT_BOUND = 1e-3
_DIGITS = 4  # of the T that a search starts from
_MOST = np.array([5.0, 1.0])  # b and c either way: few examples may seem to depend without limit
_NEAR = 0.02  # noise rates, for it not to matter which is right
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
    share: float
    """Of the triples' T in the result."""
    dependence: float
    """Logarithm of the odds of a wrong label at the least clear example over the clearest."""
    attraction: float
    """Power of a class's clean probability at an example in the odds of its label, if wrong."""
    evidence: float
    """Log-likelihood that is gained by both."""
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
        if of_triples is not None:
            others = of_triples.transition_matrix, of_triples.class_prior, of_triples.noise_rate
            ends = [
                np.stack([np.minimum(mine[0], other[0]), np.maximum(mine[1], other[1])])
                for mine, other in zip(ends, others, strict=True)
            ]
        boundary = self.of_features < _AT_BOUND
        caveat = "" if of_triples is None else "it reaches over two estimates: see refined"
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

    def finding(self) -> Finding:
        """Say which case was found."""
        estimates = (
            (self.of_features, self.prior_of_features),
            (self.of_triples, self.prior_of_triples),
        )
        found, shown = (1 - float(p @ np.diag(T)) for T, p in estimates)
        low, high = sorted((found, shown))
        factor = np.exp(abs(self.dependence))
        where = "is hard to tell" if self.dependence > 0 else "is foretold well"
        case = (
            f"Labels are wrong more often where the class {where} (odds times {factor:.1f} or more)"
            if abs(self.dependence) > _LARGE[0]
            else "Wrong labels are of classes that the example resembles"
        )
        sentence = (
            f"Noise does not seem to depend on how clear an example is, so the features tell "
            f"noise ({found:.1%}) from classes that overlap (triples alone show {shown:.1%})."
            if self.share == 0
            else f"{case}, which no method tells from classes that overlap: the truth is between "
            f"{low:.1%} and {high:.1%} wrong, and T is taken between the two. Some hundred "
            f"verified labels would tell."
        )
        ok = self.share == 0
        if not ok:
            chance = 0.0 if self.draws is None else np.ptp(self.interval(0.95).noise_rate)
            ok = bool(high - low < max(_NEAR, chance))
        return Finding("refined", ok, self.share, sentence)

    def allow_for(self, finding: Finding) -> Finding:
        """A finding about the triples does not touch the features' T."""
        if finding.ok or finding.name not in SIGNS_OF_BIAS or self.share > 0:
            return finding
        sentence = f"{finding.sentence} T was refined by the features, and allows for it."
        return replace(finding, ok=True, sentence=sentence)


def refine(
    X: np.ndarray,
    labels: np.ndarray,
    neighbors: np.ndarray,
    of_triples: np.ndarray,
    prior_of_triples: np.ndarray,
    *,
    sources: np.ndarray | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Refinement:
    """Refine the T of label triples by features X (N, d), neighbours (N, k) and labels (N,).

    Notes
    -----
    A linear model, trained with the triples' T as a last layer, tells the clean class of examples
    that it was not trained on. Neighbours then vote, each with the clean class that its features
    and its label suggest. The model of the clean class is a softmax of these scores, weighted by a
    slope for each, and class; slopes and T together maximise the likelihood of the labels. No
    score of an example has seen its own label. With the T that is found, all this is done again.
    Where the labels cannot tell, as in classes that are well apart, some more labels of each class,
    as the triples' T would have them, decide: 1 to 20, the more the wider T's intervals are.

    Then the odds of a wrong label j get a factor ``exp(b r + c u_j)``: r is the rank of the
    example from the clearest, -1/2, to the least clear, 1/2, and u_j how much it looks like j. If
    the likelihood says that b and c are not 0, T is the mean of this model's over the examples. As
    the form of the model alone tells such noise from overlap, it still finds too little of it, and
    the triples' T gets a share: a quarter for b > 0, half for c > 0, and for b < 0 the more the
    smaller b is.
    """
    direction = np.random.default_rng(0).standard_normal(X.shape[1])
    place = np.concatenate([X[rows] @ direction for rows in row_blocks(*X.shape)])
    # In an order of rows and of classes that is the data's own: both may come in any.
    ends = np.bincount(labels, minlength=len(of_triples)).cumsum()
    by_class = np.split(np.lexsort((place, labels)), ends[:-1])
    classes = np.argsort([place[rows[len(rows) // 2]] for rows in by_class])
    number = np.argsort(classes)
    # Rounded, as a search magnifies what classes in another order change in the last digits.
    T = np.round(of_triples[np.ix_(classes, classes)], _DIGITS)
    found = _refine_in_order(
        X,
        number[labels],
        neighbors,
        T / T.sum(axis=1, keepdims=True),
        prior_of_triples[classes],
        np.concatenate([by_class[k] for k in classes]),
        sources,
        progress,
    )
    return replace(found.reordered(number), of_triples=of_triples)


def _refine_in_order(
    X: np.ndarray,
    labels: np.ndarray,
    neighbors: np.ndarray,
    of_triples: np.ndarray,
    prior_of_triples: np.ndarray,
    order: np.ndarray,
    sources: np.ndarray | None,
    progress: Callable[[int, int], None] | None,
) -> Refinement:
    K = len(of_triples)
    steps = 2 * _FOLDS + 4
    done = iter(range(1, steps + 1))

    def step() -> None:
        if progress:
            progress(next(done), steps)

    T = (1 - _UNIFORM) * of_triples + _UNIFORM / K
    prepare = partial(_scores, X, labels, neighbors, order=order, sources=sources, step=step)
    every = 1 + len(labels) // _ENOUGH  # a T to start from needs no more
    model = _CleanModel(prepare(T)[:, ::every], labels[order[::every]], of_triples)
    fits = []
    for start in (np.full((K, K), 1 / K), T):
        fits.append(model.fit(model.start(start)))
        step()
    parameters, _ = model.fit_with_prior(max(fits, key=lambda fit: fit[1])[0])
    T = (1 - _UNIFORM_AGAIN) * model.result(parameters)[1] + _UNIFORM_AGAIN / K
    model = _CleanModel(prepare(T), labels[order], of_triples, model.prior_labels)
    parameters, value = model.fit_with_prior(model.fit(model.start(T))[0])
    step()
    clean, of_features, prior = model.result(parameters)
    dependence = _Dependence.of(clean)
    depending, gained = model.fit(np.append(parameters, [0, 0]), dependence, maxiter=80)
    step()
    b, c = _bounded(depending)
    evidence = gained - value
    significant = _between(evidence, _SIGNIFICANT)
    by_b, by_c = significant * _between(abs(b), _LARGE), significant * _between(c, _ALIKE)
    sure = max(by_b, by_c)
    if sure:
        mean = model.mean_transition(depending, dependence)
        of_features = (1 - sure) * of_features + sure * mean
    least = prior * len(labels) < _LEAST_MASS
    of_features[least] = of_triples[least]
    share = max(by_b * float(_SHARE_OF_HARD if b > 0 else -b / 2), by_c * _SHARE_OF_ALIKE)
    share = min(share, 1.0)
    return Refinement(
        of_features=of_features,
        prior_of_features=prior,
        of_triples=of_triples,
        prior_of_triples=prior_of_triples,
        labels=np.bincount(labels, minlength=K) / len(labels),
        n=len(labels),
        share=share,
        dependence=float(b),
        attraction=float(c),
        evidence=evidence,
        draws=model.draws(parameters),
    )


def _between(value: float, ends: tuple[float, float]) -> float:
    return float(np.clip((value - ends[0]) / (ends[1] - ends[0]), 0, 1))


@dataclass(frozen=True, eq=False)
class _Dependence:
    """What noise may depend on: how clear an example is, and which classes it resembles."""

    rank: np.ndarray
    """(N,) from -1/2, the clearest, to 1/2."""
    likeness: np.ndarray
    """(K, N) logarithm of the clean probability, of mean 0."""

    @classmethod
    def of(cls, clean: np.ndarray) -> _Dependence:
        # Equals have one rank: examples come sorted by label, of which it must not tell.
        rank = ((rankdata(-clean.max(axis=1)) - 0.5) / len(clean) - 0.5).astype(np.float32)
        likeness = np.log(clean.T + _LEAST_LIKENESS)
        return cls(rank, likeness - likeness.mean(axis=0))

    def odds(self, parameters: np.ndarray, rows: slice) -> np.ndarray:
        """(K, rows) factors on the odds of each label that is wrong."""
        b, c = _bounded(parameters).astype(np.float32)
        return np.exp(np.clip(b * self.rank[rows] + c * self.likeness[:, rows], -30, 30))


def _scores(
    X: np.ndarray,
    labels: np.ndarray,
    neighbors: np.ndarray,
    T: np.ndarray,
    *,
    order: np.ndarray,
    sources: np.ndarray | None,
    step: Callable[[], None],
) -> np.ndarray:
    """(m, N, K) log-scores of each clean class, in order: by features, by so many neighbours."""
    n, K = len(labels), len(T)
    fold = np.argsort(order) if sources is None else np.unique(sources, return_inverse=True)[1]
    linear = out_of_fold_scores(X, labels, T, _C, fold % _FOLDS, order, step)
    suggested = softmax(linear, axis=1) * T.T[labels].astype(np.float32)
    suggested /= suggested.sum(axis=1, keepdims=True)
    share = suggested.mean(axis=0, dtype=np.float64).astype(np.float32)
    before = _VOTES_BEFORE * K * share + 1e-6
    found, votes, counted = [linear], np.zeros((n, K), np.float32), 0
    for most in SCALES:
        if counted == neighbors.shape[1]:
            break
        for column in neighbors[:, counted:most].T:
            votes += suggested[column]
            counted += 1
        found.append(np.log(votes + before))
    result = np.stack([scores[order] for scores in found])
    result -= result.mean(axis=2, keepdims=True)
    return result


class _CleanModel:
    """``P(y | x) = sum_k h_k(x) T[k, y]``, h a softmax of slopes times scores, and intercepts.

    Parameters are slopes (m, K), intercepts (K,), the logits of ``r[k, j] = T[k, j] / T[k, k]``;
    and what b and c follow from, where the odds of a wrong label j have a factor
    ``exp(b * rank + c * likeness_j)``.
    """

    def __init__(
        self,
        scores: np.ndarray,
        labels: np.ndarray,
        of_triples: np.ndarray,
        prior_labels: float = _PRIOR_LABELS[1],
    ) -> None:
        K, self.expected, self.prior_labels = len(of_triples), of_triples, prior_labels
        # Labels are sorted, so that a block has one column of T.
        self.scores = np.ascontiguousarray(scores.transpose(0, 2, 1))
        self.ends = np.searchsorted(labels, np.arange(K + 1))
        self.m, self.K, self.n = len(scores), K, len(labels)
        self.off = ~np.eye(K, dtype=bool)
        self.n_slopes = self.m * K
        self.size = self.n_slopes + K * K

    def start(self, T: np.ndarray) -> np.ndarray:
        slopes = np.full((self.m, self.K), 0.6)
        slopes[0] = 2  # from classes that are told well: what only T can explain, T explains
        ratios = np.clip((T / np.diag(T)[:, None])[self.off], 1e-3, 0.97)
        return np.concatenate([slopes.ravel(), np.zeros(self.K), logit(ratios)])

    def blocks(self) -> Iterator[tuple[int, slice]]:
        for label in range(self.K):
            for first in range(self.ends[label], self.ends[label + 1], _ROWS):
                yield label, slice(first, min(first + _ROWS, self.ends[label + 1]))

    def unpack(self, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        ratios = np.zeros((self.K, self.K))
        ratios[self.off] = expit(parameters[self.n_slopes + self.K : self.size])
        slopes = parameters[: self.n_slopes].reshape(self.m, self.K)
        return slopes, parameters[self.n_slopes : self.n_slopes + self.K], ratios

    def clean(self, slopes: np.ndarray, intercepts: np.ndarray, rows: slice) -> np.ndarray:
        """(K, rows) h."""
        h = np.einsum("mk,mkn->kn", slopes.astype(np.float32), self.scores[:, :, rows])
        h += intercepts[:, None].astype(np.float32)
        h -= h.max(axis=0)
        np.exp(h, out=h)
        h /= h.sum(axis=0)
        h += _LEAST_CHANCE
        return h

    def fit(
        self, start: np.ndarray, dependence: _Dependence | None = None, maxiter: int = 200
    ) -> tuple[np.ndarray, float]:
        """Parameters of the largest penalised log-likelihood, and that."""
        threads = thread_count()
        blocks = list(self.blocks())

        def objective(parameters: np.ndarray) -> tuple[float, np.ndarray]:
            slopes, _, ratios = self.unpack(parameters)
            parts = pool.map(lambda block: self._sums(block, parameters, dependence), blocks)
            likelihood, *derivatives = (sum(values) for values in zip(*parts, strict=True))
            by_slopes, by_intercepts, by_ratios, by_b, by_c = derivatives
            common = slopes.mean(axis=1, keepdims=True)
            own = slopes - common
            penalty = (_COMMON_PRECISION * (common**2).sum() + _OWN_PRECISION * (own**2).sum()) / 2
            by_slopes = by_slopes - _COMMON_PRECISION * common / self.K - _OWN_PRECISION * own
            T = _transition(ratios)
            penalty -= self.prior_labels * (self.expected * np.log(T + 1e-12)).sum()
            by_ratios += self.prior_labels * (self.expected - T)
            by_logits = (by_ratios * (1 - ratios))[self.off]
            gradient = [by_slopes.ravel(), by_intercepts, by_logits]
            if dependence is not None:
                inner = 1 - (_bounded(parameters) / _MOST) ** 2
                gradient.append(inner * [by_b, by_c])
            return (penalty - likelihood) / self.n, -np.concatenate(gradient) / self.n

        options = {"maxiter": maxiter, "maxcor": 20, "ftol": 1e-7, "gtol": 1e-7}
        search: Any = {"jac": True, "method": "L-BFGS-B", "options": options}
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads) as pool:
            found = minimize(objective, start, **search)
        return found.x, -found.fun * self.n

    def fit_with_prior(self, start: np.ndarray) -> tuple[np.ndarray, float]:
        """Fit with a prior that is strong where the data leave T open, from a fit without.

        Open is what chance does to T, beside how far T is from that of the triples.
        """
        draws = self.draws(start)
        if draws is not None:
            least, _, most = _PRIOR_LABELS
            apart = ((self.result(start)[1] - self.expected) ** 2).sum()
            left_open = draws.var(axis=0).sum() / max(apart, 1e-12)
            # Rounded, as the draws' last digits depend on the number of threads.
            self.prior_labels = round(float(np.clip(most * left_open, least, most)), 2)
        return self.fit(start)

    def _sums(
        self,
        block: tuple[int, slice],
        parameters: np.ndarray,
        dependence: _Dependence | None,
    ) -> tuple:
        """Log-likelihood of a block and its derivatives, those by ratios times the ratios."""
        label, rows = block
        slopes, intercepts, ratios = self.unpack(parameters)
        h, r = self.clean(slopes, intercepts, rows), ratios.astype(np.float32)
        odds = np.ones((self.K, 1), np.float32)
        if dependence is not None:
            odds = dependence.odds(parameters, rows)
        total = r @ odds
        right = 1 / (1 + total)  # (K, rows or 1): chance that the label is the class
        chance = r[:, label, None] * odds[label] * right
        chance[label] = right[label]
        posterior = h * chance
        likely = posterior.sum(axis=0)
        posterior /= likely
        weight = posterior * right
        by_ratios = np.zeros((self.K, self.K))
        by_ratios[:, label] = posterior.sum(axis=1, dtype=np.float64)
        if dependence is None:
            by_ratios -= ratios * weight.sum(axis=1, dtype=np.float64)[:, None]
        else:
            by_ratios -= ratios * (weight @ odds.T)
        by_b = by_c = 0.0
        if dependence is not None:
            wrong, likeness = 1 - posterior[label], dependence.likeness[:, rows]
            by_b = float(dependence.rank[rows] @ (wrong - (weight * total).sum(axis=0)))
            by_c = float(likeness[label] @ wrong - (weight * (r @ (odds * likeness))).sum())
        posterior -= h
        by_slopes = np.einsum("kn,mkn->mk", posterior, self.scores[:, :, rows]).astype(float)
        by_intercepts = posterior.sum(axis=1, dtype=np.float64)
        likelihood = np.log(likely).sum(dtype=np.float64)
        return likelihood, by_slopes, by_intercepts, by_ratios, by_b, by_c

    def mean_transition(self, parameters: np.ndarray, dependence: _Dependence) -> np.ndarray:
        """(K, K) T on average over the examples of each class."""
        slopes, intercepts, ratios = self.unpack(parameters)
        joint, mass = np.zeros((self.K, self.K)), np.zeros(self.K)
        for _, rows in self.blocks():
            h = self.clean(slopes, intercepts, rows)
            odds = dependence.odds(parameters, rows)
            joint += ratios * ((h / (1 + ratios @ odds)) @ odds.T)
            mass += h.sum(axis=1, dtype=np.float64)
        T = joint / mass[:, None]
        T[~self.off] = 1 - T.sum(axis=1)
        return T

    def result(self, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """P(clean class) (N, K), T (K, K) and the class prior (K,)."""
        slopes, intercepts, ratios = self.unpack(parameters)
        T = _transition(ratios)
        clean, prior = np.empty((self.n, self.K), np.float32), np.zeros(self.K)
        for label, rows in self.blocks():
            h = self.clean(slopes, intercepts, rows)
            clean[rows] = h.T
            prior += _posterior(h, T[:, label])[0].sum(axis=1, dtype=np.float64)
        return clean, T, prior / self.n

    def draws(self, parameters: np.ndarray) -> np.ndarray | None:
        """(_DRAWS, K, K) values of T that the data allow; None for very many classes.

        Normal around the estimate, with the inverse of the information: the sum over examples of
        the outer product of derivatives, by ``r[k, j] = T[k, j] / T[k, k]`` instead of its logit.
        Of an r at its bound 0, the others take no notice.
        """
        if self.size > _MOST_INTERVAL_PARAMETERS:
            return None
        slopes, intercepts, ratios = self.unpack(parameters)
        T, first = _transition(ratios), self.n_slopes + self.K
        right = np.diag(T)[:, None].astype(np.float32)
        information = np.diag(np.full(self.size, 1e-2))
        information[np.diag_indices(self.n_slopes)] += _OWN_PRECISION
        every = 1 + int(self.n * self.size**2 / _MOST_OPERATIONS)
        for label, rows in self.blocks():
            rows = slice(rows.start, rows.stop, every)
            h = self.clean(slopes, intercepts, rows)
            posterior, likely = _posterior(h, T[:, label])
            by_ratios = np.repeat((-posterior * right)[:, None], self.K, axis=1)
            by_ratios[:, label] += h * right / likely
            derivatives = np.concatenate(
                [
                    ((posterior - h) * self.scores[:, :, rows]).reshape(self.n_slopes, -1),
                    posterior - h,
                    by_ratios[self.off],
                ]
            )
            information += every * (derivatives @ derivatives.T)
        found = ratios[self.off]
        own = self.prior_labels * self.expected[self.off] / np.maximum(found, _AT_BOUND) ** 2
        information[first:, first:] += np.diag(own)
        free = np.append(np.ones(first, bool), found > _AT_BOUND)
        covariance = np.linalg.inv(information[np.ix_(free, free)])[first:, first:]
        normal = np.random.default_rng(0).standard_normal((_DRAWS, len(found)))
        free = free[first:]
        drawn = found + np.abs(normal) / np.sqrt(np.diag(information)[first:])
        drawn[:, free] = found[free] + normal[:, free] @ np.linalg.cholesky(covariance).T
        values = np.zeros((_DRAWS, self.K, self.K))
        values[:, self.off] = np.where(free, np.clip(drawn, 0, 1), 0)
        total = 1 + values.sum(axis=2, keepdims=True)
        values[:, self.off] = np.clip(drawn, 0, 1)
        values[:, ~self.off] = 1
        return values / total


def _posterior(h: np.ndarray, chance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(K, rows) P(clean class | x, label), and P(label | x), by the label's column of T."""
    posterior = h * chance[:, None].astype(np.float32)
    likely = posterior.sum(axis=0)
    posterior /= likely
    return posterior, likely


def _bounded(parameters: np.ndarray) -> np.ndarray:
    """Give b and c, of parameters that end with them."""
    return _MOST * np.tanh(parameters[-2:] / _MOST)


def _transition(ratios: np.ndarray) -> np.ndarray:
    """T (..., K, K) of ``T[k, j] / T[k, k]``, whose diagonal is given as 0."""
    raw = ratios + np.eye(ratios.shape[-1])
    return raw / raw.sum(axis=-1, keepdims=True)
