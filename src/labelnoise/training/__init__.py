"""Learning with noisy labels: every method of the paper's tables on one training loop."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labelnoise.training.classifier import Classifier
    from labelnoise.training.engine import Run
    from labelnoise.training.methods import METHODS, Method, method_named
    from labelnoise.training.networks import NETWORKS, build_network
    from labelnoise.training.recipes import PLANS, RECIPES, Recipe, plan_named
    from labelnoise.training.schedules import Plan, Schedule
    from labelnoise.training.steps import Objective
    from labelnoise.training.trained import TrainingResult, train

__all__ = [
    "METHODS",
    "NETWORKS",
    "PLANS",
    "RECIPES",
    "Classifier",
    "Method",
    "Objective",
    "Plan",
    "Recipe",
    "Run",
    "Schedule",
    "TrainingResult",
    "build_network",
    "method_named",
    "plan_named",
    "train",
]

# Imported when first asked for: recipes and plans need no PyTorch, which takes a second.
_HOMES = {
    "classifier": ("Classifier",),
    "engine": ("Run",),
    "methods": ("METHODS", "Method", "method_named"),
    "networks": ("NETWORKS", "build_network"),
    "recipes": ("PLANS", "RECIPES", "Recipe", "plan_named"),
    "schedules": ("Plan", "Schedule"),
    "steps": ("Objective",),
    "trained": ("TrainingResult", "train"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            try:
                return getattr(import_module(f"labelnoise.training.{home}"), name)
            except ModuleNotFoundError as error:
                from labelnoise.io.packages import install

                raise ImportError(
                    f"Expected PyTorch to be installed, but it is not: {install('torch')}"
                ) from error
    raise AttributeError(f"module 'labelnoise.training' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
