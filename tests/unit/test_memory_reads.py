"""In memory as on DynamoDB, no read sees a half of a transaction, none is too large, rows go by their time, and
nothing is lost that is stored meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, Thread
from typing import Any, cast

import pytest

from chalicelib.domain import cursor_write
from chalicelib.domain.cursor import Cursor
from chalicelib.domain.topic import cursor_key
from chalicelib.store.memory import (
    MemoryBlobs,
    MemoryControl,
    MemoryCursors,
    MemoryRecords,
    MemoryTables,
    MemoryTimers,
    MemoryTransactions,
)
from tests.support import factories as make

_LONG_SECONDS = 0.05  # for a read that waits for nothing


def test_every_read_waits_for_the_transaction_that_is_under_way() -> None:
    tables = MemoryTables()
    timers, records, transactions = MemoryTimers(tables), MemoryRecords(tables), MemoryTransactions(tables)
    topic = make.topic("orders")
    key = cursor_key(topic, make.group(topic), 0)
    reads = {
        "timer": lambda: timers.find(1, "id"),
        "moved timer": lambda: timers.find_moved("id"),
        "transaction": lambda: transactions.get("id"),
        "record": lambda: records.get(key, 0),
        "records": lambda: records.between(key.group_uid, key.shard, 0, 1),
        "dead letter": lambda: records.dead_letter(key, 0),
        "dead letters": lambda: records.letters_between(key, 0, 1),
        "a message's dead letters": lambda: records.letters_at(key.group_uid, key.shard, 0, 1),
        "all of them": lambda: records.all_letters_at(key.group_uid, key.shard, 0),
    }
    threads = {name: Thread(target=method) for name, method in reads.items()}
    with tables.lock:
        for thread in threads.values():
            thread.start()
        threads["timer"].join(_LONG_SECONDS)
        assert [name for name, thread in threads.items() if not thread.is_alive()] == []
    for thread in threads.values():
        thread.join()


def test_a_settlement_takes_a_hundred_actions_two_of_them_for_a_dead_letter() -> None:
    cursors, key = MemoryCursors(MemoryTables()), make.cursor_key()
    letters = [make.dead_record(offset) for offset in range(49)]
    change = cursor_write.replacement(Cursor(), make.leased_cursor(0, 1))
    with pytest.raises(ValueError, match="101 actions"):
        cursors.write(key, change, letters, [make.timer(), make.timer()], exists=False)
    assert cursors.write(key, change, letters, [make.timer()], exists=False)


def test_a_closed_cursor_goes_in_the_second_that_was_said() -> None:
    cursors, key = MemoryCursors(MemoryTables()), make.cursor_key()
    cursors.close([key], 60)
    cursors.drop_expired(59)
    assert cursors.get(key)
    cursors.drop_expired(60)
    assert cursors.get(key) is None


class Turnstile:
    """A lock before which somebody else does something first, once."""

    def __init__(self, first: Callable[[], object]) -> None:
        self._lock = Lock()
        self._first: list[Callable[[], object]] = [first]

    def __enter__(self) -> None:
        while self._first:
            self._first.pop()()
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def test_what_is_stored_while_another_topic_is_deleted_stays() -> None:
    control = MemoryControl()
    orders, bills = make.topic("orders"), make.topic("bills", uid="bills")
    group = make.group(orders)
    consumer = make.consumer(group)
    puts: list[Callable[[], bool]] = [
        lambda: control.put_group(orders, group, None),
        lambda: control.put_consumer(orders, group, consumer, None),
    ]
    for put in puts:
        control._lock = cast(Any, Turnstile(lambda: control.delete_topic(bills)))
        assert put()
    assert control.group(orders, group.name)
    assert control.consumer(orders, group, consumer.name)


def test_bodies_are_listed_while_others_come() -> None:
    blobs = MemoryBlobs()

    class Name(str):
        """Another body comes whenever it is looked at."""

        def startswith(self, *where: Any) -> bool:
            blobs.put(f"{self}-next", b"")
            return super().startswith(*where)

    for n in range(3):
        blobs.put(Name(f"bodies/{n}"), b"")
    assert blobs.names("bodies/", "", 9) == ["bodies/0", "bodies/1", "bodies/2"]
