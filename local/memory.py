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
from local.schedule import event_of
from local.store import Poller, Store

_BATCH = 100
_EXPIRY_SECONDS = 60.0
_BEFORE = ("expire", "checkpoint")


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
        return [ChangePump(changes, functions["route"]), ExpiryPump(lambda: expiry(*current), functions)]

    return Store(adapters, pollers, forget, None, "what was accepted is gone then")


def drop_expired(adapters: Adapters) -> None:
    """What DynamoDB's TTL does, by the clock of these adapters, which are those in memory."""
    expiry(adapters)()


def expiry(adapters: Adapters) -> Callable[[], None]:
    """What drops the rows that have expired by now, and no later ones."""
    a: Any = adapters
    now_s = a.clock.now_ms() // 1000

    def drop() -> None:
        for table in (a.log, a.cursors, a.records, a.traces, a.keys, a.timers, a.transactions):
            table.drop_expired(now_s)

    return drop


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
    """DynamoDB's TTL. What must see rows before they go runs first: on AWS it has a day for that, but here the clock
    may have been moved by days, and what was due on the way not be done yet."""

    def __init__(
        self,
        expiry: Callable[[], Callable[[], None]],
        functions: Mapping[str, Function],
        seconds: float = _EXPIRY_SECONDS,
    ) -> None:
        """`expiry` returns what drops the rows that have expired by then."""
        self._expiry = expiry
        self._functions = functions
        self._seconds = seconds
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(self._seconds):
            self.drop()

    def drop(self) -> None:
        """Drop what has expired; if a function fails, or its time ends before it is through, the next time."""
        drop = self._expiry()
        if all(self._call(name) for name in _BEFORE):
            drop()

    def _call(self, name: str) -> bool:
        """Did the function succeed, and is it through?"""
        report: dict[str, Any] = {}
        context = Context(function_name=name, request_id=str(uuid4()), stop=self._stopping)
        success = attempt(
            lambda *asked: report.update(self._functions[name](*asked)), event_of(name), context
        )
        return success and bool(report.get("finished", True))

    def stop(self) -> None:
        self._stopping.set()

    def wait_until_ready(self, seconds: float) -> bool:
        return True
