"""`--engine embedded`: everything in the engine of this process, in the data folder, or (`--ephemeral`) in memory."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import uuid4

from chalicelib.adapters import Adapters, NoJobs, dynamo_adapters
from chalicelib.ports.world import Clock, Invoker
from chalicelib.settings import Settings, read
from chalicelib.store.layout import Tables
from local.data_folder import data_folder
from local.dynamodb import stream_pollers
from local.engine.client import Client, Streams
from local.engine.core import Engine
from local.functions import Context, Function, attempt
from local.jobs import LocalJobs
from local.key_file import FileCipher
from local.options import Options
from local.schedule import event_of
from local.store import Poller, Store
from local.token_file import TokenFile

_EXPIRY_SECONDS = 60.0
_BEFORE = ("expire", "checkpoint")


@contextlib.contextmanager
def open_store(options: Options, clock: Clock) -> Iterator[Store]:
    """The engine, open. Raises Unusable."""
    with contextlib.ExitStack() as stack:
        if options.ephemeral:
            engine = Engine(now_ms=clock.now_ms)
            stack.callback(engine.close)
            yield _store(options, engine, lambda: {"blobs": MemoryBlobs(), "jobs": NoJobs()})
            return
        folder = stack.enter_context(data_folder(options.data, f"serves on {options.url}"))
        engine = folder.engine(clock.now_ms)
        stack.callback(engine.close)
        jobs = LocalJobs(options.data / "jobs", options.url, stack.enter_context(folder.served(engine)))
        stack.callback(jobs.stop)
        yield _store(options, engine, lambda: {"cipher": FileCipher(options.data / "key"), "jobs": jobs})


def _store(options: Options, engine: Engine, parts: Callable[[], Mapping[str, Any]]) -> Store:
    def adapters(settings: Settings, clock: Clock, invoker: Invoker) -> Adapters:
        return dynamo_adapters(settings, clock, invoker=invoker, client=Client(engine), **parts())

    def pollers(functions: Mapping[str, Function]) -> list[Poller]:
        expiry = ExpiryPump(engine, functions)
        if not options.stream:
            return [expiry]
        tables = Tables(read().prefix)
        journal_tables = () if options.ephemeral else (tables.log, tables.traces)
        clients = {"dynamodb": Client(engine), "dynamodbstreams": Streams(engine)}
        return [*stream_pollers(functions, tables.log, clients.__getitem__, journal_tables, engine), expiry]

    if options.ephemeral:
        return Store(
            adapters, pollers, engine.drop_expired, None, "what was accepted is gone then", engine.clear
        )
    token = TokenFile(options.data / "token")
    return Store(adapters, pollers, engine.drop_expired, token, f"what was accepted stays in {options.data}")


class MemoryBlobs:
    """ports.Blobs as a dict."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    def put(self, name: str, body: bytes) -> None:
        self._blobs[name] = body

    def get(self, name: str) -> bytes | None:
        return self._blobs.get(name)

    def delete(self, name: str) -> None:
        self._blobs.pop(name, None)

    def names(self, prefix: str, after: str, limit: int) -> list[str]:
        names = list(self._blobs)  # in one step: others put and delete meanwhile
        return sorted(name for name in names if name.startswith(prefix) and name > after)[:limit]


class ExpiryPump:
    """DynamoDB's TTL. What must see rows before they go runs first: on AWS it has a day for that, but here the clock
    may have been moved by days, and what was due on the way not be done yet."""

    def __init__(
        self, engine: Engine, functions: Mapping[str, Function], seconds: float = _EXPIRY_SECONDS
    ) -> None:
        self._engine = engine
        self._functions = functions
        self._seconds = seconds
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(self._seconds):
            self.drop()

    def drop(self) -> None:
        """Drop what has expired by now; if a function fails, or its time ends before it is through, the next time."""
        now_s = self._engine.now_ms() // 1000
        if all(self._call(name) for name in _BEFORE):
            self._engine.drop_expired(now_s)

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
