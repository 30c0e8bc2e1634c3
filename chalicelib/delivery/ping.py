"""A test event: signed and sent like a message. Its type is `headrace.test`; a function gets a batch without
messages."""

from __future__ import annotations

from typing import Any

import msgspec

from ..domain.times import rfc3339
from ..domain.topic import Consumer
from .events import Post

TYPE = "headrace.test"


def post(consumer: Consumer, id: str, now_ms: int) -> Post:
    """The request that carries it: a CloudEvent in binary mode, without a place in any log."""
    at = rfc3339(now_ms)
    headers = {
        "Content-Type": "application/json",
        "Headrace-Topic": consumer.topic,
        "Headrace-Group": consumer.group,
        "ce-id": id,
        "ce-source": f"/topics/{consumer.topic}",
        "ce-specversion": "1.0",
        "ce-time": at,
        "ce-type": TYPE,
    }
    return Post(id, headers, msgspec.json.encode(_body(consumer, at)))


def event(consumer: Consumer, now_ms: int) -> bytes:
    """What a function gets: it has nothing to do, and answers as it does to any batch."""
    return msgspec.json.encode({**_body(consumer, rfc3339(now_ms)), "messages": []})


def _body(consumer: Consumer, at: str) -> dict[str, Any]:
    names = {"topic": consumer.topic, "group": consumer.group, "consumer": consumer.name}
    return {"test": True, **names, "sent_at": at}
