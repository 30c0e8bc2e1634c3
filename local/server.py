"""A threaded HTTP/1.1 server around the gateway: a thread per connection, one write per answer."""

from __future__ import annotations

import selectors
import socket
import socketserver
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Protocol

from local.gateway import Answer, Refusal, unavailable
from local.wire import Hangup, Request, encode, read_request

_FILES = 4096
_BACKLOG = 1024
_LINGER_SECONDS = 2.0
_DRAIN_SECONDS = 10.0
_BLOCK_BYTES = 1 << 16
_THREAD = threading.local()


class Handler(Protocol):
    """What the server needs of a gateway."""

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Answer:
        """Answer one request, in the calling thread. Must not raise."""


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Has its port from its creation on, and listens from `start` on: a request that waited for its gateway would be
    older than the service knows."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = _BACKLOG
    socket_seconds = 30.0  # as long may a connection be silent

    def __init__(self, gateway: Handler | None, host: str, port: int) -> None:
        """Raises OSError if the port is taken. `port` 0: any free one. A gateway that isn't made yet is set before
        `start`; so is `tell`, which hears of what is refused before any gateway."""
        if gateway:
            self.gateway = gateway
        self.tell: Callable[[Refusal], object] = lambda refusal: None
        self.closing = False
        self._pending = 0
        self._changed = threading.Condition()
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Connection)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.server_address[1])

    def server_activate(self) -> None:
        """Not yet, when it has its port."""

    def start(self) -> None:
        """Answer in a thread of its own. Raises OSError if another server listens on the port meanwhile."""
        super().server_activate()
        threading.Thread(target=self.serve_forever, args=(0.1,), name="server", daemon=True).start()

    def shutdown(self) -> None:
        """What `start` began: accept nothing more, let requests under way finish (10 s at most), close the port."""
        self.closing = True
        super().shutdown()
        self.server_close()
        with self._changed:
            self._changed.wait_for(lambda: self._pending == 0, _DRAIN_SECONDS)

    def count(self, requests: int) -> None:
        """So many more requests are being answered."""
        with self._changed:
            self._pending += requests
            self._changed.notify_all()


def serve(gateway: Handler | None, host: str = "127.0.0.1", port: int = 0) -> Server:
    """A server that has its port; call its `start`. Raises OSError if the port is taken."""
    _allow_files()
    return Server(gateway, host, port)


def _allow_files() -> None:
    """Let this process open as many files, which connections are, too, as it may: shells lend 256 on macOS."""
    try:
        import resource
    except ImportError:  # Windows
        return
    lent, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if lent != resource.RLIM_INFINITY and lent < _FILES:
        wanted = _FILES if most == resource.RLIM_INFINITY else min(_FILES, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def is_caller_gone() -> bool:
    """Has the client whose request this thread answers closed its connection, or its half of it?"""
    connection: socket.socket | None = getattr(_THREAD, "connection", None)
    if connection is None:
        return False
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            return bool(selector.select(0)) and not connection.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


class _Connection(socketserver.StreamRequestHandler):
    """One client's connection."""

    disable_nagle_algorithm = True
    server: Server

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.socket_seconds)
        _THREAD.connection = self.connection

    def handle(self) -> None:
        try:
            while self._one():
                pass
        except (Hangup, OSError):  # gone, or silent for too long: there is no client to answer
            return

    def _one(self) -> bool:
        """Answer one request; whether to expect another."""
        try:
            request = read_request(self.rfile, self.connection.sendall)
        except Refusal as refusal:
            self.server.tell(refusal)
            self.connection.sendall(encode(refusal.answer(), "GET", keep_alive=False))
            self._linger()
            return False
        if request is None:
            return False
        self.server.count(1)
        try:
            data, keep_alive = self._answer(request)
            self.connection.sendall(data)
        finally:
            self.server.count(-1)
        if not keep_alive:
            self._linger()
        return keep_alive

    def _answer(self, request: Request) -> tuple[bytes, bool]:
        try:
            answer = self.server.gateway.handle(request.method, request.target, request.headers, request.body)
            keep_alive = request.keep_alive and not self.server.closing  # which may have begun meanwhile
            return encode(answer, request.method, keep_alive), keep_alive
        except Exception:
            traceback.print_exc(file=sys.stderr)
            return encode(unavailable().answer(), request.method, keep_alive=False), False

    def _linger(self) -> None:
        """Let the client read its last answer: closing with its bytes unread would reset the connection."""
        self.connection.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + _LINGER_SECONDS
        while (seconds_left := deadline - time.monotonic()) > 0:
            self.connection.settimeout(seconds_left)
            if not self.connection.recv(_BLOCK_BYTES):
                return
