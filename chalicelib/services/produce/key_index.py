"""Business keys: what is noted of a message when it is accepted."""

from __future__ import annotations

from ...domain.append import KeyEntry
from ...domain.message import Draft


def entries_of(
    topic_uid: str, draft: Draft, message_id: str, accepted_ms: int, expires_s: int
) -> list[KeyEntry]:
    """What finds a message by its keys; to be noted before the message is stored."""
    return [KeyEntry(topic_uid, key, message_id, accepted_ms, expires_s) for key in dict.fromkeys(draft.keys)]
