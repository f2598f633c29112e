"""How fast a training epoch is on a GPU: a plain loop against the engine's CUDA graph.

    LABELNOISE_DATA=... python benchmarks/training_speed.py

CIFAR-10, 50,000 images with random crops and flips, bfloat16, cross-entropy, test accuracy
after each epoch not counted. Results: benchmarks/results/training_speed.md.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import numpy as np
import torch
from tables import table

from labelnoise.io.datasets import ImageData, load
from labelnoise.training import RECIPES, Objective, Plan, Run, Schedule
from labelnoise.training.objectives import CoTeaching, CrossEntropy
from labelnoise.training.steps import GraphStepper, Stepper

CASES = [
    ("resnet34", 128, CrossEntropy),
    ("resnet18", 128, CrossEntropy),
    ("resnet18", 256, CrossEntropy),
    ("resnet18", 256, lambda: CoTeaching(0.2, RECIPES["co-teaching"])),
]


@functools.cache
def cifar10() -> ImageData:
    return load("cifar10")


def seconds_per_epoch(
    stepper_type: type[Stepper], network: str, batch_size: int, objective: Callable[[], Objective]
) -> float:
    """Of the faster of two epochs, after one in which the graph is recorded."""
    schedule = Schedule(((0.1, 3),), batch_size=batch_size)
    run = Run(cifar10(), Plan(schedule, schedule, schedule), network=network)
    run._stepper = lambda module, optimizer: stepper_type(module, optimizer)
    seconds = []

    def epoch(*args) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        loss = Run._epoch(run, *args)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
        return loss

    run._epoch = epoch
    run.train("final", objective(), schedule)
    print(network, batch_size, stepper_type.__name__, np.round(seconds, 2), flush=True)
    return min(seconds[1:])


def main() -> None:
    rows = []
    for network, batch_size, objective in CASES:
        plain = seconds_per_epoch(Stepper, network, batch_size, objective)
        graph = seconds_per_epoch(GraphStepper, network, batch_size, objective)
        rows.append(
            [
                network,
                str(batch_size),
                type(objective()).__name__,
                f"{plain:.2f}",
                f"{graph:.2f}",
                f"{plain / graph:.1f}",
            ]
        )
    name = torch.cuda.get_device_name()
    table(
        f"Seconds an epoch, {name}, PyTorch {torch.__version__}",
        "network | batch | objective | plain loop | CUDA graph | ratio",
        rows,
    )


if __name__ == "__main__":
    main()
