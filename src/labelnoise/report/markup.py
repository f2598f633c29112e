"""Pieces of HTML that sections are made of; names in them are data, and never markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_LONG = 25  # rows; a longer table scrolls by itself


def class_name(name: str) -> str:
    """A class name, which may run from right to left, and be cut where there is no room."""
    return f'<bdi title="{escape(name)}">{escape(name) or "&nbsp;"}</bdi>'


def ends(low: float, high: float) -> str:
    """An interval in percent, small."""
    return f" <small>{100 * low:.1f} to {100 * high:.1f}</small>"


def table(
    label: str,
    heads: Sequence[str],
    rows: Iterable[str],
    *,
    name: str = "",
    sortable: bool = False,
) -> str:
    """A table in a region that scrolls where it does not fit; `heads` and `rows` are HTML."""
    lines = list(rows)
    tall = " tall" if len(lines) > _LONG else ""
    sort = " data-sort" if sortable else ""
    cells = "".join(f'<th scope="col"{sort}>{head}</th>' for head in heads)
    return (
        f'<div class="scroll{tall}" tabindex="0" role="region" aria-label="{label}">'
        f'<table class="list" id="{name or label.lower()}-table"><thead><tr>{cells}</tr></thead>\n'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def folded(summary: str, content: str) -> str:
    """Content that is shown when its summary is clicked; all of it is printed."""
    return f"<details><summary>{summary}</summary>\n{content}</details>"


def counted(n: int, noun: str) -> str:
    """A number and a noun: 1 check, 2 checks."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
