"""For any WSGI server: `app = wsgi_app(webhook)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from .receiver import MAX_BODY_BYTES, NO_LENGTH, TOO_LARGE, Answer, Webhook

_PHRASES = {status.value: status.phrase for status in HTTPStatus}


def wsgi_app(webhook: Webhook) -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    """A WSGI application."""

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        headers = {
            name[5:].replace("_", "-").lower(): value
            for name, value in environ.items()
            if name.startswith("HTTP_")
        }
        headers["content-type"] = environ.get("CONTENT_TYPE", "")
        body = body_of(environ)
        answer = (
            body if isinstance(body, Answer) else webhook.answer(environ["REQUEST_METHOD"], headers, body)
        )
        length = {} if answer.status == 204 else {"Content-Length": str(len(answer.body))}
        phrase = _PHRASES.get(answer.status, "Message Rejected")
        start_response(f"{answer.status} {phrase}", [*{**answer.headers, **length}.items()])
        return [answer.body]

    return app


def body_of(environ: dict[str, Any]) -> bytes | Answer:
    """The body of a request, also of a chunked one, if the server says that its end is the input's end; or the answer
    to one that cannot be read."""
    length = environ.get("CONTENT_LENGTH") or ""
    if not length.isdecimal() and not environ.get("wsgi.input_terminated"):
        return NO_LENGTH if length or environ.get("HTTP_TRANSFER_ENCODING") else b""
    left = min(int(length) if length.isdecimal() else MAX_BODY_BYTES + 1, MAX_BODY_BYTES + 1)
    body = bytearray()
    while left and (part := environ["wsgi.input"].read(left)):
        body += part
        left -= len(part)
    return bytes(body) if len(body) <= MAX_BODY_BYTES else TOO_LARGE
