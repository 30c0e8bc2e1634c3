"""Timers: everything that happens later."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, replace
from enum import StrEnum

from . import ids
from .limits import FRAGMENTS
from .message import Draft, Origin
from .segment import ShardKey

ANY = -1
SOON_MS = 150_000
"""What is due within it is looked after: the mover's schedule comes each minute, late by ten seconds or once not at
all, and a mover needs its time to start."""
_RETRY_ID = re.compile(r"[^.]+\.[^.]*\.(\d{1,9})\.(\d{1,18})\.(\d{1,9})\Z")
AWAKE_MS = 2_000
"""So long, at least, a mover that was woken looks again and again: who woke it need not wake another."""


class TimerKind(StrEnum):
    """RETRY and DELIVER put `draft` into `shard`; WAKE starts a delivery of `shard`; CHECK asks a producer.

    Nobody files the others: NEWER is what a later release has written in a format of its own, DAMAGED what does not
    even say where it belongs.
    """

    DELIVER = "deliver"
    RETRY = "retry"
    CHECK = "check"
    WAKE = "wake"
    NEWER = "newer"
    DAMAGED = "damaged"


UNREADABLE = (TimerKind.NEWER, TimerKind.DAMAGED)
ANY_EDITION = -1
"""The edits of a timer whose row does not tell them any more."""


@dataclass(frozen=True, slots=True)
class Timer:
    """Something that is due at `due_ms`. `id` is unique among the timers of that millisecond, and says in which
    fragment it is kept; filing the same id for the same time twice is filing it once.

    `keep_days` is how long the row that `draft` becomes is kept in the log. `group_uid` and `consumer_uid` say for
    whom a shard is woken. A shard of number ANY is whichever is free. `edits` rises with each change of the timer. A
    CHECK comes `again`, each `every_ms`, until somebody takes it away.
    """

    due_ms: int
    id: str
    kind: TimerKind
    shard: ShardKey
    draft: Draft | None = None
    keep_days: int = 0
    group_uid: str = ""
    consumer_uid: str = ""
    filed_ms: int = 0
    edits: int = 0
    every_ms: int = 0

    @property
    def fragment(self) -> int:
        return fragment_of(self.id)

    @property
    def weight(self) -> int:
        """About the bytes it takes in memory."""
        return self.draft.weight if self.draft else 0

    @property
    def mark(self) -> str:
        """Its place in its fragment: timers sort by time."""
        return mark_of(self.due_ms, self.id)


def again(timer: Timer, now_ms: int) -> Timer:
    """The next timer after a CHECK: whole periods later. So two that were made for one are the same."""
    periods = (now_ms - timer.due_ms) // timer.every_ms + 1
    return replace(timer, due_ms=timer.due_ms + periods * timer.every_ms)


def entered(timer: Timer) -> Draft:
    """The draft of a timer as it comes into its log: a delayed message still says when it was accepted and due."""
    assert timer.draft is not None
    if timer.kind is not TimerKind.DELIVER:
        return timer.draft
    accepted_ms = timer.draft.accepted_ms or timer.filed_ms
    return replace(timer.draft, accepted_ms=accepted_ms, due_ms=timer.due_ms)


def mark_of(due_ms: int, timer_id: str = "") -> str:
    """Where a timer stands in its fragment; without an id, before all that are due then."""
    return f"{due_ms:015d}#{timer_id}"


def fragment_of(timer_id: str) -> int:
    """The fragment that keeps a timer, the same in every process and release."""
    return zlib.crc32(timer_id.encode()) % FRAGMENTS


def fragment_of_line(topic_uid: str, line: str) -> int:
    """The fragment that keeps all messages of a topic's line."""
    return zlib.crc32(f"{topic_uid}/{line}".encode()) % FRAGMENTS


def kind_by_id(timer_id: str, shard: int) -> TimerKind:
    """What a timer must be for, where its row does not tell it any more."""
    if retry_of(timer_id):
        return TimerKind.RETRY
    if ids.parse_timed_id(timer_id) or ids.parse_half_id(timer_id):
        return TimerKind.DELIVER
    return TimerKind.CHECK if shard == ANY and ids.TRANSACTION_ID.match(timer_id) else TimerKind.WAKE


def retry_of(timer_id: str) -> Origin | None:
    """Where the message of a `retry_id` stands, and how often it was tried; its own id is not told."""
    match = _RETRY_ID.match(timer_id)
    return Origin("", int(match[1]), int(match[2]), 0, int(match[3])) if match else None


def retry_id(group_uid: str, consumer_uid: str, shard: int, offset: int, attempts: int) -> str:
    """The id of the timer that carries on a delivery after `attempts` failed ones."""
    return f"{group_uid}.{consumer_uid}.{shard}.{offset}.{attempts}"
