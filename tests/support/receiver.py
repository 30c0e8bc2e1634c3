"""A quick subscriber on a real socket with scripted answers, which records all requests; also for measuring."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from chalicelib.delivery import webhooks

_START_SECONDS = 60.0
_BACKLOG = 1000


class How(Enum):
    """What becomes of an answer."""

    WHOLE = "whole"
    CUT = "cut"  # half of it, then the connection ends
    NONE = "none"  # the connection ends at once
    NEVER = "never"  # the connection stays, and nothing comes


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, `after` so many seconds."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    after: float = 0.0
    how: How = How.WHOLE


@dataclass(slots=True)
class Visit:
    """A request and its answer. Header names are lower case. `began` is when its first byte came, `ended` when the
    answer was sent or the connection ended: seconds since 1970 by this machine's clock."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    began: float
    reply: Reply = Reply()
    ended: float | None = None


class Receiver:
    """An HTTP/1.1 server in a thread of its own; `answer` is called there, for one visit at a time.

    A context manager: at its end all connections are closed.
    """

    def __init__(
        self, answer: Callable[[Visit], Reply] = lambda _: Reply(), tls: ssl.SSLContext | None = None
    ) -> None:
        """`tls`: connections are encrypted, by its certificate."""
        self.answer = answer
        self._tls = tls
        self.visits: list[Visit] = []
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)
        self.open: set[asyncio.Transport] = set()

    def url(self, path: str) -> str:
        """Where a subscriber of that path is."""
        return f"http://127.0.0.1:{self.port}/{path}"

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(_START_SECONDS):
            raise RuntimeError("the receiver did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        loop = self._loop
        server = loop.run_until_complete(
            loop.create_server(lambda: _Connection(self), "127.0.0.1", 0, backlog=_BACKLOG, ssl=self._tls)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        loop.run_forever()
        server.close()
        for transport in list(self.open):
            transport.abort()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


class _Connection(asyncio.Protocol):
    """One connection; its requests come one after the other."""

    def __init__(self, of: Receiver) -> None:
        self._of = of
        self._held = b""
        self._began = 0.0
        self._visit: Visit | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._of.open.add(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._of.open.discard(self._transport)
        if self._visit and self._visit.ended is None:
            self._visit.ended = time.time()

    def data_received(self, data: bytes) -> None:
        self._began = self._began if self._held else time.time()
        self._held += data
        head, end, body = self._held.partition(b"\r\n\r\n")
        if not end:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if len(body) < int(headers.get("content-length", "0")):
            return
        self._held = b""
        visit = self._visit = Visit(first.split(" ")[1], headers, body, self._began)
        self._of.visits.append(visit)
        visit.reply = self._of.answer(visit)
        if visit.reply.after:
            self._of._loop.call_later(visit.reply.after, self._reply, visit)
        else:
            self._reply(visit)

    def _reply(self, visit: Visit) -> None:
        reply = visit.reply
        if self._transport.is_closing() or reply.how is How.NEVER:
            return
        if reply.how is not How.NONE:
            lines = [f"HTTP/1.1 {reply.status} X", f"Content-Length: {len(reply.body)}"]
            lines += [f"{name}: {value}" for name, value in reply.headers.items()]
            whole = ("\r\n".join(lines) + "\r\n\r\n").encode() + reply.body
            self._transport.write(whole if reply.how is How.WHOLE else whole[: len(whole) // 2])
        visit.ended = time.time()
        if reply.how is not How.WHOLE:
            self._transport.close()


def is_signed(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """By this secret? `headers` by lower-case names."""
    raw = webhooks.parse_secret(secret)
    assert isinstance(raw, bytes)
    arguments = headers["webhook-id"], int(headers["webhook-timestamp"]), body, headers["webhook-signature"]
    return webhooks.verify([raw], *arguments)
