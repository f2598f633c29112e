"""An estimated T beside the true one: the comparison as data, and the page that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from labelnoise import __version__
from labelnoise.diagnostics import Finding

_LEAST_SHOWN = 0.0005  # rounds to 0.1%; less is shown as 0
_NAMES_ABREAST = 40  # characters; above it, class names stand upright over their columns


@dataclass(frozen=True, eq=False)
class Comparison:
    """An estimate where the truth is known, and what a reader wants to know of the two."""

    classes: Sequence[str]
    """Names of the K classes, in the order of the rows and columns."""
    estimated: np.ndarray
    """(K, K) estimated T, rows are true classes."""
    truth: np.ndarray
    """(K, K) true T."""
    noise_rate: float
    """Estimated share of wrong labels."""
    true_noise_rate: float
    """Share of labels that are wrong."""
    errors: Mapping[str, float]
    """`transition_error` of the estimate, and of other answers to measure it by."""
    findings: Sequence[Finding]
    """What the estimate stands on."""
    how: str
    """How data, noise and estimate were made."""

    @property
    def headline(self) -> str:
        """The result in one sentence."""
        return (
            f"Estimate: {self.noise_rate:.1%} of the labels are wrong. "
            f"Truth: {self.true_noise_rate:.1%}."
        )

    def largest_confusions(self, most: int = 6) -> list[str]:
        """Largest estimated confusions in words, each with its true share."""
        wrong = _off_diagonal(self.estimated)
        largest = np.argsort(-wrong, axis=None, kind="stable")[:most]
        return [
            f"{wrong[i, j]:.1%} of true {self.classes[i]} are labelled {self.classes[j]} "
            f"(true: {self.truth[i, j]:.1%})"
            for i, j in zip(*np.unravel_index(largest, wrong.shape), strict=True)
            if wrong[i, j] >= _LEAST_SHOWN
        ]


def short_percent(share: float) -> str:
    """Percent in at most three characters: 0, 0.4, 8.1, 93."""
    if abs(share) < _LEAST_SHOWN:
        return "0"
    return f"{100 * share:.1f}" if abs(share) < 0.0995 else f"{100 * share:.0f}"


def heatmap_page(comparison: Comparison) -> str:
    """Render the comparison as one HTML page: no scripts, and nothing to load.

    Both matrices and their difference share one colour scale, which ends at the largest
    confusion of the two. The diagonal, being far larger, has a hue of its own.
    """
    estimated, truth = comparison.estimated, comparison.truth
    scale = float(max(_off_diagonal(estimated).max(), _off_diagonal(truth).max(), _LEAST_SHOWN))

    def probability(share: float, on_diagonal: bool) -> tuple[str, float, str]:
        kind = "right" if on_diagonal else "wrong"
        return kind, share if on_diagonal else share / scale, short_percent(share)

    def difference(points: float, on_diagonal: bool) -> tuple[str, float, str]:
        text = short_percent(abs(points))
        sign = "" if text == "0" else "+" if points > 0 else "\N{MINUS SIGN}"
        return "more" if points > 0 else "less", min(abs(points) / scale, 1), sign + text

    names = comparison.classes
    both_maps = _map("Estimated T", names, estimated, probability)
    both_maps += _map("True T", names, truth, probability)
    difference_map = _map(
        "Estimate \N{MINUS SIGN} truth", names, estimated - truth, difference, "percentage points"
    )
    confusions = comparison.largest_confusions() or ["None: no confusion reaches 0.1%."]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Label noise: the estimate and the truth</title>
<style>{_STYLE}</style>
</head>
<body>
<header>
<h1>{escape(comparison.headline)}</h1>
<p>The transition matrix T says how labels go wrong: row <i>i</i>, column <i>j</i> is the share
of examples of true class <i>i</i> that were labelled <i>j</i>, so each row adds up to 100%.</p>
</header>
<main>
<section aria-label="Transition matrices, in percent">
<div class="maps">{both_maps}</div>
<p class="legend" aria-hidden="true">
<span><i class="ramp right"></i> right label, 0 to 100%</span>
<span><i class="ramp wrong"></i> wrong label, 0 to {scale:.0%}</span>
</p>
</section>
<div class="columns">
<div>
<section>
<h2>Largest confusions</h2>
<ul>{_items(confusions)}</ul>
</section>
<section>
<h2>Error</h2>
{_error_bars(comparison.errors)}
<p class="note">Absolute differences from the true T, added up over a row and averaged over
rows: 0 is perfect, 2 the most there can be.</p>
</section>
</div>
<section>
<div class="maps">{difference_map}</div>
<p class="legend" aria-hidden="true">
<span><i class="ramp less"></i> estimate too low, 0 to {scale:.0%}</span>
<span><i class="ramp more"></i> too high</span>
</p>
</section>
</div>
<section>
<h2>What the estimate stands on</h2>
<ul class="findings">{_finding_items(comparison.findings)}</ul>
</section>
<section>
<h2>How it was made</h2>
<p>{escape(comparison.how)}</p>
</section>
</main>
<footer>labelnoise {escape(__version__)}</footer>
</body>
</html>
"""


