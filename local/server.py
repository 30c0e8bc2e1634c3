"""A threaded HTTP/1.1 server around the gateway: a thread per connection, one write per answer."""

from __future__ import annotations

import io
import socket
import socketserver
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol

from local.problems import Answer, Refusal, unavailable
from local.wire import Hangup, Request, encode, read_request

SOCKET_SECONDS = 30.0
REQUEST_SECONDS = 60.0
MOST_CONNECTIONS = 1024
_BACKLOG = 1024
_LINGER_SECONDS = 2.0
_DRAIN_SECONDS = 10.0
_BLOCK_BYTES = 1 << 16


class Handler(Protocol):
    """What the server needs of a gateway."""

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Answer:
        """Answer one request, in the calling thread. Must not raise."""


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Answers while `serve_forever` (or `start`) runs. Listens from its creation on or, if its gateway is not made yet,
    from then on: a request must not wait for the gateway, since its age would be unknown."""

    gateway: Handler
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = _BACKLOG

    def __init__(
        self,
        gateway: Handler | None,
        host: str,
        port: int,
        socket_seconds: float = SOCKET_SECONDS,
        request_seconds: float = REQUEST_SECONDS,
        most_connections: int = MOST_CONNECTIONS,
    ) -> None:
        """Raises OSError if the port is taken. `port` 0: any free one. A gateway that isn't made yet is set before
        `start`, which raises OSError if another server listens there meanwhile; so is `tell`, which hears of what is
        refused before any gateway. A connection may be silent for `socket_seconds`; a request has to be there
        `request_seconds` after its first byte. There are `most_connections` at once; more are closed."""
        if gateway:
            self.gateway = gateway
        self.socket_seconds = socket_seconds
        self.request_seconds = request_seconds
        self._places = threading.BoundedSemaphore(most_connections)
        self.tell: Callable[[Refusal], object] = lambda refusal: None
        self.closing = False
        self.pending_requests = PendingRequests()
        self._looping = False
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Connection, bind_and_activate=False)
        try:
            self.server_bind()
            if gateway:
                self.server_activate()
        except OSError:
            self.server_close()
            raise
        self._is_listening = gateway is not None

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.server_address[1])

    def serve_forever(self, poll_interval: float = 0.1) -> None:
        """Answer until `shutdown` is called in another thread."""
        self._looping = True
        super().serve_forever(poll_interval)

    def start(self) -> None:
        """Answer in a thread of its own."""
        if not self._is_listening:
            self.server_activate()
        self._looping = True
        threading.Thread(target=self.serve_forever, name="server", daemon=True).start()

    def shutdown(self) -> None:
        """Accept nothing more, let requests under way finish (10 s at most), close the port."""
        self.closing = True
        if self._looping:
            super().shutdown()
        self.server_close()
        self.pending_requests.wait_for_none(_DRAIN_SECONDS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection its thread, as far as there are places."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the machine has no more threads
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """What escaped a connection's thread goes to standard error, never to the client."""
        traceback.print_exc(file=sys.stderr)


def serve(gateway: Handler | None, host: str = "127.0.0.1", port: int = 0) -> Server:
    """A server that has its port; call its `serve_forever` or `start`. Raises OSError if the port is taken."""
    return Server(gateway, host, port, most_connections=_open_files() // 2)


def _open_files() -> int:
    """How many files, which connections are, too, this process may open: more than its shell lends, if it may."""
    enough = 2 * MOST_CONNECTIONS
    try:
        import resource
    except ImportError:  # Windows
        return enough
    lent, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if lent == resource.RLIM_INFINITY or lent >= enough:
        return enough
    allowed = enough if most == resource.RLIM_INFINITY else min(enough, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    return allowed


class PendingRequests:
    """Counts the requests that are being answered."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        with self._changed:
            self._count += 1

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def wait_for_none(self, timeout_seconds: float) -> None:
        """Return when there is none left, or after the time-out."""
        with self._changed:
            self._changed.wait_for(lambda: self._count == 0, timeout_seconds)


class Wire(io.RawIOBase):
    """What a connection is read through: silence has a limit, and so has a request that drips."""

    def __init__(
        self,
        connection: socket.socket,
        silent_seconds: float,
        request_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._monotonic = monotonic
        self._silent_seconds = silent_seconds
        self._request_seconds = request_seconds
        self._deadline: float | None = None

    def begin(self) -> None:
        """The next request's time begins with its first byte."""
        self._deadline = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        seconds_left = self._silent_seconds
        if self._deadline is not None:
            seconds_left = min(seconds_left, self._deadline - self._monotonic())
            if seconds_left <= 0:
                raise TimeoutError
        self._connection.settimeout(seconds_left)
        count = self._connection.recv_into(buffer)
        self._connection.settimeout(self._silent_seconds)  # for what is sent
        if self._deadline is None:
            self._deadline = self._monotonic() + self._request_seconds
        return count


class _Connection(socketserver.StreamRequestHandler):
    """One client's connection."""

    disable_nagle_algorithm = True
    server: Server

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.socket_seconds)
        self._wire = Wire(self.connection, self.server.socket_seconds, self.server.request_seconds)
        self.rfile = io.BufferedReader(self._wire)

    def handle(self) -> None:
        try:
            while self._one():
                self._wire.begin()
        except (Hangup, OSError):  # the client is gone, or silent for too long
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
        with self.server.pending_requests:
            data, keep_alive = self._answer(request)
            self.connection.sendall(data)
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
