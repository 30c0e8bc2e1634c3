"""Turns checked request bodies into domain values: messages, times, names of requests."""

import base64
import binascii
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from ..domain import ladder, strict_json
from ..domain import limits as lim
from ..domain.errors import Forbidden, HeadraceError, Refused, TooLarge
from ..domain.message import Draft, header_spelling, host_of, in_trace, is_reserved, producer_text
from ..domain.request import NAME, Request
from ..domain.times import DAY_SECONDS
from ..domain.topic import EARLIEST, LATEST, Where
from . import fields, settings
from .calls import JSON, Context
from .http import check_priority, invalid, trace_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)  # a float of seconds would lose one of these now and then
_TIME = r"(?a)\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)\Z"  # compiled when it is needed
DedupId = Annotated[str, Meta(min_length=1, max_length=lim.MAX_DEDUP_ID_CHARS, pattern=fields.TEXT)]


class MessageBody(Struct, forbid_unknown_fields=True):
    """A message to produce: `body` (any JSON) or `body_base64` with `content_type`."""

    body: Any | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    content_type: fields.MediaType | None = None
    keys: Annotated[list[fields.Key], Meta(max_length=lim.MAX_KEYS)] = []
    tag: fields.Tag | None = None
    tenant: fields.Tenant | None = None
    ordering_key: fields.Key | None = None
    shard: Annotated[int, Meta(ge=0)] | None = None
    priority: fields.Priority | None = None
    headers: Annotated[dict[fields.HeaderName, fields.HeaderValue], Meta(max_length=lim.MAX_HEADERS)] = {}
    delay_seconds: fields.MessageDelay | None = None
    deliver_at: fields.Time | None = None
    sent_at: fields.Time | None = None
    expires_in_seconds: Annotated[int, Meta(ge=1, le=lim.MAX_DELAY_SECONDS)] | None = None
    dedup_id: DedupId | None = None
    dedup_until: Literal["window", "done"] = "window"
    retry: settings.Retry | None = None
    callback_url: Annotated[str, Meta(max_length=lim.MAX_URL_CHARS)] | None = None


BEGINS = f'"{EARLIEST}", "{LATEST}"'


def beginning(text: str) -> Where:
    """A first position, from the field `from`."""
    return text if text in (EARLIEST, LATEST) else f"@{time_ms(text, 'from', BEGINS)}"


def time_ms(text: str, path: str, others: str = "") -> int:
    """An RFC 3339 time in milliseconds since 1970. Raises Malformed for anything else; `others` says what else is
    accepted."""
    try:
        if not re.match(_TIME, text):  # Python reads much else, such as weeks
            raise ValueError(text)
        moment = datetime.fromisoformat(text.upper())
        return (moment.astimezone(UTC) - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError):
        choices = f"{others} or a time" if others else "a time"
        raise invalid(path, f"must be {choices} like 2030-01-01T00:00:00.000Z") from None


