"""Charts as inline SVG: bars and lines over time, with a word for every point. No script; colours by CSS classes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 560, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 52, 10, 24
_GRID_LINES = 4
_LABELS = 6
_GAP = 2
_FEW = 40  # points
_ROUND = (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10)


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
    for limit, divisor, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "K")):
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


@dataclass(frozen=True, slots=True)
class Axis:
    """What stands at the chart's left: values to mark, from the lowest to the highest, and how they are written.

    `log`: equal ratios are equally far apart, as of latencies, of which the rarest are a thousand times the most.
    """

    marks: Sequence[float]
    word: Callable[[float | None], str] = number
    log: bool = False

    def y(self, value: float) -> float:
        """Where a value stands."""
        low, high = self.marks[0], self.marks[-1]
        share = (
            math.log(max(value, low) / low) / math.log(high / low)
            if self.log
            else (value - low) / (high - low)
        )
        return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - share)


def count_axis(values: Iterable[float | None]) -> Axis:
    """The axis of counts: from 0 to a round number that quarters well."""
    highest = max((v for v in values if v is not None), default=0)
    top = float(_GRID_LINES)
    if highest > top:
        unit = 10.0 ** math.floor(math.log10(highest))
        top = next(unit * n for n in _ROUND if unit * n >= highest)
    return Axis([top * n / _GRID_LINES for n in range(_GRID_LINES + 1)])


def duration_axis(values: Iterable[float | None]) -> Axis:
    """The axis of durations in ms: powers of ten around them."""
    known_values = [max(1.0, v) for v in values if v is not None] or [1.0]
    low = math.floor(math.log10(min(known_values)))
    high = max(low + 1, math.ceil(math.log10(max(known_values))))
    return Axis([10.0**n for n in range(low, high + 1)], duration, log=True)


def bars(labels: Sequence[str], series: Series, title: str) -> str:
    """One bar for each label."""
    axis, step = count_axis(series.values), _plot_width() / max(1, len(labels))
    width = max(1.0, min(40.0, step - _GAP))
    rects = []
    for n, (label, value) in enumerate(zip(labels, series.values, strict=True)):
        if value:
            x, y = _LEFT + step * (n + 0.5) - width / 2, axis.y(value)
            hint = escape(f"{label}: {number(value)} {series.name}")
            bar = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{axis.y(0) - y:.1f}"'
            rects.append(f'<rect class="{series.colour}" {bar} rx="2"><title>{hint}</title></rect>')
    return _chart(title, _frame(labels, axis, step) + "".join(rects))


def lines(
    labels: Sequence[str], several: Sequence[Series], axis: Axis, title: str, label_step: int = 0
) -> str:
    """One line for each series, named at its end; a single one is filled down to zero. Of so many labels as
    `label_step`, the first is shown (0: as many as fit)."""
    step = _plot_width() / max(1, len(labels))
    svg = "".join(_line(labels, series, step, axis, area=len(several) == 1) for series in several)
    return _chart(title, _frame(labels, axis, step, label_step) + svg + _names(several, axis))


def _line(labels: Sequence[str], series: Series, step: float, axis: Axis, *, area: bool) -> str:
    known_values = [(n, value) for n, value in enumerate(series.values) if value is not None]
    if not known_values:
        return ""
    points = [(_LEFT + step * (n + 0.5), axis.y(value)) for n, value in known_values]
    path = "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points)
    zero = axis.y(axis.marks[0])
    area_path = f"{path}L{points[-1][0]:.1f},{zero:.1f}L{points[0][0]:.1f},{zero:.1f}Z"
    area_svg = f'<path class="area {series.colour}" d="{area_path}"/>' if area else ""
    radius = 2.5 if len(points) <= _FEW else 1
    dots = "".join(
        f'<circle class="dot {series.colour}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">'
        f"<title>{escape(f'{labels[n]}: {axis.word(value)} {series.name}')}</title></circle>"
        for (n, value), (x, y) in zip(known_values, points, strict=True)
    )
    return f'{area_svg}<path class="line {series.colour}" d="{path}"/>{dots}'


def _names(several: Sequence[Series], axis: Axis) -> str:
    """Names beside the last points, pushed apart where they would meet."""
    line_ends = [(axis.y(last), s) for s in several if (last := _last(s)) is not None]
    svg, free = "", float(HEIGHT)
    for y, series in sorted(line_ends, key=lambda end: -end[0]):
        free = min(y + 4, free)
        svg += f'<text class="name" x="{WIDTH - _RIGHT + 6}" y="{free:.1f}">{escape(series.name)}</text>'
        free -= 12
    return svg


def _last(series: Series) -> float | None:
    return next((value for value in reversed(series.values) if value is not None), None)


def _frame(labels: Sequence[str], axis: Axis, step: float, label_step: int = 0) -> str:
    svg = ""
    for value in axis.marks:
        y = axis.y(value)
        svg += f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        at = f'x="{_LEFT - 6}" y="{y + 3.5:.1f}"'
        svg += f'<text class="tick" {at} text-anchor="end">{axis.word(value)}</text>'
    for n in range(0, len(labels), label_step or max(1, math.ceil(len(labels) / _LABELS))):
        at = f'x="{_LEFT + step * (n + 0.5):.1f}" y="{HEIGHT - 6}"'
        svg += f'<text class="tick" {at} text-anchor="middle">{escape(labels[n])}</text>'
    return svg


def _chart(title: str, inner: str) -> str:
    view = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}"'
    return f"<figure><figcaption>{escape(title)}</figcaption><svg {view}>{inner}</svg></figure>"


def _plot_width() -> int:
    return WIDTH - _LEFT - _RIGHT
