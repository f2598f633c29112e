"""The sections of the page, each a function of the report; what is not known has no section."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

import numpy as np

from labelnoise.report.charts import bar, histogram, line_chart
from labelnoise.report.data import LEAST_SHOWN, Report, off_diagonal, short_percent

_MOST_CLASSES = 100  # in the map and the table
_LARGEST_ON_PHONE = 10  # classes; beyond, the map is wider than a phone, and scrolls
_LARGEST_NUMBERED = 25  # classes; beyond, cells are too small for numbers
_NAMES_ABREAST = 40  # characters; above it, class names stand upright over their columns
_LEVELS = 20  # of colour
_MOST_BARS = 40  # parts of the data; of more there is a histogram

_Cell = Callable[[float, bool], tuple[str, str]]


def shown_classes(report: Report) -> np.ndarray:
    """Numbers of the classes that are shown: those in most wrong labels, if there are many."""
    joint = off_diagonal(report.class_prior[:, None] * report.transition_matrix)
    wrong = joint.sum(axis=0) + joint.sum(axis=1)
    return np.sort(np.argsort(-wrong, kind="stable")[:_MOST_CLASSES])


def class_name(name: str) -> str:
    """A class name, which may run from right to left, and be cut where there is no room."""
    return f'<bdi title="{escape(name)}">{escape(name) or "&nbsp;"}</bdi>'


def maps(report: Report, shown: np.ndarray) -> str:
    """T as a heat map, beside the true T where it is known, and the largest confusions."""
    T, truth = report.transition_matrix, report.truth
    both = [off_diagonal(T)] if truth is None else map(off_diagonal, (T, truth.transition_matrix))
    scale = max(LEAST_SHOWN, *(float(matrix.max()) for matrix in both))

    def level(value: float) -> int:
        # The root makes small confusions visible beside large ones.
        return round(_LEVELS * min(value / scale, 1) ** 0.5)

    def share(value: float, right: bool) -> tuple[str, str]:
        number = f"d{round(_LEVELS * value)}" if right else f"w{level(value)}"
        return number, short_percent(value)

    def difference(value: float, _: bool) -> tuple[str, str]:
        text = short_percent(abs(value))
        sign = "" if text == "0" else "+" if value > 0 else "\N{MINUS SIGN}"
        return f"{'w' if value > 0 else 'd'}{level(abs(value))}", sign + text

    views: dict[str, tuple[np.ndarray, _Cell]] = {"Estimate": (T, share)}
    if truth is not None:
        views["Truth"] = truth.transition_matrix, share
        views["Estimate \N{MINUS SIGN} truth"] = T - truth.transition_matrix, difference
    names = [class_name(report.classes[i]) for i in shown]
    letters = len(shown) * max(len(report.classes[i]) for i in shown)
    K = len(shown)
    kind = "dense" if K > _LARGEST_NUMBERED else "wide" if K > _LARGEST_ON_PHONE else "small"
    kind += " upright" if letters > _NAMES_ABREAST else ""
    heads = "".join(f'<th scope="col">{name}</th>' for name in names)
    tables = []
    for title, (matrix, cell) in views.items():
        rows = []
        for i, name in zip(shown, names, strict=True):
            cells = (cell(float(matrix[i, j]), i == j) for j in shown)
            row = "".join(f'<td class="{number}">{text}</td>' for number, text in cells)
            rows.append(f'<tr><th scope="row">{name}</th>{row}</tr>')
        caption = f"{title}, in percent: rows are true classes, columns are labels."
        tables.append(
            f'<table class="map {kind}" data-view="{title}"><caption>{caption}</caption>'
            f"<thead><tr><td>true \\ label</td>{heads}</tr></thead>\n"
            f"<tbody>{''.join(rows)}</tbody></table>"
        )
    orders = "".join(f"<option>{name}</option>" for name in report.orders(shown))
    radios = "".join(
        f'<label><input type="radio" name="view" value="{title}"> {title}</label>'
        for title in views
        if len(views) > 1
    )
    left_out = len(report.classes) - len(shown)
    note = (
        f"<p>Those {len(shown)} classes with most wrong labels are shown, {left_out} are not.</p>"
    )
    return f"""<p>Row <i>i</i>, column <i>j</i>: the share of examples of true class <i>i</i> that