def whole_number(text: str, most_digits: int) -> int | None:
    """The number that a text of so many digits is; None for any other text. `int` reads more, such as `1_000`, and
    less: not `²`, which is a digit."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= most_digits else None


def draft(
    context: Context,
    message: MessageBody,
    raw: bytes = b"",
    *,
    now_ms: int | None = None,
    path: str = "",
    attributes: Collection[str] = (),
) -> Draft:
    """A checked message, as part of the request's trace. Raises Malformed, or Refused (DELAY_AMBIGUOUS, DELAY_TOO_LONG,
    HEADER_RESERVED), in which `path` says where in the request the message is.

    `raw` is the JSON text it was parsed from: the numbers of a JSON body are kept to the digit. Delays count from
    `now_ms`. `attributes` names the headers that hold CloudEvent attributes.
    """
    check_priority(context.caller, message.priority)
    try:
        made = of_tenant(context, draft_of(message, now_ms or context.now_ms, raw, attributes))
    except HeadraceError as error:
        raise (item_error(error, path) if path else error) from None
    return in_trace(made, trace_of(context.headers))


def draft_of(message: MessageBody, now_ms: int, raw: bytes = b"", attributes: Collection[str] = ()) -> Draft:
    """The message; see `draft`."""
    if (message.body is UNSET) == (message.body_base64 is UNSET):
        raise invalid("body", "give either body or body_base64")
    if message.delay_seconds is not None and message.deliver_at is not None:
        raise Refused("DELAY_AMBIGUOUS", "Give either delay_seconds or deliver_at.")
    if message.dedup_until == "done" and message.dedup_id is None:
        raise invalid("dedup_until", "goes with dedup_id")
    if message.callback_url is not None and host_of(message.callback_url) is None:
        raise invalid("callback_url", "must be a URL like https://host/path, without a user name")
    due_ms = now_ms + (message.delay_seconds or 0) * 1000
    if message.deliver_at is not None:
        due_ms = due(message.deliver_at, now_ms)
    check_delay(due_ms - now_ms)
    check_headers(message.headers, attributes)
    body, is_json, content_type = body_of(message, raw)
    return Draft(
        body=body,
        is_json=is_json,
        content_type=content_type,
        keys=tuple(message.keys),
        expires_ms=due_ms + message.expires_in_seconds * 1000 if message.expires_in_seconds else None,
        due_ms=due_ms if due_ms > now_ms else None,
        # Of what was given a time, be it over by now: its delay begins here.
        accepted_ms=now_ms if due_ms > now_ms or message.deliver_at is not None else None,
        **(retry_of(message.retry) if message.retry else {}),
        **fields.taken(message, "tag", "tenant", "ordering_key", "shard", "priority", "headers"),
        **fields.taken(message, "dedup_id", "dedup_until", "callback_url"),
        sent_ms=time_ms(message.sent_at, "sent_at") if message.sent_at is not None else None,
    )


def of_tenant(context: Context, draft: Draft) -> Draft:
    """The draft, with the tenant of the caller's token if that has one. Raises Forbidden for another tenant."""
    own = context.caller.tenant if context.caller else None
    if own is None or draft.tenant == own:
        return draft
    if draft.tenant is not None:
        words = f"Your token sends for the tenant {own!r} only: leave `tenant` out."
        raise Forbidden("TENANT_FORBIDDEN", words)
    return replace(draft, tenant=own)


def check_headers(
    headers: Mapping[str, str], attributes: Collection[str] = (), *, is_static: bool = False
) -> None:
    """Raises for headers that a message, or (`is_static`) a subscriber, may not have."""
    kind, spellings = "consumer" if is_static else "message", dict[str, str]()
    for name in headers:
        spelling = header_spelling(name) if is_static else name.lower()
        if (other := spellings.setdefault(spelling, name)) != name:
            issue = f"is the header {other!r} in another spelling; HTTP takes both for one"
            raise invalid(f"headers.{name}", issue)
        if name not in attributes and is_reserved(name, is_static=is_static):
            reason = "on its way it would be taken for the request's own"
            raise Refused("HEADER_RESERVED", f"A {kind} may not have the header {name!r}: {reason}.")
    most = lim.MAX_STATIC_HEADER_BYTES if is_static else lim.MAX_HEADERS_BYTES
    if sum(len(name) + len(value.encode()) for name, value in headers.items()) > most:
        raise TooLarge("HEADERS_TOO_LARGE", f"The headers together may have {most} bytes.")


def due(deliver_at: str, now_ms: int) -> int:
    """The time of a `deliver_at`, ms; a past time means now. Raises Refused if it is too far ahead."""
    due_ms = max(now_ms, time_ms(deliver_at, "deliver_at"))
    check_delay(due_ms - now_ms)
    return due_ms


