"""The simulation's threads are tasks of a scheduler; so are, then, their locks and queues."""

from __future__ import annotations

import queue
from types import SimpleNamespace

import pytest

from chalicelib.scheduler import mover
from chalicelib.services.consume import receive
from chalicelib.services.produce import appender
from chalicelib.services.push import calls, health
from tests.simulation import virtual


def make_virtual(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the services locks and queues of the running world."""
    locks = SimpleNamespace(Lock=lambda: virtual.Lock(virtual.current()))
    monkeypatch.setattr(appender, "LOSSES_BEFORE_RESERVING", 2)  # few writers are here to heat a shard
    for module in (appender, receive, health):
        monkeypatch.setattr(module, "threading", locks)
    waits = SimpleNamespace(SimpleQueue=lambda: virtual.Queue(virtual.current()), Empty=queue.Empty)
    for module in (calls, mover):
        monkeypatch.setattr(module, "queue", waits)
