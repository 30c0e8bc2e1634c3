"""Turns checked request bodies into domain values: messages, times, retry settings, names of requests."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from ..domain import ladder, typed
from ..domain.errors import HeadraceError, Malformed, Refused, TooLarge
from ..domain.headers import is_reserved
from ..domain.ladder import Retry
from ..domain.limits import (
    MAX_DELAY_SECONDS,
    MAX_FILTER_TAGS,
    MAX_HEADERS_BYTES,
    MAX_RESEND_SECONDS,
    MAX_TAG_CHARS,
)
from ..domain.message import JSON, Draft
from ..domain.request import NAME, Request
from ..domain.times import DAY_SECONDS
from ..domain.topic import DEFAULT_RETRY
from . import requests, strict
from .calls import Context
from .http import invalid

if TYPE_CHECKING:
    from ..services.manage.replays import Archived

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)  # a float of seconds would lose one of these now and then
_TIME = r"(?a)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)\Z"  # compiled when it is needed


def time_ms(text: str, path: str, others: str = "") -> int:
    """An RFC 3339 time in milliseconds since 1970. Raises Malformed for anything else; `others` says what else is
    accepted."""
    try:
        if not re.match(_TIME, text):  # Python reads much else, such as weeks
            raise ValueError(text)
        moment = datetime.fromisoformat(text)
        return (moment.astimezone(UTC) - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError):
        choices = f"{others} or a time" if others else "a time"
        raise invalid(path, f"must be {choices} like 2030-01-01T00:00:00.000Z") from None


def whole_number(text: str, most_digits: int) -> int | None:
    """The number that a text of so many digits is; None for any other text. `int` reads more, such as `1_000`, and
    less: not `²`, which is a digit."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= most_digits else None


def settings(body: msgspec.Struct) -> dict[str, Any]:
    """The fields that were given."""
    return {name: value for name in body.__struct_fields__ if (value := getattr(body, name)) is not UNSET}


def retry(body: requests.Retry, base: Retry = DEFAULT_RETRY) -> Retry:
    """A retry policy: what was given over what holds otherwise."""
    return replace(base, **_retry_fields(body, base))


def new_retry(fields: Mapping[str, Any]) -> Callable[[Retry], Retry] | None:
    """What makes the new policy of the one that holds; None: it is not changed (or, with null, taken away)."""
    body = fields.get("retry")
    return partial(retry, body) if body else None


def _retry_fields(body: requests.Retry, base: Retry = DEFAULT_RETRY) -> dict[str, Any]:
    fields = settings(body)
    if "ladder" in fields:
        if isinstance(fields["ladder"], list):
            fields["ladder"] = tuple(fields["ladder"])
        attempts = ladder.default_attempts(fields["ladder"])
        if attempts != base.max_attempts == ladder.default_attempts(base.ladder):  # nobody chose the number
            fields.setdefault("max_attempts", attempts)
    return fields


def tags(text: str | None) -> tuple[str, ...] | None:
    """The tags of a filter like `paid || refunded`; None for `*` or no filter at all."""
    if text is None:
        return None
    parts = tuple(dict.fromkeys(part.strip() for part in text.split("||")))
    if "*" in parts:
        return None
    if len(parts) > MAX_FILTER_TAGS or not all(map(_is_tag, parts)):
        raise invalid("filter", f"must be '*' or up to {MAX_FILTER_TAGS} tags joined by ' || '")
    return parts


def _is_tag(text: str) -> bool:
    return len(text) <= MAX_TAG_CHARS and re.match(requests.TAG, text) is not None