are labelled <i>j</i>. Each row adds up to 100%.</p>{note if left_out else ""}
<div class="controls" hidden>
<label>Order <select id="order" autocomplete="off">{orders}</select></label>{radios}</div>
<p id="readout" role="status">Point at a cell, tap it, or move there with the arrow keys.</p>
<div class="both {kind}"><div><div class="scroll">{"".join(tables)}</div>{_legend(scale)}</div>
<div><h3>Most frequent confusions</h3>{_confusions(report)}</div></div>"""


def _legend(scale: float) -> str:
    wrong = (f'<i class="w{n}">{scale * (n / _LEVELS) ** 2:.1%}</i>' for n in (5, 10, 15, 20))
    right = (f'<i class="d{n}">{n / _LEVELS:.0%}</i>' for n in (5, 10, 15, 20))
    return (
        f'<p class="legend" aria-hidden="true"><span>wrong label {"".join(wrong)}</span> '
        f"<span>right label {''.join(right)}</span></p>"
    )


def _confusions(report: Report) -> str:
    found, rows = report.confusions(), []
    for one in found:
        ends = "" if one.ends is None else f" <small>{_ends(*one.ends)}</small>"
        count = "" if one.examples is None else f"{one.examples:,.0f}"
        truth = "" if one.truth is None else f"<td>{one.truth:.1%}</td>"
        rows.append(
            f"<tr><td>{class_name(one.true)} \N{RIGHTWARDS ARROW} {class_name(one.label)}</td>"
            f"<td>{one.share:.1%}{ends}</td>{truth}<td>{count}</td></tr>"
        )
    if not found:
        return "<p>None: no confusion reaches 0.1%.</p>"
    truth = "" if report.truth is None else "<th>truth</th>"
    return (
        f'<table class="list"><thead><tr><th>true \N{RIGHTWARDS ARROW} label</th><th>share</th>'
        f"{truth}<th>labels</th></tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _ends(low: float, high: float) -> str:
    return f"{100 * low:.1f} to {100 * high:.1f}"


def classes(report: Report, shown: np.ndarray) -> str:
    """Noise by class, and estimated shares beside those of the labels."""
    T, p, labels = report.transition_matrix, report.class_prior, report.label_shares
    wrong, joint = 1 - np.diag(T), p[:, None] * T
    mass = joint.sum(axis=0)
    of_label = np.where(mass > 0, 1 - np.diag(joint) / np.where(mass > 0, mass, 1), 0)
    ends = np.array([wrong, wrong])
    if report.interval is not None:
        ends = 1 - np.einsum("eii->ei", report.interval.transition_matrix)[::-1]
    most = max(float(ends.max()), LEAST_SHOWN)
    largest = max(float(p.max()), 0 if labels is None else float(labels.max()))
    rows = []
    for i in shown:
        span, shown_ends = "", None
        if report.interval is not None:
            span = f" <small>{_ends(*ends[:, i])}</small>"
            shown_ends = (float(ends[0, i]) / most, float(ends[1, i]) / most)
        bars = [p[i] / largest] if labels is None else [labels[i] / largest, p[i] / largest]
        given = "" if labels is None else f"{labels[i]:.1%} \N{RIGHTWARDS ARROW} "
        rows.append(
            f'<tr><th scope="row">{class_name(report.classes[i])}</th>'
            f'<td data-value="{wrong[i]:.4f}">{wrong[i]:.1%}{span}'
            f"{bar(wrong[i] / most, ends=shown_ends)}</td>"
            f'<td data-value="{of_label[i]:.4f}">{of_label[i]:.1%}</td>'
            f'<td data-value="{p[i]:.4f}">{given}{p[i]:.1%}{bar(*bars)}</td></tr>'
        )
    known = "" if report.interval is None else f" ({report.interval.level:.0%} interval)"
    heads = ["class", f"of true ones, labelled otherwise{known}", "of those labelled so, another"]
    heads.append(
        "true share"
        if labels is None
        else "share of labels (grey) \N{RIGHTWARDS ARROW} true share (blue)"
    )
    return _sortable("classes", heads, rows)


def _sortable(name: str, heads: Sequence[str], rows: Iterable[str], first: str = "") -> str:
    """A table that the script makes sortable by `heads`, but not by a first head."""
    cells = "".join(f'<th scope="col" data-sort>{head}</th>' for head in heads)
    return (
        f'<div class="scroll tall" tabindex="0" role="region" aria-label="{name}">'
        f'<table class="list" id="{name}-table"><thead><tr>{first}{cells}</tr></thead>\n'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def checks(report: Report) -> str:
    """The findings, each with a light: warnings first."""
    if not report.findings:
        return ""
    items = []
    for finding in sorted(report.findings, key=lambda finding: finding.ok):
        state = "warning" if not finding.ok else "ok" if finding.value is not None else "not tested"
        items.append(
            f'<li class="{state.replace(" ", "-")}"><b>{state}</b><strong>'
            f"{escape(finding.name.capitalize())}</strong><span>{escape(finding.sentence)}</span></li>"
        )
    return f'<ul class="checks">{"".join(items)}</ul>'


def errors(report: Report) -> str:
    """How far the estimate is from the truth."""
    if report.truth is None:
        return ""
    errors = report.truth.errors
    most = max(*errors.values(), LEAST_SHOWN)
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}{bar(error / most)}</th><td>{error:.3f}</td></tr>'
        for name, error in errors.items()
    )
    return (
        f'<table class="list">{rows}</table><p>Absolute differences from the true T, added up over '
        f"a row and averaged over rows: 0 is perfect, 2 the most there can be.</p>"
    )


def neighbors(report: Report) -> str:
    """How often neighbours have the same label."""
    near = report.agreement
    if near is None:
        return ""
    ranks = np.arange(1, len(near.by_rank) + 1)
    return f"""<p>How often an example and a neighbour have the same label. Where neighbours share
