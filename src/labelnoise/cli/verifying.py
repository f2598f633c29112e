"""`labelnoise verify-sample`: which labels to check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from labelnoise.cli.data import Classes, Metric, Nearness, Unlabeled, open_results, read_data
from labelnoise.cli.terminal import FeaturesFile, LabelsIfNew, Quiet, Seed, progress

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
    labels: LabelsIfNew = None,
    *,
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
    from labelnoise.results import sample_table

    with progress(quiet) as show:
        show("reading", 0, 0)
        check_outputs({out: (".csv", ".tsv", ".parquet")}, [features, labels, *(after or [])])
        if labels is None:
            unused = {"classes": classes, "unlabeled": unlabeled}
            results = open_results(features, **unused, metric=metric is not Metric.COSINE)
            est, names = results.estimate, results.features.names
        else:
            from labelnoise.hoc import HOC

            data = read_data(features, labels, classes, unlabeled, metric)
            names = data.features.names
            est = HOC(**data.settings).fit(data.X, data.y, progress=show)
        show("reading", 1, 1)
        sample = est.to_verify(n, after=after, random_state=seed)
    write_table(out, sample_table(sample, names, suggestions))
    print(sample)
    print(f"Sample: {out}")
