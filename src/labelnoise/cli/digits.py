"""`labelnoise demo`: noise that is known, and what the estimate makes of it."""

from __future__ import annotations

import shutil
import struct
import time
import zlib
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from labelnoise._errors import LabelNoiseError
from labelnoise.cli.terminal import progress
from labelnoise.io.packages import explained

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from rich.console import Console
    from rich.table import Table

    from labelnoise.noise import NoisyLabels
    from labelnoise.report import Report
    from labelnoise.results import Results

# Which digits people mistake for which, and how often relative to each other. Made up, but of
# the kind that real annotators produce: a few strong, one-sided confusions over a low floor.
_DIGIT_CONFUSIONS = {(7, 1): 22, (3, 8): 20, (4, 9): 18, (8, 3): 14, (9, 4): 10, (5, 6): 10}
_DIGIT_CONFUSIONS |= {(1, 7): 8, (2, 7): 8, (5, 3): 6, (9, 7): 5, (8, 5): 4}
_DIGIT_FLOOR = 1  # every other confusion

_CONFUSIONS_PRINTED = 6
_IMAGES, _TRUTH = "digits", "truth.csv"
_ENLARGED = 8  # times


class NoiseKind(StrEnum):
    """Noise that the demo can make."""

    CLASS = "class"
    SYMMETRIC = "symmetric"
    PAIR = "pair"


Noise = Annotated[
    NoiseKind,
    Option(help="class: digits that look alike; symmetric: all alike; pair: each with the next."),
]


def demo(
    out: Annotated[Path, Option(help="The folder of results.")] = Path("demo-output"),
    noise: Noise = NoiseKind.CLASS,
    rate: Annotated[float, Option(help="Share of labels to make wrong, 0 to 1.")] = 0.2,
    seed: Annotated[int, Option(min=0, help="Which random labels are wrong.")] = 0,
) -> None:
    """Make known noise in scikit-learn's digits, audit them, and show estimate and truth."""
    from rich.console import Console

    from labelnoise.results import REPORT

    start = time.perf_counter()
    report = _audit_digits(out, noise, rate, seed)
    report.save(out / REPORT)
    console = Console(highlight=False)
    _print_report(console, report)
    console.print(f"\nTook {time.perf_counter() - start:.1f} s.")
    said = [
        f"Look: {out / REPORT}; images are in {out / _IMAGES}, the truth in {out / _TRUTH}",
        f"Check the labels: labelnoise review {out}",
    ]
    console.print("\n".join(said), markup=False, soft_wrap=True)


def _audit_digits(out: Path, kind: NoiseKind, rate: float, seed: int) -> Report:
    """Corrupt the digits, audit them as images, and compare; progress goes to the terminal."""
    with progress() as show:
        show("reading", 0, 0)

        import numpy as np
        from sklearn.datasets import load_digits

        from labelnoise.audit import audit
        from labelnoise.io.features import Features
        from labelnoise.io.sources import Source

        X, digits = load_digits(return_X_y=True)
        noisy = _corrupt(digits, kind, rate, seed)
        names = np.array([f"{label}/{row:04d}.png" for row, label in enumerate(noisy.labels)])
        order = np.argsort(names)
        _write_images(out, X[order], names[order].tolist(), digits[order])
        folder = str(out / _IMAGES)
        show("reading", 1, 1)
        results = audit(
            Source("images", folder, folder),
            out,
            features=Features(folder, X[order], names[order].tolist()),
            progress=show,
        )
    how = {
        "Data": f"scikit-learn's digits, {len(X):,} images of 8 x 8 pixels. Each label was "
        f"replaced by one drawn from the row of the true T that belongs to its class "
        f"({noisy.kind} noise, rate {rate:g}, seed {seed}), which made "
        f"{round(noisy.rate * len(X)):,} labels wrong. The estimate saw the pixels and the noisy "
        f"labels, and no clean one."
    }
    return _with_truth(results, noisy, digits, how)


def _with_truth(
    results: Results, noisy: NoisyLabels, digits: np.ndarray, how: dict[str, str]
) -> Report:
    """The report with the true T, and how far the estimate and other answers are from it."""
    import numpy as np

    from labelnoise.checks import Finding
    from labelnoise.report import Truth
    from labelnoise.scores import transition_error, true_transition_matrix

    T, K = noisy.transition_matrix, len(noisy.classes)
    counted = true_transition_matrix(digits, noisy.labels, K)
    errors = {
        "this estimate": transition_error(results.estimate.transition_matrix_, T),
        'answering "no noise"': transition_error(np.eye(K), T),
        "counting with the clean labels (sampling error alone)": transition_error(counted, T),
    }
    report = results.report(how, Truth(T, noisy.rate, errors))
    if (T.argmax(axis=1) == np.arange(K)).all():
        return report
    impossible = Finding(
        "truth",
        False,
        float(np.diag(T).min()),
        "By the true T, some class gets another label more often than its own. Noisy labels alone "
        "cannot tell, so the estimate may have its rows in the wrong order. Use a lower rate.",
    )
    return replace(report, findings=(*report.findings, impossible))


