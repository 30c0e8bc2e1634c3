"""The local server speaks HTTP/1.1 strictly, mixes up no answers and never shows a traceback."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPResponse
from typing import BinaryIO

import pytest

from local.gateway import BODY_LIMIT_BYTES, Gateway
from local.problems import Answer
from local.server import Server, Wire, serve
from local.wire import HEADERS_LIMIT_BYTES, LINE_LIMIT_BYTES
from tests.functional.tiny_app import GOOD, OPEN, make

_ACCEPT = b"Accept: */*\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = serve(Gateway(make()))
    running.start()
    yield running
    running.shutdown()


@pytest.fixture
def client(server: Server) -> Iterator[HTTPConnection]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    yield connection
    connection.close()


def talk(port: int, *parts: bytes) -> bytes:
    """Send, finish sending, and return all that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        for part in parts:
            connection.sendall(part)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def statuses(raw: bytes) -> list[int]:
    return [int(part[:3]) for part in raw.split(b"HTTP/1.1 ")[1:]]


def code(raw: bytes) -> str:
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"Connection: close" in head
    assert b"application/problem+json" in head
    return str(json.loads(body)["code"])


def post(headers: bytes, body: bytes = b"") -> bytes:
    return b"POST /echo/a HTTP/1.1\r\n" + _ACCEPT + headers + b"\r\n" + body


def echoed(response: HTTPResponse) -> dict[str, object]:
    assert response.status == 200
    seen: dict[str, object] = json.loads(response.read())
    return seen


def test_a_connection_serves_many_requests(client: HTTPConnection) -> None:
    client.connect()
    port = client.sock.getsockname()[1]
    for n in range(50):
        client.request("POST", f"/echo/{n}", f"body {n}", OPEN)
        seen = echoed(client.getresponse())
        assert (seen["name"], seen["body"]) == (str(n), f"body {n}")
    assert client.sock.getsockname()[1] == port


def test_requests_may_be_sent_ahead(server: Server) -> None:
    get = b"GET /bytes HTTP/1.1\r\n" + _ACCEPT + b"\r\n"
    assert statuses(talk(server.port, get + get + get)) == [200, 200, 200]


@pytest.mark.parametrize(
    ("line", "more"),
    [
        (b"GET /bytes HTTP/1.1\r\nConnection: close\r\n", 1),
        (b"GET /bytes HTTP/1.1\r\nConnection: TE, Close\r\n", 1),
        (b"GET /bytes HTTP/1.0\r\n", 1),
        (b"GET /bytes HTTP/1.0\r\nConnection: keep-alive\r\n", 2),
        (b"\r\nGET /bytes HTTP/1.1\n", 2),
        (b"GET http://127.0.0.1:1/bytes HTTP/1.1\r\n", 2),
    ],
)
def test_the_connection_is_kept_as_agreed(server: Server, line: bytes, more: int) -> None:
    request = line + _ACCEPT + b"\r\n"
    assert statuses(talk(server.port, request, request)) == [200] * more


def test_a_client_of_http_1_0_is_told_that_the_connection_stays_or_sees_it_end(server: Server) -> None:
    kept = b"GET /bytes HTTP/1.0\r\nConnection: Keep-Alive\r\n" + _ACCEPT + b"\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        answers = connection.makefile("rb")
        for _ in range(3):
            connection.sendall(kept)
            head = read_head(answers)
            assert head["connection"] == "keep-alive"
            assert answers.read(int(head["content-length"])) == bytes(range(256))
        connection.sendall(kept.replace(b"Keep-Alive", b"Keep-Alive, close"))
        assert read_head(answers)["connection"] == "close"
        assert answers.read() == bytes(range(256)), "the end of the connection is the end of the body"


def read_head(answers: BinaryIO) -> dict[str, str]:
    lines = iter(answers.readline, b"\r\n")
    assert next(lines).startswith(b"HTTP/1.1 200 ")
    return {
        name.lower(): value.strip() for name, _, value in (line.decode().partition(":") for line in lines)
    }


