"""HTTP/1.1 to the letter: requests as bytes to a local server, and what comes back."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse

import pytest

from local.gateway import Gateway
from local.server import Server, serve
from tests.functional.tiny_app import make

USUAL = b"Host: 127.0.0.1\r\nAccept: */*\r\n"


@pytest.fixture(scope="module")
def tiny_server() -> Iterator[Server]:
    server = serve(Gateway(make()))
    server.start()
    yield server
    server.shutdown()


@pytest.fixture
def tiny_client(server: Server) -> Iterator[HTTPConnection]:
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
    return b"POST /echo/a HTTP/1.1\r\n" + USUAL + headers + b"\r\n" + body


def echoed(response: HTTPResponse) -> dict[str, object]:
    assert response.status == 200
    echo: dict[str, object] = json.loads(response.read())
    return echo
