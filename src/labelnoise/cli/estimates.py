"""`labelnoise estimate`, `suspects` and `compare`."""

from __future__ import annotations

import os
import sys
import time
from contextlib import AbstractContextManager, nullcontext
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
)

if TYPE_CHECKING:
    import numpy as np

    from labelnoise.files import Features, Labels


_FEWEST_CHECKED = 100  # examples, for a closer look to see something
_NOTABLE = 0.25  # relative difference of two noise rates that calls for a word


class Metric(StrEnum):
    """Which examples are near."""

    COSINE = "cosine"
    EUCLIDEAN = "euclidean"


class Search(StrEnum):
    """How neighbours are found."""

    AUTO = "auto"
    EXACT = "exact"
    APPROXIMATE = "approximate"


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
    report: Annotated[Path | None, Option(help="A page to look at, .html, or .json.")] = None,
    images: Annotated[Path | None, Option(help="The embedded folder, for the report.")] = None,
    texts: Annotated[Path | None, Option(help="The embedded texts, for the report.")] = None,
    groups: Groups = None,
    local: Annotated[bool, Option("--local", help="Also a T for each neighbourhood.")] = False,
    paper: Annotated[bool, Option("--paper", help="The paper's own procedure.")] = False,
    classes: Classes = None,
    unlabeled: Unlabeled = None,
    metric: Nearness = Metric.COSINE,
    neighbors: Neighbors = 2,
    search: Annotated[
        Search, Option(help="How neighbours are found; auto: exactly if it takes minutes.")
    ] = Search.AUTO,
    device: Annotated[
        str, Option(help="Where the work is done: cpu, cuda, or auto, a GPU if it pays.")
    ] = "auto",
    check: Annotated[
        bool, Option(help="Look closer at the assumptions, which takes longer than the rest.")
    ] = True,
    refine: Annotated[
        bool,
        Option(help="Tell classes that overlap from noise; not for features that saw the labels."),
    ] = True,
    scheduler: Annotated[
        str | None,
        Option(metavar="ADDRESS", help="FEATURES are shards, which Dask's workers there read."),
    ] = None,
    workers: Annotated[
        int | None, Option(min=1, help="FEATURES are shards, which so many processes here read.")
    ] = None,
    centers: Annotated[
        int | None, Option(min=1, help="Of shards, search so many random examples' neighbours.")
    ] = None,
    cells: Annotated[
        str | None,
        Option(metavar="FOLDER", help="Search shards faster, not exactly, in a copy put here."),
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Estimate how often each class is labelled as each other one."""
    sharded, nearly = bool(scheduler or workers), search == Search.APPROXIMATE
    elsewhere = device not in ("auto", "cpu")
    for one, other, both in (
        ("--groups", "--local", groups and local),
        ("--groups", "--paper", groups and paper),
        ("--neighbors", "--local", neighbors > 2 and local),
        ("--neighbors", "--paper", neighbors > 2 and paper),
        ("--search approximate", "--groups or --local", nearly and (groups or local)),
        ("--device", "--groups or --local", elsewhere and (groups or local)),
        ("--scheduler", "--workers", scheduler and workers),
        ("--scheduler or --workers", "--groups", sharded and groups),
        ("--scheduler or --workers", "--local", sharded and local),
        ("--scheduler or --workers", "--paper", sharded and paper),
        ("--scheduler or --workers", "--images or --texts", sharded and (images or texts)),
        ("--cells", "--search exact", cells and search == Search.EXACT),
        ("Shards", "--search approximate: use --cells", nearly and sharded and not cells),
        ("--centers", "--cells", centers and cells),
    ):
        if both:
            raise BadParameter(f"{one} does not go with {other}")
    if (centers or cells) and not sharded:
        raise BadParameter("--centers and --cells need --scheduler or --workers")
    if (images or texts) and not report:
        raise BadParameter("--images and --texts need --report")
    start = time.perf_counter()
    with progress(quiet) as show:
        show("reading", 0, 0)
        from labelnoise.files import check_output, read_labels, write_estimate

        if out:
            check_output(out, (".json", ".npy", ".csv", ".parquet"))
        if report:
            check_output(report, (".html", ".json"))
        X, y, settings = _read(features, labels, classes, unlabeled, metric, sharded)
        examples = _examples(X, images, texts)
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
            settings |= {"search": search.value, "device": device}
            est = HOC.paper(**settings) if paper else HOC(refine=refine, **settings)
            with _cluster(scheduler, workers):
                rows: Any = X.array
                if cells:
                    from labelnoise.distributed import partition

                    rows = partition(rows, cells, metric.value, progress=show)
                weight = None if centers is None else _random_centers(centers, len(y.array), seed)
                est.fit(rows, y.array, center_weight=weight, progress=show)
            if check and not sharded and len(X.array) > _FEWEST_CHECKED:
                est.diagnose(show)
        if report:
            show("judging the labels", 0, 0)
            from labelnoise.report import report_of

            plain = est
            if local or named is not None:
                plain = HOC(refine=False, n_neighbors=neighbors, **settings).fit(X.array, y.array)
            listed = None if sharded else plain.suspects()
            how = {"Data": f"{features}, {labels}", "Time": f"{time.perf_counter() - start:.1f} s"}
            report_of(est, suspects=listed, how=how, **examples).save(report)
            show("judging the labels", 1, 1)
    overall = getattr(est, "global_", est)
    if out:
        write_estimate(out, est)
    if as_json:
        print_json(_content(est))
        return
    print(overall)
    if local:
        from labelnoise.report.gather import local_spread

        print("\n  ".join(local_spread(est)))
    elif named is not None:
        print(est)
    for what, path in (("Estimate", out), ("Report", report)):
        if path:
            print(f"{what}: {path}")


def _random_centers(centers: int, n: int, seed: int) -> np.ndarray:
    """1 for so many random examples, 0 for the others."""
    import numpy as np

    return np.random.default_rng(seed).permutation(n) < centers


def _cluster(scheduler: str | None, workers: int | None) -> AbstractContextManager[Any]:
    """The workers that are asked for, where any are."""
    if not (scheduler or workers):
        return nullcontext()
    from labelnoise.distributed import local_cluster, remote_cluster

    return remote_cluster(scheduler) if scheduler else local_cluster(workers or 1)


def _read(
    features: str,
    labels: str,
    classes: str | None,
    unlabeled: str | None,
    metric: Metric,
    sharded: bool = False,
) -> tuple[Features, Labels, dict[str, Any]]:
    """Features and labels, and the settings of an estimator that depend on them."""
    from labelnoise.files import Features, Labels, read_features, read_labels, typed

    if sharded:
        from labelnoise.shards import Shards, read_shard_labels

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


def _examples(X: Features, images: Path | None, texts: Path | None) -> dict[str, Any]:
    """Names, images and texts of the rows, to be shown with the suspects."""
    from labelnoise._errors import LabelNoiseError
    from labelnoise.encoders import _find_texts, _inside

    names = X.names or []
    shown: dict[str, Any] = {"names": None if X.numbered else X.names}
    if images is not None:
        if X.names is None:
            raise LabelNoiseError(
                f"Expected features whose rows have the names of images, as labelnoise embed makes "
                f"them, but {X.source} has none"
            )
        shown["images"] = _inside(images, names)
        if not os.path.exists(shown["images"][0]):
            raise LabelNoiseError(
                f"Expected the images of {X.source} in {images}, but there is no {names[0]}"
            )
    if texts is not None:
        found, rows = _find_texts(texts, None), range(len(X.array))
        if len(found) != len(rows) + len(X.failed) * X.numbered:
            raise LabelNoiseError(
                f"Expected a text for each of the {len(rows)} rows of {X.source}, but {texts} has "
                f"{len(found)}"
            )
        shown["texts"] = [found[int(names[row]) if X.numbered else row] for row in rows]
    return shown


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
        found = est.suspects()
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
                f"(labelnoise estimate says {est.noise_rate_:.1%}: it tells wrong labels from "
                f"classes that overlap by another model.)"
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
