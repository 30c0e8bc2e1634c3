"""Handles due timers of messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ...domain import notice
from ...domain import timer as timing
from ...domain.append import Promotable
from ...domain.attention import Attention, Kind, stopped_schedule
from ...domain.errors import NotFound, TooLarge, TooMany, Unavailable, Unreadable, unavailable
from ...domain.message import Draft
from ...domain.notice import ABOUT_HEADER
from ...domain.segment import ShardKey
from ...domain.timer import Fired, Overlap, Schedule, Timer, TimerKind
from ...domain.times import HOUR_MS
from ...domain.topic import Group, Topic, lane_of
from ...modes import POLICIES
from ...ports.world import Clock
from ...store import Control, Marks, Timers
from ..core.budgets import Budgets
from ..core.catalog import Catalog
from ..core.rate_limiter import RateLimits
from ..core.wake import Waker
from .appender import ProduceResult
from .producer import Producer

_MANY = 16  # schedules that are read with all that is between them


@dataclass(frozen=True, kw_only=True, slots=True)
class Due:
    """Puts delayed messages, retries, messages of schedules and of our own into their logs. `is_unfinished` says
    whether a group has not come to an end with a message; `firings`: how many messages a second the schedules of one
    topic, and all, make up for."""

    catalog: Catalog
    control: Control
    producer: Producer
    timers: Timers
    waker: Waker
    marks: Marks
    clock: Clock
    budgets: Budgets
    rate_limits: RateLimits
    firings: tuple[int, ...]
    is_unfinished: Callable[[Topic, str], bool]

    def append(self, shard: ShardKey, keep_days: int | float, timers: Sequence[Timer]) -> int:
        """Move the drafts of timers into a shard's log (ANY: whichever shard is free), or drop them if it was deleted.
        Returns how many were moved or dropped; the others had been moved before."""
        home = self._home(shard, keep_days)
        if timers[0].kind is TimerKind.SCHEDULE:
            return self._fire(home, timers)
        if home is None:
            self.timers.drop(timers)
            if timers[0].kind is TimerKind.OUTBOX:
                self._note(Kind.DESTINATION_GONE, timers)
            return len(timers)
        if timers[0].kind is TimerKind.OUTBOX:
            return self._append_notices(home, timers)
        number = None if shard.shard == timing.ANY else shard.shard
        members = [(t, replace(timing.draft_for_log(t), shard=number)) for t in timers if t.draft]
        messages = [message for message in self.producer.move(home, members) if message]
        self.waker.wake_after_append(home, messages)
        return len(messages)

    def _fire(self, home: Topic | None, timers: Sequence[Timer]) -> int:
        """Put the messages of schedules into the log, each in the transaction that stores its next timer. The timer of
        a schedule that was changed since is dropped. What is over a rate stays as it is, for the mover's next run."""
        now_ms = self.clock.now_ms()
        timers = sorted(timers, key=lambda timer: _is_missed(timer, now_ms))
        rates = self._rates(home, _is_missed(timers[-1], now_ms))
        most = min(rates.values(), default=len(timers))
        names = sorted(timing.firing_of(timer).schedule for timer in timers)
        is_many = min(most, len(names)) > _MANY
        schedules = self.control.schedules_between(names[0], names[-1]) if is_many else {}
        moves: list[tuple[Fired, Draft]] = []
        others: list[Fired] = []
        refusal: Unavailable | None = None
        for timer in timers:
            firing = timing.firing_of(timer)
            if len(moves) == most:
                refusal = refusal or unavailable()
                break
            try:
                schedule = schedules.get(firing.schedule) or self.control.schedule(firing.schedule)
            except Unreadable as error:  # its timer waits for a repair, and holds up no other
                refusal = error
                continue
            if schedule is None or schedule.timer_id != timer.id:
                self.timers.drop([timer])
            elif home is None:
                self.marks.note_changes((), [stopped_schedule(schedule.name, now_ms)])
                self.timers.drop([timer])
            else:
                fires, fired = self._fired(home, schedule, timer, now_ms)
                if fires:
                    moves.append((fired, schedule.message(firing, now_ms)))
                else:
                    self.timers.succeed(timer, fired.then, *fired.events)
                    others.append(fired)
        allowed = moves[: self.rate_limits.admit_firings(rates, len(moves))]
        messages = [message for message in self.producer.move(home, allowed) if message] if home else []
        if home:
            self.waker.wake_after_append(home, messages)
        others += [fired for fired, _ in allowed]
        self.waker.wake_movers([timer for fired in others for timer in (fired.then, *fired.events)])
        if refusal or len(allowed) < len(moves):
            raise refusal or unavailable()
        return len(timers) - len(moves) + len(messages)

    def _rates(self, home: Topic | None, has_missed: bool) -> dict[str, int]:
        """The accounts from which messages of schedules take permits, and how many each gets a second: the topic's, if
        it has a rate limit, and where times were missed, those of all schedules and of the topic's."""
        if home is None:
            return {}
        missed = {f"firings#{home.uid}": self.firings[0], "firings": self.firings[1]} if has_missed else {}
        return missed | ({home.uid: home.rate_limit} if home.rate_limit else {})

    def _fired(self, home: Topic, schedule: Schedule, timer: Timer, now_ms: int) -> tuple[bool, Fired]:
        """Does it fire? And what takes the timer's place."""
        firing = timing.firing_of(timer)
        if self.budgets.refusal(home):  # it is tried again at its next time
            then = schedule.timer(schedule.next_ms(now_ms) or now_ms + HOUR_MS, firing.last_id, now_ms)
            return False, Fired(timer, replace(then, draft=timer.draft))
        fires, next_ms = schedule.after(firing.at_ms, now_ms)
        then = schedule.timer(next_ms, firing.last_id, now_ms)
        events: tuple[Timer, ...] = ()
        if _is_missed(timer, now_ms) and timer.stored_ms <= timer.due_ms:  # the first of those made up for
            events = notice.of_missed(self.control.events(consistent=False), schedule, firing.at_ms, now_ms)
        is_alone = schedule.overlap is Overlap.SKIP and bool(firing.last_id)
        fires = fires and not (is_alone and self.is_unfinished(home, firing.last_id))
        return fires, Fired(timer, then, events)

    def _append_notices(self, home: Topic, timers: Sequence[Timer]) -> int:
        """Move messages of our own. What the topic refuses is dropped, and noted as a state that needs a person; while
        its budget is spent they wait."""
        if self.budgets.refusal(home):
            now_ms = self.clock.now_ms()
            later = [replace(timer, due_ms=now_ms + HOUR_MS, stored_ms=now_ms) for timer in timers]
            return sum(map(self.timers.succeed, timers, later))
        count, single, messages = 0, list[tuple[Promotable, Draft]](), list[ProduceResult]()
        for timer in timers:
            drafts = [draft for each in timer.drafts if (draft := self._admitted(home, each))]
            if len(drafts) < len(timer.drafts):
                self._note(Kind.REFUSED, [timer])
            if not drafts:
                self.timers.drop([timer])
                count += 1
            elif len(timer.drafts) == 1:
                single.append((timer, drafts[0]))
            else:
                results = self.producer.move_row(home, timer, drafts)
                messages += results
                count += bool(results)
        moved = [message for message in self.producer.move(home, single) if message]
        self.waker.wake_after_append(home, [*messages, *moved])
        return count + len(moved)

    def _admitted(self, home: Topic, draft: Draft) -> Draft | None:
        with suppress(TooLarge, TooMany):
            return self.producer.admit(home, draft)
        return None

    def _note(self, kind: Kind, timers: Sequence[Timer]) -> None:
        """Note that messages of these timers are lost, as a state of each place that they are about."""
        now_ms = self.clock.now_ms()
        for place in {draft.headers[ABOUT_HEADER] for timer in timers for draft in timer.drafts}:
            topic, _, group = place.partition("/")
            state = Attention(kind, now_ms, topic, group, noted_ms=now_ms // HOUR_MS * HOUR_MS)
            self.marks.note_changes((), [state])

    def _home(self, shard: ShardKey, keep_days: int | float) -> Topic | None:
        """The topic of a shard, or the lane it is; None if it was deleted. What has another uid may only be cached, so
        it is read once more."""
        name, is_lane, group_name = shard.topic.partition("~")
        for consistent in (False, True):
            try:
                topic = self.catalog.topic(name, consistent=consistent)
                if not is_lane and topic.uid == shard.topic_uid:
                    return topic
                group = self.catalog.group(topic, group_name, consistent=consistent) if is_lane else None
            except NotFound:
                return None
            if group and (lane := self._lane(topic, group, shard.topic_uid)):
                return replace(lane, retention_days=keep_days)
        return None

    def _lane(self, topic: Topic, group: Group, uid: str) -> Topic | None:
        """The group's lane (in a broadcast: a consumer's) that has this uid."""
        if not POLICIES[group.mode].per_consumer:
            return lane_of(topic, group) if group.uid == uid else None
        return lane_of(topic, group, uid) if self.catalog.is_registered(topic, group, uid) else None


def _is_missed(timer: Timer, now_ms: int) -> bool:
    return now_ms - timer.due_ms > timing.MISSED_MS
