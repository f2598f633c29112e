"""`labelnoise verify-sample`: which labels to check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from labelnoise.cli.data import Classes, Metric, Nearness, Unlabeled, read_data
from labelnoise.cli.terminal import FeaturesFile, LabelsFile, Quiet, Seed, progress

Rows = Annotated[
    int | None,
    Option("--n", min=1, help="How many labels; by default as many as give 2 points either way."),
]
After = Annotated[
    list[Path] | None, Option(metavar="FILE", help="An earlier sample, whose rows are left out.")
]
Suggestions = Annotated[
    bool, Option("--suggestions", help="Show the model's opinion, which may lead whoever checks.")
]


def verify_sample(
    features: FeaturesFile,
    labels: LabelsFile,
    out: Annotated[Path, Option(help="Where the table goes, .csv, .tsv or .parquet.")],
    n: Rows = None,
    after: After = None,
    suggestions: Suggestions = False,
    classes: Classes = None,
    unlabeled: Unlabeled = None,
    metric: Nearness = Metric.COSINE,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Choose labels to check: with their true labels, estimate measures how many are wrong.

    Fill in the column true_label and give the table to estimate --verified.
    """
    from labelnoise.io.outputs import check_outputs
    from labelnoise.io.tables import write_table

    with progress(quiet) as show:
        show("reading", 0, 0)
        check_outputs({out: (".csv", ".tsv", ".parquet")}, [features, labels, *(after or [])])
        data = read_data(features, labels, classes, unlabeled, metric)
        show("reading", 1, 1)
        from labelnoise.hoc import HOC

        est = HOC(**data.settings).fit(data.X, data.y, progress=show)
        sample = est.to_verify(n, after=after, random_state=seed)
    table = sample.columns(suggestions)
    if (names := data.features.names) is not None:
        table = {"row": table.pop("row"), "name": [names[row] for row in sample.row], **table}
    write_table(out, table)
    print(sample)
    print(f"Sample: {out}")
