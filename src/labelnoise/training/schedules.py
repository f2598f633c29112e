"""How long to train, and how fast: the paper's schedules by name, and short ones."""

from __future__ import annotations

from dataclasses import dataclass

from labelnoise._errors import LabelNoiseError


@dataclass(frozen=True)
class Schedule:
    """Learning rates, each for a number of epochs, and what goes with them.

    Parameters
    ----------
    rates : tuple of (learning rate, epochs)
        In order.
    batch_size : int
        Examples in a step. An incomplete last batch is left out of its epoch.
    weight_decay : float
        Of SGD, whose momentum is 0.9.
    balanced_batches : int, optional
        Make an epoch of so many batches, in which each label occurs equally often. By default
        an epoch shows each example once.
    augment : bool, default=True
        Crop and mirror the images at random. Without, a network soon knows its labels by heart.
    """

    rates: tuple[tuple[float, int], ...]
    batch_size: int = 128
    weight_decay: float = 5e-4
    balanced_batches: int | None = None
    augment: bool = True

    @property
    def n_epochs(self) -> int:
        """Number of epochs."""
        return sum(epochs for _, epochs in self.rates)

    def rate(self, epoch: int) -> float:
        """Learning rate of an epoch; the first is 0."""
        for rate, epochs in self.rates:
            if epoch < epochs:
                return rate
            epoch -= epochs
        raise IndexError(epoch)


@dataclass(frozen=True)
class Plan:
    """The schedules of a method's trainings: each begins with fresh weights.

    Parameters
    ----------
    first : Schedule
        Of the model that gives posteriors or representations to start from: stage 1 of the
        paper's flow, and what anchor points are looked for with.
    second : Schedule
        Of stage 2 of the paper's flow.
    final : Schedule
        Of the model that is the result; the same for every method.
    """

    first: Schedule
    second: Schedule
    final: Schedule


def _clothing() -> Schedule:
    rates = ((0.01, 25), (0.001, 25), (1e-4, 15), (1e-5, 15))
    return Schedule(rates, batch_size=32, weight_decay=1e-3, balanced_batches=1000)


def _ramp(n_epochs: int) -> Schedule:
    """An epoch to warm up, then from 0.1 straight down to 0: more is learnt in a few epochs."""
    falling = [0.1 * (n_epochs - epoch - 0.5) / (n_epochs - 1) for epoch in range(1, n_epochs)]
    return Schedule(((0.04, 1), *((rate, 1) for rate in falling)), batch_size=256)


PLANS = {
    "cifar10": Plan(
        first=Schedule(((0.1, 20), (0.01, 20))),
        second=Schedule(((0.1, 20), (0.01, 20))),
        final=Schedule(((0.1, 60), (0.01, 60), (0.001, 60))),
    ),
    "cifar100": Plan(
        first=Schedule(((0.1, 30), (0.01, 30))),
        second=Schedule(((0.1, 30), (0.01, 30))),
        final=Schedule(((0.1, 30), (0.01, 30), (0.001, 30))),
    ),
    "clothing1m": Plan(first=_clothing(), second=_clothing(), final=_clothing()),
    "short": Plan(
        first=Schedule(((0.1, 8), (0.01, 4)), batch_size=256),
        second=Schedule(((0.1, 8), (0.01, 4)), batch_size=256),
        final=Schedule(((0.1, 20), (0.01, 12), (0.001, 8)), batch_size=256),
    ),
    "brief": Plan(first=_ramp(10), second=_ramp(10), final=_ramp(18)),
}


def plan_named(name: str) -> Plan:
    """Look up a plan: the paper's "cifar10", "cifar100", "clothing1m", or "short", "brief".

    The paper's last 0.1/0.01/0.001 for 60 epochs each become 20, 12 and 8 in "short", its
    40 epochs before become 12, and the batch 256: an eighth of the time. In "brief" they become
    18 and 10 epochs of a rate that falls from 0.1 to 0.
    """
    if name not in PLANS:
        raise LabelNoiseError(f"Expected plan to be one of {tuple(PLANS)}, but it is {name!r}")
    return PLANS[name]
