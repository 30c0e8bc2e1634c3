"""A short way to the engine: what botocore does for each call, but signing and its way through urllib3, which are half
of what a call costs the process that tests."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSResponse, HeadersDict
from botocore.exceptions import ConnectionClosedError
from botocore.httpsession import URLLib3Session

_SECONDS = 60.0  # how long a busy machine's engine may take
_SIGNED = "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0"


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

    def exchange(self, request: bytes) -> tuple[int, HeadersDict, bytes]:
        """Status, headers and body of the answer to a request."""
        self._socket.sendall(request)
        _, status, _ = self._reader.readline().split(b" ", 2)
        headers = HeadersDict()
        while (line := self._reader.readline().strip()) != b"":
            name, _, value = line.decode("latin-1").partition(":")
            headers[name] = value.strip()
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
    sign, send = SigV4Auth.add_auth, URLLib3Session.send

    def line() -> _Line:
        while idle:
            one = idle.pop()
            if one.is_open():
                return one
            one.close()
        return _Line((host, port))

    def add_auth(self: Any, request: Any) -> None:
        if self._service_name == "dynamodb":
            request.headers["Authorization"] = _SIGNED
        else:
            sign(self, request)

    def send_short(self: Any, request: Any) -> Any:
        if not request.url.startswith(endpoint):
            return send(self, request)
        body = request.body or b""
        lines = [f"{request.method} / HTTP/1.1", f"Host: {url.netloc}", f"Content-Length: {len(body)}"]
        lines += [
            f"{name}: {_text(value)}" for name, value in request.headers.items() if name != "Content-Length"
        ]
        connection = line()
        try:
            status, headers, content = connection.exchange("\r\n".join((*lines, "", "")).encode() + body)
        except (OSError, ValueError, LookupError) as error:
            connection.close()
            raise ConnectionClosedError(error=error, request=request, endpoint_url=request.url) from error
        idle.append(connection)
        response = AWSResponse(request.url, status, headers, None)
        response._content = content
        return response

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SigV4Auth, "add_auth", add_auth)
        patch.setattr(URLLib3Session, "send", send_short)
        yield
    for one in idle:
        one.close()


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()