def draft_of(
    message: requests.MessageBody, now_ms: int, raw: bytes = b"", attributes: Collection[str] = ()
) -> Draft:
    """A checked message. Raises Malformed, or Refused (DELAY_AMBIGUOUS, DELAY_TOO_LONG, HEADER_RESERVED).

    `raw` is the JSON text it was parsed from: the numbers of a JSON body are kept to the digit. `attributes` names
    the headers that hold CloudEvent attributes.
    """
    if (message.body is UNSET) == (message.body_base64 is UNSET):
        raise invalid("body", "give either body or body_base64")
    if message.delay_seconds is not None and message.deliver_at is not None:
        raise Refused("DELAY_AMBIGUOUS", "Give either delay_seconds or deliver_at.")
    due_ms = (
        due(message.deliver_at, now_ms)
        if message.deliver_at is not None
        else now_ms + (message.delay_seconds or 0) * 1000
    )
    check_delay(due_ms - now_ms)
    _check_headers(message.headers, attributes)
    body, is_json, content_type = body_of(message, raw)
    return Draft(
        body=body,
        is_json=is_json,
        content_type=content_type,
        keys=tuple(message.keys),
        tag=message.tag,
        ordering_key=message.ordering_key,
        shard=message.shard,
        headers=message.headers,
        expires_ms=due_ms + message.expires_in_seconds * 1000 if message.expires_in_seconds else None,
        due_ms=due_ms if due_ms > now_ms else None,
        accepted_ms=now_ms if due_ms > now_ms else None,  # of what waits: its delay begins here
        **(_retry_of(message.retry) if message.retry else {}),
        dedup_id=message.dedup_id,
    )


def changes(
    change: requests.AmendBody, raw: bytes, now_ms: int, header_names: Collection[str] = ()
) -> dict[str, Any]:
    """The fields of a draft that a PATCH changes. Raises Malformed if there are none. `header_names`: names of headers
    that the message has already; a reserved name is allowed only if it is among them."""
    fields = settings(change)
    if not fields:
        raise invalid("", "give what to change: body, deliver_at, headers or retry")
    draft_fields: dict[str, Any] = {}
    if "body" in fields:
        draft_fields |= {"body": json_body(raw, change.body), "is_json": True, "content_type": JSON}
        draft_fields |= {"blob": None, "blob_bytes": 0}
    if "headers" in fields:
        _check_headers(fields["headers"], header_names)
        draft_fields["headers"] = fields["headers"]
    if "deliver_at" in fields:
        draft_fields["due_ms"] = due(fields["deliver_at"], now_ms)
    if "retry" in fields:
        draft_fields |= _retry_of(fields["retry"])
    return draft_fields


def where(text: str | None) -> str | None:
    """The text of a predicate; Malformed for what is none."""
    from ..domain import predicate  # late, for few calls need it

    try:
        if text is not None:
            predicate.parse(text)
    except predicate.NotAPredicate as error:
        raise invalid("where", str(error)) from None
    return text


def archived(message: requests.ArchivedBody) -> Archived:
    """A message from the archive. A body that is the compact text of a JSON value is JSON again, any other is
    bytes."""
    from ..services.manage.replays import Archived

    body = _base64(message.body_base64)
    draft = Draft(
        body,
        message.content_type == JSON and _is_compact_json(body),
        message.content_type,
        tuple(message.keys),
        message.tag,
        message.ordering_key,
        headers=message.headers,
    )
    return Archived(message.id, message.shard, draft)


def _is_compact_json(raw: bytes) -> bool:
    try:
        return strict.compact(raw, strict.parse(raw)) == raw
    except Malformed:
        return False


def _check_headers(headers: Mapping[str, str], attributes: Collection[str] = ()) -> None:
    spellings: dict[str, str] = {}
    for name in headers:
        if (other := spellings.setdefault(name.lower(), name)) != name:
            raise invalid(
                f"headers.{name}", f"is the header {other!r} in another case; HTTP takes both for one"
            )
        if name not in attributes and is_reserved(name):
            raise Refused(
                "HEADER_RESERVED",
                f"A message may not have the header {name!r}: on its way it would be taken for the request's own.",
            )
    if sum(len(name) + len(value) for name, value in headers.items()) > MAX_HEADERS_BYTES:
        raise TooLarge("HEADERS_TOO_LARGE", f"The headers together may have {MAX_HEADERS_BYTES} characters.")


