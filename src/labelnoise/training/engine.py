"""The one training loop: epochs, steps, evaluation, checkpoints, the log."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from labelnoise._errors import LabelNoiseError
from labelnoise.io.atomic import write_then_rename
from labelnoise.io.images import ImageData
from labelnoise.training.balance import balanced_batches
from labelnoise.training.batches import BatchSource, batch_source
from labelnoise.training.networks import Network, build_network
from labelnoise.training.schedules import Plan, Schedule

Progress = Callable[[str, int, int], None]
OnEpoch = Callable[["Run", str, int], dict[str, Any]]

_MOMENTUM = 0.9
_EVALUATION_BATCH = 1000
_WARM_UP_STEPS = 3  # before a CUDA graph is captured, as PyTorch asks for


class Objective(nn.Module):
    """What a step minimises, given what the networks answer: a method's heart.

    Its buffers and parameters move to the device with it, and its parameters are learnt beside
    the networks' (a revised T). Nothing in `forward` may depend on values in a way that changes
    shapes: selected examples have weight 1, the others 0. So a GPU can replay a whole step.
    """

    n_networks = 1

    def at_epoch(self, epoch: int) -> None:
        """Prepare for an epoch; the first is 0. To be kept in buffers, changed in place."""

    def forward(self, logits: Sequence[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        """Give the loss of a batch: one (B, K) of logits a network, noisy labels, row numbers."""
        raise NotImplementedError

    def record(self) -> dict[str, Any]:
        """What the log shall say of an epoch beside loss and accuracy."""
        return {}


class Run:
    """A method's trainings on one data set: what `Method.fit` is given to work with.

    Parameters
    ----------
    data : ImageData
        Images and noisy labels; clean test labels are for the log alone.
    plan : Plan
        Schedules.
    network : str
        See `build_network`.
    features : array of shape (N, d), optional
        First representations, from any encoder. By default those of a network trained by
        cross-entropy on the noisy labels, on the plan's first schedule.
    seed : int
        Decides weights, the order of examples, crops. On a CPU runs repeat exactly.
    folder : path, optional
        Where checkpoints and ``log.jsonl`` go; an interrupted run goes on from there.
    settings : dict
        Kept with the checkpoints: a run with others is not continued.
    device : str
        "auto": a GPU where there is one.
    n_workers : int
        Processes that read image files.
    progress : callable, optional
        Called as ``progress(phase, steps done, steps in all)``.
    on_epoch : callable, optional
        Called as ``on_epoch(run, phase, epoch)`` after each epoch; gives entries for the log.
    compiled : bool, default=False
        Let ``torch.compile`` fuse the layers: half a minute at first, then a quarter faster.
    """

    def __init__(
        self,
        data: ImageData,
        plan: Plan,
        *,
        network: str = "resnet34",
        features: np.ndarray | None = None,
        seed: int = 0,
        folder: str | os.PathLike[str] | None = None,
        settings: dict[str, Any] | None = None,
        device: str = "auto",
        n_workers: int = 4,
        progress: Progress | None = None,
        on_epoch: OnEpoch | None = None,
        compiled: bool = False,
    ) -> None:
        self.data, self.plan, self.network = data, plan, network
        self.features, self.seed = features, seed
        self.networks: list[Network] = []
        self.log: list[dict[str, Any]] = []
        self._progress, self._on_epoch, self._compiled = progress, on_epoch, compiled
        self._rank, self._n_processes = _processes()
        self.device = _device(device)
        self._folder = None if folder is None else Path(folder)
        if self._folder is not None:
            self._check_folder(settings or {})
        self._train = batch_source(data.train, data.train, self.device, n_workers)
        self._test = (
            None
            if data.test is None
            else batch_source(data.test, data.train, self.device, n_workers)
        )
        self._labels = torch.from_numpy(data.labels).to(self.device)
        self._n_phases = 0

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.data.classes)

    def train(
        self,
        phase: str,
        objective: Objective,
        schedule: Schedule,
        *,
        fresh: bool = True,
        adam: bool = False,
    ) -> None:
        """Train networks on an objective; afterwards they are `networks`.

        Parameters
        ----------
        phase : str
            A name for the log and the checkpoint.
        objective : Objective
            What to minimise.
        schedule : Schedule
            Learning rates and epochs.
        fresh : bool, default=True
            Begin with fresh weights, rather than with those of the phase before.
        adam : bool, default=False
            Adam without weight decay, in place of SGD with momentum.
        """
        self._n_phases += 1
        torch.manual_seed(self._seed_of(0))
        if fresh:
            self.networks = [self._fresh_network() for _ in range(objective.n_networks)]
        objective.to(self.device)
        module = _Step(self.networks, objective, self.device)
        optimizer = self._optimizer(module, schedule, adam)
        records = self._restore(phase, module, optimizer)
        stepper: _Stepper | None = None
        for epoch in range(len(records), schedule.n_epochs):
            began = time.perf_counter()
            rate = schedule.rate(epoch)
            for group in optimizer.param_groups:
                if isinstance(group["lr"], Tensor):
                    group["lr"].fill_(rate)
                else:
                    group["lr"] = rate
            stepper = stepper or self._stepper(module, optimizer)
            objective.at_epoch(epoch)
            with torch.backends.cudnn.flags(enabled=True, benchmark=True):  # fixed shapes
                loss = self._epoch(phase, stepper, schedule, epoch)
            if not np.isfinite(loss):
                raise LabelNoiseError(
                    f"Expected a finite loss, but in epoch {epoch} of {phase!r} it is {loss}: "
                    f"try a lower learning rate than {rate}"
                )
            record = {
                "phase": phase,
                "epoch": epoch,
                "learning_rate": rate,
                "loss": loss,
                "test_accuracy": self._accuracy(),
                **objective.record(),
                "seconds": round(time.perf_counter() - began, 3),
            }
            if self._on_epoch:
                record |= self._on_epoch(self, phase, epoch)
            records.append(record)
            self._save(phase, module, optimizer, records, epoch + 1 == schedule.n_epochs)
        self.log += records

    def posteriors(self) -> np.ndarray:
        """(N, K) what the first network answers for the training images."""
        return self._answers(lambda images: torch.softmax(self.networks[0](images).float(), 1))

    def representations(self) -> np.ndarray:
        """(N, d) the first network's representations of the training images."""
        return self._answers(lambda images: self.networks[0].representations(images).float())

    def first_representations(self) -> np.ndarray:
        """Give the representations to start from: `features`, or a network's by cross-entropy."""
        if self.features is not None:
            return self.features
        from labelnoise.training.objectives import CrossEntropy

        self.train("first", CrossEntropy(), self.plan.first)
        return self.representations()

    def _fresh_network(self) -> Network:
        network = build_network(self.network, self.n_classes, self._train.size).to(self.device)
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self._compiled:
            network.compile(dynamic=False)
        return network

    def _seed_of(self, epoch: int) -> int:
        state = np.random.SeedSequence((self.seed, self._n_phases, epoch)).generate_state(1)
        return int(state[0])

    def _optimizer(self, module: _Step, schedule: Schedule, adam: bool) -> torch.optim.Optimizer:
        on_gpu = self.device.type == "cuda"
        # On a GPU a tensor, so that a recorded step can be replayed with another rate.
        rate = torch.ones((), device=self.device) if on_gpu else 1.0
        if adam:
            return torch.optim.Adam(module.parameters(), lr=rate, capturable=on_gpu)
        return torch.optim.SGD(
            module.parameters(),
            lr=rate,
            momentum=_MOMENTUM,
            weight_decay=schedule.weight_decay,
            fused=on_gpu,
        )

    def _stepper(self, module: _Step, optimizer: torch.optim.Optimizer) -> _Stepper:
        if self._n_processes > 1:
            return _Stepper(nn.parallel.DistributedDataParallel(module), optimizer)
        if self.device.type == "cuda":
            return _GraphStepper(module, optimizer)
        return _Stepper(module, optimizer)

    def _epoch(self, phase: str, stepper: _Stepper, schedule: Schedule, epoch: int) -> float:
        """Train for one epoch; the mean loss."""
        seed = self._seed_of(epoch + 1)
        order = self._order(schedule, seed)
        torch.manual_seed(seed)
        for network in self.networks:
            network.train()
        done, total = epoch * len(order), schedule.n_epochs * len(order)
        own = [numbers[self._rank :: self._n_processes] for numbers in order]
        loss = torch.zeros((), device=self.device)
        batches = self._train.batches(own, schedule.augment, seed=seed + self._rank)
        for number, (index, images) in enumerate(zip(own, batches, strict=True)):
            where = torch.from_numpy(index).to(self.device, non_blocking=True)
            loss += stepper(images, self._labels[where], where)
            if self._progress:
                self._progress(phase, done + number + 1, total)
        if self._n_processes > 1:
            dist.all_reduce(loss)
        return float(loss) / (len(order) * self._n_processes)

    def _order(self, schedule: Schedule, seed: int) -> list[np.ndarray]:
        """Which examples form the batches of an epoch."""
        random = np.random.default_rng(seed)
        n = len(self.data.labels)
        size = min(schedule.batch_size, n)
        if schedule.balanced_batches is not None:
            return list(balanced_batches(self.data.labels, size, schedule.balanced_batches, random))
        return np.split(random.permutation(n)[: n // size * size], n // size)

    def _answers(self, function: Callable[[Tensor], Tensor]) -> np.ndarray:
        parts = list(self._evaluated(self._train, len(self.data.train), function))
        return torch.cat(parts).cpu().numpy()

    def _accuracy(self) -> float | None:
        """Share of test images that are classified rightly; the mean over the networks."""
        labels = self.data.test_labels
        if self._test is None or labels is None:
            return None

        def guesses(images: Tensor) -> Tensor:
            return torch.stack([network(images).argmax(1) for network in self.networks], 1)

        parts = list(self._evaluated(self._test, len(labels), guesses))
        return float((torch.cat(parts).cpu().numpy() == labels[:, None]).mean())

    def _evaluated(
        self, source: BatchSource, n: int, function: Callable[[Tensor], Tensor]
    ) -> Iterator[Tensor]:
        order = np.split(np.arange(n), range(_EVALUATION_BATCH, n, _EVALUATION_BATCH))
        for network in self.networks:
            network.eval()
        with torch.no_grad(), _mixed_precision(self.device):
            for images in source.batches(order, augment=False, seed=0):
                yield function(images)

    def _check_folder(self, settings: dict[str, Any]) -> None:
        """Write the settings of a new run; of an old one they must be the same."""
        assert self._folder is not None
        settings = {**settings, "network": self.network, "seed": self.seed, **asdict(self.plan)}
        settings = json.loads(json.dumps(settings))
        path = self._folder / "settings.json"
        if path.exists():
            try:
                written = json.loads(path.read_text("utf-8"))
            except ValueError as error:
                raise LabelNoiseError(
                    f"Expected the settings of a training run, but {path} is not JSON: {error}"
                ) from error
            for name in sorted({*settings, *written}):
                if settings.get(name) != written.get(name):
                    raise LabelNoiseError(
                        f"Expected the settings that the run in {self._folder} began with, but "
                        f"{name} was {written.get(name)} and is {settings.get(name)}: use "
                        f"another folder"
                    )
        elif self._rank == 0:
            self._folder.mkdir(parents=True, exist_ok=True)
            with write_then_rename(path) as file:
                file.write(json.dumps(settings, indent=1).encode())

    def _checkpoint(self, phase: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{self._n_phases}-{phase.replace(' ', '-')}.pt"

    def _restore(
        self, phase: str, module: _Step, optimizer: torch.optim.Optimizer
    ) -> list[dict[str, Any]]:
        """Load what a former run of this phase left; the log of its epochs."""
        if self._folder is None or not self._checkpoint(phase).exists():
            return []
        saved = torch.load(self._checkpoint(phase), map_location=self.device, weights_only=True)
        module.load_state_dict(saved["module"])
        if saved["optimizer"] is not None:
            optimizer.load_state_dict(saved["optimizer"])
        records: list[dict[str, Any]] = saved["records"]
        return records

    def _save(
        self,
        phase: str,
        module: _Step,
        optimizer: torch.optim.Optimizer,
        records: list[dict[str, Any]],
        finished: bool,
    ) -> None:
        if self._folder is None or self._rank > 0:
            return
        with write_then_rename(self._checkpoint(phase)) as file:
            torch.save(
                {
                    "module": module.state_dict(),
                    "optimizer": None if finished else optimizer.state_dict(),
                    "records": records,
                },
                file,
            )
        with write_then_rename(self._folder / "log.jsonl") as file:
            for record in [*self.log, *records]:
                file.write(json.dumps(record).encode() + b"\n")


class _Step(nn.Module):
    """Networks and objective as one module: images in, loss out."""

    def __init__(
        self, networks: Sequence[Network], objective: Objective, device: torch.device
    ) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.objective = objective
        self._device = device

    def forward(self, images: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        with _mixed_precision(self._device):
            logits = [network(images).float() for network in self.networks]
        loss: Tensor = self.objective(logits, labels, index)
        return loss


class _Stepper:
    """Does one step of optimisation after another."""

    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._module, self._optimizer = module, optimizer

    def __call__(self, *batch: Tensor) -> Tensor:
        """Do a step; its loss."""
        self._optimizer.zero_grad()
        loss: Tensor = self._module(*batch)
        loss.backward()
        self._optimizer.step()
        return loss.detach()


class _GraphStepper(_Stepper):
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


def _mixed_precision(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """bfloat16 on a GPU; no cache of casts, which a CUDA graph would keep."""
    if device.type != "cuda":
        return contextlib.nullcontext()
    return torch.autocast("cuda", torch.bfloat16, cache_enabled=False)


def _processes() -> tuple[int, int]:
    """Rank and number of processes, where ``torchrun`` started several."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return 0, 1
    if not dist.is_initialized():
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    return dist.get_rank(), dist.get_world_size()


def _device(name: str) -> torch.device:
    if name != "auto":
        try:
            device = torch.device(name)
        except RuntimeError as error:
            raise LabelNoiseError(
                f"Expected device to be 'auto', 'cpu' or 'cuda', but it is {name!r}"
            ) from error
        if device.type == "cuda" and not torch.cuda.is_available():
            raise LabelNoiseError(
                f"Expected a GPU for device {name!r}, but PyTorch finds none: use 'auto' or 'cpu'"
            )
        return device
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
