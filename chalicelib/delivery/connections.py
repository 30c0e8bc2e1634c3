"""HTTP/1.1 over sockets that obey a deadline.

The standard library reads the answers; its own timeouts, though, start again with every byte. Here each socket
operation gets just the time that is left of the whole, so a trickle ends with the deadline and needs no watchdog.
"""

from __future__ import annotations

import http.client
import io
import select
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import Any, NamedTuple, cast

from ..domain.limits import MAX_REPLY_BYTES, MAX_REPLY_HEADER_BYTES

Monotonic = Callable[[], float]
Dial = Callable[[str, int, float], socket.socket]

# The standard library would refuse an answer for its 101st header; here the bytes of the head are bounded.
http.client._MAXHEADERS = MAX_REPLY_HEADER_BYTES  # type: ignore[attr-defined]

_IDLE_SECONDS = 4.0  # common servers close after five
_RESET_MS = 300  # a round trip to the far side of the world
_MAX_IDLE = 256


class Deadline:
    """A span of wall-clock time, from now on."""

    def __init__(self, monotonic: Monotonic, seconds: float) -> None:
        self._monotonic = monotonic
        self._began = monotonic()
        self._ends = self._began + seconds

    def seconds_left(self) -> float:
        """Seconds left; TimeoutError if there are none."""
        seconds = self._ends - self._monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds

    def spent_ms(self) -> int:
        """Milliseconds since the beginning."""
        return round((self._monotonic() - self._began) * 1000)


class Reply(NamedTuple):
    """An answer with any status. `body` is cut at 64 KB; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    duration_ms: int


class HeadersTooLong(HTTPException):
    """The head of an answer is longer than we read."""


class BrokenOff(HTTPException):
    """An answer ended before its end."""


def dial(address: str, port: int, seconds: float) -> socket.socket:
    """A TCP connection to an address (never a name)."""
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        sock.settimeout(seconds)
        sock.connect((address, port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


def encrypt(sock: socket.socket, tls: ssl.SSLContext, host: str, seconds: float) -> ssl.SSLSocket:
    """TLS on a connection, the certificate checked for the host."""
    sock.settimeout(seconds)
    return tls.wrap_socket(sock, server_hostname=host)


class Unread(ConnectionResetError):
    """The other side had closed a connection before it could read the request."""


class Connection:
    """An open connection to one checked address. `key` names host and port. `has_served`: has it carried an earlier
    request? `heard`: has any byte come since the last request was begun?"""

    def __init__(self, key: tuple[Any, ...], sock: socket.socket) -> None:
        self.key = key
        self.has_served = False
        self.heard = False
        self._sock = sock

    def is_quiet(self) -> bool:
        """Is the connection still open, as far as one can tell, without unexpected bytes?"""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return not poll.poll(0)

    def was_reset(self, deadline: Deadline) -> bool:
        """Did the other side reset the connection? Its system does so when the server no longer reads; a server that
        read the whole request and then closed the connection ends it without a reset. Waits for the reset for a round
        trip. Raises TimeoutError if there is no time left for that.
        """
        poll = select.poll()
        poll.register(self._sock, 0)  # POLLERR and POLLHUP alone
        return bool(poll.poll(min(_RESET_MS, deadline.seconds_left() * 1000)))

    def exchange(self, method: str, request: bytes, deadline: Deadline) -> tuple[Reply, bool]:
        """Send a request and read its answer. Returns also whether the connection may be used again."""
        self.heard = False
        self._send(request, deadline)
        wire = _Wire(self, deadline)
        reader = _Reader(wire)
        response = _final(reader, method)
        wire.begin_body()
        body = _body(response)
        is_cut = wire.left == 0 or len(body) >= MAX_REPLY_BYTES
        if response.length and not is_cut:
            raise BrokenOff
        headers = {name.lower(): value for name, value in response.headers.items()}
        is_spent = response.will_close or response.status == HTTPStatus.SWITCHING_PROTOCOLS
        reusable = response.isclosed() and not is_spent and not reader.has_more(wire)
        self.has_served = True
        return Reply(response.status, headers, body, deadline.spent_ms()), reusable

    def _send(self, request: bytes, deadline: Deadline) -> None:
        rest = memoryview(request)
        try:
            while rest:
                self._sock.settimeout(deadline.seconds_left())
                rest = rest[self._sock.send(rest) :]
        except (BrokenPipeError, ConnectionResetError):
            return  # the answer may have come before all was sent; if there is none, reading says so

    def receive_into(self, buffer: memoryview, deadline: Deadline) -> int:
        """The bytes that have come: at least one, or 0 at the end."""
        self._sock.settimeout(deadline.seconds_left())
        count = self._sock.recv_into(buffer)
        self.heard = self.heard or count > 0
        return count

    def close(self) -> None:
        """Shut it. Harmless to repeat."""
        self._sock.close()


class _Wire(io.RawIOBase):
    """What HTTPResponse reads from: one answer's bytes, so many for the head and so many for the body."""

    def __init__(self, connection: Connection, deadline: Deadline) -> None:
        self.left = MAX_REPLY_HEADER_BYTES
        self._in_head = True
        self._connection = connection
        self._deadline = deadline

    def begin_body(self) -> None:
        self.left = MAX_REPLY_BYTES
        self._in_head = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)[: self.left]
        if not view:
            if self._in_head:
                raise HeadersTooLong
            return 0
        count = self._connection.receive_into(view, self._deadline)
        if not count and self._in_head:
            raise ConnectionResetError  # the standard library would take what has come for the whole head
        self.left -= count
        return count


