"""A label-quality card: what a team pastes into its data set's README, and a badge.

Markdown with the front matter that Hugging Face's dataset cards have, and an SVG.
"""

from __future__ import annotations

import datetime
import json
import os
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

import labelnoise
from labelnoise.io.atomic import write_then_rename
from labelnoise.summary import quick_interval

if TYPE_CHECKING:
    from labelnoise.fitted import FittedEstimate
    from labelnoise.intervals import ConfidenceInterval

_MOST_CONFUSIONS = 5
_LEAST_CONFUSION = 0.0005  # of a row of T: smaller ones are printed as 0.0%
_BADGE = "label-noise.svg"
# Hugging Face's size_categories: each is below its number of examples.
_SIZES = {"n<1K": 1e3, "1K<n<10K": 1e4, "10K<n<100K": 1e5, "100K<n<1M": 1e6, "1M<n<10M": 1e7}
_LARGEST_SIZE = "10M<n<100M"
_COLORS = {0.02: "#3c8c2d", 0.05: "#5f6d0e", 0.1: "#8a6208", 0.2: "#b04a14", 1.0: "#b3261e"}
_UNKNOWN = "#6b6b6b"
_CHARACTER = 6.6  # pixels of one in the badge, on average


@dataclass(frozen=True, repr=False)
class Card:
    """A label-quality card.

    Attributes
    ----------
    front_matter : dict
        The facts, for the YAML at the head.
    body : str
        Markdown.
    badge : str
        SVG with the noise rate, or with "not estimable".
    """

    front_matter: dict[str, Any]
    body: str
    badge: str

    @property
    def markdown(self) -> str:
        """Front matter and body."""
        return f"---\n{_yaml(self.front_matter)}---\n\n{self.body}"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the Markdown."""
        _write(path, self.markdown)

    def save_badge(self, path: str | os.PathLike[str]) -> None:
        """Write the badge, to which the Markdown refers as label-noise.svg."""
        _write(path, self.badge)

    def _repr_markdown_(self) -> str:
        """What Jupyter shows: without the badge, which is no file yet."""
        lines = self.body.splitlines(keepends=True)
        return "".join(line for line in lines if f"]({_BADGE})" not in line)

    def __repr__(self) -> str:
        return self.markdown


def card_of(est: FittedEstimate, date: datetime.date | None = None) -> Card:
    """Gather the card of a fitted or loaded estimate.

    Parameters
    ----------
    est : HOC
    date : date, optional
        Of the card. Default: today.
    """
    date = date or datetime.date.today()
    found, interval = est.diagnostics_, quick_interval(est)
    n, rests = _n_labels(est), _rests_on(est, interval)
    rate = f"{est.noise_rate_:.1%}"
    lines = ["# Label quality", ""]
    lines += [f"> **{one.sentence}** {one.remedy}".rstrip() + "\n" for one in found.serious]
    if found.estimable:
        ends = "" if interval is None else f" ({_percent(*interval.noise_rate)})"
        lines += [f"![label noise {rate}]({_BADGE})", ""]
        lines += [f"**{rate} of the labels are wrong{ends}.** {rests}", ""]
        lines += _confusions(est, interval)
    of = f"{n:,} labels in " if n else ""
    warnings = len(found.warnings)
    checks = f"Warnings of its checks: {warnings}. " if warnings else ""
    lines.append(
        f"Estimated from {of}{len(est.classes_)} classes by labelnoise {labelnoise.__version__}, "
        f"{date.isoformat()}. {checks}Shares are of the examples of a true class."
    )
    facts = _facts(est, interval, n, date)
    color = next(color for limit, color in _COLORS.items() if est.noise_rate_ <= limit)
    badge = _badge(rate, color) if found.estimable else _badge("not estimable", _UNKNOWN)
    return Card(facts, "\n".join(lines) + "\n", badge)


def _n_labels(est: FittedEstimate) -> int | None:
    """How many labels; None of a loaded estimate without a verified sample."""
    if est.examples_ is not None:
        return int((est.examples_.labels >= 0).sum())
    if est.verified_ is not None and est.verified_.strata:
        return sum(part.size for part in est.verified_.strata)
    return None


def _rests_on(est: FittedEstimate, interval: ConfidenceInterval | None) -> str:
    """What the noise rate and its interval rest on, as a sentence."""
    verified = est.verified_
    if verified is not None and verified.rate is not None:
        return (
            f"The rate is that of a {verified.rate.kind} of {verified.rate.n:,} labels that were "
            f"verified; it assumes nothing of the model."
        )
    holds = f", and the interval holds {interval.condition}" if interval is not None else ""
    caveat = f" {interval.caveat.capitalize()}." if interval is not None and interval.caveat else ""
    chosen = ""
    if verified is not None:
        chosen = f" {verified.n:,} labels were verified, but not of rows drawn at random."
    return f"The rate is a model's: no random sample of labels was verified{holds}.{caveat}{chosen}"


def _confusions(est: FittedEstimate, interval: ConfidenceInterval | None) -> list[str]:
    """A table of the confusions that make most errors."""
    T, joint, names = est.transition_matrix_, est.joint_, est.classes_
    errors = joint - np.diag(np.diag(joint))
    largest = np.argsort(-errors, axis=None, kind="stable")[:_MOST_CONFUSIONS]
    places = [divmod(int(place), len(T)) for place in largest]
    rows = []
    for i, j in places:
        if i != j and T[i, j] >= _LEAST_CONFUSION:
            ends = "" if interval is None else _percent(*interval.transition_matrix[:, i, j])
            rows.append(f"| {_cell(names[i])} | {_cell(names[j])} | {T[i, j]:.1%} | {ends} |")
    if not rows:
        return []
    return [
        "| true class | labelled | share | 95% interval |",
        "| --- | --- | --- | --- |",
        *rows,
        "",
    ]


def _facts(
    est: FittedEstimate,
    interval: ConfidenceInterval | None,
    n: int | None,
    date: datetime.date,
) -> dict[str, Any]:
    facts: dict[str, Any] = {"tags": ["label-noise"]}
    if n:
        facts["size_categories"] = [
            next((name for name, limit in _SIZES.items() if n < limit), _LARGEST_SIZE)
        ]
    quality: dict[str, Any] = {}
    if est.diagnostics_.estimable:
        quality["noise_rate"] = round(float(est.noise_rate_), 4)
        if interval is not None:
            quality["noise_rate_interval"] = [round(float(end), 4) for end in interval.noise_rate]
            quality["level"] = interval.level
    verified = est.verified_
    quality["verified_labels"] = 0 if verified is None else verified.n
    if n:
        quality["labels"] = n
    quality["classes"] = len(est.classes_)
    quality["serious_findings"] = [finding.name for finding in est.diagnostics_.serious]
    quality["date"] = date.isoformat()
    quality["version"] = labelnoise.__version__
    return facts | {"label_quality": quality}


def _yaml(facts: dict[str, Any], indent: str = "") -> str:
    """A mapping as YAML: JSON's values are YAML's, too."""
    lines = ""
    for name, value in facts.items():
        if isinstance(value, dict):
            lines += f"{indent}{name}:\n{_yaml(value, indent + '  ')}"
        else:
            lines += f"{indent}{name}: {json.dumps(value, ensure_ascii=False)}\n"
    return lines


def _badge(value: str, color: str) -> str:
    """A label and a value side by side."""
    label = "label noise"
    left, right = (round(_CHARACTER * len(text) + 12) for text in (label, value))
    width, title = left + right, escape(f"{label}: {value}")
    texts = "".join(
        f'<text x="{x}" y="14" textLength="{size - 12}">{escape(text)}</text>'
        for text, x, size in ((label, 6, left), (value, left + 6, right))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" '
        f'aria-label="{title}"><title>{title}</title>'
        f'<clipPath id="r"><rect width="{width}" height="20" rx="3"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{left}" height="20" fill="#444"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{color}"/></g>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{texts}</g>'
        f"</svg>\n"
    )


def _percent(low: float, high: float) -> str:
    return f"{low:.1%} to {high:.1%}"


def _cell(name: Any) -> str:
    """A class name in a table of Markdown, which reads some signs and no line ends."""
    text = escape(" ".join(str(name).split()), quote=False)
    return "".join(f"\\{sign}" if sign in "\\|`*_[]" else sign for sign in text)


def _write(path: str | os.PathLike[str], text: str) -> None:
    with write_then_rename(path) as file:
        file.write(text.encode("utf-8"))
