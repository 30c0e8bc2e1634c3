"""Charts as inline SVG: bars and lines over time, with a word for every point. No script; colours by CSS classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 560, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 52, 10, 24
_GRID_LINES = 4
_LABELS = 6
_GAP = 2


@dataclass(frozen=True, slots=True)
class Series:
    """Values at the chart's labels (None: unknown), drawn in the colour of a CSS class."""

    name: str
    colour: str
    values: Sequence[float | None]


def number(value: float | None) -> str:
    """A number for people: 1,234, 45.6K, 7.8M."""
    if value is None:
        return "-"
    for limit, divisor, unit in ((1e10, 1e9, "G"), (1e7, 1e6, "M"), (1e4, 1e3, "K")):
        if abs(value) >= limit:
            return f"{value / divisor:,.1f}{unit}".replace(".0", "")
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:,.1f}"


def duration(ms: float | None) -> str:
    """A duration for people: 12 ms, 3.4 s, 5 min, 2.1 h."""
    if ms is None:
        return "-"
    for limit, divisor, unit in ((5.4e6, 3.6e6, "h"), (9e4, 6e4, "min"), (1000, 1000, "s")):
        if ms >= limit:
            return f"{ms / divisor:,.1f} {unit}".replace(".0 ", " ")
    return f"{ms:,.0f} ms"


def bars(labels: Sequence[str], series: Series, title: str) -> str:
    """One bar for each label."""
    top = _top(max([v for v in series.values if v is not None], default=0))
    step = _plot_width() / max(1, len(labels))
    width = max(1.0, min(40.0, step - _GAP))
    drawn = []
    for n, (label, value) in enumerate(zip(labels, series.values, strict=True)):
        if value:
            x, y = _LEFT + step * (n + 0.5) - width / 2, _y(value, top)
            told = escape(f"{label}: {number(value)} {series.name}")
            bar = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_y(0, top) - y:.1f}"'
            drawn.append(f'<rect class="{series.colour}" {bar} rx="2"><title>{told}</title></rect>')
    return _chart(title, _axes(labels, top, number, step) + "".join(drawn))


def lines(
    labels: Sequence[str], several: Sequence[Series], title: str, *, times: bool = False, area: bool = False
) -> str:
    """One line for each series, named at its end. `times`: values are ms. `area`: filled down to zero."""
    known = [v for series in several for v in series.values if v is not None]
    word = duration if times else number
    top = _top(max(known, default=0))
    step = _plot_width() / max(1, len(labels))
    drawn = "".join(_line(labels, series, step, top, word, area) for series in several)
    return _chart(title, _axes(labels, top, word, step) + drawn + _names(several, top))


def _line(labels: Sequence[str], series: Series, step: float, top: float, word: object, area: bool) -> str:
    assert callable(word)
    points = [(_LEFT + step * (n + 0.5), _y(v, top), v) for n, v in enumerate(series.values) if v is not None]
    if not points:
        return ""
    path = "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
    zero = _y(0, top)
    ends = f"{path}L{points[-1][0]:.1f},{zero:.1f}L{points[0][0]:.1f},{zero:.1f}Z"
    filled = f'<path class="area {series.colour}" d="{ends}"/>' if area else ""
    named = [label for label, value in zip(labels, series.values, strict=True) if value is not None]
    dots = "".join(
        f'<circle class="dot {series.colour}" cx="{x:.1f}" cy="{y:.1f}" r="{2.5 if len(points) <= 40 else 1}">'
        f"<title>{escape(f'{label}: {word(value)} {series.name}')}</title></circle>"
        for label, (x, y, value) in zip(named, points, strict=True)
    )
    return f'{filled}<path class="line {series.colour}" d="{path}"/>{dots}'


def _names(several: Sequence[Series], top: float) -> str:
    """Names beside the last points, pushed apart where they would meet."""
    ends = [(_y(last, top), s) for s in several if (last := _last(s)) is not None]
    drawn, free = "", float(HEIGHT)
    for y, series in sorted(ends, key=lambda end: -end[0]):
        free = min(y + 4, free)
        drawn += f'<text class="name" x="{WIDTH - _RIGHT + 6}" y="{free:.1f}">{escape(series.name)}</text>'
        free -= 12
    return drawn


def _last(series: Series) -> float | None:
    return next((value for value in reversed(series.values) if value is not None), None)


def _axes(labels: Sequence[str], top: float, word: object, step: float) -> str:
    assert callable(word)
    drawn = ""
    for n in range(_GRID_LINES + 1):
        value = top * n / _GRID_LINES
        y = _y(value, top)
        drawn += f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        drawn += (
            f'<text class="tick" x="{_LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{word(value)}</text>'
        )
    every = max(1, math.ceil(len(labels) / _LABELS))
    for n in range(0, len(labels), every):
        x = _LEFT + step * (n + 0.5)
        drawn += (
            f'<text class="tick" x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(labels[n])}</text>'
        )
    return drawn


def _chart(title: str, inner: str) -> str:
    view = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}"'
    return f"<figure><figcaption>{escape(title)}</figcaption><svg {view}>{inner}</svg></figure>"


def _top(highest: float) -> float:
    """The axis' end: a round number, not below the highest value, that quarters well."""
    if highest <= _GRID_LINES:
        return float(_GRID_LINES)
    unit = 10.0 ** math.floor(math.log10(highest))
    return next(unit * n for n in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if unit * n >= highest)


def _y(value: float, top: float) -> float:
    return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - value / top)


def _plot_width() -> int:
    return WIDTH - _LEFT - _RIGHT
