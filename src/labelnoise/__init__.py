"""How wrong are your labels? Estimate the noise transition matrix, and undo the noise.

``T[i, j]`` is the chance that an example of true class i was labelled j: rows are clean
classes, and sum to 1.
"""

__version__ = "0.1.0.dev0"

from labelnoise._errors import LabelNoiseError, LabelNoiseWarning
from labelnoise.consensus import Consensus
from labelnoise.hoc import HOC
from labelnoise.scores import feasibility, from_cleanlab, to_cleanlab, transition_error

__all__ = [
    "HOC",
    "Consensus",
    "LabelNoiseError",
    "LabelNoiseWarning",
    "feasibility",
    "from_cleanlab",
    "to_cleanlab",
    "transition_error",
]
