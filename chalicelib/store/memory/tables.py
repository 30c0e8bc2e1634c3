"""The rows that one transaction may touch, under one lock, and the changes that a transaction makes."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...domain.cursor import Cursor
from ...domain.cursor_transitions import amend
from ...domain.record import DeadLetter, Record
from ...domain.segment import Segment, ShardKey
from ...domain.status import Status
from ...domain.timer import Timer
from ...domain.topic import CursorKey
from ...domain.transaction import Transaction, check_timer, committed
from ...ports.log import DedupEntry, Promotable
from .. import codec
from ..layout import record_key, timer_key
from ..records import letter_of

Place = tuple[str, str]  # partition and sort key, as on DynamoDB
_MOST_ACTIONS = 100  # of a transaction, as there


@dataclass
class MemoryTables:
    """The rows of one stage that the log and the cursors write in one transaction with their own."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    records: dict[Place, Record] = field(default_factory=dict)
    letters: dict[Place, DeadLetter | None] = field(default_factory=dict)
    timers: dict[Place, Timer] = field(default_factory=dict)
    transactions: dict[str, Transaction] = field(default_factory=dict)
    cursors: dict[CursorKey, Cursor] = field(default_factory=dict)
    dedup: dict[tuple[str, str], DedupEntry] = field(default_factory=dict)

    def used_entries(self, entries: Sequence[DedupEntry]) -> tuple[DedupEntry, ...]:
        """Those of the dedup ids that were used within their window."""
        old = (self.dedup.get((e.topic_uid, e.dedup_id)) for e in entries)
        now_ms = entries[0].accepted_ms if entries else 0
        return tuple(e for e in old if e and e.ends_ms > now_ms)

    def remember(self, entries: Sequence[DedupEntry]) -> None:
        self.dedup.update({(e.topic_uid, e.dedup_id): e for e in entries})

    def forget_dedup(self, now_s: int) -> None:
        self.dedup = {place: entry for place, entry in self.dedup.items() if entry.expires_s > now_s}

    def put_timers(self, timers: Sequence[Timer]) -> None:
        for timer in timers:
            draft = codec.as_stored(timer.draft) if timer.draft else None
            self.timers[timer_place(timer)] = replace(timer, draft=draft)

    def put_records(self, key: CursorKey, records: Sequence[Record]) -> None:
        for record in records:
            at = record.of or key
            self.records[record_place(at, record.offset)] = replace(record, of=None, message=None)
            if record.status == Status.DEAD:
                self.letters.setdefault(record_place(at, record.offset, dead=True), None)
                if letter := letter_of(at, record):
                    self.put_letter(letter)

    def note_amended(self, cursors: Mapping[CursorKey, Cursor | None], offset: int) -> bool:
        """Note in all of the cursors that a message was amended; False if one has claimed it, or has changed."""
        noted_cursors: dict[CursorKey, Cursor] = {}
        for key, cursor in cursors.items():
            there, after = self.cursors.get(key), amend(cursor or Cursor(), offset)
            now = amend(there or Cursor(), offset)
            if (there is None) != (cursor is None) or (there and cursor and there.amended != cursor.amended):
                return False
            if after is None or now is None:
                return False
            noted_cursors[key] = replace(now, amended=after.amended)
        self.cursors.update(noted_cursors)
        return True

    def put_letter(self, letter: DeadLetter) -> None:
        message = replace(letter.message, draft=codec.as_stored(letter.message.draft))
        self.letters[letter_place(letter)] = replace(letter, message=message)

    def has_letter(self, letter: DeadLetter) -> bool:
        """Is just this one there, unchanged?"""
        there = self.letters.get(letter_place(letter))
        return there is not None and (there.version, there.at_ms) == (letter.version, letter.at_ms)

    def has(self, promotable: Promotable) -> bool:
        if isinstance(promotable, DeadLetter):
            return self.has_letter(promotable)
        if isinstance(promotable, Transaction):
            return self.has_version(promotable)
        there = self.timers.get(timer_place(promotable))
        return there is not None and there.edits == promotable.edits

    def has_version(self, transaction: Transaction) -> bool:
        there = self.transactions.get(transaction.id)
        return there is not None and there.version == transaction.version

    def put_transaction(self, new: Transaction) -> None:
        draft = codec.as_stored(new.draft) if new.draft else None
        self.transactions[new.id] = replace(new, draft=draft)

    def move(self, promotable: Promotable, shard: ShardKey, segment: Segment, n: int) -> None:
        """Delete the source of the n-th moved message; a dead letter begins a new life, a transaction is committed."""
        at_ms = segment.accepted_ms
        if isinstance(promotable, Timer):
            del self.timers[timer_place(promotable)]
            return
        if isinstance(promotable, Transaction):
            new = committed(promotable, at_ms, shard=shard.shard, offset=segment.first + n)
            self.put_transaction(replace(new, version=promotable.version + 1))
            self.timers.pop(timer_place(check_timer(promotable)), None)
            return
        del self.letters[letter_place(promotable)]
        place, attempts = record_place(promotable.key, promotable.offset), promotable.attempts
        old = self.records.get(place)
        self.records[place] = Record(
            shard=promotable.key.shard.shard,
            offset=promotable.offset,
            status=Status.RETRYING,
            attempts=attempts,
            at_ms=at_ms,
            consumer_uid=promotable.key.consumer_uid,
            last_error=old.last_error if old else None,
            next_ms=at_ms,
            attempts_before_redrive=attempts,
        )


def check_actions(count: int) -> None:
    """Raise ValueError for a transaction that DynamoDB would refuse as too large."""
    if count > _MOST_ACTIONS:
        raise ValueError(f"{count} actions in one transaction: {_MOST_ACTIONS} is the most")


def record_place(key: CursorKey, offset: int, *, dead: bool = False) -> Place:
    row = record_key(key, offset, dead=dead)
    return row["g"]["S"], row["k"]["S"]


def letter_place(letter: DeadLetter) -> Place:
    return record_place(letter.key, letter.offset, dead=True)


def timer_place(timer: Timer) -> Place:
    row = timer_key(timer.due_ms, timer.id)
    return row["f"]["S"], row["t"]["S"]
