"""`labelnoise audit`: from the files that one has to a folder of results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from labelnoise.cli.data import Metric, Unlabeled
from labelnoise.cli.terminal import Json, Quiet, Strict, end_strictly, print_json, progress

if TYPE_CHECKING:
    from labelnoise.io.labels import Labels
    from labelnoise.io.sources import Source
    from labelnoise.results import Results

_CONFUSIONS = 3
_NOTED = 0.0005  # of a true class: less is printed as 0.0%

What = Annotated[
    str,
    Argument(
        metavar="SOURCE",
        help="A folder of images, with a folder for each class; a table with a column of labels, "
        "of texts, paths of images or anything; features; a data set that Hugging Face's datasets "
        "saved.",
    ),
]
Where = Annotated[
    str | None,
    Argument(
        metavar="LABELS",
        help="A file of labels, such as labels.csv or labels.csv:NAME, if they are not in SOURCE.",
    ),
]


def audit(
    source: What,
    labels: Where = None,
    out: Annotated[
        Path | None, Option(help="The folder of results; by default SOURCE-audit, here.")
    ] = None,
    text: Annotated[str | None, Option(metavar="NAME", help="A table's column of texts.")] = None,
    label: Annotated[str | None, Option(metavar="NAME", help="Its column of labels.")] = None,
    drop: Annotated[list[str] | None, Option(metavar="NAME", help="A column to leave out.")] = None,
    encoder: Annotated[
        str | None, Option(help="What makes features of images or texts, as for labelnoise embed.")
    ] = None,
    metric: Annotated[
        Metric | None, Option(help="Which are near; by default euclidean for tables, else cosine.")
    ] = None,
    unlabeled: Unlabeled = None,
    strict: Strict = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find out how many labels are wrong, and which: one command, one folder of results.

    It makes features if there are none. After a kill, or with the same data, it goes on from what
    is in the folder.
    """
    with progress(quiet) as show:
        show("reading", 0, 0)
        from labelnoise.audit import audit as run
        from labelnoise.audit import unpacked

        out = out or Path(f"{Path(source.rstrip('/')).stem}-audit")
        found = unpacked(source, labels, out, text=text, label=label)
        given = found.read_labels()
        if not as_json:
            print(said_of(source, found, given), flush=True)
        show("reading", 1, 1)
        results = run(
            found,
            out,
            encoder=encoder,
            drop=drop or (),
            metric=metric and metric.value,
            unlabeled=None if unlabeled is None else _like(unlabeled, given),
            progress=show,
        )
    if as_json:
        print_json({"folder": str(out), "kind": results.kind} | results.estimate.to_dict())
    else:
        print_results(results)
    if strict:
        end_strictly(results.estimate.diagnostics_)


def said_of(path: str, source: Source, labels: Labels) -> str:
    """Say in one line what was found."""
    from labelnoise.io.huggingface import is_dataset

    n = len(labels.array)
    unit = {"images": "images", "texts": "texts", "table": "rows"}.get(source.kind, "examples")
    own = f" (column {source.text})" if source.text else ""
    column = "" if labels.table is None else f" (column {labels.column})"
    if is_dataset(path):
        return f"{path}, a data set: {n:,} {unit}{own} with labels{column}."
    if source.labels != source.path:
        file = source.labels.removesuffix(f":{labels.column}")
        return f"{path}: {n:,} {unit}{own}, labels from {file}{column}."
    if column:
        return f"{path}: {n:,} {unit}{own} with labels{column}."
    classes = len(set(labels.array.tolist()))
    return f"{path}: {n:,} {unit} in {classes:,} folders, one for each class."


def _like(unlabeled: str, labels: Labels) -> Any:
    """The same as a number, where labels are numbers."""
    from labelnoise.io.tables import typed

    first = next((label for label in labels.array.tolist() if label is not None), "")
    return unlabeled if isinstance(first, str) else typed([unlabeled])[0]


def print_results(results: Results) -> None:
    """How many are wrong, the worst confusions, and what to do next."""
    from labelnoise.results import LABELS, REPORT, TO_CHECK
    from labelnoise.summary import quick_interval

    est, folder, found = results.estimate, results.folder, results.estimate.diagnostics_
    for finding in found.serious:
        print(finding)
    if found.estimable:
        n, interval = len(est.examples_.labels), quick_interval(est)
        ends = "" if interval is None else " ({:z.1%} to {:z.1%})".format(*interval.noise_rate)
        wrong = f"about {est.noise_rate_ * n:,.0f} of {n:,}"
        print(f"{est.noise_rate_:z.1%}{ends} of the labels are wrong, {wrong}.")
        if worst := worst_confusions(est):
            print(f"Most often: {'; '.join(worst)}.")
    warn = f" {len(found.warnings)} of {len(found)} checks warn." if found.warnings else ""
    print(f"Look: {folder / REPORT}, and {folder / LABELS} for each label.{warn}")
    print(f"Check the labels: labelnoise review {folder}")
    if (folder / TO_CHECK).exists():
        print(
            f"Or in a spreadsheet: fill in {folder / TO_CHECK}, then labelnoise estimate {folder} "
            f"--verified {folder / TO_CHECK}"
        )


def worst_confusions(est: Any) -> list[str]:
    """Give the wrong labels of which there are most."""
    import numpy as np

    T, classes = est.transition_matrix_, est.classes_
    wrong = est.joint_ * (1 - np.eye(len(T)))
    pairs = [divmod(int(place), len(T)) for place in np.argsort(-wrong, axis=None)[:_CONFUSIONS]]
    return [
        f"{T[i, j]:.1%} of true {classes[i]} are labelled {classes[j]}"
        for i, j in pairs
        if i != j and T[i, j] >= _NOTED
    ]
