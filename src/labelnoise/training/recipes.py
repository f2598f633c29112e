"""Recipes: how each method is trained, as its authors train it; and plans, how long.

A recipe holds the facts of a method's last training. What it leaves open, the plan decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from labelnoise._errors import LabelNoiseError
from labelnoise.training.schedules import Length, Plan, Schedule


@dataclass(frozen=True)
class Recipe:
    """How a method is trained, where that differs from its plan.

    Parameters
    ----------
    summary : str
        The method, in a line.
    source : str
        Whose recipe it is.
    warm_up : int or float
        Steps (int) or share of the training (float) with plain cross-entropy on all examples,
        before what is the method's own begins. For Co-teaching+: with plain Co-teaching.
    ramp : int or float
        Steps, or share, until the method has its full strength.
    optimizer, rate, batch_size, momentum, weight_decay, falls_from
        As in `Schedule`; None leaves it to the plan.
    published_steps : int, optional
        Steps of the published training, where it goes on from another one with tiny steps: with
        fewer steps the rate is higher, so that it gets as far.
    """

    summary: str = field(repr=False)
    source: str = field(default="", repr=False)
    warm_up: Length = 0
    ramp: Length = 0
    optimizer: str | None = None
    rate: float | None = None
    batch_size: int | None = None
    momentum: float | None = None
    weight_decay: float | None = None
    falls_from: float | None = None
    published_steps: int | None = None

    def schedule(self, plan: Schedule, n_examples: int) -> Schedule:
        """Apply the recipe to a schedule of the plan; the number of epochs stays."""
        names = ("optimizer", "batch_size", "momentum", "weight_decay", "falls_from")
        own = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        schedule = replace(plan, **own)
        if self.rate is None:
            return schedule
        rate = self.rate
        if self.published_steps is not None:
            n_steps = schedule.n_epochs * schedule.steps_per_epoch(n_examples)
            rate *= self.published_steps / n_steps
        return replace(schedule, rates=((rate, schedule.n_epochs),))


_PAIRS: dict[str, Any] = {
    # Adam, and 10 epochs of 390 steps until the noise rate is left out: with SGD at .1, or a
    # ramp of 1,000 steps, both networks soon answer one label for everything, and keep it.
    "optimizer": "adam",
    "rate": 1e-3,
    "batch_size": 128,
    "weight_decay": 0.0,
    "falls_from": 0.4,
    "ramp": 3900,
}
_REVISION: dict[str, Any] = {
    "optimizer": "adam",
    "rate": 5e-7,
    "weight_decay": 1e-4,
    "published_steps": 200 * 390,
}
_CORRECTED: Length = 0.05

RECIPES = {
    "ce": Recipe("Cross-entropy on the noisy labels."),
    "forward": Recipe(
        "Forward correction by the T of anchor points.", "Patrini et al., 2017", _CORRECTED
    ),
    "reweight": Recipe(
        "Importance reweighting by the T of anchor points.", "Liu and Tao, 2016", _CORRECTED
    ),
    "t-revision": Recipe(
        "Reweighting; then the same network goes on while T is revised.",
        "Xia et al., 2019",
        **_REVISION,
    ),
    "peer": Recipe(
        "Peer loss: the gain over answers paired at random.",
        "Liu and Guo, 2020; the rate is divided by 1 + alpha",
        ramp=1.0,
    ),
    "dmi": Recipe(
        "Mutual information by a determinant, from the best network of cross-entropy.",
        "Xu et al., 2019; best by held-out noisy labels",
        batch_size=256,
        rate=1e-6,
        falls_from=0.0,  # at full rate to the end, one training in three diverges
        published_steps=100 * 195,
    ),
    "gce": Recipe(
        "Generalised cross-entropy, between cross-entropy and absolute error.",
        "Zhang and Sabuncu, 2018; after cross-entropy, as its own start is slow",
        warm_up=0.1,
    ),
    "co-teaching": Recipe(
        "Two networks pick examples of small loss for each other.", "Han et al., 2018", **_PAIRS
    ),
    "co-teaching+": Recipe(
        "Co-teaching, later only among examples on which the networks disagree.",
        "Yu et al., 2019",
        warm_up=7800,
        **_PAIRS,
    ),
    "jocor": Recipe(
        "Two networks that agree, on the examples of small joint loss.",
        "Wei et al., 2020",
        **_PAIRS,
    ),
    "cores2": Recipe(
        "Confidence-regularised cross-entropy, later on the examples that pass a sieve.",
        "Cheng et al., 2021; the rate is divided by 1 + beta",
        warm_up=0.1,
        ramp=0.3,
        batch_size=64,
        momentum=0.0,
    ),
    "ptd-r-v": Recipe(
        "T-Revision with a T for each example, mixed from parts.",
        "Xia et al., 2020",
        **_REVISION,
    ),
    "hoc-global": Recipe(
        "Forward correction by HOC's T, estimated twice.", "Zhu, Song and Liu, 2021", _CORRECTED
    ),
    "hoc-local": Recipe(
        "The paper's three stages, the last with HOC's T of each neighbourhood.",
        "Zhu, Song and Liu, 2021",
        _CORRECTED,
    ),
}


def _clothing() -> Schedule:
    rates = ((0.01, 25), (0.001, 25), (1e-4, 15), (1e-5, 15))
    return Schedule(rates, batch_size=32, weight_decay=1e-3, balanced_batches=1000)


def _falling(n_epochs: int) -> Schedule:
    """An epoch to warm up, then from 0.1 straight down to 0: more is learnt in a few epochs."""
    rates = ((0.04, 1), (0.1, n_epochs - 1))
    return Schedule(rates, batch_size=256, falls_from=1 / n_epochs)


def _three_stages(summary: str, first: Schedule, final: Schedule) -> Plan:
    return Plan(first=first, second=first, final=final, summary=summary)


PLANS = {
    "features": _three_stages(
        "for rows of features and a small network: 10 epochs, then 30",
        first=Schedule(((0.01, 10),)),
        final=Schedule(((0.01, 20), (0.001, 10))),
    ),
    "cifar10": _three_stages(
        "the paper's for CIFAR-10: 40 epochs, 40, 180",
        first=Schedule(((0.1, 20), (0.01, 20))),
        final=Schedule(((0.1, 60), (0.01, 60), (0.001, 60))),
    ),
    "cifar100": _three_stages(
        "the paper's for CIFAR-100: 60 epochs, 60, 90",
        first=Schedule(((0.1, 30), (0.01, 30))),
        final=Schedule(((0.1, 30), (0.01, 30), (0.001, 30))),
    ),
    "clothing1m": _three_stages(
        "the paper's for Clothing1M: three times 80 epochs of balanced batches",
        first=_clothing(),
        final=_clothing(),
    ),
    "short": _three_stages(
        "for images, an eighth of the paper's time: 12 epochs, 12, 40, batch 256",
        first=Schedule(((0.1, 8), (0.01, 4)), batch_size=256),
        final=Schedule(((0.1, 20), (0.01, 12), (0.001, 8)), batch_size=256),
    ),
    "brief": _three_stages(
        "for images, as short as it gets: 10 epochs, 10, 18, batch 256",
        first=_falling(10),
        final=_falling(18),
    ),
}


def plan_named(name: str) -> Plan:
    """Look up a plan: one of `PLANS`."""
    if name not in PLANS:
        raise LabelNoiseError(f"Expected plan to be one of {tuple(PLANS)}, but it is {name!r}")
    return PLANS[name]
