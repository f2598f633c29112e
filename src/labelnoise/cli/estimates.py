"""`labelnoise estimate`, `suspects` and `compare`."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Option

from labelnoise.cli.data import (
    Classes,
    Data,
    Metric,
    Nearness,
    Neighbors,
    Unlabeled,
    Verified,
    open_results,
    read_data,
    shown_examples,
    verify,
)
from labelnoise.cli.terminal import (
    FeaturesFile,
    Json,
    LabelsIfNew,
    Quiet,
    Seed,
    Strict,
    Verbose,
    end_strictly,
    print_json,
    progress,
    write_all,
)

if TYPE_CHECKING:
    from labelnoise.hoc import HOC
    from labelnoise.results import Results

_FEWEST_CHECKED = 100  # examples, for the closer checks to see something

Estimate = Annotated[Path | None, Option(help="All of it to .json, or T to .npy, .csv, .parquet.")]
Page = Annotated[Path | None, Option(help="A page to look at, .html, or .json.")]
Examples = Annotated[
    Path | None, Option(help="The folder or texts that were embedded, for the report.")
]
Groups = Annotated[
    str | None,
    Option(metavar="FILE", help="Column group of FILE, or FILE:NAME: a T for each annotator."),
]
Local = Annotated[bool, Option("--local", help="Also a T for each neighbourhood.")]
Paper = Annotated[bool, Option("--paper", help="The paper's own procedure.")]
Refine = Annotated[
    bool,
    Option(help="Tell classes that overlap from noise; not for features that saw the labels."),
]
Check = Annotated[
    bool, Option(help="Look closer at the assumptions, which takes longer than the rest.")
]
Workers = Annotated[
    str | None,
    Option(
        metavar="N|ADDRESS",
        help="FEATURES are shards: N processes read them, or those of Dask's scheduler there.",
    ),
]
Suspects = Annotated[Path, Option(help="Where the list goes, .csv or .parquet.")]
Top = Annotated[int | None, Option(min=1, help="Only so many, the surest.")]
Threshold = Annotated[float, Option(min=0, max=1, help="Only those as surely wrong.")]


def estimate(
    features: FeaturesFile,
    labels: LabelsIfNew = None,
    out: Estimate = None,
    report: Page = None,
    examples: Examples = None,
    groups: Groups = None,
    local: Local = False,
    paper: Paper = False,
    refine: Refine = True,
    classes: Classes = None,
    unlabeled: Unlabeled = None,
    metric: Nearness = Metric.COSINE,
    neighbors: Neighbors = None,
    verified: Verified = None,
    check: Check = True,
    workers: Workers = None,
    strict: Strict = False,
    seed: Seed = 0,
    as_json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Estimate how often each class is labelled as each other one."""
    _expect_compatible(groups, local, paper, neighbors, workers, verified, examples, report)
    if labels is None:
        unused: list[tuple[str, Any]] = [
            ("examples", examples),
            ("groups", groups),
            ("local", local),
            ("paper", paper),
        ]
        unused += [("no-refine", not refine), ("classes", classes), ("unlabeled", unlabeled)]
        unused += [("metric", metric is not Metric.COSINE), ("neighbors", neighbors)]
        results = _from_results(features, out, report, verified, quiet, unused)
        est = results.estimate
        _print(est, est, {"Estimate": out, "Report": report}, as_json, strict, verbose)
        return
    start = time.perf_counter()
    with progress(quiet) as show:
        show("reading", 0, 0)
        inputs = [features, labels, groups, examples, verified]
        _check_outputs(out, report, inputs, bool(workers))
        data = read_data(features, labels, classes, unlabeled, metric, bool(workers))
        shown = shown_examples(data.features, examples)
        show("reading", 1, 1)
        settings = {"refine": refine, "n_neighbors": neighbors or 2, "random_state": seed}
        overall = est = _fit(data, paper, settings, workers, show, verified)
        if groups or local:
            est = _fit_parts(data, groups, paper, settings, show, verified)
        if check and not (paper or workers) and len(data.y) > _FEWEST_CHECKED:
            overall.diagnose(show)

        def write_report(path: Path) -> None:
            from labelnoise.report import report_of

            show("judging the labels", 0, 0)
            how = {"Data": f"{features}, {labels}", "Time": f"{time.perf_counter() - start:.1f} s"}
            found = None if workers else overall.suspects()
            report_of(est, suspects=found, how=how, **shown).save(path)
            show("judging the labels", 1, 1)

        from labelnoise.io.results import write_estimate

        write_all([(out, lambda path: write_estimate(path, est)), (report, write_report)])
    _print(est, overall, {"Estimate": out, "Report": report}, as_json, strict, verbose)


