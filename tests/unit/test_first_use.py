"""What several threads may use first, at once."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from chalicelib.store.clients import Clients

_ROOT = Path(__file__).parents[2]
_PLACES = {
    "chalicelib.domain.strict_json": _ROOT / "chalicelib",
    "headrace.typed": _ROOT / "clients/python/src/headrace",
}
_SCRIPT = """
import sys, threading
from dataclasses import make_dataclass
from importlib import import_module

typed = import_module(sys.argv[1])
sys.setswitchinterval(1e-6)
names = [f"f{n}" for n in range(20)]
for _ in range(200):
    inner = make_dataclass("Inner", [("a", int)])
    outer = make_dataclass("Outer", [(name, list[inner]) for name in names])
    together, values = threading.Barrier(4), []

    def use():
        together.wait()
        values.append(typed.converted({name: [{"a": 1}] for name in names}, outer))

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [value.f19[0].a for value in values] == [1] * 4
"""


@pytest.mark.parametrize("module", _PLACES)
def test_several_threads_may_use_a_type_first(module: str) -> None:
    """The process died of it."""
    path = f"{_ROOT}:{_ROOT / 'clients/python/src'}"
    subprocess.run([sys.executable, "-c", _SCRIPT, module], env={"PYTHONPATH": path}, check=True)


def test_a_child_uses_types_though_its_parent_was_about_to() -> None:
    """It was forked in the middle of another thread's first use, which never ended there."""
    script = """
import os, signal, threading
from headrace import typed

signal.alarm(20)
typed._first_use.acquire()
threading.Timer(0.1, typed._first_use.release).start()
child = os.fork()
if not child:
    signal.alarm(5)
    os._exit(typed.decoded(b"[7]", list[int]) != [7])
assert os.waitpid(child, 0)[1] == 0
"""
    path = str(_ROOT / "clients/python/src")
    subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": path}, check=True)


_LONG_SECONDS = 0.05  # for a thread that waits for nothing


@pytest.mark.parametrize("is_same", [True, False], ids=["the same client", "another client"])
def test_while_one_thread_makes_a_client_no_other_thread_makes_one(is_same: bool) -> None:
    """Movers and pushes first ask for theirs in several threads at once."""
    makings: list[Any] = []
    second: list[Future[Any]] = []
    may_end = Event()

    def note(client: Any) -> None:
        makings.append(client)
        if len(makings) == 1:
            second.append(pool.submit((clients if is_same else others).get, "sqs"))
            may_end.wait(_LONG_SECONDS)
            assert len(makings) == 1, "another thread is at it as well"
        else:
            may_end.set()

    clients, others = Clients("us-east-1", note), Clients("us-east-1", note)
    with ThreadPoolExecutor(1) as pool:
        first = clients.get("sqs")
        assert (second[0].result() is first) is is_same
    assert makings == [first] if is_same else [first, second[0].result()]
