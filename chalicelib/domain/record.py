"""Deliveries that did not succeed at once: their record, and the letter of those that were given up."""

from __future__ import annotations

from dataclasses import dataclass

from .message import Message
from .status import Status
from .topic import CursorKey


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A buried delivery with its whole message. `edited` says that the body is not the one that was sent;
    `version` rises with each edit."""

    key: CursorKey
    offset: int
    message: Message
    reason: str
    attempts: int
    at_ms: int
    last_error: str | None = None
    edited: bool = False
    version: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A delivery that did not succeed at once. `status` is RETRYING, DEAD or SUCCESS (late).

    `of` is the cursor key of the message's place in its topic, where it was settled from a retry lane.
    `spent` attempts were made before its present life (see Origin). `message` goes with DEAD: storing the record
    also stores the dead letter. `expires_s` removes the record of what is neither dead nor owed any more.
    """

    shard: int
    offset: int
    status: Status
    attempts: int
    at_ms: int
    consumer_uid: str = ""
    reason: str | None = None
    last_error: str | None = None
    next_ms: int | None = None
    spent: int = 0
    of: CursorKey | None = None
    message: Message | None = None
    expires_s: int | None = None

    @property
    def waited_in_cursor(self) -> bool:
        """Was the delivery to be tried again from its shard's cursor? Where that has settled the place, this one is of
        before a seek, and over."""
        return self.status == Status.RETRYING and self.next_ms is None


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A delivery that failed and is RETRYING or DEAD. `timed`: its next attempt has a time of its own, since it left
    its shard's cursor; of others the cursor tells."""

    shard: int
    offset: int
    status: Status
    consumer_uid: str = ""
    timed: bool = False
