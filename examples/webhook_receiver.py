#!/usr/bin/env python3
"""A subscriber: takes what Headrace sends, if its signature is good, and prints it. Needs nothing but Python.

    python3 examples/webhook_receiver.py --secret whsec_…

Signatures are those of Standard Webhooks. A message that was taken before is answered, not taken twice: delivery is at
least once.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOLERANCE_SECONDS = 300
Take = Callable[[Mapping[str, str], bytes], bool]
"""Headers (in lower case) and body of a message → whether it was taken."""


def is_signed(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    """Is one of the signatures by this secret, and is it recent?"""
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"))
        id, at, signatures = (headers[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
        if abs(now - int(at)) > TOLERANCE_SECONDS:
            return False
    except (KeyError, ValueError):
        return False
    digest = hmac.digest(key, f"{id}.{at}.".encode() + body, "sha256")
    expected_signature = b"v1," + base64.b64encode(digest)
    return any(
        hmac.compare_digest(expected_signature, signature.encode()) for signature in signatures.split(" ")
    )


class Receiver(ThreadingHTTPServer):
    """Answers 204 to what it took (now or before), 500 to what it could not take, 401 to a bad signature."""

    daemon_threads = True

    def __init__(self, host: str, port: int, secret: str, take: Take) -> None:
        super().__init__((host, port), _Handler)
        self.secret = secret
        self.take = take
        self.taken: set[str] = set()  # a real subscriber keeps them where it keeps what the messages did

    def answer(self, headers: Mapping[str, str], body: bytes) -> int:
        """The status to answer with."""
        if not is_signed(self.secret, headers, body, time.time()):
            return 401
        id = headers["webhook-id"]
        if id not in self.taken:
            if not self.take(headers, body):
                return 500
            self.taken.add(id)
        return 204


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self._answer(self.server.answer({name.lower(): value for name, value in self.headers.items()}, body))

    def do_OPTIONS(self) -> None:
        """The handshake: accept every sender. (Unsigned requests are still refused.)"""
        self._answer(204, {"WebHook-Allowed-Origin": self.headers.get("webhook-request-origin", "*")})

    def _answer(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def show(headers: Mapping[str, str], body: bytes) -> bool:
    """Print a message."""
    place = f"{headers.get('headrace-topic')}/{headers.get('headrace-group')}"
    print(
        f"{place} {headers['webhook-id']} attempt {headers.get('headrace-attempt')}: {_text(body)}",
        flush=True,
    )
    return True


def _text(body: bytes) -> str:
    try:
        return json.dumps(json.loads(body), ensure_ascii=False)
    except ValueError:
        return f"{len(body)} bytes, SHA-256 {hashlib.sha256(body).hexdigest()[:12]}…"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument(
        "--secret", default=os.environ.get("WEBHOOK_SECRET"), help="whsec_…; else WEBHOOK_SECRET"
    )
    args = parser.parse_args()
    if not args.secret:
        parser.error("there is no secret: give --secret or WEBHOOK_SECRET")
    try:
        receiver = Receiver(args.host, args.port, args.secret, show)
    except OSError as error:
        parser.error(f"port {args.port} cannot be used ({error.strerror}); give another with --port")
    with receiver:
        print(f"listening on http://{args.host}:{receiver.server_port}/", flush=True)
        try:
            receiver.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
