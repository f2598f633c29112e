"""From features, noisy labels, neighbours and the triples' T to the model of the clean class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from labelnoise._arrays import HOST, Arrays
from labelnoise.clean_class.dependence import Case, agreement_fall, decide
from labelnoise.clean_class.evidence import (
    ENOUGH,
    FOLDS,
    Evidence,
    Sample,
    Voters,
    collect,
    ordered,
    sample,
)
from labelnoise.clean_class.model import Model, covariance_of_ratios, fit, start_from
from labelnoise.clean_class.posterior import counted_joint, tilted

UNCLEAR = 0.9  # of a row's diagonal: another entry as large casts doubt on the start
AT_BOUND = 1e-3  # ratios below it are at their bound 0
DRAWS = 500
START_DIGITS = 4  # of the triples' T
MOST_RATIOS = 2500  # for an interval

Point = tuple[np.ndarray, np.ndarray]
"""T (K, K) and the class prior (K,)."""


@dataclass(frozen=True, eq=False)
class CleanClass:
    """What features and labels say of the clean class of each example, and T."""

    transition_matrix: np.ndarray
    """(K, K)"""
    class_prior: np.ndarray
    labels: np.ndarray
    """(N,) class numbers of the examples."""
    posterior: np.ndarray
    """(N, K) float32 P(clean class | features, neighbours, own label); adds up to T and prior."""
    given_h: Point
    """T and class prior if all that features predict is overlap."""
    of_triples: Point
    """T and class prior if all confusion of neighbours is noise."""
    case: Case
    draws: np.ndarray | None
    """(DRAWS, K, K) values of the T given h that sampling allows; None for very many classes."""
    voters: Voters | None = None
    """None, as the next two, in one that was read from a file: it predicts no new examples."""
    classes: np.ndarray | None = None
    """Order of the classes in `voters` and `model`."""
    model: Model | None = None

    @property
    def noise_rate(self) -> float:
        """Share of wrong labels: the mean of 1 - P(own label is right)."""
        return float(1 - self.class_prior @ np.diag(self.transition_matrix))

    def predict_proba(self, X: np.ndarray, neighbors: np.ndarray) -> np.ndarray:
        """(M, K) h of new examples, given their neighbours (M, k) among the fitted ones."""
        assert self.voters is not None
        assert self.classes is not None
        assert self.model is not None
        scores = self.voters.evidence(X, neighbors)
        h = self.voters.arrays.get(self.model.h(scores, self.voters.arrays))
        return h[np.argsort(self.classes)].T


def fit_clean_class(
    X: np.ndarray,
    labels: np.ndarray,
    neighbors: np.ndarray,
    of_triples: Point,
    *,
    share: float | None = None,
    sources: np.ndarray | None = None,
    progress: Callable[[int, int], None] | None = None,
    arrays: Arrays = HOST,
) -> CleanClass:
    """Fit h and T to features X (N, d), labels (N,) and neighbours (N, k), from the triples' T.

    `share` is that of the triples' T, where it is given: 1 makes the posterior add up to it.

    Notes
    -----
    A linear model, trained with the triples' T as a last layer on folds without the example,
    scores its clean class; its neighbours vote. h is a softmax of these scores with few slopes,
    and slopes and T together maximise the likelihood of the labels. With the T that is found, all
    is done once more. T is then counted from P(clean class | h, own label). If the likelihood says
    that noise depends on the example, T moves towards that of the triples, as
    `labelnoise.clean_class.dependence` says.
    """
    K, n = len(of_triples[0]), len(labels)
    order, classes = ordered(X, labels, K)
    number = np.argsort(classes)
    both = np.ix_(classes, classes)
    # The search magnifies the last digits of its start, which depend on the order of classes.
    T, prior = (part.round(START_DIGITS) for part in (of_triples[0][both], of_triples[1][classes]))
    T /= T.sum(axis=1, keepdims=True)
    data = sample(X, number[labels], neighbors, order, sources, arrays)
    step = _counter(progress, 2 * FOLDS + 1)
    found, model, voters = _two_rounds(data, T, T, step)
    if (np.sort(model.transition_matrix, axis=1)[:, -2:] @ [-1, UNCLEAR] < 0).any():
        # The triples' T may have led astray: a T of symmetric noise may not.
        right = max(float(prior @ np.diag(T)), 1.05 / K)
        even = np.where(np.eye(K, dtype=bool), right, (1 - right) / (K - 1))
        other = _two_rounds(data, even, T, lambda: None)
        if other[1].log_likelihood > model.log_likelihood:
            found, model, voters = other
    case, model, by_class = decide(found, model, T, agreement_fall(data.labels, neighbors))
    step()
    if share is not None:
        case = replace(case, share=share)
    posterior = np.empty((n, K), np.float32)
    posterior[order] = arrays.get(by_class).T[:, number]
    joint = counted_joint(posterior, labels, K) / n
    given_h = _rows_and_mass(joint, model.transition_matrix[np.ix_(number, number)])
    draws = _draws(found, model)
    if draws is not None:
        draws = draws[:, number][:, :, number]
        draws += given_h[0] - draws.mean(axis=0)
        draws = np.clip(draws, 0, 1)
    point = given_h
    if case.share:
        joint = (1 - case.share) * joint + case.share * _joint_of(of_triples, labels)
        posterior, point = _added_up(posterior, labels, joint, of_triples)
    return CleanClass(
        *point, labels, posterior, given_h, of_triples, case, draws, voters, classes, model
    )


def trust_triples(found: CleanClass) -> CleanClass:
    """Give the same model with the T of the triples, to which the posterior then adds up."""
    labels, of_triples = found.labels, found.of_triples
    joint = _joint_of(of_triples, labels)
    posterior, (T, prior) = _added_up(found.posterior, labels, joint, of_triples)
    return replace(
        found,
        transition_matrix=T,
        class_prior=prior,
        posterior=posterior,
        case=replace(found.case, share=1.0),
    )


def _added_up(
    posterior: np.ndarray, labels: np.ndarray, joint: np.ndarray, of_triples: Point
) -> tuple[np.ndarray, Point]:
    """The posterior tilted to a joint (K, K), and the T and class prior that it adds up to."""
    posterior = tilted(posterior, labels, joint)
    counted = counted_joint(posterior, labels, len(joint)) / len(labels)
    return posterior, _rows_and_mass(counted, of_triples[0])


def _joint_of(point: Point, labels: np.ndarray) -> np.ndarray:
    """(K, K) P(clean, label) of T and a class prior, with the label shares that were given."""
    T, prior = point
    joint = prior[:, None] * T
    given = np.bincount(labels, minlength=len(prior)) / len(labels)
    return joint * given / np.maximum(joint.sum(axis=0), 1e-300)


def _two_rounds(
    data: Sample, T: np.ndarray, expected: np.ndarray, step: Callable[[], None]
) -> tuple[Evidence, Model, Voters]:
    """Evidence with T, a model, evidence with the T of this model, and the model again."""
    n, K = len(data.labels), len(T)
    every = 1 + n // (ENOUGH * K)
    first, _ = collect(data, T, step, every)
    model = fit(first, start_from(first, T), expected)
    found, voters = collect(data, model.transition_matrix, step)
    return found, fit(found, model, expected), voters


def _rows_and_mass(joint: np.ndarray, otherwise: np.ndarray) -> Point:
    """T, with the rows of another where a class has no mass, and the class prior."""
    mass = joint.sum(axis=1)
    T = np.where(mass[:, None] > 0, joint / np.where(mass > 0, mass, 1)[:, None], otherwise)
    return T / T.sum(axis=1, keepdims=True), mass / mass.sum()


def _draws(data: Evidence, model: Model) -> np.ndarray | None:
    """(DRAWS, K, K) values of T, normal around the ratios; those at their bound vary above it."""
    K = len(model.ratios)
    off = ~np.eye(K, dtype=bool)
    if off.sum() > MOST_RATIOS:
        return None
    found = model.ratios[off]
    covariance, information = covariance_of_ratios(data, model, AT_BOUND)
    normal = np.random.default_rng(0).standard_normal((DRAWS, len(found)))
    free = found > AT_BOUND
    drawn = found + np.abs(normal) / np.sqrt(information)
    drawn[:, free] = found[free] + normal[:, free] @ np.linalg.cholesky(covariance).T
    raw = np.zeros((DRAWS, K, K))
    raw[:, off] = np.clip(drawn, 0, 1)
    raw[:, ~off] = 1
    return raw / raw.sum(axis=2, keepdims=True)


def _counter(progress: Callable[[int, int], None] | None, total: int) -> Callable[[], None]:
    done: Iterator[int] = iter(range(1, total + 1))
    return (lambda: progress(next(done), total)) if progress else lambda: None
