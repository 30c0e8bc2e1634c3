"""The whole store, on the embedded engine or the one that the environment names, with what a test needs around it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.adapters import Adapters, dynamo_adapters
from chalicelib.settings import Settings
from chalicelib.store.attributes import number
from chalicelib.store.dynamo import Dynamo
from chalicelib.store.layout import FRAGMENTS, Tables, definitions
from chalicelib.store.timers import Timers
from chalicelib.wiring import Deps

from . import conditions
from .clock import Inline, ManualClock, SeededRandom
from .embedded import embedded_adapters, engine_of


@dataclass
class Stage:
    """One form of all ports; what threads would do is done at once. `another` makes adapters of a further process on
    the same data; `drop_expired` does what the tables' TTL does, by the stage's clock; `clear` removes every row."""

    adapters: Adapters
    clock: ManualClock
    another: Callable[[], Adapters]
    drop_expired: Callable[[], object]
    clear: Callable[[], None] = lambda: None

    def process(self) -> Deps:
        """The services of a further process on the same data."""
        return Deps(self.another())


def embedded_stage() -> Stage:
    """One on an engine of its own, asked without boto3."""
    clock = ManualClock()
    adapters = embedded_adapters(clock, SeededRandom("embedded"), threads=Inline)
    seeds = iter(range(1, 1_000_000))

    def another() -> Adapters:
        return replace(adapters, random=SeededRandom(f"embedded {next(seeds)}"))

    engine = engine_of(adapters)
    return Stage(adapters, clock, another, engine.drop_expired, engine.clear)


def dynamo_stage(prefix: str, folder: Path, endpoint: str | None = None) -> Stage:
    """One on the DynamoDB at `endpoint`, or else that the environment names, asked by boto3."""
    clock = ManualClock()
    settings = Settings(prefix=prefix, region="us-east-1", bucket=None, data=folder)
    tables = Tables(prefix)
    seeds = iter(range(1, 1_000_000))
    making = threading.Lock()

    def adapters_of(seed: str) -> Adapters:
        with making, pytest.MonkeyPatch.context() as patch:
            if endpoint:
                patch.setenv("AWS_ENDPOINT_URL_DYNAMODB", endpoint)
            return replace(
                dynamo_adapters(settings, clock, SeededRandom(seed), conditions.watch), threads=Inline
            )

    adapters = adapters_of(prefix)
    another = lambda: adapters_of(f"{prefix} {next(seeds)}")  # noqa: E731
    dynamo: Dynamo = adapters.log._dynamo
    keys = {d["TableName"]: [k["AttributeName"] for k in d["KeySchema"]] for d in definitions(tables)}

    def remove(table: str, **condition: Any) -> None:
        pages = dynamo.client.get_paginator("scan").paginate(TableName=table, **condition)
        rows = [row for page in pages for row in page["Items"]]
        dynamo.delete(table, [{name: row[name] for name in keys[table]} for row in rows])

    def drop_expired() -> None:
        now_s = number(clock.now_ms() // 1000)
        for table in (
            tables.log,
            tables.records,
            tables.traces,
            tables.keys,
            tables.timers,
            tables.transactions,
        ):
            remove(table, FilterExpression="x <= :now", ExpressionAttributeValues={":now": now_s})

    def clear() -> None:
        for table in keys:
            remove(table)

    adapters.create_tables()
    return Stage(adapters, clock, another, drop_expired, clear)


FOREVER = 10**15 - 2


def drop_all(timers: Timers) -> None:
    """Leave nothing in any fragment. A look is bounded in bytes: several are taken."""
    for fragment in range(FRAGMENTS):
        while rows := timers.first_due(fragment, FOREVER, 1_000).timers:
            timers.drop(rows)
