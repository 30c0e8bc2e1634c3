"""Messages out of requests: CloudEvents 1.0 in its binary, structured and batch modes."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import msgspec

from .. import typed
from ..models import Message

TEST = "headrace.test"
"""The type of a test event, which checks that a subscriber answers."""

_STRUCTURED = "application/cloudevents+json"
_BATCH = "application/cloudevents-batch+json"
_NOT_THE_PRODUCERS = (
    "ce-",
    "webhook-",
    "headrace-",
    "content-",
    "host",
    "user-agent",
    "accept",
    "connection",
)
_ENCODED = re.compile(r"(?:%[89A-F][0-9A-F])+")


class Event(Message, frozen=True, kw_only=True, rename={"raw_body": "body"}):
    """A message as it was pushed: a `Message` (without a receipt: the answer settles it) with the other attributes of
    its CloudEvent."""

    type: str = ""
    source: str = ""
    attributes: dict[str, str] = msgspec.field(default_factory=dict)


def events_of(headers: Mapping[str, str], body: bytes) -> list[Event]:
    """The messages of one request. `headers` by lower-case names. ValueError for what is no CloudEvent of Headrace."""
    media = headers.get("content-type", "").split(";")[0].strip().lower()
    if media == _BATCH:
        return [_of_json(each, headers) for each in typed.decoded(body, list[dict[str, msgspec.Raw]])]
    if media == _STRUCTURED:
        return [_of_json(typed.decoded(body, dict[str, msgspec.Raw]), headers)]
    if "ce-id" not in headers:
        raise ValueError("The request is no CloudEvent.")
    attributes = {name[3:]: unquote(value) for name, value in headers.items() if name.startswith("ce-")}
    media = headers.get("content-type", "application/octet-stream")
    return [_event(attributes, headers, media, _content_of(body, media))]


def _of_json(fields: Mapping[str, msgspec.Raw], headers: Mapping[str, str]) -> Event:
    attributes = {
        name: str(msgspec.json.decode(value))
        for name, value in fields.items()
        if name not in ("data", "data_base64")
    }
    media = attributes.pop("datacontenttype", "application/json")
    if "data_base64" in fields:
        return _event(
            attributes, headers, media, {"body_base64": msgspec.json.decode(fields["data_base64"], type=str)}
        )
    return _event(attributes, headers, media, {"raw_body": fields.get("data", msgspec.Raw(b"null"))})


def _event(
    attributes: dict[str, str], headers: Mapping[str, str], media: str, content: Mapping[str, Any]
) -> Event:
    def place(name: str) -> str | None:
        """In a batch it is the event's, else the request's."""
        return attributes.pop(f"headrace{name}", None) or headers.get(f"headrace-{name}")

    id, source = attributes.pop("id"), attributes.pop("source", "")
    kind, time, subject = (attributes.pop(name, "") for name in ("type", "time", "subject"))
    attributes.pop("specversion", None)
    names = ("shard", "offset", "attempt", "tag", "tenant")
    shard, offset, attempt, tag, tenant = map(place, names)
    return Event(
        id=id,
        topic=headers.get("headrace-topic") or source.rpartition("/")[2],
        group=headers.get("headrace-group", ""),
        type=kind,
        source=source,
        attributes=attributes,
        content_type=media,
        keys=[subject] if subject else [],
        tag=_text(tag),
        tenant=_text(tenant),
        headers={n: v for n, v in headers.items() if not n.startswith(_NOT_THE_PRODUCERS)},
        shard=int(shard) if shard else None,
        offset=int(offset) if offset else None,
        attempt=int(attempt or 1),
        accepted_at=typed.converted(time, datetime) if time else None,
        **content,
    )


def _text(value: str | None) -> str | None:
    return _ENCODED.sub(lambda part: unquote(part[0]), value) if value else None


def _content_of(body: bytes, media: str) -> dict[str, Any]:
    """As a pulled message has it: bytes, also of a body that is said to be JSON and is none."""
    kind = media.partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        with suppress(ValueError, RecursionError):
            msgspec.json.decode(body)
            return {"raw_body": msgspec.Raw(body)}
    return {"body_base64": base64.b64encode(body).decode()}
