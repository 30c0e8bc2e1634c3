"""What waits before the log: delayed messages and transactions. And what has just come into it: the live tail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..http import Page, Shown, Visit, page
from .messages import check_may_read

if TYPE_CHECKING:
    from ...domain.topic import Topic
    from ...services.produce.delayed import Waiting

_LINES = 30
_LEFT = 5  # so much is left, when the timers are read on
_FOR_THE_LIST = 10
_PER_SHARD = 10


@page("GET", "/console/topics/{topic}/later")
def later(visit: Visit) -> Shown:
    """Delayed messages, soonest first."""
    from ...services.inspect.due_hours import due_hours
    from ..views.heat import heat_map

    check_may_read(visit)
    topic = visit.topic()
    timers = visit.deps.adapters.timers
    hours, until_ms = due_hours(timers, topic, 0, lambda: visit.has_units(_FOR_THE_LIST))
    rows, following = delayed_of(visit, topic, _LINES)
    model = {
        "topic": topic,
        "rows": rows,
        "following": following,
        "heat": heat_map(hours, visit.now_ms),
        "until_ms": until_ms,
        "hour_ms": hour_of(visit),
    }
    return Page("later.html", model)


def delayed_of(visit: Visit, topic: Topic, most: int) -> tuple[list[Waiting], str | None]:
    """The delayed messages of the hour that the URL names, or all, soonest first; and where the next page begins."""
    from ...services.inspect.delayed_list import soonest_first
    from ...services.inspect.due_hours import HOUR_MS
    from ...services.inspect.lookup import Filters

    keys, purpose, hour_ms = visit.deps.signing_keys, f"console-later:{topic.uid}", hour_of(visit)
    filters = Filters(from_ms=hour_ms, to_ms=hour_ms + HOUR_MS - 1) if hour_ms else Filters()
    after = keys.verified(purpose, visit.query.get("after", ""))
    timers, may_go_on = visit.deps.adapters.timers, lambda: visit.has_units(_LEFT)
    rows, position = soonest_first(timers, topic, filters, None, most, after, may_go_on, consistent=False)
    return rows, keys.sign(purpose, position) if position else None


def hour_of(visit: Visit) -> int | None:
    """The hour of which the list is to be, ms."""
    text = visit.query.get("hour", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


@page("GET", "/console/topics/{topic}/tail")
def tail(visit: Visit) -> Shown:
    """The newest messages, again and again. It needs no group, and changes nothing."""
    from ...domain.limits import MAX_OFFSET
    from ..views import messages as view

    check_may_read(visit)
    topic = visit.topic()
    newest = []
    for shard in range(topic.shards):
        if not visit.has_units(2):
            break
        for row in visit.deps.adapters.log.read_back(topic.shard_key(shard), MAX_OFFSET, 2):
            offsets = range(max(row.first, row.end - _PER_SHARD), row.end)
            newest += [each for offset in offsets if (each := row.message(shard, offset))]
    newest.sort(key=lambda each: (-each.accepted_ms, -each.offset))
    lines = [view.Line(each, view.excerpt(each.draft), {}) for each in newest[:_LINES]]
    return Page("tail.html", {"topic": topic, "lines": lines, "poll_seconds": 2})


@page("GET", "/console/topics/{topic}/transactions")
def transactions(visit: Visit) -> Shown:
    """Messages under a decision: those that nobody has decided yet, and those that nobody will be asked about again."""
    from ...domain.transaction import TransactionState

    topic = visit.topic()
    states = (TransactionState.UNDECIDED, TransactionState.PREPARED)
    rows = [each for state in states for each in visit.deps.transactor.listed(topic, state, None, _LINES)]
    return Page("transactions.html", {"topic": topic, "rows": rows, "most": _LINES})
