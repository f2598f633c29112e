"""How wrong are your labels? Estimate the noise transition matrix, and undo the noise.

``T[i, j]`` is the chance that an example of true class i was labelled j: rows are clean
classes, and sum to 1.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from labelnoise._errors import LabelNoiseError, LabelNoiseWarning
    from labelnoise.consensus import Consensus
    from labelnoise.estimators.annotators import AnnotatorHOC
    from labelnoise.estimators.groups import GroupHOC
    from labelnoise.estimators.local import LocalHOC
    from labelnoise.forward import ForwardClassifier
    from labelnoise.hoc import HOC
    from labelnoise.scores import feasibility, from_cleanlab, to_cleanlab, transition_error

__all__ = [
    "HOC",
    "AnnotatorHOC",
    "Consensus",
    "ForwardClassifier",
    "GroupHOC",
    "LabelNoiseError",
    "LabelNoiseWarning",
    "LocalHOC",
    "feasibility",
    "from_cleanlab",
    "to_cleanlab",
    "transition_error",
]

# Imported when first asked for: scikit-learn takes a second, and `labelnoise --help` none.
_HOMES = {
    "HOC": "hoc",
    "AnnotatorHOC": "estimators.annotators",
    "Consensus": "consensus",
    "ForwardClassifier": "forward",
    "GroupHOC": "estimators.groups",
    "LabelNoiseError": "_errors",
    "LabelNoiseWarning": "_errors",
    "LocalHOC": "estimators.local",
    "feasibility": "scores",
    "from_cleanlab": "scores",
    "to_cleanlab": "scores",
    "transition_error": "scores",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"labelnoise.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'labelnoise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
