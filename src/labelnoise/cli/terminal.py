"""What the commands share: options, progress bars, and how results leave."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from labelnoise._errors import LabelNoiseError, LabelNoiseWarning
from labelnoise._files import write_then_rename

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
        ".feather, .safetensors or .pt; data.npz:x is x in data.npz.",
    ),
]
LabelsFile = Annotated[
    str,
    Argument(
        metavar="LABELS",
        help="Labels in one of the same formats. Of a table: the column label, or labels.csv:NAME; "
        "matched by name where the features have names.",
    ),
]
Seed = Annotated[int, Option(min=0, help="Makes what is random repeatable.")]
Device = Annotated[str, Option(help="auto, cpu or cuda.")]
Json = Annotated[bool, Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Show no progress.")]


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """Give what shows (stage, done, total) on the terminal, if there is one; total 0: not known.

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


def write_page(path: Path, page: str) -> None:
    """Write the page, and the folders it goes to; all or nothing."""
    new: list[Path] = []
    try:
        new = [folder for folder in path.parents if not folder.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_then_rename(path) as file:
            file.write(page.encode())
    except BaseException as error:
        for folder in new:
            with suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError):
            raise LabelNoiseError(
                f"Expected a folder to write to, but {path.parent} cannot be made one: "
                f"{error.strerror}"
            ) from error
        raise
