"""Fetching a body that was too large for the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...domain import redact
from ...domain.call_result import CallResult, Verdict
from ...domain.errors import Unavailable
from ...domain.message import Message
from ...domain.topic import Topic
from ...ports.world import Blobs, Clock

_PATIENCE_MS = 5_000  # after so long without a readable body, no others are tried
_PAUSE_MS = 10_000  # before a body that could not be read is tried again


def with_body(blobs: Blobs, message: Message) -> Message:
    """The message with its body; one read if it is in the blob store. If the body is gone for good the message stays
    without it: `has_body` is False."""
    if not message.draft.blob:
        return message
    body = blobs.get(message.draft.blob)
    return message if body is None else replace(message, draft=replace(message.draft, body=body))


def shown_body(blobs: Blobs, topic: Topic, message: Message) -> Message:
    """The message with its body as people see it."""
    return redact.shown(topic, with_body(blobs, message))


def with_bodies(blobs: Blobs, clock: Clock, messages: Sequence[Message]) -> list[Message | CallResult]:
    """Each message with its body, or a result: NOT_ATTEMPTED if the body cannot be read now, UNDECODABLE if it is
    gone. A failed body does not fail the others."""
    results: list[Message | CallResult] = []
    lost_ms = 0
    for message in messages:
        if not message.draft.blob:
            results.append(message)
            continue
        if lost_ms > _PATIENCE_MS:
            results.append(CallResult(Verdict.NOT_ATTEMPTED))
            continue
        began_ms = clock.now_ms()
        try:
            message = with_body(blobs, message)
        except Unavailable:
            lost_ms += clock.now_ms() - began_ms
            # Longer than for those that were not tried: otherwise the same message would come first again.
            results.append(CallResult(Verdict.NOT_ATTEMPTED, retry_after_ms=_PAUSE_MS))
            continue
        is_whole = message.draft.has_body
        results.append(message if is_whole else CallResult(Verdict.UNDECODABLE, "its body is gone"))
    return results
