"""A connection that has served: when a request that broke off on it is sent again within its attempt."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from typing import Any

import pytest
import trustme

from chalicelib.delivery.addresses import Rules
from chalicelib.delivery.connections import dial
from chalicelib.delivery.egress import Egress, Reply
from tests.functional.delivery.egress_peers import HOOKS, PUBLIC, Dialled, certified, detail, get, outward
from tests.functional.delivery.receivers import (
    OK,
    PATIENCE_SECONDS,
    RawReceiver,
    answering,
    raw_receiver,
    read_request,
)


class _Late(socket.socket):
    """Sends a second request only once the other side has closed the connection."""

    sends = 0

    def send(self, data: Any, flags: int = 0, /) -> int:
        self.sends += 1
        if self.sends == 2:
            _wait_for_the_end(self)
        return super().send(data, flags)


class _LateTls(ssl.SSLSocket):
    sends = 0

    def send(self, data: Any, flags: int = 0) -> int:
        self.sends += 1
        if self.sends == 2:
            _wait_for_the_end(self)
        return super().send(data, flags)


_closing = threading.Event()


def _at_once() -> float:
    """A clock that stands still: how long these tests take decides nothing."""
    return 0.0


def _wait_for_the_end(sock: socket.socket) -> None:
    _closing.set()
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    assert poll.poll(PATIENCE_SECONDS * 1000)


def test_a_connection_that_was_closed_while_it_waited_costs_no_failure(egress: Egress) -> None:
    with raw_receiver(
        answering(OK)
    ) as receiver:  # each is closed after its first answer, which does not say so
        for _ in range(5):
            assert isinstance(get(egress, receiver.url), Reply)


def _close_when_told(_: RawReceiver, sock: socket.socket) -> None:
    sock.sendall(OK)
    assert _closing.wait(PATIENCE_SECONDS)


def _late(address: str, port: int, seconds: float) -> socket.socket:
    return _Late(fileno=dial(address, port, seconds).detach())


def test_a_request_that_meets_the_end_of_its_connection_costs_no_failure() -> None:
    _closing.clear()
    late_egress = Egress(rules=Rules(allow_loopback=True), monotonic=_at_once, dial=_late)
    with raw_receiver(_close_when_told) as receiver, contextlib.closing(late_egress) as egress:
        assert isinstance(get(egress, receiver.url), Reply)
        assert isinstance(get(egress, receiver.url), Reply)
        assert receiver.connections == 2


def test_a_request_that_meets_the_end_of_its_secure_connection_costs_no_failure(
    authority: trustme.CA, client_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    _closing.clear()
    monkeypatch.setattr(client_tls, "sslsocket_class", _LateTls)
    with (
        raw_receiver(_close_when_told, certified(authority, "hooks.example.com")) as receiver,
        outward(lambda host: (PUBLIC,), Dialled(receiver.port), client_tls, _at_once) as egress,
    ):
        assert isinstance(get(egress, HOOKS), Reply)
        assert isinstance(get(egress, HOOKS), Reply)
        assert receiver.connections == 2


@pytest.mark.parametrize("seconds", [0, 2])
def test_a_request_that_was_read_is_not_sent_again_within_its_attempt(seconds: int) -> None:
    seconds_passed = [0.0]
    patient = Egress(rules=Rules(allow_loopback=True), monotonic=lambda: seconds_passed[0])

    def act(_: RawReceiver, sock: socket.socket) -> None:
        sock.sendall(OK)
        if read_request(sock):
            seconds_passed[0] += seconds  # of work, in which the receiver dies

    with raw_receiver(act) as receiver, contextlib.closing(patient) as egress:
        assert isinstance(get(egress, receiver.url), Reply)
        assert detail(egress, receiver.url) == "the connection broke off"
        assert receiver.connections == 1
