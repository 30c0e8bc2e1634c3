"""ports.Records in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ...domain.record import DeadLetter, Record, Unfinished
from ...domain.segment import ShardKey
from ...domain.status import Status
from ...domain.topic import CursorKey, Group, Topic
from ..layout import record_prefix
from .tables import MemoryTables, letter_place, record_place


class MemoryRecords:
    """ports.Records over the common tables."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    def get(self, key: CursorKey, offset: int) -> Record | None:
        with self._tables.lock:  # here and below: a transaction is seen whole or not at all
            return self._tables.records.get(record_place(key, offset))

    def between(self, group_uid: str, shard: ShardKey, first: int, last: int) -> list[Record]:
        records = self._of_group(shard.topic_uid, group_uid)
        return [r for r in records if r.shard == shard.shard and first <= r.offset <= last]

    def unfinished(self, topic_uid: str, group_uid: str) -> list[Unfinished]:
        return _unfinished(self._of_group(topic_uid, group_uid))

    def first_unfinished(self, topic_uid: str, group_uid: str, most: int) -> tuple[list[Unfinished], bool]:
        records = self._of_group(topic_uid, group_uid)
        return _unfinished(records[:most]), len(records) < most

    def _of_group(self, topic_uid: str, group_uid: str) -> list[Record]:
        with self._tables.lock:
            records = {k: record for (g, k), record in self._tables.records.items() if g == group_uid}
        return [records[k] for k in sorted(records) if k.startswith(f"{topic_uid}/")]

    def count_dead(self, topic_uid: str, group_uid: str, most: int | None = None) -> int:
        return len(self._letters_of_group(topic_uid, group_uid)[:most])

    def dead(self, topic: Topic, group: Group, after: str | None, limit: int) -> list[tuple[str, DeadLetter]]:
        letters = self._letters_of_group(topic.uid, group.uid)
        return [(k, letter) for k, letter in letters if letter and (after is None or k > after)][:limit]

    def _letters_of_group(self, topic_uid: str, group_uid: str) -> list[tuple[str, DeadLetter | None]]:
        with self._tables.lock:
            letters = [
                (k, letter) for (g, k), letter in self._tables.letters.items() if g == f"{group_uid}#dead"
            ]
        return sorted(
            (each for each in letters if each[0].startswith(f"{topic_uid}/")), key=lambda each: each[0]
        )

    def dead_letter(self, key: CursorKey, offset: int) -> DeadLetter | None:
        with self._tables.lock:
            return self._tables.letters.get(record_place(key, offset, dead=True))

    def letters_between(self, key: CursorKey, first: int, last: int) -> dict[int, DeadLetter]:
        letters = {offset: self.dead_letter(key, offset) for offset in range(first, last + 1)}
        return {offset: letter for offset, letter in letters.items() if letter}

    def letters_at(self, group_uid: str, shard: ShardKey, offset: int, most: int) -> Iterator[DeadLetter]:
        return (letter for letter in self._at(group_uid, shard, offset)[:most] if letter)

    def all_letters_at(self, group_uid: str, shard: ShardKey, offset: int) -> list[DeadLetter]:
        return [letter for letter in self._at(group_uid, shard, offset) if letter]

    def _at(self, group_uid: str, shard: ShardKey, offset: int) -> list[DeadLetter | None]:
        place = record_prefix(shard, offset)
        with self._tables.lock:
            rows = [
                (k, letter)
                for (g, k), letter in self._tables.letters.items()
                if g == f"{group_uid}#dead" and k.startswith(place)
            ]
        return [letter for _, letter in sorted(rows, key=lambda row: row[0])]

    def is_owed(self, group_uid: str, shard: ShardKey, offset: int) -> bool:
        place = record_prefix(shard, offset)
        with self._tables.lock:
            waits = (
                record.status == Status.RETRYING
                for (g, k), record in self._tables.records.items()
                if g == group_uid and k.startswith(place)
            )
            letters = (
                letter is not None
                for (g, k), letter in self._tables.letters.items()
                if g == f"{group_uid}#dead" and k.startswith(place)
            )
            return any(waits) or any(letters)

    def edit(self, letter: DeadLetter) -> bool:
        with self._tables.lock:
            if there := self._tables.has_letter(letter):
                self._tables.put_letter(replace(letter, version=letter.version + 1))
            return there

    def discard(self, letter: DeadLetter) -> bool:
        with self._tables.lock:
            if there := self._tables.has_letter(letter):
                del self._tables.letters[letter_place(letter)]
            return there

    def forget(self, group_uid: str) -> None:
        with self._tables.lock:
            for rows in (self._tables.records, self._tables.letters):
                for place in [place for place in rows if place[0] in (group_uid, f"{group_uid}#dead")]:
                    del rows[place]

    def drop_expired(self, now_s: int) -> None:
        """Delete expired rows, as DynamoDB's TTL does."""
        with self._tables.lock:
            for place, record in list(self._tables.records.items()):
                if record.expires_s is not None and record.expires_s <= now_s:
                    del self._tables.records[place]


def _unfinished(records: Iterable[Record]) -> list[Unfinished]:
    return [
        Unfinished(
            shard=record.shard,
            offset=record.offset,
            status=record.status,
            consumer_uid=record.consumer_uid,
            timed=record.next_ms is not None,
        )
        for record in records
        if record.status in (Status.DEAD, Status.RETRYING)
    ]
