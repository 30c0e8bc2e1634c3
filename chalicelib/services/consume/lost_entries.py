"""Deliveries whose entry in a retry lane is lost: its row is damaged in both places that name the message.

Such an entry no longer leads to its message. But a delivery whose record is RETRYING and overdue, and which has neither
a timer nor an entry, must be the lost one. It becomes a dead letter, since the entry may have held another content than
the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...domain import ranges
from ...domain.cursor import Cursor
from ...domain.ids import message_id
from ...domain.message import DeadReason, Draft, Message
from ...domain.record import Record
from ...domain.segment import ShardKey
from ...domain.status import Status
from ...domain.timer import retry_id
from ...domain.topic import cursor_key
from .claimant import Claimant

if TYPE_CHECKING:
    from ...store.log import Log
    from ...store.records import Records
    from ...store.timers import Timers


_ROWS = 16
_NOTHING = Draft(b"", is_json=False, dead_reason=DeadReason.UNDECODABLE)


class LostEntries:
    """Searches for them after a claim has met an unreadable entry: two reads for each overdue delivery."""

    def __init__(self, log: Log, records: Records, timers: Timers) -> None:
        self._log = log
        self._records = records
        self._timers = timers

    def records_instead(
        self, claimant: Claimant, lane: Cursor, dead_records: Sequence[Record], most: int, now_ms: int
    ) -> list[Record]:
        """The dead letters that a claim on a retry lane makes instead of `dead_records`, `most` at most: for entries
        that name no message, the deliveries that have lost their entry."""
        nameless = [record for record in dead_records if record.of is None]
        if not nameless:
            return list(dead_records)
        references = [record for record in dead_records if record.of is not None]
        drafts = (record.message.draft for record in nameless if record.message)
        records: list[Record] = []
        for orphan in self._orphans(claimant, lane, now_ms):
            if len(references) + len(records) >= most:
                break
            records.append(self._dead_record(claimant, orphan, next(drafts, _NOTHING), now_ms))
        return [*references, *records, *nameless[len(records) :]][:most]

    def _orphans(self, claimant: Claimant, lane: Cursor, now_ms: int) -> Iterator[Record]:
        """Records of deliveries with neither a timer nor an entry. A fired timer leaves an entry, so the timer is
        searched for first."""
        retry_records = [
            record for record in self._overdue(claimant, now_ms) if not self._has_timer(claimant, record)
        ]
        entries = set(self._entries(claimant.key(None).shard, lane)) if retry_records else set()
        yield from (record for record in retry_records if (record.shard, record.offset) not in entries)

    def _overdue(self, claimant: Claimant, now_ms: int) -> Iterator[Record]:
        for each in self._records.unfinished(claimant.topic.uid, claimant.group.uid):
            if each.status != Status.RETRYING or each.consumer_uid != claimant.consumer_uid:
                continue
            delivery_key = cursor_key(claimant.topic, claimant.group, each.shard, each.consumer_uid)
            record = self._records.get(delivery_key, each.offset)
            is_retrying = record is not None and record.status == Status.RETRYING
            if record and is_retrying and record.next_ms is not None and record.next_ms <= now_ms:
                yield record

    def _has_timer(self, claimant: Claimant, record: Record) -> bool:
        key = claimant.key(None)
        id = retry_id(key.group_uid, key.consumer_uid, record.shard, record.offset, record.attempts)
        return self._timers.find(record.next_ms or 0, id) is not None

    def _entries(self, lane: ShardKey, cursor: Cursor) -> Iterator[tuple[int, int]]:
        """Shard and offset of the messages that the lane's unsettled entries refer to."""
        rows = self._log.read(lane, cursor.floor, _ROWS, consistent=True)
        while rows:
            for row in rows:
                for offset, draft in enumerate(row.drafts, row.first):
                    is_open = offset >= cursor.next or not ranges.contains(cursor.settled, offset)
                    if draft.origin and is_open:
                        yield draft.origin.shard, draft.origin.offset
            rows = self._log.read(lane, rows[-1].end, _ROWS, consistent=True)

    def _dead_record(self, claimant: Claimant, orphan: Record, remains: Draft, now_ms: int) -> Record:
        shard, offset = orphan.shard, orphan.offset
        rows = self._log.read_back(claimant.topic.shard_key(shard), offset, 1, consistent=True)
        message = rows[0].message(shard, offset) if rows and rows[0].end > offset else None
        id = message.id if message else message_id("damaged", shard, offset)
        accepted_ms = message.accepted_ms if message else 0
        return Record(
            shard=shard,
            offset=offset,
            status=Status.DEAD,
            attempts=orphan.attempts,
            at_ms=now_ms,
            consumer_uid=orphan.consumer_uid,
            reason=DeadReason.UNDECODABLE,
            last_error=orphan.last_error,
            attempts_before_redrive=orphan.attempts_before_redrive,
            of=cursor_key(claimant.topic, claimant.group, shard, orphan.consumer_uid),
            message=Message(id, shard, offset, accepted_ms, remains),
        )
