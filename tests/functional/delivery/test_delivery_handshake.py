"""Who has not agreed is sent nothing, however it puts that, and a host is not asked without end."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from chalicelib.delivery.connections import dial
from chalicelib.delivery.egress import Egress
from chalicelib.delivery.functions import LocalFunctions
from chalicelib.delivery.handshake import MayAsk, greet
from chalicelib.delivery.sender import Sender
from chalicelib.domain.call_result import Verdict
from chalicelib.domain.transaction import Transaction, TransactionState
from tests.functional.delivery.receivers import Receiver, raw_receiver
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.http import ShiftingClock

_URL = "https://hooks.example.com/check"
_ORIGIN = "queue.example.com"
_SECRETS = [b"s" * 32]
PublicEgress = Callable[[Receiver], Egress]
TRANSACTION = Transaction(
    id="T1",
    topic="orders",
    topic_uid="t",
    prepared_ms=START_MS,
    check_ms=START_MS + 60_000,
    check_after_ms=60_000,
    keep_s=86_400,
    draft=make.draft(1, id="m"),
    check_url=_URL,
)


def sender(egress: Egress, monotonic: Callable[[], float] = time.monotonic, may_ask: MayAsk = bool) -> Sender:
    clock = ShiftingClock()
    return Sender(
        egress=egress,
        functions=LocalFunctions(None),
        clock=clock,
        real_clock=clock,
        monotonic=monotonic,
        origin=_ORIGIN,
        may_ask=may_ask,
    )


def methods(receiver: Receiver) -> list[str]:
    return [request.method for request in receiver.seen]


def test_who_agreed_is_asked_about_transactions_and_once_an_hour_whether_it_still_agrees(
    receiver: Receiver, public_egress: PublicEgress
) -> None:
    receiver.headers, receiver.body = {"WebHook-Allowed-Origin": "*"}, b'{"state": "commit"}'
    seconds = [0.0]
    sender_of_urls = sender(public_egress(receiver), lambda: time.monotonic() + seconds[0])
    for hours in (0, 0.9, 0.2, 0.9):
        seconds[0] += hours * 3600
        assert sender_of_urls.ask(TRANSACTION, _SECRETS, 5).decision is TransactionState.COMMITTED
    assert methods(receiver) == ["OPTIONS", "POST", "POST", "OPTIONS", "POST", "POST"]
    sender_of_urls.ask(replace(TRANSACTION, check_url=_URL + "/another"), _SECRETS, 5)
    assert methods(receiver)[-2:] == ["OPTIONS", "POST"], "an agreement is for a URL, not for its host"


@pytest.mark.parametrize(
    ("status", "headers", "why"),
    [
        (200, {}, "OPTIONS: HTTP 200 without WebHook-Allowed-Origin for us"),
        (404, {}, "OPTIONS: HTTP 404 without WebHook-Allowed-Origin for us"),
        (
            301,
            {"Location": "https://hooks.example.com/there"},
            "OPTIONS: HTTP 301 without WebHook-Allowed-Origin for us; redirects are not followed",
        ),
        (
            204,
            {"WebHook-Allowed-Origin": "another.example"},
            "OPTIONS: HTTP 204 without WebHook-Allowed-Origin for us",
        ),
    ],
)
def test_who_never_agreed_is_never_asked_about_transactions(
    receiver: Receiver, public_egress: PublicEgress, status: int, headers: dict[str, str], why: str
) -> None:
    receiver.status, receiver.headers, receiver.body = status, headers, b'{"state": "commit"}'
    sender_of_urls = sender(public_egress(receiver))
    for _ in range(3):
        answer = sender_of_urls.ask(TRANSACTION, _SECRETS, 5)
        assert (answer.decision, answer.detail) == (None, why)
    assert methods(receiver) == ["OPTIONS"] * 3


def drip(receiver: object, connection: object) -> None:
    """Send a byte now and then, until the client closes."""
    while True:
        connection.sendall(b"H")  # type: ignore[attr-defined]
        time.sleep(0.02)


def test_a_host_that_drips_is_given_up_in_time(egress: Egress) -> None:
    with raw_receiver(drip) as slow:
        start = time.monotonic()
        other = Egress(
            rules=replace(egress.rules, allow_loopback=False),
            monotonic=time.monotonic,
            resolve=lambda host: ("93.184.216.34",),
            tls=None,
            dial=lambda address, port, seconds: dial("127.0.0.1", slow.port, seconds),
        )
        outcome = greet(other, _URL, _ORIGIN, bool, 0.3)
        assert time.monotonic() - start < 10
    assert (outcome.verdict, outcome.detail) == (Verdict.FAILED, "OPTIONS: no answer within 0.3 s")


def test_a_connection_that_took_all_the_time_is_closed(egress: Egress) -> None:
    seconds, sockets = [0.0], []

    def dial_slowly(address: str, port: int, _: float) -> socket.socket:
        seconds[0] += 1
        sockets.append(socket.socket())
        return sockets[0]

    other = Egress(
        rules=egress.rules,
        monotonic=lambda: seconds[0],
        resolve=lambda host: ("93.184.216.34",),
        dial=dial_slowly,
    )
    assert greet(other, _URL, _ORIGIN, bool, 0.5).detail == "OPTIONS: no answer within 0.5 s"
    assert [each.fileno() for each in sockets] == [-1]


def test_a_host_is_asked_so_often_and_then_no_more(receiver: Receiver, public_egress: PublicEgress) -> None:
    permits = {"hooks.example.com": 2}

    def may_ask(host: str) -> bool:
        permits[host] -= 1
        return permits[host] >= 0

    sender_of_urls = sender(public_egress(receiver), may_ask=may_ask)
    answers = [
        sender_of_urls.ask(TRANSACTION, _SECRETS, 5).detail,
        *(sender_of_urls.greet(_URL).detail for _ in range(2)),
    ]
    assert answers[2] == "the host was asked too often; it is asked again later"
    assert methods(receiver) == ["OPTIONS"] * 2
