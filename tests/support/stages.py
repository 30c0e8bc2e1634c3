"""One form of every port, in memory or on DynamoDB, with what a test needs around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chalicelib.adapters import Adapters, dynamo_adapters, memory_adapters
from chalicelib.settings import Settings
from chalicelib.store.attributes import number
from chalicelib.store.dynamo import Dynamo
from chalicelib.store.layout import Tables, definitions
from chalicelib.wiring import Deps
from local.memory import drop_expired

from . import conditions
from .clock import ManualClock, SeededRandom
from .inline import Inline
from .scars import scarred


@dataclass
class Stage:
    """One form of all ports; what threads would do is done at once. `another` makes adapters of a further process on
    the same data; `drop_expired` does what the tables' TTL does, by the stage's clock; `clear` removes every row; in
    memory one makes a new stage instead."""

    adapters: Adapters
    clock: ManualClock
    another: Callable[[], Adapters]
    drop_expired: Callable[[], None]
    clear: Callable[[], None] = lambda: None

    def process(self) -> Deps:
        """The services of a further process on the same data."""
        return Deps(self.another())


def memory_stage() -> Stage:
    clock = ManualClock()
    adapters = scarred(memory_adapters(clock, SeededRandom("memory"), threads=Inline))
    seeds = iter(range(1, 1_000_000))

    def another() -> Adapters:
        return replace(adapters, random=SeededRandom(f"memory {next(seeds)}"))

    return Stage(adapters, clock, another, lambda: drop_expired(adapters))


def dynamo_stage(prefix: str, folder: Path) -> Stage:
    clock = ManualClock()
    settings = Settings(prefix=prefix, region="us-east-1", bucket=None, data=folder)
    tables = Tables(prefix)
    adapters = replace(
        dynamo_adapters(settings, clock, SeededRandom(prefix), conditions.watch), threads=Inline
    )
    seeds = iter(range(1, 1_000_000))

    def another() -> Adapters:
        random = SeededRandom(f"{prefix} {next(seeds)}")
        return replace(dynamo_adapters(settings, clock, random, conditions.watch), threads=Inline)

    dynamo: Dynamo = adapters.log._dynamo  # type: ignore[attr-defined]
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