def _off_diagonal(T: np.ndarray) -> np.ndarray:
    return T - np.diag(np.diag(T))


def _map(
    title: str,
    names: Sequence[str],
    matrix: np.ndarray,
    cell: Callable[[float, bool], tuple[str, float, str]],
    unit: str = "percent",
) -> str:
    """One matrix as a table; `cell` gives kind, intensity (0 to 1) and text of an entry."""
    escaped = [escape(name) for name in names]
    upright = "upright" if len(names) * max(map(len, names)) > _NAMES_ABREAST else ""
    heads = "".join(f'<th scope="col"><span>{name}</span></th>' for name in escaped)
    rows = []
    for i, name in enumerate(escaped):
        cells = []
        for j, given in enumerate(escaped):
            value = float(matrix[i, j])
            kind, intensity, text = cell(value, i == j)
            zero = " zero" if text == "0" else ""
            cells.append(
                f'<td class="{kind}{zero}" style="--v:{intensity:.3f}" '
                f'title="true {name}, labelled {given}: {100 * value:.2f} {unit}">{text}</td>'
            )
        rows.append(f'<tr><th scope="row"><span>{name}</span></th>{"".join(cells)}</tr>')
    side = f'<th class="side" rowspan="{len(names)}"><span>true class</span></th>'
    rows[0] = rows[0].replace("<tr>", f"<tr>{side}", 1)
    return f"""<div class="map"><table class="{upright}">
<caption>{escape(title)} <small>{escape(unit)}</small></caption>
<thead>
<tr><td colspan="2"></td><th class="top" colspan="{len(names)}">label given</th></tr>
<tr><td colspan="2"></td>{heads}</tr>
</thead>
<tbody>{"".join(rows)}</tbody>
</table></div>"""


def _error_bars(errors: Mapping[str, float]) -> str:
    largest = max(*errors.values(), 1e-9)
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}<i style="width:{100 * error / largest:.1f}%"></i></th>'
        f"<td>{error:.3f}</td></tr>"
        for name, error in errors.items()
    )
    return f'<table class="errors">{rows}</table>'


def _finding_items(findings: Iterable[Finding]) -> str:
    return "".join(
        f'<li class="{"ok" if finding.ok else "warning"}"><b>{"ok" if finding.ok else "warning"}'
        f"</b><span>{escape(finding.sentence)}</span></li>"
        for finding in findings
    )


def _items(sentences: Iterable[str]) -> str:
    return "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)


