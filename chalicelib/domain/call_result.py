"""The result of a call to a subscriber: the verdict, from which the settlement and the trace follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from .limits import MAX_BODY_BYTES
from .message import Message


class Verdict(StrEnum):
    """What a subscriber's answer means for the message and, for GONE, for the consumer."""

    DONE = "DONE"  # taken: settled as SUCCESS
    FAILED = "FAILED"  # to be tried again on the ladder
    REFUSED = "REFUSED"  # never try again: buried
    GONE = "GONE"  # a failed attempt, after which the consumer is not called any more
    NOT_ATTEMPTED = "NOT_ATTEMPTED"  # nothing was attempted: no attempt is counted
    UNDECODABLE = "UNDECODABLE"  # nothing can be attempted any more: buried


@dataclass(frozen=True, slots=True)
class Answer:
    """What a subscriber said about a failed attempt: the beginning of its text, without our secrets. A function has no
    `status`."""

    status: int | None
    content_type: str
    text: str


def in_words(error: str | None, answer: Answer | None) -> str | None:
    """What went wrong with an attempt, with what the subscriber said about it."""
    return f"{error}: {answer.text.strip()}" if error and answer else error


@dataclass(frozen=True, slots=True)
class CallResult:
    """How a call ended for one message. `detail` is short, ours, and safe to show: never a body, a header or a URL.

    `retry_after_ms` is the wait that the subscriber asked for, if it was valid; with NOT_ATTEMPTED our own pause, where
    a body could not be read or a function was throttled. `busy_ms`: without an answer the
    subscriber may still be working on the messages for so long; until then no other consumer may have them.
    `is_own_answer`: True: the consumer's own code answered, so a failure may be the message's fault. False: no answer,
    or 429, 502, 503 or 504, which a proxy may have sent. `answer`: what a failed attempt's answer said, if it was text.
    """

    verdict: Verdict
    detail: str = ""
    status: int | None = None
    retry_after_ms: int | None = None
    duration_ms: int = 0
    busy_ms: int = 0
    is_own_answer: bool = False
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """A message with its body in hand, and the number of this attempt (from 1)."""

    message: Message
    number: int


@dataclass(frozen=True, slots=True)
class PushBatch:
    """The messages of one request to a subscriber: one, or several where the group asked for batches.

    `payload` is "binary", "structured" or "batch" (CloudEvents' content modes). What a transform makes of a message
    has at most `max_body_bytes`.
    """

    topic: str
    group: str
    payload: str
    attempts: tuple[Attempt, ...]
    max_body_bytes: int = MAX_BODY_BYTES


MOST_SHOWN_BYTES = 1_024


class Exchange(NamedTuple):
    """A `POST` to a URL (without headers: an event for the function of this name), as it was sent, and its result.

    `answer_headers` and the beginning of the answer's body are the subscriber's own; both are empty if there was no
    answer, and the result says why. `answer_bytes` is how long the whole body was.
    """

    url: str
    headers: Mapping[str, str]
    body: bytes
    result: CallResult
    answer_headers: Mapping[str, str] = MappingProxyType({})
    answer_body: bytes = b""
    answer_bytes: int = 0
