"""Connections of deliveries: what is sent on them, when they are used again, and many threads at once."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from chalicelib.delivery.addresses import Rules
from chalicelib.delivery.connections import dial
from chalicelib.delivery.egress import HOP_HEADER, Egress, Reply
from tests.functional.delivery.egress_peers import (
    HEAD,
    HOOKS,
    UNUSABLE,
    Dialled,
    detail,
    get,
    outward,
    polite,
    silent,
)
from tests.functional.delivery.receivers import (
    OK,
    PATIENCE_SECONDS,
    RawReceiver,
    Receiver,
    answering,
    raw_receiver,
    read_request,
)


def test_a_request_arrives_as_it_was_given(egress: Egress, receiver: Receiver) -> None:
    receiver.status, receiver.headers, receiver.body = 418, {"X-Answer": "yes"}, b"teapot"
    answer = egress.call("POST", receiver.url, {"X-Word": "é\r\nX-Evil: 1"}, b"\x00\xffbody", 5)
    assert isinstance(answer, Reply)
    assert (answer.status, answer.headers["x-answer"], answer.body) == (418, "yes", b"teapot")
    (request,) = receiver.seen
    assert (request.method, request.path, request.body) == ("POST", "/in?from=headrace", b"\x00\xffbody")
    assert request.headers["x-word"].encode("latin-1").decode() == "é X-Evil: 1"
    assert "x-evil" not in request.headers
    assert (request.headers["user-agent"], request.headers[HOP_HEADER.lower()]) == ("headrace", "1")


def test_headers_of_the_connection_are_ours_alone(egress: Egress, receiver: Receiver) -> None:
    headers = {
        "Content-Length": "0", "host": "evil.example", "Transfer-Encoding": "chunked", "Connection": "close",
        "EXPECT": "100-continue", "user-agent": "evil", "accept-encoding": "gzip", "Bad Name": "x", "Upgrade": "h2c",
    }  # fmt: skip
    egress.call("POST", receiver.url, headers, b"hello", 5)
    (request,) = receiver.seen
    assert request.body == b"hello"
    assert request.headers == {
        "host": f"127.0.0.1:{receiver.port}", "user-agent": "headrace", "accept-encoding": "identity",
        "headrace-hop": "1", "content-length": "5",
    }  # fmt: skip


def test_a_connection_is_used_again(egress: Egress) -> None:
    with raw_receiver(polite) as receiver:
        assert all(isinstance(get(egress, receiver.url), Reply) for _ in range(20))
        egress.close()
    assert receiver.connections == 1


def test_proxies_of_the_environment_are_ignored(
    egress: Egress, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert isinstance(get(egress, receiver.url), Reply)


def test_localhost_is_tried_at_each_of_its_addresses(egress: Egress) -> None:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6 loopback")
        probe.listen()
        port = probe.getsockname()[1]
        answerer = threading.Thread(target=lambda: _answer_once(probe))
        answerer.start()
        assert isinstance(get(egress, f"http://localhost:{port}/"), Reply)
        answerer.join(PATIENCE_SECONDS)


def _answer_once(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        read_request(connection)
        connection.sendall(OK)


class _Late(socket.socket):
    """Sends a second request only once the other side has closed the connection."""

    sends = 0

    def send(self, data: Any, flags: int = 0, /) -> int:
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


def test_many_threads_share_it_and_each_gets_its_own_answer(egress: Egress) -> None:
    def echo(_: RawReceiver, sock: socket.socket) -> None:
        request = b"POST /0 "
        while request:
            number = request.split(b" ")[1]
            sock.sendall(HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(number), number))
            request = read_request(sock)

    wrong: list[object] = []

    def work(worker: int) -> None:
        get(egress, receiver.url)
        for n in range(20):
            answer = get(egress, f"{receiver.url}{worker}-{n}")
            if not isinstance(answer, Reply) or answer.body not in (f"/{worker}-{n}".encode(), b"/0"):
                wrong.append(answer)

    with raw_receiver(echo) as receiver:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        egress.close()
    assert wrong == []
    assert receiver.connections <= 64


def test_calls_that_begin_together_read_the_certificates_once(
    egress: Egress, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reading takes 30 ms of a whole core, and a megabyte."""
    contexts: list[ssl.SSLContext] = []
    make, together = ssl.create_default_context, threading.Barrier(16)

    def counted() -> ssl.SSLContext:
        contexts.append(make())
        return contexts[-1]

    def begin(_: int) -> str:
        together.wait(PATIENCE_SECONDS)
        return detail(egress, f"https://127.0.0.1:{receiver.port}/")

    monkeypatch.setattr(ssl, "create_default_context", counted)
    with ThreadPoolExecutor(together.parties) as threads:
        assert set(threads.map(begin, range(together.parties))) == {"no secure connection"}
    assert len(contexts) == 1


def test_a_hanging_receiver_holds_up_its_own_callers_alone(egress: Egress, receiver: Receiver) -> None:
    with raw_receiver(silent) as slow_receiver:
        threads = [threading.Thread(target=get, args=(egress, slow_receiver.url)) for _ in range(64)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert slow_receiver.arrived.acquire(timeout=PATIENCE_SECONDS)
        assert all(isinstance(get(egress, receiver.url), Reply) for _ in range(50))
        assert all(thread.is_alive() for thread in threads)
        slow_receiver.stop.set()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)


def test_a_name_server_that_hangs_holds_one_thread_and_no_other_name() -> None:
    release = threading.Event()

    def resolve(host: str) -> tuple[str, ...]:
        if host.startswith("hanging"):
            release.wait(PATIENCE_SECONDS)
        return ()

    with outward(resolve, Dialled()) as egress:
        for _ in range(3):
            assert detail(egress, "https://hanging.example.com/", 0.05) == "no answer within 0.05 s"
        assert detail(egress, HOOKS, 5) == UNUSABLE
        threads = [t for t in threading.enumerate() if t.name == "resolve hanging.example.com"]
        assert len(threads) == 1
        release.set()
        threads[0].join(PATIENCE_SECONDS)
        assert detail(egress, "https://hanging.example.com/", 5) == UNUSABLE


def test_a_name_that_found_no_thread_is_looked_up_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with outward(lambda host: (), Dialled()) as egress:
        with monkeypatch.context() as system:
            system.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError):
                get(egress, HOOKS)
        assert detail(egress, HOOKS, 5) == UNUSABLE


def test_connections_that_waited_too_long_are_closed() -> None:
    now = [1000.0]
    with raw_receiver(polite) as one, raw_receiver(polite) as other:
        egress = Egress(rules=Rules(allow_loopback=True), monotonic=lambda: now[0])
        get(egress, one.url)
        get(egress, other.url)
        now[0] += 5
        get(egress, one.url)
        assert (one.connections, other.connections) == (2, 1)
        get(egress, one.url)
        assert one.connections == 2
        get(egress, other.url)
        assert other.connections == 2
        egress.close()
