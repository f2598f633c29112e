"""An estimate as Jupyter shows it: a small static table, legible on light and dark."""

from __future__ import annotations

from html import escape
from typing import Any

from labelnoise.report.data import LEAST_SHOWN, Report, off_diagonal, short_percent
from labelnoise.report.gather import report_of

_LARGEST = 15  # classes; of more, only the confusions are shown
_MOST_CONFUSIONS = 6


def summary(est: Any) -> str:
    """Headline, T, the most frequent confusions and warnings of a fitted estimator, as HTML."""
    report = report_of(est)
    confusions = [str(one) for one in report.confusions(_MOST_CONFUSIONS)]
    warnings = [finding.sentence for finding in report.findings if not finding.ok]
    varies = [] if report.variation is None else report.variation.sentences
    return (
        f"<p><b>{escape(report.headline)}</b></p>"
        + (_table(report) if len(report.classes) <= _LARGEST else "")
        + _list("Most frequent confusions", confusions)
        + _list("Variation", varies)
        + _list("Warnings", warnings)
    )


def _table(report: Report) -> str:
    T, names = report.transition_matrix, [escape(name) for name in report.classes]
    scale = max(float(off_diagonal(T).max()), LEAST_SHOWN)

    def cell(share: float, right: bool) -> str:
        color, most = ("59,130,246", 1.0) if right else ("249,115,22", scale)
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


def _list(title: str, sentences: Any) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f"<p>{title}</p><ul>{items}</ul>" if items else ""
