"""A short way to the engine: what botocore does for each call, its events and its repetitions too, but not its way
through urllib3, nor what it finds out anew for each (where to send it, how to sign it, what each part of an answer is).
Those are three quarters of what a call costs the process that tests."""

from __future__ import annotations

import json
import select
import socket
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.client import BaseClient
from botocore.endpoint import Endpoint
from botocore.exceptions import ConnectionClosedError
from botocore.httpsession import URLLib3Session
from botocore.parsers import JSONParser

_SECONDS = 60.0  # how long a busy machine's engine may take
_SIGNED = "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0"
_OF_ITEMS = {
    f"{operation}Output"
    for operation in (
        "BatchGetItem",
        "BatchWriteItem",
        "DeleteItem",
        "GetItem",
        "PutItem",
        "Query",
        "Scan",
        "TransactGetItems",
        "TransactWriteItems",
        "UpdateItem",
    )
}
"""Answers whose JSON is what botocore makes of it, but for bytes."""


class _Line:
    """An open connection, which carries one request after the other."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, _SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader: BufferedReader = self._socket.makefile("rb")
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def is_open(self) -> bool:
        """Has the other side left it open? Between requests nothing comes but its end."""
        return not self._poll.poll(0)

    def exchange(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        """Status, headers (with small letters) and body of the answer to a request."""
        self._socket.sendall(request)
        _, status, _ = self._reader.readline().split(b" ", 2)
        headers: dict[str, str] = {}
        while (line := self._reader.readline().strip()) != b"":
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        return int(status), headers, self._reader.read(int(headers["content-length"]))

    def close(self) -> None:
        self._reader.close()
        self._socket.close()


@contextmanager
def short_way(endpoint: str) -> Iterator[None]:
    """All clients of this process take the short way to the engine at this URL. Whatever runs in a process of its own
    goes botocore's, and so does the soak."""
    idle: list[_Line] = []
    url = urlsplit(endpoint)
    host, port = url.hostname or "", url.port or 80
    send, create_request = URLLib3Session.send, Endpoint.create_request
    resolve, parse_body = BaseClient._resolve_endpoint_ruleset, JSONParser._handle_json_body

    def line() -> _Line:
        while idle:
            one = idle.pop()
            if one.is_open():
                return one
            one.close()
        return _Line((host, port))

    def resolve_once(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.meta.endpoint_url != endpoint:
            return resolve(self, *args, **kwargs)
        return endpoint, {}, {}

    def create_signed(self: Any, params: Any, operation_model: Any = None) -> Any:
        if not params["url"].startswith(endpoint):
            return create_request(self, params, operation_model)
        headers = params["headers"] | {"Host": url.netloc, "Authorization": _SIGNED}
        return AWSPreparedRequest(params["method"], params["url"], headers, params["body"], False)

    def send_short(self: Any, request: Any) -> Any:
        if not request.url.startswith(endpoint):
            return send(self, request)
        lines = [f"{name}: {value}" for name, value in request.headers.items()]
        head = "\r\n".join(("POST / HTTP/1.1", f"Content-Length: {len(request.body)}", *lines, "", ""))
        connection = line()
        try:
            status, headers, content = connection.exchange(head.encode() + request.body)
        except (OSError, ValueError, LookupError) as error:
            connection.close()
            raise ConnectionClosedError(error=error, request=request, endpoint_url=request.url) from error
        idle.append(connection)
        response = AWSResponse(request.url, status, headers, None)
        response._content = content
        return response

    def parse_items(self: Any, body: bytes, shape: Any) -> Any:
        if shape.name not in _OF_ITEMS:
            return parse_body(self, body, shape)
        return json.loads(body, object_hook=_with_bytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseClient, "_resolve_endpoint_ruleset", resolve_once)
        patch.setattr(Endpoint, "create_request", create_signed)
        patch.setattr(URLLib3Session, "send", send_short)
        patch.setattr(JSONParser, "_handle_json_body", parse_items)
        yield
    for one in idle:
        one.close()


def _with_bytes(value: dict[str, Any]) -> dict[str, Any]:
    """An item's value, of bytes if it is of those. (A map's member of that name is another value, and no text.)"""
    for kind, content in value.items():
        if kind == "B" and isinstance(content, str):
            return {kind: b64decode(content)}
        if kind == "BS" and isinstance(content, list):
            return {kind: [b64decode(each) for each in content]}
        break
    return value
