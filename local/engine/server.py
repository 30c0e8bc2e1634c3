"""Serves the engine to other processes of this user, on 127.0.0.1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from local.problems import Answer
from local.server import serve

from .core import Engine
from .protocol import CONTENT_TYPE, Protocol


class Door:
    """local.server's gateway for an engine."""

    def __init__(self, engine: Engine) -> None:
        self._protocol = Protocol(engine)

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Answer:
        """Answer one request."""
        status, content = self._protocol.answer(headers.get("x-amz-target", ""), body or b"")
        return status, {"Content-Type": CONTENT_TYPE}, content


@contextmanager
def serving(engine: Engine) -> Iterator[dict[str, str]]:
    """Serve an engine, and say where: variables of the environment, as the SDKs of AWS read them."""
    server = serve(Door(engine))
    server.start()
    url = f"http://127.0.0.1:{server.port}"
    try:
        yield {
            "AWS_ENDPOINT_URL_DYNAMODB": url,
            "AWS_ENDPOINT_URL_DYNAMODB_STREAMS": url,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    finally:
        server.shutdown()
