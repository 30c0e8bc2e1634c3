"""Who claims, and what a claim grants."""

from __future__ import annotations

from dataclasses import dataclass

from ...domain import pull_share
from ...domain.message import Draft, Message
from ...domain.pull_share import Round, Seat
from ...domain.receipt import Receipt
from ...domain.topic import CursorKey, Group, Mode, Topic, cursor_key
from ...modes import POLICIES, Policy


@dataclass(frozen=True, slots=True)
class Delivery:
    """One granted message: what the consumer gets, and what it must show to settle it."""

    message: Message
    attempt: int
    receipt: Receipt


@dataclass(frozen=True, kw_only=True, slots=True)
class Claimant:
    """Who claims, for which group, under which settings. It may have `guaranteed` messages leased by one cursor in any
    case, more only while the group has `free` slots, and never more than `most_in_flight`."""

    topic: Topic
    group: Group
    lease_seconds: int
    owner: str = ""  # uid of the consumer that will hold the lease
    consumer_uid: str = ""  # in a broadcast: whose cursor it is
    most_in_flight: int = 1 << 30
    guaranteed: int = 1 << 30
    free: int = 0
    parts: int = 1  # among how many consumers the source's messages are divided
    batch: int = 1  # it takes multiples of it
    seat: Seat | None = None  # of a consumer that pulls: it leaves the others their share

    def key(self, shard: int | None) -> CursorKey:
        """The cursor on a shard, or on the retry lane (None)."""
        return cursor_key(self.topic, self.group, shard, self.consumer_uid)

    def policy(self, shard: int | None) -> Policy:
        """The mode's policy. What is in the lane has lost its place, so nothing orders it."""
        return POLICIES[self.group.mode if shard is not None else Mode.QUEUE]

    def room(self, in_flight: int) -> int:
        """How many more one cursor may have leased that has so many."""
        return max(0, min(self.most_in_flight - in_flight, max(self.guaranteed - in_flight, self.free)))

    @property
    def claimants(self) -> int:
        """Among how many what is there is shared out."""
        return self.seat.total if self.seat else self.parts

    def part(self, share: Round | None, available: int, most: int, now_ms: int) -> int:
        """How many to take of what is there."""
        if self.seat:
            return min(most, pull_share.room(share, self.seat, available, now_ms))
        batches = -(-available // (self.parts * self.batch))
        return min(most, batches * self.batch)

    def last_attempt(self, draft: Draft) -> int:
        """The number of the last attempt a message has; a redriven one has as many again."""
        spent = draft.origin.spent if draft.origin else 0
        return spent + (draft.max_attempts or (self.group.retry or self.topic.retry).max_attempts)
