"""A handler that runs for longer than its lease, in a time that the test moves."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import Message
from headrace.consume import holdings as holdings_module
from headrace.consume import session as session_module
from headrace.consume.holdings import Holdings
from headrace.testing import LocalHeadrace

LEASE = 600
STEP = 350  # more than half of it is over: it is to be extended
PATIENCE_SECONDS = 20


class Restless(threading.Event):
    """Waits for a moment only: a keeper looks at its leases again and again."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(0.01)


class Hours:
    """The time of a service and of the consumer beside it."""

    def __init__(self, headrace: LocalHeadrace, monkeypatch: pytest.MonkeyPatch) -> None:
        self._service = headrace.clock
        self._seconds = 0.0
        for module in (holdings_module, session_module):
            monkeypatch.setattr(module, "time", self)
        quick = SimpleNamespace(Event=Restless, Thread=threading.Thread)
        monkeypatch.setattr(session_module, "threading", quick)

    def monotonic(self) -> float:
        return self._seconds

    def pass_by(self, seconds: int) -> None:
        self._service.advance(seconds=seconds)
        self._seconds += seconds


def test_a_long_handler_keeps_its_lease(headrace: LocalHeadrace, monkeypatch: pytest.MonkeyPatch) -> None:
    headrace.put_topic("orders")
    headrace.put_group("orders", "g", begin="earliest")
    sent = headrace.send("orders", "slow")
    hours, extension, attempts = Hours(headrace, monkeypatch), threading.Event(), list[int]()
    renew = Holdings.renew

    def renew_and_tell(self: Holdings, message: Message, since: float) -> None:
        renew(self, message, since)
        extension.set()

    def handle(message: Message) -> None:
        headrace.stop()
        for _ in range(4):  # more than two leases
            extension.clear()
            hours.pass_by(STEP)
            assert extension.wait(PATIENCE_SECONDS), "the lease is not extended"
            assert headrace.receive("orders", "g") == []
        attempts.append(message.attempt)

    monkeypatch.setattr(Holdings, "renew", renew_and_tell)
    options: dict[str, Any] = {"lease": LEASE, "wait": 0, "rest": 0.05}
    headrace.consumer("orders", group="g", **options)(handle)
    headrace.run(for_seconds=PATIENCE_SECONDS)
    assert attempts == [1]
    assert headrace.get_message("orders", sent.id).deliveries["g"].status == "SUCCESS"
