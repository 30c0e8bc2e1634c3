"""Handles due timers of messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...domain.attention import stopped_schedule
from ...domain.errors import NotFound, Unreadable
from ...domain.message import Draft, Firing
from ...domain.segment import ShardKey
from ...domain.timer import ANY, Fired, Overlap, Schedule, Timer, TimerKind, draft_for_log, firing_of
from ...domain.topic import Group, Topic, lane_of
from ...modes import POLICIES
from ...ports.world import Clock
from ..core.catalog import Catalog
from ..core.wake import Waker
from .producer import Producer

if TYPE_CHECKING:
    from ...store.control import Control
    from ...store.marks import Marks
    from ...store.timers import Timers


_MANY = 16  # schedules that are read with all that are between them


class Due:
    """Puts delayed messages, retries and the messages of schedules into their logs."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        control: Control,
        producer: Producer,
        timers: Timers,
        marks: Marks,
        waker: Waker,
        clock: Clock,
        is_unfinished: Callable[[Topic, str], bool],
    ) -> None:
        """`is_unfinished` says whether a group has not come to an end with a message."""
        self._control = control
        self._marks = marks
        self._clock = clock
        self._is_unfinished = is_unfinished
        self._catalog = catalog
        self._producer = producer
        self._timers = timers
        self._waker = waker

    def append(self, shard: ShardKey, keep_days: int | float, timers: Sequence[Timer]) -> int:
        """Move the drafts of timers into a shard's log (ANY: whichever shard is free), or drop them if it was deleted.
        Returns how many were moved or dropped; the others had been moved before."""
        home = self._home(shard, keep_days)
        if timers[0].kind is TimerKind.SCHEDULE:
            return self._fire(home, timers)
        if home is None:
            self._timers.drop(timers)
            return len(timers)
        number = None if shard.shard == ANY else shard.shard
        members = [(t, replace(draft_for_log(t), shard=number)) for t in timers if t.draft]
        messages = [message for message in self._producer.move(home, members) if message]
        self._waker.wake_after_append(home, messages)
        return len(messages)

    def _fire(self, home: Topic | None, timers: Sequence[Timer]) -> int:
        """Put the messages of schedules into the log, each in the transaction that stores its next timer. The timer of
        a schedule that was changed since is dropped."""
        now_ms = self._clock.now_ms()
        names = sorted(firing_of(timer).schedule for timer in timers)
        schedules = self._control.schedules_between(names[0], names[-1]) if len(names) > _MANY else {}
        moves: list[tuple[Fired, Draft]] = []
        others: list[Timer] = []
        refusal: Unreadable | None = None
        for timer in timers:
            firing = firing_of(timer)
            try:
                schedule = schedules.get(firing.schedule) or self._control.schedule(firing.schedule)
            except Unreadable as error:  # its timer waits for a repair, and holds up no other
                refusal = error
                continue
            if schedule is None or schedule.timer_id != timer.id:
                self._timers.drop([timer])
            elif home is None:
                self._marks.note_changes((), [stopped_schedule(schedule.name, now_ms)])
                self._timers.drop([timer])
            else:
                fires, next_ms = schedule.after(firing.at_ms, now_ms)
                then = schedule.timer(next_ms, firing.last_id, now_ms)
                if fires and not self._is_held(home, schedule, firing):
                    moves.append((Fired(timer, then), schedule.message(firing, now_ms)))
                    continue
                self._timers.succeed(timer, then)
                others.append(then)
        messages = [message for message in self._producer.move(home, moves) if message] if home else []
        if home:
            self._waker.wake_after_append(home, messages)
        self._waker.wake_movers([*others, *(fired.then for fired, _ in moves)])
        if refusal:
            raise refusal
        return len(timers) - len(moves) + len(messages)

    def _is_held(self, home: Topic, schedule: Schedule, firing: Firing) -> bool:
        is_alone = schedule.overlap is Overlap.SKIP and bool(firing.last_id)
        return is_alone and self._is_unfinished(home, firing.last_id)

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