def test_http_1_0_has_neither_chunks_nor_100_continue(server: Server) -> None:
    old = b"POST /echo/a HTTP/1.0\r\n" + _ACCEPT
    chunked = old + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"
    assert code(talk(server.port, chunked)) == "BAD_REQUEST"
    expecting = old + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nab"
    assert statuses(talk(server.port, expecting)) == [200]


def test_the_last_answer_arrives_though_more_was_sent_than_is_read(server: Server) -> None:
    last = b"GET /bytes HTTP/1.1\r\nConnection: close\r\n" + _ACCEPT + b"\r\n"
    assert talk(server.port, last, bytes(8 << 20)).endswith(bytes(range(256)))


def test_answers_do_not_mix(server: Server) -> None:
    def caller(number: int) -> list[str]:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=120)
        wrong = []
        for n in range(100):
            mark = f"{number}-{n}"
            connection.request("POST", f"/echo/{mark}?q={mark}", mark, {**OPEN, "X-Mark": mark})
            seen = echoed(connection.getresponse())
            found = [seen["name"], seen["body"], seen["query"], seen["headers"]["x-mark"], seen["context"]]  # type: ignore[index]
            if found != [mark, mark, {"q": mark}, mark, True]:
                wrong.append(mark)
        connection.close()
        return wrong

    with ThreadPoolExecutor(16) as callers:
        assert [wrong for wrong in callers.map(caller, range(16)) if wrong] == []


def test_a_body_without_a_length_is_none(server: Server) -> None:
    assert b'"size": 0' in talk(server.port, post(b""))


@pytest.mark.parametrize(
    "chunks",
    [b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"5;x=y\r\nabcde\r\n00\r\nTrailer: t\r\n\r\n", b"5 \nabcde\n0\n\n"],
)
def test_a_chunked_body_is_put_together(server: Server, chunks: bytes) -> None:
    raw = talk(server.port, post(b"Transfer-Encoding: Chunked\r\n", chunks), post(b"", b""))
    assert statuses(raw) == [200, 200]
    assert b'"body": "abcde"' in raw


@pytest.mark.parametrize(
    "headers",
    [
        *(
            b"Content-Length: -1",
            b"Content-Length: x",
            b"Content-Length: +1",
            b"Content-Length:",
            b"Content-Length: 1.0",
        ),
        *(
            b"Content-Length: 1\r\nContent-Length: 2",
            b"Content-Length: 1, 1",
            b"Content-Length: " + b"1" * 5000,
        ),
        *(
            b"Content-Length: 1\r\nTransfer-Encoding: chunked",
            b"No colon",
            b"Space : x",
            b" folded: x",
            b": x",
        ),
        *(b"X: a\x00b", b"X: a\rb", b"N\xc3\xa9: x"),
    ],
)
def test_what_could_be_read_in_two_ways_is_400(server: Server, headers: bytes) -> None:
    raw = talk(server.port, post(headers + b"\r\n", b"0\r\n\r\n"))
    assert statuses(raw) == [400]
    assert code(raw) == "BAD_REQUEST"


def test_who_sends_a_path_that_is_not_encoded_is_told_how(server: Server) -> None:
    raw = talk(server.port, b"GET /v1/audit?topic=\xc3\xa9 HTTP/1.1\r\n\r\n")
    assert "é is %C3%A9".encode() in raw


