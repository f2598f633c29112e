"""`labelnoise score`: the accuracy that noisy test labels hide."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from labelnoise.cli.terminal import Json, LabelsFile, print_json

_CLASSES_SHOWN = 20


def score(
    labels: LabelsFile,
    predictions: Annotated[
        str, Argument(metavar="PREDICTIONS", help="Predicted labels, in one of the same formats.")
    ],
    estimate: Annotated[
        Path, Argument(metavar="T.json", help="What `labelnoise estimate --out` wrote.")
    ],
    level: Annotated[float, Option(help="Chance of the interval to cover the truth.")] = 0.95,
    as_json: Json = False,
) -> None:
    """Estimate how often a classifier is right on clean labels, from noisy test labels.

    It holds if noise depends only on the class and the classifier did not learn from these
    labels.
    """
    from labelnoise._errors import LabelNoiseError
    from labelnoise.hoc import HOC
    from labelnoise.io.labels import read_labels
    from labelnoise.scores import clean_accuracy

    est = HOC.load(estimate)
    given, predicted = read_labels(labels), read_labels(predictions)
    if given.names is not None and predicted.names is not None and given.names != predicted.names:
        raise LabelNoiseError(
            f"Expected the same rows in {labels} and {predictions}, but their names differ: sort "
            f"both files by name"
        )
    try:
        variance = est.confidence_interval().transition_variance()
    except LabelNoiseError:  # another solver, or too many classes
        variance = None
    found = clean_accuracy(
        given.array,
        predicted.array,
        est.transition_matrix_,
        classes=est.classes_,
        variance=variance,
        level=level,
    )
    if as_json:
        print_json(vars(found) | {"includes_error_of_T": variance is not None})
        return
    print(f"{found}.")
    if variance is None:
        print("The interval is that of the test labels alone: this estimate has no error bars.")
    ends = found.recall_interval.T
    for name, share, (low, high) in list(zip(found.classes, found.recall, ends, strict=True))[
        :_CLASSES_SHOWN
    ]:
        print(f"  true {name}: {share:.1%} ({low:.1%} to {high:.1%}) predicted correctly")
