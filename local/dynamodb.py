"""`--engine dynamodb-local`: durable, in DynamoDB Local, or in the DynamoDB that the environment names."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from chalicelib.adapters import Adapters, dynamo_adapters
from chalicelib.ports.world import Clock, Invoker
from chalicelib.settings import Settings, read
from chalicelib.store.layout import Tables
from local.data_folder import FILE, data_folder, told
from local.engine.core import Engine
from local.engine.dynamodb_local import DynamoDBLocal
from local.functions import Function
from local.jobs import LocalJobs
from local.key_file import FileCipher
from local.options import ENDPOINT, Options
from local.store import Poller, Store
from local.stream import StreamPoller
from local.token_file import TokenFile
from local.unusable import Unusable

ROUTE, JOURNAL = "route", "journal"
# no caller waits for it: few large objects rather than many small ones
_JOURNAL_SECONDS, _JOURNAL_BATCH = 1.0, 1000
_STREAMS_ENDPOINT = "AWS_ENDPOINT_URL_DYNAMODB_STREAMS"
_LOCAL = {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}


@contextlib.contextmanager
def open_store(options: Options) -> Iterator[Store]:
    """A running engine, and the jobs of the archive that work on what it keeps. Raises Unusable, EngineError."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(data_folder(options.data, f"serves on {options.url}"))
        if not options.endpoint and (options.data / FILE).exists():
            raise Unusable(
                f"{options.data} holds what the embedded engine stored ({FILE}). Run without --engine to use it, or "
                "choose another folder with --data or HEADRACE_DATA."
            )
        endpoint = options.endpoint or stack.enter_context(amazons_engine(options.data)).endpoint
        os.environ[ENDPOINT] = endpoint
        os.environ["AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"] = (
            "false"  # or tables would be made in the user's account
        )
        if not options.endpoint and not os.environ.get("HEADRACE_BUCKET"):
            os.environ.pop("AWS_PROFILE", None)  # nothing here asks AWS, so it need not exist
        for name, value in _LOCAL.items():
            os.environ.setdefault(name, value)
        jobs = LocalJobs(options.data / "jobs", options.url, {})
        stack.callback(jobs.stop)
        stack.enter_context(told(options.data, variables_of(endpoint)))

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
        yield Store(adapters, pollers, lambda: None, token, ending)


def amazons_engine(folder: Path) -> DynamoDBLocal:
    """DynamoDB Local on what it has stored in a data folder."""
    return DynamoDBLocal(folder / "dynamodb")


def variables_of(endpoint: str) -> dict[str, str]:
    """Environment variables with which boto3 finds an engine of another process."""
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
        pollers += (
            poller(JOURNAL, of, **seconds, batch=_JOURNAL_BATCH, images=True) for of in journal_tables
        )
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
