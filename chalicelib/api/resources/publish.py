"""Publishing a raw body of any content type. CloudEvents 1.0 in binary and structured mode are recognised."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from ...domain import strict_json
from ...domain.errors import UnsupportedMedia
from ...domain.limits import MAX_CONTENT_TYPE_CHARS, MAX_DEDUP_ID_CHARS
from ...domain.message import Draft
from .. import parse
from ..calls import PRODUCE, Context, Response, call
from ..http import convert, invalid
from .produce import Produced, store_one

_OPTIONS = {
    "headrace-key": "keys",
    "headrace-tag": "tag",
    "headrace-tenant": "tenant",
    "headrace-ordering-key": "ordering_key",
    "headrace-dedup-id": "dedup_id",
    "headrace-dedup-until": "dedup_until",
    "headrace-delay-seconds": "delay_seconds",
    "headrace-callback-url": "callback_url",
    "headrace-sent-at": "sent_at",
    "headrace-priority": "priority",
}
_HEADERS = (*_OPTIONS, *parse.PRODUCER_HEADERS)
_OURS = "headrace-"
_FORWARD = "headrace-forward-"
_STRUCTURED = "application/cloudevents+json"
_BATCH = "application/cloudevents-batch"
_ATTRIBUTE = r"[a-z0-9]{1,64}\Z"
_REQUIRED = ("id", "source", "type")


@call("POST", "/v1/publish/{topic}", scopes=PRODUCE, any_media=True, headers=_HEADERS, statuses=(200, 201))
def publish(context: Context) -> Response[Produced]:
    """Accept the raw body as one message, with options in headers."""
    return store_one(context, _draft(context))


def _draft(context: Context) -> Draft:
    headers = {name.lower(): _decoded(value) for name, value in context.headers.items()}
    _check_options(headers)
    media = headers.get("content-type", "application/octet-stream")
    fields: dict[str, Any] = {name: headers[header] for header, name in _OPTIONS.items() if header in headers}
    if "keys" in fields:
        fields["keys"] = [fields["keys"]]
    if "delay_seconds" in fields:
        fields["delay_seconds"] = _delay_seconds(fields["delay_seconds"])
    if (priority := parse.whole_number(fields.get("priority", ""), 1)) is not None:
        fields["priority"] = priority
    forwarded = {name[len(_FORWARD) :]: value for name, value in headers.items() if name.startswith(_FORWARD)}
    body = context.raw
    kind = media.split(";")[0].strip().lower()
    if kind.startswith(_BATCH):  # who sends one knows only one answer for all its events
        many = "many messages to POST /v1/topics/{topic}/messages/batch, which answers for each"
        words = f"Send each CloudEvent in a request of its own, as {_STRUCTURED}; or {many}."
        raise UnsupportedMedia("UNSUPPORTED_MEDIA_TYPE", words)
    is_structured = kind == _STRUCTURED
    if is_structured:
        event, body, media = _parse_structured(context.raw)
    else:
        event = {name[3:]: _unquoted(name, text) for name, text in headers.items() if name.startswith("ce-")}
    attributes: dict[str, str] = {}
    if not is_structured and event.keys() & {"id", "source", "type"} and "specversion" not in event:
        raise invalid("ce-specversion", "is missing; without it the other ce-* headers make no CloudEvent")
    if is_structured or "specversion" in event:
        _check_event(event)
        attributes = {f"ce-{name}": value for name, value in event.items()}
        fields.setdefault("dedup_id", _event_dedup_id(event))
    if twice := forwarded.keys() & attributes:
        raise invalid(min(twice), "is given as an attribute of the event, too")
    message = convert({**fields, "headers": forwarded | attributes, "body": None}, parse.MessageBody)
    draft = parse.draft(context, message, attributes=attributes)
    return _with_raw(draft, body, media)


def _decoded(value: str) -> str:
    """A header's text. Clients send UTF-8, which the gateway may have decoded as Latin-1."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def _unquoted(name: str, value: str) -> str:
    """An attribute's value. Strictly: two ids that are no text must not become one."""
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise invalid(name[:64], "is not UTF-8 behind its percent-encoding") from None


def _check_options(headers: Mapping[str, str]) -> None:
    """Refuse a misspelt option instead of ignoring it."""
    for name in headers:
        if name.startswith(_OURS) and name not in _HEADERS and not name.startswith(_FORWARD):
            raise invalid(name[:64], "unknown option")


def _with_raw(draft: Draft, body: bytes, media: str) -> Draft:
    if not media.isascii() or not media.isprintable() or not 1 <= len(media) <= MAX_CONTENT_TYPE_CHARS:
        raise invalid("content-type", f"must be 1 to {MAX_CONTENT_TYPE_CHARS} printable ASCII characters")
    return replace(draft, body=body, is_json=False, content_type=media)


def _parse_structured(raw: bytes) -> tuple[dict[str, str], bytes, str]:
    """Attributes, body and media type of a structured event."""
    event = strict_json.parse(raw)
    if not isinstance(event, dict):
        raise invalid("", "a structured CloudEvent is a JSON object")
    attributes = {
        name: _text(name, value)
        for name, value in event.items()
        if name not in ("data", "data_base64") and value is not None  # null is as good as not there
    }
    usual = "application/octet-stream" if "data_base64" in event else "application/json"
    media = attributes.pop("datacontenttype", usual)  # the message has it as its own content type
    if "data_base64" in event:
        if "data" in event:
            raise invalid("data", "give either data or data_base64")
        message = convert({"body_base64": event["data_base64"]}, parse.MessageBody)
        body, _, _ = parse.body_of(message)
        return attributes, body, media
    if "data" not in event:
        return attributes, b"", media
    data = event["data"]
    if isinstance(data, str) and "json" not in media:
        return attributes, data.encode(), media
    return attributes, strict_json.compact(strict_json.member(raw, "data"), data), media


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int)):
        raise invalid(name[:64], "a CloudEvents attribute is a string, a whole number or a boolean")
    return str(value)


def _check_event(event: Mapping[str, str]) -> None:
    if event.get("specversion") != "1.0":
        raise invalid("specversion", "must be 1.0")
    for name in _REQUIRED:
        if not event.get(name):
            raise invalid(name, "a CloudEvent needs it")
    for name in event:
        if not re.match(_ATTRIBUTE, name):
            raise invalid(name[:64], "is no name of a CloudEvents attribute")


def _event_dedup_id(event: Mapping[str, str]) -> str:
    """`source` + `id` name an event; a pair that is long, or could be read as another, is kept as its hash."""
    source, id = event["source"], event["id"]
    text = f"{source}|{id}"
    if len(text) <= MAX_DEDUP_ID_CHARS and "|" not in source:
        return text
    return hashlib.sha256(f"{len(source)}|{text}".encode()).hexdigest()


def _delay_seconds(text: str) -> int:
    seconds = parse.whole_number(text, 12)
    if seconds is None:
        raise invalid("headrace-delay-seconds", "must be a whole number of seconds")
    return seconds
