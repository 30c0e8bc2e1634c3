"""In memory as on DynamoDB, no read sees a half of a transaction, none is too large, and rows go by their time."""

from __future__ import annotations

from threading import Thread

import pytest

from chalicelib.domain import cursor_write
from chalicelib.domain.cursor import Cursor
from chalicelib.domain.topic import cursor_key
from chalicelib.store.memory import (
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
        "records": lambda: records.between(key, 0, 1),
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
