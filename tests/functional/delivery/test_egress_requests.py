"""What an egress sends: a request as it was given, over connections that it uses again."""

from __future__ import annotations

import socket
import threading

import pytest

from chalicelib.delivery.egress import HOP_HEADER, Egress, Reply
from tests.functional.delivery.egress_peers import get, polite
from tests.functional.delivery.receivers import OK, PATIENCE_SECONDS, Receiver, raw_receiver, read_request


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
