"""What `labelnoise estimate` and `suspects` read, and the options that say how."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import BadParameter, Option

if TYPE_CHECKING:
    from labelnoise.hoc import HOC
    from labelnoise.io.features import Features
    from labelnoise.io.labels import Labels
    from labelnoise.results import Results


class Metric(StrEnum):
    """Which examples are near."""

    COSINE = "cosine"
    EUCLIDEAN = "euclidean"


Nearness = Annotated[Metric, Option(help="Which are near; euclidean for embedded tables.")]
Neighbors = Annotated[
    int | None, Option(min=2, help="Near examples to look at, 2 by default: more for heavy noise.")
]
Classes = Annotated[
    str | None, Option(metavar="A,B,...", help="All classes in order, if some may not occur.")
]
Unlabeled = Annotated[
    str | None, Option(metavar="LABEL", help='What stands for "not labelled", such as -1.')
]
Verified = Annotated[
    str | None,
    Option(metavar="FILE", help="Checked labels: a table of verify-sample, true_label filled in."),
]


@dataclass(frozen=True)
class Data:
    """Features and labels, and the settings of an estimator that depend on them."""

    features: Features
    labels: Labels
    settings: dict[str, Any]

    @property
    def X(self) -> Any:
        """The features (N, d), or shards of them."""
        return self.features.array

    @property
    def y(self) -> Any:
        """The labels (N,)."""
        return self.labels.array


def open_results(folder: str, verified: str | None = None, **unused: object) -> Results:
    """Read what `labelnoise audit` wrote, with verified labels; `unused` options must be unset."""
    from labelnoise._errors import LabelNoiseError
    from labelnoise.results import HEAD, Results, is_begun

    if not is_begun(folder):
        raise LabelNoiseError(
            f"Expected LABELS, or a folder of labelnoise audit, but there are no LABELS and no "
            f"{HEAD} in {folder}"
        )
    if given := [f"--{name}" for name, value in unused.items() if value]:
        raise BadParameter(
            f"{given[0]} does not go with a folder of results: give features and labels"
        )
    results = Results.open(folder)
    if verified is not None:
        verify(results.estimate, verified)
    return results


def verify(est: HOC, file: str) -> None:
    """Let the answers of a file correct an estimate, unless all are the suggestions beside them."""
    from labelnoise._errors import LabelNoiseError

    est.verify(file)
    for finding in est.diagnostics_:
        if finding.name == "copied answers" and not finding.ok and finding.value == 0:
            raise LabelNoiseError(
                f"Expected a column true_label that a person filled in, but that of {file} repeats "
                f"the suggestions to the letter: {finding.sentence}"
            )


def read_data(
    features: str,
    labels: str,
    classes: str | None,
    unlabeled: str | None,
    metric: Metric,
    in_shards: bool = False,
) -> Data:
    """Read features and labels; classes on the command line are of the labels' kind."""
    from labelnoise.io.features import Features, read_features
    from labelnoise.io.labels import Labels, read_labels
    from labelnoise.io.tables import typed

    if in_shards:
        from labelnoise.io.shards import Shards, read_shard_labels

        shards: Any = Shards(features)
        X, y = Features(features, shards), Labels(read_shard_labels(labels, shards))
    else:
        X = read_features(features)
        y = read_labels(labels, X)
    if X.names is None and y.names is not None:
        print(
            f"Note: {features} has no names of its rows, so labels are matched by their order.",
            file=sys.stderr,
        )
    words = isinstance(next((label for label in y.array.tolist() if label is not None), ""), str)
    like = list if words else typed
    settings = {
        "metric": metric.value,
        "classes": None if classes is None else like(classes.split(",")),
        "unlabeled": None if unlabeled is None else like([unlabeled])[0],
    }
    return Data(X, y, settings)


def shown_examples(X: Features, source: Path | None) -> dict[str, Any]:
    """Names, and the images or texts that were embedded, for the suspects of a report."""
    shown: dict[str, Any] = {"names": None if X.numbered else X.names}
    if source is None:
        return shown
    if source.is_dir():
        return shown | {"images": _images(X, source)}
    return shown | {"texts": _texts(X, source)}


def _images(X: Features, folder: Path) -> list[str]:
    from labelnoise._errors import LabelNoiseError
    from labelnoise.io.images import files_inside

    if X.names is None or X.numbered:
        raise LabelNoiseError(
            f"Expected features whose rows have the names of images, as labelnoise embed makes "
            f"them, but {X.source} has none"
        )
    images = files_inside(folder, X.names)
    if not os.path.exists(images[0]):
        raise LabelNoiseError(
            f"Expected the images of {X.source} in {folder}, but there is no {X.names[0]}"
        )
    return images


def _texts(X: Features, source: Path) -> list[Any]:
    from labelnoise._errors import LabelNoiseError
    from labelnoise.io.texts import read_texts

    texts, n = read_texts(source), len(X.array)
    if len(texts) != n + len(X.failed) * X.numbered:
        raise LabelNoiseError(
            f"Expected a text for each of the {n} rows of {X.source}, but {source} has {len(texts)}"
        )
    rows = [int(name) for name in X.names] if X.numbered and X.names else range(n)
    return [texts[row] for row in rows]
