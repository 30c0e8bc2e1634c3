"""In memory as on DynamoDB, no read sees a half of a transaction."""

from __future__ import annotations

from threading import Thread

from chalicelib.domain.topic import cursor_key
from chalicelib.store.memory import MemoryRecords, MemoryTables, MemoryTimers, MemoryTransactions
from tests.support import factories as make

_LONG_SECONDS = 0.05  # for a read that waits for nothing


def test_every_read_waits_for_the_transaction_that_is_under_way() -> None:
    tables = MemoryTables()
    timers, records, transactions = MemoryTimers(tables), MemoryRecords(tables), MemoryTransactions(tables)
    topic = make.topic("orders")
    key = cursor_key(topic, make.group(topic), 0)
    reads = {
        "timer": lambda: timers.find(1, "id"),
        "moved timer": lambda: timers.moved("id"),
        "transaction": lambda: transactions.get("id"),
        "record": lambda: records.get(key, 0),
        "records": lambda: records.between(key, 0, 1),
        "dead letter": lambda: records.dead_letter(key, 0),
        "dead letters": lambda: records.letters_between(key, 0, 1),
        "a message's dead letters": lambda: records.letters_at(key.group_uid, key.shard, 0, 1),
    }
    threads = {name: Thread(target=method) for name, method in reads.items()}
    with tables.lock:
        for thread in threads.values():
            thread.start()
        threads["timer"].join(_LONG_SECONDS)
        assert [name for name, thread in threads.items() if not thread.is_alive()] == []
    for thread in threads.values():
        thread.join()
