"""Timers: retries, delayed messages, wake-ups, checks of transactions, schedules; and when a schedule fires."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from .message import Draft, Firing
from .segment import ShardKey
from .times import CLOCKS_DIFFER_MS, DAY_MS, MINUTE_MS, SECOND_MS, calendar_time

if TYPE_CHECKING:
    from cronsim import CronSim

ANY = -1


class TimerKind(StrEnum):
    """RETRY, DELIVER and OUTBOX put `draft` into `shard`; WAKE starts a delivery of `shard`; CHECK asks a producer;
    SCHEDULE puts the message of a schedule into the log."""

    DELIVER = "deliver"
    OUTBOX = "outbox"
    RETRY = "retry"
    CHECK = "check"
    WAKE = "wake"
    SCHEDULE = "schedule"


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer for `due_ms`. `id` is unique among the timers of that millisecond; storing the same id for the same time
    twice stores it once.

    `keep_days` is how long the row that `draft` becomes is kept in the log. `group_uid` and `consumer_uid` say for whom
    a shard is woken. With shard number ANY the mover chooses a shard. `stored_ms` distinguishes a WAKE from one stored
    in its place before, and says which timers were stored long before their time. `edits` rises with each change of the
    timer. A CHECK is repeated every `every_ms` (see `next_check`) until it is deleted. `more` are the other drafts of
    an OUTBOX. `fragment` is the partition of the table `timers` from which it was read.
    """

    due_ms: int
    id: str
    kind: TimerKind
    shard: ShardKey
    draft: Draft | None = None
    keep_days: int | float = 0
    group_uid: str = ""
    consumer_uid: str = ""
    stored_ms: int = 0
    edits: int = 0
    every_ms: int = 0
    more: tuple[Draft, ...] = ()
    fragment: int | None = field(default=None, compare=False, repr=False)

    @property
    def drafts(self) -> tuple[Draft, ...]:
        """All its drafts."""
        return (self.draft, *self.more) if self.draft else ()

    @property
    def weight(self) -> int:
        """About the bytes it takes in memory."""
        return sum(draft.weight for draft in self.drafts)

    @property
    def sort_key(self) -> str:
        """Its sort key in its fragment: timers sort by due time."""
        return sort_key_of(self.due_ms, self.id)


@dataclass(frozen=True, slots=True)
class Part:
    """The first drafts of a timer; `rest` stays in its row."""

    timer: Timer
    rest: tuple[Draft, ...]


class FirstTimers(NamedTuple):
    """The first timers of a fragment. `go_on_after` is the sort key of the last one; None: there are no more."""

    timers: list[Timer]
    go_on_after: str | None = None


class Moved(NamedTuple):
    """A timer that was changed to another time, or cancelled (`cancelled` is the timer as it was). `edits`: how
    often the timer was changed."""

    due_ms: int
    cancelled: Timer | None = None
    edits: int = 0


def wake_up(why: str, shard: ShardKey, due_ms: int, now_ms: int) -> Timer:
    """A timer that starts a delivery of the shard, stored now; `why` is part of its id."""
    return Timer(due_ms, f"{why}.{shard}", TimerKind.WAKE, shard, stored_ms=now_ms)


def next_check(timer: Timer, now_ms: int) -> Timer:
    """The next timer after a CHECK, whole periods later, so that two processes compute the same one. It is never the
    same timer, which is deleted once the next one is stored: a clock may be set back meanwhile."""
    periods = max(0, now_ms - timer.due_ms) // timer.every_ms + 1
    return replace(timer, due_ms=timer.due_ms + periods * timer.every_ms)


def draft_for_log(timer: Timer) -> Draft:
    """The draft of a timer as it is put into the log; a delayed message keeps the times when it was accepted and
    due."""
    assert timer.draft is not None
    if timer.kind is not TimerKind.DELIVER:
        return timer.draft
    accepted_ms = timer.draft.accepted_ms or timer.stored_ms
    return replace(timer.draft, accepted_ms=accepted_ms, due_ms=timer.due_ms)


def sort_key_of(due_ms: int, timer_id: str = "") -> str:
    """The sort key of a timer in its fragment; without an id, one before all timers of that time."""
    return f"{due_ms:015d}#{timer_id}"


