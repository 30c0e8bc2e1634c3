"""For any ASGI server, and to mount in Starlette or FastAPI: `app = asgi_app(webhook)`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from .receiver import Webhook

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def asgi_app(webhook: Webhook) -> Callable[[dict[str, Any], Receive, Send], Awaitable[None]]:
    """An ASGI application."""

    async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        answer = await webhook.answer_async(scope["method"], headers, await _body(receive))
        header_pairs = [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]
        if answer.status != 204:
            header_pairs.append((b"content-length", str(len(answer.body)).encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": header_pairs})
        await send({"type": "http.response.body", "body": answer.body})

    return app


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""  # the sender is gone: an incomplete body has no valid signature
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
