"""How far each schedule has come; and what the stage did since midnight, UTC, and what that costs by docs/cost.md: from
all in batches to all one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ... import __version__
from ...domain.mark import Bookmark
from ...domain.meter import HOURS, STAGE, GroupReading, Reading
from ...domain.times import DAY_MS, HOUR_MS, MINUTE_MS
from ..visit import Page, Shown, Visit

# How often each comes.
_JOBS = dict.fromkeys(("sweep", "assign", "watch"), MINUTE_MS)
_JOBS |= dict.fromkeys(("checkpoint", "expire"), 6 * HOUR_MS)
_TWO_DAYS = 48


def system(visit: Visit) -> Shown:
    """Whether the tables can be read, and how far each schedule has come."""
    rounds = visit.deps.adapters.rounds
    visit.deps.readiness.check()
    bookmarks = {job: rounds.bookmark(job) for job in _JOBS}
    now_ms = visit.now_ms
    readings = visit.deps.adapters.readings
    model = {
        "bookmarks": bookmarks,
        "every_ms": _JOBS,
        "late_ms": {job: _late_ms(bookmark, _JOBS[job], now_ms) for job, bookmark in bookmarks.items()},
        "today": today(readings.latest(STAGE, HOURS, _TWO_DAYS), now_ms) if visit.caller.has_all else None,
        "events": visit.deps.adapters.control.events() if visit.caller.has_all else None,
        "version": __version__,
    }
    return Page("system.html", model)


def _late_ms(bookmark: Bookmark, every_ms: int, now_ms: int) -> int:
    """How long a round that is under way is behind its time. A job that finds nothing to do keeps no note of it."""
    is_under_way = bookmark.is_open and bookmark.passed_ms
    return max(0, now_ms - bookmark.passed_ms - 2 * every_ms) if is_under_way else 0


class Price(NamedTuple):
    """Write units of one, and USD of a million with calls and functions: batches of a hundred, or one by one."""

    least_units: float
    most_units: float
    least_usd: float
    most_usd: float


ACCEPTED = Price(0.08, 1, 0.09, 4.53)
SETTLED = Price(0.03, 3, 0.05, 9.90)
RETRIED = Price(6.16, 15, 4.3, 13.84)


class Today(NamedTuple):
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
