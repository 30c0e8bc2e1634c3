"""moto's S3 behind a door that can be shut: what a process that dies leaves behind is what came before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

_CHANGES = ("PUT", "POST", "DELETE")


def _always(number: int, path: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Refusal:
    """What S3 answers in the place of an object or a list whose path has this text."""

    of: str
    status: str
    code: str


class S3Server:
    """Serves buckets over HTTP. Every change of an object is counted."""

    def __init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()
        self._allows: Callable[[int, str], bool] = _always
        self._is_shut = False
        self._refusal: Refusal | None = None
        self.changes = 0
        self._server = make_server("127.0.0.1", 0, self._serve, threaded=True, request_handler=_Silent)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def allow(self, predicate: Callable[[int, str], bool] = _always) -> None:
        """From the first change on that is not allowed, by its number from 1 and its path, refuse everything, until
        this is called again."""
        with self._lock:
            self._allows, self._is_shut, self._refusal, self.changes = predicate, False, None, 0

    def refuse(self, refusal: Refusal) -> None:
        """Answer with this from now on, until `allow` is called."""
        with self._lock:
            self._refusal = refusal

    def client(self) -> Any:
        """boto3's client for it."""
        config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1})
        keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
        return boto3.client("s3", "us-east-1", endpoint_url=self.url, config=config, **keys)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if not self._lets_in(environ["REQUEST_METHOD"], environ["PATH_INFO"]):
            start("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"<Error><Code>AccessDenied</Code><Message>the process has died</Message></Error>"]
        refusal = self._refusal
        if refusal and refusal.of in f"{environ['PATH_INFO']}?{environ['QUERY_STRING']}":
            start(refusal.status, [("Content-Type", "application/xml")])
            return [f"<Error><Code>{refusal.code}</Code><Message>not now</Message></Error>".encode()]
        answer: Iterable[bytes] = self._app(environ, start)
        return answer

    def _lets_in(self, method: str, path: str) -> bool:
        with self._lock:
            if method in _CHANGES and not self._is_shut:
                self.changes += 1
                self._is_shut = not self._allows(self.changes, path)
            return not self._is_shut


class _Silent(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *_: Any) -> None:
        pass
