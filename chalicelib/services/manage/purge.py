"""Drops what a group is owed: what waits in its shards, its leases and its retries. Each counts as skipped afterwards.

Safe to repeat: a call that dies leaves the rest owed, and each delivery is dropped in one write.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

from ...domain import by_hand, ranges
from ...domain.errors import Conflict, Unavailable, unavailable
from ...domain.message import Origin
from ...domain.record import Record
from ...domain.status import Status
from ...domain.timer import retry_id
from ...domain.times import SECOND_MS
from ...domain.topic import CursorKey, Group, Topic, cursor_key, cursor_keys
from ...ports.world import Clock
from ...store import Records, Timers
from ..core.catalog import Catalog
from ..core.cursor_store import CursorStore
from ..core.log_reader import LogReader
from ..core.tails import Tails
from ..inspect import waiting
from ..inspect.lookup import Filters
from ..produce.delayed import Delayed

_PER_WRITE = 45  # a transaction takes 100 actions
_PURGE_MS = 20 * SECOND_MS  # of one call; API Gateway waits 29 s for an answer


@dataclass(frozen=True, kw_only=True, slots=True)
class Purger:
    """Purges groups."""

    states: CursorStore
    records: Records
    timers: Timers
    tails: Tails
    reader: LogReader
    catalog: Catalog
    delayed: Delayed
    clock: Clock

    def purge(self, topic: Topic, group: Group, consumer_uids: Sequence[str]) -> int:
        """Drop what the group (in a broadcast: these consumers) is owed at this moment. Returns how many deliveries.
        Raises Unavailable if there is no time for all: the next call continues."""
        return self._purge(topic, group, consumer_uids, self.clock.now_ms() + _PURGE_MS)

    def _purge(self, topic: Topic, group: Group, consumer_uids: Sequence[str], until_ms: int) -> int:
        keys = [key for uid in consumer_uids for key in cursor_keys(topic, group, uid)]
        ends = {key.shard: self.tails.read(key.shard, topic.created_ms).offset + 1 for key in keys}
        # The shards first: from then on no lease of theirs makes a retry timer.
        count = sum(self._purge_shard(topic, key, ends[key.shard]) for key in keys)
        for uid in consumer_uids:
            lane = cursor_key(topic, group, None, uid)
            # The lane's leases may leave timers, and timers move to the lane: timers once more between two looks at it.
            count += self._purge_lane(topic, group, lane, until_ms)
            count += self._purge_timers(topic, group, uid, until_ms)
            count += self._purge_lane(topic, group, lane, until_ms)
        return count

    def purge_topic(self, topic: Topic, by: str = "") -> int:
        """Do so for all groups, and cancel what is delayed; prepared messages stay. Returns how many deliveries and
        delayed messages. `by` is the token's id. Raises Unavailable as for a group."""
        until_ms = self.clock.now_ms() + _PURGE_MS
        count = self._cancel_delayed(topic, by, until_ms)
        for group in self.catalog.groups(topic):
            self._check_time(until_ms)
            count += self._purge(topic, group, self.catalog.cursor_owners(topic, group), until_ms)
        return count

    def _cancel_delayed(self, topic: Topic, by: str, until_ms: int) -> int:
        """Cancel delayed messages. One that comes due meanwhile is in the log, where its groups' purge finds it."""
        count = 0
        read, position = waiting.reader(self.timers), None
        while True:
            rows, position = waiting.soonest_first(read, topic, Filters(), None, _PER_WRITE, position)
            for row in rows:
                with suppress(Conflict):
                    self.delayed.cancel(topic, row, by)
                    count += 1
            if position is None:
                return count
            self._check_time(until_ms)

    def _purge_shard(self, topic: Topic, key: CursorKey, end: int) -> int:
        snapshot = self.states.read(key)
        while not snapshot.cursor.is_closed:
            purged_ranges = by_hand.owed(snapshot.cursor, end)
            if not purged_ranges:
                break
            if self.states.write_after(key, snapshot, by_hand.purge(snapshot.cursor, end, end)):
                with suppress(Unavailable):  # it is done, and a repeat would count 0
                    self.records.note_purge(key, purged_ranges, topic.expires_s(self.clock.now_ms()))
                return ranges.total(purged_ranges)
            snapshot = self.states.last(key)
        return 0

    def _purge_lane(self, topic: Topic, group: Group, lane: CursorKey, until_ms: int) -> int:
        """Drop the entries of the retry lane, a write for so many as one can hold."""
        end = self.tails.read(lane.shard, group.created_ms).offset + 1
        snapshot, count = self.states.read(lane), 0
        while not snapshot.cursor.is_closed:
            owed = (offset for low, high in by_hand.owed(snapshot.cursor, end) for offset in range(low, high))
            offsets = list(islice(owed, _PER_WRITE))
            if not offsets:
                break
            self._check_time(until_ms)
            slots = list(self.reader.fetch(lane.shard, offsets).values())
            origins = [slot.message.draft.origin for slot in slots if slot.message]
            records = [self._skipped(topic, group, lane.consumer_uid, each) for each in origins if each]
            part_end = offsets[-1] + 1
            segment_at = self.reader.segment_at(lane.shard, slots, part_end)
            after = by_hand.purge(snapshot.cursor, part_end, segment_at)
            if self.states.write_after(lane, snapshot, after, records):
                count += len(records)
            snapshot = self.states.last(lane)
        return count

    def _purge_timers(self, topic: Topic, group: Group, consumer_uid: str, until_ms: int) -> int:
        """Drop what waits in retry timers, many in one transaction. One that has moved to the lane, or has become
        another, is left."""
        mine = (r for r in self.records.apart(topic.uid, group.uid) if r.consumer_uid == consumer_uid)
        count = 0
        while batch := list(islice(mine, _PER_WRITE)):
            self._check_time(until_ms)
            if self._take(topic, group, consumer_uid, batch):
                count += len(batch)
            else:
                count += sum(self._take(topic, group, consumer_uid, [record]) for record in batch)
        return count

    def _take(self, topic: Topic, group: Group, uid: str, waiting: Sequence[Record]) -> bool:
        retries = [(r.next_ms or 0, retry_id(group.uid, uid, r.shard, r.offset, r.attempts)) for r in waiting]
        records = [self._skipped(topic, group, uid, record) for record in waiting]
        return self.timers.take(retries, cursor_key(topic, group, None, uid), records)

    def _skipped(self, topic: Topic, group: Group, consumer_uid: str, delivery: Origin | Record) -> Record:
        now_ms, key = self.clock.now_ms(), cursor_key(topic, group, delivery.shard, consumer_uid)
        shard, offset, attempts = delivery.shard, delivery.offset, delivery.attempts
        record = Record(shard=shard, offset=offset, status=Status.SKIPPED, attempts=attempts, at_ms=now_ms)
        return replace(record, consumer_uid=consumer_uid, of=key, expires_s=topic.expires_s(now_ms))

    def _check_time(self, until_ms: int) -> None:
        if self.clock.now_ms() >= until_ms:
            raise unavailable("To drop so much takes longer than one call may; repeat the call.")
