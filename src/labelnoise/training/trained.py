"""`train`: data and a method in, a classifier out."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.io.images import ImageData
from labelnoise.training.classifier import Classifier
from labelnoise.training.engine import MakeNetwork, OnEpoch, Progress, Run
from labelnoise.training.methods import Method, method_named
from labelnoise.training.networks import check_network
from labelnoise.training.recipes import plan_named
from labelnoise.training.schedules import Plan


@dataclass(frozen=True)
class TrainingResult:
    """What a training gave.

    Attributes
    ----------
    classifier : Classifier
        The networks, ready to predict and to save.
    best_accuracy, last_accuracy : float or None
        On the test labels, where there are any, in the best and in the last epoch of the final
        training. The best epoch is chosen by the test labels: papers report it, but it cannot be
        had without them.
    best_epoch : int or None
        The first is 0.
    learnt : dict
        What the method found beside the networks: ``transition_matrix``, ``noise_rate``.
    log : list of dict
        One entry an epoch.
    notes : list of str
        Sentences on what was unusual, such as a training too short for its method.
    seconds : float
        In all, without what an interrupted run did before.
    """

    classifier: Classifier
    best_accuracy: float | None
    last_accuracy: float | None
    best_epoch: int | None
    learnt: dict[str, Any]
    log: list[dict[str, Any]]
    notes: list[str]
    seconds: float


def train(
    data: ImageData,
    method: str | Method = "hoc-global",
    *,
    plan: str | Plan | None = None,
    network: MakeNetwork | None = None,
    features: Any = None,
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    device: str = "auto",
    n_workers: int = 4,
    validation: float = 0.0,
    progress: Progress | None = None,
    on_epoch: OnEpoch | None = None,
) -> TrainingResult:
    """Train a classifier on noisy labels by a method of the paper's tables.

    Parameters
    ----------
    data : ImageData
        Images, or rows of features, and noisy labels: see `labelnoise.io.datasets.load_arrays`.
        Clean training labels in it are never looked at.
    method : str or Method
        One of `METHODS`, or a `Method` with settings of your own.
    plan : str or Plan, optional
        How long to train: one of `PLANS`, or your own. Default: "features" for rows of features,
        the paper's "cifar10" for images.
    network : str or callable, optional
        See `build_network`. Default: "mlp" for rows of features, "resnet34" for images.
    features : array of shape (N, d), optional
        First representations, from any encoder. Default: the rows of features; for images those
        of a network that cross-entropy trained on the noisy labels.
    seed : int
        On a CPU a run repeats exactly.
    folder : path, optional
        For checkpoints and the log, ``log.jsonl``. A run that was killed continues from its last
        epoch when it is started again with the same folder and settings.
    device, n_workers : str and int
        "auto", "cpu" or "cuda" (several GPUs: through ``torchrun``); processes that read images.
    validation : float
        Share of the examples to hold out. The result is then the network of the epoch that
        agrees most with their noisy labels, rather than that of the last epoch.
    progress, on_epoch : callables, optional
        Called as ``progress(phase, steps done, steps in all)``, and as ``on_epoch(run, phase,
        epoch)``, which gives a dict of entries for the log.
    """
    began = time.perf_counter()
    method = method_named(method) if isinstance(method, str) else method
    how: dict[str, Any] = {"device": device, "n_workers": n_workers, "validation": validation}
    how |= {"seed": seed, "folder": folder, "progress": progress, "on_epoch": on_epoch}
    run = _run_of(data, method, plan, network, features, how)
    return _result_of(run, method.fit(run), began)


def _run_of(
    data: ImageData,
    method: Method,
    plan: str | Plan | None,
    network: MakeNetwork | None,
    features: Any,
    how: dict[str, Any],
) -> Run:
    """A run with what was left open filled in, and with what its checkpoints must agree on."""
    rows = data.train.array is not None and data.train.array.dtype != np.uint8
    plan = plan or ("features" if rows else "cifar10")
    plan = plan_named(plan) if isinstance(plan, str) else plan
    network = network or ("mlp" if rows else "resnet34")
    check_network(network, rows)
    if not 0 <= how["validation"] < 1:
        raise LabelNoiseError(f"Expected 0 <= validation < 1, but validation = {how['validation']}")
    features = None if features is None else _checked(features, len(data.labels))
    settings = {
        "method": repr(method),
        "data": data.name,
        "labels": _fingerprint(data.labels),
        "features": None if features is None else _fingerprint(features),
    }
    return Run(data, plan, network=network, features=features, settings=settings, **how)


def _result_of(run: Run, learnt: dict[str, Any], began: float) -> TrainingResult:
    data, kind = run.data, run.network if isinstance(run.network, str) else ""
    normalised = run.source.centre, run.source.scale, run.source.size
    accuracies = [entry["test_accuracy"] for entry in run.log if entry["phase"] == "final"]
    best = None if data.test is None else int(np.argmax(accuracies))
    return TrainingResult(
        classifier=Classifier(run.networks, data.classes, *normalised, kind),
        best_accuracy=None if best is None else accuracies[best],
        last_accuracy=accuracies[-1],
        best_epoch=best,
        learnt=learnt,
        log=run.log,
        notes=run.notes,
        seconds=time.perf_counter() - began,
    )


def _checked(features: Any, n: int) -> np.ndarray:
    features = np.asarray(features)
    if len(features) != n:
        raise LabelNoiseError(
            f"Expected as many features as training examples, but there are {len(features)} and {n}"
        )
    return features


def _fingerprint(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]
