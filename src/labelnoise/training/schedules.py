"""How long and how fast to train: schedules, plans of several, and where in one a step is."""

from __future__ import annotations

from dataclasses import dataclass

Length = int | float
"""Of a warm-up or a ramp: a whole number counts steps, a fraction is a share of the training."""


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
        Strength of the l2 penalty.
    balanced_batches : int, optional
        Make an epoch of this many batches, in which each label occurs equally often. By default
        an epoch shows each example once.
    augment : bool, default=True
        Crop and mirror images at random.
    optimizer : {"sgd", "adam"}
        Which optimiser.
    momentum : float
        Of SGD.
    falls_from : float, default=1
        After this share of the epochs the rate falls in a straight line to 0.
    """

    rates: tuple[tuple[float, int], ...]
    batch_size: int = 128
    weight_decay: float = 5e-4
    balanced_batches: int | None = None
    augment: bool = True
    optimizer: str = "sgd"
    momentum: float = 0.9
    falls_from: float = 1.0

    @property
    def n_epochs(self) -> int:
        """Number of epochs."""
        return sum(epochs for _, epochs in self.rates)

    def steps_per_epoch(self, n_examples: int) -> int:
        """Count the batches of an epoch."""
        return self.balanced_batches or n_examples // min(self.batch_size, n_examples)

    def rate(self, epoch: float) -> float:
        """Learning rate after this many epochs, of which the last may be a part."""
        fall, left = (1 - self.falls_from) * self.n_epochs, self.n_epochs - epoch
        for rate, epochs in self.rates:
            if epoch < epochs:
                return rate * min(1.0, left / fall) if fall else rate
            epoch -= epochs
        raise IndexError(epoch)


@dataclass(frozen=True)
class Plan:
    """The schedules of a method's trainings.

    Parameters
    ----------
    first : Schedule
        Of the network that gives posteriors or representations to start from: stage 1 of the
        paper's flow, and the network of the anchor points.
    second : Schedule
        Of stage 2 of the paper's flow.
    final : Schedule
        Of the network that is the result. A method's recipe may change all but its epochs.
    summary : str
        What the plan is for, in a line.
    """

    first: Schedule
    second: Schedule
    final: Schedule
    summary: str = ""


@dataclass(frozen=True)
class Moment:
    """Where in a training a step is."""

    step: int
    """The first is 0."""
    n_steps: int
    steps_per_epoch: int

    def passed(self, length: Length, after: Length = 0) -> float:
        """Share of a length that has passed, from 0 to 1, if it began after another one."""
        length, after = (
            value if isinstance(value, int) else round(value * self.n_steps)
            for value in (length, after)
        )
        return min(1.0, max(0, self.step - after) / length) if length else float(self.step >= after)
