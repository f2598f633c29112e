"""`labelnoise train`: a classifier on noisy labels, by a method of the paper's tables."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import BadParameter, Option

from labelnoise._errors import LabelNoiseError
from labelnoise.cli.terminal import Device, Json, Quiet, Seed, print_json, progress

if TYPE_CHECKING:
    import numpy as np

    from labelnoise.io.images import ImageData

Data = Annotated[
    str,
    Option(
        help="cifar10, cifar100, clothing1m; or a folder of images with a labels.csv (path, label) "
        "and perhaps a test.csv."
    ),
]
Root = Annotated[Path | None, Option(envvar="LABELNOISE_DATA", help="Where named data sets are.")]
Labels = Annotated[
    str | None,
    Option(help="clean, human, random1, worst ... or a .npy file; of a folder, a CSV file."),
]
MethodName = Annotated[
    str,
    Option(
        help="ce, forward, reweight, t-revision, peer, dmi, gce, co-teaching, co-teaching+, jocor, "
        "cores2, ptd-r-v, hoc-global, hoc-local."
    ),
]
Settings = Annotated[
    list[str] | None, Option(metavar="NAME=VALUE", help="A setting of the method, as q=0.5.")
]
PlanName = Annotated[str, Option(help="The paper's cifar10, cifar100, clothing1m; short; brief.")]
Folder = Annotated[
    Path | None,
    Option(help="For log and checkpoints, to continue after a kill. Default: one in runs."),
]


def train(
    data: Data,
    root: Root = None,
    labels: Labels = None,
    method: MethodName = "hoc-local",
    method_setting: Settings = None,
    plan: PlanName = "short",
    network: Annotated[str, Option(help="resnet8, resnet18, resnet34, resnet50.")] = "resnet34",
    features: Annotated[str | None, Option(help="First features, as embed makes them.")] = None,
    folder: Folder = None,
    device: Device = "auto",
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train an image classifier on noisy labels."""
    settings = _settings(method_setting or [])
    with progress(quiet) as show:
        show("reading", 0, 0)
        try:
            from labelnoise import training
        except ImportError as error:
            raise LabelNoiseError(f"Expected PyTorch, but {error}") from error

        chosen = training.method_named(method, **settings)
        images = _load(data, root, labels)
        first = None if features is None else _features(features, images, data)
        show("reading", 1, 1)
        folder = folder or Path("runs", f"{images.name}-{method}-{network}-{plan}-{seed}")
        log = folder / "log.jsonl"
        if not as_json and not quiet:
            done = len(log.read_text().splitlines()) if log.exists() else 0
            begin = f"Continues after {done} epochs" if done else "Begins"
            print(f"{begin}; the log is {log}", file=sys.stderr)
        result = training.train(
            images,
            chosen,
            plan=plan,
            network=network,
            features=first,
            seed=seed,
            folder=folder,
            device=device,
            n_workers=min(4, os.cpu_count() or 1),
            progress=show,
        )
    if as_json:
        kept = ("best_accuracy", "last_accuracy", "best_epoch", "seconds", "learnt")
        found = {name: getattr(result, name) for name in kept}
        print_json({"data": images.name, "method": method, "folder": str(folder), **found})
        return
    print(f"{images}, {method}: {result.seconds:.0f} s")
    if result.best_accuracy is None or result.best_epoch is None:
        print("There are no test labels, so the accuracy is not known.")
    else:
        print(f"Test accuracy in the last epoch: {result.last_accuracy:.1%}")
        print(f"In the best, epoch {result.best_epoch + 1}: {result.best_accuracy:.1%}")
    if (rate := result.learnt.get("noise_rate")) is not None:
        print(f"Estimated share of wrong labels: {rate:.1%}")
    print(f"Log: {log}; checkpoints beside it")


def _settings(pairs: list[str]) -> dict[str, Any]:
    """Settings of a method: numbers, true, false and null as JSON has them, else words."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise BadParameter(f"--method-setting is NAME=VALUE, but it is {pair!r}")
        settings[name] = value
        with suppress(ValueError):
            settings[name] = json.loads(value)
    return settings


def _load(data: str, root: Path | None, labels: str | None) -> ImageData:
    from labelnoise.io.datasets import load, load_folder

    if labels is not None and os.path.isdir(data):
        test = Path(data, "test.csv")
        return load_folder(data, labels, test_csv=test if test.exists() else None)
    return load(data, root, labels)


def _features(source: str, images: ImageData, folder: str) -> np.ndarray:
    """Features in the order of the training images: by path where both have them."""
    from labelnoise.io.features import read_features

    features = read_features(source)
    if not images.train.paths or features.names is None or features.numbered:
        return features.array
    place = {os.path.join(folder, name): i for i, name in enumerate(features.names)}
    place = {os.path.realpath(path): i for path, i in place.items()}
    paths = [os.path.realpath(path) for path in images.train.paths]
    missing = [path for path in paths if path not in place]
    if missing:
        raise LabelNoiseError(
            f"Expected features of each training image, but {len(missing)} have none in {source}, "
            f"such as {missing[0]}"
        )
    return features.array[[place[path] for path in paths]]
