"""`labelnoise card`: what goes into the README of a data set."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from labelnoise.cli.terminal import write_all

if TYPE_CHECKING:
    from labelnoise.hoc import HOC
    from labelnoise.results import Results


def card(
    results: Annotated[
        Path,
        Argument(
            metavar="RESULTS",
            help="An estimate in a .json file, or a folder that labelnoise audit wrote, with what "
            "was verified there.",
        ),
    ],
    out: Annotated[
        Path | None, Option(help="Where the card goes, .md, instead of the terminal.")
    ] = None,
    badge: Annotated[Path | None, Option(help="A badge with the noise rate, .svg.")] = None,
) -> None:
    """Write a card on the quality of the labels, for the README of the data set."""
    from labelnoise.card import card_of
    from labelnoise.io.outputs import check_outputs

    endings = ((out, (".md",)), (badge, (".svg",)))
    check_outputs({path: suffixes for path, suffixes in endings if path is not None}, [results])
    made = card_of(_estimate(results))
    write_all([(out, made.save), (badge, made.save_badge)])
    if out is None:
        print(made.markdown, end="")
    for what, path in (("Card", out), ("Badge", badge)):
        if path is not None and out is not None:
            print(f"{what}: {path}")


def _estimate(path: Path) -> HOC:
    """Read an estimate; that of a folder of results follows what was verified there."""
    from labelnoise.hoc import HOC
    from labelnoise.results import ESTIMATE, HEAD, Results

    if not path.is_dir():
        return HOC.load(path)
    if not (path / HEAD).is_file():
        return HOC.load(path / ESTIMATE)
    results = Results.open(path)
    verified = _verified(results)
    if verified is not None:
        results.estimate.verify(verified)
    return results.estimate


def _verified(results: Results) -> Any:
    """What was answered in a review, or else in the table to fill in; None if nothing was."""
    from labelnoise.io.tables import read_table
    from labelnoise.results import ANSWERS, TO_CHECK
    from labelnoise.review.store import has_answers

    answers, sheet = results.folder / ANSWERS, results.folder / TO_CHECK
    if answers.exists() and has_answers(answers):
        from labelnoise.review.export import checked, open_review

        review = open_review(results)
        with closing(review.store):
            table = checked(review)
        return table if any(table["true_label"]) else None
    if sheet.exists() and any(read_table(sheet).cells("true_label")):
        return sheet
    return None
