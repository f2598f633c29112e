"""Small SVG pictures, in numbers only: their colours are the page's."""

from __future__ import annotations

import numpy as np

_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 350, 12, 180  # of the plotting area of a chart
_BARS = 24  # of a histogram


def bar(*lengths: float, ends: tuple[float, float] | None = None) -> str:
    """Bars under each other, 0 to 1 long, with an error bar."""
    height = 12 / len(lengths)
    rects = "".join(
        f'<rect y="{i * height:g}" width="{100 * length:.2f}" height="{height - 1:g}"/>'
        for i, length in enumerate(lengths)
    )
    line = "" if ends is None else f'<path d="M{100 * ends[0]:.2f} 5.5H{100 * ends[1]:.2f}"/>'
    size = 'viewBox="0 0 100 12" preserveAspectRatio="none"'
    return f'<svg class="bar" {size} aria-hidden="true">{rects}{line}</svg>'


def line_chart(x: np.ndarray, y: np.ndarray, chance: float, title: str) -> str:
    """Shares y over x, and the share that chance would give as a dashed line."""
    width = _RIGHT - _LEFT - 24
    at = _LEFT + 12 + (x - x.min()) / max(float(np.ptp(x)), 1e-12) * width
    height = _BOTTOM - y * (_BOTTOM - _TOP)
    dashed = _BOTTOM - chance * (_BOTTOM - _TOP)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(at, height, strict=True))
    said = [f"{one:.3g}: {share:.1%}" for one, share in zip(x, y, strict=True)]
    dots = "".join(
        f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5"><title>{text}</title></circle>'
        for a, b, text in zip(at, height, said, strict=True)
    )
    grid = "".join(
        f'<path class="grid" d="M{_LEFT} {h}H{_RIGHT}"/>'
        f'<text x="{_LEFT - 6}" y="{h + 4}" class="end">{share}%</text>'
        for share, h in ((0, _BOTTOM), (50, (_TOP + _BOTTOM) // 2), (100, _TOP))
    )
    return f"""<svg class="chart" viewBox="0 0 360 224" role="img"
 aria-label="Equal labels, by {title}: {", ".join(said)}">{grid}
<path class="chance" d="M{_LEFT} {dashed:.1f}H{_RIGHT}"/>
<text x="{_RIGHT}" y="{dashed - 5:.1f}" class="end">two at random</text>
<polyline points="{points}"/>{dots}
<text x="{at[0]:.1f}" y="{_BOTTOM + 18}" class="mid">{x[0]:.3g}</text>
<text x="{at[-1]:.1f}" y="{_BOTTOM + 18}" class="mid">{x[-1]:.3g}</text>
<text x="{(_LEFT + _RIGHT) / 2}" y="{_BOTTOM + 36}" class="mid">{title}</text></svg>"""


def histogram(shares: np.ndarray, title: str) -> str:
    """How many of the shares are in each of equal bins."""
    counts, edges = np.histogram(shares, _BARS)
    rects = "".join(
        f'<rect x="{15 * i}" y="{100 - height:.1f}" width="14" height="{height:.1f}"/>'
        for i, height in enumerate(100 * counts / counts.max())
    )
    return (
        f'<figure><svg class="histogram" viewBox="0 0 360 100" aria-hidden="true">{rects}</svg>'
        f"<figcaption><span>{edges[0]:.1%}</span><span>{title}</span><span>{edges[-1]:.1%}</span>"
        f"</figcaption></figure>"
    )
