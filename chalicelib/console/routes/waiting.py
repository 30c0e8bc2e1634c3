"""What waits before the log: delayed messages and transactions. And what has just come into it: the live tail."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ...api.parse import whole_number
from ...domain.times import HOUR_MS
from ..http import Page, Shown, Visit, page
from .messages import check_may_read

if TYPE_CHECKING:
    from ...domain.topic import Topic
    from ...domain.transaction import Transaction
    from ...services.inspect.waiting import ReadTimers
    from ..views.delayed import Delayed

_LINES = 30
_LEFT = 5  # so much is left, when the timers are read on
_FOR_THE_LIST = 10
_PER_SHARD = 10


@page("GET", "/console/topics/{topic}/later")
def later(visit: Visit) -> Shown:
    """Delayed messages, soonest first."""
    from ...services.inspect.waiting import due_hours, lanes_of, reader
    from ..views.heat import heat_map

    check_may_read(visit)
    topic = visit.topic()
    read = cache(reader(visit.deps.adapters.timers, consistent=False))  # map and list begin with the same
    from_ms = _looked_ms(visit, topic) // HOUR_MS * HOUR_MS
    lanes = lanes_of(visit.deps.catalog, topic, visit.caller.may_use_group)
    hours, until_ms = due_hours(read, topic, lanes, from_ms, lambda: visit.has_read_units(_FOR_THE_LIST))
    model = {
        "topic": topic,
        "delayed": delayed_of(visit, topic, read, _LINES),
        "heat": heat_map(hours, visit.now_ms),
        "from_ms": from_ms,
        "until_ms": until_ms,
        "hour_ms": hour_of(visit),
    }
    return Page("later.html", model)


def delayed_of(visit: Visit, topic: Topic, read: ReadTimers, most: int) -> Delayed:
    """The delayed messages of the hour that the URL names, or all, soonest first."""
    from ...domain.timer import due_ms_of
    from ...services.inspect.lookup import Filters
    from ...services.inspect.waiting import soonest_first
    from ..views.delayed import Delayed

    hour_ms, after = hour_of(visit), _after(visit, topic)
    filters = Filters(from_ms=hour_ms, to_ms=hour_ms + HOUR_MS - 1) if hour_ms else Filters()
    rows, position = soonest_first(
        read, topic, filters, None, most, after, lambda: visit.has_read_units(_LEFT)
    )
    return Delayed(
        rows,
        due_ms_of(position) if position else None,
        visit.deps.signing_keys.sign(_purpose(topic), position) if position else None,
    )


def _purpose(topic: Topic) -> str:
    return f"console-later:{topic.uid}"


def _after(visit: Visit, topic: Topic) -> str | None:
    """The timer after which the page begins."""
    return visit.deps.signing_keys.verified(_purpose(topic), visit.query.get("after", ""))


def _looked_ms(visit: Visit, topic: Topic) -> int:
    """The time up to which the pages before this one have looked; 0 on the first page."""
    from ...domain.timer import due_ms_of

    after = _after(visit, topic)
    return due_ms_of(after) if after else 0


def hour_of(visit: Visit) -> int | None:
    """The hour of which the list is to be, ms."""
    return whole_number(visit.query.get("hour", ""), 15)


@page("GET", "/console/topics/{topic}/tail")
def tail(visit: Visit) -> Shown:
    """The newest messages, again and again. It needs no group, and changes nothing."""
    from ...domain.limits import MAX_OFFSET
    from ..views import messages as view

    check_may_read(visit)
    topic = visit.topic()
    newest = []
    for shard in range(topic.shards):
        if not visit.has_read_units(2):
            break
        for row in visit.deps.adapters.log.read_back(topic.shard_key(shard), MAX_OFFSET, 2):
            offsets = range(max(row.first, row.end - _PER_SHARD), row.end)
            newest += [each for offset in offsets if (each := row.message(shard, offset))]
    newest.sort(key=lambda each: (-each.accepted_ms, -each.offset))
    lines = [view.Line(each, view.excerpt(each.draft), {}) for each in newest[:_LINES]]
    return Page("tail.html", {"topic": topic, "lines": lines, "poll_seconds": 2})


@page("GET", "/console/topics/{topic}/transactions")
def transactions(visit: Visit) -> Shown:
    """Messages under a decision: first those that nobody will be asked about again, then the others."""
    from ...domain.transaction import TransactionState

    topic, keys = visit.topic(), visit.deps.signing_keys
    purpose = f"console-transactions:{topic.uid}"
    last_state, _, after = (keys.verified(purpose, visit.query.get("after", "")) or "").partition(" ")
    states = [TransactionState.UNDECIDED, TransactionState.PREPARED]
    rows: list[Transaction] = []
    for state in states[states.index(TransactionState(last_state)) :] if last_state else states:
        rows += visit.deps.transactor.of_state(topic, state, after or None, _LINES - len(rows))
        if len(rows) == _LINES:
            break
        after = ""
    following = keys.sign(purpose, f"{rows[-1].state} {rows[-1].sort_key}") if len(rows) == _LINES else None
    return Page("transactions.html", {"topic": topic, "rows": rows, "following": following})
