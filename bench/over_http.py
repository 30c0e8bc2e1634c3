"""Messages a second through the local HTTP server, which runs in one process of its own.

(Not `http.py`: a script started in this folder would find that instead of the standard library's.)
"""

from __future__ import annotations

import json
import random
import string
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from .figures import Figure, at_least, without_target
from .local_server import LocalServer, serve
from .stage import Stage, run_together, say, stage

_CLIENTS = (1, 4)
_ONE_BY_ONE = 600
_IN_BATCHES = 24_000
_BATCH = 100
_BODY_CHARS = 238  # and two quotes
_TARGET = 10_000


class _Span(NamedTuple):
    """When a client was busy, by the machine's monotonic clock, and how many messages it moved."""

    start: float
    end: float
    messages: int


@dataclass(frozen=True, slots=True)
class Load:
    """What each client does: `messages` in all, `batch` at a time, on a topic of its own."""

    server: LocalServer
    topic: str
    batch: int
    messages: int

    @property
    def path(self) -> str:
        return f"/topics/{self.topic}"


def measure(endpoint: str, verbose: bool = False) -> Iterator[Figure]:
    """Produce, then receive and ack, one by one and in batches; beside bare conditional puts in the same run."""
    with stage(endpoint) as target, serve(target) as server:
        for batch, messages in ((1, _ONE_BY_ONE), (_BATCH, _IN_BATCHES)):
            for n in _CLIENTS:
                name = f"b{batch}-{n}"
                # Just before, each time: what else the machine does changes within a run.
                bare = rate_of(run_together(n, partial(_put, target, name, _ONE_BY_ONE // n)))
                yield without_target(f"bare conditional puts, {_clients(n)}: a second", f"{bare:,.0f}")
                yield from _measure_load(Load(server, name, batch, messages // n), n, bare)


def _measure_load(load: Load, clients: int, bare: float) -> Iterator[Figure]:
    load_name = f"HTTP, {'one by one' if load.batch == 1 else f'batches of {load.batch} x 240 B'}, {_clients(clients)}"
    say(load_name)
    setup = load.server.client()
    setup.ask("PUT", load.path, {})
    setup.ask("PUT", f"{load.path}/groups/g", {"from": "earliest"})
    for verb, work in (("produce", produce), ("receive + ack", consume)):
        before = load.server.cpu_seconds()
        rate = rate_of(run_together(clients, partial(work, load)))
        cpu_seconds = (load.server.cpu_seconds() - before) / (load.messages * clients)
        ratio = f"{rate / bare:.2f} x bare puts; {cpu_seconds * 1e6:,.0f} µs of the server's CPU a message"
        name = f"{load_name}: {verb}"
        if load.batch == 1:
            yield without_target(name, f"{rate:,.0f} msg/s", ratio)
        else:
            yield at_least(name, rate, _TARGET, "msg/s", ratio)


def _clients(count: int) -> str:
    return f"{count} client{'s'[: count > 1]}"


def rate_of(spans: list[_Span]) -> float:
    """Messages a second of clients that were busy together."""
    return sum(s.messages for s in spans) / (max(s.end for s in spans) - min(s.start for s in spans))


def produce(load: Load, number: int, ready: Callable[[], None]) -> _Span:
    """What a client does that sends the load."""
    client, chance = load.server.client(), random.Random(number)
    texts = ["".join(chance.choices(string.ascii_letters, k=_BODY_CHARS)) for _ in range(load.batch)]
    messages = [{"body": text, "tag": "paid"} for text in texts]
    path = load.path + ("/messages" if load.batch == 1 else "/messages/batch")
    body = json.dumps(messages[0] if load.batch == 1 else {"messages": messages}).encode()
    ready()
    start = time.monotonic()
    for _ in range(load.messages // load.batch):
        answer = client.ask("POST", path, body)
        if any("error" in result for result in answer.get("results", ())):
            raise RuntimeError("a message of the batch was refused")
    return _Span(start, time.monotonic(), load.messages)


def consume(load: Load, number: int, ready: Callable[[], None]) -> _Span:
    """What a client does that receives and acknowledges all there is."""
    client, count, empty = load.server.client(), 0, 0
    ready()
    start = end = time.monotonic()
    while empty < 2:
        messages = client.ask("POST", f"{load.path}/groups/g/receive", {"max": load.batch})["messages"]
        if not messages:
            empty += 1
            continue
        empty = 0
        answer = client.ask(
            "POST", f"{load.path}/groups/g/ack", {"receipts": [m["receipt"] for m in messages]}
        )
        if not all(result.get("ok") for result in answer["results"]):
            raise RuntimeError("a receipt was refused")
        count, end = count + len(messages), time.monotonic()
    return _Span(start, end, count)


def _put(target: Stage, name: str, count: int, number: int, ready: Callable[[], None]) -> _Span:
    put = target.bare_putter(f"bare/{name}/{number}", _BODY_CHARS)
    put(count)  # makes the connection
    ready()
    start = time.monotonic()
    for i in range(count):
        put(i)
    return _Span(start, time.monotonic(), count)
