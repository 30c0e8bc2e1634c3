"""Callers over HTTP that go on when the server dies, and note its answers."""

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
            total = self._answers + more
            assert self._changed.wait_for(lambda: self._answers >= total, timeout_seconds)


class Caller:
    """One connection at a time; a request ends with a status, or its result is unknown."""

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
            result = answer.status, json.loads(answer.read() or b"{}")
        except (OSError, http.client.HTTPException):
            self.close()
            return 0, {}
        self.gate.count()
        return result

    def close(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None

    def ask(
        self,
        blanks: list[Event],
        method: str,
        path: str,
        body: dict[str, Any],
        events_of: Callable[[Any], Iterable[Event]],
    ) -> bool:
        """Call, and note what was asked as answered; `events_of` reads a 2xx. Whether there was an answer."""
        start, start_ms = self.history.stamp(), self.history.clock.now_ms()
        status, answer = self.call(method, path, body)
        events = (
            events_of(answer) if 200 <= status < 300 else [replace(e, told=verdict(status)) for e in blanks]
        )
        end, end_ms = self.history.stamp(), self.history.clock.now_ms()
        self.history.add(
            replace(e, began=start, ended=end, began_ms=start_ms, ended_ms=end_ms) for e in events
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
    blank = _blank(Op.JOIN, reader=group, serial=mode == "serial", max_attempts=1000)
    body = {"mode": mode, "from": "earliest", "retry": {"max_attempts": 1000, "ladder": [1]}}
    caller.ask([blank], "PUT", f"{TOPIC}/groups/{group}", body, lambda _: [replace(blank, told=Told.OK)])


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
    blanks = [
        _blank(Op.PRODUCE, label=m["body"], unit=m["ordering_key"], dedup_id=m.get("dedup_id", ""))
        for m in messages
    ]

    def events_of(answer: Any) -> Iterable[Event]:
        for event, result in zip(blanks, answer["results"], strict=True):
            status = result["error"]["status"] if "error" in result else 200
            yield replace(event, told=verdict(status), message_id=result.get("id", ""))

    return caller.ask(blanks, "POST", f"{TOPIC}/messages/batch", {"messages": messages}, events_of)


def consume(caller: Caller, group: str) -> None:
    """Receive and settle until the others have finished and nothing comes any more."""
    while True:
        is_finishing = caller.gate.finishing.is_set()
        messages, is_answered = _receive(caller, group, _QUIET_SECONDS if is_finishing else 0.5)
        if is_finishing and is_answered and not messages:
            return
        caller.random.shuffle(messages)
        part = messages[: caller.random.randint(1, len(messages))] if messages else []
        for verb, portion in (
            ("ack", part),
            ("nack" if caller.random.random() < 0.2 else "ack", messages[len(part) :]),
        ):
            if portion:
                _settle(caller, group, verb, portion)


def _receive(caller: Caller, group: str, wait_seconds: float) -> tuple[list[tuple[Event, str]], bool]:
    blank = _blank(Op.CLAIM, reader=group, lease_ms=_LEASE_SECONDS * 1000)
    messages: list[tuple[Event, str]] = []

    def events_of(answer: Any) -> Iterable[Event]:
        messages.extend((_claimed(blank, m), m["receipt"]) for m in answer["messages"])
        return [event for event, _ in messages]

    body = {"max": 5, "wait_seconds": wait_seconds, "lease_seconds": _LEASE_SECONDS}
    is_answered = caller.ask([blank], "POST", f"{TOPIC}/groups/{group}/receive", body, events_of)
    return messages, is_answered


def _claimed(blank: Event, message: dict[str, Any]) -> Event:
    token = _opened(message["receipt"]).split("|")[3]
    return replace(
        blank,
        told=Told.OK,
        label=message["body"],
        message_id=message["id"],
        token=token,
        attempt=message["attempt"],
    )


def _opened(receipt: str) -> str:
    return base64.urlsafe_b64decode(receipt + "=" * (-len(receipt) % 4))[_TAG_BYTES:].decode()


def _settle(caller: Caller, group: str, verb: str, messages: list[tuple[Event, str]]) -> None:
    fate = "SUCCESS" if verb == "ack" else "RETRY"
    blanks = [
        _blank(Op.SETTLE, reader=group, message_id=e.message_id, token=e.token, attempt=e.attempt, fate=fate)
        for e, _ in messages
    ]

    def events_of(answer: Any) -> Iterable[Event]:
        for event, result in zip(blanks, answer["results"], strict=True):
            status = result["error"]["status"] if "error" in result else 200
            yield replace(event, told=Told.ALREADY if result.get("already") else verdict(status))

    body: dict[str, Any] = {"receipts": [receipt for _, receipt in messages]}
    if verb == "nack":
        body["delay_seconds"] = 0
    caller.ask(blanks, "POST", f"{TOPIC}/groups/{group}/{verb}", body, events_of)
