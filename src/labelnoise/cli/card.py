"""`labelnoise card`: what goes into the README of a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from labelnoise.cli.terminal import write_all


def card(
    results: Annotated[
        Path,
        Argument(
            metavar="RESULTS",
            help="An estimate in a .json file, or a folder with one called noise.json.",
        ),
    ],
    out: Annotated[
        Path | None, Option(help="Where the card goes, .md, instead of the terminal.")
    ] = None,
    badge: Annotated[Path | None, Option(help="A badge with the noise rate, .svg.")] = None,
) -> None:
    """Write a card on the quality of the labels, for the README of the data set."""
    from labelnoise.card import card_of
    from labelnoise.hoc import HOC
    from labelnoise.io.outputs import check_outputs

    estimate = results / "noise.json" if results.is_dir() else results
    endings = ((out, (".md",)), (badge, (".svg",)))
    check_outputs({path: suffixes for path, suffixes in endings if path is not None}, [estimate])
    made = card_of(HOC.load(estimate))
    write_all([(out, made.save), (badge, made.save_badge)])
    if out is None:
        print(made.markdown, end="")
    for what, path in (("Card", out), ("Badge", badge)):
        if path is not None and out is not None:
            print(f"{what}: {path}")
