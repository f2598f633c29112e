"""The command line: `labelnoise --help` lists the commands.

What takes long to import is imported inside the commands, so that help comes at once.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from labelnoise import __version__
from labelnoise._errors import LabelNoiseError
from labelnoise.cli.audit import audit
from labelnoise.cli.card import card
from labelnoise.cli.digits import demo
from labelnoise.cli.estimates import compare, estimate, suspects
from labelnoise.cli.making import corrupt, embed
from labelnoise.cli.review import review
from labelnoise.cli.score import score
from labelnoise.cli.training import DESCRIPTIONS, predict, train
from labelnoise.cli.verifying import verify_sample

_INTERRUPTED = 130  # 128 + SIGINT, as shells have it; typer exits with it too

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line; what a user can cause ends in one line and a status."""
    # The bars of others are no lines of ours.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that lacks a character shows "?" instead of ending the program.
            stream.reconfigure(errors="replace")
    try:
        app(prog_name="labelnoise")
    except (LabelNoiseError, OSError, MemoryError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, MemoryError):
            said = f"Expected enough memory, but there is too little: {said}"
        print("Error:", said, file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(_interrupted())
    except SystemExit as stop:
        if stop.code == _INTERRUPTED:
            _interrupted()
        raise


def _interrupted() -> int:
    print("Interrupted.", file=sys.stderr)
    return _INTERRUPTED


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"labelnoise {__version__}")
        raise typer.Exit


@app.callback(
    epilog="From images in a folder for each class to what is wrong with their labels:\n\n"
    "labelnoise audit photos/\n\n"
    "Exit status: 0 done, 1 input that cannot be worked with, 2 wrong usage, 3 a serious finding "
    "with --strict, 130 interrupted."
)
def _labelnoise(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """How wrong are your labels? Estimate the noise, without clean labels."""


def _add(command: object, *examples: str, after: Sequence[str] = ()) -> None:
    shown = [f"labelnoise {example}" for example in examples]
    epilog = "\n\n".join(["Examples:", *shown, *after])
    app.command(epilog=epilog)(command)  # type: ignore[type-var]


_add(
    audit,
    "audit photos/",
    "audit photos/ labels.csv:species",
    "audit reviews.csv --text review --label stars",
    "audit people.csv --label income --out income",
    "audit features.npy labels.npy",
)
_add(demo, "demo", "demo --noise pair --rate 0.3 --out pair.html")
_add(
    estimate,
    "estimate features.npy labels.npy",
    "estimate features.npy labels.csv:colour --out T.json --report report.html",
    "estimate features.npy photos/",
    "estimate table.parquet table.parquet --groups table.parquet:annotator",
)
_add(
    suspects,
    "suspects features.npy labels.csv --out suspects.csv",
    "suspects features.npy labels.csv --out worst.csv --top 500 --threshold 0.9",
)
_add(
    verify_sample,
    "verify-sample features.npy labels.csv --out to_check.csv",
    "verify-sample features.npy labels.csv --n 100 --after checked.csv --out more.csv",
)
_add(review, "review results", "review results --export checked")
_add(
    embed,
    "embed photos/ --out features.npy",
    "embed reviews.csv --kind texts --column review --out features.npy",
    "embed people.csv --kind table --drop income --out features.npy",
)
_add(
    corrupt,
    "corrupt labels.npy --kind symmetric --rate 0.4 --out noisy.npy",
    "corrupt photos/ --rate 0.2 --out noisy.csv",
    "corrupt labels.csv --kind instance --rate 0.4 --features features.npy --out noisy.csv",
)
_add(
    train,
    "train features.npy labels.csv --method hoc-global --network mlp",
    "train photos/ --method gce --method-setting q=0.5 --plan short --network resnet18",
    "train cifar10 worst --root data --method hoc-local",
    after=DESCRIPTIONS,
)
_add(predict, "predict runs/features-hoc/model.safetensors new.npy --out predictions.csv")
_add(compare, "compare before.json after.json")
_add(card, "card T.json --out CARD.md --badge label-noise.svg")
_add(score, "score test-labels.csv predictions.csv T.json")
