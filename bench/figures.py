"""A measured figure beside its target, and tables of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_MARKS = {True: "yes", False: "NO", None: "-"}


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. `met` is None where the design names no target.

    `ratio` is what stays comparable from machine to machine where the value comes from a clock.
    """

    work: str
    target: str
    value: str
    met: bool | None = None
    ratio: str = ""


def at_most(work: str, value: float, limit: float, unit: str, ratio: str = "") -> Figure:
    """A figure that should not be larger than `limit`."""
    return Figure(work, f"≤ {limit:g} {unit}", f"{value:.3g} {unit}", value <= limit + 1e-9, ratio)


def at_least(work: str, value: float, limit: float, unit: str, ratio: str = "") -> Figure:
    """A figure that should not be smaller than `limit`."""
    number = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return Figure(work, f"≥ {limit:,.0f} {unit}", f"{number} {unit}", value >= limit, ratio)


def without_target(work: str, value: str, ratio: str = "") -> Figure:
    """A figure without a target."""
    return Figure(work, "-", value, None, ratio)


_HEADER = ("work", "target", "measured", "met", "machine-independent")


def _cells(figures: Iterable[Figure]) -> list[tuple[str, ...]]:
    return [(f.work, f.target, f.value, _MARKS[f.met], f.ratio) for f in figures]


def plain(figures: Iterable[Figure]) -> str:
    """The table for a terminal."""
    rows = [_HEADER, *_cells(figures)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def markdown(figures: Sequence[Figure]) -> str:
    """A Markdown table of the figures that have a target."""
    rows = [
        (work, target, value, ratio) for work, target, value, mark, ratio in _cells(figures) if mark != "-"
    ]
    lines = ["| work | target | measured | machine-independent |", "|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
