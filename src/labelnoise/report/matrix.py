"""T as a heat map: a table with a colour for each cell, on a scale that is the same everywhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from labelnoise.report.data import Report, off_diagonal, short_percent
from labelnoise.report.markup import class_name

FULL_COLOUR = 0.5  # share of a true class with one wrong label: more could not be told from right
_MOST_CLASSES = 100
_LARGEST_ON_PHONE = 7  # classes; beyond, the map is wider than a phone, and scrolls
_LARGEST_NUMBERED = 25  # classes; beyond, cells are too small for numbers
_NAMES_ABREAST = 40  # characters; above it, class names stand upright over their columns
_LEVELS = 20  # of colour
_WRONG_KEY, _RIGHT_KEY = (0.01, 0.05, 0.1, 0.2, 0.5), (0.25, 0.5, 0.75, 1)

_Cell = Callable[[float, bool], tuple[str, str]]


def shown_classes(report: Report) -> np.ndarray:
    """Numbers of the classes that are shown: those in most wrong labels, if there are many."""
    joint = off_diagonal(report.class_prior[:, None] * report.transition_matrix)
    wrong = joint.sum(axis=0) + joint.sum(axis=1)
    return np.sort(np.argsort(-wrong, kind="stable")[:_MOST_CLASSES])


def matrix(report: Report, shown: np.ndarray) -> str:
    """The estimate, where the truth is known the truth and the difference, and the key."""
    left_out = len(report.classes) - len(shown)
    orders = "".join(f"<option>{name}</option>" for name in report.orders(shown))
    views = _views(report)
    radios = "".join(
        f'<label><input type="radio" name="view" value="{view}" autocomplete="off"> {view}</label>'
        for view in views
        if len(views) > 1
    )
    tables = (_table(report, shown, title, *view) for title, view in views.items())
    omitted = f"These are the {len(shown)} classes in most wrong labels; {left_out} are not shown."
    return f"""<p>Of each true class (row) the share that was given each label (column), in percent.
{omitted if left_out else ""}</p>
<div class="controls" hidden>
<label>Order <select id="order" autocomplete="off">{orders}</select></label>{radios}</div>
<p id="readout" role="status" hidden>Point at a cell, tap it, or use the arrow keys.</p>
<div class="scroll" tabindex="0" role="region" aria-label="Matrix">{"".join(tables)}</div>
{_key()}"""


def _views(report: Report) -> dict[str, tuple[np.ndarray, _Cell]]:
    """What is shown of T, by title: a matrix, and what stands in a cell."""
    T, truth = report.transition_matrix, report.truth
    views: dict[str, tuple[np.ndarray, _Cell]] = {"Estimate": (T, _share)}
    if truth is not None:
        views["Truth"] = truth.transition_matrix, _share
        views["Estimate \N{MINUS SIGN} truth"] = T - truth.transition_matrix, _difference
    return views


def level(share: float) -> int:
    """The colour of a wrong label: by the root, as small shares are to be told apart, too."""
    return round(_LEVELS * min(share / FULL_COLOUR, 1) ** 0.5)


def _share(value: float, right: bool) -> tuple[str, str]:
    """A cell's class and text."""
    return f"d{round(_LEVELS * value)}" if right else f"w{level(value)}", short_percent(value)


def _difference(value: float, _: bool) -> tuple[str, str]:
    text = short_percent(abs(value))
    sign = "" if text == "0" else "+" if value > 0 else "\N{MINUS SIGN}"
    return f"{'w' if value > 0 else 'd'}{level(abs(value))}", sign + text


def _table(report: Report, shown: np.ndarray, title: str, values: np.ndarray, cell: _Cell) -> str:
    names = [class_name(report.classes[i]) for i in shown]
    rows = []
    for i, name in zip(shown, names, strict=True):
        cells = (cell(float(values[i, j]), i == j) for j in shown)
        row = "".join(f'<td class="{number}">{text}</td>' for number, text in cells)
        rows.append(f'<tr><th scope="row">{name}</th>{row}</tr>')
    heads = "".join(f'<th scope="col">{name}</th>' for name in names)
    return (
        f'<table class="map {_form(report, shown)}" data-view="{title}"><caption>{title}</caption>'
        f"<thead><tr><td>true \\ label</td>{heads}</tr></thead>\n"
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _form(report: Report, shown: np.ndarray) -> str:
    K, longest = len(shown), max(len(report.classes[i]) for i in shown)
    upright = " upright" if K * longest > _NAMES_ABREAST else ""
    return ("dense" if K > _LARGEST_NUMBERED else "wide" if K > _LARGEST_ON_PHONE else "") + upright


def _key() -> str:
    wrong = (f'<i class="w{level(share)}">{share:.0%}</i>' for share in _WRONG_KEY)
    right = (f'<i class="d{round(_LEVELS * share)}">{share:.0%}</i>' for share in _RIGHT_KEY)
    return (
        f'<p class="legend"><span>wrong label {"".join(wrong)}</span> '
        f"<span>right label {''.join(right)}</span></p>"
    )
