"""`labelnoise estimate`, `suspects` and `compare`."""

from __future__ import annotations

import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Option

from labelnoise.cli.terminal import (
    FeaturesFile,
    Json,
    LabelsFile,
    Quiet,
    Seed,
    print_json,
    progress,
    write_page,
)

if TYPE_CHECKING:
    from labelnoise.files import Features, Labels
    from labelnoise.hoc import HOC
    from labelnoise.local import LocalHOC


_FEWEST_CHECKED = 100  # examples, for a closer look to see something
_NOTABLE = 0.25  # relative difference of two noise rates that calls for a word


class Metric(StrEnum):
    """Which examples are near."""

    COSINE = "cosine"
    EUCLIDEAN = "euclidean"


Nearness = Annotated[Metric, Option(help="Which are near; euclidean for embedded tables.")]
Neighbors = Annotated[int, Option(min=2, help="Near examples to look at: more for heavy noise.")]
Classes = Annotated[
    str | None, Option(metavar="A,B,...", help="All classes in order, if some may not occur.")
]
Unlabeled = Annotated[
    str | None, Option(metavar="LABEL", help='What stands for "not labelled", such as -1.')
]
Out = Annotated[Path | None, Option(help="All of it to .json, or T to .npy, .csv, .parquet.")]
Groups = Annotated[
    str | None,
    Option(metavar="FILE", help="Column group of FILE, or FILE:NAME: a T for each annotator."),
]


