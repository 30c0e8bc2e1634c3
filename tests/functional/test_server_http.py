"""The local server speaks HTTP/1.1 strictly: what may be read in two ways it refuses."""

from __future__ import annotations

import io
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from io import BytesIO
from pathlib import Path

import pytest

from chalicelib import observe
from chalicelib.domain.limits import MAX_REQUEST_BYTES
from local.functions import Context, attempt
from local.gateway import Answer, Refusal
from local.log import LoggedGateway, Unheard, logger
from local.options import HUMAN, JSON
from local.server import Server
from local.wire import HEADERS_LIMIT_BYTES, LINE_LIMIT_BYTES, read_request
from tests.functional.raw_http import USUAL, code, post, statuses, talk, tiny_client, tiny_server
from tests.functional.tiny_app import GOOD, OPEN
from tests.support.local_service import serving

server, client = tiny_server, tiny_client


def test_requests_may_be_sent_ahead(server: Server) -> None:
    get = b"GET /bytes HTTP/1.1\r\n" + USUAL + b"\r\n"
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
    request = line + USUAL + b"\r\n"
    assert statuses(talk(server.port, request, request)) == [200] * more


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
        (b"GET  /bytes HTTP/1.1\r\n" + USUAL + b"\r\n", 400),
        (b"GET bytes HTTP/1.1\r\n" + USUAL + b"\r\n", 400),
        (b"GET /\xc3\xa9 HTTP/1.1\r\n" + USUAL + b"\r\n", 400),
        (b"GET /bytes\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\n", 400),
        (b"GET /bytes HTTP/2.0\r\n" + USUAL + b"\r\n", 505),
        (b"GET /" + b"a" * LINE_LIMIT_BYTES + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /bytes HTTP/1.1\r\n" + USUAL + b"X: " + b"a" * HEADERS_LIMIT_BYTES + b"\r\n\r\n", 431),
        (b"GET /bytes HTTP/1.1\r\n" + USUAL + b"X: aaaa\r\n" * 1200 + b"\r\n", 431),
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


def test_all_chunks_of_a_body_together_have_the_limit_of_one_body() -> None:
    def request(*sizes: int) -> BytesIO:
        chunks = [b"%x\r\n%s\r\n" % (size, b"a" * size) for size in (*sizes, 0)]
        return BytesIO(post(b"Transfer-Encoding: chunked\r\n", b"".join(chunks)))

    half = MAX_REQUEST_BYTES // 2
    whole = read_request(request(half, MAX_REQUEST_BYTES - half), lambda _: None)
    assert whole
    assert whole.body
    assert len(whole.body) == MAX_REQUEST_BYTES
    with pytest.raises(Refusal) as refusal:
        read_request(request(half, MAX_REQUEST_BYTES - half, 1), lambda _: None)
    assert refusal.value.status == 413


@pytest.mark.parametrize(
    "name", [b"Authorization", b"Host", b"Content-Type", b"Headrace-Key", b"Headrace-Forward-X", b"ce-source"]
)
def test_what_counts_once_is_refused_if_it_is_given_twice(server: Server, name: bytes) -> None:
    twice = b"%s: a.example\r\n%s: b.example\r\n" % (name, name.lower())
    assert code(talk(server.port, post(twice))) == "BAD_REQUEST"


def test_a_request_names_its_host(server: Server) -> None:
    """RFC 9112, 3.2; HTTP/1.0 did without."""
    raw = talk(server.port, b"GET /bytes HTTP/1.1\r\nAccept: */*\r\n\r\n")
    assert (statuses(raw), code(raw)) == ([400], "BAD_REQUEST")
    assert statuses(talk(server.port, b"GET /bytes HTTP/1.0\r\nAccept: */*\r\n\r\n")) == [200]


def test_another_header_may_be_given_twice(server: Server) -> None:
    twice = b"X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2\r\n"
    assert statuses(talk(server.port, post(twice, b"ab"))) == [200]


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


_FAILED = {
    "topic": "orders",
    "group": "shop",
    "consumer": "hook",
    "message_id": "m-1",
    "shard": 0,
    "offset": 7,
    "attempt": 2,
    "verdict": "RETRY",
    "detail": "HTTP 500",
    "traceparent": None,
}


class Teapot:
    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Answer:
        return 418, {}, b""


@pytest.fixture(autouse=True)
def fresh_logger() -> Iterator[None]:
    """As in a process that has just begun; afterwards the logger is as it was."""
    log = logging.getLogger("Headrace")
    before, handlers = dict(vars(log)), list(log.handlers)
    for name in ("init", "powertools_handler"):
        vars(log).pop(name, None)
    log.handlers.clear()
    observe._logger.cache_clear()
    yield
    observe._logger.cache_clear()
    vars(log).clear()
    vars(log).update(before)
    log.handlers[:] = handlers


def _use(form: str) -> None:
    log = logger(form)
    times = iter([1.0, 1.014])
    LoggedGateway(Teapot(), log, lambda: next(times)).handle(
        "POST", "/v1/topics/x\x1b[31m?ticket=secret", {"authorization": "Bearer hr_a_secret"}, b"body"
    )
    observe.event("attempt failed", **_FAILED)
    observe.report("deliver", {"SUCCESS": 3})
    observe.event("backlog over alarm", topic="orders", messages=12)


def test_people_read_a_line_for_each_request_and_each_failed_push(capsys: pytest.CaptureFixture[str]) -> None:
    _use(HUMAN)
    output = capsys.readouterr()
    assert output.out == ""
    assert [line.split("  ", 1)[1] for line in output.err.splitlines()] == [
        "POST   /v1/topics/x?[31m  418  14 ms",
        "push failed: orders/shop to hook, attempt 2 of message m-1: HTTP 500 (RETRY)",
        "backlog over alarm  topic=orders  messages=12",
    ]
    assert all(len(line.split("  ")[0]) == len("12:00:00") for line in output.err.splitlines())


def test_programs_read_an_object_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    _use(JSON)
    output = capsys.readouterr()
    assert output.out == ""
    request, push, report, alarm = (json.loads(line) for line in output.err.splitlines())
    assert (request["message"], request["method"], request["status"], request["ms"]) == (
        "request",
        "POST",
        418,
        14,
    )
    assert (push["message"], push["detail"]) == ("attempt failed", "HTTP 500")
    assert (report["message"], report["SUCCESS"]) == ("deliver", 3)
    assert alarm["messages"] == 12
    assert "secret" not in output.err


def test_what_is_no_request_that_can_be_answered_has_a_line_too(tmp_path: Path) -> None:
    """Without its query, and with what could be read of it."""
    log = tmp_path / "log"
    command = ("sh", "-c", f'exec "$@" 2>{log}', "sh", sys.executable, "-m", "headrace_local")
    with serving("--log", "json", command=command) as service:
        port = int(service.url.rpartition(":")[2])
        for request in (
            b"nonsense secret\r\n",
            b"GET ftp://me:secret@host/ HTTP/1.1\r\n",
            b"GET /v1/" + b"secret" * 2000 + b" HTTP/1.1\r\n",
            b"GET /v1/topics?key=secret HTTP/1.1\r\n\r\n",
            b"GET /v1/groups HTTP/1.1\r\nX-A: " + b"secret" * 2000 + b"\r\n\r\n",
            b"POST /v1/topics HTTP/1.1\r\nHost: here\r\nContent-Length: 99999999\r\n\r\n",
        ):
            talk(port, request)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["method"], line["path"], line["status"]) for line in lines if "ms" in line] == [
        ("-", "-", 400),
        ("-", "-", 400),
        ("-", "-", 414),
        ("GET", "/v1/topics", 400),
        ("GET", "/v1/groups", 431),
        ("POST", "/v1/topics", 413),
    ]
    assert "secret" not in log.read_text()


def test_a_bug_of_ours_shows_its_traceback_to_people(capsys: pytest.CaptureFixture[str]) -> None:
    logger(HUMAN)
    observe.stuck("fragment 3", ValueError("no shard"))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("  stuck  place=fragment 3")
    assert lines[-1] == "ValueError: no shard"


def _fails(event: object, context: object) -> None:
    raise ValueError


def test_a_failure_that_nobody_hears_of_ends_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with io.TextIOWrapper(io.FileIO(writer, "w"), write_through=True) as stream:
        monkeypatch.setattr(sys, "stderr", Unheard(stream))
        context = Context(function_name="deliver", request_id="r", stop=threading.Event())
        assert attempt(_fails, {}, context) is False
