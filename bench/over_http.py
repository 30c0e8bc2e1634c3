"""Messages a second through the local HTTP server, which runs in one process of its own.

(Not `http.py`: a script started in this folder would find that instead of the standard library's.)
"""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from .figures import Figure, at_least, told
from .rig import Stage, say, stage, together

_TOKEN = "hr_bench_not-a-secret"
_CLIENTS = (1, 4)
_ONE_BY_ONE = 600
_IN_BATCHES = 24_000
_BATCH = 100
_BODY_CHARS = 238  # and two quotes
_TARGET = 10_000
_START_SECONDS = 30
_ROOT = Path(__file__).resolve().parent.parent


class _Span(NamedTuple):
    """When a client was busy, by the machine's monotonic clock, and how many messages it moved."""

    began: float
    ended: float
    messages: int


@dataclass(frozen=True, slots=True)
class _Load:
    """What each client does: `messages` in all, `batch` at a time, on a topic of its own."""

    port: int
    server: int
    topic: str
    batch: int
    messages: int


def measure(endpoint: str, verbose: bool = False) -> Iterator[Figure]:
    """Produce, then receive and ack, one by one and in batches; beside bare conditional puts in the same run."""
    with stage(endpoint) as made, _server(made) as (port, server):
        for batch, messages in ((1, _ONE_BY_ONE), (_BATCH, _IN_BATCHES)):
            for n in _CLIENTS:
                name = f"b{batch}-{n}"
                # Just before, each time: what else the machine does changes within a run.
                bare = _rate(together(n, partial(_put, made, name, _ONE_BY_ONE // n)))
                yield told(f"bare conditional puts, {_clients(n)}: a second", f"{bare:,.0f}")
                yield from _measured(_Load(port, server, name, batch, messages // n), n, bare)


def _measured(load: _Load, clients: int, bare: float) -> Iterator[Figure]:
    how = f"HTTP, {'one by one' if load.batch == 1 else f'batches of {load.batch} x 240 B'}, {_clients(clients)}"
    say(how)
    setup = _Client(load)
    setup.ask("PUT", "", {})
    setup.ask("PUT", "/groups/g", {"from": "earliest"})
    for verb, work in (("produce", _produce), ("receive + ack", _consume)):
        before = _cpu_seconds(load.server)
        rate = _rate(together(clients, partial(work, load)))
        spent = (_cpu_seconds(load.server) - before) / (load.messages * clients)
        ratio = f"{rate / bare:.2f} x bare puts; {spent * 1e6:,.0f} µs of the server's CPU a message"
        name = f"{how}: {verb}"
        if load.batch == 1:
            yield told(name, f"{rate:,.0f} msg/s", ratio)
        else:
            yield at_least(name, rate, _TARGET, "msg/s", ratio)


def _cpu_seconds(pid: int) -> float:
    """What a process has used so far; 0 where there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _clients(count: int) -> str:
    return f"{count} client{'s'[: count > 1]}"


def _rate(spans: list[_Span]) -> float:
    return sum(s.messages for s in spans) / (max(s.ended for s in spans) - min(s.began for s in spans))


@contextmanager
def _server(made: Stage) -> Iterator[tuple[int, int]]:
    """`python -m local` on our stage; its port and process id."""
    port = _free_port()
    environment = {**made.environment(), "HEADRACE_PORT": str(port), "HEADRACE_TOKEN": _TOKEN}
    command = [sys.executable, "-m", "local"]
    process = subprocess.Popen(command, cwd=_ROOT, env=environment, stdout=subprocess.DEVNULL)
    try:
        _await(process, port)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(15)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the local server ended with {process.returncode}")
        try:
            _Client(_Load(port, 0, "", 0, 0)).connection.connect()
            return
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise RuntimeError("the local server did not start")


class _Client:
    """One kept-alive connection."""

    def __init__(self, load: _Load) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", load.port, timeout=60)
        self._path = f"/v1/topics/{load.topic}"
        self._headers = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: Any) -> Any:
        """The JSON of the answer; RuntimeError for anything but a 2xx."""
        encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.connection.request(method, self._path + path, encoded, self._headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text)


def _produce(load: _Load, number: int, ready: Callable[[], None]) -> _Span:
    client, chance = _Client(load), random.Random(number)
    texts = ["".join(chance.choices(string.ascii_letters, k=_BODY_CHARS)) for _ in range(load.batch)]
    messages = [{"body": text, "tag": "paid"} for text in texts]
    path = "/messages" if load.batch == 1 else "/messages/batch"
    body = json.dumps(messages[0] if load.batch == 1 else {"messages": messages}).encode()
    ready()
    began = time.monotonic()
    for _ in range(load.messages // load.batch):
        answer = client.ask("POST", path, body)
        if any("error" in result for result in answer.get("results", ())):
            raise RuntimeError("a message of the batch was refused")
    return _Span(began, time.monotonic(), load.messages)


def _consume(load: _Load, number: int, ready: Callable[[], None]) -> _Span:
    client, got, empty = _Client(load), 0, 0
    ready()
    began = ended = time.monotonic()
    while empty < 2:
        messages = client.ask("POST", "/groups/g/receive", {"max": load.batch})["messages"]
        if not messages:
            empty += 1
            continue
        empty = 0
        answer = client.ask("POST", "/groups/g/ack", {"receipts": [m["receipt"] for m in messages]})
        if not all(result.get("ok") for result in answer["results"]):
            raise RuntimeError("a receipt was refused")
        got, ended = got + len(messages), time.monotonic()
    return _Span(began, ended, got)


def _put(made: Stage, name: str, count: int, number: int, ready: Callable[[], None]) -> _Span:
    client, table = made.client(), made.tables.log
    key = {"s": {"S": f"bare/{name}/{number}"}}
    client.get_item(TableName=table, Key={**key, "o": {"N": "0"}})
    ready()
    began = time.monotonic()
    for i in range(count):
        item = {**key, "o": {"N": str(i)}, "m": {"S": "x" * _BODY_CHARS}}
        client.put_item(TableName=table, Item=item, ConditionExpression="attribute_not_exists(o)")
    return _Span(began, time.monotonic(), count)