class _Reader(io.BufferedReader):
    """The "socket" of an HTTPResponse, as far as it uses one."""

    def makefile(self, _mode: str) -> io.BufferedReader:
        return self

    def has_more(self, wire: _Wire) -> bool:
        """Has more come than the answer? Asked at its end; nothing is read after that."""
        wire.left = 0
        return bool(self.peek(1))

    def close(self) -> None:
        """HTTPResponse does so at the answer's end, before one can ask whether there is more."""


def _final(reader: _Reader, method: str) -> HTTPResponse:
    """The final answer, its head read. Informational ones before it are skipped; all heads together have the
    limit of one, so there are not many."""
    while True:
        response = HTTPResponse(cast(socket.socket, reader), method=method)
        response.begin()
        if response.status // 100 != 1 or response.status == HTTPStatus.SWITCHING_PROTOCOLS:
            return response


def _body(response: HTTPResponse) -> bytes:
    try:
        return response.read(MAX_REPLY_BYTES)
    except IncompleteRead as error:
        response.length = 1  # of a chunked answer: something is missing
        return error.partial


class Pool:
    """Open connections that wait for their next use, newest first."""

    def __init__(self, monotonic: Monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._idle: dict[tuple[Any, ...], list[tuple[float, Connection]]] = {}
        self._swept = monotonic()

    def take(self, key: tuple[Any, ...]) -> Connection | None:
        """A connection that is still good, as far as one can tell."""
        while True:
            with self._lock:
                idle = self._idle.get(key)
                if not idle:
                    return None
                since, connection = idle.pop()
            if self._monotonic() - since < _IDLE_SECONDS and connection.is_quiet():
                return connection
            connection.close()

    def keep(self, connection: Connection) -> None:
        """Keep a connection for later, if there is room. From time to time, close the old ones."""
        now = self._monotonic()
        with self._lock:
            old = self._sweep(now) if now - self._swept >= _IDLE_SECONDS else []
            if sum(map(len, self._idle.values())) < _MAX_IDLE:
                self._idle.setdefault(connection.key, []).append((now, connection))
            else:
                old.append(connection)
        for one in old:
            one.close()

    def close(self) -> None:
        """Close all that wait."""
        with self._lock:
            old = self._sweep(float("inf"))
        for one in old:
            one.close()

    def _sweep(self, now: float) -> list[Connection]:
        """Take out what has waited too long."""
        self._swept = now
        entries = [(key, *entry) for key, idle in self._idle.items() for entry in idle]
        self._idle = {}
        for key, since, connection in entries:
            if now - since < _IDLE_SECONDS:
                self._idle.setdefault(key, []).append((since, connection))
        return [connection for _, since, connection in entries if now - since >= _IDLE_SECONDS]


Resolve = Callable[[str], tuple[str, ...]]


def system_resolve(host: str) -> tuple[str, ...]:
    """All addresses the machine's resolver gives; none if it gives none. May take as long as it likes."""
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in infos))


class Lookups:
    """DNS look-ups with a time limit. A look-up cannot be cancelled, so each runs in its own thread, one per host: a
    host whose name servers hang occupies one thread only."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._lock = threading.Lock()
        self._running: dict[str, Future[tuple[str, ...]]] = {}

    def addresses(self, host: str, seconds: float) -> tuple[str, ...]:
        """The host's addresses now. Raises TimeoutError after so many seconds."""
        with self._lock:
            lookup = self._running.get(host)
            if lookup is None:
                lookup, name = Future(), f"resolve {host}"
                # first: a lookup without a thread must have no other waiter
                threading.Thread(target=self._look_up, args=(host, lookup), name=name, daemon=True).start()
                self._running[host] = lookup
        return lookup.result(seconds)

    def _look_up(self, host: str, lookup: Future[tuple[str, ...]]) -> None:
        addresses: tuple[str, ...] = ()
        try:
            addresses = self._resolve(host)
        finally:
            with self._lock:
                del self._running[host]
            lookup.set_result(addresses)
