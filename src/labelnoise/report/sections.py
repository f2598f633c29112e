"""The sections of the page, each a function of the report; what is not known has no section."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape

import numpy as np

from labelnoise.checks import Finding
from labelnoise.report.charts import bar, histogram, line_chart
from labelnoise.report.data import LEAST_SHOWN, Report, Suspect
from labelnoise.report.markup import class_name, counted, ends, folded, table
from labelnoise.report.matrix import FULL_COLOUR, matrix

_ARROW = " \N{RIGHTWARDS ARROW} "
_MOST_BARS = 40  # parts of the data; of more there is a histogram


def sections(report: Report, shown: np.ndarray) -> dict[str, str]:
    """Title and content of each section, in the order in which people ask."""
    parts = "Variation" if report.variation is None else f"{report.variation.part.capitalize()}s"
    makers: dict[str, Callable[[], str]] = {
        "Suspects": lambda: suspects(report),
        "Verified labels": lambda: verified(report),
        "Confusions": lambda: confusions(report),
        "Classes": lambda: classes(report, shown),
        "Transition matrix": lambda: matrix(report, shown),
        parts: lambda: variation(report),
        "Error against the truth": lambda: errors(report),
    }
    found = {name: make() for name, make in makers.items() if report.diagnostics.estimable}
    found["Checks"] = checks(report)
    return {name: content for name, content in found.items() if content}


def suspects(report: Report) -> str:
    """The surest to look at, and a list of all of them, which the script searches and saves."""
    found = report.suspects
    if found is None:
        return ""
    if not found.n_found:
        return "<p>No label is probably wrong.</p>"
    verified = "" if report.verified is None else " Verified labels are left out."
    lead = f"<p>{counted(found.n_found, 'label')} to check, the surest first.{verified}</p>"
    heads = ["Row", "Label", "Likely label", "Probability that the label is wrong"]
    if found.names is not None:
        heads.insert(1, "Name")
    listed = table("All suspects", heads, map(_row, found.rows), name="suspects")
    everything = f"""<div class="controls" hidden>
<label>Label <select id="given" autocomplete="off"></select></label>
<label>Likely label <select id="suggested" autocomplete="off"></select></label>
<label>{"Row" if found.names is None else "Row or name"} <input type="search" id="search"
autocomplete="off"></label>
<button type="button" id="export">Save as CSV</button></div>
<p id="count" role="status" hidden></p>
{listed}<button type="button" id="more" hidden>Show more</button>"""
    if not any(one.picture or one.text for one in found.rows):
        return lead + everything
    form = " texts" if any(one.text for one in found.rows) else ""
    cards = "".join(map(_card, found.rows))
    number = f"{found.n_found:,}"
    return (
        f'{lead}<ul class="gallery{form}">{cards}</ul>'
        f"{folded(f'All {number} suspects, to search and to save', everything)}"
    )


def _card(one: Suspect) -> str:
    """What there is to see of a suspect, and what it is labelled."""
    picture = ""
    if one.picture is not None:
        picture = f'<img src="{escape(one.picture)}" alt="Example in row {one.row}">'
    text = "" if one.text is None else f'<p class="text"><bdi>{escape(one.text)}</bdi></p>'
    name = "" if one.name is None else f", {class_name(one.name)}"
    return (
        f"<li>{picture}{text}<dl><dt>label</dt><dd>{class_name(one.given)}</dd>"
        f"<dt>likely</dt><dd>{class_name(one.suggested)}</dd>"
        f"<dt>wrong</dt><dd>{_sure(one.probability)}</dd></dl>"
        f"<small>row {one.row}{name}</small></li>"
    )


def _row(one: Suspect) -> str:
    name = "" if one.name is None else f"<td>{class_name(one.name)}</td>"
    return (
        f"<tr><td>{one.row}</td>{name}<td>{class_name(one.given)}</td>"
        f"<td>{class_name(one.suggested)}</td><td>{_sure(one.probability)}</td></tr>"
    )


def _sure(probability: float) -> str:
    return "&gt;99.9%" if probability > 0.999 else f"{probability:.1%}"


def confusions(report: Report) -> str:
    """The wrong labels of which there are most."""
    found = report.confusions()
    if not found:
        return "<p>None: no confusion reaches 0.1%.</p>"
    most, rows = found[0].of_labels, []
    for one in found:
        count = f"{one.of_labels:.1%}" if one.examples is None else one.count
        truth = "" if one.truth is None else f"<td>{one.truth:.1%}</td>"
        rows.append(
            f"<tr><td>{class_name(one.true)}{_ARROW}{class_name(one.label)}</td>"
            f"<td>{count}{bar(one.of_labels / most)}</td>"
            f"<td>{one.share:.1%}{'' if one.ends is None else ends(*one.ends)}</td>{truth}</tr>"
        )
    heads = [
        f"True class{_ARROW}label",
        "Of all labels" if report.n_examples is None else "Wrong labels",
        f"Share of the true class{_level(report)}",
    ]
    heads += ["In truth"] * (report.truth is not None)
    return table("Confusions", heads, rows)


def _level(report: Report) -> str:
    if report.interval is None:
        return ""
    return f" <small>({report.interval.level:.0%} interval)</small>"


def classes(report: Report, shown: np.ndarray) -> str:
    """Noise by class, and estimated shares beside those of the labels."""
    T, p, labels = report.transition_matrix, report.class_prior, report.label_shares
    wrong, joint = 1 - np.diag(T), p[:, None] * T
    mass = joint.sum(axis=0)
    of_label = np.where(mass > 0, 1 - np.diag(joint) / np.where(mass > 0, mass, 1), 0)
    spans = np.array([wrong, wrong])
    if report.interval is not None:
        spans = 1 - np.einsum("eii->ei", report.interval.transition_matrix)[::-1]
    most = max(float(spans.max()), FULL_COLOUR)
    largest = float(np.max([p, p if labels is None else labels]))
    rows = []
    for i in shown:
        known = report.interval is not None
        span = (float(spans[0, i]) / most, float(spans[1, i]) / most) if known else None
        given, bars = "", ""
        if labels is not None:
            given, bars = f"{labels[i]:.1%}{_ARROW}", bar(labels[i] / largest, p[i] / largest)
        rows.append(
            f'<tr><th scope="row">{class_name(report.classes[i])}</th>'
            f'<td data-value="{wrong[i]:.4f}">{wrong[i]:.1%}{ends(*spans[:, i]) if known else ""}'
            f"{bar(wrong[i] / most, ends=span)}</td>"
            f'<td data-value="{of_label[i]:.4f}">{of_label[i]:.1%}</td>'
            f'<td data-value="{p[i]:.4f}">{given}{p[i]:.1%}{bars}</td></tr>'
        )
    share = "True share" if labels is None else f"Share of labels{_ARROW}true share"
    heads = [
        "Class",
        f"True examples with another label{_level(report)}",
        "Labels that are wrong",
        share,
    ]
    return table("Classes", heads, rows, sortable=True)


def variation(report: Report) -> str:
    """Noise in each part of the data."""
    found = report.variation
    if found is None:
        return ""
    rates = found.noise_rates
    if not found.names or len(rates) > _MOST_BARS:
        picture = histogram(rates, f"wrong labels in {len(rates)} {found.part}s")
    else:
        most = max(float(rates.max()), FULL_COLOUR)
        sizes = [""] * len(rates)
        if found.sizes is not None:
            sizes = [f'<td data-value="{size}">{size:,}</td>' for size in found.sizes]
        rows = (
            f'<tr><th scope="row">{class_name(name)}</th><td data-value="{rate:.4f}">{rate:.1%}'
            f"{bar(rate / most)}</td>{size}</tr>"
            for name, rate, size in zip(found.names, rates, sizes, strict=True)
        )
        heads = [found.part.capitalize(), "Wrong labels", *["Labels"] * (found.sizes is not None)]
        picture = table("Variation", heads, rows, sortable=True)
    first, others = found.sentences[:1], found.sentences[1:]
    items = "".join(f"<li>{escape(one)}</li>" for one in others)
    lead = "".join(f"<p>{escape(one)}</p>" for one in first)
    return lead + (f"<ul>{items}</ul>" if items else "") + picture


def verified(report: Report) -> str:
    """What verified labels say, and the model beside them in each stratum."""
    found = report.verified
    if found is None:
        return ""
    said = "".join(f"<p>{escape(line)}</p>" for line in str(found).splitlines())
    if not found.strata:
        return said
    rows = []
    for part in found.strata:
        picture = bar(part.model, part.share, ends=(part.low, part.high))
        rows.append(
            f"<tr><td>{part.size:,}</td><td>{part.n}</td><td>{part.model:.1%}</td>"
            f"<td>{part.share:.1%}{ends(part.low, part.high)}{picture}</td></tr>"
        )
    heads = ["Labels", "Verified", "Wrong, by the model (grey)", "Found wrong (blue)"]
    parts = f"""<p>The labels in parts, by the model's probability that they are wrong. Where the
