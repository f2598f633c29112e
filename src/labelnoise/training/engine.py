"""The one training loop: epochs, steps, evaluation, checkpoints, the log."""

from __future__ import annotations

import copy
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from labelnoise._errors import LabelNoiseError, LabelNoiseWarning
from labelnoise.io.atomic import write_then_rename
from labelnoise.io.images import ImageData
from labelnoise.training.balance import balanced_batches
from labelnoise.training.batches import BatchSource, batch_source
from labelnoise.training.networks import build_network, representations_of
from labelnoise.training.schedules import Moment, Plan, Schedule
from labelnoise.training.steps import GraphStepper, Objective, Step, Stepper, mixed_precision

Progress = Callable[[str, int, int], None]
OnEpoch = Callable[["Run", str, int], dict[str, Any]]
MakeNetwork = str | Callable[[], nn.Module]

_EVALUATION_BATCH = 1000
_HELD_OUT = 0.1  # share of the examples by which the best epoch is chosen


class Run:
    """A method's trainings on one data set: `Method.fit` is given one to work with.

    The arguments are those of `labelnoise.training.train`; `settings` are kept with the
    checkpoints, and a run with others is not continued. `networks` are those of the latest phase,
    `log` has an entry for each epoch, `notes` has sentences for the user.
    """

    def __init__(
        self,
        data: ImageData,
        plan: Plan,
        *,
        network: MakeNetwork = "resnet34",
        features: np.ndarray | None = None,
        seed: int = 0,
        folder: str | os.PathLike[str] | None = None,
        settings: dict[str, Any] | None = None,
        device: str = "auto",
        n_workers: int = 4,
        validation: float = 0.0,
        progress: Progress | None = None,
        on_epoch: OnEpoch | None = None,
    ) -> None:
        self.data, self.plan, self.network = data, plan, network
        self.features, self.seed, self.validation = features, seed, validation
        self.networks: list[nn.Module] = []
        self.log: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self._progress, self._on_epoch = progress, on_epoch
        self._rank, self._n_processes = _processes()
        self.device = _device(device)
        self._folder = None if folder is None else Path(folder)
        if self._folder is not None:
            self._check_folder(settings or {})
        self.source = batch_source(data.train, data.train, self.device, n_workers)
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
        best: bool = False,
    ) -> None:
        """Train networks on an objective; afterwards they are `networks`.

        Parameters
        ----------
        phase : str
            A name for the log and the checkpoint. The result is the phase "final".
        objective : Objective
            What to minimise.
        schedule : Schedule
            Learning rates, epochs, optimiser.
        fresh : bool, default=True
            Begin with fresh weights, rather than with those of the phase before.
        best : bool, default=False
            Hold out a tenth of the examples, and end with the network of the epoch that agrees
            most with their noisy labels.
        """
        self._n_phases += 1
        torch.manual_seed(self._seed_of(0))
        if fresh:
            self.networks = [self._fresh_network() for _ in range(objective.n_networks)]
        rows, held_out = self._split(phase, best)
        objective.to(self.device)
        module = Step(self.networks, objective, self.device)
        optimizer = self._optimizer(module, schedule)
        state = self._restore(phase, module, optimizer)
        self._check_length(phase, objective, schedule, len(rows))
        stepper: Stepper | None = None
        for epoch in range(len(state.records), schedule.n_epochs):
            began = time.perf_counter()
            stepper = stepper or self._stepper(module, optimizer)
            with torch.backends.cudnn.flags(enabled=True, benchmark=True):  # fixed shapes
                loss = self._epoch(phase, stepper, schedule, epoch, rows)
            record: dict[str, Any] = {
                "phase": phase,
                "epoch": epoch,
                "learning_rate": schedule.rate(epoch) * objective.rate_factor,
                "loss": loss,
                "test_accuracy": self._accuracy(),
                **objective.record(),
                "seconds": round(time.perf_counter() - began, 3),
            }
            if len(held_out):
                record["agreement"] = agreement = self._agreement(held_out)
                if agreement > max((r["agreement"] for r in state.records), default=-1):
                    state.best = copy.deepcopy(module.networks.state_dict())
            more = self._on_epoch(self, phase, epoch) if self._on_epoch else {}
            state.records.append(record | more)
            self._save(phase, module, optimizer, state, epoch + 1 == schedule.n_epochs)
        if state.best is not None:
            module.networks.load_state_dict(state.best)
        self.log += state.records

    def posteriors(self) -> np.ndarray:
        """(N, K) the first network's probabilities for the training examples."""
        return self._answers(lambda inputs: torch.softmax(self.networks[0](inputs).float(), 1))

    def representations(self) -> np.ndarray:
        """(N, d) the first network's representations of the training examples."""
        return self._answers(lambda inputs: representations_of(self.networks[0], inputs).float())

    def first_representations(self) -> np.ndarray:
        """Give the representations to start from: see `features`."""
        if self.features is not None:
            return self.features
        if self.source.representations is not None:
            return self.source.representations
        from labelnoise.training.objectives import CrossEntropy

        self.train("first", CrossEntropy(), self.plan.first)
        return self.representations()

    def _fresh_network(self) -> nn.Module:
        network = build_network(self.network, self.n_classes, self.source.size).to(self.device)
        if not isinstance(self.network, str):
            self._check_logits(network)
        if self.source.representations is None:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network

    def _check_logits(self, network: nn.Module) -> None:
        (some,) = self.source.batches([np.arange(2) % len(self.data.labels)], False, 0)
        with torch.no_grad():
            shape = tuple(network.eval()(some).shape)
        if shape != (2, self.n_classes):
            raise LabelNoiseError(
                f"Expected a network that gives a logit for each of {self.n_classes} classes, "
                f"shape (2, {self.n_classes}) for two examples, but its shape is {shape}"
            )

    def _split(self, phase: str, best: bool) -> tuple[np.ndarray, np.ndarray]:
        """Rows to train on, and rows that are held out to choose an epoch."""
        n = len(self.data.labels)
        share = self.validation if phase == "final" else 0.0
        share = share or (_HELD_OUT if best else 0.0)
        order = np.random.default_rng(self.seed).permutation(n)
        n_held_out = math.ceil(share * n)
        return np.sort(order[n_held_out:]), np.sort(order[:n_held_out])

    def _check_length(self, phase: str, objective: Objective, schedule: Schedule, n: int) -> None:
        n_steps = schedule.n_epochs * schedule.steps_per_epoch(n)
        if objective.n_steps_needed > n_steps:
            n_epochs = math.ceil(objective.n_steps_needed * schedule.n_epochs / n_steps)
            self.notes.append(
                f"The {phase} training has {n_steps} steps, but the method takes "
                f"{objective.n_steps_needed} to reach its full strength: train for {n_epochs} "
                f"epochs or more, or set a shorter warm_up and ramp."
            )
            warnings.warn(self.notes[-1], LabelNoiseWarning, stacklevel=4)

    def _seed_of(self, epoch: int) -> int:
        state = np.random.SeedSequence((self.seed, self._n_phases, epoch)).generate_state(1)
        return int(state[0])

    def _optimizer(self, module: Step, schedule: Schedule) -> torch.optim.Optimizer:
        on_gpu = self.device.type == "cuda"
        # On a GPU a tensor, so that a recorded step can be replayed with another rate.
        rate = torch.ones((), device=self.device) if on_gpu else 1.0
        settings: dict[str, Any] = {"lr": rate, "weight_decay": schedule.weight_decay}
        if schedule.optimizer == "adam":
            return torch.optim.Adam(
                module.parameters(), capturable=on_gpu, fused=not on_gpu, **settings
            )
        momentum = schedule.momentum
        return torch.optim.SGD(module.parameters(), momentum=momentum, fused=True, **settings)

    def _stepper(self, module: Step, optimizer: torch.optim.Optimizer) -> Stepper:
        if self._n_processes > 1:
            return Stepper(module, optimizer, nn.parallel.DistributedDataParallel(module))
        if self.device.type == "cuda":
            return GraphStepper(module, optimizer)
        return Stepper(module, optimizer)

    def _epoch(
        self, phase: str, stepper: Stepper, schedule: Schedule, epoch: int, rows: np.ndarray
    ) -> float:
        """Train for one epoch; the mean loss."""
        seed = self._seed_of(epoch + 1)
        order = self._order(schedule, rows, seed)
        torch.manual_seed(seed)
        for network in self.networks:
            network.train()
        done, total = epoch * len(order), schedule.n_epochs * len(order)
        own = [numbers[self._rank :: self._n_processes] for numbers in order]
        loss = torch.zeros((), device=self.device)
        batches = self.source.batches(own, schedule.augment, seed=seed + self._rank)
        for number, (index, inputs) in enumerate(zip(own, batches, strict=True)):
            stepper.at_step(Moment(done + number, total, len(order)), schedule)
            where = torch.from_numpy(index).to(self.device, non_blocking=True)
            loss += stepper(inputs, self._labels[where], where)
            if self._progress:
                self._progress(phase, done + number + 1, total)
        if self._n_processes > 1:
            dist.all_reduce(loss)
        mean = float(loss) / (len(order) * self._n_processes)
        if not np.isfinite(mean):
            raise LabelNoiseError(
                f"Expected a finite loss, but in epoch {epoch} of {phase!r} it is {mean}: "
                f"try a lower learning rate than {schedule.rate(epoch)}"
            )
        return mean

    def _order(self, schedule: Schedule, rows: np.ndarray, seed: int) -> list[np.ndarray]:
        """Which examples form the batches of an epoch."""
        random = np.random.default_rng(seed)
        size, n_batches = min(schedule.batch_size, len(rows)), schedule.balanced_batches
        if n_batches is not None:
            return list(rows[balanced_batches(self.data.labels[rows], size, n_batches, random)])
        n_batches = schedule.steps_per_epoch(len(rows))
        return np.split(random.permutation(rows)[: n_batches * size], n_batches)

    def _agreement(self, rows: np.ndarray) -> float:
        """Share of held-out noisy labels that the networks answer."""
        order = [rows[block] for block in in_blocks(len(rows))]
        answers = self._evaluated(self.source, order, self._guesses)
        guesses = torch.cat(list(answers)).cpu().numpy()
        return float((guesses == self.data.labels[rows, None]).mean())

    def _answers(self, function: Callable[[Tensor], Tensor]) -> np.ndarray:
        order = in_blocks(len(self.data.labels))
        return torch.cat(list(self._evaluated(self.source, order, function))).cpu().numpy()

    def _guesses(self, inputs: Tensor) -> Tensor:
        return torch.stack([network(inputs).argmax(1) for network in self.networks], 1)

    def _accuracy(self) -> float | None:
        """Share of test examples that are classified rightly; the mean over the networks."""
        labels = self.data.test_labels
        if self._test is None or labels is None:
            return None
        parts = list(self._evaluated(self._test, in_blocks(len(labels)), self._guesses))
        return float((torch.cat(parts).cpu().numpy() == labels[:, None]).mean())

    def _evaluated(
        self, source: BatchSource, order: list[np.ndarray], function: Callable[[Tensor], Tensor]
    ) -> Iterator[Tensor]:
        for network in self.networks:
            network.eval()
        with torch.no_grad(), mixed_precision(self.device):
            for inputs in source.batches(order, augment=False, seed=0):
                yield function(inputs)

    def _check_folder(self, settings: dict[str, Any]) -> None:
        """Write the settings of a new run; of an old one they must be the same."""
        assert self._folder is not None
        network = self.network if isinstance(self.network, str) else repr(self.network)
        own = {"network": network, "seed": self.seed, "validation": self.validation}
        settings = {**settings, **own, **asdict(replace(self.plan, summary=""))}
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

    def _restore(self, phase: str, module: Step, optimizer: torch.optim.Optimizer) -> _PhaseState:
        """Load what an earlier run of this phase left."""
        if self._folder is None or not self._checkpoint(phase).exists():
            return _PhaseState([])
        saved = torch.load(self._checkpoint(phase), map_location=self.device, weights_only=True)
        module.load_state_dict(saved["module"])
        if saved["optimizer"] is not None:
            optimizer.load_state_dict(saved["optimizer"])
        return _PhaseState(saved["records"], saved["best"])

    def _save(
        self,
        phase: str,
        module: Step,
        optimizer: torch.optim.Optimizer,
        state: _PhaseState,
        finished: bool,
    ) -> None:
        if self._folder is None or self._rank > 0:
            return
        with write_then_rename(self._checkpoint(phase)) as file:
            torch.save(
                {
                    "module": module.state_dict(),
                    "optimizer": None if finished else optimizer.state_dict(),
                    "records": state.records,
                    "best": state.best,
                },
                file,
            )
        with write_then_rename(self._folder / "log.jsonl") as file:
            for record in [*self.log, *state.records]:
                file.write(json.dumps(record).encode() + b"\n")


@dataclass
class _PhaseState:
    """What a phase has done so far, beside weights."""

    records: list[dict[str, Any]]
    best: dict[str, Tensor] | None = None
    """Weights of the epoch that agrees most with held-out labels."""


def in_blocks(n: int) -> list[np.ndarray]:
    """Numbers of n examples, in blocks to evaluate."""
    return np.split(np.arange(n), range(_EVALUATION_BATCH, n, _EVALUATION_BATCH))


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
