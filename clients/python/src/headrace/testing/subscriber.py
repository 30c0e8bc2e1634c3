"""A subscriber in the test's process: answers what is pushed, and remembers it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Push:
    """One delivery. Header names are in lower case."""

    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        """The JSON value. ValueError for what is none."""
        return json.loads(self.raw)


class Subscriber:
    """An HTTP server on this machine. `answer` gets a push and returns a status (200 to 599); what it raises is
    a 500, as is an answer that is no status."""

    def __init__(self, answer: Callable[[Push], int] = lambda push: 204) -> None:
        self.pushes: list[Push] = []
        self.answer = answer
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="subscriber", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, push: Push) -> int:
        """Remember a push, and answer it."""
        self.pushes.append(push)
        try:
            status = self.answer(push)
        except Exception:  # noqa: BLE001  as a web framework would answer
            return 500
        return status if status in range(200, 600) else 500


def _handler(subscriber: Subscriber) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", "0")))
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.send_response(subscriber.take(Push(headers, raw)))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: tests read `pushes`."""

    return Handler
