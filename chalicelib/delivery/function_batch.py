"""The event that a Lambda consumer gets and the answer it gives, by the convention of AWS's event sources
(batchItemFailures)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from ..domain import strict_json
from ..domain.call_result import Attempt, PushBatch
from ..domain.message import body_fields
from ..domain.times import rfc3339

_GIVEN = ("content_type", "keys", "tag", "tenant", "ordering_key", "headers")


class _Failure(msgspec.Struct):
    id: str = msgspec.field(name="itemIdentifier")


class _Answer(msgspec.Struct):
    failures: list[_Failure] | None = msgspec.field(name="batchItemFailures", default=None)


def event(push_batch: PushBatch) -> bytes:
    """A push batch as a function's event."""
    messages = [_message(attempt) for attempt in push_batch.attempts]
    return msgspec.json.encode({"topic": push_batch.topic, "group": push_batch.group, "messages": messages})


def failed_ids(sent_ids: Collection[str], answer: bytes) -> frozenset[str] | None:
    """The ids in the answer, of those in `sent_ids`. None if the answer is malformed or names another id: then
    nothing is known. An empty answer (null) means that all went well."""
    try:
        response = None if (answer or b"null").strip() == b"null" else strict_json.decoded(answer, _Answer)
    except (ValueError, RecursionError):
        return None
    ids = frozenset(failure.id for failure in (response.failures or ())) if response else frozenset()
    return ids if ids <= set(sent_ids) else None


def _message(attempt: Attempt) -> dict[str, Any]:
    message, draft = attempt.message, attempt.message.draft
    given = {name: getattr(draft, name) for name in _GIVEN}
    given |= {} if draft.priority is None else {"priority": draft.priority}
    accepted_at = rfc3339(message.first_accepted_ms)
    place = {"attempt": attempt.number, "shard": message.shard, "offset": message.offset}
    return {"id": message.id, **body_fields(draft), **given, "accepted_at": accepted_at, **place}
