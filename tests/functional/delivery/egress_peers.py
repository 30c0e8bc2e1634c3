"""The other side of an egress: addresses that lead to this machine, certificates, receivers that answer badly."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator

import trustme

from chalicelib.delivery.addresses import Rules
from chalicelib.delivery.connections import dial
from chalicelib.delivery.egress import Egress, Reply, Unreached
from tests.functional.delivery.receivers import OK, PATIENCE_SECONDS, RawReceiver, read_request

PUBLIC = "93.184.216.34"

HOOKS = "https://hooks.example.com/in"

UNUSABLE = "the address cannot be used"


class Dialled:
    """Connects to a receiver of this machine in the place of any address, and keeps what was asked."""

    def __init__(self, port: int = 0, dead_hosts: frozenset[str] = frozenset()) -> None:
        self.port = port
        self.dead = dead_hosts
        self.asked: list[tuple[str, int]] = []

    def __call__(self, address: str, port: int, seconds: float) -> socket.socket:
        self.asked.append((address, port))
        if address in self.dead:
            raise ConnectionRefusedError
        return dial("127.0.0.1", self.port, seconds)


def get(egress: Egress, url: str, seconds: float = PATIENCE_SECONDS) -> Reply | Unreached:
    return egress.call("POST", url, {}, b"hello", seconds)


def detail(egress: Egress, url: str, seconds: float = PATIENCE_SECONDS) -> str:
    answer = get(egress, url, seconds)
    assert isinstance(answer, Unreached), answer
    return answer.detail


@contextlib.contextmanager
def outward(
    resolve: Callable[[str], tuple[str, ...]],
    dialled: Dialled,
    tls: ssl.SSLContext | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[Egress]:
    """An egress as on AWS, whose public addresses are all this machine."""
    egress = Egress(rules=Rules(), monotonic=monotonic, resolve=resolve, tls=tls, dial=dialled)
    yield egress
    egress.close()


def certified(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


def polite(_: RawReceiver, sock: socket.socket) -> None:
    sock.sendall(OK)
    while read_request(sock):
        sock.sendall(OK)


def forever(piece: bytes, first: bytes = b"") -> Callable[[RawReceiver, socket.socket], None]:
    def act(receiver: RawReceiver, sock: socket.socket) -> None:
        sock.sendall(first)
        while not receiver.stop.is_set():
            sock.sendall(piece)

    return act


def trickle(first: bytes, piece: bytes) -> Callable[[RawReceiver, socket.socket], None]:
    def act(receiver: RawReceiver, sock: socket.socket) -> None:
        sock.sendall(first)
        while not receiver.stop.wait(0.01):
            sock.sendall(piece)

    return act


def silent(receiver: RawReceiver, _: socket.socket) -> None:
    receiver.stop.wait(PATIENCE_SECONDS)


HEAD = b"HTTP/1.1 200 OK\r\n"
