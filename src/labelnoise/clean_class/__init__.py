"""The model of the clean class: h(x) = P(clean class | features, labels of neighbours), and T.

`evidence` scores each class without the example's own label, `model` finds h and T together,
`dependence` tests whether noise depends on the example, and `estimate` decides between the T of
this model and the T of the triples. `posterior` adds the example's own label.
"""

from labelnoise.clean_class.estimate import CleanClass, fit_clean_class, trust_triples
from labelnoise.clean_class.posterior import (
    PartMatrices,
    counted_joint,
    tilted,
    transition_given,
)

__all__ = [
    "CleanClass",
    "PartMatrices",
    "counted_joint",
    "fit_clean_class",
    "tilted",
    "transition_given",
    "trust_triples",
]
