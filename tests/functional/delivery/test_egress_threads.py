"""Many threads share one egress; a receiver or name server that hangs holds up its own callers alone."""

from __future__ import annotations

import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from chalicelib.delivery.addresses import Rules
from chalicelib.delivery.egress import Egress, Reply
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
    PATIENCE_SECONDS,
    RawReceiver,
    Receiver,
    raw_receiver,
    read_request,
)


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
