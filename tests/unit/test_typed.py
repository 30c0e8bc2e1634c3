"""Types whose first use is that of several threads at once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("module", _PLACES)
def test_nothing_else_uses_types(module: str) -> None:
    """What a module makes while it is imported, is made once."""
    use = re.compile(
        r"msgspec\.convert\(|json\.decode\([^\n]*\btype=|\n +.*json\.Decoder\(|from msgspec.* import .*\bconvert"
    )
    files = {path.name for path in _PLACES[module].rglob("*.py") if use.search(path.read_text())}
    assert files == {"typed.py"}


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
