"""Delayed messages: as a list, as a map of the hours in which they are due, and many at once. And messages that wait
for the decision of a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from ...api.parse import whole_number
from ...domain.timer import due_ms_of
from ...domain.times import DAY_MS, HOUR_MS
from ...domain.topic import Topic
from ...domain.transaction import Transaction, TransactionState
from ...services.inspect import waiting
from ...services.inspect.lookup import Filters
from ..visit import Page, Shown, Visit

_LINES = 30
_PURPOSE = "console-later:"
_LEFT = 5  # so much is left, when the timers are read on
_FOR_THE_LIST = 10
_MOST = 200
_MOST_SHOWN = 5
_PICK = "id."
_MOST_DAYS = 14
_SHADES = 4


def later(visit: Visit) -> Shown:
    """Delayed messages, soonest first."""
    topic = visit.topic()
    # Map and list begin with the same.
    read = cache(waiting.reader(visit.deps.adapters.timers, consistent=False))
    after = _after(visit, topic)
    # The pages before have looked up to there.
    from_ms = due_ms_of(after) // HOUR_MS * HOUR_MS if after else 0
    lanes = waiting.lanes_of(visit.deps.catalog, topic, visit.caller.may_use_group)
    hours, until_ms = waiting.due_hours(read, topic, lanes, from_ms, visit.may_go_on(_FOR_THE_LIST))
    model = {
        "delayed": _delayed_of(visit, topic, read, _LINES),
        "heat": heat_map(hours, visit.now_ms),
        "from_ms": from_ms,
        "until_ms": until_ms,
        "hour_ms": _hour_of(visit),
    }
    return Page("later.html", model)


def _delayed_of(visit: Visit, topic: Topic, read: waiting.ReadTimers, most: int) -> dict[str, Any]:
    """The delayed messages of the hour that the URL names, or all, soonest first. Timers of all topics are stored
    together, so there may be more of them though few or none are here: those due up to `until_ms` were looked through
    (None: all), and `following` is where the next page begins."""
    hour_ms, after = _hour_of(visit), _after(visit, topic)
    ends_ms = hour_ms + HOUR_MS - 1 if hour_ms else None
    filters = Filters(from_ms=hour_ms, to_ms=ends_ms, job_prefix=visit.query.get("job") or None)
    may_go_on = visit.may_go_on(_LEFT)
    rows, position = waiting.soonest_first(read, topic, filters, None, most, after, may_go_on)
    until_ms = due_ms_of(position) if position else None
    following = visit.signed(_PURPOSE + topic.uid, position)
    return {"rows": rows, "until_ms": until_ms, "following": following}


def _after(visit: Visit, topic: Topic) -> str | None:
    """The timer after which the page begins."""
    return visit.position(_PURPOSE + topic.uid)


def _hour_of(visit: Visit) -> int | None:
    """The hour of which the list is to be, ms."""
    return whole_number(visit.query.get("hour", ""), 15)


def many_later(visit: Visit) -> Shown:
    """How many they are, and what can be done with them: with exactly those that were counted."""
    topic = visit.topic()
    ids = {name.removeprefix(_PICK) for name in visit.query if name.startswith(_PICK)}
    read = waiting.reader(visit.deps.adapters.timers, consistent=False)
    delayed = _delayed_of(visit, topic, read, _MOST)
    rows = delayed["rows"]
    if ids:
        rows = [row for row in rows if row.timer.id in ids]
    model = {
        "shown": rows[:_MOST_SHOWN],
        "number": len(rows),
        "ids": [row.timer.id for row in rows],
        "first_ms": rows[0].timer.due_ms if rows else None,
        "last_ms": rows[-1].timer.due_ms if rows else None,
        "more": delayed["following"] is not None and not ids,
        "delayed": delayed,
        "hour_ms": _hour_of(visit),
    }
    return Page("many_later.html", model)


def transactions(visit: Visit) -> Shown:
    """Messages that wait for a decision: first those whose checks have ended, then the others."""
    topic = visit.topic()
    purpose = f"console-transactions:{topic.uid}"
    last_state, _, after = (visit.position(purpose) or "").partition(" ")
    states = [TransactionState.UNDECIDED, TransactionState.PREPARED]
    rows: list[Transaction] = []
    last: str | None = None
    adapters = visit.deps.adapters
    for state in states[states.index(TransactionState(last_state)) :] if last_state else states:
        read, most = waiting.reader(adapters.timers, consistent=False), _LINES - len(rows)
        found, position = waiting.of_state(read, adapters.transactions, topic, state, most, after or None)
        rows += found
        if position:
            last = f"{state} {position}"
            break
        after = ""
    return Page("transactions.html", {"rows": rows, "following": visit.signed(purpose, last)})


class Cell(NamedTuple):
    """An hour. `shade` is 0 where nothing is due, else 1 to 4."""

    at_ms: int
    delayed: int
    retries: int
    shade: int


class HeatMap(NamedTuple):
    """Rows of 24 hours, UTC, from today on; how much is due behind them."""

    days: Sequence[Sequence[Cell]]
    later: int

    @property
    def is_empty(self) -> bool:
        return not self.later and not any(cell.shade for day in self.days for cell in day)


def heat_map(hours: Sequence[waiting.DueHour], now_ms: int) -> HeatMap:
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
    midnights = range(first_ms, last_ms + 1, DAY_MS)
    days = [[_cell(ms + n * HOUR_MS, counts, most) for n in range(24)] for ms in midnights]
    return HeatMap(days, sum(sum(each) for at_ms, each in counts.items() if at_ms >= end_ms))


def _cell(at_ms: int, counts: dict[int, tuple[int, int]], most: int) -> Cell:
    delayed_count, retries = counts.get(at_ms, (0, 0))
    return Cell(at_ms, delayed_count, retries, -(-_SHADES * (delayed_count + retries) // most) if most else 0)
