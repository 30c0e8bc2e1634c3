"""How many messages are due in which hour: delayed messages, and retries.

Timers of all topics are stored together (delayed_list), so this reads past other topics' timers: a limited number of
rows. The answer says how far it got.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Set
from dataclasses import dataclass
from itertools import count

from ...domain.segment import ShardKey
from ...domain.timer import Timer, TimerKind, due_ms_of, sort_key_of
from ...domain.times import HOUR_MS
from ...domain.topic import Topic, lane_of
from ...modes import POLICIES
from ..core.catalog import Catalog
from .delayed_list import ReadTimers

_ROUNDS = 8
_Counts = Counter[tuple[int, TimerKind]]  # by time


@dataclass(frozen=True, slots=True)
class DueHour:
    """What is due in the hour from `at_ms` on. Retries of SERIAL groups wait in their cursors: they are not here."""

    at_ms: int
    delayed: int
    retries: int


def lanes_of(catalog: Catalog, topic: Topic, may_use_group: Callable[[str], bool]) -> Set[ShardKey]:
    """The retry lanes of the topic's groups that the caller may use: no retries of others, nor of deleted groups."""
    lanes: set[ShardKey] = set()
    for group in catalog.groups(topic):
        if may_use_group(group.name):
            is_per_consumer = POLICIES[group.mode].per_consumer
            consumers = catalog.consumers(topic, group) if is_per_consumer else ()
            uids = [consumer.uid for consumer in consumers] if is_per_consumer else [""]
            lanes |= {lane_of(topic, group, uid).shard_key(0) for uid in uids}
    return lanes


def due_hours(
    read: ReadTimers,
    topic: Topic,
    lanes: Set[ShardKey],
    from_ms: int,
    may_go_on: Callable[[], bool] = lambda: True,
) -> tuple[list[DueHour], int | None]:
    """The hours with something due, and the time before which they are known (None: all). Retries are those of `lanes`.
    Reading stops when `may_go_on()` is False; else all is read that is due at the first time, however much it is."""
    counts: _Counts = Counter()
    first_ms = None
    rows, position = read(sort_key_of(max(0, from_ms)))
    for number in count(1):
        counts.update((timer.due_ms, timer.kind) for timer in rows if _is_counted(timer, topic, lanes))
        if position is None:
            break
        first_ms, until_ms = first_ms or rows[0].due_ms, due_ms_of(position)
        if (number >= _ROUNDS and until_ms > first_ms) or not may_go_on():
            # What is due then is left to who goes on there; all at one time is not, or nobody came beyond it.
            until_ms = max(until_ms, first_ms + 1)
            return _by_hour(counts, until_ms), until_ms
        rows, position = read(position)
    return _by_hour(counts), None


def _is_counted(timer: Timer, topic: Topic, lanes: Set[ShardKey]) -> bool:
    if timer.kind is TimerKind.DELIVER:
        return timer.shard.topic_uid == topic.uid
    return timer.kind is TimerKind.RETRY and timer.shard in lanes


def _by_hour(counts: _Counts, end_ms: int | None = None) -> list[DueHour]:
    """The hours of what is due before the end."""
    hours: _Counts = Counter()
    for (due_ms, kind), number in counts.items():
        if end_ms is None or due_ms < end_ms:
            hours[due_ms // HOUR_MS * HOUR_MS, kind] += number
    times = sorted({at_ms for at_ms, _ in hours})
    return [DueHour(ms, hours[ms, TimerKind.DELIVER], hours[ms, TimerKind.RETRY]) for ms in times]
