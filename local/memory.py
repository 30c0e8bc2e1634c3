"""`--engine memory`: everything in this process. No Java, no files; gone when it ends."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import uuid4

from chalicelib.adapters import Adapters, SystemRandom, memory_adapters
from chalicelib.domain.segment import ShardKey
from chalicelib.ports.world import Clock, Invoker
from chalicelib.settings import Settings
from local.functions import Context, Function, attempt
from local.store import Poller, Store

_BATCH = 100
_EXPIRY_SECONDS = 60.0


def open_store() -> Store:
    """An empty store."""
    changes: queue.SimpleQueue[ShardKey | None] = queue.SimpleQueue()
    current: list[Adapters] = []

    def adapters(settings: Settings, clock: Clock, invoker: Invoker) -> Adapters:
        current[:] = [
            memory_adapters(clock, SystemRandom(), invoker=invoker, settings=settings, on_put=changes.put)
        ]
        return current[0]

    def forget() -> None:
        drop_expired(*current)

    def pollers(functions: Mapping[str, Function]) -> list[Poller]:
        return [ChangePump(changes, functions["route"]), ExpiryPump(forget)]

    return Store(adapters, pollers, forget, None, "what was accepted is gone then")


def drop_expired(adapters: Adapters) -> None:
    """What DynamoDB's TTL does, by the clock of these adapters, which are those in memory."""
    a: Any = adapters
    for table in (a.log, a.cursors, a.records, a.traces, a.keys, a.timers, a.transactions):
        table.drop_expired(a.clock.now_ms() // 1000)


class ChangePump:
    """The log's stream: tells the function `route` of the rows that were put."""

    def __init__(self, changes: queue.SimpleQueue[ShardKey | None], route: Function) -> None:
        self._changes = changes
        self._route = route
        self._stopping = threading.Event()

    def run(self) -> None:
        while shard := self._changes.get():
            shards = {shard: None}
            while len(shards) < _BATCH and not self._changes.empty():
                if more := self._changes.get():
                    shards[more] = None
                else:
                    return
            attempt(
                self._route,
                _event(shards),
                Context(function_name="route", request_id=str(uuid4()), stop=self._stopping),
            )

    def stop(self) -> None:
        self._stopping.set()
        self._changes.put(None)

    def wait_until_ready(self, seconds: float) -> bool:
        return True  # what is put before `run` waits for it


def _event(shards: Iterable[ShardKey]) -> dict[str, Any]:
    """As the table's stream has it; a shard that got several rows is told once."""
    keys = [{"s": {"S": str(shard)}, "o": {"N": "0"}} for shard in shards]
    return {"Records": [{"eventName": "INSERT", "dynamodb": {"Keys": each}} for each in keys]}


class ExpiryPump:
    """DynamoDB's TTL."""

    def __init__(self, forget: Callable[[], None], seconds: float = _EXPIRY_SECONDS) -> None:
        self._forget = forget
        self._seconds = seconds
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(self._seconds):
            self._forget()

    def stop(self) -> None:
        self._stopping.set()

    def wait_until_ready(self, seconds: float) -> bool:
        return True
