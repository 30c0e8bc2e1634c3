"""Schedules: stored, changed, fired by hand, repaired. Each change replaces a schedule's timer in its transaction, so a
mover that comes between makes it fail, and it is tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, pairwise

from ...domain import redact
from ...domain.attention import MOST, Attention, Kind, stopped_schedule
from ...domain.errors import HeadraceError, NotFound, Refused, TooLarge, changed_meanwhile
from ...domain.limits import BLOB_THRESHOLD_BYTES
from ...domain.message import Firing, holds_json
from ...domain.timer import PARKED_MS, Schedule, Timer, Timing, firing_of
from ...domain.times import HOUR_MS, SECOND_MS
from ...domain.topic import Topic
from ...ports.world import Clock, Random
from ...store import Control, Marks, Timers
from ..core.catalog import Catalog
from ..core.wake import Waker
from .appender import ProduceResult
from .producer import Producer

NEXT = 10
_UID_CHARS = 8
_TRIES = 8
_LOOKS = 3  # at a timer that may be moved meanwhile
_PAGE = 250
_TIMING = tuple(Timing.__dataclass_fields__)

Check = Callable[[str], None]  # raises Forbidden where the caller may not use this topic


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedules:
    """Changes schedules. `firings`: how many messages a second those of one topic may send together, and all."""

    control: Control
    catalog: Catalog
    producer: Producer
    timers: Timers
    marks: Marks
    waker: Waker
    clock: Clock
    random: Random
    firings: tuple[int, ...]

    def find(self, name: str, check: Check) -> Schedule:
        """The schedule. Raises NotFound, or what `check` raises for its topic."""
        schedule = self.control.schedule(name)
        if schedule is None:
            words = f"There is no schedule {name!r}. Create it with PUT /v1/schedules/{name}."
            raise NotFound("SCHEDULE_NOT_FOUND", words)
        check(schedule.topic)
        return schedule

    def put(self, wanted: Schedule, check: Check) -> tuple[Schedule, bool]:
        """Create or replace a schedule. True: created. Raises Refused, NotFound or what `check` raises."""
        check(wanted.topic)
        for _ in range(_TRIES):
            old = self.control.schedule(wanted.name)
            if old:
                check(old.topic)
            topic = self.catalog.topic(wanted.topic, consistent=True)
            draft = replace(wanted.draft, redact=topic.redact)
            new = replace(wanted, topic_uid=topic.uid, uid=self.random.id(_UID_CHARS), draft=draft)
            if old:
                new = replace(new, uid=old.uid, created_ms=old.created_ms, version=old.version)
                new = _unmasked(topic, old, new)
            _check_message(self.producer, topic, new)
            new = replace(new, period_ms=period_ms(new))
            if new == old:
                return old, False
            self._check_rate(new)
            if stored := self._store(old, new):
                if old and old.topic_uid != stored.topic_uid:
                    self.marks.note_changes([stopped_schedule(old.name, 0)], ())
                return stored, old is None
        raise changed_meanwhile("schedule")

    def set_paused(self, name: str, paused: bool, check: Check) -> Schedule:
        """Pause a schedule, or let it go on. Raises NotFound or what `check` raises."""
        for _ in range(_TRIES):
            old = self.find(name, check)
            new = replace(old, paused=paused)
            if new == old:
                return old
            self._check_rate(new)
            if stored := self._store(old, new):
                return stored
        raise changed_meanwhile("schedule")

    def delete(self, name: str, check: Check) -> None:
        """Remove a schedule. Raises NotFound or what `check` raises."""
        for _ in range(_TRIES):
            old = self.find(name, check)
            if self.control.delete_schedule(old, self.timer_of(old)):
                if not self._has_topic(old):
                    self.marks.note_changes([stopped_schedule(name, 0)], ())
                return
        raise changed_meanwhile("schedule")

    def run(self, name: str, by: str, check: Check) -> tuple[Topic, ProduceResult]:
        """Fire now, once; its times stay. Raises NotFound, what `check` raises, or why nothing was stored."""
        schedule, now_ms = self.find(name, check), self.clock.now_ms()
        topic = self.catalog.topic(schedule.topic)
        if topic.uid != schedule.topic_uid:
            words = f"The topic of this schedule was deleted, and another has its name: PUT /v1/schedules/{name} again."
            raise NotFound("TOPIC_NOT_FOUND", words)
        firing = Firing(name, now_ms, self.last_id(schedule))
        draft = replace(schedule.message(firing, now_ms), by=by)
        (outcome,) = self.producer.produce(topic, [draft], by)
        if isinstance(outcome, HeadraceError):
            raise outcome
        self.waker.wake_after_append(topic, [outcome])
        # If another change comes between, the schedule's list of messages lacks this one.
        self._store(schedule, schedule, outcome.id)
        return topic, outcome

    def all(self) -> Iterator[Schedule]:
        """All schedules by name."""
        page = self.control.schedules(None, _PAGE)
        yield from page
        while len(page) == _PAGE:
            page = self.control.schedules(page[-1].name, _PAGE)
            yield from page

    def timer_of(self, schedule: Schedule) -> Timer | None:
        """A schedule's timer; None: it has lost it, or it was just changed."""
        for _ in range(_LOOKS):
            now_ms = self.clock.now_ms()
            dues_ms = schedule.may_be_due(now_ms)
            found = (self.timers.find(due_ms, schedule.timer_id) for due_ms in dues_ms)
            if timer := next((timer for timer in found if timer), None) or self._late_timer(schedule, now_ms):
                return timer
        return None

    def last_id(self, schedule: Schedule) -> str:
        """The id of its last message; empty: there was none, or it is unknown."""
        return firing_of(timer).last_id if (timer := self.timer_of(schedule)) else ""

    def restore(self, has_time: Callable[[], bool] = lambda: True) -> None:
        """Store timers that were lost again; note the schedules whose topic is gone, and those that have one again."""
        now_ms, stopped, is_through = self.clock.now_ms(), list[Attention](), True
        for schedule in self.all():
            if not has_time():
                is_through = False
                break
            if not self._has_topic(schedule):
                stopped.append(stopped_schedule(schedule.name, now_ms))
            elif self.timer_of(schedule) is None:
                self.timers.restore(schedule.timer(schedule.coming(now_ms), "", now_ms))
        noted = self.marks.attention(None, MOST)
        old = [state for state in noted if state.kind is Kind.SCHEDULE_STOPPED and is_through]
        self.marks.note_changes(old, stopped[:MOST])

    def _store(self, old: Schedule | None, new: Schedule, last_id: str = "") -> Schedule | None:
        """Store a schedule in the place of `old`, with its timer. None: another change or a mover was faster."""
        now_ms = self.clock.now_ms()
        timer = self.timer_of(old) if old else None
        new = replace(new, version=new.version + 1)
        at_ms = new.coming(now_ms)
        if old and timer:
            last_id = last_id or firing_of(timer).last_id
            has_same_times = all(getattr(old, name) == getattr(new, name) for name in _TIMING)
            if has_same_times and not (old.paused or new.paused):
                at_ms = min(at_ms, firing_of(timer).at_ms)  # what is due just now is not left out
        then = new.timer(at_ms, last_id, now_ms)
        if not self.control.put_schedule(new, old, timer, then):
            return None
        self.waker.wake_movers([then])
        return new

    def _late_timer(self, schedule: Schedule, now_ms: int) -> Timer | None:
        """The schedule's timer among those that the mover should have moved."""
        for fragment in self.timers.fragments_of(schedule.timer_id):
            behind: str | None = ""
            while behind is not None:
                look = self.timers.first_due(fragment, now_ms, _PAGE, behind)
                for timer in look.timers:
                    if timer.id == schedule.timer_id:
                        return timer
                behind = look.go_on_after
        return None

    def _has_topic(self, schedule: Schedule) -> bool:
        try:
            return self.catalog.topic(schedule.topic, consistent=True).uid == schedule.topic_uid
        except NotFound:
            return False

    def _check_rate(self, new: Schedule) -> None:
        """Raises Refused where schedules would fire too often together, for the topic's rate limit too. One that fires
        hourly or less is not counted."""
        if new.paused or new.period_ms >= HOUR_MS:
            return
        others = [each for each in self.all() if each.name != new.name and not each.paused]
        of_topic = [each for each in others if each.topic == new.topic]
        of_one, of_all = self.firings
        most = min(of_one, self.catalog.topic(new.topic).rate_limit or of_one)
        limits = ((f"of topic {new.topic!r}", of_topic, most), ("of all topics", others, of_all))
        for whose, counted, most in limits:
            rate = sum(SECOND_MS / each.period_ms for each in (new, *counted))
            if rate > most:
                words = f"The schedules {whose} may send {most} messages a second; it would be {rate:.1f}."
                raise Refused("TOO_MANY_FIRINGS", words)


def period_ms(timing: Timing) -> int:
    """The shortest time between two of its first times. Raises ValueError where its cron expression is none."""
    if timing.every_seconds:
        return timing.every_seconds * SECOND_MS
    times = islice(timing.times(timing.created_ms), NEXT)
    return min((after - before for before, after in pairwise(times)), default=PARKED_MS)


def _unmasked(topic: Topic, old: Schedule, new: Schedule) -> Schedule:
    """With what the message has so far wherever the new one has the mask of `redact`, on the same topic only."""
    if old.topic_uid != topic.uid or not holds_json(new.draft):
        return new
    body = redact.restored(new.draft.body, old.draft, topic.redact)
    return replace(new, draft=replace(new.draft, body=body))


def _check_message(producer: Producer, topic: Topic, schedule: Schedule) -> None:
    if error := producer.refusal(topic, schedule.draft):
        raise error
    if len(schedule.draft.body) > BLOB_THRESHOLD_BYTES:
        words = f"The body of a schedule's message may have {BLOB_THRESHOLD_BYTES} bytes."
        raise TooLarge("BODY_TOO_LARGE", words)