def due_ms_of(sort_key: str) -> int:
    """The due time in a timer's sort key."""
    return int(sort_key.partition("#")[0])


def retry_id(group_uid: str, consumer_uid: str, shard: int, offset: int, attempts: int) -> str:
    """The id of the timer for the next attempt of a delivery after `attempts` failed ones."""
    return f"{group_uid}.{consumer_uid}.{shard}.{offset}.{attempts}"


# When the timer of a schedule that has no next time is due: in the year 2286.
PARKED_MS = 9_999_999_999_999
MISSED_MS = 2 * MINUTE_MS
MOST_MISSED = 1_000
_HORIZON_MS = 8 * 366 * DAY_MS  # a cron expression that has no time in it has none
_MACROS = {"@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0", "@hourly": "0 * * * *"}
_MACROS |= {"@daily": "0 0 * * *", "@midnight": "0 0 * * *"}
_MACROS |= {"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *"}


class Missed(StrEnum):
    """What becomes of times for which the mover came more than MISSED_MS late: nothing, one message for all of them, or
    one for each of the last MOST_MISSED."""

    SKIP = "skip"
    ONE = "one"
    ALL = "all"


class Overlap(StrEnum):
    """Does it fire while its last message is unfinished?"""

    ALLOW = "allow"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The times of a schedule: by `cron` in `timezone`, or each `every_seconds` from `from_ms`, else its creation on;
    none before `from_ms` or after `until_ms`."""

    created_ms: int
    cron: str | None = None
    every_seconds: int | None = None
    timezone: str = "UTC"
    from_ms: int | None = None
    until_ms: int | None = None
    jitter_seconds: int = 0

    def next_ms(self, after_ms: int) -> int | None:
        """The first time after this one; None: there is none. Raises ValueError where `cron` cannot be read."""
        after_ms = after_ms if self.from_ms is None else max(after_ms, self.from_ms - 1)
        if self.every_seconds:
            at_ms: int | None = self._in_steps(after_ms, SECOND_MS * self.every_seconds)
        else:
            later = (_ms(moment) for moment in self._cron(after_ms))
            # What a change of the clock moves may come in another order.
            at_ms = next((ms for ms in later if ms > after_ms), None)
            at_ms = at_ms if at_ms and at_ms - after_ms <= _HORIZON_MS else None
        return None if at_ms is None or at_ms > (self.until_ms or PARKED_MS) else at_ms

    def times(self, after_ms: int | None) -> Iterator[int]:
        """All times after this one."""
        while after_ms is not None and (after_ms := self.next_ms(after_ms)) is not None:
            yield after_ms

    def first_kept(self, at_ms: int, now_ms: int) -> int:
        """Of the missed times from `at_ms` on, the first of the last MOST_MISSED."""
        next_ms = self.next_ms(at_ms) or now_ms
        if now_ms - at_ms < MOST_MISSED * (next_ms - at_ms):  # there are no more
            return at_ms
        if self.every_seconds:
            step_ms = SECOND_MS * self.every_seconds
            return max(at_ms, self._in_steps(now_ms, step_ms) - MOST_MISSED * step_ms)
        back = list(islice(self._cron(now_ms + SECOND_MS, back=True), MOST_MISSED))
        return max(at_ms, _ms(back[-1])) if len(back) == MOST_MISSED else at_ms

    def _in_steps(self, after_ms: int, step_ms: int) -> int:
        first_ms = self.created_ms if self.from_ms is None else self.from_ms
        return first_ms + ((after_ms - first_ms) // step_ms + 1) * step_ms

    def _cron(self, from_ms: int, *, back: bool = False) -> CronSim:
        from zoneinfo import ZoneInfo

        from cronsim import CronSim, CronSimError

        expression = _MACROS.get((self.cron or "").lower(), self.cron or "")
        if len(expression.split()) != 5:  # the library reads a sixth, of seconds
            raise ValueError("must have five fields, or be @daily or the like")
        zone = UTC if self.timezone == "UTC" else ZoneInfo(self.timezone)
        try:
            return CronSim(expression, calendar_time(from_ms).astimezone(zone), reverse=back)
        except CronSimError as error:
            raise ValueError(f"has a {str(error).lower()}") from None


def _ms(moment: datetime) -> int:
    return int(moment.timestamp()) * SECOND_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(Timing):
    """A schedule. `made_by` is the id of the token it was made with. `draft` is its message: it ends `expires_ms` after
    it fired; `redact` is its topic's. `period_ms` is the shortest time between two of its first firings."""

    name: str
    topic: str
    draft: Draft
    made_by: str
    uid: str = ""
    topic_uid: str = ""
    period_ms: int = PARKED_MS
    missed: Missed = Missed.ONE
    overlap: Overlap = Overlap.ALLOW
    paused: bool = False
    app: str | None = None
    version: int = 0

    @property
    def timer_id(self) -> str:
        """The id of its timers: each version of it has its own."""
        return f"{self.uid}.{self.version}"

    def upcoming(self, now_ms: int, most: int) -> list[int]:
        """The next times."""
        return [] if self.paused else list(islice(self.times(now_ms), most))

    def coming(self, now_ms: int) -> int:
        """The next time; PARKED_MS: there is none."""
        return next(iter(self.upcoming(now_ms, 1)), PARKED_MS)

    def timer(self, at_ms: int, last_id: str, now_ms: int) -> Timer:
        """The timer for a time."""
        due_ms, shard = self._due_ms(at_ms), ShardKey(self.topic, self.topic_uid, ANY)
        draft = Draft(b"", is_json=False, firing=Firing(self.name, at_ms, last_id))
        return Timer(due_ms, self.timer_id, TimerKind.SCHEDULE, shard, draft, stored_ms=now_ms)

    def may_be_due(self, now_ms: int) -> Iterator[int]:
        """When its timer is due, the likeliest first, if no mover is behind."""
        after_ms: int | None = now_ms - SECOND_MS * self.jitter_seconds
        while not self.paused and after_ms is not None and after_ms <= now_ms + CLOCKS_DIFFER_MS:
            after_ms = self.next_ms(after_ms)
            if after_ms is not None:
                yield self._due_ms(after_ms)
        yield PARKED_MS

    def after(self, at_ms: int, now_ms: int) -> tuple[bool, int]:
        """Does it fire for this time, now? And its next time (PARKED_MS: there is none), which does not depend on the
        clock unless some were missed."""
        fires, from_ms = True, at_ms
        if now_ms - self._due_ms(at_ms) > MISSED_MS:
            if self.missed is Missed.ALL:
                first_ms = self.first_kept(at_ms, now_ms)
                fires, from_ms = first_ms == at_ms, max(at_ms, first_ms - 1)
            else:
                fires, from_ms = self.missed is Missed.ONE, max(at_ms, now_ms - MISSED_MS - 1)
        return fires, self.next_ms(from_ms) or PARKED_MS

    def message(self, firing: Firing, now_ms: int) -> Draft:
        """Its message for a time."""
        expires_ms = self.draft.expires_ms
        return replace(self.draft, firing=firing, expires_ms=expires_ms and now_ms + expires_ms, redact=())

    def _due_ms(self, at_ms: int) -> int:
        if at_ms == PARKED_MS or not self.jitter_seconds:
            return at_ms
        digest = hashlib.sha256(f"{self.uid} {at_ms}".encode()).digest()
        return at_ms + int.from_bytes(digest[:8]) % (SECOND_MS * self.jitter_seconds)


@dataclass(frozen=True, slots=True)
class Fired:
    """A timer of a schedule that becomes a message, the one that takes its place, and those of events about it."""

    timer: Timer
    then: Timer
    events: tuple[Timer, ...] = ()

    def after(self, message_id: str) -> Timer:
        """The timer that takes its place once the message has this id."""
        firing = replace(firing_of(self.then), last_id=message_id)
        return replace(self.then, draft=Draft(b"", is_json=False, firing=firing))


def firing_of(timer: Timer) -> Firing:
    """What a schedule's timer is for."""
    assert timer.draft is not None
    assert timer.draft.firing is not None
    return timer.draft.firing
