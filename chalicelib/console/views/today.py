"""What a stage did since midnight, UTC, and what that costs by docs/cost.md: from all in batches to all one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...domain.meter import GroupReading, Reading
from ...domain.times import DAY_MS


@dataclass(frozen=True, slots=True)
class Price:
    """Write units of one, and USD of a million with calls and functions: batches of a hundred, or one by one."""

    least_units: float
    most_units: float
    least_usd: float
    most_usd: float


ACCEPTED = Price(0.08, 1, 0.09, 4.76)
SETTLED = Price(0.03, 3, 0.05, 10.27)
RETRIED = Price(17, 17, 12.34, 12.34)


@dataclass(frozen=True, slots=True)
class Today:
    """Counts since midnight; units and USD are bounds."""

    accepted: int
    settled: int
    retried: int

    def _sum(self, which: str) -> float:
        counts = ((self.accepted, ACCEPTED), (self.settled, SETTLED), (self.retried, RETRIED))
        return sum(number * float(getattr(price, which)) for number, price in counts)

    @property
    def units(self) -> tuple[int, int]:
        return round(self._sum("least_units")), round(self._sum("most_units"))

    @property
    def usd(self) -> tuple[float, float]:
        return self._sum("least_usd") / 1_000_000, self._sum("most_usd") / 1_000_000


def today(readings: Sequence[Reading], now_ms: int) -> Today:
    """What the stage's meters rose by since midnight; `readings` of two days, in order of time."""
    midnight_ms = now_ms // DAY_MS * DAY_MS
    before = [reading for reading in readings if reading.at_ms < midnight_ms]
    start = before[-1] if before else Reading(0, 0)
    end = readings[-1] if readings and readings[-1].at_ms >= midnight_ms else start
    old, new = (reading.groups.get("", GroupReading(0, 0)) for reading in (start, end))
    return Today(end.accepted - start.accepted, new.settled - old.settled, new.retried - old.retried)
