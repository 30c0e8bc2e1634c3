"""Deduplication: the entry of a dedup id, and whether a second use is the same message."""

from __future__ import annotations

import hashlib

from ...domain.append import DedupEntry
from ...domain.errors import Conflict
from ...domain.message import TRACEPARENT, Draft
from ...domain.topic import Topic


def content_hash(draft: Draft) -> str:
    """What must be equal for two uses of a dedup id to be the same message: not its delay, expiry and retry."""
    content = (
        draft.body,
        draft.content_type,
        draft.keys,
        draft.tag,
        draft.ordering_key,
        draft.shard,
        sorted(
            item for item in draft.headers.items() if item[0].lower() != TRACEPARENT
        ),  # each try has its own
    )
    return hashlib.blake2b(repr(content).encode(), digest_size=16).hexdigest()


def entry_of(topic: Topic, draft: Draft, message_id: str, accepted_ms: int) -> DedupEntry:
    """What is kept of the first use, until its window ends."""
    return DedupEntry(
        topic.uid,
        draft.dedup_id or "",
        content_hash(draft),
        message_id,
        accepted_ms,
        window_end_ms(topic, draft, accepted_ms),
    )


def window_end_ms(topic: Topic, draft: Draft, accepted_ms: int) -> int:
    """Until when a dedup id is remembered: of a delayed message the window begins when it is due."""
    return max(accepted_ms, draft.due_ms or 0) + topic.dedup_window_seconds * 1000


def mismatch() -> Conflict:
    """The error of a dedup id's second use for something else."""
    return Conflict("DEDUP_MISMATCH", "This dedup_id was used for another message within the window.")
