"""Messages: as they are sent, received, traced and settled."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from datetime import datetime
from typing import Any, ClassVar

import msgspec

from .base import Model


class Sent(Model, frozen=True, kw_only=True):
    """Where a message was stored. `offset` is None while it waits; `duplicate`: it had been stored before."""

    id: str
    topic: str
    status: str
    accepted_at: datetime
    shard: int | None = None
    offset: int | None = None
    deliver_at: datetime | None = None
    job: str | None = None
    duplicate: bool = False


class Content(Model, frozen=True, kw_only=True, rename={"raw_body": "body"}):
    """What a producer gave."""

    id: str
    content_type: str = "application/json"
    raw_body: msgspec.Raw = msgspec.Raw(b"null")
    body_base64: str | None = None
    undecodable: bool = False
    keys: list[str] = []
    tag: str | None = None
    ordering_key: str | None = None
    priority: int | None = None
    job: str | None = None
    callback_url: str | None = None
    tenant: str | None = None
    headers: dict[str, str] = {}
    shard: int | None = None
    offset: int | None = None
    accepted_at: datetime | None = None
    sent_at: datetime | None = None
    deliver_at: datetime | None = None
    expires_at: datetime | None = None
    changed_at: datetime | None = None
    schedule: str | None = None
    scheduled_at: datetime | None = None

    @property
    def body(self) -> Any:
        """The JSON value, or the bytes of what is no JSON."""
        if self.body_base64 is not None:
            return base64.b64decode(self.body_base64)
        return msgspec.json.decode(self.raw_body)

    @property
    def key(self) -> str | None:
        """The first key."""
        return self.keys[0] if self.keys else None


class Message(Content, frozen=True, kw_only=True, rename={"raw_body": "body"}):
    """A message as a consumer of a group has it: this `attempt` (from 1), settled by its `receipt`."""

    attempt: int = 1
    receipt: str = ""
    topic: str = ""
    group: str = ""


class Received(list[Message]):
    """The messages of one receive. `because` says why there is none: `paused`, `rate_limited`, `not_owner`,
    `cursor_full`, `keys_wait`, `in_flight` or `empty`. `acked` has the result of each message that the receive
    acknowledged."""

    def __init__(
        self, messages: Iterable[Message] = (), because: str | None = None, acked: Iterable[Settled] = ()
    ) -> None:
        super().__init__(messages)
        self.because = because
        self.acked = list(acked)


class Answer(Model, frozen=True, kw_only=True):
    """What a subscriber answered to a failed attempt: the first 500 bytes of its text. A function's has no status."""

    status: int | None = None
    content_type: str = ""
    text: str = ""


class Delivery(Model, frozen=True, kw_only=True):
    """A message's state for one group."""

    status: str
    attempts: int
    next_attempt_at: datetime | None = None
    last_error: str | None = None
    retries_left: int = 0
    answer: Answer | None = None
    reason: str | None = None
    consumers: dict[str, str] = {}
    places: list[Any] = []
    older: list[Any] = []
    adds_up: bool | None = None
    id: str | None = None
    group: str | None = None


class StoredMessage(Content, frozen=True, kw_only=True, rename={"raw_body": "body"}):
    """Everything known about a message."""

    topic: str = ""
    status: str = ""
    size: int = 0
    transaction_id: str | None = None
    retries_left: int = 0
    deliveries: dict[str, Delivery] = {}


class DeadLetter(Content, frozen=True, kw_only=True, rename={"raw_body": "body"}):
    """A message that was given up, and why."""

    reason: str = ""
    attempts: int = 0
    last_error: str | None = None
    answer: Answer | None = None
    dead_at: datetime | None = None
    edited: bool = False
    consumer: str | None = None
    size: int = 0
    transaction_id: str | None = None


class Rescheduled(Model, frozen=True, kw_only=True):
    """What became of a delayed message (`deliver_at` None: it was cancelled); `error` is a problem document."""

    id: str
    changed: bool = False
    deliver_at: datetime | None = None
    error: dict[str, Any] | None = None


class RescheduledMessages(Model, frozen=True, kw_only=True):
    """A page of them; the last one has no token."""

    items: list[Rescheduled]
    next_page_token: str | None = None


class MergedLetter(Model, frozen=True, kw_only=True):
    """What a patch made of a dead letter; `error` is a problem document."""

    id: str
    changed: bool = False
    body: Any = None
    error: dict[str, Any] | None = None


class MergedLetters(Model, frozen=True, kw_only=True):
    """A page of them; the last one has no token."""

    items: list[MergedLetter]
    next_page_token: str | None = None


class OneOfMany(Model, frozen=True, kw_only=True):
    """One of those that a preview counted."""

    id: str
    failed_at: datetime
    reason: str | None = None
    error: str | None = None


class OfMany(Model, frozen=True, kw_only=True):
    """To how many a call was done, or (`count`) would be; the token goes on where it ended. `plan` lets a call act on
    what a preview saw, for ten minutes."""

    MOST: ClassVar[int] = 10_000
    """The most of one call."""

    redriven: int = 0
    deleted: int = 0
    retried: int = 0
    rechecked: int = 0
    count: int = 0
    sample: list[OneOfMany] = []
    plan: str | None = None
    next_page_token: str | None = None

    @property
    def number(self) -> int:
        """The count, of whichever call."""
        return self.redriven + self.deleted + self.retried + self.rechecked + self.count


class Purged(Model, frozen=True, kw_only=True):
    """How many deliveries a purge dropped; of a topic, with its delayed messages."""

    purged: int


class By(Model, frozen=True, kw_only=True):
    """The token that something was done with."""

    id: str
    name: str | None = None


class Event(Model, frozen=True, kw_only=True):
    """One step of a message's path."""

    at: datetime
    event: str
    group: str | None = None
    consumer: str | None = None
    attempt: int | None = None
    rank: int | None = None
    total: int | None = None
    shard: int | None = None
    duration_ms: float | None = None
    outcome: str | None = None
    detail: str | None = None
    answer: Answer | None = None
    app: str | None = None
    address: str | None = None
    by: By | None = None
    owner: str | None = None
    deadline_at: datetime | None = None
    deliver_at: datetime | None = None


class Trace(Model, frozen=True, kw_only=True):
    events: list[Event]


class Fate(Model, frozen=True, kw_only=True):
    """Where a message stands everywhere. `skipped`: groups that do not get it; `complete`: nothing will happen to it
    any more."""

    message: StoredMessage
    groups: dict[str, Delivery]
    skipped: list[str] = []
    complete: bool
    adds_up: bool

    def is_complete(self, group: str | None = None) -> bool:
        """Will nothing happen to it any more, in this group or in all?"""
        delivery = self.groups.get(group) if group is not None else None
        return (
            self.complete
            or group in self.skipped
            or (delivery is not None and delivery.status in ("SUCCESS", "DEAD"))
        )


class Settled(Model, frozen=True, kw_only=True):
    """The result for one receipt. `already`: this lease had settled it before; `error` is a problem document."""

    receipt: str
    ok: bool = False
    already: bool = False
    error: dict[str, Any] | None = None


class Transaction(Model, frozen=True, kw_only=True):
    transaction_id: str
    message_id: str
    topic: str
    state: str
    prepared_at: datetime
    shard: int | None = None
    offset: int | None = None
    deliver_at: datetime | None = None
    decided_at: datetime | None = None
    check_url: str | None = None
    check_after_seconds: int = 60
    checks: int = 0
    last_answer: str | None = None
    next_check_at: datetime | None = None
    check_secret: str | None = None
    duplicate: bool = False
