"""A stage of our own on the engine, services and clients on it, and processes that start together."""

from __future__ import annotations

import multiprocessing as mp
import os
import random
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from chalicelib import adapters, wiring
from chalicelib.domain.receipt import sign_receipt
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.settings import Settings
from chalicelib.store.clients import Clients
from chalicelib.store.layout import Tables, definitions

from .meter import Meter

REGION = "us-east-1"
_fork = mp.get_context("fork")  # children inherit what is imported; clients are made after the fork


def say(text: str) -> None:
    """Progress, on stderr."""
    print(f"  {text}", file=sys.stderr, flush=True)


class StandingClock:
    """A clock that goes on by sleep alone, for what costs the same each time, however slow the machine is. Chance
    repeats itself with it."""

    def __init__(self) -> None:
        self.ms = time.time_ns() // 1_000_000

    def now_ms(self) -> int:
        return self.ms

    monotonic_ms = now_ms

    def sleep(self, seconds: float) -> None:
        self.ms += round(seconds * 1000)


class _Chance(adapters.SystemRandom):
    """What is chosen is the same each time; ids are not: transactions are known by them."""

    def __init__(self) -> None:
        self._random = random.Random(11)

    def below(self, n: int) -> int:
        return self._random.randrange(n)


@dataclass(frozen=True, slots=True)
class Stage:
    """Tables of our own on an engine, dropped afterwards."""

    endpoint: str
    prefix: str
    folder: Path

    @property
    def tables(self) -> Tables:
        return Tables(self.prefix)

    def deps(self, meter: Meter | None = None, clock: StandingClock | None = None) -> wiring.Deps:
        """Services as a new process would have them: nothing cached, a client of their own."""
        settings = Settings(self.prefix, REGION, None, self.folder)
        on_client, chance = meter.watch if meter else None, _Chance() if clock else None
        return wiring.Deps(adapters.dynamo_adapters(settings, clock, chance, on_client))

    def client(self) -> Any:
        """A bare client, with the settings that Headrace's own has."""
        return Clients(REGION).get("dynamodb")

    def bare_put(self) -> float:
        """How long a bare conditional put takes just now: the median in seconds."""
        putter = self.bare_putter(f"bare{time.time_ns()}")
        return statistics.median(seconds(partial(putter, n)) for n in range(100))

    def bare_putter(self, name: str, chars: int = 0) -> Callable[[int], Any]:
        """A function that puts numbered rows of a name, with so many characters each, into a table whose stream, unlike
        the log's, has no reader."""
        putter = partial(
            self.client().put_item,
            TableName=self.tables.timers,
            ConditionExpression="attribute_not_exists(t)",
        )
        return lambda number: putter(
            Item={"f": {"S": name}, "t": {"S": f"{number:015d}"}, "m": {"S": "x" * chars}}
        )

    def environment(self) -> dict[str, str]:
        """What a process needs to use this stage."""
        return {
            **os.environ,
            "HEADRACE_PREFIX": self.prefix,
            "HEADRACE_DATA": str(self.folder),
            "PYTHONPATH": str(Path(__file__).resolve().parent.parent),
        }


@contextmanager
def stage(endpoint: str) -> Iterator[Stage]:
    """Create a stage; drop its tables at the end."""
    use(endpoint)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        target = Stage(endpoint, f"bench{secrets.token_hex(4)}", Path(folder))
        target.deps().setup()
        try:
            yield target
        finally:
            client = target.client()
            for definition in definitions(target.tables):
                client.delete_table(TableName=definition["TableName"])


def use(endpoint: str) -> None:
    """Point this process, and those it starts, to an engine."""
    os.environ |= {"AWS_ENDPOINT_URL_DYNAMODB": endpoint, "AWS_DEFAULT_REGION": REGION}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        os.environ.setdefault(name, "local")


def receipts(deps: wiring.Deps, claimed_messages: Sequence[ClaimedMessage]) -> list[str]:
    """What a consumer would show to settle these."""
    return [sign_receipt(deps.signing_key, each.receipt) for each in claimed_messages]


def run_together(count: int, work: Callable[[int, Callable[[], None]], Any]) -> list[Any]:
    """Run `work(number, ready)` in `count` processes; `ready()` holds each until all have called it.

    The results, in order. RuntimeError where a process failed.
    """
    barrier, results = _fork.Barrier(count), _fork.SimpleQueue()
    children = [
        _fork.Process(target=_child, args=(work, n, barrier, results), daemon=True) for n in range(count)
    ]
    for child in children:
        child.start()
    by_number = dict(results.get() for _ in children)
    for child in children:
        child.join()
    failures = [str(result) for result in by_number.values() if isinstance(result, _Failure)]
    if failures:
        raise RuntimeError(f"{len(failures)} of {count} processes failed, one with {failures[0]}")
    return [by_number[n] for n in range(count)]


class _Failure(str):
    """Why a process failed."""


def _child(work: Callable[[int, Callable[[], None]], Any], number: int, barrier: Any, results: Any) -> None:
    try:
        results.put((number, work(number, lambda: barrier.wait(60))))
    except Exception as error:  # noqa: BLE001 - sent to the parent, which raises
        barrier.abort()
        results.put((number, _Failure(f"{type(error).__name__}: {error}")))


def seconds(work: Callable[[], Any]) -> float:
    """How long it takes, by the clock."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
