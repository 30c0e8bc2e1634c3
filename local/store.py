"""Where a local service keeps everything: the engine of this process, in the data folder or (`--ephemeral`) in memory;
DynamoDB Local; or the DynamoDB that the environment names."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from chalicelib.adapters import Adapters, NoJobs, dynamo_adapters
from chalicelib.ports.world import Clock, Invoker
from chalicelib.settings import Settings, read
from chalicelib.store.layout import Tables
from local import Unusable
from local.data_folder import FILE, TokenFile, announced, data_folder
from local.engine.client import Client, Streams
from local.engine.core import Engine
from local.engine.dynamodb_local import DynamoDBLocal
from local.functions import Context, Function, attempt
from local.jobs import LocalJobs
from local.key_file import FileCipher
from local.options import DYNAMODB_LOCAL, ENDPOINT, Options
from local.stream import StreamPoller
from local.triggers import Poller, event_of

ROUTE, JOURNAL = "route", "journal"
# no caller waits for it: few large objects rather than many small ones
_JOURNAL_SECONDS, _JOURNAL_BATCH = 1.0, 1000
_EXPIRY_SECONDS = 60.0
_BEFORE_EXPIRY = ("expire", "checkpoint")
_STREAMS_ENDPOINT = "AWS_ENDPOINT_URL_DYNAMODB_STREAMS"
_LOCAL = {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}


@dataclass(frozen=True)
class Store:
    """An engine that is open."""

    adapters: Callable[[Settings, Clock, Invoker], Adapters]
    pollers: Callable[[Mapping[str, Function]], list[Poller]]
    """What carries the engine's changes to the functions."""

    forget: Callable[[], object]
    """Drop what has expired, where the engine does not by itself."""

    tokens: TokenFile | None
    """Where the first token is kept; None: nowhere, it is a new one each time."""

    ending: str
    """What becomes of the messages when the service ends."""

    clear: Callable[[], None] | None = None
    """Removes everything, where that may be asked for."""


@contextlib.contextmanager
def open_store(options: Options, clock: Clock) -> Iterator[Store]:
    """The engine, open, and the jobs of the archive that work on what it keeps. Raises Unusable."""
    with contextlib.ExitStack() as stack:
        if options.ephemeral:
            engine = Engine(now_ms=clock.now_ms)
            stack.callback(engine.close)
            yield _embedded(options, engine, lambda: {"blobs": MemoryBlobs(), "jobs": NoJobs()})
            return
        folder = stack.enter_context(data_folder(options.data, f"serves on {options.url}"))
        if options.engine == DYNAMODB_LOCAL:
            yield _outside(options, stack)
            return
        engine = folder.engine(clock.now_ms)
        stack.callback(engine.close)
        jobs = LocalJobs(options.data / "jobs", options.url, stack.enter_context(folder.served(engine)))
        stack.callback(jobs.stop)
        yield _embedded(options, engine, lambda: {"cipher": FileCipher(options.data / "key"), "jobs": jobs})


def _embedded(options: Options, engine: Engine, parts: Callable[[], Mapping[str, Any]]) -> Store:
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
        ending = "what was accepted is gone then"
        return Store(adapters, pollers, engine.drop_expired, None, ending, engine.clear)
    token = TokenFile(options.data / "token")
    return Store(adapters, pollers, engine.drop_expired, token, f"what was accepted stays in {options.data}")


def _outside(options: Options, stack: contextlib.ExitStack) -> Store:
    """In DynamoDB Local, or in the DynamoDB that the environment names."""
    if not options.endpoint and (options.data / FILE).exists():
        raise Unusable(
            f"{options.data} holds what the embedded engine stored ({FILE}). Run without --engine to use it, or "
            "choose another folder with --data or HEADRACE_DATA."
        )
    endpoint = options.endpoint or stack.enter_context(amazons_engine(options.data)).endpoint
    os.environ[ENDPOINT] = endpoint
    os.environ["AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"] = (
        "false"  # or tables would be made in an account of AWS
    )
    if not options.endpoint and not os.environ.get("HEADRACE_BUCKET"):
        os.environ.pop("AWS_PROFILE", None)  # nothing here asks AWS, so it need not exist
    for name, value in _LOCAL.items():
        os.environ.setdefault(name, value)
    jobs = LocalJobs(options.data / "jobs", options.url, {})
    stack.callback(jobs.stop)
    stack.enter_context(announced(options.data, variables_of(endpoint)))

    def adapters(settings: Settings, clock: Clock, invoker: Invoker) -> Adapters:
        return dynamo_adapters(
            settings, clock, invoker=invoker, jobs=jobs, cipher=FileCipher(options.data / "key")
        )

    def pollers(functions: Mapping[str, Function]) -> list[Poller]:
        tables = Tables(read().prefix)
        journal_tables = (tables.log, tables.traces)
        return stream_pollers(functions, tables.log, client, journal_tables) if options.stream else []

    token = TokenFile(options.data / "token")
    ending = f"what was accepted stays in {options.endpoint or options.data}"
    return Store(adapters, pollers, lambda: None, token, ending)


def amazons_engine(folder: Path) -> DynamoDBLocal:
    """DynamoDB Local on what it has stored in a data folder."""
    return DynamoDBLocal(folder / "dynamodb")


def variables_of(endpoint: str) -> dict[str, str]:
    """What tells boto3 where an engine is that this process doesn't serve itself."""
    get = os.environ.get
    return {
        ENDPOINT: endpoint,
        _STREAMS_ENDPOINT: get(_STREAMS_ENDPOINT) or endpoint,
        **{name: get(name) or value for name, value in _LOCAL.items()},
    }


def stream_pollers(
    functions: Mapping[str, Function],
    table: str,
    client: Callable[[str], Any],
    journal_tables: Sequence[str] = (),
    engine: Engine | None = None,
) -> list[Poller]:
    """What reads the stream of `table` for `route`, and those of `journal_tables` for `journal`; none for a
    function that there is not. `client` makes the client of a service: boto3's, or that of the embedded `engine`."""

    def poller(name: str, of: str, **options: Any) -> StreamPoller:
        return StreamPoller(
            table=of,
            name=name,
            function=functions[name],
            dynamodb=client("dynamodb"),
            streams=client("dynamodbstreams"),
            engine=engine,
            **options,
        )

    pollers: list[Poller] = [poller(ROUTE, table)] if ROUTE in functions else []
    if JOURNAL in functions:
        seconds = {"quick_seconds": _JOURNAL_SECONDS, "idle_seconds": _JOURNAL_SECONDS}
        pollers += (poller(JOURNAL, of, **seconds, batch=_JOURNAL_BATCH) for of in journal_tables)
    return pollers


def client(service: str) -> Any:
    """A boto3 client of the engine; its streams are at the same endpoint unless the environment says otherwise."""
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=2,
        read_timeout=5,
        retries={"mode": "standard", "total_max_attempts": 1},
        parameter_validation=False,
        user_agent="headrace",
    )
    streams = service == "dynamodbstreams" and not os.environ.get(_STREAMS_ENDPOINT)
    endpoint = os.environ.get(ENDPOINT) if streams else None
    return boto3.client(service, endpoint_url=endpoint, config=config)


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
        if all(self._call(name) for name in _BEFORE_EXPIRY):
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