def next_attempt(at: str, now_ms: int) -> int:
    """The time of a `next_attempt_at`, ms; a past time means now. Raises Refused if it is too far ahead."""
    due_ms = max(now_ms, time_ms(at, "next_attempt_at"))
    check_delay(due_ms - now_ms, "retry", lim.MAX_RETRY_SECONDS)
    return due_ms


def check_delay(delay_ms: int, kind: str = "message", most_seconds: int = lim.MAX_DELAY_SECONDS) -> None:
    """Raises Refused (DELAY_TOO_LONG)."""
    if delay_ms > most_seconds * 1000:
        raise Refused("DELAY_TOO_LONG", f"A {kind} may wait {most_seconds // DAY_SECONDS} days at most.")


def retry_of(override: settings.Retry) -> dict[str, Any]:
    """What a message says about its own retries: only what was given, the rest is its group's."""
    fields, kept = settings.retry_fields(override), ("max_attempts", "jitter", "steps_from")
    given = {name: value for name, value in fields.items() if name in kept}
    if fields.keys() & {"ladder", "base_seconds", "factor", "cap_seconds"}:
        given["ladder"] = ladder.steps(settings.retry(override))
    return given


def json_body(raw: bytes, body: Any) -> bytes:
    """The parsed `body` as compact JSON text, with its numbers exactly as in the raw request."""
    text = strict_json.member(raw, "body") if raw else b""
    return strict_json.compact(text, body)


def body_of(message: MessageBody, raw: bytes = b"") -> tuple[bytes, bool, str]:
    """The body's bytes, whether they are JSON, and their media type. `raw` as for `draft`. Raises Malformed."""
    if message.body is not UNSET:
        if message.content_type is not None:
            raise invalid("content_type", "goes with body_base64; a body is JSON")
        return json_body(raw, message.body), True, JSON
    return decoded_base64(str(message.body_base64)), False, message.content_type or "application/octet-stream"


def decoded_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise invalid("body_base64", "must be base64") from None


REQUEST, RESEND, APP = "headrace-request", "headrace-resend", "headrace-app"
PRODUCER_HEADERS = (REQUEST, RESEND, APP)


def producer(context: Context) -> str:
    """Who produces, as it is stored. Raises Malformed."""
    app = context.headers.get(APP, "")
    if app and not re.match(fields.APP, app):
        raise invalid(APP, "must have 1 to 64 letters, digits, ., _, / or -")
    return producer_text(context.by, app, context.source)


def request(context: Context) -> Request | None:
    """The name that the sender gave to a produce request, and how many seconds ago it was first sent."""
    name, seconds = context.headers.get(REQUEST), context.headers.get(RESEND)
    if name is None:
        if seconds is not None:
            raise invalid(RESEND, f"needs {REQUEST}, the same as when it was sent first")
        return None
    if not NAME.match(name):
        raise invalid(REQUEST, "must match [A-Za-z0-9._-]{1,128}")
    seconds_ago = seconds_since_first(context)
    if seconds_ago is None:
        return Request(name)
    received_ms = context.now_ms if context.received_ms is None else context.received_ms
    return Request(name, received_ms - seconds_ago * 1000)


def seconds_since_first(context: Context) -> int | None:
    """How long ago the request was sent first, as the sender says; 0: this is the first time."""
    seconds = context.headers.get(RESEND)
    if seconds is None:
        return None
    seconds_ago = whole_number(seconds, 6)
    if seconds_ago is None or seconds_ago > lim.MAX_RESEND_SECONDS:
        raise invalid(RESEND, f"must be the seconds since it was sent first: 0 to {lim.MAX_RESEND_SECONDS}")
    return seconds_ago


def item_error(error: HeadraceError, path: str) -> HeadraceError:
    """An item's error with paths that begin at the item."""
    issues = tuple(replace(i, path=f"{path}.{i.path}" if i.path else path) for i in error.issues)
    if error.code == "VALIDATION":
        return invalid(issues[0].path, issues[0].issue)
    return type(error)(error.code, error.detail, issues=issues)
