"""What the examples need of Headrace's HTTP interface, with Python's standard library alone."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

TIMEOUT_SECONDS = 60.0


class Failed(Exception):
    """Headrace cannot be used like this; the text says why, and what to do."""


def where() -> str:
    """The server's URL: what HEADRACE_URL says, else this machine at HEADRACE_PORT or 8700."""
    return os.environ.get("HEADRACE_URL") or f"http://127.0.0.1:{os.environ.get('HEADRACE_PORT') or 8700}"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every example: the server's URL and a token for it."""
    parser.add_argument("--url", default=where(), help="where Headrace is (HEADRACE_URL, else %(default)s)")
    parser.add_argument(
        "--token", help="an admin token (default: HEADRACE_TOKEN, else what .data/token holds)"
    )


def find_token(option: str | None) -> str:
    """The token to use; Failed if there is none."""
    token = option or os.environ.get("HEADRACE_TOKEN")
    file = Path(".data") / "token"
    if not token:
        try:
            token = file.read_text().strip()
        except OSError:
            raise Failed(
                f"There is no token: give --token or HEADRACE_TOKEN ({file} is not there)."
            ) from None
    if not token.isascii() or not token.isprintable():
        raise Failed("The token has characters that no token has.")
    return token


class Headrace:
    """Talks to one server. Threads may share it: each keeps a connection of its own."""

    def __init__(self, url: str, token: str) -> None:
        """Failed if the URL is not one."""
        parts = urlsplit(url if "//" in url else f"//{url}", scheme="http")
        try:
            port = parts.port
        except ValueError:
            raise Failed(f"{url!r} is not a URL: its port is not a number from 0 to 65535.") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Failed(f"{url!r} is not a URL like http://127.0.0.1:8700.")
        self._url = url
        self._scheme, self._host, self._port = parts.scheme, parts.hostname, port
        self._base = parts.path.rstrip("/").removesuffix("/v1")
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._local = threading.local()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of the answer; Failed where there is none or it is an error."""
        connection = self._connection()
        content = None if body is None else json.dumps(body)
        try:
            connection.request(method, self._base + path, content, self._headers)
            answer = connection.getresponse()
            raw = answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Failed(
                f"No answer from {self._url} ({error}). Is the server up? `make run` starts it."
            ) from None
        if answer.status >= 300:
            raise Failed(_refusal(method, path, answer.status, raw))
        try:
            return json.loads(raw) if raw else None
        except ValueError:
            raise Failed(f"What answers on {self._url} is not Headrace.") from None

    def close(self) -> None:
        """Close the calling thread's connection."""
        self._connection().close()

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            kind = http.client.HTTPSConnection if self._scheme == "https" else http.client.HTTPConnection
            connection = self._local.connection = kind(self._host, self._port, timeout=TIMEOUT_SECONDS)
        return connection


class Group:
    """A consumer group of a topic."""

    def __init__(self, headrace: Headrace, topic: str, name: str) -> None:
        self._headrace = headrace
        self._path = f"/v1/topics/{quote(topic)}/groups/{quote(name)}"

    def create(self, **settings: Any) -> None:
        self._headrace.ask("PUT", self._path, settings)

    def delete(self) -> None:
        self._headrace.ask("DELETE", self._path)

    def register(self, consumer: str) -> None:
        self._headrace.ask("PUT", f"{self._path}/consumers/{quote(consumer)}", {})

    def receive(self, most: int, wait_seconds: int, consumer: str | None = None) -> list[dict[str, Any]]:
        request = {"max": most, "wait_seconds": wait_seconds} | ({"consumer": consumer} if consumer else {})
        messages: list[dict[str, Any]] = self._headrace.ask("POST", f"{self._path}/receive", request)[
            "messages"
        ]
        return messages

    def ack(self, messages: list[dict[str, Any]]) -> None:
        """Failed if one of them was not taken."""
        receipts = [message["receipt"] for message in messages]
        results = self._headrace.ask("POST", f"{self._path}/ack", {"receipts": receipts})["results"]
        for result in results:
            if not result.get("ok"):
                raise Failed(f"An acknowledgement was refused: {result['error']['detail']}")


def _refusal(method: str, path: str, status: int, raw: bytes) -> str:
    """What the server's problem document says."""
    if status == 401:
        return "The server does not know this token (401). Give the right one with --token or HEADRACE_TOKEN."
    try:
        problem = json.loads(raw)
        return f"{method} {path}: {status} {problem['code']}: {problem['detail']}"
    except (ValueError, KeyError, TypeError):
        return f"{method} {path}: {status} {raw[:200].decode(errors='replace')}"