# Full colours are chosen so that the one text colour of each scheme is legible on all of them:
# a cell only mixes its colour with the background, so it never needs a text colour of its own.
_STYLE = """
:root { --page: #faf9f7; --card: #ffffff; --ink: #1c1917; --soft: #57534e; --faint: #78716c;
  --line: #e7e5e4; --right: 96 165 250; --wrong: 249 115 22; --more: 217 120 219;
  --less: 52 190 160; --good: #15803d; --bad: #b45309; }
@media (prefers-color-scheme: dark) {
  :root { --page: #141416; --card: #1c1c20; --ink: #f5f5f4; --soft: #b6b1ac; --faint: #8f8a85;
    --line: #33333a; --right: 37 84 190; --wrong: 194 65 12; --more: 150 60 160;
    --less: 15 112 98; --good: #4ade80; --bad: #fbbf24; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: clamp(14px, 3vw, 40px) clamp(12px, 3vw, 32px); max-width: 1240px;
  background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
header p { max-width: 46em; }
h1 { margin: 0 0 .4em; font-size: clamp(1.35rem, 1rem + 1.7vw, 2rem); line-height: 1.2;
  letter-spacing: -.015em; text-wrap: balance; }
h2, caption { font-size: 1.05rem; font-weight: 650; text-align: left; margin: 0 0 .5rem; }
p { margin: 0 0 .6rem; }
header p, .note, .legend, small { color: var(--soft); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: clamp(8px, 2vw, 22px); margin-top: 16px; min-width: 0; }
section > :last-child { margin-bottom: 0; }
.maps { display: grid; gap: 24px clamp(16px, 3vw, 40px);
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); }
.columns { display: grid; gap: 0 16px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); }
.columns > div { display: flex; flex-direction: column; }
.columns > div > :last-child { flex: 1; }
.map { overflow-x: auto; }
.map table { width: 100%; border-collapse: separate; border-spacing: 2px;
  font-size: clamp(.66rem, .55rem + .5vw, .84rem); font-variant-numeric: tabular-nums; }
.map caption { padding: 0 2px .4rem; }
.map caption small { font-weight: 400; font-size: .85rem; }
.map td { padding: 0; height: 2.5em; min-width: 2.6em; text-align: center; border-radius: 4px; }
.map thead td { height: auto; min-width: 0; }
.map th { padding: 0 .3em; font-weight: 600; color: var(--soft); }
.map tbody th span, .upright thead th[scope] span { display: inline-block; max-width: 9em;
  overflow: hidden; text-overflow: ellipsis; white-space: nowrap; vertical-align: middle; }
.map tbody th[scope] { text-align: right; }
.upright thead th[scope] span { writing-mode: vertical-rl; transform: rotate(180deg);
  max-width: none; max-height: 9em; }
.map th.top, .map th.side { font-weight: 400; }
.map th.side { width: 1.2em; padding: 0; }
.map th.side span { writing-mode: vertical-rl; transform: rotate(180deg); }
.right { --hue: var(--right); }
.wrong { --hue: var(--wrong); }
.more { --hue: var(--more); }
.less { --hue: var(--less); }
td[style] { background: rgb(var(--hue) / calc(.03 + .97 * var(--v))); }
.zero { color: var(--faint); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; margin: .8rem 0 0; font-size: .85rem; }
.ramp { display: inline-block; width: 4.5em; height: .8em; border-radius: 3px;
  margin-right: .35em;
  background: linear-gradient(90deg, rgb(var(--hue) / .05), rgb(var(--hue))); }
ul { margin: 0; padding-left: 1.2em; }
li { margin: .15em 0; overflow-wrap: anywhere; text-wrap: balance; }
.findings { list-style: none; padding: 0; }
.findings li { display: grid; grid-template-columns: auto 1fr; gap: .7em; }
.findings b { font-weight: 650; }
.ok b { color: var(--good); }
.warning b { color: var(--bad); }
.errors { width: 100%; border-collapse: collapse; margin-bottom: .6rem; }
.errors th { text-align: left; font-weight: 400; padding: .2rem 1rem .2rem 0; }
.errors tr:first-child { font-weight: 650; }
.errors tr:first-child th { font-weight: 650; }
.errors td { text-align: right; vertical-align: top; padding: .2rem 0; width: 4em;
  font-variant-numeric: tabular-nums; }
.errors i { display: block; height: 6px; min-width: 2px; margin-top: 3px; border-radius: 3px;
  background: var(--faint); }
.errors tr:first-child i { background: rgb(var(--right)); }
.note { font-size: .88rem; }
footer { margin-top: 16px; color: var(--soft); font-size: .85rem; }
"""
