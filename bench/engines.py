"""The embedded engine beside DynamoDB Local: the same loads on the local service, on one and the other in turn."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

from tests.support.receiver import Receiver

from .figures import Figure, at_least, at_most
from .local_server import LocalServer, serve_folder
from .over_http import Load, consume, produce, rate_of
from .process import usage_of
from .stage import run_together, say

_ENGINES = ("dynamodb-local", "embedded")
_ROUNDS = 3
_ONE_BY_ONE, _IN_BATCHES = 800, 20_000
_BATCH = 100
_MESSAGES = 1_000_000
_LATENCIES = 60
_PAUSE_SECONDS = 0.15
_IMPORT = (
    "import time; start = time.perf_counter(); import local.engine.client; print(time.perf_counter() - start)"
)


def measure(endpoint: str, verbose: bool = False) -> Iterator[Figure]:
    """Rates and latency as ratios of one run; then what only the embedded engine promises."""
    with ExitStack() as stack:
        servers = []
        for engine in _ENGINES:
            data = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "data"
            servers.append(stack.enter_context(serve_folder(data, engine)))
        yield from _rates(servers)
        yield from _latency(servers)
    yield from _start()
    yield from _import()


def _rates(servers: list[LocalServer]) -> Iterator[Figure]:
    loads: tuple[tuple[str, int, int, int, float, float], ...] = (
        ("one by one", 1, _ONE_BY_ONE, 1, 3, 3),
        ("one by one", 1, _ONE_BY_ONE, 8, 5, 3),
        (f"in batches of {_BATCH}", _BATCH, _IN_BATCHES, 1, 2, 3),
    )
    for name, batch, messages, clients, times_in, times_out in loads:
        rates: dict[tuple[str, LocalServer], list[float]] = {}
        for turn in range(_ROUNDS):
            for server in servers:
                load = Load(server, f"{name.replace(' ', '-')}-{clients}-{turn}", batch, messages // clients)
                say(f"{name}, {clients} connections: {load.topic}")
                server.client().ask("PUT", load.path, {})
                server.client().ask("PUT", f"{load.path}/groups/g", {"from": "earliest"})
                for verb, work in (("produce", produce), ("receive + ack", consume)):
                    rate = rate_of(run_together(clients, partial(work, load)))
                    rates.setdefault((verb, server), []).append(rate)
        for verb, times in (("produce", times_in), ("receive + ack", times_out)):
            theirs, ours = (median(rates[verb, server]) for server in servers)
            what = f"embedded engine, HTTP, {name}, {clients} connection{'s'[: clients > 1]}: {verb}"
            yield at_least(
                what, ours / theirs, times, "x DynamoDB Local", f"{ours:,.0f} and {theirs:,.0f} msg/s"
            )


def _latency(servers: list[LocalServer]) -> Iterator[Figure]:
    say("produce to subscriber")
    medians = []
    for server in servers:
        client, sent = server.client(), {}
        with Receiver() as receiver:
            client.ask("PUT", "/topics/latency", {})
            client.ask("PUT", "/topics/latency/groups/g", {"from": "earliest"})
            client.ask("PUT", "/topics/latency/groups/g/consumers/c", {"url": receiver.url("")})
            for _ in range(_LATENCIES):
                time.sleep(_PAUSE_SECONDS)
                start = time.time()
                sent[client.ask("POST", "/topics/latency/messages", {"body": 1})["id"]] = start
            _wait_until(partial(_has_all, receiver))
            medians.append(median(v.began - sent[v.headers["webhook-id"]] for v in receiver.visits))
    theirs, ours = medians
    ratio = f"{ours * 1000:.1f} and {theirs * 1000:.1f} ms"
    work = "embedded engine, produce → HTTP subscriber, idle: p50"
    yield at_most(work, ours / theirs, 0.5, "x DynamoDB Local", ratio)


def _has_all(receiver: Receiver) -> bool:
    return len(receiver.visits) >= _LATENCIES


def _start() -> Iterator[Figure]:
    """Of a folder with a million messages, and of an empty one."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        for stored in (0, _MESSAGES):
            say(f"start with {stored:,} messages")
            seconds, megabytes = _started(data)
            work = f"embedded engine, {stored:,} messages stored"
            yield at_most(f"{work}: start to first answer", seconds, 1.5, "s")
            yield at_most(f"{work}: resident memory then", megabytes, 200, "MB")
            if not stored:
                _fill(data)


def _started(data: Path) -> tuple[float, float]:
    start = time.monotonic()
    with serve_folder(data, "embedded") as server:
        server.client().ask("GET", "/topics")
        return time.monotonic() - start, usage_of(server.pid).resident_mb


def _fill(data: Path) -> None:
    with serve_folder(data, "embedded") as server:
        load = Load(server, "many", _BATCH, _MESSAGES)
        server.client().ask("PUT", load.path, {})
        produce(load, 1, lambda: None)


def _import() -> Iterator[Figure]:
    command = [sys.executable, "-c", _IMPORT]
    runs = [float(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(7)]
    yield at_most("embedded engine: import", min(runs) * 1000, 60, "ms")


def _wait_until(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_done():
        if time.monotonic() > deadline:
            raise RuntimeError("messages did not arrive")
        time.sleep(0.02)
