"""Who claims (`Claimant`, with its limits), what one claim found (`Claim`), and a message that it granted
(`ClaimedMessage`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...domain import pull_share
from ...domain.cursor import RUN, Cursor
from ...domain.message import Draft, Message
from ...domain.pull_share import Round, Seat
from ...domain.receipt import Receipt
from ...domain.record import Record
from ...domain.retry_policy import last_attempt
from ...domain.sharding import unit_of
from ...domain.spans import HEAVY
from ...domain.status import Because, Status
from ...domain.topic import CursorKey, Group, Topic, cursor_key
from ...modes import POLICIES, Keyed, Policy, Serial
from . import retry_lane

_UNLIMITED = 1 << 30


@dataclass(frozen=True, slots=True)
class ClaimedMessage:
    """One granted message: its contents for the consumer, and the receipt to settle it with. `attempt` counts all
    attempts, those before the message came to a retry lane, too (a span counts from 1 in each). `unit` is its unit of
    order, in a mode that has them."""

    message: Message
    attempt: int
    receipt: Receipt
    unit: str = ""

    @property
    def is_in_run(self) -> bool:
        """May others of its unit be in its lease, which wait until it is settled?"""
        return self.receipt.token.endswith(RUN)


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """The messages that one claim granted, and how many its cursor has leased after it that count for the claimant
    (0 where none was granted). `has_left_off`: it found none so far, and ended after many writes that settled or
    skipped messages and delivered none; the next one continues behind them. `is_alone`: its one message is to be in no
    answer with others, for its last lease ended before it was settled. `has_tenants`: of those that it found.
    `fills_until_ms`: it granted none, so that a
    batch may be filled until then."""

    messages: Sequence[ClaimedMessage] = ()
    in_flight: int = 0
    has_left_off: bool = False
    is_alone: bool = False
    has_tenants: bool = False
    because: Because = Because.EMPTY  # why it granted none
    fills_until_ms: int | None = None


class Received(list[ClaimedMessage]):
    """The messages of one receive, and why there is none."""

    def __init__(self, messages: Iterable[ClaimedMessage] = (), because: Because = Because.EMPTY) -> None:
        super().__init__(messages)
        self.because = because


@dataclass(frozen=True, kw_only=True, slots=True)
class Claimant:
    """A claiming consumer (or group), with its settings. It may have `guaranteed` messages leased by one cursor in any
    case, more only while the group has `free` slots, and never more than `most_in_flight`."""

    topic: Topic
    group: Group
    lease_seconds: int
    owner: str = ""  # uid of the consumer that will hold the lease
    consumer_uid: str = ""  # in a broadcast: the consumer with the cursor
    most_in_flight: int = _UNLIMITED
    guaranteed: int = _UNLIMITED
    free: int = 0
    parts: int = 1  # how many consumers share the source's messages
    batch: int = 1  # it claims multiples of this number
    batch_wait_ms: int = 0  # how long new messages wait for so many
    is_called: bool = False  # the owner is a push consumer
    seat: Seat | None = None  # of a pull consumer: it leaves the others their part
    takes: Callable[[Draft], bool] | None = None  # the others are left to those who pull
    mark: str = ""  # of its receive, in the tokens of its leases (see `lease_mark`)
    run: int = 0  # how many messages runs may have in one claim, in all; 0: none are made

    def leaves(self, message: Message | None) -> bool:
        """Is the message left to others?"""
        return bool(self.takes and message and not self.takes(message.draft))

    def key(self, shard: int | None) -> CursorKey:
        """The cursor on a shard, or on the retry lane (None)."""
        return cursor_key(self.topic, self.group, shard, self.consumer_uid)

    @property
    def policy(self) -> Policy:
        """The policy of the mode, on shards and on the retry lane."""
        if self.group.key_concurrency:
            return Keyed(self.group.key_concurrency)
        return Serial(self.run) if self.run else POLICIES[self.group.mode]

    def in_flight(self, cursor: Cursor) -> int:
        """How many leased messages of a cursor count for its limits."""
        return sum(lease.slots for lease in cursor.leases.values() if not lease.is_pulled)

    def room(self, in_flight: int) -> int:
        """How many more messages one cursor may have leased, if it has `in_flight` now."""
        return max(0, min(self.most_in_flight - in_flight, max(self.guaranteed - in_flight, self.free)))

    def heavy_room(self, cursor: Cursor) -> int:
        """How many messages of heavy tenants it may claim while others have messages: the last consumers by rank, or
        the rest of the slots, are for those."""
        share = self.group.tenant_share
        if self.seat:
            return _UNLIMITED if self.seat.rank < max(1, self.seat.total * share // 100) else 0
        if not self.is_called:
            return _UNLIMITED
        leases = (lease for lease in cursor.leases.values() if not lease.is_pulled)
        taken = sum(s.count for lease in leases for s in lease.spans if s.unit == HEAVY)
        most = self.group.max_in_flight - self.guaranteed * len(self.topic.shard_numbers)
        return max(1, most * share // 100) - taken

    @property
    def claimants(self) -> int:
        """How many consumers share the available messages."""
        return self.seat.total if self.seat else self.parts

    def part(self, round: Round | None, available: int, most: int, now_ms: int) -> int:
        """How many of the available messages to take."""
        if self.seat:
            return min(most, pull_share.room(round, self.seat, available, now_ms))
        batches = -(-available // (self.parts * self.batch))
        return min(most, batches * self.batch)

    def unit(self, message: Message, shard: int | None) -> str:
        """The message's unit, in a mode that has them: its key, or its shard. A lane (None) has messages of many
        shards."""
        draft, policy = message.draft, self.policy
        if not policy.reads_units or (policy.of_key and draft.ordering_key is None):
            return ""
        unit = unit_of(draft.ordering_key, draft.tenant)
        is_by_shard = shard is None and draft.ordering_key is draft.tenant is None
        return f"{unit}{message.shard}" if is_by_shard else unit

    def receipt(self, message: Message, offset: int, token: str, now_ms: int) -> Receipt:
        """The receipt of a message that was leased at an offset of its shard or of the lane."""
        origin = message.draft.origin
        return Receipt(
            group_uid=self.group.uid,
            consumer_uid=self.consumer_uid,
            id=message.id,
            shard=message.shard,
            offset=message.offset,
            token=token,
            last_attempt=self.last_attempt(message.draft),
            claimed_ms=now_ms,
            expires_ms=message.draft.expires_ms,
            entry=offset if origin else None,
            attempts_before_entry=origin.attempts if origin else 0,
            attempts_before_redrive=origin.attempts_before_redrive if origin else 0,
        )

    def dead_record(self, message: Message, tries: int, reason: str, why: str | None, now_ms: int) -> Record:
        """The record of a message that a claim makes a dead letter."""
        origin = message.draft.origin
        return Record(
            shard=message.shard,
            offset=message.offset,
            status=Status.DEAD,
            attempts=tries,
            at_ms=now_ms,
            consumer_uid=self.consumer_uid,
            reason=reason,
            last_error=why,
            attempts_before_redrive=origin.attempts_before_redrive if origin else 0,
            of=self.key(message.shard) if origin else None,
            message=retry_lane.content(message),
        )

    def last_attempt(self, draft: Draft) -> int:
        """The number of a message's last attempt; a redriven message gets the full number again."""
        attempts_before_redrive = draft.origin.attempts_before_redrive if draft.origin else 0
        return last_attempt(self.topic, self.group, draft, attempts_before_redrive)
