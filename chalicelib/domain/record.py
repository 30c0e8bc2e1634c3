"""Records of deliveries that failed at least once, and dead letters."""

from __future__ import annotations

from dataclasses import dataclass

from .call_result import Answer, in_words
from .message import Message
from .status import Status
from .topic import CursorKey


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A delivery that did not succeed at once. `status` is RETRYING, DEAD or SUCCESS (late).

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
    """A delivery that failed and is RETRYING or DEAD. `timed`: it left its shard's cursor and waits for a retry timer;
    the others are in the cursor."""

    shard: int
    offset: int
    status: Status
    consumer_uid: str = ""
    timed: bool = False
