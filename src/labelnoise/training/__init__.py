"""Learning with noisy labels: every method of the paper's tables on one training loop."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        'labelnoise.training needs PyTorch: pip install "labelnoise[torch]"'
    ) from error

from labelnoise._errors import LabelNoiseError
from labelnoise.io.images import ImageData
from labelnoise.training.engine import Objective, OnEpoch, Progress, Run
from labelnoise.training.methods import METHODS, Method, method_named
from labelnoise.training.networks import NETWORKS, Network, build_network, check_network
from labelnoise.training.schedules import PLANS, Plan, Schedule, plan_named

__all__ = [
    "METHODS",
    "NETWORKS",
    "PLANS",
    "Method",
    "Network",
    "Objective",
    "Plan",
    "Run",
    "Schedule",
    "TrainingResult",
    "build_network",
    "method_named",
    "plan_named",
    "train",
]


@dataclass(frozen=True)
class TrainingResult:
    """What a training gave.

    Attributes
    ----------
    networks : list of Network
        Trained; most methods have one, some two.
    best_accuracy, last_accuracy : float or None
        On the test labels, where there are any, in the best and in the last epoch of the final
        training. The best epoch is chosen by the test labels: it is what papers report, and
        more than one can have without them.
    best_epoch : int or None
        The first is 0.
    learnt : dict
        What the method found beside the networks: ``transition_matrix``, ``noise_rate``.
    log : list of dict
        One entry an epoch.
    seconds : float
        In all, without what an interrupted run did before.
    """

    networks: list[Network]
    best_accuracy: float | None
    last_accuracy: float | None
    best_epoch: int | None
    learnt: dict[str, Any]
    log: list[dict[str, Any]]
    seconds: float


def train(
    data: ImageData,
    method: str | Method = "hoc-local",
    *,
    plan: str | Plan = "cifar10",
    network: str = "resnet34",
    features: Any = None,
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    device: str = "auto",
    n_workers: int = 4,
    progress: Progress | None = None,
    on_epoch: OnEpoch | None = None,
) -> TrainingResult:
    """Train an image classifier on noisy labels by a method of the paper's tables.

    The default is the paper's three-stage flow: HOC on first representations, training with
    its T, HOC on the new representations, training again, then with a T for each
    neighbourhood.

    Parameters
    ----------
    data : ImageData
        From `labelnoise.io.datasets`. Its clean training labels are never looked at.
    method : str or Method
        One of `METHODS`, or a `Method` with settings of your own.
    plan : str or Plan
        Schedules: the paper's "cifar10", "cifar100", "clothing1m"; "short"; or your own.
    network : {"resnet8", "resnet18", "resnet34", "resnet50"}
        With a stem for small or large images, as the data are.
    features : array of shape (N, d), optional
        First representations, from any encoder (`labelnoise embed`). By default those of a
        network that cross-entropy trained on the noisy labels.
    seed : int
        On a CPU a run repeats exactly.
    folder : path, optional
        For checkpoints and the log, ``log.jsonl``. A run that was killed goes on from its last
        epoch when started again with the same folder and settings.
    device : str
        "auto", "cpu" or "cuda". With several GPUs start it through ``torchrun``.
    n_workers : int
        Processes that read image files.
    progress : callable, optional
        Called as ``progress(phase, steps done, steps in all)``.
    on_epoch : callable, optional
        Called as ``on_epoch(run, phase, epoch)``; gives a dict of entries for the log.

    Returns
    -------
    TrainingResult
        Networks, accuracies, the log.
    """
    began = time.perf_counter()
    method = method_named(method) if isinstance(method, str) else method
    plan = plan_named(plan) if isinstance(plan, str) else plan
    check_network(network)
    if features is not None:
        features = np.asarray(features)
        if len(features) != len(data.labels):
            raise LabelNoiseError(
                f"Expected as many features as training images, but there are {len(features)} "
                f"and {len(data.labels)}"
            )
    run = Run(
        data,
        plan,
        network=network,
        features=features,
        seed=seed,
        folder=folder,
        settings={
            "method": repr(method),
            "data": data.name,
            "labels": _fingerprint(data.labels),
            "features": None if features is None else _fingerprint(features),
        },
        device=device,
        n_workers=n_workers,
        progress=progress,
        on_epoch=on_epoch,
    )
    learnt = method.fit(run)
    accuracies = [entry["test_accuracy"] for entry in run.log if entry["phase"] == "final"]
    best = None if data.test is None else int(np.argmax(accuracies))
    return TrainingResult(
        networks=run.networks,
        best_accuracy=None if best is None else accuracies[best],
        last_accuracy=accuracies[-1],
        best_epoch=best,
        learnt=learnt,
        log=run.log,
        seconds=time.perf_counter() - began,
    )


def _fingerprint(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]
