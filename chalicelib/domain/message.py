"""What travels: a draft before it has an offset, a message after."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from . import strict_json
from .errors import Malformed

JSON = "application/json"
RATE_LIMITED = "RATE_LIMITED"
TRACEPARENT = "traceparent"
_ANSWER_BYTES = 1000  # id, receipt, tag, content type, times and the names of the fields


@dataclass(frozen=True, slots=True)
class Origin:
    """What an entry of a retry lane stands for: the message's place in its topic's log, and its past.

    `attempts` were made so far; `spent` of them before its present life began (a redrive begins a new one).
    `whole` says that the draft holds the content itself (an edited dead letter), not only the reference.
    """

    id: str
    shard: int
    offset: int
    accepted_ms: int
    attempts: int
    spent: int = 0
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Draft:
    """A message as a producer gave it, checked. `body` is the compact UTF-8 text of a JSON value where
    `is_json`, else the bytes as they came.

    `blob` names the object that holds the body where it is too large for the log. `max_attempts`, `ladder` (waits in
    seconds) and `jitter` override the group's. `expires_ms` is the time after which nobody wants it. `origin` makes
    it an entry of a retry lane. `id` is its own where it had to have one before it had a place. `due_ms` is the time
    before which it must not enter the log. `dead` is why every group that wants it gets it as a dead letter.
    `changed_ms` is when it was last changed in the log, or `cancelled`. `only` is the uid of the one group that gets
    it.
    """

    body: bytes
    is_json: bool = True
    content_type: str = JSON
    keys: tuple[str, ...] = ()
    tag: str | None = None
    ordering_key: str | None = None
    shard: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    expires_ms: int | None = None
    max_attempts: int | None = None
    ladder: tuple[int, ...] | None = None
    jitter: float | None = None
    dedup_id: str | None = None
    blob: str | None = None
    blob_bytes: int = 0
    origin: Origin | None = None
    id: str | None = None
    due_ms: int | None = None
    dead: str | None = None
    changed_ms: int | None = None
    cancelled: bool = False
    only: str | None = None

    @property
    def size(self) -> int:
        """Bytes of the body, wherever it is kept."""
        return self.blob_bytes or len(self.body)

    @property
    def weight(self) -> int:
        """About the bytes the message takes in an answer, where a body that is no JSON goes in base64."""
        body = self.size if self.is_json else self.size * 4 // 3
        if not self.keys and not self.headers:
            return body + _ANSWER_BYTES
        return body + len(json.dumps((self.keys, dict(self.headers)))) + _ANSWER_BYTES


@dataclass(frozen=True, slots=True)
class Message:
    """A draft with its place in the log."""

    id: str
    shard: int
    offset: int
    accepted_ms: int
    draft: Draft


def holds_json(draft: Draft) -> bool:
    """Is the body JSON, by its type and its text? Bytes only say so: their producer may have been wrong."""
    if draft.is_json:
        return True
    media = draft.content_type.partition(";")[0].strip().lower()
    if media != JSON and not media.endswith("+json"):
        return False
    try:
        strict_json.parse(draft.body)
    except Malformed:
        return False
    return True


def traceparent(draft: Draft) -> str | None:
    """The W3C trace that the message belongs to, if its producer told one."""
    return next((value for name, value in draft.headers.items() if name.lower() == TRACEPARENT), None)


def overall(draft: Draft, statuses: Collection[str]) -> str:
    """The status of a message in the log over all groups: where they agree theirs, else RUNNING."""
    if draft.cancelled:
        return "CANCELLED"
    words = set(statuses)
    if not words:
        return "NEW"
    return words.pop() if len(words) == 1 else "RUNNING"


def expired(draft: Draft, now_ms: int) -> bool:
    """Has the producer's expiry passed?"""
    return draft.expires_ms is not None and draft.expires_ms <= now_ms
