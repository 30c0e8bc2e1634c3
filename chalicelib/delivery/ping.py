"""A test event: signed and addressed as a message is, and none. Its type is `headrace.test`."""

from __future__ import annotations

import msgspec

from ..domain.topic import Consumer
from .events import Post, rfc3339

TYPE = "headrace.test"


def post(consumer: Consumer, id: str, now_ms: int) -> Post:
    """The request that carries it: a CloudEvent in binary mode, without a place in any log."""
    at = rfc3339(now_ms)
    body = {"test": True, "topic": consumer.topic, "group": consumer.group, "consumer": consumer.name}
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
    return Post(id, headers, msgspec.json.encode({**body, "sent_at": at}))
