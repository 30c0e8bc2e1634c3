"""The local server: its connections, time limits and bodies over real sockets; it mixes up no answers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import pytest

from chalicelib.domain.limits import MAX_REQUEST_BYTES
from local.gateway import Answer, Gateway
from local.server import Server, is_caller_gone, serve
from tests.functional.raw_http import USUAL, code, echoed, post, statuses, talk, tiny_client, tiny_server
from tests.functional.tiny_app import OPEN, make

server, client = tiny_server, tiny_client


def test_a_connection_serves_many_requests(client: HTTPConnection) -> None:
    client.connect()
    port = client.sock.getsockname()[1]
    for n in range(50):
        client.request("POST", f"/echo/{n}", f"body {n}", OPEN)
        echo = echoed(client.getresponse())
        assert (echo["name"], echo["body"]) == (str(n), f"body {n}")
    assert client.sock.getsockname()[1] == port


def test_the_last_answer_arrives_though_more_was_sent_than_is_read(server: Server) -> None:
    last = b"GET /bytes HTTP/1.1\r\nConnection: close\r\n" + USUAL + b"\r\n"
    assert talk(server.port, last, bytes(8 << 20)).endswith(bytes(range(256)))


def test_answers_do_not_mix(server: Server) -> None:
    def caller(number: int) -> list[str]:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=120)
        wrong = []
        for n in range(100):
            mark = f"{number}-{n}"
            connection.request("POST", f"/echo/{mark}?q={mark}", mark, {**OPEN, "X-Mark": mark})
            echo = echoed(connection.getresponse())
            facts = [echo["name"], echo["body"], echo["query"], echo["headers"]["x-mark"], echo["context"]]  # type: ignore[index]
            if facts != [mark, mark, {"q": mark}, mark, True]:
                wrong.append(mark)
        connection.close()
        return wrong

    with ThreadPoolExecutor(16) as callers:
        assert [wrong for wrong in callers.map(caller, range(16)) if wrong] == []


@pytest.mark.parametrize(
    "part", [b"GET /byt", b"GET /bytes HTTP/1.1\r\nAcc", post(b"Content-Length: 5\r\n", b"abc")]
)
def test_a_client_that_leaves_halfway_gets_no_answer(server: Server, part: bytes) -> None:
    assert talk(server.port, part) == b""


def test_a_client_that_falls_silent_is_hung_up_on() -> None:
    impatient = serve(Gateway(make()))
    impatient.socket_seconds = 0.05
    impatient.start()
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=60) as connection:
        try:
            connection.sendall(b"GET /bytes HTTP/1.1\r\nAcc")
            answer = connection.recv(1)
        except ConnectionError:  # it hung up before it had read this
            answer = b""
        assert answer == b""
    impatient.shutdown()


def test_a_body_over_the_limit_is_413_before_it_is_sent(server: Server) -> None:
    raw = talk(server.port, post(b"Content-Length: %d\r\n" % (MAX_REQUEST_BYTES + 1)))
    assert code(raw) == "BODY_TOO_LARGE"


def test_a_chunked_body_over_the_limit_is_413(server: Server) -> None:
    chunk = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
    assert statuses(
        talk(server.port, post(b"Transfer-Encoding: chunked\r\n", chunk * 10 + b"0\r\n\r\n"))
    ) == [200]
    raw = talk(server.port, post(b"Transfer-Encoding: chunked\r\n", chunk * 10 + b"1\r\n"))
    assert code(raw) == "BODY_TOO_LARGE"


class WaitingGateway:
    """A gateway that answers at a signal."""

    def __init__(self) -> None:
        self.entered, self.go = threading.Event(), threading.Event()

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Answer:
        self.entered.set()
        assert self.go.wait(60)
        return 200, {}, b"done"


class AskingGateway(WaitingGateway):
    """A gateway that asks whether its caller has gone: before the signal, and then until it has."""

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Answer:
        self.answers = [is_caller_gone()]
        answer = super().handle(method, path, headers, body)
        deadline = time.monotonic() + 60
        while not self.answers[-1] and time.monotonic() < deadline:
            self.answers.append(is_caller_gone())
        return answer


def test_a_caller_that_closes_its_connection_is_seen_while_its_request_is_answered() -> None:
    gateway = AskingGateway()
    server = serve(gateway)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n" + USUAL + b"\r\n")
        assert gateway.entered.wait(60)
    gateway.go.set()
    server.shutdown()
    assert (gateway.answers[0], gateway.answers[-1]) == (False, True)
    assert not is_caller_gone(), "where no request is answered"


def _in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_shutdown_waits_for_the_request_under_way() -> None:
    gateway = WaitingGateway()
    server = serve(gateway)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n" + USUAL + b"\r\n")
        assert gateway.entered.wait(60)
        ending = _in_thread(server.shutdown)
        ending.join(0.3)
        assert ending.is_alive(), "it must wait"
        gateway.go.set()
        assert b"done" in b"".join(iter(lambda: connection.recv(65536), b""))
    ending.join(60)
    assert not ending.is_alive()


def test_nobody_connects_before_there_is_somebody_to_answer() -> None:
    """A request that waited would be older than the server knows: sent again, it would not be known (ADR 45)."""
    server = serve(None)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=60)
    rival = serve(None, port=server.port)
    server.gateway = rival.gateway = WaitingGateway()
    server.start()
    socket.create_connection(("127.0.0.1", server.port), timeout=60).close()
    with pytest.raises(OSError, match="in use"):
        rival.start()
    rival.server_close()
    server.shutdown()


def test_a_taken_port_is_an_error_and_a_free_one_can_be_had_again(server: Server) -> None:
    with pytest.raises(OSError, match="in use"):
        serve(WaitingGateway(), port=server.port)
    first = serve(WaitingGateway())
    first.server_close()
    serve(WaitingGateway(), port=first.port).server_close()
