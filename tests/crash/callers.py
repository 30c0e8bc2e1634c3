"""Callers over HTTP that go on whatever happens to the server, and note what they were told."""

from __future__ import annotations

import base64
import http.client
import json
import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from tests.support.events import NEVER, Event, Op, Told
from tests.support.flows import History

TOPIC = "/v1/topics/killed"
_TAG_BYTES = 12  # of a receipt's signature, before its text
_LEASE_SECONDS = 2
_QUIET_SECONDS = 3  # longer than a lease: who hears nothing for so long has everything


class Gate:
    """Says whether the server is there, how much was answered, and when to stop."""

    def __init__(self) -> None:
        self.up = threading.Event()
        self.finishing = threading.Event()
        self.is_given_up = False
        self._changed = threading.Condition()
        self._answers = 0

    def give_up(self) -> None:
        """Every further call fails."""
        self.is_given_up = True
        self.up.set()

    def count(self) -> None:
        with self._changed:
            self._answers += 1
            self._changed.notify_all()

    def wait_for_answers(self, more: int, timeout_seconds: float = 60) -> None:
        """Return when so many more answers have come."""
        with self._changed:
            wanted = self._answers + more
            assert self._changed.wait_for(lambda: self._answers >= wanted, timeout_seconds)


class Caller:
    """One connection at a time; a request ends with a status, or with nobody knowing."""

    def __init__(self, port: int, token: str, gate: Gate, history: History, seed: str) -> None:
        self._port = port
        self._token = token
        self.gate = gate
        self.history = history
        self.random = random.Random(seed)
        self._connection: http.client.HTTPConnection | None = None

    def call(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Status and answer; status 0 where none came."""
        assert self.gate.up.wait(60)
        assert not self.gate.is_given_up
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            self._connection.request(method, path, json.dumps(body), headers)
            answer = self._connection.getresponse()
            found = answer.status, json.loads(answer.read() or b"{}")
        except (OSError, http.client.HTTPException):
            self.close()
            return 0, {}
        self.gate.count()
        return found

    def close(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None

    def ask(
        self,
        asked: list[Event],
        method: str,
        path: str,
        body: dict[str, Any],
        told: Callable[[Any], Iterable[Event]],
    ) -> bool:
        """Call, and note what was asked as answered; `told` reads a 2xx. Whether there was an answer."""
        began, began_ms = self.history.stamp(), self.history.clock.now_ms()
        status, answer = self.call(method, path, body)
        events = told(answer) if 200 <= status < 300 else [replace(e, told=verdict(status)) for e in asked]
        ended, ended_ms = self.history.stamp(), self.history.clock.now_ms()
        self.history.add(
            replace(e, began=began, ended=ended, began_ms=began_ms, ended_ms=ended_ms) for e in events
        )
        return status not in (0, 503)


def verdict(status: int) -> Told:
    """How a status counts."""
    if 200 <= status < 300:
        return Told.OK
    return Told.REFUSED if 400 <= status < 500 else Told.UNKNOWN


def _blank(op: Op, **settings: Any) -> Event:
    return Event(op=op, told=Told.UNKNOWN, began=0, ended=NEVER, **settings)


def join(caller: Caller, group: str, mode: str) -> None:
    """Create a group that reads from the beginning."""
    asked = _blank(Op.JOIN, reader=group, serial=mode == "serial", max_attempts=1000)
    body = {"mode": mode, "from": "earliest", "retry": {"max_attempts": 1000, "ladder": [1]}}
    caller.ask([asked], "PUT", f"{TOPIC}/groups/{group}", body, lambda _: [replace(asked, told=Told.OK)])


def produce(caller: Caller, name: str, batches: int) -> None:
    """Send batches; what has a dedup id is sent again until there is an answer."""
    for batch in range(batches):
        labels = [f"{name}-{batch}-{n}" for n in range(caller.random.randint(1, 4))]
        messages: list[dict[str, Any]] = [
            {"body": label, "ordering_key": caller.random.choice(("a", "b", "c"))} for label in labels
        ]
        repeatable = caller.random.random() < 0.5
        if repeatable:
            messages = [{**m, "dedup_id": m["body"]} for m in messages]
        while not _send(caller, messages) and repeatable:
            pass


def _send(caller: Caller, messages: list[dict[str, Any]]) -> bool:
    asked = [
        _blank(Op.PRODUCE, label=m["body"], unit=m["ordering_key"], dedup_id=m.get("dedup_id", ""))
        for m in messages
    ]

    def told(answer: Any) -> Iterable[Event]:
        for event, result in zip(asked, answer["results"], strict=True):
            status = result["error"]["status"] if "error" in result else 200
            yield replace(event, told=verdict(status), message_id=result.get("id", ""))

    return caller.ask(asked, "POST", f"{TOPIC}/messages/batch", {"messages": messages}, told)


def consume(caller: Caller, group: str) -> None:
    """Receive and settle until the others have finished and nothing comes any more."""
    while True:
        finishing = caller.gate.finishing.is_set()
        got, answered = _receive(caller, group, _QUIET_SECONDS if finishing else 0.5)
        if finishing and answered and not got:
            return
        caller.random.shuffle(got)
        part = got[: caller.random.randint(1, len(got))] if got else []
        for verb, chosen in (
            ("ack", part),
            ("nack" if caller.random.random() < 0.2 else "ack", got[len(part) :]),
        ):
            if chosen:
                _settle(caller, group, verb, chosen)


def _receive(caller: Caller, group: str, wait_seconds: float) -> tuple[list[tuple[Event, str]], bool]:
    asked = _blank(Op.CLAIM, reader=group, lease_ms=_LEASE_SECONDS * 1000)
    got: list[tuple[Event, str]] = []

    def told(answer: Any) -> Iterable[Event]:
        got.extend((_claimed(asked, m), m["receipt"]) for m in answer["messages"])
        return [event for event, _ in got]

    body = {"max": 5, "wait_seconds": wait_seconds, "lease_seconds": _LEASE_SECONDS}
    answered = caller.ask([asked], "POST", f"{TOPIC}/groups/{group}/receive", body, told)
    return got, answered


def _claimed(asked: Event, message: dict[str, Any]) -> Event:
    token = _opened(message["receipt"]).split("|")[3]
    return replace(
        asked,
        told=Told.OK,
        label=message["body"],
        message_id=message["id"],
        token=token,
        attempt=message["attempt"],
    )


def _opened(receipt: str) -> str:
    return base64.urlsafe_b64decode(receipt + "=" * (-len(receipt) % 4))[_TAG_BYTES:].decode()


def _settle(caller: Caller, group: str, verb: str, chosen: list[tuple[Event, str]]) -> None:
    fate = "SUCCESS" if verb == "ack" else "RETRY"
    asked = [
        _blank(Op.SETTLE, reader=group, message_id=e.message_id, token=e.token, attempt=e.attempt, fate=fate)
        for e, _ in chosen
    ]

    def told(answer: Any) -> Iterable[Event]:
        for event, result in zip(asked, answer["results"], strict=True):
            status = result["error"]["status"] if "error" in result else 200
            yield replace(event, told=Told.ALREADY if result.get("already") else verdict(status))

    body: dict[str, Any] = {"receipts": [receipt for _, receipt in chosen]}
    if verb == "nack":
        body["delay_seconds"] = 0
    caller.ask(asked, "POST", f"{TOPIC}/groups/{group}/{verb}", body, told)
