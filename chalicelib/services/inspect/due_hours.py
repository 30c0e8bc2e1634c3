"""How many messages are due in which hour: delayed messages, and retries.

Timers of all topics are stored together (delayed_list), so this reads past other topics' timers: a limited number of
rows. The answer says how far it got.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Set
from dataclasses import dataclass

from ...domain.segment import ShardKey
from ...domain.timer import TimerKind, sort_key_of
from ...domain.times import HOUR_MS
from ...domain.topic import Topic, lane_of
from ...modes import POLICIES
from ...ports.control import leave_out
from ..core.catalog import Catalog
from .delayed_list import ReadTimers

_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class DueHour:
    """What is due in the hour from `at_ms` on. Retries of SERIAL groups wait in their cursors: they are not here."""

    at_ms: int
    delayed: int
    retries: int


def lanes_of(catalog: Catalog, topic: Topic, may_use_group: Callable[[str], bool]) -> Set[ShardKey]:
    """The retry lanes of the topic's groups that the caller may use: no retries of others, nor of deleted groups."""
    lanes: set[ShardKey] = set()
    for group in catalog.groups(topic, leave_out):
        if may_use_group(group.name):
            is_per_consumer = POLICIES[group.mode].per_consumer
            consumers = catalog.readable_consumers(topic, group) if is_per_consumer else ()
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
    """The hours with something due, and the time up to which they are known (None: all). Retries are those of `lanes`.
    Reading stops when `may_go_on()` is False."""
    delayed_counts: Counter[int] = Counter()
    retries: Counter[int] = Counter()
    position: str | None = sort_key_of(max(0, from_ms))
    until_ms: int | None = None
    for number in range(_ROUNDS):
        if position is None or (number and not may_go_on()):
            break
        rows, end = read(position)
        for timer in rows:
            hour_ms = timer.due_ms // HOUR_MS * HOUR_MS
            if timer.kind is TimerKind.DELIVER and timer.shard.topic_uid == topic.uid:
                delayed_counts[hour_ms] += 1
            elif timer.kind is TimerKind.RETRY and timer.shard in lanes:
                retries[hour_ms] += 1
        position = end
        until_ms = rows[-1].due_ms if end and rows else None
    hours = [
        DueHour(at_ms, delayed_counts[at_ms], retries[at_ms]) for at_ms in sorted({*delayed_counts, *retries})
    ]
    return hours, until_ms if position else None
