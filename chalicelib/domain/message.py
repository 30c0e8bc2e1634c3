"""A draft (a message before it has an offset) and a message."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import msgspec

from . import strict_json
from .errors import Malformed
from .limits import MAX_HEADERS
from .status import Status, combined

JSON = "application/json"
TRACEPARENT = "traceparent"
_NEVER_MS = 1 << 62
_URL = r"(?:https://|http://(?=localhost|127\.))([A-Za-z0-9.-]+)(?::[0-9]{1,5})?(?:[/?][!-~]*)?"
_ANSWER_BYTES = 1000  # id, receipt, tag, content type, times and the names of the fields


class DeadReason(StrEnum):
    """Why a delivery is a dead letter. In rows it is text: a later release may know more."""

    ATTEMPTS_EXHAUSTED = "ATTEMPTS_EXHAUSTED"
    REJECTED = "REJECTED"
    EXPIRED = "EXPIRED"
    RATE_LIMITED = "RATE_LIMITED"
    UNDECODABLE = "UNDECODABLE"


@dataclass(frozen=True, slots=True)
class Origin:
    """The message that an entry of a retry lane refers to: its offset in its topic's log, and its earlier attempts.

    `accepted_ms` is the message's; 0 if that was not known. `attempts` were made so far; `attempts_before_redrive` of
    them before the message was last redriven. `whole` says that the draft holds the content itself (an edited dead
    letter), not only the reference.
    """

    id: str
    shard: int
    offset: int
    accepted_ms: int
    attempts: int
    attempts_before_redrive: int = 0
    whole: bool = False


MOST_ACTS = 16  # that a message records; the oldest are dropped


@dataclass(frozen=True, slots=True)
class Act:
    """A change of a message before it was claimed: EDITED, POSTPONED or CANCELLED. `by` is the token's id; `until_ms`
    is the new due time after POSTPONED, which may also be an earlier one."""

    what: str
    at_ms: int
    by: str = ""
    until_ms: int = 0


@dataclass(frozen=True, slots=True)
class Firing:
    """What a schedule made a message for: the schedule's name, the time, and the id of its message before."""

    schedule: str
    at_ms: int
    last_id: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """A message without id and offset, as a producer gave it, checked. The log's rows hold drafts.

    `body`: the compact UTF-8 text of a JSON value where `is_json`, else the bytes as they came.
    `expires_ms`: after this time it is not delivered any more.
    `max_attempts`: overrides the group's, as do `ladder` (waits in seconds), `jitter` and `steps_from`.
    `job`: the name that its producer gave it, unique in the topic until every group has ended it.
    `dedup_until`: `done`: the dedup id is free once every group has ended its message.
    `instead_of`: the ended message whose dedup id it takes over.
    `blob`: the object that holds the body, if it is too large for the log.
    `blob_bytes`: the size of the body in that object, before compression.
    `origin`: set in an entry of a retry lane: the message that it stands for.
    `id`: set if the message had an id before it had an offset.
    `due_ms`: the time before which it must not enter the log; once it is in the log, the time when it was due.
    `dead_reason`: why every group that wants it gets it as a dead letter. UNDECODABLE: the stored message cannot be
    read.
    `changed_ms`: when it was last changed in the log, or cancelled.
    `target_group_uid`: the one group that gets it; None: all.
    `sent_ms`: when its producer says that it was sent.
    `accepted_ms`: when it was produced, and `by` whom (see `producer_text`), if it waited before it came into the log.
    Of a draft that is not stored yet: set where its producer gave it a time.
    `acts`: what people changed in it since.
    `redact`: of a copy: what the topic that it comes from hides in its body.
    `firing`: set in a message of a schedule.
    """

    body: bytes
    is_json: bool = True
    content_type: str = JSON
    keys: tuple[str, ...] = ()
    tag: str | None = None
    tenant: str | None = None  # whom it is for: one tenant's backlog does not delay another's
    ordering_key: str | None = None
    shard: int | None = None
    priority: int | None = None  # as its producer gave it: 0 is the most urgent; None is the last one
    headers: Mapping[str, str] = field(default_factory=dict)
    expires_ms: int | None = None
    max_attempts: int | None = None
    ladder: tuple[int, ...] | None = None
    jitter: float | None = None
    steps_from: str | None = None
    job: str | None = None
    dedup_id: str | None = None
    dedup_until: str = "window"
    instead_of: str | None = None
    blob: str | None = None
    blob_bytes: int = 0
    origin: Origin | None = None
    id: str | None = None
    due_ms: int | None = None
    dead_reason: str | None = None
    changed_ms: int | None = None
    cancelled: bool = False
    target_group_uid: str | None = None
    sent_ms: int | None = None
    accepted_ms: int | None = None
    by: str = ""
    acts: tuple[Act, ...] = ()
    redact: tuple[str, ...] = ()
    firing: Firing | None = None
    callback_url: str | None = None  # where it is sent, in a group that allows it

    @property
    def has_body(self) -> bool:
        """Is the body here, and not only in the blob store?"""
        return bool(self.body) or not self.blob

    @property
    def size(self) -> int:
        """Bytes of the body as a consumer gets it, before compression and base64; here or in the blob store."""
        return self.blob_bytes or len(self.body)

    @property
    def weight(self) -> int:
        """About the bytes that the message takes in an answer, uncompressed; a body that is not JSON goes in base64."""
        body = self.size if self.is_json else self.size * 4 // 3
        if not self.keys and not self.headers:
            return body + _ANSWER_BYTES
        return body + len(json.dumps((self.keys, dict(self.headers)))) + _ANSWER_BYTES


