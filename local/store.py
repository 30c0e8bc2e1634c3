"""Where a local service keeps everything: the engine of this process, in the data folder or (`--ephemeral`) in memory;
DynamoDB Local; or the DynamoDB that the environment names."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chalicelib.adapters import dynamo_adapters
from chalicelib.ports.world import Clock, Invoker
from chalicelib.settings import read
from chalicelib.store.clients import Clients
from chalicelib.store.layout import Tables
from chalicelib.wiring import Deps
from local import Unusable
from local.data_folder import FILE, WHERE, data_folder, open_engine, write_private
from local.engine.client import Client, Streams
from local.engine.core import Engine
from local.engine.dynamodb_local import dynamodb_local
from local.engine.server import serving
from local.functions import Function
from local.jobs import LocalJobs
from local.key_file import FileCipher
from local.options import DYNAMODB_LOCAL, ENDPOINT, Options
from local.server import is_caller_gone
from local.stream import StreamPoller

ROUTE, JOURNAL = "route", "journal"
# how each reads; no caller waits for the journal: few large objects rather than many small ones
_PACES: Mapping[str, dict[str, Any]] = {ROUTE: {}, JOURNAL: {"seconds": 1.0, "batch": 1000}}
_BEFORE_EXPIRY = ("expire", "checkpoint")
_STREAMS_ENDPOINT = "AWS_ENDPOINT_URL_DYNAMODB_STREAMS"
_LOCAL = {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}


@dataclass(frozen=True)
class Store:
    """An engine that is open.

    `ending`: what becomes of the messages when the service ends.
    `readers`: the functions that its changes are carried to.
    `parts`: the ports beside those on the engine.
    `token_file`: where the first token is kept; None: nowhere, it is a new one each time.
    `engine`: the embedded one, which drops expired rows when it is asked.
    """

    ending: str
    readers: Sequence[str]
    parts: Callable[[], Mapping[str, Any]]
    token_file: Path | None = None
    engine: Engine | None = None

    def deps(self, clock: Clock, invoker: Invoker, is_ending: Callable[[], bool]) -> Deps:
        """The services on the engine."""
        own = Client(self.engine) if self.engine else None
        adapters = dynamo_adapters(read(), clock, invoker=invoker, client=own, **self.parts())
        return Deps(replace(adapters, is_ending=is_ending, is_caller_gone=is_caller_gone))

    def pollers(self, functions: Mapping[str, Function]) -> list[StreamPoller]:
        """What carries the engine's changes to the functions."""
        of = {name: functions[name] for name in self.readers}
        return stream_pollers(of, Tables(read().prefix), self.engine)


@contextlib.contextmanager
def open_store(options: Options, clock: Clock) -> Iterator[Store]:
    """The engine, open, and the jobs of the archive that work on what it keeps. Raises Unusable."""
    readers = [name for name in (ROUTE, JOURNAL) if options.stream]
    with contextlib.ExitStack() as stack:
        if options.ephemeral:
            engine = stack.enter_context(contextlib.closing(Engine(now_ms=clock.now_ms)))
            ending = "what was accepted is gone then"
            yield Store(ending, readers[:1], lambda: {"blobs": MemoryBlobs()}, engine=engine)
            return
        data, by_amazon = options.data, options.engine == DYNAMODB_LOCAL
        stack.enter_context(data_folder(data, f"serves on {options.url}"))
        if by_amazon and not options.endpoint and (data / FILE).exists():
            raise Unusable(
                f"{data} holds what the embedded engine stored ({FILE}). Run without --engine to use it, or "
                "choose another folder with --data or HEADRACE_DATA."
            )
        opened = served(data, clock.now_ms, by_amazon=by_amazon, endpoint=options.endpoint)
        own, variables = stack.enter_context(opened)
        if by_amazon:
            if not options.endpoint and not os.environ.get("HEADRACE_BUCKET"):
                os.environ.pop("AWS_PROFILE", None)  # nothing here asks AWS, so it need not exist
            os.environ |= variables
        jobs = LocalJobs(data / "jobs", options.url, variables)
        stack.callback(jobs.stop)
        parts = {"cipher": FileCipher(data / "key"), "jobs": jobs}
        ending = f"what was accepted stays in {options.endpoint or data}"
        yield Store(ending, readers, lambda: parts, data / "token", own)


@contextlib.contextmanager
def served(
    data: Path, now_ms: Callable[[], int], *, by_amazon: bool, endpoint: str | None = None
) -> Iterator[tuple[Engine | None, dict[str, str]]]:
    """The engine of a folder that this process has, and environment variables with which boto3 finds it, which the
    folder has meanwhile, too. None: it is another process, DynamoDB Local or what is at the `endpoint`."""
    engine = None
    with contextlib.ExitStack() as stack:
        if by_amazon:
            place = endpoint or stack.enter_context(dynamodb_local(data / "dynamodb")).endpoint
            variables = variables_of(place)
        else:
            engine = stack.enter_context(contextlib.closing(open_engine(data, now_ms)))
            variables = stack.enter_context(serving(engine))
        write_private(data / WHERE, json.dumps(variables))
        stack.callback((data / WHERE).unlink, missing_ok=True)
        yield engine, variables


def variables_of(endpoint: str) -> dict[str, str]:
    """Environment variables with which boto3 finds an engine of another process."""
    get = os.environ.get
    return {
        ENDPOINT: endpoint,
        _STREAMS_ENDPOINT: get(_STREAMS_ENDPOINT) or endpoint,
        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "false",  # or tables would be made in an account of AWS
        **{name: get(name) or value for name, value in _LOCAL.items()},
    }


def stream_pollers(
    functions: Mapping[str, Function], tables: Tables, engine: Engine | None = None
) -> list[StreamPoller]:
    """What reads the log's stream for `route`, and those of the log and the traces for `journal`; none for a function
    that there is not. They ask the embedded `engine`, or the one that the environment names."""
    clients = Clients(read().region)
    dynamodb = Client(engine) if engine else clients.get("dynamodb")
    streams = Streams(engine) if engine else clients.get("dynamodbstreams")
    return [
        StreamPoller(table, name, functions[name], dynamodb, streams, engine=engine, **pace)
        for name, pace in _PACES.items()
        for table in ((tables.log,) if name == ROUTE else (tables.log, tables.traces))
        if name in functions
    ]


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


def expiry(engine: Engine, functions: Mapping[str, Function]) -> Function:
    """DynamoDB's TTL, as a function. What must see rows before they go runs first: on AWS it has a day for that, but
    here the clock may have been moved by days, and what was due on the way not be done yet. If such a function fails,
    or its time ends before it is through, rows go the next time."""

    def drop(event: Any, context: Any) -> None:
        now_s = engine.now_ms() // 1000
        if all(functions[name](event, context).get("finished", True) for name in _BEFORE_EXPIRY):
            engine.drop_expired(now_s)

    return drop
