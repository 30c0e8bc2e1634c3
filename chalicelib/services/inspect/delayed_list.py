"""The delayed messages of a topic, soonest first.

Timers of all topics are stored together, by fragment and time; an index by topic would cost one more write per
delayed message. So the list reads past other topics' timers, and a page reads a limited number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ...domain.limits import FRAGMENTS, MAX_ANSWER_BYTES
from ...domain.timer import Timer, TimerKind, sort_key_of
from ...domain.topic import Topic
from ..produce.delayed import DelayedMessage
from .filters import Filters
from .lookup import passes_before_log

if TYPE_CHECKING:
    from ...store.timers import Timers


_ROWS = 16  # of a fragment at once: a row may hold 200 KB
_ROUNDS = 8


ReadTimers = Callable[[str], tuple[list[Timer], str | None]]
"""The next timers of all fragments after a position, in order, up to the position that all fragments have been read to
(None: to the end)."""


def reader(timers: Timers, *, consistent: bool = True) -> ReadTimers:
    """Reads timers from the store."""
    return partial(_read_page, timers, consistent)


def soonest_first(
    read: ReadTimers,
    topic: Topic,
    filters: Filters,
    key: str | None,
    limit: int,
    after: str | None,
    may_go_on: Callable[[], bool] = lambda: True,
) -> tuple[list[DelayedMessage], str | None]:
    """Up to `limit` messages after the position `after`, and the position of the last one (None: there are no more).
    The filters' times are due times. Reading stops when `may_go_on()` is False."""
    position = after or sort_key_of(max(0, filters.from_ms or 0))
    items: list[DelayedMessage] = []
    weight = 0
    for _ in range(_ROUNDS):
        rows, end = read(position)
        for timer in rows:
            if filters.to_ms is not None and timer.due_ms > filters.to_ms:
                return items, None
            item = _message(timer, topic)
            if item and _passes(item, filters, key):
                weight += item.message.draft.weight
                if items and weight > MAX_ANSWER_BYTES:
                    return items, position
                items.append(item)
            position = timer.sort_key
            if len(items) == limit:
                return items, position
        if end is None:
            return items, None
        if not may_go_on():
            break
    return items, position


def _read_page(timers: Timers, consistent: bool, position: str) -> tuple[list[Timer], str | None]:
    pages = [timers.behind(fragment, position, _ROWS, consistent=consistent) for fragment in range(FRAGMENTS)]
    end = min((page[-1].sort_key for page in pages if len(page) == _ROWS), default=None)
    entries = (timer for page in pages for timer in page if end is None or timer.sort_key <= end)
    return sorted(entries, key=lambda timer: timer.sort_key), end


def _message(timer: Timer, topic: Topic) -> DelayedMessage | None:
    """The delayed message that the timer holds; None for another topic's, and for a timer of another kind."""
    is_delayed = timer.kind is TimerKind.DELIVER and timer.draft is not None
    return DelayedMessage(timer) if is_delayed and timer.shard.topic_uid == topic.uid else None


def _passes(item: DelayedMessage, filters: Filters, key: str | None) -> bool:
    return passes_before_log(item, filters) and (key is None or key in item.message.draft.keys)
