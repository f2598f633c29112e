"""Pictures of an estimate on matplotlib's axes, for notebooks and papers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from labelnoise._errors import LabelNoiseError
from labelnoise.io.packages import install

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from labelnoise.report import Report

_LARGEST_NUMBERED = 15  # with more classes, cells are too small for numbers
_MOST_CHARACTERS = 40  # if class names are longer together, they are written upwards
_ORANGE, _BLUE, _GREY = "#c2570c", "#2563eb", "#8f8a84"


def plot_matrix(est: Any, ax: Axes | None = None) -> Axes:
    """Draw T as a heat map; the colours end at the largest confusion, the diagonal has its own.

    Parameters
    ----------
    est : HOC, LocalHOC, GroupHOC or AnnotatorHOC
        Fitted.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure.
    """
    from labelnoise.report.data import LEAST_SHOWN, off_diagonal, short_percent

    report, ax = _report(est), _axes(ax)
    T, K = report.transition_matrix, len(report.classes)
    wrong, on_diagonal = off_diagonal(T), np.eye(K, dtype=bool)
    most = max(float(wrong.max()), LEAST_SHOWN)
    shown = ax.imshow(np.ma.array(T, mask=on_diagonal), cmap="Oranges", vmin=0, vmax=most)
    # Only the lighter half of the blues, so that the diagonal does not dominate.
    ax.imshow(np.ma.array(T, mask=~on_diagonal), cmap="Blues", vmin=0, vmax=2)
    ax.figure.colorbar(shown, ax=ax, label="share of the true class", format="{x:.0%}")
    if K <= _LARGEST_NUMBERED:
        for (i, j), share in np.ndenumerate(T):
            dark = i != j and share > 0.6 * most
            color = "white" if dark else "black"
            ax.text(j, i, short_percent(share), ha="center", va="center", color=color, size=8)
    ax.set(xlabel="label", ylabel="true class", title=f"{report.noise_rate:.1%} wrong labels")
    abreast = K * max(map(len, report.classes)) <= _MOST_CHARACTERS
    _name_ticks(ax.xaxis, report, rotation=0 if abreast else 90)
    _name_ticks(ax.yaxis, report)
    return ax


def plot_local_errors(errors: Any, overall: float, ax: Axes | None = None) -> Axes:
    """Draw the spread of the errors of local matrices beside that of the global T.

    The picture of the paper's appendix. `errors` is what
    `labelnoise.estimators.local.local_errors` gives, `overall` the global T's error.
    """
    errors, ax = np.asarray(errors, float), _axes(ax)
    mean, spread = errors.mean(), errors.std()
    ax.hist(errors, bins="auto", color=_BLUE, alpha=0.6)
    ax.axvline(mean, color=_BLUE, label=f"local: {mean:.4f}, spread {spread:.4f}")
    ax.axvline(overall, color=_ORANGE, ls="--", label=f"global: {overall:.4f}")
    ax.set(xlabel="error of T", ylabel="local data sets")
    _legend(ax)
    return ax


def _report(est: Any) -> Report:
    from labelnoise.report import report_of

    return report_of(est)


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise LabelNoiseError(
            f"Expected matplotlib to be installed, but it is not: {install('plots')}"
        ) from error
    return pyplot.subplots(layout="constrained")[1]


def _name_ticks(axis: Any, report: Report, **how: Any) -> None:
    """Name the classes, as text: a dollar sign in a name begins no formula."""
    axis.set_ticks(np.arange(len(report.classes)), report.classes, parse_math=False, **how)


def _legend(ax: Axes) -> None:
    """Above the axes, where nothing is drawn."""
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, frameon=False)


def _percent(axis: Any) -> None:
    axis.set_major_formatter("{x:.0%}")
