"""Serves the engine to other processes of this user, on 127.0.0.1.

A port of this machine is open to its other users, and to pages in a browser whose name leads to 127.0.0.1. So each
start makes a key pair, and a request that it did not sign is refused before its body is parsed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from local.gateway import Answer
from local.server import serve

from .core import Engine
from .protocol import CONTENT_TYPE, Protocol, refusal
from .sigv4 import KeyPair, is_signed

_SERVICE = "dynamodb"
_UNSIGNED = "The security token included in the request is invalid: `headrace-local env` prints valid keys."
_FOREIGN = "The engine answers programs on this machine that call 127.0.0.1, and no pages in a browser."


class Door:
    """local.server's gateway for an engine."""

    def __init__(self, engine: Engine, keys: KeyPair, now_s: Callable[[], float] = time.time) -> None:
        self._protocol = Protocol(engine)
        self._keys = keys
        self._now_s = now_s
        self.hosts: frozenset[str] = frozenset()
        """What the header Host may say."""

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Answer:
        """Answer one request."""
        status, content = self._answer(method, path, headers, body or b"")
        return status, {"Content-Type": CONTENT_TYPE}, content

    def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        is_foreign = headers.get("host", "").lower() not in self.hosts or "origin" in headers
        if is_foreign or method == "OPTIONS":
            return refusal("AccessDeniedException", _FOREIGN, 403)
        if path != "/" or not is_signed(self._keys, _SERVICE, method, headers, body, self._now_s()):
            return refusal("UnrecognizedClientException", _UNSIGNED)
        return self._protocol.answer(headers.get("x-amz-target", ""), body)


@contextmanager
def serving(engine: Engine) -> Iterator[dict[str, str]]:
    """Serve an engine with a new key pair, and say where: variables of the environment, as AWS's SDKs read them."""
    keys = KeyPair("HR" + secrets.token_hex(9).upper(), secrets.token_urlsafe(30))
    door = Door(engine, keys)
    server = serve(door)
    door.hosts = frozenset(f"{name}:{server.port}" for name in ("127.0.0.1", "localhost"))
    server.start()
    url = f"http://127.0.0.1:{server.port}"
    try:
        yield {
            "AWS_ENDPOINT_URL_DYNAMODB": url,
            "AWS_ENDPOINT_URL_DYNAMODB_STREAMS": url,
            "AWS_ACCESS_KEY_ID": keys.id,
            "AWS_SECRET_ACCESS_KEY": keys.secret,
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    finally:
        server.shutdown()
