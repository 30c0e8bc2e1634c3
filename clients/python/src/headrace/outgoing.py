"""A message before it is sent."""

from __future__ import annotations

import base64
import itertools
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, TypedDict

from .calls import given
from .durations import Duration, rfc3339, seconds, whole_seconds
from .models import RetryFields

BATCH_MESSAGES = 1000
BATCH_BYTES = 4_000_000
DedupUntil = Literal["window", "done"]
Missed = Literal["skip", "one", "all"]
Overlap = Literal["allow", "skip"]
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


@dataclass(frozen=True)
class Outgoing:
    """What is sent: a `body` (anything that has a JSON form, or bytes) and how it shall travel.

    `key` and `keys` are what the message is found by; `tenant` is whom it is for; `ordering_key` keeps those that share
    it in order; `priority` 0 is the most urgent; `delay` and `deliver_at` let it wait; `expires_in` lets it end;
    `dedup_id` makes the same message sent again the same message, within the topic's window, or (`dedup_until="done"`)
    until every group has ended it. It is sent to `callback_url`, in groups that allow it.
    """

    body: Any
    key: str | None = None
    keys: Sequence[str] = ()
    tag: str | None = None
    tenant: str | None = None
    ordering_key: str | None = None
    shard: int | None = None
    priority: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: Duration | None = None
    deliver_at: datetime | str | None = None
    expires_in: Duration | None = None
    sent_at: datetime | str | None = None
    dedup_id: str | None = None
    dedup_until: DedupUntil | None = None
    retry: RetryFields | None = None
    content_type: str | None = None
    callback_url: str | None = None

    @property
    def is_for_later(self) -> bool:
        """Does it name a time that may be in the future: a `deliver_at`, or a delay above 0?"""
        return self.deliver_at is not None or (self.delay is not None and seconds(self.delay) > 0)

    def fields(self, now: datetime | None = None) -> dict[str, Any]:
        """The message as the interface wants it. A delay counts from its arrival, by the service's clock; with `now`,
        from then: for one that may lie in a spool for hours. ValueError for a duration that is none, TypeError for keys
        that are one text."""
        if isinstance(self.keys, str):
            raise TypeError("Give one key as key=…, several as keys=[…].")
        keys = ([self.key] if self.key is not None else []) + [k for k in self.keys if k != self.key]
        message: dict[str, Any] = given(
            content_type=self.content_type,
            keys=keys or None,
            tag=self.tag,
            tenant=self.tenant,
            ordering_key=self.ordering_key,
            shard=self.shard,
            priority=self.priority,
            headers=dict(self.headers) or None,
            expires_in_seconds=whole_seconds(self.expires_in) if self.expires_in is not None else None,
            sent_at=rfc3339(self.sent_at) if self.sent_at is not None else None,
            dedup_id=self.dedup_id,
            dedup_until=self.dedup_until,
            retry=self.retry,
            callback_url=self.callback_url,
        )
        if isinstance(self.body, bytes | bytearray | memoryview):
            message["body_base64"] = base64.b64encode(bytes(self.body)).decode()
            message.setdefault("content_type", "application/octet-stream")
        else:
            message["body"] = self.body
        return message | self._time(now)

    def _time(self, now: datetime | None) -> dict[str, Any]:
        if self.delay is not None and self.deliver_at is not None:
            raise ValueError("Give delay or deliver_at, not both.")
        if not self.is_for_later:
            return {} if self.delay is None else {"delay_seconds": 0}
        if self.deliver_at is not None:
            return {"deliver_at": rfc3339(self.deliver_at)}
        assert self.delay is not None
        if now is None:
            return {"delay_seconds": whole_seconds(self.delay)}
        return {"deliver_at": rfc3339(now + timedelta(seconds=seconds(self.delay)))}


class MessageFields(TypedDict, total=False):
    """How each message of a schedule shall travel, as keywords, for type checkers."""

    key: str | None
    keys: Sequence[str]
    tag: str | None
    tenant: str | None
    ordering_key: str | None
    shard: int | None
    priority: int | None
    headers: Mapping[str, str]
    expires_in: Duration | None
    retry: RetryFields | None
    content_type: str | None
    callback_url: str | None


class SendOptions(MessageFields, total=False):
    """How a message shall travel, as keywords, for type checkers."""

    delay: Duration | None
    deliver_at: datetime | str | None
    sent_at: datetime | str | None
    dedup_id: str | None
    dedup_until: DedupUntil | None


def outgoing(message: Any) -> Outgoing:
    """What is sent: an Outgoing as it is, anything else as a body."""
    return message if isinstance(message, Outgoing) else Outgoing(body=message)


ahead = timedelta()
"""How far the service's time is ahead of this machine's: none, but where `headrace.testing` moves it."""


def now() -> datetime:
    """The service's present time in UTC."""
    return datetime.now(timezone.utc) + ahead


def new_id(chars: int = 16) -> str:
    """A random name."""
    bits = secrets.randbits(5 * chars)
    return "".join(_ALPHABET[bits >> 5 * i & 31] for i in range(chars))


def chunks(messages: Iterable[Any], size: int) -> Iterable[list[Outgoing]]:
    """Cut into lists of at most `size`. ValueError for a size that no batch may have, TypeError for what is one
    message."""
    if isinstance(messages, str | bytes | Mapping | Outgoing):
        raise TypeError("Give a list of messages: one message is sent by send().")
    if not 1 <= size <= BATCH_MESSAGES:
        raise ValueError(f"A batch has 1 to {BATCH_MESSAGES} messages, not {size}.")
    chunk: list[Outgoing] = []
    for message in messages:
        chunk.append(outgoing(message))
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


class RequestIds:
    """Names of this client's sends: a random name and a number. A process that was forked off has its own."""

    def __init__(self) -> None:
        self._series: tuple[int, str, Iterator[int]] = (0, "", itertools.count())

    def next(self) -> str:
        """A new name; those of one client share what stands before the last "-", and so their shard."""
        pid, name, numbers = self._series  # in one step: another thread may begin its own
        if pid != os.getpid():
            pid, name, numbers = self._series = os.getpid(), new_id(), itertools.count()
        return f"{name}-{next(numbers)}"
