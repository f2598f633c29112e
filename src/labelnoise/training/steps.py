"""A step of optimisation: objective, networks and optimiser; on a GPU a recorded one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from labelnoise.training.schedules import Moment, Schedule

_WARM_UP_STEPS = 3  # before a CUDA graph is captured, as PyTorch asks for


class Objective(nn.Module):
    """What a step minimises, given the logits of the networks.

    Buffers and parameters move to the device with it. Its parameters are learnt beside those of
    the networks (a revised T). The shapes in `forward` may not depend on values: selected
    examples have weight 1 and the others 0, so that a GPU can replay a whole step.
    """

    n_networks = 1
    n_steps_needed = 0
    """Steps until the objective has its full strength, where that does not scale."""
    rate_factor = 1.0
    """Factor of the learning rate, which `at_step` may change."""

    def at_step(self, moment: Moment) -> None:
        """Prepare for a step. What changes is kept in buffers and changed in place."""

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Give the loss of a batch: one (B, K) of logits a network, noisy labels, row numbers."""
        raise NotImplementedError

    def record(self) -> dict[str, Any]:
        """Entries for the log of an epoch beside loss and accuracy."""
        return {}


class Step(nn.Module):
    """Networks and objective as one module: inputs in, loss out."""

    def __init__(
        self, networks: Sequence[nn.Module], objective: Objective, device: torch.device
    ) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.objective = objective
        self._device = device

    def forward(self, inputs: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        """Give the loss of a batch."""
        with mixed_precision(self._device):
            logits = [network(inputs).float() for network in self.networks]
        loss: Tensor = self.objective(logits, labels, index)
        return loss


class Stepper:
    """Does one step of optimisation after another."""

    def __init__(
        self,
        step: Step,
        optimizer: torch.optim.Optimizer,
        parallel: nn.parallel.DistributedDataParallel | None = None,
    ) -> None:
        self._step, self._optimizer = step, optimizer
        self._module = parallel or step

    def at_step(self, moment: Moment, schedule: Schedule) -> None:
        """Set the objective and the learning rate."""
        objective = self._step.objective
        objective.at_step(moment)
        rate = schedule.rate(moment.step / moment.steps_per_epoch) * objective.rate_factor
        for group in self._optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def __call__(self, *batch: Tensor) -> Tensor:
        """Do a step; its loss."""
        self._optimizer.zero_grad()
        loss: Tensor = self._module(*batch)
        loss.backward()
        self._optimizer.step()
        return loss.detach()


class GraphStepper(Stepper):
    """Records the first step as a CUDA graph and replays it: one launch in place of thousands."""

    _graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, *batch: Tensor) -> Tensor:
        """Do a step; its loss."""
        if self._graph is None:
            self._capture(batch)
        assert self._graph is not None
        for static, given in zip(self._batch, batch, strict=True):
            static.copy_(given)
        self._graph.replay()
        return self._loss

    def _capture(self, batch: tuple[Tensor, ...]) -> None:
        self._batch = tuple(tensor.clone() for tensor in batch)
        before = {name: value.clone() for name, value in self._module.state_dict().items()}
        moments = {key: value.clone() for key, value in self._moments()}
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP_STEPS):
                super().__call__(*self._batch)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._loss = super().__call__(*self._batch)
        for name, value in self._module.state_dict().items():
            value.copy_(before[name])
        for key, value in self._moments():  # a moment that was not there starts at zero
            value.copy_(moments.get(key, torch.zeros_like(value)))

    def _moments(self) -> Iterator[tuple[tuple[int, str], Tensor]]:
        for number, state in enumerate(self._optimizer.state.values()):
            for name, value in state.items():
                if isinstance(value, Tensor):
                    yield (number, name), value


def mixed_precision(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """bfloat16 on a GPU; no cache of casts, which a CUDA graph would keep."""
    if device.type != "cuda":
        return contextlib.nullcontext()
    return torch.autocast("cuda", torch.bfloat16, cache_enabled=False)
