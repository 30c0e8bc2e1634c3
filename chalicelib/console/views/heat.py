"""What is due, as a map of days and hours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...domain.times import DAY_MS, HOUR_MS
from ...services.inspect.waiting import DueHour

_MOST_DAYS = 14
_SHADES = 4


@dataclass(frozen=True, slots=True)
class Cell:
    """An hour. `shade` is 0 where nothing is due, else 1 to 4."""

    at_ms: int
    delayed: int
    retries: int
    shade: int


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Rows of 24 hours, UTC, from today on; how much is due behind them."""

    days: Sequence[Sequence[Cell]]
    later: int

    @property
    def is_empty(self) -> bool:
        return not self.later and not any(cell.shade for day in self.days for cell in day)


def heat_map(hours: Sequence[DueHour], now_ms: int) -> HeatMap:
    """The map of these hours; what is overdue stands in the present hour."""
    this_hour_ms = now_ms // HOUR_MS * HOUR_MS
    first_ms = now_ms // DAY_MS * DAY_MS
    counts: dict[int, tuple[int, int]] = {}
    for hour in hours:
        at_ms = max(hour.at_ms, this_hour_ms)
        delayed_count, retries = counts.get(at_ms, (0, 0))
        counts[at_ms] = delayed_count + hour.delayed, retries + hour.retries
    end_ms = first_ms + _MOST_DAYS * DAY_MS
    last_ms = max((at_ms for at_ms in counts if at_ms < end_ms), default=first_ms)
    most = max((sum(each) for at_ms, each in counts.items() if at_ms < end_ms), default=0)
    days = [
        [_cell(day_ms + n * HOUR_MS, counts, most) for n in range(24)]
        for day_ms in range(first_ms, last_ms + 1, DAY_MS)
    ]
    return HeatMap(days, sum(sum(each) for at_ms, each in counts.items() if at_ms >= end_ms))


def _cell(at_ms: int, counts: dict[int, tuple[int, int]], most: int) -> Cell:
    delayed_count, retries = counts.get(at_ms, (0, 0))
    return Cell(at_ms, delayed_count, retries, -(-_SHADES * (delayed_count + retries) // most) if most else 0)
