"""Where a local service keeps everything: the engine of this process, in the data folder or (`--ephemeral`) in memory;
DynamoDB Local; or the DynamoDB that the environment names."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from chalicelib.adapters import Adapters, NoJobs, dynamo_adapters
from chalicelib.ports.world import Clock, Invoker
from chalicelib.settings import Settings, read
from chalicelib.store.layout import Tables
from local import Unusable
from local.data_folder import FILE, TokenFile, announced, data_folder
from local.engine.client import Client, Streams
from local.engine.core import Engine
from local.engine.dynamodb_local import Running, dynamodb_local
from local.functions import Function
from local.jobs import LocalJobs
from local.key_file import FileCipher
from local.options import EMBEDDED, ENDPOINT, Options
from local.stream import StreamPoller

ROUTE, JOURNAL = "route", "journal"
# no caller waits for it: few large objects rather than many small ones
_JOURNAL_SECONDS, _JOURNAL_BATCH = 1.0, 1000
_BEFORE_EXPIRY = ("expire", "checkpoint")
_STREAMS_ENDPOINT = "AWS_ENDPOINT_URL_DYNAMODB_STREAMS"
_LOCAL = {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}


@dataclass(frozen=True)
class Store:
    """An engine that is open.

    `adapters`: the ports on it, for settings, a clock and an invoker.
    `pollers`: what carries the engine's changes to the functions.
    `ending`: what becomes of the messages when the service ends.
    `tokens`: where the first token is kept; None: nowhere, it is a new one each time.
    `engine`: the embedded one, which drops expired rows when it is asked.
    """

    adapters: Callable[..., Adapters]

    pollers: Callable[[Mapping[str, Function]], list[StreamPoller]]

    ending: str

    tokens: TokenFile | None = None

    engine: Engine | None = None


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
        if options.engine == EMBEDDED:
            engine = folder.engine(clock.now_ms)
            stack.callback(engine.close)
            variables = stack.enter_context(folder.served(engine))
        else:
            variables = _outside(options, stack)
            stack.enter_context(announced(options.data, variables))
        jobs = LocalJobs(options.data / "jobs", options.url, variables)
        stack.callback(jobs.stop)
        parts: dict[str, Any] = {"cipher": FileCipher(options.data / "key"), "jobs": jobs}
        if options.engine == EMBEDDED:
            yield _embedded(options, engine, lambda: parts)
            return

        def pollers(functions: Mapping[str, Function]) -> list[StreamPoller]:
            return stream_pollers(functions, Tables(read().prefix), client) if options.stream else []

        ending = f"what was accepted stays in {options.endpoint or options.data}"
        yield Store(partial(dynamo_adapters, **parts), pollers, ending, TokenFile(options.data / "token"))


def _embedded(options: Options, engine: Engine, parts: Callable[[], Mapping[str, Any]]) -> Store:
    def adapters(settings: Settings, clock: Clock, invoker: Invoker) -> Adapters:
        return dynamo_adapters(settings, clock, invoker=invoker, client=Client(engine), **parts())

    def pollers(functions: Mapping[str, Function]) -> list[StreamPoller]:
        wanted = (ROUTE,) if options.ephemeral else (ROUTE, JOURNAL)
        of = {name: functions[name] for name in wanted if options.stream}
        clients = {"dynamodb": Client(engine), "dynamodbstreams": Streams(engine)}
        return stream_pollers(of, Tables(read().prefix), clients.__getitem__, engine)

    if options.ephemeral:
        return Store(adapters, pollers, "what was accepted is gone then", engine=engine)
    token = TokenFile(options.data / "token")
    return Store(adapters, pollers, f"what was accepted stays in {options.data}", token, engine)


def _outside(options: Options, stack: contextlib.ExitStack) -> dict[str, str]:
    """DynamoDB Local, or the DynamoDB that the environment names. What leads to it."""
    if not options.endpoint and (options.data / FILE).exists():
        raise Unusable(
            f"{options.data} holds what the embedded engine stored ({FILE}). Run without --engine to use it, or "
            "choose another folder with --data or HEADRACE_DATA."
        )
    endpoint = options.endpoint or stack.enter_context(amazons_engine(options.data)).endpoint
    if not options.endpoint and not os.environ.get("HEADRACE_BUCKET"):
        os.environ.pop("AWS_PROFILE", None)  # nothing here asks AWS, so it need not exist
    variables = variables_of(endpoint)
    os.environ |= variables
    return variables


def amazons_engine(folder: Path) -> contextlib.AbstractContextManager[Running]:
    """DynamoDB Local on what it has stored in a data folder."""
    return dynamodb_local(folder / "dynamodb")


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
    functions: Mapping[str, Function],
    tables: Tables,
    client: Callable[[str], Any],
    engine: Engine | None = None,
) -> list[StreamPoller]:
    """What reads the log's stream for `route`, and those of the log and the traces for `journal`; none for a function
    that there is not. `client` makes the client of a service: boto3's, or that of the embedded `engine`."""
    slow = {"seconds": _JOURNAL_SECONDS, "batch": _JOURNAL_BATCH}
    wanted: list[tuple[str, str, dict[str, Any]]] = [
        (ROUTE, tables.log, {}),
        (JOURNAL, tables.log, slow),
        (JOURNAL, tables.traces, slow),
    ]
    clients = {"dynamodb": client("dynamodb"), "streams": client("dynamodbstreams")}
    return [
        StreamPoller(table=table, name=name, function=functions[name], **clients, engine=engine, **options)
        for name, table, options in wanted
        if name in functions
    ]


def client(service: str) -> Any:
    """A boto3 client of the engine that the environment names."""
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=2,
        read_timeout=5,
        retries={"mode": "standard", "total_max_attempts": 1},
        parameter_validation=False,
        user_agent="headrace",
    )
    return boto3.client(service, config=config)


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