@dataclass(frozen=True, slots=True)
class Message:
    """A draft with its shard and offset. `accepted_ms` is when it came into its log; the API's `accepted_at` is
    `first_accepted_ms`. `row_by`: who produced what its row holds (see `producer_text`), if known; `ends_ms`: the end
    of the retention under which the row was written."""

    id: str
    shard: int
    offset: int
    accepted_ms: int
    draft: Draft
    row_by: str = ""
    ends_ms: int = field(default=_NEVER_MS, compare=False)

    @property
    def message(self) -> Message:
        """Itself, as what waits before its log has one."""
        return self

    @property
    def first_accepted_ms(self) -> int:
        """When its producer got the answer that it is accepted: for a delayed message before it came into the log,
        for a transaction when it was prepared."""
        return self.accepted_ms if self.draft.accepted_ms is None else self.draft.accepted_ms

    @property
    def by(self) -> str:
        """The id of the token it was produced with; empty if unknown."""
        return self._producer[0]

    @property
    def app(self) -> str:
        """The application that produced it, as that said; empty if unknown."""
        return self._producer[1]

    @property
    def address(self) -> str:
        """The address that it was produced from; empty if unknown."""
        return self._producer[2]

    @property
    def _producer(self) -> list[str]:
        return [*(self.draft.by or self.row_by).split(" "), "", ""]


def producer_text(token_id: str, app: str, address: str) -> str:
    """What is stored of a producer: its token's id, app and address, with a space after each."""
    return f"{token_id} {app} {address}".rstrip()


def host_of(url: str | None) -> str | None:
    """The host of a URL, in lower case; None if the text is none that every reader takes to name the same host."""
    match = re.fullmatch(_URL, url or "")
    return match[1].lower() if match else None


def with_acts(draft: Draft, *acts: Act) -> Draft:
    """The draft with new acts; an act that it has already is not added again."""
    new = (act for act in acts if act not in draft.acts)
    return replace(draft, acts=(*draft.acts, *new)[-MOST_ACTS:])


def holds_json(draft: Draft) -> bool:
    """Is the body JSON, by its content type and its text? A producer may have given bytes the wrong type."""
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


def body_fields(draft: Draft) -> dict[str, Any]:
    """The body as answers and events have it: JSON in `body`, or else `body_base64`. Nothing where it is not here,
    which is not the same as an empty one."""
    if not draft.has_body:
        return {}
    if holds_json(draft):
        return {"body": msgspec.Raw(draft.body)}
    return {"body_base64": base64.b64encode(draft.body).decode()}


def traceparent(draft: Draft) -> str | None:
    """The W3C trace that the message belongs to, if its producer named one."""
    return next((value for name, value in draft.headers.items() if name.lower() == TRACEPARENT), None)


def in_trace(draft: Draft, parent: str | None) -> Draft:
    """The draft as part of this trace, if it names none itself and has room for it."""
    if parent is None or traceparent(draft) is not None or len(draft.headers) >= MAX_HEADERS:
        return draft
    return replace(draft, headers={**draft.headers, TRACEPARENT: parent})


def overall(draft: Draft, statuses: Collection[Status]) -> Status:
    """The status of a message in the log over all groups."""
    return Status.CANCELLED if draft.cancelled else combined(statuses)


def is_expired(draft: Draft, now_ms: int) -> bool:
    """Has the producer's expiry passed?"""
    return draft.expires_ms is not None and draft.expires_ms <= now_ms


_PREFIXES = (
    *("ce-", "headrace-", "svix-", "webhook-"),
    *("x-forwarded-", "x-original-", "x-rewrite-", "x-envoy-", "x-amzn-oidc-", "cf-"),  # what proxies say
)
_NAMES = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
        *("te", "trailer", "transfer-encoding", "upgrade"),  # of one connection, not of a message
        *("host", "forwarded", "via", "x-forwarded", "x-real-ip", "x-client-ip", "x-cluster-client-ip"),
        *("true-client-ip", "fastly-client-ip", "remote-user", "x-remote-user"),
        *("x-http-method", "x-http-method-override", "x-method-override"),  # another request than was sent
        *("authorization", "cookie", "set-cookie", "x-api-key"),
        *("content-encoding", "content-length", "content-type", "accept-encoding", "expect", "user-agent"),
    }
)


_STATIC = frozenset({"authorization", "cookie", "x-api-key"})


def is_reserved(name: str, *, is_static: bool = False) -> bool:
    """Would a server or proxy take the header for one of the request's own?

    Many servers read `_` as `-`. `is_static`: the subscriber's owner chose it, so it may prove who we are."""
    spelling = header_spelling(name)
    if is_static and spelling in _STATIC:
        return False
    return spelling in _NAMES or spelling.startswith(_PREFIXES)


def header_spelling(name: str) -> str:
    """A header's name, the same for all spellings of it."""
    return name.lower().replace("_", "-")


_ONCE = frozenset({"authorization", "content-type", "host"})
_EACH_ONCE = ("ce-", "headrace-")


def is_single(name: str) -> bool:
    """May a request have this header, in lower case, only once? Of two, who reads them may take either, and the other
    would be lost."""
    return name in _ONCE or name.startswith(_EACH_ONCE)
