"""Killed for real: the server gets SIGKILL at random moments of real traffic, and starts again on what is there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from chalicelib.adapters import SystemClock, dynamo_adapters
from chalicelib.settings import Settings
from chalicelib.wiring import Deps
from local.engine.client import Client as EngineClient
from local.engine.core import Engine
from local.engine.dynamodb_local import free_port
from tests.crash.callers import TOPIC, Caller, Gate, consume, join, produce
from tests.support.events import Final, Op, Told
from tests.support.flows import Client, History, SharedTables, chance
from tests.support.history import check
from tests.support.rest import final

_ROOT = Path(__file__).parents[2]
_TOKEN = "hr_crash_0123456789abcdef"
_SOAK = bool(os.environ.get("HEADRACE_SOAK"))
_ENDPOINT = "AWS_ENDPOINT_URL_DYNAMODB"
_PRODUCERS = 2
_READERS = ("crowd", "crowd", "line", "line")
_BATCHES = 15  # of each producer, between two kills


class Server:
    """`python -m local`, which can be killed and started again on the same data."""

    def __init__(self, data: Path, prefix: str, endpoint: str | None) -> None:
        self.port = free_port()
        environment = {k: v for k, v in os.environ.items() if k != _ENDPOINT}
        self._environment = environment | {
            "HEADRACE_PORT": str(self.port),
            "HEADRACE_DATA": str(data),
            "HEADRACE_TOKEN": _TOKEN,
            "HEADRACE_PREFIX": prefix,
            **({_ENDPOINT: endpoint} if endpoint else {}),
        }
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Return when it serves."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "local"],
            cwd=_ROOT,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        assert any("serves on" in line for line in self._process.stdout), "it did not start"

    def end(self, how: signal.Signals) -> None:
        """Kill it, or ask it to stop."""
        if self._process:
            self._process.send_signal(how)
            self._process.wait(60)
            assert self._process.stdout
            self._process.stdout.close()
            self._process = None


def _traffic(server: Server, kills: int, seed: str) -> History:
    """Producers and consumers at work while the server is killed so many times; all they saw."""
    gate, history, dice = Gate(), History(SystemClock()), random.Random(seed)

    def caller(name: str) -> Caller:
        return Caller(server.port, _TOKEN, gate, history, f"{seed}:{name}")

    server.start()
    gate.up.set()
    first = caller("setup")
    assert first.call("PUT", TOPIC, {"shards": 2})[0] in (200, 201)
    join(first, "crowd", "queue")
    join(first, "line", "serial")
    first.close()
    with ThreadPoolExecutor(_PRODUCERS + len(_READERS)) as pool:
        try:
            readers = [
                pool.submit(_finally_closed, consume, caller(f"{g}{n}"), g) for n, g in enumerate(_READERS)
            ]
            for kill in range(kills):
                writers = [
                    pool.submit(_finally_closed, produce, caller(f"p{n}-{kill}"), f"{kill}-{n}", _BATCHES)
                    for n in range(_PRODUCERS)
                ]
                gate.wait_for_answers(dice.randint(5, 2 * _BATCHES))
                gate.up.clear()
                server.end(signal.SIGKILL)
                server.start()
                gate.up.set()
                _results(writers)
            gate.finishing.set()
            _results(readers)
        except BaseException:
            gate.give_up()  # or those in the pool would work for ever
            raise
    return history


def _finally_closed(work: Callable[..., None], caller: Caller, *arguments: object) -> None:
    try:
        work(caller, *arguments)
    finally:
        caller.close()


def _results(futures: list[Future[None]]) -> None:
    for future in futures:
        future.result(120)


def _final(deps: Deps) -> Final:
    return final(Client(deps, History(SystemClock()), "killed"))


def _judge(history: History, end: Final) -> None:
    assert check(history.events, end) == []
    accepted_ids = {e.message_id for e in history.events if e.op is Op.PRODUCE and e.told is Told.OK}
    unknown = sum(e.told is Told.UNKNOWN for e in history.events)
    assert accepted_ids, "nothing was accepted: nothing was tested"
    assert unknown, "no kill met a request: nothing was tested"


@pytest.mark.soak  # slow
def test_a_server_killed_again_and_again_keeps_its_promises(engine: str, tmp_path: Path) -> None:
    prefix, seed = f"killed-{uuid4().hex[:8]}", uuid4().hex
    server = Server(tmp_path, prefix, engine)
    try:
        history = _traffic(server, 100 if _SOAK else 2, seed)
    finally:
        server.end(signal.SIGKILL)
    tables = SharedTables(prefix, tmp_path)
    _judge(history, _final(tables.deps(SystemClock(), chance("sigkill"))))
    tables.remove()


def test_i1_a_machine_that_loses_its_engine_too_keeps_its_promises(tmp_path: Path) -> None:
    """The engine is in the process that is killed: what was accepted is in its file."""
    server = Server(tmp_path, "killed", None)
    try:
        history = _traffic(server, 100 if _SOAK else 2, uuid4().hex)
    finally:
        server.end(signal.SIGTERM)
    settings = Settings("killed", "us-east-1", None, tmp_path)
    with closing(Engine(tmp_path / "engine.db")) as engine:
        _judge(history, _final(Deps(dynamo_adapters(settings, client=EngineClient(engine)))))