their true class, the curves are nearly flat, and far above the line of two examples at random.</p>
<div class="charts">{line_chart(ranks, near.by_rank, near.chance, "rank of the neighbour")}
{line_chart(near.distance, near.by_distance, near.chance, "distance to the nearest")}</div>"""


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
        ends = f" <small>{_ends(part.low, part.high)}</small>"
        picture = bar(part.model, part.share, ends=(part.low, part.high))
        rows.append(
            f"<tr><td>{part.size:,}</td><td>{part.n}</td><td>{part.model:.1%}</td>"
            f"<td>{part.share:.1%}{ends}{picture}</td></tr>"
        )
    return f"""{said}<p>The labels in parts, by the model's chance that they are wrong. Where the
model is right, the grey bar ends inside the interval of the blue one.</p>
<table class="list"><thead><tr><th>labels</th><th>verified</th><th>wrong by the model (grey)</th>
<th>found wrong (blue)</th></tr></thead><tbody>{"".join(rows)}</tbody></table>"""


def variation(report: Report) -> str:
    """Noise in each part of the data."""
    found = report.variation
    if found is None:
        return ""
    rates, most = found.noise_rates, max(float(found.noise_rates.max()), LEAST_SHOWN)
    if not found.names or len(rates) > _MOST_BARS:
        picture = histogram(rates, f"wrong labels in {len(rates)} {found.part}s")
    else:
        sizes = [""] * len(rates)
        if found.sizes is not None:
            sizes = [f"<td>{size:,}</td>" for size in found.sizes]
        rows = (
            f'<tr><th scope="row">{class_name(name)}</th><td data-value="{rate:.4f}">{rate:.1%}'
            f"{bar(rate / most)}</td>{size}</tr>"
            for name, rate, size in zip(found.names, rates, sizes, strict=True)
        )
        heads = [found.part, "wrong labels", *["examples"] * (found.sizes is not None)]
        picture = _sortable("variation", heads, rows)
    return f"{picture}<ul>{''.join(f'<li>{escape(one)}</li>' for one in found.sentences)}</ul>"


def suspects(report: Report) -> str:
    """The labels that are probably wrong."""
    found = report.suspects
    if found is None:
        return ""
    seen = any(row.picture or row.text for row in found.rows)
    named = any(row.name is not None for row in found.rows)
    heads = ["row", "given label", "suggested label", "probability wrong"]
    if named:
        heads.insert(1, "name")
    rows = []
    for row in found.rows:
        cells = [f"<td>{row.row}</td>"]
        if seen:
            source = "" if row.picture is None else escape(row.picture)
            picture = f'<img src="{source}" alt="row {row.row}">' if source else ""
            text = "" if row.text is None else f"<bdi>{escape(row.text)}</bdi>"
            cells.insert(0, f'<td class="example">{picture}{text}</td>')
        if named:
            cells.append(f"<td>{class_name(row.name or '')}</td>")
        cells.append(f"<td>{class_name(row.given)}</td>")
        cells.append(f'<td class="suggested">{class_name(row.suggested)}</td>')
        cells.append(f'<td data-value="{row.probability:.4f}">{row.probability:.1%}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    table = _sortable("suspects", heads, rows, '<th scope="col">example</th>' if seen else "")
    given = sorted({row.given for row in found.rows}, key=report.classes.index)
    options = "".join(f"<option>{escape(name) or '&nbsp;'}</option>" for name in given)
    left_out = found.n_found - len(found.rows)
    more = (
        f" Here are the surest {len(found.rows):,}; {left_out:,} are left out." if left_out else ""
    )
    return f"""<p>{escape(found.note)} {found.n_found:,} are suspect.{more}</p>
<div class="controls" hidden>
<label>Search <input type="search" id="search" autocomplete="off"></label>
<label>Given label
<select id="given" autocomplete="off"><option>all</option>{options}</select></label>
<button type="button" id="export">Export as CSV</button><span id="count" role="status"></span></div>
{table}"""
