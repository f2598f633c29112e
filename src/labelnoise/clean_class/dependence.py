"""Does noise depend on the example? And where between its two ends is T then?

Features cannot tell noise on hard examples from classes that overlap. T given h takes all that
features predict for overlap; the T of the triples takes all confusion for noise. The truth lies
between the two. One rule with three cases:

- noise depends on the class alone: T given h;
- it depends on the example: the share of the triples' T is the root of the noise rate given h;
- it does, and classes have no clear examples, or noise is on unclear examples while neighbours
  agree equally at every rank (so that they hardly differ in class): the T of the triples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from labelnoise.clean_class.evidence import Evidence
from labelnoise.clean_class.model import Dependence, Model, explained, fit

START_OF_B = 0.5  # a search from 0 may stop at once: the likelihood is flat there
SHOWN = 6.5  # log-likelihood gained by b and c: by chance in 1 of 700
LEAST_EFFECT = 0.15  # of b or c: with very many examples, misfit gains as much likelihood
CLEAREST_SHARE = 0.05  # of each class's examples
CLEAR = 0.9  # chance that they are of their class
FLAT = 0.02  # relative fall of neighbours' agreement, from ranks 1-2 to the furthest third


@dataclass(frozen=True)
class Case:
    """What noise seems to depend on, and the share of the triples' T that follows."""

    gain: float
    """Log-likelihood gained if noise may depend on the example."""
    b: float
    """Logarithm of the odds of a wrong label at the least clear example over the clearest."""
    c: float
    """Power of the probability of a class in the odds of its label, where it is wrong."""
    clearest: float
    """Chance that a class's clearest examples are of it, for the class with the least."""
    fall: float
    """Relative fall of the agreement of neighbours' labels, from near to far."""
    share: float
    """Of the triples' T, from 0 to 1."""
    predicted: float = 0.0
    """Share of the labels that h, which has not seen them, predicts."""

    @property
    def depends(self) -> bool:
        """Whether the labels show that noise depends on the example."""
        return self.gain > SHOWN and max(self.b, self.c) > LEAST_EFFECT

    @property
    def clear(self) -> bool:
        """Whether each class has clear examples."""
        return self.clearest >= CLEAR


def decide(
    data: Evidence, model: Model, expected: np.ndarray, fall: float
) -> tuple[Case, Model, Any]:
    """The case, the model where noise depends on the class alone, and its posterior (K, N)."""
    h, posterior = explained(data, model)
    depending = fit(data, replace(model, b=START_OF_B), expected, Dependence.of(h, data.arrays))
    gain = depending.log_likelihood - model.log_likelihood
    if gain > SHOWN:  # or the search for `model` stopped early
        again = fit(data, replace(depending, b=0.0, c=0.0), expected)
        if again.log_likelihood > model.log_likelihood:
            gain += model.log_likelihood - again.log_likelihood
            model = again
            h, posterior = explained(data, model)
    mass = data.arrays.get(posterior.sum(axis=1, dtype=data.arrays.xp.float64))
    clearest = _clearest(data.arrays.get(h), mass)
    likely = data.arrays.get(h.argmax(axis=0))
    predicted = float((likely == data.labels).mean())
    case = Case(gain, depending.b, depending.c, clearest, fall, 0.0, predicted)
    if case.depends:
        right = data.arrays.get(posterior[data.labels, np.arange(len(data.labels))])
        flat = fall < FLAT and case.b > 0
        share = 1.0 if flat or not case.clear else float(np.sqrt(max(1 - right.mean(), 0)))
        case = replace(case, share=share)
    return case, model, posterior


def agreement_fall(labels: np.ndarray, neighbors: np.ndarray) -> float:
    """Relative fall of the share of equal labels from the nearest two to the furthest third."""
    same = labels[neighbors] == labels[:, None]
    far = max(2, neighbors.shape[1] // 3)
    near = float(same[:, :2].mean())
    return (near - float(same[:, far:].mean())) / max(near, 1e-12)


def _clearest(h: np.ndarray, mass: np.ndarray) -> float:
    """Mean h of the clearest examples of a class: the least among the classes that occur."""
    n = h.shape[1]
    counts = np.maximum((CLEAREST_SHARE * mass).astype(int), 1)
    occurring = np.flatnonzero(mass >= min(5.0, mass.max()))
    means = [np.partition(h[k], n - counts[k])[n - counts[k] :].mean() for k in occurring]
    return min(float(min(means)), 1.0)
