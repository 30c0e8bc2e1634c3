"""The bytes of a request: our own headers stay, connection headers cannot be set, and no header breaks a line."""

from __future__ import annotations

import pytest

from chalicelib.delivery.addresses import Rules, Target, parse_url
from chalicelib.delivery.egress import HOP_HEADER, _request

BODY = b"{}"
TARGET = parse_url("https://example.com/in?x=1", Rules())
OURS = {
    "host": "example.com",
    "user-agent": "headrace",
    "accept-encoding": "identity",
    HOP_HEADER.lower(): "1",
    "content-length": "2",
}


def sent(**headers: str) -> dict[str, str]:
    """The headers as they are sent, by lower-case names."""
    assert isinstance(TARGET, Target)
    extra = {name.replace("_", "-"): value for name, value in headers.items()}
    head, _, body = _request("POST", TARGET, extra, BODY).partition(b"\r\n\r\n")
    assert body == BODY
    line, *lines = head.decode().split("\r\n")
    assert line == "POST /in?x=1 HTTP/1.1"
    pairs = [line.partition(": ") for line in lines]
    assert len({name.lower() for name, _, _ in pairs}) == len(pairs), "none twice"
    return {name.lower(): value for name, _, value in pairs}


@pytest.mark.parametrize(
    "name",
    [
        *("host", "content_length", "transfer_encoding", "trailer", "te", "expect", "upgrade", "connection"),
        *("keep_alive", "proxy_connection", "proxy_authenticate", "proxy_authorization"),
        *("user_agent", "accept_encoding", "headrace_hop", "Transfer_Encoding", "HOST"),
    ],
)
def test_what_is_the_connections_or_ours_is_nobody_elses(name: str) -> None:
    assert sent(**{name: "evil"}) == OURS


@pytest.mark.parametrize("name", ["x y", "x:", "", "x\r\nHost", "é"])
def test_what_is_no_name_is_left_out(name: str) -> None:
    assert sent(**{name: "1"}) == OURS


def test_a_value_stays_within_its_line() -> None:
    assert sent(x="a\r\nHost: evil\x7f\x00b") == {**OURS, "x": "a Host: evil b"}
