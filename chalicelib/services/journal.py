"""The journal: the records of the log's and traces' streams, as lines of JSON in the bucket (docs/journal.md).

The archive is made of it. An object holds the rows of one batch and one hour. Its name is derived from the batch, so a
repeated batch overwrites its own object.
"""

from __future__ import annotations

import base64
import gzip
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from ..domain import blob_expiry
from ..domain.blob_expiry import BlobExpiry
from ..domain.message import DeadReason, Draft
from ..domain.segment import Segment, ShardKey, UnreadableRecord, Written
from ..domain.trace import NOT_ARCHIVED, AttemptOutcome, TraceRow
from ..ports.world import Blobs
from ..store.changes import batch_name, written_rows

VERSION = 1
MESSAGES, DELIVERIES = "messages", "deliveries"
QUARANTINE = "quarantine"
TOMBSTONE, CANCELLED, DAMAGED = "tombstone", "cancelled", "undecodable"
Line = dict[str, Any]
Records = Sequence[Mapping[str, Any]]


class Journal:
    """Writes batches of stream records down."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def write(self, records: Records) -> dict[str, int]:
        """Store a batch, as `store`."""
        return self.store(written_rows(records), batch_name(records))

    def store(self, rows: Sequence[Written | TraceRow | UnreadableRecord], batch: str) -> dict[str, int]:
        """Store the rows of a batch. Returns how many lines and objects. Harmless to repeat. Raises Unavailable; the
        batch must be repeated then.

        A record that cannot be read is stored unchanged in a quarantine folder, and the records after it are
        processed: if it stopped its shard, all of them would be lost when the stream expires.
        """
        objects: defaultdict[str, list[bytes]] = defaultdict(list)
        bodies: set[BlobExpiry] = set()
        for row in rows:
            bodies.update(large_bodies(row))
            for folder, line in lines(row):
                objects[folder].append(_encode(line))
        unreadable = len(objects.get(QUARANTINE, ()))
        for folder, content in objects.items():
            name = f"journal/{folder}/{batch}.jsonl.gz"
            self._blobs.put(name, gzip.compress(b"".join(content), 6, mtime=0))
        for name in sorted(body.name for body in bodies):
            self._blobs.put(name, b"")
        counts = {"lines": sum(map(len, objects.values())) - unreadable, "objects": len(objects)}
        return counts | ({"unreadable": unreadable} if unreadable else {})


def lines(row: Written | TraceRow | UnreadableRecord) -> Iterator[tuple[str, Line]]:
    """The lines of a row, each with its folder. Entries of retry lanes are only references: they have none."""
    if isinstance(row, UnreadableRecord):
        yield QUARANTINE, dict(row.record)
    elif isinstance(row, TraceRow):
        folder = _folder(DELIVERIES, row.started_ms)
        yield from ((folder, line) for line in _deliveries(row))
    elif "~" not in row.shard.topic:
        folder = _folder(MESSAGES, row.segment.accepted_ms)
        yield from ((folder, line) for line in _messages(row.shard, row.segment))


def large_bodies(row: Written | TraceRow | UnreadableRecord) -> Iterator[BlobExpiry]:
    """The bodies that lie outside the log for a row's messages, with the day from which on they may go."""
    if isinstance(row, Written):
        for offset, draft in enumerate(row.segment.drafts, row.segment.first):
            if body := blob_expiry.of_draft(row.shard, row.segment, offset, draft):
                yield body


def _folder(table: str, at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(f"{table}/day=%Y-%m-%d/hour=%H")


def _messages(shard: ShardKey, segment: Segment) -> Iterator[Line]:
    for offset in range(segment.first, segment.end):
        location = {
            "v": VERSION,
            "topic": shard.topic,
            "topic_uid": shard.topic_uid,
            "shard": shard.shard,
            "offset": offset,
            "edition": segment.edition,
            "accepted_ms": segment.accepted_ms,
        }
        message = segment.message(shard.shard, offset)
        content = {"id": message.id, **_content(message.draft)} if message else {"void": TOMBSTONE}
        yield location | content


def _content(draft: Draft) -> Line:
    if draft.cancelled:
        return {"void": CANCELLED}
    if draft.dead_reason == DeadReason.UNDECODABLE:
        return {"void": DAMAGED}
    line = {
        "tag": draft.tag,
        "tenant": draft.tenant,
        "keys": list(draft.keys),
        "ordering_key": draft.ordering_key,
        "headers": dict(draft.headers),
        "content_type": draft.content_type,
        **_body(draft),
    }
    return {name: value for name, value in line.items() if value is not None}


def _body(draft: Draft) -> Line:
    if draft.blob:
        return {"body_blob": draft.blob}
    try:
        return {"body": draft.body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(draft.body).decode()}


def _deliveries(row: TraceRow) -> Iterator[Line]:
    for attempt in row.entries:
        if attempt.outcome in NOT_ARCHIVED:
            continue
        yield {
            "v": VERSION,
            "topic": row.key.shard.topic,
            "topic_uid": row.key.shard.topic_uid,
            "group": row.group,
            "group_uid": row.key.group_uid,
            "shard": row.key.shard.shard,
            "offset": attempt.offset,
            "attempt": attempt.attempt,
            "consumer": row.consumer,
            "consumer_uid": row.key.consumer_uid,
            "started_ms": row.started_ms,
            "duration_ms": attempt.duration_ms,
            "outcome": attempt.outcome,
            "detail": attempt.detail if attempt.outcome != AttemptOutcome.REDRIVEN else "",
            "trace": row.id,
        }


def _encode(line: Line) -> bytes:
    return msgspec.json.encode(line) + b"\n"
