"""What does not fit together after tables were restored to different times: found, and put right.

`look` is the daily check's: it reads a sample and writes nothing. `Repair.run` is the operator's (`make repair`,
`headrace-local repair`). Each step is safe at any time and may be repeated; a message may be delivered twice by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from functools import cache, partial
from itertools import product

from ...domain.cursor import Cursor, OffsetState, offset_state, unsettled
from ...domain.errors import NotFound
from ...domain.limits import TAIL_TRUST
from ...domain.message import DeadReason
from ...domain.record import Record
from ...domain.segment import Tail
from ...domain.status import Status
from ...domain.timer import Timer, TimerKind
from ...domain.topic import CursorKey, Group, Topic, cursor_key
from ...domain.trace import AttemptOutcome
from ...domain.transaction import TransactionState, check_timer
from ...ports.world import Clock
from ...store import Control, Cursors, Log, Records, Timers, Traces, Transactions
from ..consume import retry_lane
from ..core.catalog import Catalog
from ..core.log_reader import LogReader
from ..inspect.fate import FateReader, Place, lane_ahead

TRUST_MINUTES = TAIL_TRUST // timedelta(minutes=1)
_PAGE = 100  # timers
_RECORDS_SAMPLED = 20
_TIMERS_SAMPLED = 10
_LOOKS = 3  # what moves during a look is found at the next one
_LANE_ROWS = 64  # of a retry lane, that the daily check reads for a record


class Kind(StrEnum):
    """What was found, in words for the operator."""

    LOG_BEHIND = "the log ends below the cursor"
    NO_TIMER = "a retry has no timer"
    NO_MESSAGE = "a failed delivery has lost its message"
    NO_RECORD = "a retry timer has no record"
    NO_LETTER = "a dead record has no dead letter"
    NO_CHECK = "a transaction has no check"


# The write units of putting one right, where all rows are small (1 for the others).
_WRITES = {Kind.LOG_BEHIND: 2, Kind.NO_MESSAGE: 4, Kind.NO_RECORD: 2, Kind.NO_LETTER: 4}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not fit together. `shard` is None in a retry lane; `offset` is the first of `count`
    messages, of which `lost` were still to be delivered and are gone."""

    kind: Kind
    topic: str
    group: str = ""
    shard: int | None = None
    offset: int = 0
    count: int = 1
    lost: int = 0

    @property
    def write_units(self) -> int:
        """What it costs to put right, about."""
        return _WRITES.get(self.kind, 1)


# By the uid of a broadcast's consumer (else ""): the shards and offsets of what waits in the retry lane's log.
InLane = Callable[[str], set[tuple[int, int]]]
Owners = Sequence[tuple[Group, str]]  # a group and "", or a broadcast's and the uid of one of its consumers


