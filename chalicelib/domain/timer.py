"""Timers: retries, delayed messages, wake-ups and checks of transactions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from .message import Draft
from .segment import ShardKey

ANY = -1


class TimerKind(StrEnum):
    """RETRY, DELIVER and OUTBOX put `draft` into `shard`; WAKE starts a delivery of `shard`; CHECK asks a producer."""

    DELIVER = "deliver"
    OUTBOX = "outbox"
    RETRY = "retry"
    CHECK = "check"
    WAKE = "wake"


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


@dataclass(frozen=True, slots=True)
class FirstTimers:
    """The first timers of a fragment. `go_on_after` is the sort key of the last one; None: there are no more."""

    timers: list[Timer]
    go_on_after: str | None = None


@dataclass(frozen=True, slots=True)
class Moved:
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
