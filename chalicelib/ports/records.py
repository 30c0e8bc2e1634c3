"""Delivery records and dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ..domain.record import DeadLetter, Record, Unfinished
from ..domain.segment import ShardKey
from ..domain.topic import CursorKey, Group, Topic


class Records(Protocol):
    """Delivery records, by group."""

    def get(self, key: CursorKey, offset: int) -> Record | None:
        """The record of one delivery, read consistently."""
        ...

    def between(self, group_uid: str, shard: ShardKey, first: int, last: int) -> list[Record]:
        """The group's records of a shard's messages from `first` to `last`, in a broadcast those of all consumers, read
        consistently in one query."""
        ...

    def unfinished(self, topic_uid: str, group_uid: str) -> list[Unfinished]:
        """The group's deliveries that have failed and not succeeded since. It may be a moment old."""
        ...

    def first_unfinished(self, topic_uid: str, group_uid: str, most: int) -> tuple[list[Unfinished], bool]:
        """Those among the group's first `most` records, at a bounded cost, and whether these are all its records: many
        may be of deliveries that succeeded late."""
        ...

    def count_dead(self, topic_uid: str, group_uid: str, most: int | None = None) -> int:
        """How many dead letters the group has. With `most`: so many at most, at a bounded cost."""
        ...

    def dead(self, topic: Topic, group: Group, after: str | None, limit: int) -> list[tuple[str, DeadLetter]]:
        """Dead letters by offset, each with its position in the list. May be fewer than `limit` only at the end."""
        ...

    def dead_letter(self, key: CursorKey, offset: int) -> DeadLetter | None:
        """One dead letter, read consistently."""
        ...

    def letters_between(self, key: CursorKey, first: int, last: int) -> dict[int, DeadLetter]:
        """One cursor's dead letters from `first` to `last`, by offset, read consistently in one query. Those of a later
        release are left out."""
        ...

    def letters_at(self, group_uid: str, shard: ShardKey, offset: int, most: int) -> Iterator[DeadLetter]:
        """The group's dead letters of one message, in a broadcast by consumer: those among the first `most`. Each is
        read consistently, when it is asked for, with a query of its own. Those of a later release are left out."""
        ...

    def all_letters_at(self, group_uid: str, shard: ShardKey, offset: int) -> list[DeadLetter]:
        """All of them, by consumer, read consistently in one query (for each MB). Raises Conflict where one is of a
        later release."""
        ...

    def is_owed(self, group_uid: str, shard: ShardKey, offset: int) -> bool:
        """Will the group, or one of its consumers, be sent this message again, or does it have a dead letter of it?
        Read consistently."""
        ...

    def edit(self, letter: DeadLetter) -> bool:
        """Store the letter under the next version, if it still has its own. False: it is gone or was changed."""
        ...

    def discard(self, letter: DeadLetter) -> bool:
        """Delete a dead letter of just this version; its record stays DEAD. False: it is gone or was changed."""
        ...

    def forget(self, group_uid: str) -> None:
        """Delete all records and dead letters of a group that is no more. A write unit for each KB of them."""
        ...
