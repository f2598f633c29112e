"""The page of a report: one HTML file that loads nothing and runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from html import escape
from importlib import resources
from string import Template
from typing import Any

import numpy as np

from labelnoise.report.data import Report
from labelnoise.report.markup import counted
from labelnoise.report.matrix import shown_classes
from labelnoise.report.sections import said, sections

_PARTS = ("page.html", "page.css", "page.js", "use.html")
_HALF = ("Confusions", "Classes")  # sections that stand beside each other on a wide screen
_DECIMALS = 4  # of a suspect's probability


def render(report: Report) -> str:
    """Render a report; names and texts in it are data, and never markup."""
    files = resources.files("labelnoise.report")
    page, css, script, use = (files.joinpath(part).read_text("utf-8") for part in _PARTS)
    shown = shown_classes(report)
    found = sections(report, shown)
    if report.diagnostics.estimable:
        alone = report.estimator in ("HOC", "AnnotatorHOC")
        matrix = f"est{'' if alone else '.global_'}.transition_matrix_"
        found["Use it"] = Template(use).substitute(estimator=report.estimator, matrix=matrix)
    html = Template(page).substitute(
        policy=f"default-src 'none'; style-src '{_hash(css)}'; script-src '{_hash(script)}'; "
        f"img-src data:; base-uri 'none'; form-action 'none'",
        css=css,
        script=script,
        head=_head(report),
        links=" ".join(f'<a href="#{_id(title)}">{title}</a>' for title in found),
        sections="\n".join(
            f'<section id="{_id(title)}"{" class=half" if title in _HALF else ""}>'
            f"<h2>{title}</h2>\n{content}\n</section>"
            for title, content in found.items()
        ),
        how="".join(
            f"<dt>{escape(what)}</dt><dd>{escape(said)}</dd>" for what, said in report.how.items()
        ),
        data=_json(report, shown),
    )
    # Names of files that are no Unicode have surrogates in them.
    return html.encode("utf-8", "replace").decode()


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _id(title: str) -> str:
    return title.split()[0].lower()


def _head(report: Report) -> str:
    """The serious findings, then the result, then what it rests on."""
    found = report.diagnostics
    banner = "".join(
        f"<p><strong>{escape(one.name.capitalize())}:</strong> {said(one)}</p>"
        for one in found.serious
    )
    if not found.estimable:
        return f'<div class="banner"><h1>No estimate</h1>{banner}</div>'
    if banner:
        banner = f'<div class="banner"><h2>Do not rely on this estimate</h2>{banner}</div>\n'
    facts = [] if report.truth is None else [f"In truth {report.truth.noise_rate:.1%} are."]
    if report.n_examples is not None:
        facts.append(f"{report.n_examples:,} labels in {len(report.classes)} classes.")
    if report.interval is not None:
        facts.append(f"{report.interval.level:.0%} interval, {report.interval.condition}.")
        if report.interval.caveat:
            facts.append(f"{report.interval.caveat[:1].upper()}{report.interval.caveat[1:]}.")
    if warnings := len(found.warnings):
        checks = counted(warnings, f"{'more ' if banner else ''}check")
        needs = "needs" if warnings == 1 else "need"
        facts.append(f'<a href="#checks">{checks} {needs} attention</a>.')
    result = "<h1 class=doubtful>" if banner else "<h1>"
    headline = replace(report, truth=None).headline
    return f"{banner}{result}{escape(headline)}</h1>\n<p>{' '.join(facts)}</p>"


def _json(report: Report, shown: np.ndarray) -> str:
    """What the script needs, in a form that cannot end the element it is in."""
    if not report.diagnostics.estimable:
        return "{}"
    content: dict[str, Any] = {
        "classes": report.classes,
        "shown": shown.tolist(),
        "orders": {name: order.tolist() for name, order in report.orders(shown).items()},
    }
    matrices = {"share": report.transition_matrix}
    if report.interval is not None:
        matrices["low"], matrices["high"] = report.interval.transition_matrix
    if report.truth is not None:
        matrices["truth"] = report.truth.transition_matrix
    for name, matrix in matrices.items():
        content[name] = matrix[np.ix_(shown, shown)].round(5).tolist()
    if report.suspects is not None:
        content["suspects"] = _columns(report)
    text = json.dumps(content, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _columns(report: Report) -> dict[str, Any]:
    """All suspects, as short as JSON can be: class numbers, and probabilities without a point."""
    found = report.suspects
    assert found is not None
    return {
        "row": found.index.tolist(),
        "given": found.given.tolist(),
        "suggested": found.suggested.tolist(),
        "wrong": np.round(found.probability * 10**_DECIMALS).astype(int).tolist(),
        "name": found.names,
    }
