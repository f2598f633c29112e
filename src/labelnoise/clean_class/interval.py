"""Confidence intervals of the T given h, and of a T between the two ends."""

from __future__ import annotations

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.clean_class.estimate import AT_BOUND, CleanClass
from labelnoise.intervals import ConfidenceInterval


def clean_class_interval(
    found: CleanClass,
    labels: np.ndarray,
    level: float,
    of_triples: ConfidenceInterval | None = None,
) -> ConfidenceInterval:
    """Intervals of T, the class prior and the noise rate: quantiles of the draws.

    With intervals `of_triples`, each reaches over both ends and contains the estimate.
    """
    if not 0 < level < 1:
        raise LabelNoiseError(f"Expected 0 < level < 1, but level = {level}")
    if found.draws is None:
        raise LabelNoiseError(
            f"Expected about 50 classes at most for intervals of T given the features, but there "
            f"are {len(found.class_prior)}: use refine=False"
        )
    T, n = found.draws, len(labels)
    shares = np.bincount(labels, minlength=len(found.class_prior)) / n
    drawn = np.random.default_rng(0).multinomial(n, shares, len(T)) / n
    prior = (drawn[:, None] @ np.linalg.pinv(T))[:, 0].clip(0)
    prior /= prior.sum(axis=1, keepdims=True)
    rate = (1 - (prior * np.diagonal(T, axis1=1, axis2=2)).sum(axis=1)).clip(0)
    tails = [(1 - level) / 2, (1 + level) / 2]
    ends = [np.quantile(values, tails, axis=0) for values in (T, prior, rate)]
    boundary = found.given_h[0] < AT_BOUND
    ends[0][0, boundary] = 0
    estimate = found.transition_matrix, found.class_prior, found.noise_rate
    others = [(value, value) for value in estimate]
    if of_triples is not None:
        of_T, of_prior, of_rate = (
            of_triples.transition_matrix,
            of_triples.class_prior,
            of_triples.noise_rate,
        )
        others = [
            (np.minimum(value, end[0]), np.maximum(value, end[1]))
            for value, end in zip(estimate, (of_T, of_prior, of_rate), strict=True)
        ]
    spread = [
        np.stack([np.minimum(mine[0], low), np.maximum(mine[1], high)])
        for mine, (low, high) in zip(ends, others, strict=True)
    ]
    method = "information" if of_triples is None else "both ends"
    return ConfidenceInterval(level, *spread, method, boundary)
