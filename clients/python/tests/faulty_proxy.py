"""A proxy that loses answers, cuts, delays and throttles: what a network does on a bad day."""

from __future__ import annotations

import http.client
import json
import random
import socketserver
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

PASS = "pass"
REFUSE = "refuse"  # the connection is cut before the request went on
LOSE = "lose"  # the request went on, its answer is lost
HALF = "half"  # half of the answer arrives
DELAY = "delay"
THROTTLE = "throttle"  # 429, as API Gateway says it
FAIL = "fail"  # 503 after the request was carried out
FAULTS = (REFUSE, LOSE, HALF, DELAY, THROTTLE, FAIL)


class FaultyProxy(socketserver.ThreadingTCPServer):
    """Does what `plan` says to the next requests (bytes: answers with these), then harm by chance (`harm` of 1), drawn
    from a seed. `plan_done`: the last of the plan's requests has come."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, upstream: str, seed: int = 7) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(upstream)
        self.plan: deque[str | bytes] = deque()
        self.plan_done = threading.Event()
        self.harm = 0.0
        self.faults: Sequence[str] = FAULTS
        self.seen: Counter[str | bytes] = Counter()
        self.requests: list[tuple[str, dict[str, str]]] = []
        self._chance = random.Random(seed)
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def next_fault(self, path: str, headers: dict[str, str]) -> str | bytes:
        with self._lock:
            self.requests.append((path, headers))
            if self.plan:
                fault = self.plan.popleft()
                if not self.plan:
                    self.plan_done.set()
            else:
                fault = self._chance.choice(self.faults) if self._chance.random() < self.harm else PASS
            self.seen[fault] += 1
            return fault

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that went away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: FaultyProxy
    _upstream: http.client.HTTPConnection | None = None

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        fault = self.server.next_fault(self.path, headers)
        if isinstance(fault, bytes):
            self._answer(200, fault)
        elif fault == REFUSE:
            self.close_connection = True
        elif fault == THROTTLE:
            self._answer(429, _problem(429, "THROTTLED"))
        else:
            self._carry_out(fault, headers, body)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _serve

    def _carry_out(self, fault: str, headers: dict[str, str], body: bytes) -> None:
        status, answer = self._ask(headers, body)
        if fault == LOSE:
            self.close_connection = True
        elif fault == HALF:
            self._head(status, len(answer) + 10)
            self.wfile.write(answer[: len(answer) // 2])
            self.close_connection = True
        elif fault == FAIL:
            self._answer(503, _problem(503, "UNAVAILABLE"))
        else:
            if fault == DELAY:
                time.sleep(0.05)
            self._answer(status, answer)

    def _ask(self, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        if self._upstream is None:
            host, port = self.server.upstream.hostname, self.server.upstream.port
            assert host is not None
            self._upstream = http.client.HTTPConnection(host, port, timeout=60)
        self._upstream.request(self.command, self.path, body, headers)
        answer = self._upstream.getresponse()
        return answer.status, answer.read()

    def _answer(self, status: int, body: bytes) -> None:
        self._head(status, len(body))
        self.wfile.write(body)

    def _head(self, status: int, size: int) -> None:
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(size))
        self.end_headers()

    def finish(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
        super().finish()

    def log_message(self, format: str, *args: object) -> None:
        pass


def _problem(status: int, code: str) -> bytes:
    return json.dumps(
        {"type": f"/errors/{code}", "title": code, "status": status, "detail": "The proxy says so.",
         "code": code, "retryable": True, "request_id": "proxy"}
    ).encode()  # fmt: skip


@contextmanager
def faulty_proxy(upstream: str) -> Iterator[FaultyProxy]:
    """A proxy in front of `upstream`, in threads of this process."""
    with FaultyProxy(upstream) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
