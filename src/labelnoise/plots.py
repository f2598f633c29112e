"""Pictures of an estimate on matplotlib's axes, for notebooks and papers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from labelnoise._errors import LabelNoiseError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from labelnoise.report import Report

_LARGEST_NUMBERED = 15  # classes; beyond, cells are too small for numbers
_NAMES_ABREAST = 40  # characters; above it, class names stand upright under their columns
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
    # The first half of the blues, as the diagonal is to be read and not to shout.
    ax.imshow(np.ma.array(T, mask=~on_diagonal), cmap="Blues", vmin=0, vmax=2)
    ax.figure.colorbar(shown, ax=ax, label="share of the true class", format="{x:.0%}")
    if K <= _LARGEST_NUMBERED:
        for (i, j), share in np.ndenumerate(T):
            dark = i != j and share > 0.6 * most
            color = "white" if dark else "black"
            ax.text(j, i, short_percent(share), ha="center", va="center", color=color, size=8)
    ax.set(xlabel="label", ylabel="true class", title=f"{report.noise_rate:.1%} wrong labels")
    abreast = K * max(map(len, report.classes)) <= _NAMES_ABREAST
    _name_ticks(ax.xaxis, report, rotation=0 if abreast else 90)
    _name_ticks(ax.yaxis, report)
    return ax


def plot_noise_by_class(est: Any, ax: Axes | None = None) -> Axes:
    """Draw for each class the share of its examples that are labelled otherwise, with error bars.

    Takes what `plot_matrix` takes.
    """
    report, ax = _report(est), _axes(ax)
    wrong, errors = 1 - np.diag(report.transition_matrix), None
    if report.interval is not None:
        ends = 1 - np.einsum("eii->ei", report.interval.transition_matrix)[::-1]
        errors = np.maximum([wrong - ends[0], ends[1] - wrong], 0)
    ax.barh(np.arange(len(wrong)), wrong, xerr=errors, color=_ORANGE)
    ax.set(xlabel="labelled otherwise", ylabel="true class")
    _percent(ax.xaxis)
    _downwards(ax, report)
    return ax


def plot_prior(est: Any, ax: Axes | None = None) -> Axes:
    """Draw the estimated share of each true class beside the share of its label.

    Takes what `plot_matrix` takes.
    """
    report, ax = _report(est), _axes(ax)
    place = np.arange(len(report.classes))
    if report.label_shares is not None:
        ax.barh(place - 0.2, report.label_shares, 0.4, color=_GREY, label="of the labels")
    ax.barh(place + 0.2, report.class_prior, 0.4, color=_BLUE, label="of the true classes")
    ax.set(xlabel="share", ylabel="class")
    _legend(ax)
    _percent(ax.xaxis)
    _downwards(ax, report)
    return ax


def plot_agreement(est: Any, ax: Axes | None = None) -> Axes:
    """Draw how often neighbours carry the same label, by rank, after ``est.diagnose()``.

    Where neighbours share their true class the curve is nearly flat. Takes what `plot_matrix`
    takes.
    """
    report = _report(est)
    if report.agreement is None:
        raise LabelNoiseError(
            "Expected an estimate that was looked at closer, but it was not: call est.diagnose()"
        )
    ax, by_rank = _axes(ax), report.agreement.by_rank
    ax.plot(np.arange(1, len(by_rank) + 1), by_rank, "o-", color=_BLUE, label="neighbours")
    ax.axhline(report.agreement.chance, color=_GREY, ls="--", label="two at random")
    ax.set(xlabel="rank of the neighbour", ylabel="same label", ylim=(0, 1))
    _legend(ax)
    _percent(ax.yaxis)
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
            'Expected matplotlib to be installed, but it is not (pip install "labelnoise[plots]")'
        ) from error
    return pyplot.subplots(layout="constrained")[1]


def _name_ticks(axis: Any, report: Report, **how: Any) -> None:
    """Name the classes, as text: a dollar sign in a name begins no formula."""
    axis.set_ticks(np.arange(len(report.classes)), report.classes, parse_math=False, **how)


def _legend(ax: Axes) -> None:
    """Above the axes, where nothing is drawn."""
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, frameon=False)


def _downwards(ax: Axes, report: Report) -> None:
    _name_ticks(ax.yaxis, report)
    ax.invert_yaxis()


def _percent(axis: Any) -> None:
    axis.set_major_formatter("{x:.0%}")
