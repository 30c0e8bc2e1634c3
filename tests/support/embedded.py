"""Adapters on an embedded engine of their own, in memory: what ships, for the price of a dictionary."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

from chalicelib import settings as environment
from chalicelib.adapters import Adapters, dynamo_adapters
from chalicelib.ports.world import Clock, Invoker, Jobs, Random, Sender
from chalicelib.settings import Settings
from chalicelib.store.dynamo import Dynamo
from local.engine.client import Client
from local.engine.core import Engine
from local.store import MemoryBlobs

from .clock import ManualClock, SeededRandom


def embedded_adapters(
    clock: Clock,
    random: Random,
    sender: Callable[[], Sender] | None = None,
    invoker: Invoker | None = None,
    threads: Callable[[], Executor] | None = None,
    jobs: Jobs | None = None,
    settings: Settings | None = None,
) -> Adapters:
    """The ports on tables with nothing in them."""
    adapters = dynamo_adapters(
        settings or environment.read({}),
        clock,
        random,
        invoker=invoker,
        jobs=jobs,
        client=Client(Engine(now_ms=clock.now_ms)),
        blobs=MemoryBlobs(),
    )
    others: dict[str, Any] = {"sender": sender, "threads": threads}
    adapters = replace(adapters, **{name: value for name, value in others.items() if value is not None})
    adapters.create_tables()
    return adapters


def embedded_dynamo() -> Dynamo:
    """Tables with nothing in them, for a test that makes a part of the store itself."""
    dynamo: Dynamo = embedded_adapters(ManualClock(), SeededRandom("dynamo")).log._dynamo
    return dynamo


def engine_client(adapters: Adapters) -> Client:
    """The client by which these adapters ask their engine."""
    client: Client = adapters.log._dynamo.client
    return client


def engine_of(adapters: Adapters) -> Engine:
    """The engine that these adapters stand on."""
    return engine_client(adapters).engine