model is right, the grey bar ends inside the interval of the blue one.</p>
{table("Verified", heads, rows)}"""
    return said + folded("The model and the verified labels, compared", parts)


def errors(report: Report) -> str:
    """How far the estimate is from the truth."""
    if report.truth is None:
        return ""
    found = report.truth.errors
    most = max(*found.values(), LEAST_SHOWN)
    rows = (
        f'<tr><th scope="row">{escape(name)}</th><td>{error:.3f}{bar(error / most)}</td></tr>'
        for name, error in found.items()
    )
    return (
        f"{table('Errors', ['Answer', 'Error'], rows)}<p>The error is the absolute differences "
        f"from the true T, added up over a row and averaged over rows. 0 is perfect; 2 is the most "
        f"there can be.</p>"
    )


def checks(report: Report) -> str:
    """Warnings; below them, folded, what passed and the neighbours' labels.

    What is serious stands at the head of the page.
    """
    found = report.diagnostics
    content = [_findings(found.warnings)] if found.warnings else []
    if rest := [one for one in found if not one.needs_attention]:
        content.append(folded(found.rest, _findings(rest)))
    if report.agreement is not None:
        content.append(folded("How often neighbours have the same label", _neighbors(report)))
    return "\n".join(content)


def _findings(findings: Iterable[Finding]) -> str:
    items = (
        f'<li class="{one.severity.replace(" ", "-")}"><b>{one.severity}</b>'
        f"<strong>{escape(one.name.capitalize())}</strong><span>{said(one)}</span></li>"
        for one in findings
    )
    return f'<ul class="checks">{"".join(items)}</ul>'


def said(finding: Finding) -> str:
    """A finding's sentence, and what to do about it."""
    remedy = f" <em>{escape(finding.remedy)}</em>" if finding.remedy and not finding.ok else ""
    return escape(finding.sentence) + remedy


def _neighbors(report: Report) -> str:
    """How often neighbours have the same label."""
    near = report.agreement
    assert near is not None
    ranks = np.arange(1, len(near.by_rank) + 1)
    return f"""<p>Where neighbours share their true class, the curves are nearly flat, and far above
the line of two examples at random.</p>
<div class="charts">{line_chart(ranks, near.by_rank, near.chance, "rank of the neighbour")}
{line_chart(near.distance, near.by_distance, near.chance, "distance to the nearest")}</div>"""