def test_a_length_that_is_given_twice_alike_is_one(server: Server) -> None:
    """As RFC 9110 (8.6) allows, and proxies do."""
    twice = b"Content-Length: 2\r\nContent-Length: 2\r\n"
    assert statuses(talk(server.port, post(twice, b"ab"), post(b"", b""))) == [200, 200]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET  /bytes HTTP/1.1\r\n\r\n", 400),
        (b"GET bytes HTTP/1.1\r\n\r\n", 400),
        (b"GET /\xc3\xa9 HTTP/1.1\r\n\r\n", 400),
        (b"GET /bytes\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\n", 400),
        (b"GET /bytes HTTP/2.0\r\n\r\n", 505),
        (b"GET /" + b"a" * LINE_LIMIT_BYTES + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /bytes HTTP/1.1\r\nX: " + b"a" * HEADERS_LIMIT_BYTES + b"\r\n\r\n", 431),
        (b"GET /bytes HTTP/1.1\r\n" + b"X: aaaa\r\n" * 1200 + b"\r\n", 431),
        (post(b"Transfer-Encoding: gzip\r\n"), 501),
        (post(b"Transfer-Encoding: chunked\r\n", b"zz\r\n"), 400),
        (post(b"Transfer-Encoding: chunked\r\n", b"-1\r\n"), 400),
        (post(b"Transfer-Encoding: chunked\r\n", b"3\r\nabcdef\r\n"), 400),
    ],
)
def test_a_bad_request_is_refused_and_the_connection_closed(
    server: Server, request_: bytes, status: int
) -> None:
    raw = talk(server.port, request_)
    assert statuses(raw) == [status]
    assert code(raw)


@pytest.mark.parametrize(
    "part", [b"GET /byt", b"GET /bytes HTTP/1.1\r\nAcc", post(b"Content-Length: 5\r\n", b"abc")]
)
def test_a_client_that_leaves_halfway_gets_no_answer(server: Server, part: bytes) -> None:
    assert talk(server.port, part) == b""


def test_a_client_that_falls_silent_is_hung_up_on() -> None:
    impatient = Server(Gateway(make()), "127.0.0.1", 0, socket_seconds=0.05)
    impatient.start()
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=60) as connection:
        connection.sendall(b"GET /bytes HTTP/1.1\r\nAcc")
        assert connection.recv(1) == b""
    impatient.shutdown()


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (b"", b"G"),
        (b"GET /bytes HTTP/1.1\r\n", b"X-More: 1\r\n"),
        (post(b"Content-Length: 100000\r\n"), b"x"),
        (post(b"Transfer-Encoding: chunked\r\n"), b"1\r\nx\r\n"),
    ],
)
def test_a_client_that_drips_is_hung_up_on(first: bytes, piece: bytes) -> None:
    strict = Server(Gateway(make()), "127.0.0.1", 0, socket_seconds=30, request_seconds=0.1)
    strict.start()
    with socket.create_connection(("127.0.0.1", strict.port), timeout=0.005) as connection:
        connection.sendall(first or piece)
        answer = None
        while answer is None:
            try:
                answer = connection.recv(1)
            except TimeoutError:
                with contextlib.suppress(OSError):
                    connection.sendall(piece)
            except OSError:
                answer = b""
        assert answer == b""
    strict.shutdown()


def test_between_requests_a_client_may_be_silent_for_longer_than_a_request_may_take() -> None:
    passed = [0.0]
    ours, theirs = socket.socketpair()
    wire = Wire(ours, 30, 5, lambda: passed[0])
    with ours, theirs:
        for _ in range(2):
            theirs.sendall(b"ab")
            buffer = bytearray(1)
            assert wire.readinto(buffer) == 1
            passed[0] += 4
            assert wire.readinto(buffer) == 1
            wire.begin()
            passed[0] += 20
        theirs.sendall(b"ab")
        assert wire.readinto(buffer) == 1
        passed[0] += 5
        with pytest.raises(TimeoutError):
            wire.readinto(buffer)


def test_more_connections_than_there_are_places_for_are_closed() -> None:
    small = Server(Gateway(make()), "127.0.0.1", 0, most_connections=2)
    small.start()
    with contextlib.ExitStack() as stack:
        kept = [
            stack.enter_context(socket.create_connection(("127.0.0.1", small.port), timeout=60))
            for _ in range(2)
        ]
        for connection in kept:
            connection.sendall(b"GET /bytes HTTP/1.1\r\n" + _ACCEPT + b"\r\n")
            assert connection.recv(8) == b"HTTP/1.1"
        with socket.create_connection(("127.0.0.1", small.port), timeout=60) as third:
            assert third.recv(1) == b""
    small.shutdown()


