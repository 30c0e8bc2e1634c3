"""The expiry of a large body: a note of the day from which its blob, outside the log, may be deleted.

An empty object notes it in its name, `expiring/2026-12-02/orders!<topic uid>!3!1207!<body's id>`: a listing has the
names in the order of days, and no object has to be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from .message import Draft
from .segment import Segment, ShardKey
from .times import DAY_SECONDS, LAST_SECOND

FOLDER = "expiring/"
_BODIES = "bodies"
_TTL_S = 2 * DAY_SECONDS  # DynamoDB removes an expired row within two days, as a rule


def body_name(topic: str, topic_uid: str, body_id: str) -> str:
    """The name of a large body in the blob store."""
    return f"{_BODIES}/{topic}/{topic_uid}/{body_id}"


@dataclass(frozen=True, slots=True)
class BlobExpiry:
    """`day` (UTC) is the first on which the body may be deleted if no delivery needs it; `shard` and `offset` are its
    message's."""

    day: str
    shard: ShardKey
    offset: int
    body_id: str

    @property
    def body(self) -> str:
        """The body's name in the blob store."""
        return body_name(self.shard.topic, self.shard.topic_uid, self.body_id)

    @property
    def name(self) -> str:
        """The name of the object that notes it."""
        shard = self.shard
        parts = (shard.topic, shard.topic_uid, str(shard.shard), str(self.offset), self.body_id)
        return f"{FOLDER}{self.day}/{'!'.join(parts)}"


def day_of(at_s: int) -> str:
    """The day of a time, UTC; of what is none, as damaged rows may have it, the first or the last."""
    return datetime.fromtimestamp(min(max(at_s, 0), LAST_SECOND), UTC).date().isoformat()


def day_behind(expires_s: int) -> str:
    """The first day on which a row that expires then should be gone."""
    return day_of(expires_s + _TTL_S)


def of_draft(shard: ShardKey, segment: Segment, offset: int, draft: Draft) -> BlobExpiry | None:
    """The note for a message of the log, or for an entry of a retry lane that holds the message itself; None if the
    body is in the row."""
    parts = (draft.blob or "").split("/")
    if len(parts) != 4 or parts[0] != _BODIES:  # a damaged row may name anything
        return None
    _, topic, topic_uid, body_id = parts
    if draft.origin:
        shard, offset = ShardKey(topic, topic_uid, draft.origin.shard), draft.origin.offset
    return BlobExpiry(day_behind(segment.expires_s), shard, offset, body_id)


def parse(name: str) -> BlobExpiry | None:
    """The note in an object's name; None for any other object."""
    day, _, parts_text = name.removeprefix(FOLDER).partition("/")
    parts = parts_text.split("!")
    if len(parts) != 5 or not (parts[2].isdigit() and parts[3].isdigit()):
        return None
    topic, topic_uid, shard, offset, body_id = parts
    return BlobExpiry(day, ShardKey(topic, topic_uid, int(shard)), int(offset), body_id)