def _from_results(
    folder: str,
    out: Path | None,
    report: Path | None,
    verified: str | None,
    quiet: bool,
    unused: list[tuple[str, Any]],
) -> Results:
    """Write what is asked for of an estimate that is there."""
    with progress(quiet) as show:
        show("reading", 0, 0)
        _check_outputs(out, report, [verified], False)
        results = open_results(folder, verified, **dict(unused))
        from labelnoise.io.results import write_estimate

        def write_report(path: Path) -> None:
            results.report().save(path)

        def write_json(path: Path) -> None:
            write_estimate(path, results.estimate)

        write_all([(out, write_json), (report, write_report)])
        show("reading", 1, 1)
    return results


def _expect_compatible(
    groups: str | None,
    local: bool,
    paper: bool,
    neighbors: int | None,
    workers: str | None,
    verified: str | None,
    examples: Path | None,
    report: Path | None,
) -> None:
    for one, other, both in (
        ("--groups", "--local or --paper", groups and (local or paper)),
        ("--neighbors", "--local or --paper", neighbors and (local or paper)),
        ("--workers", "--groups, --local, --paper", workers and (groups or local or paper)),
        ("--workers", "--examples", workers and examples),
        ("--verified", "--local or --workers", verified and (local or workers)),
    ):
        if both:
            raise BadParameter(f"{one} does not go with {other}")
    if examples and not report:
        raise BadParameter("--examples needs --report, which shows them")


def _check_outputs(
    out: Path | None, report: Path | None, inputs: list[Any], in_shards: bool
) -> None:
    from labelnoise.io.outputs import check_outputs
    from labelnoise.io.results import ESTIMATES

    if in_shards:
        from labelnoise.io.shards import local_files

        inputs = [*inputs, *local_files(inputs[0]), *local_files(inputs[1])]
    wanted: dict[Any, Any] = {}
    for path, suffixes in ((out, ESTIMATES), (report, (".html", ".json"))):
        if path in wanted:
            raise BadParameter("--out and --report are one file")
        if path is not None:
            wanted[path] = suffixes
    check_outputs(wanted, inputs)


def _fit(
    data: Data,
    paper: bool,
    settings: dict[str, Any],
    workers: str | None,
    show: Any,
    verified: str | None,
) -> HOC:
    """One T of all data."""
    from labelnoise.hoc import HOC

    settings = data.settings | settings
    if paper:
        est = HOC.paper(**{name: settings[name] for name in settings if name != "refine"})
    else:
        est = HOC(**settings)
    with _cluster(workers):
        est.fit(data.X, data.y, progress=show)
    if verified is not None:
        verify(est, verified)
    return est


def _fit_parts(
    data: Data,
    groups: str | None,
    paper: bool,
    settings: dict[str, Any],
    show: Any,
    verified: str | None,
) -> Any:
    """A T for each group or neighbourhood."""
    from labelnoise import GroupHOC, LocalHOC
    from labelnoise.io.labels import read_labels

    if groups is None:
        make = LocalHOC.paper if paper else LocalHOC
        local = make(**data.settings, random_state=settings["random_state"])
        return local.fit(data.X, data.y, progress=show)
    named = read_labels(groups, data.features, "group").array
    show("fitting the groups", 0, 0)
    est = GroupHOC(**data.settings, n_neighbors=settings["n_neighbors"])
    est.fit(data.X, data.y, groups=named, verified=verified)
    show("fitting the groups", 1, 1)
    return est


