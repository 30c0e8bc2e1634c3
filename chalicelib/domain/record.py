"""Records of deliveries that failed at least once, and dead letters."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from .call_result import Answer, in_words
from .message import Draft, Message
from .status import Status
from .topic import CursorKey


@dataclass(frozen=True, slots=True)
class Failure:
    """What a call for many knows of a thing that failed: a dead letter, a waiting retry or an undecided transaction,
    last at `at_ms`. `reason` is a dead letter's; `draft` is None where it was not read."""

    id: str
    at_ms: int
    reason: str | None
    error: str | None
    draft: Draft | None


@dataclass(frozen=True, slots=True)
class FailureFilter:
    """Which failures: all if no field is set. `since_ms` and `until_ms` bound the time of the last failure, `error` is
    a part of its text. `ids`: of these messages."""

    reason: str | None = None
    tag: str | None = None
    key: str | None = None
    since_ms: int | None = None
    ids: Set[str] | None = None
    until_ms: int | None = None
    error: str | None = None
    tenant: str | None = None

    @property
    def reads_draft(self) -> bool:
        """Does it ask for something of the message?"""
        return (self.tag, self.tenant, self.key) != (None, None, None)

    def matches(self, failure: Failure) -> bool:
        """Does the failure have every property that is set?"""
        draft = failure.draft
        return (
            self.reason in (None, failure.reason)
            and (self.tag is None or (draft is not None and self.tag == draft.tag))
            and (self.tenant is None or (draft is not None and self.tenant == draft.tenant))
            and (self.key is None or (draft is not None and self.key in draft.keys))
            and (self.since_ms is None or failure.at_ms >= self.since_ms)
            and (self.until_ms is None or failure.at_ms <= self.until_ms)
            and (self.error is None or self.error in (failure.error or ""))
            and (self.ids is None or failure.id in self.ids)
        )


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter with its whole message. `at_ms`: when it became one (the API's `dead_at`), as in its record;
    `edited`: the body is not the one that was produced; `version` rises with each edit."""

    key: CursorKey
    offset: int
    message: Message
    reason: str
    attempts: int
    at_ms: int
    last_error: str | None = None
    answer: Answer | None = None
    edited: bool = False
    version: int = 0

    @property
    def failure(self) -> str | None:
        """What went wrong at last, in words."""
        return in_words(self.last_error, self.answer)

    @property
    def to_filter(self) -> Failure:
        """What a filter asks for."""
        return Failure(self.message.id, self.at_ms, self.reason, self.failure, self.message.draft)


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A delivery that did not succeed at once. `status` is RETRYING, DEAD, SUCCESS (late, or by hand) or SKIPPED.

    `of` is the cursor key of the message's own shard, if it was settled from a retry lane. `message` is set with DEAD:
    storing the record also stores the dead letter. `attempts_before_redrive`: how many of `attempts` were before the
    last redrive, which may have been before a seek. `expires_s` is when the record of a finished delivery is removed.
    """

    shard: int
    offset: int
    status: Status
    attempts: int
    at_ms: int
    consumer_uid: str = ""
    reason: str | None = None
    last_error: str | None = None
    answer: Answer | None = None
    next_ms: int | None = None
    attempts_before_redrive: int = 0
    of: CursorKey | None = None
    message: Message | None = None
    expires_s: int | None = None

    @property
    def actions(self) -> int:
        """How many actions of a transaction store it: another one is of its dead letter, or counts it where its message
        is gone."""
        return 2 if self.status == Status.DEAD else 1

    @property
    def waited_in_cursor(self) -> bool:
        """Was the delivery to be tried again from its shard's cursor? If the cursor has settled that offset, this
        record is from before a seek, and finished."""
        return self.status == Status.RETRYING and self.next_ms is None


@dataclass(kw_only=True, frozen=True, slots=True)
class Unfinished:
    """A delivery that failed and is RETRYING, DEAD or SKIPPED. `timed`: it left its shard's cursor and waits for
    a retry timer; the other RETRYING ones are in the cursor."""

    shard: int
    offset: int
    status: Status
    consumer_uid: str = ""
    timed: bool = False


def letter_of(key: CursorKey, record: Record) -> DeadLetter | None:
    """The dead letter of a DEAD record; None if its message is gone."""
    if record.message is None:
        return None
    same = ("offset", "attempts", "at_ms", "last_error", "answer")
    own = {name: getattr(record, name) for name in same}
    return DeadLetter(key=key, message=record.message, reason=record.reason or "", **own)
