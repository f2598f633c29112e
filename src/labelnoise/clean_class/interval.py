"""Confidence intervals of the T given h, and of a T between the two ends."""

from __future__ import annotations

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.clean_class.estimate import AT_BOUND, CleanClass
from labelnoise.intervals import ConfidenceInterval


def clean_class_interval(
    found: CleanClass, level: float, of_triples: ConfidenceInterval | None = None
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
    T, n = found.draws, len(found.labels)
    shares = np.bincount(found.labels, minlength=len(found.class_prior)) / n
    drawn = np.random.default_rng(0).multinomial(n, shares, len(T)) / n
    prior = (drawn[:, None] @ np.linalg.pinv(T))[:, 0].clip(0)
    prior /= prior.sum(axis=1, keepdims=True)
    rate = (1 - (prior * np.diagonal(T, axis1=1, axis2=2)).sum(axis=1)).clip(0)

    def ends(values: np.ndarray, estimate: np.ndarray, other: np.ndarray | None) -> np.ndarray:
        """(2, ...) quantiles, widened to hold the estimate and the other interval."""
        both = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
        held = [estimate] if other is None else [estimate, *other]
        low, high = np.min([both[0], *held], axis=0), np.max([both[1], *held], axis=0)
        return np.stack([low, high])

    boundary = found.given_h[0] < AT_BOUND
    others: tuple[np.ndarray | None, ...] = (None,) * 3
    if of_triples is not None:
        of_T, of_prior = of_triples.transition_matrix, of_triples.class_prior
        others = (of_T, of_prior, of_triples.noise_rate)
    of_T = ends(T, found.transition_matrix, others[0])
    of_T[0, boundary] = 0
    return ConfidenceInterval(
        level,
        of_T,
        ends(prior, found.class_prior, others[1]),
        ends(rate, np.array(found.noise_rate), others[2]),
        "information" if of_triples is None else "both ends",
        boundary,
    )
