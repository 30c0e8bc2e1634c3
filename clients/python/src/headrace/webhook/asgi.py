"""For any ASGI server, and to mount in Starlette or FastAPI: `app = asgi_app(webhook)`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .receiver import MAX_BODY_BYTES, TOO_LARGE, Answer, Webhook

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]


def asgi_app(webhook: Webhook) -> Callable[[Event, Receive, Send], Awaitable[None]]:
    """An ASGI application. An async handler runs in the server's event loop."""

    async def app(scope: Event, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        body = await _body(receive)
        answer = TOO_LARGE if body is None else await webhook.answer_async(scope["method"], headers, body)
        await _send(answer, send)

    return app


async def _body(receive: Receive) -> bytes | None:
    """None: it is too large."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""  # the sender is gone: an incomplete body has no valid signature
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            return None
        if not message.get("more_body"):
            return bytes(body)


async def _send(answer: Answer, send: Send) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]
    if answer.status != 204:
        headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