@pytest.mark.parametrize(
    "name", [b"Authorization", b"Host", b"Content-Type", b"Headrace-Key", b"Headrace-Forward-X", b"ce-source"]
)
def test_what_counts_once_is_refused_if_it_is_given_twice(server: Server, name: bytes) -> None:
    twice = b"%s: a.example\r\n%s: b.example\r\n" % (name, name.lower())
    assert code(talk(server.port, post(twice))) == "BAD_REQUEST"


def test_another_header_may_be_given_twice(server: Server) -> None:
    twice = b"X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2\r\n"
    assert statuses(talk(server.port, post(twice, b"ab"))) == [200]


def test_a_body_of_just_the_limit_passes(client: HTTPConnection) -> None:
    for size in (BODY_LIMIT_BYTES - 1, BODY_LIMIT_BYTES):
        client.request("POST", "/echo/a", bytes(size), OPEN)
        assert echoed(client.getresponse())["size"] == size


def test_a_body_over_the_limit_is_413_before_it_is_sent(server: Server) -> None:
    raw = talk(server.port, post(b"Content-Length: %d\r\n" % (BODY_LIMIT_BYTES + 1)))
    assert code(raw) == "BODY_TOO_LARGE"


def test_a_body_over_the_limit_is_413_for_a_client_that_sends_it_all(client: HTTPConnection) -> None:
    client.request("POST", "/echo/a", bytes(BODY_LIMIT_BYTES + 1), OPEN)
    assert client.getresponse().status == 413


def test_a_chunked_body_over_the_limit_is_413(server: Server) -> None:
    chunk = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
    assert statuses(
        talk(server.port, post(b"Transfer-Encoding: chunked\r\n", chunk * 10 + b"0\r\n\r\n"))
    ) == [200]
    raw = talk(server.port, post(b"Transfer-Encoding: chunked\r\n", chunk * 10 + b"1\r\n"))
    assert code(raw) == "BODY_TOO_LARGE"


def test_a_client_that_asks_first_is_told_to_continue(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(post(b"Expect: 100-continue\r\nContent-Length: 3\r\nConnection: close\r\n"))
        assert connection.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"abc")
        assert b'"body": "abc"' in b"".join(iter(lambda: connection.recv(65536), b""))


def test_head_and_204_have_no_body(client: HTTPConnection) -> None:
    client.request("HEAD", "/bytes", headers=OPEN)
    head = client.getresponse()
    assert (head.status, head.read()) == (405, b"")
    client.request("GET", "/empty", headers=OPEN)
    empty = client.getresponse()
    assert (empty.status, empty.read(), empty.getheader("Content-Length")) == (204, b"", None)
    client.request("GET", "/private", headers=GOOD)
    assert client.getresponse().read() == b'{"caller": "somebody"}'


def test_a_header_with_a_line_break_does_not_get_out(
    client: HTTPConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    client.request("GET", "/splitting", headers=OPEN)
    response = client.getresponse()
    assert (response.status, response.getheader("Set-Cookie")) == (503, None)
    assert b"Traceback" not in response.read()
    assert "line break" in capsys.readouterr().err


class Held:
    """A gateway that answers when it is told to."""

    def __init__(self) -> None:
        self.entered, self.go = threading.Event(), threading.Event()

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Answer:
        self.entered.set()
        assert self.go.wait(10)
        return 200, {}, b"done"


def _in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_shutdown_waits_for_the_request_under_way() -> None:
    gateway = Held()
    server = serve(gateway)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert gateway.entered.wait(10)
        ending = _in_thread(server.shutdown)
        ending.join(0.3)
        assert ending.is_alive(), "it must wait"
        gateway.go.set()
        assert b"done" in b"".join(iter(lambda: connection.recv(65536), b""))
    ending.join(10)
    assert not ending.is_alive()


def test_a_taken_port_is_an_error_and_a_free_one_can_be_had_again(server: Server) -> None:
    with pytest.raises(OSError, match="in use"):
        serve(Held(), port=server.port)
    first = serve(Held())
    first.shutdown()
    serve(Held(), port=first.port).shutdown()
