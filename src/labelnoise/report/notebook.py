"""An estimate as Jupyter shows it: a small static table, legible on light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from labelnoise.report.data import Report, short_percent
from labelnoise.report.gather import report_of
from labelnoise.report.matrix import FULL_COLOUR
from labelnoise.report.sections import said

_LARGEST = 15  # classes; of more, only the confusions are shown
_MOST_CONFUSIONS = 6


def summary(est: Any) -> str:
    """What is serious, the headline, confusions, T and warnings of a fitted estimator, as HTML."""
    report = report_of(est)
    found = report.diagnostics
    result = f"<p><b>{escape(report.headline)}</b></p>"
    if found.estimable:
        confusions = [escape(str(one)) for one in report.confusions(_MOST_CONFUSIONS)]
        said_of_parts = () if report.variation is None else report.variation.sentences
        varies = [escape(one) for one in said_of_parts]
        result += _list("Most frequent confusions", confusions) + _list("Variation", varies)
        result += _table(report) if len(report.classes) <= _LARGEST else ""
    serious, warnings = ([said(one) for one in some] for some in (found.serious, found.warnings))
    return _list("Do not rely on this estimate", serious) + result + _list("Warnings", warnings)


def _table(report: Report) -> str:
    T, names = report.transition_matrix, [escape(name) for name in report.classes]

    def cell(share: float, right: bool) -> str:
        color, most = ("59,130,246", 1.0) if right else ("249,115,22", FULL_COLOUR)
        strength = 0.6 * min(share / most, 1)
        return f'<td style="background:rgba({color},{strength:.2f})">{short_percent(share)}</td>'

    rows = "".join(
        f"<tr><th>{name}</th>{''.join(cell(float(T[i, j]), i == j) for j in range(len(T)))}</tr>"
        for i, name in enumerate(names)
    )
    heads = "".join(f"<th>{name}</th>" for name in names)
    caption = "T in percent: rows are true classes, columns are labels"
    head = f"<tr><td></td>{heads}</tr>"
    return (
        f'<table style="text-align:center"><caption>{caption}</caption><thead>{head}</thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _list(title: str, sentences: Sequence[str]) -> str:
    """Sentences, which are HTML, under a title."""
    items = "".join(f"<li>{sentence}</li>" for sentence in sentences)
    return f"<p>{title}</p><ul>{items}</ul>" if items else ""
