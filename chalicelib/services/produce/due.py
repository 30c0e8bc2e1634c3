"""Handles due timers of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...domain.errors import NotFound
from ...domain.segment import ShardKey
from ...domain.timer import ANY, Timer, draft_for_log
from ...domain.topic import Group, Topic, lane_of
from ...modes import POLICIES
from ..core.catalog import Catalog
from ..core.wake import Waker
from .producer import Producer

if TYPE_CHECKING:
    from ...store.timers import Timers


class Due:
    """Puts delayed messages and retries into their logs."""

    def __init__(self, *, catalog: Catalog, producer: Producer, timers: Timers, waker: Waker) -> None:
        self._catalog = catalog
        self._producer = producer
        self._timers = timers
        self._waker = waker

    def append(self, shard: ShardKey, keep_days: int | float, timers: Sequence[Timer]) -> int:
        """Move the drafts of timers into a shard's log (ANY: whichever shard is free), or drop them if it was deleted.
        Returns how many were moved or dropped; the others had been moved before."""
        home = self._home(shard, keep_days)
        if home is None:
            self._timers.drop(timers)
            return len(timers)
        number = None if shard.shard == ANY else shard.shard
        members = [(t, replace(draft_for_log(t), shard=number)) for t in timers if t.draft]
        messages = [message for message in self._producer.move(home, members) if message]
        self._waker.wake_after_append(home, messages)
        return len(messages)

    def _home(self, shard: ShardKey, keep_days: int | float) -> Topic | None:
        """The topic of a shard, or the lane it is; None if it was deleted. A topic with another uid may only be
        cached, so it is read once more."""
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