def due(deliver_at: str, now_ms: int) -> int:
    """The time of a `deliver_at`, ms; a past time means now. Raises Refused if it is too far ahead."""
    due_ms = max(now_ms, time_ms(deliver_at, "deliver_at"))
    check_delay(due_ms - now_ms)
    return due_ms


def check_delay(delay_ms: int) -> None:
    """Raises Refused (DELAY_TOO_LONG)."""
    if delay_ms > MAX_DELAY_SECONDS * 1000:
        raise Refused(
            "DELAY_TOO_LONG", f"A message may wait {MAX_DELAY_SECONDS // DAY_SECONDS} days at most."
        )


def _retry_of(override: requests.Retry) -> dict[str, Any]:
    """What a message says about its own retries: only what was given, the rest is its group's."""
    fields, whole = _retry_fields(override), retry(override)
    draft_fields: dict[str, Any] = {
        name: fields[name] for name in ("max_attempts", "jitter") if name in fields
    }
    if fields.keys() & {"ladder", "base_seconds", "factor", "cap_seconds"}:
        draft_fields["ladder"] = ladder.steps(whole)
    return draft_fields


class _JsonText(msgspec.Struct):
    """The `body` of a message as JSON text."""

    body: msgspec.Raw


class _PatchText(msgspec.Struct):
    """The `patch` of a request as JSON text."""

    patch: msgspec.Raw


def patch_text(raw: bytes) -> bytes:
    """The text of the `patch` in a checked request."""
    return bytes(typed.decoded(raw, _PatchText).patch)


def json_body(raw: bytes, body: Any) -> bytes:
    """The parsed `body` as compact JSON text, with its numbers exactly as in the raw request."""
    text = bytes(typed.decoded(raw, _JsonText).body) if raw else b""
    return strict.compact(text, body)


def body_of(message: requests.MessageBody, raw: bytes = b"") -> tuple[bytes, bool, str]:
    """The body's bytes, whether they are JSON, and their media type. `raw` as for `draft_of`. Raises Malformed."""
    if message.body is not UNSET:
        if message.content_type is not None:
            raise invalid("content_type", "goes with body_base64; a body is JSON")
        return json_body(raw, message.body), True, JSON
    return _base64(str(message.body_base64)), False, message.content_type or "application/octet-stream"


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise invalid("body_base64", "must be base64") from None


REQUEST, RESEND = "headrace-request", "headrace-resend"


def request(context: Context) -> Request | None:
    """The name that the sender gave to a produce request, and how many seconds ago it was first sent."""
    name, seconds = context.headers.get(REQUEST), context.headers.get(RESEND)
    if name is None:
        if seconds is not None:
            raise invalid(RESEND, f"needs {REQUEST}, the same as when it was sent first")
        return None
    if not NAME.match(name):
        raise invalid(REQUEST, "must match [A-Za-z0-9._-]{1,128}")
    if seconds is None:
        return Request(name)
    seconds_ago = whole_number(seconds, 6)
    if seconds_ago is None or seconds_ago > MAX_RESEND_SECONDS:
        raise invalid(RESEND, f"must be the seconds since it was sent first: 0 to {MAX_RESEND_SECONDS}")
    received_ms = context.received_ms
    if received_ms is None:
        received_ms = context.deps.adapters.clock.now_ms()
    return Request(name, received_ms - seconds_ago * 1000)


def item_error(error: HeadraceError, path: str) -> HeadraceError:
    """An item's error with paths that begin at the item."""
    issues = tuple(replace(i, path=f"{path}.{i.path}" if i.path else path) for i in error.issues)
    if error.code == "VALIDATION":
        return invalid(issues[0].path, issues[0].issue)
    return type(error)(error.code, error.detail, issues=issues)
