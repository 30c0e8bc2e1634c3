"""Who claims, and what a claim grants."""

from __future__ import annotations

from dataclasses import dataclass

from ...domain import sharing
from ...domain.message import Draft, Message
from ...domain.sharing import Round, Seat
from ...domain.signing import Receipt
from ...domain.topic import CursorKey, Group, Mode, Topic, cursor_key
from ...modes import POLICIES, Policy


@dataclass(frozen=True, slots=True)
class Delivery:
    """One granted message: what the consumer gets, and what it must show to settle it."""

    message: Message
    attempt: int
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who claims, for what group, under which settings. `most_in_flight` bounds what one cursor has leased: `sure` in
    any case, more only while there are `spare` places. It takes one of so many equal `parts` of what is there, in
    multiples of `batch`; where it has a `seat`, what those beside it leave."""

    topic: Topic
    group: Group
    lease_seconds: int
    owner: str = ""
    consumer_uid: str = ""
    most_in_flight: int = 1 << 30
    sure: int = 1 << 30
    spare: int = 0
    parts: int = 1
    batch: int = 1
    seat: Seat | None = None

    def key(self, shard: int | None) -> CursorKey:
        """The cursor on a shard, or on the retry lane (None)."""
        return cursor_key(self.topic, self.group, shard, self.consumer_uid)

    def policy(self, shard: int | None) -> Policy:
        """The mode's policy. What is in the lane has lost its place, so nothing orders it."""
        return POLICIES[self.group.mode if shard is not None else Mode.QUEUE]

    def room(self, in_flight: int) -> int:
        """How many more one cursor may have leased that has so many."""
        return max(0, min(self.most_in_flight - in_flight, max(self.sure - in_flight, self.spare)))

    @property
    def claimants(self) -> int:
        """Among how many what is there is shared out."""
        return self.seat.total if self.seat else self.parts

    def part(self, share: Round | None, available: int, most: int, now_ms: int) -> int:
        """How many to take of what is there."""
        if self.seat:
            return min(most, sharing.room(share, self.seat, available, now_ms))
        batches = -(-available // (self.parts * self.batch))
        return min(most, batches * self.batch)

    def last_attempt(self, draft: Draft) -> int:
        """The number of the last attempt a message has; a redriven one has as many again."""
        spent = draft.origin.spent if draft.origin else 0
        return spent + (draft.max_attempts or (self.group.retry or self.topic.retry).max_attempts)
