"""For any WSGI server: `app = wsgi_app(webhook)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from .receiver import Webhook

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
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        answer = webhook.answer(environ["REQUEST_METHOD"], headers, body)
        length = {} if answer.status == 204 else {"Content-Length": str(len(answer.body))}
        phrase = _PHRASES.get(answer.status, "Message Rejected")
        start_response(f"{answer.status} {phrase}", [*{**answer.headers, **length}.items()])
        return [answer.body]

    return app
