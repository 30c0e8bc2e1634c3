"""Subscribers on real sockets: a well-behaved HTTP server, and raw ones that do as they like."""

from __future__ import annotations

import contextlib
import http.server
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from trustme import LeafCert

from chalicelib.delivery.addresses import Rules
from chalicelib.delivery.connections import dial
from chalicelib.delivery.egress import Egress

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Request:
    """What a receiver was sent. Header names are lower case, each there once."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class Receiver:
    """Answers every request with `status`, `headers` and `body`, and keeps what it was sent."""

    port: int = 0
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    seen: list[Request] = field(default_factory=list)
    tls: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/in?from=headrace"

    def secure(self, certificate: LeafCert) -> None:
        """From now on, connections are by TLS."""
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(self.tls)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    receiver: Receiver

    def do_POST(self) -> None:
        names = [name.lower() for name in self.headers]
        assert len(names) == len(set(names)), names
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.receiver.seen.append(Request(self.command, self.path, headers, body))
        self.send_response(self.receiver.status)
        for name, value in self.receiver.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(self.receiver.body)))
        self.end_headers()
        self.wfile.write(self.receiver.body)

    do_OPTIONS = do_POST

    def setup(self) -> None:
        if self.receiver.tls:
            self.request = self.receiver.tls.wrap_socket(self.request, server_side=True)
        super().setup()

    def finish(self) -> None:
        super().finish()
        self.request.close()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def http_receiver() -> Iterator[Receiver]:
    """A receiver that speaks HTTP as one should."""
    receiver = Receiver()
    handler = type("Handler", (_Handler,), {"receiver": receiver})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        receiver.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join(PATIENCE_SECONDS)


class RawReceiver:
    """Gives each connection to `act`, in a thread of its own, once the first request was read."""

    def __init__(self, act: Callable[[RawReceiver, socket.socket], None], tls: ssl.SSLContext | None) -> None:
        self.stop = threading.Event()
        self.arrived = threading.Semaphore(0)
        self.connections = 0
        self._act, self._tls = act, tls
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def close(self) -> None:
        self.stop.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                thread = threading.Thread(target=self._serve, args=(connection,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(PATIENCE_SECONDS)
            sock = self._tls.wrap_socket(connection, server_side=True) if self._tls else connection
            with sock:
                if read_request(sock):
                    self.arrived.release()
                    self._act(self, sock)


@contextlib.contextmanager
def raw_receiver(
    act: Callable[[RawReceiver, socket.socket], None], tls: ssl.SSLContext | None = None
) -> Iterator[RawReceiver]:
    """A receiver that does as it likes with each connection."""
    receiver = RawReceiver(act, tls)
    try:
        yield receiver
    finally:
        receiver.close()


def hangs(seconds: float) -> Callable[[RawReceiver, socket.socket], None]:
    """Says nothing for so long, or until the test ends."""

    def act(receiver: RawReceiver, _: socket.socket) -> None:
        receiver.stop.wait(seconds)

    return act


def answering(*parts: bytes) -> Callable[[RawReceiver, socket.socket], None]:
    """Sends this and closes."""

    def act(_: RawReceiver, sock: socket.socket) -> None:
        for part in parts:
            sock.sendall(part)

    return act


def read_request(sock: socket.socket) -> bytes:
    """One whole request; empty at the end of the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = sock.recv(65536)
        if not more:
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
    )
    while len(body) < length:
        body += sock.recv(65536)
    return head + b"\r\n\r\n" + body


def public_egress_to(receiver: Receiver, tls: ssl.SSLContext) -> Egress:
    """A way out as on AWS, for which every host has a public address, and the receiver stands there."""
    return Egress(
        rules=Rules(),
        monotonic=time.monotonic,
        resolve=lambda host: ("93.184.216.34",),
        tls=tls,
        dial=lambda address, port, seconds: dial("127.0.0.1", receiver.port, seconds),
    )