def _write_images(out: Path, X: np.ndarray, names: list[str], digits: np.ndarray) -> None:
    """Write a folder of images for each label, and a table of the truth.

    Those of an earlier demo with the same labels stay.
    """
    import numpy as np
    from scipy.ndimage import zoom

    from labelnoise.io.tables import read_table, write_table
    from labelnoise.results import expect_no_answers, make_folder

    make_folder(out)
    truth = out / _TRUTH
    if truth.is_file() and read_table(truth).cells("name") == names:
        return
    expect_no_answers(out)
    truth.unlink(missing_ok=True)
    folder = out / _IMAGES
    with explained(f"Expected to write images to {folder}, but it failed"):
        if folder.exists():
            shutil.rmtree(folder)
        for label in {name.partition("/")[0] for name in names}:
            (folder / label).mkdir(parents=True)
        large = zoom(
            X.reshape(-1, 8, 8), (1, _ENLARGED, _ENLARGED), order=1, grid_mode=True, mode="nearest"
        )
        for name, picture in zip(names, (255 - large * 255 / 16).astype(np.uint8), strict=True):
            (folder / name).write_bytes(_png(picture))
    write_table(truth, {"name": names, "true_label": digits})


def _png(pixels: np.ndarray) -> bytes:
    """A grey image (height, width) as a PNG file: Pillow need not be installed."""
    import numpy as np

    height, width = pixels.shape
    rows = np.column_stack([np.zeros(height, np.uint8), pixels]).tobytes()  # filter 0, then pixels
    head = struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0)
    parts = (b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )


def _corrupt(digits: np.ndarray, kind: NoiseKind, rate: float, seed: int) -> NoisyLabels:
    from labelnoise.noise import class_conditional, pair_flip, symmetric

    if kind is NoiseKind.SYMMETRIC:
        return symmetric(digits, rate, random_state=seed)
    if kind is NoiseKind.PAIR:
        return pair_flip(digits, rate, random_state=seed)
    return class_conditional(digits, _digit_confusions(rate), random_state=seed)


def _digit_confusions(rate: float) -> np.ndarray:
    """T of the confusions above, scaled so that a share `rate` of the labels is wrong."""
    import numpy as np

    T = np.full((10, 10), float(_DIGIT_FLOOR))
    for (digit, label), weight in _DIGIT_CONFUSIONS.items():
        T[digit, label] = weight
    np.fill_diagonal(T, 0)
    T /= T.sum(axis=1).mean()
    most = round(1 / T.sum(axis=1).max(), 3)  # as the message has it
    if not 0 <= rate <= most:
        raise LabelNoiseError(
            f"Expected 0 <= rate <= {most:g} for class noise, as no class can have more than "
            f"all its labels wrong, but rate = {rate:g}"
        )
    T *= rate
    # At the largest rate, rounding may take one row just above 1.
    np.fill_diagonal(T, np.maximum(1 - T.sum(axis=1), 0))
    return T


def _print_report(console: Console, report: Report) -> None:
    from rich.markup import escape
    from rich.measure import Measurement
    from rich.table import Table

    assert report.truth is not None
    console.print(f"\n[bold]{escape(report.headline)}[/]")

    tables = [
        _matrix_table("Estimated T", report.classes, report.transition_matrix),
        _matrix_table("True T", report.classes, report.truth.transition_matrix),
    ]
    console.print("\nPercent of each true class (row) that got each label (column):\n")
    gap = 4
    unlimited = console.options.update(max_width=10_000)
    widths = [Measurement.get(console, unlimited, table).maximum for table in tables]
    if sum(widths) + gap <= console.width:
        side_by_side = Table.grid(padding=(0, gap, 0, 0), pad_edge=False)
        side_by_side.add_row(*tables)
        console.print(side_by_side)
    else:
        console.print(tables[0], "", tables[1])

    console.print("\n[bold]Most frequent confusions[/]")
    confusions = [str(confusion) for confusion in report.confusions(_CONFUSIONS_PRINTED)]
    for sentence in confusions or ["none reaches 0.1%"]:
        console.print(f"  {escape(sentence)}")

    console.print("\n[bold]Error[/] (0 is perfect, 2 the most there can be)")
    for name, error in report.truth.errors.items():
        console.print(f"  {error:.3f}  {escape(name)}")

    wanting = [finding for finding in report.findings if not finding.ok]
    console.print(
        f"\n[bold]What the estimate stands on[/]: {len(report.findings)} checks, of which "
        f"{len(wanting)} warn"
    )
    findings = Table.grid(padding=(0, 2, 0, 0))
    for finding in wanting:
        findings.add_row(
            "  [bold yellow]WARNING[/]", escape(finding.name), escape(finding.sentence)
        )
    if wanting:
        console.print(findings)


def _matrix_table(title: str, classes: Sequence[str], T: np.ndarray) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from labelnoise.report.data import short_percent

    # Text, unlike str, is never read as markup: class names are data.
    table = Table(
        title=Text(title, style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=0,
    )
    table.add_column("")
    for name in classes:
        table.add_column(Text(name, style="bold"), justify="right", min_width=3)
    for i, name in enumerate(classes):
        cells = [Text(short_percent(T[i, j]), _cell_style(T[i, j], i == j)) for j in range(len(T))]
        table.add_row(Text(name, style="bold"), *cells)
    return table


def _cell_style(share: float, on_diagonal: bool) -> str:
    if on_diagonal:
        return "cyan"
    if share >= 0.05:
        return "bold red"
    return "default" if share >= 0.005 else "dim"