def estimate(
    features: FeaturesFile,
    labels: LabelsFile,
    out: Out = None,
    report: Annotated[Path | None, Option(help="A page to look at, .html.")] = None,
    groups: Groups = None,
    local: Annotated[bool, Option("--local", help="Also a T for each neighbourhood.")] = False,
    paper: Annotated[bool, Option("--paper", help="The paper's own procedure.")] = False,
    classes: Classes = None,
    unlabeled: Unlabeled = None,
    metric: Nearness = Metric.COSINE,
    neighbors: Neighbors = 2,
    check: Annotated[
        bool, Option(help="Look closer at the assumptions, which takes longer than the rest.")
    ] = True,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Estimate how often each class is labelled as each other one."""
    for one, other, both in (
        ("--groups", "--local", groups and local),
        ("--groups", "--paper", groups and paper),
        ("--neighbors", "--local", neighbors > 2 and local),
        ("--neighbors", "--paper", neighbors > 2 and paper),
    ):
        if both:
            raise BadParameter(f"{one} does not go with {other}")
    with progress(quiet) as show:
        show("reading", 0, 0)
        from labelnoise.files import check_output, read_labels, write_estimate

        if out:
            check_output(out, (".json", ".npy", ".csv", ".parquet"))
        X, y, settings = _read(features, labels, classes, unlabeled, metric)
        named = None if groups is None else read_labels(groups, X, "group").array
        show("reading", 1, 1)
        from labelnoise import HOC, GroupHOC, LocalHOC

        est: Any
        if local:
            est = (LocalHOC.paper if paper else LocalHOC)(**settings, random_state=seed)
            est.fit(X.array, y.array, progress=show)
        elif named is not None:
            show("fitting the groups", 0, 0)
            est = GroupHOC(**settings, n_neighbors=neighbors)
            est.fit(X.array, y.array, groups=named)
            show("fitting the groups", 1, 1)
        else:
            settings |= {"n_neighbors": neighbors, "random_state": seed}
            est = HOC.paper(**settings) if paper else HOC(**settings)
            est.fit(X.array, y.array, progress=show)
            if check and len(X.array) > _FEWEST_CHECKED:
                est.diagnose(show)
    overall = getattr(est, "global_", est)
    if out:
        write_estimate(out, est)
    if report:
        _write_report(report, overall)
    if as_json:
        print_json(_content(est))
        return
    print(overall)
    if local:
        print(_spread(est))
    elif named is not None:
        print(est)
    for what, path in (("Estimate", out), ("Report", report)):
        if path:
            print(f"{what}: {path}")


def _read(
    features: str, labels: str, classes: str | None, unlabeled: str | None, metric: Metric
) -> tuple[Features, Labels, dict[str, Any]]:
    """Features and labels, and the settings of an estimator that depend on them."""
    from labelnoise.files import read_features, read_labels, typed

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
    return X, y, settings


def _content(est: Any) -> dict[str, Any]:
    """What a reader of JSON wants of an estimate: not what belongs to single examples."""
    content: dict[str, Any] = est._content()
    for name in ("assignment", "members", "compared"):
        content.pop(name, None)
    if hasattr(est, "groups_"):
        content["noise_rates"] = est.noise_rates_
        content["differences"] = [vars(difference) for difference in est.differences()]
    return content


def _spread(est: LocalHOC) -> str:
    """How much the matrices of neighbourhoods differ, in a few lines."""
    import numpy as np

    T, p, names = est.transition_matrices_, est.class_priors_, est.classes_
    low, middle, high = np.quantile(1 - np.einsum("li,lii->l", p, T), [0.1, 0.5, 0.9])
    lines = [
        f"In {len(T)} neighbourhoods of {est.local_size} examples, {low:.1%} to {high:.1%} of the "
        f"labels are wrong (in the middle eight tenths; median {middle:.1%})."
    ]
    lowest, highest = np.quantile(T, [0.1, 0.9], axis=0)
    apart = (highest - lowest) * (1 - np.eye(len(names)))
    for place in np.argsort(-apart, axis=None)[:3]:
        i, j = divmod(int(place), len(names))
        share = f"{lowest[i, j]:.1%} to {highest[i, j]:.1%}"
        lines.append(f"  {share} of true {names[i]} are labelled {names[j]}")
    return "\n".join(lines)


def _write_report(path: Path, est: HOC) -> None:
    """Write the page about an estimate."""
    from labelnoise.report.heatmap import _STYLE, _finding_items, _items, _map, short_percent

    def cell(share: float, on_diagonal: bool) -> tuple[str, float, str]:
        return "right" if on_diagonal else "wrong", share, short_percent(share)

    names = [str(name) for name in est.classes_]
    confusions = [line for line in str(est).splitlines() if " are labelled " in line]
    page = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Label noise: the estimate</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><style>{_STYLE}</style></head><body>
<header><h1>Estimate: {est.noise_rate_:.1%} of the labels are wrong</h1></header>
<main><section><div class="maps">{_map("T", names, est.transition_matrix_, cell)}</div></section>
<section><h2>Most frequent confusions</h2><ul>{_items(confusions)}</ul></section>
<section><h2>What the estimate stands on</h2>
<ul class="findings">{_finding_items(est.diagnostics_)}</ul></section></main></body></html>
"""
    write_page(path, page)


def suspects(
    features: FeaturesFile,
    labels: LabelsFile,
    out: Annotated[Path, Option(help="Where the list goes, .csv or .parquet.")],
    top: Annotated[int | None, Option(min=1, help="Only so many, the surest.")] = None,
    threshold: Annotated[float, Option(min=0, max=1, help="Only those as surely wrong.")] = 0.0,
    classes: Classes = None,
    unlabeled: Unlabeled = None,
    metric: Nearness = Metric.COSINE,
    neighbors: Neighbors = 2,
    verified: Annotated[
        str | None,
        Option(metavar="FILE", help="Labels that were checked: a table of row or name, and label."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List the labels that are probably wrong, the surest first, with a better one for each.

    They are as many as are expected to be wrong. A few hundred verified labels of random examples
    correct the probabilities.
    """
    with progress(quiet) as show:
        show("reading", 0, 0)
        from labelnoise.files import check_output, read_verified, write_table

        check_output(out, (".csv", ".parquet"))
        X, y, settings = _read(features, labels, classes, unlabeled, metric)
        known = None if verified is None else read_verified(verified, X)
        show("reading", 1, 1)
        from labelnoise.hoc import HOC

        est = HOC(**settings, n_neighbors=neighbors).fit(X.array, y.array, progress=show)
        show("judging the labels", 0, 0)
        found = est.suspects(known)
        show("judging the labels", 1, 1)
    kept = (found.probability >= threshold).nonzero()[0][:top]
    table: dict[str, Any] = {"row": found.index[kept]}
    if X.names is not None:
        table["name"] = [X.names[row] for row in table["row"]]
    table["given label"] = found.given[kept]
    table["suggested label"] = found.suggested[kept]
    table["probability wrong"] = found.probability[kept].round(4)
    write_table(out, table)
    if as_json:
        print_json({"expected_errors": found.expected_errors, "suspects": table})
    else:
        if X.names is not None:
            import numpy as np

            found = replace(found, index=np.array(X.names)[found.index])
        print(found)
        expected = found.expected_errors / max(found.n_labels, 1)
        if abs(est.noise_rate_ - expected) > _NOTABLE * expected:
            print(
                f"(labelnoise estimate says {est.noise_rate_:.1%}: it looks at neighbours alone, "
                f"and takes classes that overlap in these features for wrong labels.)"
            )
        print(f"Suspects: {out} ({len(kept):,} of them)")


def compare(
    before: Annotated[Path, Argument(metavar="A.json", help="An estimate.")],
    after: Annotated[Path, Argument(metavar="B.json", help="Another, of the same classes.")],
    as_json: Json = False,
) -> None:
    """Show two estimates side by side: what changes from the first to the second."""
    from labelnoise.comparison import compare_estimates
    from labelnoise.hoc import HOC

    found = compare_estimates(HOC.load(before), HOC.load(after))
    if as_json:
        print_json(vars(found))
    else:
        print(found)
