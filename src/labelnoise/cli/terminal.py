"""What the commands share: options, progress bars, and how results leave."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from labelnoise._errors import LabelNoiseError, LabelNoiseWarning

if TYPE_CHECKING:
    from pathlib import Path

    from labelnoise.checks import Finding

_SERIOUS_FINDING = 3  # status of --strict; 1 is bad input, 2 wrong usage

_STAGES = {
    "reading": "Reading the data",
    "neighbors": "Finding neighbours",
    "counting": "Counting label triples",
    "solving": "Solving for T",
    "embedding": "Embedding",
}

FeaturesFile = Annotated[
    str,
    Argument(
        metavar="FEATURES",
        help="Representations, a row for each example: .npy, .npz, .csv, .parquet, .arrow, "
        ".feather, .safetensors or .pt; data.npz:x is x in data.npz. Or the folder of labelnoise "
        "audit, without LABELS: nothing is fitted again.",
    ),
]
_LABELS = (
    "Labels in one of the same formats: of a table the column label, or labels.csv:NAME, matched "
    "by name if the features have names. Or a folder of images, with a folder for each class."
)
LabelsFile = Annotated[str, Argument(metavar="LABELS", help=_LABELS)]
LabelsIfNew = Annotated[str | None, Argument(metavar="LABELS", help=_LABELS)]
Seed = Annotated[int, Option(min=0, help="Makes what is random repeatable.")]
Device = Annotated[str, Option(help="auto, cpu or cuda.")]
Json = Annotated[bool, Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Show no progress.")]
Verbose = Annotated[bool, Option("--verbose", "-v", help="Print all checks, not only warnings.")]
Strict = Annotated[bool, Option("--strict", help="End with status 3 if a serious finding stands.")]


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """Give a function that shows (stage, done, total) on a terminal; total 0: not known.

    Warnings of an estimator are not shown meanwhile: its findings say the same.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    terminal = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    shown = terminal.is_interactive and not quiet
    # One that is disabled still prints an empty line at its end, in some versions.
    display = Progress(*columns, console=terminal) if shown else nullcontext()
    with display as bars, warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelNoiseWarning)
        tasks = {}

        def show(stage: str, done: int, total: int) -> None:
            if bars is None:
                return
            if stage not in tasks:
                tasks[stage] = bars.add_task(_STAGES.get(stage, stage.capitalize()), total=None)
            bars.update(tasks[stage], completed=done, total=total or None)

        yield show


def print_json(content: dict[str, Any]) -> None:
    """Print one JSON object."""
    print(json.dumps(content, indent=1, default=lambda value: value.tolist()))


def write_all(results: Iterable[tuple[Path | None, Callable[[Path], object]]]) -> list[Path]:
    """Write each result that has a path: one that fails does not keep the others from theirs."""
    written, failures = [], []
    for path, write in results:
        if path is None:
            continue
        try:
            write(path)
            written.append(path)
        except (LabelNoiseError, OSError) as error:
            failures.append(error)
    if failures:
        for path in written:
            print(f"Written: {path}", file=sys.stderr)
        raise failures[0]
    return written


def end_strictly(findings: Iterable[Finding]) -> None:
    """End with the status of --strict if a finding is serious."""
    if any(finding.severity == "serious" for finding in findings):
        raise Exit(_SERIOUS_FINDING)
