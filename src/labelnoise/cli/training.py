"""`labelnoise train` and `predict`: a classifier on noisy labels, and its answers."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Option

from labelnoise._errors import LabelNoiseError
from labelnoise.cli.terminal import Device, Json, Quiet, Seed, print_json, progress
from labelnoise.training.recipes import PLANS, RECIPES

if TYPE_CHECKING:
    import numpy as np

    from labelnoise.io.images import ImageData
    from labelnoise.training import TrainingResult

_NAMED = ("cifar10", "cifar100", "clothing1m")
_IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
_MODEL = "model.safetensors"

DESCRIPTIONS = [
    "Methods:",
    *(f"{name}: {recipe.summary}" for name, recipe in RECIPES.items()),
    "Plans:",
    *(f"{name}: {plan.summary}." for name, plan in PLANS.items()),
]

Data = Annotated[
    str,
    Argument(help="A file of features, a folder of images, or cifar10, cifar100, clothing1m."),
]
Labels = Annotated[
    str | None,
    Argument(
        help="Labels of the features, as for estimate. Of a folder a CSV file of path and label, "
        "by default its labels.csv. Of cifar10: clean, human, random1, worst ..."
    ),
]
Test = Annotated[
    tuple[str, str] | None,
    Option(metavar="FEATURES LABELS", help="Clean test data. Of a folder: its test.csv."),
]
Root = Annotated[Path | None, Option(envvar="LABELNOISE_DATA", help="Where named data sets are.")]
MethodName = Annotated[str, Option(help="One of the methods below.")]
Settings = Annotated[
    list[str] | None,
    Option(metavar="NAME=VALUE", help="A setting of the method or of its recipe, as q=0.5."),
]
PlanName = Annotated[
    str | None, Option(help="One of the plans below. Default: features, or short for images.")
]
Folder = Annotated[
    Path | None,
    Option(help="For log, checkpoints and model, to continue after a kill. Default: one in runs."),
]
Validation = Annotated[
    float, Option(min=0, max=0.9, help="Share of examples to hold out, to stop early.")
]


def train(
    data: Data,
    labels: Labels = None,
    test: Test = None,
    root: Root = None,
    method: MethodName = "hoc-global",
    method_setting: Settings = None,
    plan: PlanName = None,
    network: Annotated[
        str | None, Option(help="mlp for features; resnet8, resnet18, resnet34, resnet50.")
    ] = None,
    features: Annotated[
        str | None, Option(help="First representations of images, as embed makes them.")
    ] = None,
    folder: Folder = None,
    validation: Validation = 0.0,
    device: Device = "auto",
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a classifier on noisy labels, that is right where they are not."""
    settings = _settings(method_setting or [])
    with progress(quiet) as show:
        show("reading", 0, 0)
        try:
            from labelnoise import training

            chosen = training.method_named(method, **settings)
        except ImportError as error:
            raise LabelNoiseError(str(error)) from error
        images = _load(data, root, labels, test)
        of_images = data in _NAMED or os.path.isdir(data)
        plan = plan or ("short" if of_images else "features")
        network = network or ("resnet34" if of_images else "mlp")
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
            validation=validation,
            progress=show,
        )
        result.classifier.save(folder / _MODEL)
    for note in result.notes:
        print(f"Note: {note}", file=sys.stderr)
    if as_json:
        kept = ("best_accuracy", "last_accuracy", "best_epoch", "seconds", "learnt", "notes")
        found = {name: getattr(result, name) for name in kept}
        print_json({"data": images.name, "method": method, "folder": str(folder), **found})
    else:
        print(f"{images}, {method}: {result.seconds:.0f} s")
        _print_accuracy(result)
        print(f"Model: {folder / _MODEL}; log and checkpoints beside it")


def _print_accuracy(result: TrainingResult) -> None:
    if result.best_accuracy is None or result.best_epoch is None:
        print("There are no test labels, so the accuracy is not known.")
    else:
        print(f"Test accuracy in the last epoch: {result.last_accuracy:.1%}")
        print(f"In the best, epoch {result.best_epoch + 1}: {result.best_accuracy:.1%}")
    if (rate := result.learnt.get("noise_rate")) is not None:
        print(f"Estimated share of wrong labels: {rate:.1%}")


def predict(
    model: Annotated[Path, Argument(help="What train saved: model.safetensors.")],
    data: Annotated[str, Argument(help="A file of features, or a folder of images.")],
    out: Annotated[Path, Option(help="Where the predictions go, .csv or .parquet.")],
) -> None:
    """Predict the class of each example: its name and the probability."""
    from labelnoise.io.features import read_features
    from labelnoise.io.outputs import check_outputs
    from labelnoise.io.tables import write_table

    check_outputs({out: (".csv", ".parquet")}, [model, data])
    try:
        from labelnoise.training import Classifier
    except ImportError as error:
        raise LabelNoiseError(str(error)) from error

    classifier = Classifier.load(model)
    inputs: Any
    if os.path.isdir(data):
        from labelnoise.io.images import files_below, readable_images

        names = files_below(data)
        inputs = readable_images(data, names)
    else:
        features = read_features(data)
        names, inputs = features.names or [], features.array
    probabilities = classifier.predict_proba(inputs)
    columns = {
        "predicted_label": [classifier.classes[k] for k in probabilities.argmax(axis=1)],
        "probability": probabilities.max(axis=1).round(6),
    }
    write_table(out, {"name": names, **columns} if names else columns)
    print(f"{len(probabilities):,} predictions: {out}")


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


def _load(
    data: str, root: Path | None, labels: str | None, test: tuple[str, str] | None
) -> ImageData:
    from labelnoise.io.datasets import load, load_folder

    if data not in _NAMED and not os.path.isdir(data):
        if not os.path.isfile(data.rpartition(":")[0] or data) and not os.path.isfile(data):
            raise LabelNoiseError(
                f"Expected one of {', '.join(_NAMED)}, a folder of images or a file of features, "
                f"but there is no {data!r}"
            )
        return _load_features(data, labels, test)
    if test is not None:
        raise BadParameter(f"--test goes with a file of features, but the data are {data}")
    if labels is not None and os.path.isdir(data):
        test_csv = Path(data, "test.csv")
        return load_folder(data, labels, test_csv=test_csv if test_csv.exists() else None)
    return load(data, root, labels)


def _load_features(source: str, labels: str | None, test: tuple[str, str] | None) -> ImageData:
    import dataclasses

    import numpy as np

    from labelnoise.io.datasets import load_arrays
    from labelnoise.io.features import read_features
    from labelnoise.io.labels import read_labels

    if labels is None:
        raise BadParameter(f"the features in {source} need a file of labels after them")
    features = read_features(source)
    X, y = features.array.astype(np.float32), read_labels(labels, features).array
    tests: tuple[Any, Any] = (None, None)
    if test is not None:
        test_features = read_features(test[0])
        test_labels = read_labels(test[1], test_features).array
        tests = (test_features.array.astype(np.float32), test_labels)
    return dataclasses.replace(load_arrays(X, y, *tests), name=Path(source.partition(":")[0]).stem)


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