@dataclass(frozen=True, kw_only=True, slots=True)
class Repair:
    """Looks at topics, and puts right what it finds unless it only looks (`dry`). `restore_marks` has the sweep visit
    a topic in which something is to be delivered."""

    control: Control
    catalog: Catalog
    log: Log
    reader: LogReader
    cursors: Cursors
    records: Records
    timers: Timers
    traces: Traces
    transactions: Transactions
    fates: FateReader
    clock: Clock
    restore_marks: Callable[[Topic, Callable[[], bool]], None]

    def topic(self, topic: Topic, *, dry: bool) -> Iterator[Finding]:
        """One topic: its logs, deliveries and transactions. Reads all its cursors and records."""
        groups = self.control.groups(topic)
        owners = [(group, uid) for group in groups for uid in self.control.cursor_owners(topic, group)]
        of_owner = partial(self.cursors.of_owner, consistent=True)
        cursors = {(group.uid, uid): of_owner(group.uid, uid) for group, uid in owners}
        for number, (group, uid) in product((*topic.shard_numbers, None), owners):
            key = cursor_key(topic, group, number, uid)
            cursor = cursors[group.uid, uid].get(str(key.shard), Cursor())
            if finding := self._behind(topic, group, number, key, cursor, self.log.tail(key.shard)):
                yield finding
                if not dry:
                    self.log.raise_counter(key.shard, cursor.next)
                    self.log.checkpoint(key.shard, Tail(cursor.next - 1))
        for group in {group.uid: group for group, _ in owners}.values():
            uids = {uid for owner, uid in owners if owner.uid == group.uid}
            in_lane = cache(partial(self._lane_entries, topic, group))
            for number in topic.shard_numbers:
                for record in self.records.of_shard(group.uid, topic.shard_key(number)):
                    if record.consumer_uid in uids:
                        yield from self._record(topic, group, record, in_lane, dry=dry)
        yield from self._transactions(topic, dry=dry)
        if not dry:
            self.restore_marks(topic, lambda: True)

    def retries(self, *, dry: bool) -> Iterator[Finding]:
        """The retry timers of all topics."""
        for fragment in self.timers.fragments():
            behind = ""
            while page := self.timers.behind(fragment, behind, _PAGE):
                yield from self._timers(page, dry=dry)
                behind = page[-1].sort_key

    def look(self, topic: Topic, owners: Owners, number: int, tail: Tail, turn: int) -> Iterator[Finding]:
        """The daily check of one shard, for some units: the cursors on it, a few of its records (in each turn from
        another offset on), and a few retry timers."""
        for group, uid in owners:
            for shard in (number, None) if number == 0 else (number,):
                key = cursor_key(topic, group, shard, uid)
                cursor = self.cursors.get(key) or Cursor()
                known = tail if shard is not None else self.log.tail(key.shard)
                if finding := self._behind(topic, group, shard, key, cursor, known):
                    yield finding
        first = turn * (tail.offset // 3 + 1) % (tail.offset + 2)
        for group in {group.uid: group for group, _ in owners}.values():
            uids = {uid for owner, uid in owners if owner.uid == group.uid}
            records = self.records.of_shard(group.uid, topic.shard_key(number), first, _RECORDS_SAMPLED)
            for record in records:
                if record.consumer_uid in uids:
                    yield from self._record(topic, group, record, None, dry=True)

    def look_at_timers(self, turn: int) -> Iterator[Finding]:
        """The daily check's part of the timers: the first of one fragment."""
        fragment = turn % len(self.timers.fragments())
        timers = self.timers.behind(fragment, "", _TIMERS_SAMPLED, consistent=False)
        yield from self._timers(timers, dry=True)

    def _behind(
        self, topic: Topic, group: Group, number: int | None, key: CursorKey, cursor: Cursor, tail: Tail
    ) -> Finding | None:
        """Does the log end below the cursor? A tail that was read before the cursor is read again."""
        if cursor.is_closed or cursor.next <= tail.offset + 1:
            return None
        end = self.log.tail(key.shard).offset + 1
        if cursor.next <= end:
            return None
        lost = sum(offset >= end for span in unsettled(cursor) for offset in span.offsets())
        return Finding(Kind.LOG_BEHIND, topic.name, group.name, number, end, cursor.next - end, lost)

    def _record(
        self, topic: Topic, group: Group, record: Record, in_lane: InLane | None, *, dry: bool
    ) -> Iterator[Finding]:
        """A delivery that waits for a retry, or is dead: is there a timer, an entry of the retry lane, a letter?"""
        key = cursor_key(topic, group, record.shard, record.consumer_uid)
        if record.status == Status.DEAD:
            kind = Kind.NO_LETTER if self._lacks_letter(topic, key, record) else None
        else:
            kind = Kind.NO_TIMER if self._lacks_timer(topic, group, key, record, in_lane) else None
        if kind is None:
            return
        message = self.reader.fetch(key.shard, [record.offset])[record.offset].message
        if message is None:
            kind = Kind.NO_MESSAGE
        yield Finding(kind, topic.name, group.name, record.shard, record.offset, lost=int(message is None))
        if dry:
            return
        if message and kind is Kind.NO_TIMER:
            draft = retry_lane.entry_of(message, record.attempts, record.attempts_before_redrive, whole=True)
            timer = retry_lane.timer_of(topic, group, key.consumer_uid, draft, record.next_ms or 0)
            self.timers.store([timer])
            return
        dead = replace(record, message=message, next_ms=None, expires_s=None)
        if record.status != Status.DEAD:
            dead = replace(dead, status=Status.DEAD, reason=DeadReason.EXPIRED, at_ms=self.clock.now_ms())
        self.records.restore(key, dead, record)

    def _lacks_timer(
        self, topic: Topic, group: Group, key: CursorKey, record: Record, in_lane: InLane | None
    ) -> bool:
        """Does the delivery go on in the retry lane by its record, and is it neither there nor on the way? Without
        `in_lane`, the first rows of the lane are read, and a longer one is believed to hold it."""
        for _ in range(_LOOKS):
            if record.status != Status.RETRYING or record.next_ms is None:
                return False
            cursor = self.cursors.get(key, consistent=True) or Cursor()
            if offset_state(cursor, record.offset)[0] not in (OffsetState.SETTLED, OffsetState.NOT_OWED):
                return False  # its shard's cursor has it
            rows = _PAGE if in_lane else _LANE_ROWS
            place = self.fates.place_after_cursor(topic, group, key, record, rows)
            if place is Place.UNKNOWN and in_lane:
                place = Place.LANE if (key.shard.shard, record.offset) in in_lane(key.consumer_uid) else None
            current = self.records.get(key, record.offset)
            if place or current is None:
                return False
            if current == record:
                return True
            record = current
        return False

    def _lane_entries(self, topic: Topic, group: Group, uid: str) -> set[tuple[int, int]]:
        """The shards and offsets of the messages in a retry lane that its cursor has not claimed yet."""
        lane = cursor_key(topic, group, None, uid)
        first = (self.cursors.get(lane, consistent=True) or Cursor()).next
        pages = lane_ahead(self.log, lane.shard, first, _PAGE)
        return {place for offsets, _ in pages for place in offsets}

    def _lacks_letter(self, topic: Topic, key: CursorKey, record: Record) -> bool:
        """Is a dead letter missing that was not deleted? Deletions are known for as long as the topic's messages are
        kept, so older records are left alone."""
        if record.at_ms <= self.clock.now_ms() - topic.retention_ms:
            return False
        if self.records.has_letter(key, record.offset):
            return False
        entries = [each for row in self.traces.rows_covering(key, record.offset) for each in row.entries]
        operations = [each.outcome for each in entries if each.offset == record.offset]
        return AttemptOutcome.DELETED not in operations and self.records.get(key, record.offset) == record

    def _timers(self, timers: Sequence[Timer], *, dry: bool) -> Iterator[Finding]:
        for timer in timers:
            origin = timer.draft.origin if timer.draft else None
            if timer.kind is not TimerKind.RETRY or origin is None:
                continue
            name, _, group_name = timer.shard.topic.partition("~")
            try:
                topic = self.catalog.topic(name)
            except NotFound:
                continue
            key = CursorKey(topic.shard_key(origin.shard), timer.group_uid, timer.consumer_uid)
            if self.records.get(key, origin.offset) or not self.timers.find(timer.due_ms, timer.id):
                continue
            yield Finding(Kind.NO_RECORD, name, group_name, origin.shard, origin.offset)
            if not dry:
                self.records.restore(key, _record_of(topic, timer, self.clock.now_ms()), None)

    def _transactions(self, topic: Topic, *, dry: bool) -> Iterator[Finding]:
        """Transactions that wait for their producer: without a timer, nobody would ask it."""
        for transaction in self.transactions.scan(topic, TransactionState.PREPARED):
            if self.timers.find(transaction.check_ms, transaction.id) is None:
                yield Finding(Kind.NO_CHECK, topic.name)
                if not dry:
                    self.timers.store([check_timer(transaction)])


def _record_of(topic: Topic, timer: Timer, now_ms: int) -> Record:
    """The record of the delivery that a retry timer is for."""
    origin = timer.draft.origin if timer.draft else None
    assert origin is not None
    shard, offset, attempts = origin.shard, origin.offset, origin.attempts
    record = Record(shard=shard, offset=offset, status=Status.RETRYING, attempts=attempts, at_ms=now_ms)
    record = replace(record, consumer_uid=timer.consumer_uid, next_ms=timer.due_ms)
    before_redrive, expires_s = origin.attempts_before_redrive, topic.expires_s(timer.due_ms)
    return replace(record, attempts_before_redrive=before_redrive, expires_s=expires_s)
