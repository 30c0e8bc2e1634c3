"""CloudEvents 1.0: what a request to a URL looks like, in its three content modes; and a test.

A producer's own event was stored with its attributes as message headers `ce-*`. Id, source, time and version are
ours; its type, schema and extensions are kept, and its subject where the message has no key.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from ..domain.call_result import Attempt, PushBatch
from ..domain.message import TRACEPARENT, Draft, holds_json, is_reserved, traceparent
from ..domain.times import rfc3339
from ..domain.topic import Consumer, Payload

_TYPE = "headrace.message"
TEST_TYPE = "headrace.test"
_ATTRIBUTE = re.compile(r"[a-z0-9]{1,64}")
_NOT_KEPT = {"id", "source", "specversion", "time", "datacontenttype", "data", "data_base64"}
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F)))
_PLAIN = "".join(char for char in _PRINTABLE if char not in ' "%')  # CloudEvents' HTTP binding, 3.1.3.2
_ALL_PLAIN = re.compile(f"[{re.escape(_PLAIN)}]*")


class Post(NamedTuple):
    """A request: what is signed as its id, its headers (without the signature) and its body."""

    id: str
    headers: Mapping[str, str]
    body: bytes


def post(push_batch: PushBatch) -> Post:
    """The request that carries a push batch, in the content mode its group asked for."""
    first = push_batch.attempts[0]
    if push_batch.payload == "batch" or len(push_batch.attempts) > 1:
        return _batch(push_batch)
    headers = _forwarded_headers(first.message.draft) | _headers(push_batch, first)
    if push_batch.payload == Payload.STRUCTURED:
        headers["Content-Type"] = "application/cloudevents+json"
        return Post(first.message.id, headers, msgspec.json.encode(_event(push_batch, first)))
    attributes = _attributes(push_batch, first)
    headers |= {f"ce-{name}": _encoded(value, _PLAIN) for name, value in attributes.items()}
    draft = first.message.draft
    return Post(first.message.id, headers | {"Content-Type": draft.content_type}, draft.body)


def _batch(push_batch: PushBatch) -> Post:
    """A batch bears what differs by message as extensions; headers of its messages are not forwarded."""
    ids = "\n".join(attempt.message.id for attempt in push_batch.attempts)
    id = "batch-" + hashlib.sha256(ids.encode()).hexdigest()[:32]
    events = [
        {"headrace" + name: value for name, value in _extensions(attempt).items()}
        | _trace(attempt)
        | _event(push_batch, attempt)
        for attempt in push_batch.attempts
    ]
    headers = {"Headrace-Topic": push_batch.topic, "Headrace-Group": push_batch.group}
    headers["Content-Type"] = "application/cloudevents-batch+json"
    return Post(id, headers, msgspec.json.encode(events))


def _trace(attempt: Attempt) -> dict[str, str]:
    """CloudEvents' extension for distributed tracing."""
    parent = traceparent(attempt.message.draft)
    return {TRACEPARENT: parent} if parent else {}


def _attributes(push_batch: PushBatch, attempt: Attempt) -> dict[str, str]:
    """All but datacontenttype, which goes elsewhere in binary mode."""
    message = attempt.message
    attributes = {"type": _TYPE, **_producers(message.draft)}
    if message.draft.keys:
        attributes["subject"] = message.draft.keys[0]
    source, at = f"/topics/{push_batch.topic}", rfc3339(message.first_accepted_ms)
    return attributes | {"id": message.id, "source": source, "specversion": "1.0", "time": at}


def _producers(draft: Draft) -> dict[str, str]:
    """The attributes of the producer's own event that are kept."""
    headers = ((name.lower(), value) for name, value in draft.headers.items())
    attributes = ((name[3:], value) for name, value in headers if name.startswith("ce-") and value)
    return {name: value for name, value in attributes if name not in _NOT_KEPT and _ATTRIBUTE.fullmatch(name)}


def _event(push_batch: PushBatch, attempt: Attempt) -> dict[str, Any]:
    """An event in JSON format. A JSON body goes in as it stands, to the digit."""
    draft = attempt.message.draft
    event: dict[str, Any] = {**_attributes(push_batch, attempt), "datacontenttype": draft.content_type}
    if holds_json(draft):
        return event | {"data": msgspec.Raw(draft.body)}
    return event | {"data_base64": base64.b64encode(draft.body).decode()}


def _extensions(attempt: Attempt) -> dict[str, str]:
    message = attempt.message
    location = {"shard": str(message.shard), "offset": str(message.offset), "attempt": str(attempt.number)}
    if firing := message.draft.firing:
        location |= {"schedule": firing.schedule, "scheduled": rfc3339(firing.at_ms)}
    if message.draft.priority is not None:
        location |= {"priority": str(message.draft.priority)}
    own = {"tag": message.draft.tag, "tenant": message.draft.tenant}
    return location | {name: value for name, value in own.items() if value}


def _headers(push_batch: PushBatch, attempt: Attempt) -> dict[str, str]:
    location = {"topic": push_batch.topic, "group": push_batch.group, **_extensions(attempt)}
    return {f"Headrace-{name.capitalize()}": _encoded(value, _PRINTABLE) for name, value in location.items()}


def _forwarded_headers(draft: Draft) -> dict[str, str]:
    """The producer's own headers, but for reserved ones, which older messages may have. What is no printable ASCII is
    percent-encoded; the rest stays as it is, the percent sign too."""
    return {name: _encoded(text, _PRINTABLE) for name, text in draft.headers.items() if not is_reserved(name)}


def _encoded(value: str, plain_characters: str) -> str:
    """A header's value, percent-encoded but for the characters that are kept: hardly ever is there any other."""
    return value if _ALL_PLAIN.fullmatch(value) else quote(value, safe=plain_characters)


def test_post(consumer: Consumer, id: str, now_ms: int) -> Post:
    """The request that carries a test event: signed and sent like a message, without a place in any log."""
    at, topic = rfc3339(now_ms), consumer.topic
    event = {"id": id, "source": f"/topics/{topic}", "specversion": "1.0", "time": at, "type": TEST_TYPE}
    headers = {"Content-Type": "application/json", "Headrace-Topic": topic, "Headrace-Group": consumer.group}
    headers |= {f"ce-{name}": value for name, value in event.items()}
    return Post(id, headers, msgspec.json.encode(_test_body(consumer, at)))


def test_event(consumer: Consumer, now_ms: int) -> bytes:
    """What a function gets as a test: it has nothing to do, and answers as it does to any batch."""
    return msgspec.json.encode({**_test_body(consumer, rfc3339(now_ms)), "messages": []})


def _test_body(consumer: Consumer, at: str) -> dict[str, Any]:
    names = {"topic": consumer.topic, "group": consumer.group, "consumer": consumer.name}
    return {"test": True, **names, "sent_at": at}
