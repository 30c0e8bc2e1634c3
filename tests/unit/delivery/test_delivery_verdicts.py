"""What an answer means, what is signed and when, and what a test event is: without a network."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from chalicelib.delivery import checks, events, function_batch
from chalicelib.delivery.addresses import Rules
from chalicelib.delivery.egress import Egress, Reply
from chalicelib.delivery.events import post
from chalicelib.delivery.functions import FunctionFailed, Throttled
from chalicelib.delivery.sender import Sender
from chalicelib.domain.call_result import Verdict
from chalicelib.domain.signing import Secret
from chalicelib.domain.times import rfc3339
from chalicelib.domain.topic import Consumer, ConsumerKind
from chalicelib.domain.transaction import CheckAnswer, Transaction, TransactionState
from tests.support import factories as make
from tests.support.clock import START_MS, ManualClock
from tests.unit.delivery.push_batches import push_batch

REAL_MS = START_MS + 77_000
URL = "http://127.0.0.1:5000/in"


class Told:
    """A user's function with a scripted answer."""

    answer: bytes | FunctionFailed | Throttled = b""

    def call(self, name: str, event: bytes, seconds: float) -> bytes | FunctionFailed | Throttled:
        return self.answer

    def refusal(self, name: str) -> str | None:
        return None


class Wire:
    """Both ends of a connection on which an answer lies ready."""

    def __init__(self) -> None:
        self.near, self._far = socket.socketpair()
        self._far.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    def headers(self) -> dict[str, str]:
        """Those of the request that came."""
        lines = self._far.recv(65_536).decode().partition("\r\n\r\n")[0].split("\r\n")[1:]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    def close(self) -> None:
        self.near.close()
        self._far.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


@pytest.fixture
def functions() -> Told:
    return Told()


@pytest.fixture
def sender(wire: Wire, functions: Told) -> Sender:
    egress = Egress(
        rules=Rules(allow_loopback=True),
        monotonic=lambda: 0.0,
        resolve=lambda host: (),
        dial=lambda address, port, seconds: wire.near,
    )
    return Sender(
        egress=egress,
        functions=functions,
        clock=ManualClock(),
        real_clock=ManualClock(REAL_MS),
        monotonic=lambda: 0.0,
        origin="queue.example.com",
    )


def consumer(kind: ConsumerKind = ConsumerKind.URL, target: str = URL, **settings: Any) -> Consumer:
    secrets = (Secret((b"s" * 32).hex()),)
    group = make.group(make.topic())
    return make.consumer(group, kind=kind, target=target, secrets=secrets, **settings)


@pytest.mark.parametrize(
    ("status", "verdict", "is_own_answer"),
    [
        *((status, Verdict.DONE, True) for status in (200, 204, 299)),
        *(
            (status, Verdict.FAILED, True)
            for status in (199, 300, 302, 400, 404, 488, 490, 499, 500, 501, 599, 999)
        ),
        (410, Verdict.GONE, True),
        (489, Verdict.REFUSED, True),
        *((status, Verdict.FAILED, False) for status in (429, 502, 503, 504)),
    ],
)
def test_a_status_says_what_becomes_of_the_message_and_whose_it_is(
    sender: Sender, status: int, verdict: Verdict, is_own_answer: bool
) -> None:
    result = sender._judge(consumer(), Reply(status, {"retry-after": "7"}, b"", 3))
    assert (result.verdict, result.is_own_answer, result.status) == (verdict, is_own_answer, status)
    assert result.detail == f"HTTP {status}"
    assert result.retry_after_ms == (7_000 if status in (429, 503) else None)


def test_a_request_is_signed_by_the_time_that_subscribers_share(sender: Sender, wire: Wire) -> None:
    (result,) = sender.send(consumer(), push_batch(make.draft(1)), 5)
    assert result.verdict is Verdict.DONE
    headers = wire.headers()
    assert headers["webhook-timestamp"] == str(REAL_MS // 1000)
    assert headers["webhook-id"] == "0123456789ab-3-7"


def test_each_check_has_an_id_of_its_own(sender: Sender, wire: Wire) -> None:
    transaction = Transaction(
        "t1", "orders", "u1", START_MS, START_MS + 5, 60_000, 0, make.draft(1), check_url=URL
    )
    sender.ask(transaction, [b"s" * 32], 5)
    headers = wire.headers()
    assert headers["webhook-id"] == f"t1.{START_MS + 5}"
    assert headers["webhook-timestamp"] == str(REAL_MS // 1000)


@pytest.mark.parametrize(
    ("answer", "verdict", "is_busy", "is_own_answer"),
    [
        (Throttled(), Verdict.NOT_ATTEMPTED, False, False),
        (FunctionFailed("late", may_run=True), Verdict.FAILED, True, False),
        (FunctionFailed("raised", ran=True), Verdict.FAILED, False, True),
        (FunctionFailed("not reached"), Verdict.FAILED, False, False),
        (b"[]", Verdict.FAILED, False, True),
        (b"", Verdict.DONE, False, True),
        (b"null", Verdict.DONE, False, True),
    ],
)
def test_a_functions_answer_says_the_same(
    sender: Sender,
    functions: Told,
    answer: bytes | FunctionFailed | Throttled,
    verdict: Verdict,
    is_busy: bool,
    is_own_answer: bool,
) -> None:
    functions.answer = answer
    function = consumer(ConsumerKind.FUNCTION, "mail", timeout_seconds=90)
    busy_ms = function.busy_seconds * 1000 if is_busy else 0
    results = sender.send(function, push_batch(make.draft(1), make.draft(2)), 5)
    assert [(r.verdict, r.busy_ms, r.is_own_answer) for r in results] == [
        (verdict, busy_ms, is_own_answer)
    ] * 2


@pytest.mark.parametrize("payload", ["binary", "structured", "batch"])
def test_a_message_that_waited_was_accepted_when_its_producer_heard_so(payload: str) -> None:
    old_batch = push_batch(make.draft(1, accepted_ms=START_MS - 9_000), payload=payload)
    request, accepted_at = post(old_batch), rfc3339(START_MS - 9_000)
    assert accepted_at in (request.headers.get("ce-time", "") + request.body.decode())
    assert accepted_at in function_batch.event(old_batch).decode()


def test_each_message_of_a_batch_bears_its_own_trace() -> None:
    traces = [f"00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333{n}-01" for n in range(2)]
    of = push_batch(*(make.draft(n, headers={"traceparent": trace}) for n, trace in enumerate(traces)))
    assert [each["traceparent"] for each in json.loads(post(of).body)] == traces


def test_a_test_event_says_that_it_is_one_and_brings_no_message() -> None:
    to = consumer()
    request = events.test_post(to, "p1", START_MS)
    assert request.headers["ce-type"] == "headrace.test"
    assert json.loads(request.body) == {
        "test": True,
        "topic": to.topic,
        "group": to.group,
        "consumer": to.name,
        "sent_at": rfc3339(START_MS),
    }
    assert json.loads(events.test_event(to, START_MS))["messages"] == []


@pytest.mark.parametrize("status", [199, 201, 204, 299])
def test_a_check_is_answered_by_nothing_but_a_200(status: int) -> None:
    decision = b'{"state": "commit"}'
    assert checks.read(Reply(200, {}, decision, 1)).decision is TransactionState.COMMITTED
    assert checks.read(Reply(status, {}, decision, 1)) == CheckAnswer(None, f"HTTP {status}")
