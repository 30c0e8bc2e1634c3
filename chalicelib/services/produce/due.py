"""Handles due timers of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...domain.errors import NotFound
from ...domain.message import DeadReason, Draft
from ...domain.segment import ShardKey
from ...domain.timer import ANY, Timer, TimerKind, draft_for_log
from ...domain.topic import Group, Topic, lane_of
from ...modes import POLICIES
from ..core.catalog import Catalog
from ..core.counters import NEWER_FORMAT, Counters
from ..core.counters import UNDECODABLE as UNDECODABLE_ROWS
from ..core.wake import Waker
from .producer import Producer

if TYPE_CHECKING:
    from ...store.log import Log
    from ...store.timers import Timers


class Due:
    """Puts delayed messages and retries into their logs."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        producer: Producer,
        timers: Timers,
        log: Log,
        waker: Waker,
        counters: Counters,
    ) -> None:
        self._catalog = catalog
        self._producer = producer
        self._timers = timers
        self._log = log
        self._waker = waker
        self._counters = counters

    def append(self, shard: ShardKey, keep_days: int, timers: Sequence[Timer]) -> int:
        """Move the drafts of timers into a shard's log (ANY: whichever shard is free). Returns how many were moved;
        the others had been moved before."""
        home = self._home(shard, keep_days)
        if home is None:
            self._timers.drop(timers)
            return 0
        number = None if shard.shard == ANY else shard.shard
        members = [
            (t, replace(self._with_origin_id(draft_for_log(t), t), shard=number)) for t in timers if t.draft
        ]
        messages = [message for message in self._producer.move(home, members) if message]
        self._waker.wake_after_append(home, messages)
        return len(messages)

    def _with_origin_id(self, draft: Draft, timer: Timer) -> Draft:
        """The draft; what is left of a damaged retry's knows its message's place, and from now on its id."""
        origin = draft.origin
        if draft.dead_reason != DeadReason.UNDECODABLE or origin is None or origin.id:
            return draft
        topic = timer.shard.topic.partition("~")[0]
        home = self._catalog.topic(topic).shard_key(origin.shard)
        rows = self._log.read_back(home, origin.offset, 1, consistent=True)
        message = (
            rows[0].message(origin.shard, origin.offset) if rows and rows[0].end > origin.offset else None
        )
        accepted_ms = message.accepted_ms if message else 0
        return replace(
            draft, origin=replace(origin, id=message.id if message else timer.id, accepted_ms=accepted_ms)
        )

    def set_aside(self, timers: Sequence[Timer]) -> None:
        """Set unreadable timers aside, so that movers do not meet them again, and log them."""
        for timer in timers:
            self._timers.set_aside(timer)
            self._counters.add(NEWER_FORMAT if timer.kind is TimerKind.NEWER else UNDECODABLE_ROWS, 1)
            self._counters.note(
                "timer set aside", why=timer.kind, fragment=timer.fragment, timer=timer.sort_key
            )

    def _home(self, shard: ShardKey, keep_days: int) -> Topic | None:
        """The topic of a shard, or the lane it is; None where that is no more. What another uid calls so may only be
        cached still, so that is looked at once more."""
        name, is_lane, group_name = shard.topic.partition("~")
        for consistent in (False, True):
            try:
                topic = self._catalog.topic(name, consistent=consistent)
                if not is_lane and topic.uid == shard.topic_uid:
                    return topic
                group = self._catalog.group(topic, group_name, consistent=consistent) if is_lane else None
            except NotFound:
                return None
            if group and (lane := self._lane(topic, group, shard.topic_uid)):
                return replace(lane, retention_days=keep_days)
        return None

    def _lane(self, topic: Topic, group: Group, uid: str) -> Topic | None:
        """The group's lane (in a broadcast: a consumer's) that has this uid."""
        if not POLICIES[group.mode].per_consumer:
            return lane_of(topic, group) if group.uid == uid else None
        return lane_of(topic, group, uid) if self._catalog.is_registered(topic, group, uid) else None