def _cluster(workers: str | None) -> AbstractContextManager[Any]:
    """The workers that are asked for, where any are."""
    if workers is None:
        return nullcontext()
    from labelnoise.distributed import local_cluster, remote_cluster

    if workers.isdecimal() and int(workers):
        return local_cluster(int(workers))
    if "://" not in workers:
        raise BadParameter(f"--workers is a number or an address as tcp://..., but it is {workers}")
    return remote_cluster(workers)


def _print(
    est: Any,
    overall: HOC,
    written: dict[str, Path | None],
    as_json: bool,
    strict: bool,
    verbose: bool,
) -> None:
    if as_json:
        print_json(_content(est))
    else:
        _print_estimate(est, overall, verbose, written)
    if strict:
        end_strictly(overall.diagnostics_)


def _print_estimate(est: Any, overall: HOC, verbose: bool, written: dict[str, Path | None]) -> None:
    from labelnoise.summary import summary

    where = "all are above" if verbose else "--verbose or the report has all"
    print(summary(overall, verbose, where))
    if hasattr(est, "members_"):
        from labelnoise.report.gather import local_spread

        print("\n  ".join(local_spread(est)))
    elif est is not overall:
        print(est)
    for what, path in written.items():
        if path:
            print(f"{what}: {path}")


def _content(est: Any) -> dict[str, Any]:
    """What a reader of JSON wants of an estimate: not what belongs to single examples."""
    content: dict[str, Any] = est.to_dict()
    for name in ("assignment", "members", "compared"):
        content.pop(name, None)
    if hasattr(est, "groups_"):
        content["noise_rates"] = est.noise_rates_
        content["differences"] = [vars(difference) for difference in est.differences()]
    return content


def suspects(
    features: FeaturesFile,
    labels: LabelsIfNew = None,
    *,
    out: Suspects,
    top: Top = None,
    threshold: Threshold = 0.0,
    classes: Classes = None,
    unlabeled: Unlabeled = None,
    metric: Nearness = Metric.COSINE,
    neighbors: Neighbors = None,
    verified: Verified = None,
    strict: Strict = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List the labels that are probably wrong, the surest first, with a better one for each.

    They are as many as are expected to be wrong.
    """
    from labelnoise.io.outputs import check_outputs

    with progress(quiet) as show:
        show("reading", 0, 0)
        check_outputs({out: (".csv", ".parquet")}, [features, labels, verified])
        if labels is None:
            unused = {"classes": classes, "unlabeled": unlabeled, "neighbors": neighbors}
            unused["metric"] = metric is not Metric.COSINE
            results = open_results(features, verified, **unused)
            est, X = results.estimate, results.features
        else:
            data = read_data(features, labels, classes, unlabeled, metric)
            X = data.features
            est = _fit(data, False, {"n_neighbors": neighbors or 2}, None, show, verified)
        show("reading", 1, 1)
        show("judging the labels", 0, 0)
        found = est.suspects()
        show("judging the labels", 1, 1)
    names = X.names
    kept = found.index[found.probability >= threshold][:top]
    found.save(out, rows=kept, names=names)
    if as_json:
        listed = {name: column[kept] for name, column in found.columns().items()}
        print_json({"expected_errors": found.expected_errors, "suspects": listed})
    else:
        _print_suspects(found, est, names)
        print(f"Suspects: {out} ({len(kept):,} of them)")
    if strict:
        end_strictly(est.diagnostics_)


def _print_suspects(found: Any, est: HOC, names: list[str] | None) -> None:
    for finding in est.diagnostics_.serious:
        print(finding)
    print(found if names is None else replace(found, names=names))


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
