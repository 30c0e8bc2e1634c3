"""Reads HTTP/1.1 requests and writes answers, strictly: what could be read in two ways is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from http.client import responses
from io import BufferedIOBase

from chalicelib.domain.limits import MAX_REQUEST_BYTES
from chalicelib.domain.message import is_single
from local.gateway import Answer, Refusal, body_too_large

LINE_LIMIT_BYTES = 8192
HEADERS_LIMIT_BYTES = 10240  # API Gateway's, names and values of all headers together
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(rb"(%s) ([^\x00-\x20\x7f]+) HTTP/([0-9])(?:\.([0-9]))?\r?\n" % _TOKEN)
_HEADER = re.compile(rb"(%s):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)\r?\n" % _TOKEN)
_ABSOLUTE = re.compile(r"\Ahttps?://[^/?]*(?=/)", re.IGNORECASE)
_DIGITS = re.compile(r"[0-9]{1,18}\Z")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n")
_BARE = (204, 304)


class Hangup(Exception):
    """The client left in the middle of a request: there is no client to answer."""


@dataclass(slots=True)
class Request:
    """One request. Header names are in lower case; of a repeated header the last counts, as for a Lambda."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes | None
    keep_alive: bool


def read_request(stream: BufferedIOBase, send: Callable[[bytes], object]) -> Request | None:
    """The next request, None when the client has finished. `send` is for 100 Continue.

    Raises Refusal for a bad request (the connection is then of no more use), Hangup, and what the stream raises.
    """
    too_long = Refusal(414, "URI_TOO_LONG", "The request line is too long.")
    line = _line(stream, LINE_LIMIT_BYTES, too_long)
    if line in (b"\r\n", b"\n"):  # RFC 9112, 2.2: an empty line before a request is to be ignored
        line = _line(stream, LINE_LIMIT_BYTES, too_long)
    if not line:
        return None
    match = _REQUEST_LINE.fullmatch(line)
    if not match:
        raise _bad("The request line cannot be read.")
    if match[3] != b"1":
        raise Refusal(505, "HTTP_VERSION_NOT_SUPPORTED", "Use HTTP/1.1.")
    if not match[2].isascii():
        raise _bad("Write what is not ASCII in the path and query as %XX: é is %C3%A9.")
    method, target, is_old = match[1].decode(), match[2].decode(), match[4] == b"0"
    target = _ABSOLUTE.sub("", target)  # a proxy's form (RFC 9112, 3.2)
    if target[:1] != "/":
        raise _bad("The request target must begin with a slash.")
    try:
        headers = _headers(stream)
        if is_old and "transfer-encoding" in headers:  # RFC 9112, 6.1
            raise _bad("HTTP/1.0 has no transfer codings.")
        if not is_old and "host" not in headers:  # RFC 9112, 3.2
            raise _bad("The Host header is missing.")
        body = _body(stream, headers, (lambda _: None) if is_old else send)
    except Refusal as refusal:
        refusal.method, refusal.target = method, target
        raise
    wishes = [wish.strip() for wish in headers.get("connection", "").lower().split(",")]
    keep_alive = "close" not in wishes and (not is_old or "keep-alive" in wishes)
    return Request(method, target, headers, body, keep_alive)


def encode(answer: Answer, method: str, keep_alive: bool) -> bytes:
    """An answer as it goes over the wire, in one piece. ValueError: a header that would break the frame."""
    status, headers, body = answer
    lines = [f"HTTP/1.1 {status} {responses.get(status, 'Unknown')}", f"Date: {formatdate(usegmt=True)}"]
    lines += [f"{k}: {v}" for k, v in headers.items() if k.lower() not in ("content-length", "connection")]
    if status not in _BARE:
        lines.append(f"Content-Length: {len(body)}")
    # A client of HTTP/1.0 that asked to keep the connection waits for its end unless it hears of this.
    lines.append(f"Connection: {'keep-alive' if keep_alive else 'close'}")
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("The app's answer has a header with a line break")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")
    return head if status in _BARE or method == "HEAD" else head + body


def _bad(detail: str) -> Refusal:
    return Refusal(400, "BAD_REQUEST", detail)


def _line(stream: BufferedIOBase, limit: int, too_long: Refusal) -> bytes:
    line = stream.readline(limit + 1)
    if len(line) > limit:
        raise too_long
    if line and not line.endswith(b"\n"):
        raise Hangup
    return line


def _headers(stream: BufferedIOBase) -> dict[str, str]:
    headers: dict[str, str] = {}
    bytes_left = HEADERS_LIMIT_BYTES
    too_long = Refusal(431, "HEADERS_TOO_LARGE", f"Headers may have {HEADERS_LIMIT_BYTES} bytes in all.")
    while (line := _line(stream, bytes_left, too_long)) not in (b"\r\n", b"\n"):
        if not line:
            raise Hangup
        bytes_left -= len(line)
        match = _HEADER.fullmatch(line)
        if not match:
            raise _bad("A header cannot be read.")
        name, value = match[1].decode().lower(), match[2].decode("latin-1").rstrip(" \t")
        if name in ("content-length", "transfer-encoding") and headers.get(name, value) != value:
            raise _bad("The length of the body is given twice.")
        if name in headers and is_single(name):
            raise _bad(f"{name.title()} is given twice.")
        headers[name] = value
    return headers


def _body(stream: BufferedIOBase, headers: dict[str, str], send: Callable[[bytes], object]) -> bytes | None:
    coding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if coding is None and length is None:
        return None
    if coding is not None and length is not None:
        raise _bad("The length of the body is given twice.")
    if length is not None and not _DIGITS.match(length):
        raise _bad("Content-Length must be a number.")
    if coding is not None and coding.lower() != "chunked":
        raise Refusal(501, "NOT_IMPLEMENTED", "The only transfer coding is chunked.")
    size = int(length or 0)
    if size > MAX_REQUEST_BYTES:
        raise body_too_large()
    if headers.get("expect", "").lower() == "100-continue":
        send(b"HTTP/1.1 100 Continue\r\n\r\n")
    return _read_chunked(stream) if coding is not None else _read_exactly(stream, size)


def _read_exactly(stream: BufferedIOBase, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise Hangup
    return data


def _read_chunked(stream: BufferedIOBase) -> bytes:
    chunks: list[bytes] = []
    total = 0
    while True:
        match = _CHUNK_SIZE.fullmatch(_line(stream, 256, _bad("A chunk's size cannot be read.")))
        if not match:
            raise _bad("A chunk's size cannot be read.")
        size = int(match[1], 16)
        if not size:
            _headers(stream)  # trailers: read, and not used
            return b"".join(chunks)
        total += size
        if total > MAX_REQUEST_BYTES:
            raise body_too_large()
        chunks.append(_read_exactly(stream, size))
        if _line(stream, 2, _bad("A chunk is longer than it says.")) not in (b"\r\n", b"\n"):
            raise _bad("A chunk is longer than it says.")
