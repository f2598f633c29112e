"""The page of a report: one HTML file that loads nothing and runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from importlib import resources
from string import Template

import numpy as np

from labelnoise.report import sections as section
from labelnoise.report.data import Report

_PARTS = ("html", "css", "js")


def render(report: Report) -> str:
    """Render a report; names and texts in it are data, and never markup."""
    files = resources.files("labelnoise.report")
    page, css, script = (files.joinpath(f"page.{end}").read_text("utf-8") for end in _PARTS)
    shown = section.shown_classes(report)
    sections = {
        "Verified labels": section.verified(report),
        "Transition matrix": section.maps(report, shown),
        "Classes": section.classes(report, shown),
        "Checks": section.checks(report),
        "Error against the truth": section.errors(report),
        "Neighbours": section.neighbors(report),
        "Variation": section.variation(report),
        "Suspects": section.suspects(report),
    }
    sections = {name: body for name, body in sections.items() if body}
    alone = report.estimator in ("HOC", "AnnotatorHOC")
    html = Template(page).substitute(
        policy=f"default-src 'none'; style-src '{_hash(css)}'; script-src '{_hash(script)}'; "
        f"img-src data:; base-uri 'none'; form-action 'none'",
        css=css,
        script=script,
        headline=escape(report.headline),
        lead=_lead(report),
        tiles=_tiles(report),
        links=" ".join(f'<a href="#{_id(name)}">{name}</a>' for name in sections),
        sections="\n".join(
            f'<section id="{_id(name)}"><h2>{name}</h2>\n{body}\n</section>'
            for name, body in sections.items()
        ),
        estimator=report.estimator,
        matrix=f"est{'' if alone else '.global_'}.transition_matrix_",
        how="".join(
            f"<dt>{escape(what)}</dt><dd>{escape(said)}</dd>" for what, said in report.how.items()
        ),
        data=_json(report, shown),
    )
    # Names of files that are no Unicode have surrogates in them.
    return html.encode("utf-8", "replace").decode()


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _id(name: str) -> str:
    return name.split()[0].lower()


def _json(report: Report, shown: np.ndarray) -> str:
    """What the script needs, in a form that cannot end the element it is in."""
    content = {
        "classes": [report.classes[i] for i in shown],
        "orders": {name: order.tolist() for name, order in report.orders(shown).items()},
    }
    matrices = {"share": report.transition_matrix}
    if report.interval is not None:
        matrices["low"], matrices["high"] = report.interval.transition_matrix
    if report.truth is not None:
        matrices["truth"] = report.truth.transition_matrix
    for name, matrix in matrices.items():
        content[name] = matrix[np.ix_(shown, shown)].round(5).tolist()
    text = json.dumps(content, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _lead(report: Report) -> str:
    if report.interval is None:
        return ""
    said = (
        f"The interval is what chance does to the estimate ({report.interval.level:.0%}), "
        f"{report.interval.condition}."
    )
    caveat = report.interval.caveat
    return f"<p>{said}{f' But {escape(caveat)}.' if caveat else ''}</p>"


def _tiles(report: Report) -> str:
    tiles = []
    if report.n_examples is not None:
        size = f"labelled examples in {len(report.classes)} classes"
        tiles.append(f"<li><b>{report.n_examples:,}</b> {size}</li>")
    for worst in report.confusions(1):
        true, label = section.class_name(worst.true), section.class_name(worst.label)
        said = f"of true {true} are labelled {label}, the most frequent confusion"
        tiles.append(f"<li><b>{worst.share:.1%}</b> {said}</li>")
    if report.suspects is not None:
        number = f"{report.suspects.n_found:,}"
        tiles.append(f'<li><b>{number}</b> <a href="#suspects">labels are suspect</a></li>')
    if report.findings:
        warned = sum(not finding.ok for finding in report.findings)
        checks = f'<a href="#checks">of {len(report.findings)} checks warn</a>'
        tiles.append(f"<li{' class=warns' if warned else ''}><b>{warned}</b> {checks}</li>")
    return "".join(tiles)
