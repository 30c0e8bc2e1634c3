"""One form of every port, in memory or on DynamoDB, with what a test needs around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from chalicelib.adapters import Adapters, dynamo_adapters, memory_adapters
from chalicelib.settings import Settings
from chalicelib.store.attributes import number
from chalicelib.store.layout import Tables, definitions
from chalicelib.wiring import Deps
from local.memory import drop_expired

from . import conditions
from .clock import ManualClock, SeededRandom
from .scars import scarred


@dataclass
class Stage:
    """One form of all ports. `another` makes adapters of a further process on the same data; `drop_expired`
    does what the tables' TTL does, by the stage's clock."""

    adapters: Adapters
    clock: ManualClock
    another: Callable[[], Adapters]
    drop_expired: Callable[[], None]

    def process(self) -> Deps:
        """The services of a further process on the same data."""
        return Deps(self.another())


def memory_stage() -> Stage:
    clock = ManualClock()
    adapters = scarred(memory_adapters(clock, SeededRandom("memory")))
    seeds = iter(range(1, 1_000_000))

    def another() -> Adapters:
        return replace(adapters, random=SeededRandom(f"memory {next(seeds)}"))

    return Stage(adapters, clock, another, lambda: drop_expired(adapters))


def dynamo_stage(prefix: str, folder: Path) -> Stage:
    clock = ManualClock()
    settings = Settings(prefix=prefix, region="us-east-1", bucket=None, data=folder)
    tables = Tables(prefix)
    adapters = dynamo_adapters(settings, clock, SeededRandom(prefix), conditions.watch)
    seeds = iter(range(1, 1_000_000))

    def another() -> Adapters:
        return dynamo_adapters(settings, clock, SeededRandom(f"{prefix} {next(seeds)}"), conditions.watch)

    def drop_expired() -> None:
        client = adapters.log._dynamo.client  # type: ignore[attr-defined]
        keys = {d["TableName"]: [k["AttributeName"] for k in d["KeySchema"]] for d in definitions(tables)}
        expirations = (
            tables.log,
            tables.records,
            tables.traces,
            tables.keys,
            tables.timers,
            tables.transactions,
        )
        for table in expirations:
            pages = client.get_paginator("scan").paginate(
                TableName=table,
                FilterExpression="x <= :now",
                ExpressionAttributeValues={":now": number(clock.now_ms() // 1000)},
            )
            for row in [row for page in pages for row in page["Items"]]:
                client.delete_item(TableName=table, Key={name: row[name] for name in keys[table]})

    adapters.create_tables()
    return Stage(adapters, clock, another, drop_expired)
