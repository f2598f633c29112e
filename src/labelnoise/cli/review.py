"""`labelnoise review`: look at labels and decide, on a page of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

if TYPE_CHECKING:
    from labelnoise.results import Results

Folder = Annotated[
    Path, Argument(metavar="RESULTS", help="The folder that labelnoise audit wrote.")
]
Port = Annotated[int, Option(min=0, max=65535, help="0: one that is free.")]
Open = Annotated[bool, Option("--open", help="Open the page in the browser at once.")]
Export = Annotated[
    Path | None, Option(metavar="FOLDER", help="Write the answers there, and show no page.")
]


def review(results: Folder, port: Port = 0, show: Open = False, export: Export = None) -> None:
    """Look at the labels that are probably wrong, and decide; measure how many are.

    The page is for this machine only. Every answer is kept in RESULTS as it is given.
    """
    from labelnoise.io.packages import package
    from labelnoise.results import Results

    found = Results.open(results)
    if export is None:
        for name in ("starlette", "uvicorn"):
            package(name, "review")
        _serve(found, port, show)
    else:
        _export(found, export)


def _serve(results: Results, port: int, show: bool) -> None:
    import webbrowser

    from labelnoise.review.export import open_review
    from labelnoise.review.server import serve

    def ready(address: str) -> None:
        print(f"Review: {address}", flush=True)
        print("Only this machine can open it. Ctrl+C ends; all answers are kept.", flush=True)
        if show:
            webbrowser.open(address)

    review = open_review(results)
    try:
        serve(review, port, ready)
    except KeyboardInterrupt:
        print(f"Answers: {review.store.path}")
    finally:
        review.store.close()


def _export(results: Results, folder: Path) -> None:
    from labelnoise.cli.terminal import write_all
    from labelnoise.io.outputs import check_outputs
    from labelnoise.review.export import files, open_review

    review = open_review(results)
    try:
        writes = [(folder / name, write) for name, write in files(review).items()]
        check_outputs({path: (path.suffix,) for path, _ in writes}, [results.source.labels])
        for path in write_all(writes):
            print(f"Written: {path}")
    finally:
        review.store.close()
