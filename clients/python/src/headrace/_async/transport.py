"""Sends calls over one pool of connections, and again where that is safe and may help."""

from __future__ import annotations

import logging
import os
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from .. import typed
from .._loops import async_loop
from .._pause import async_pause
from .._trust import trust
from ..calls import DOCS, REQUEST, RESEND, Call, agent, is_url, resend_seconds
from ..errors import ClientClosed, HeadraceError, NoAnswer, Unavailable, of_answer
from ..retries import Retries

if TYPE_CHECKING:
    import asyncio

    import httpx

    _Key = tuple[int, asyncio.AbstractEventLoop | None, bool, bool]

T = TypeVar("T")
_LOG = logging.getLogger("headrace")
_CONNECT_SECONDS = 5.0
_END = re.compile(r"(?<![:/])/+(v1/*)?\Z")  # calls say /v1 themselves
_APP = re.compile(r"[A-Za-z0-9._/-]{1,64}\Z")
_TOKEN = re.compile(r"hr_[A-Za-z0-9_-]+\Z")
_LEAST_SECONDS = 0.1  # for the last try


class AsyncTransport:
    """One service, at one or several addresses. Safe for threads, forks and event loops: a child and a loop open
    connections of their own."""

    def __init__(
        self,
        urls: Sequence[str],
        token: str,
        retries: Retries,
        timeout: float,
        connections: int,
        app: str = "",
    ) -> None:
        self.urls = tuple(_END.sub("", url.strip()) for url in urls if url.strip())
        if not self.urls or not all(map(is_url, self.urls)):
            raise ValueError(
                "Give the service's URL, as in https://… or http://127.0.0.1:8700 (HEADRACE_URL)."
            )
        self.token, self.app = token.strip(), app
        if not _TOKEN.match(self.token):
            raise ValueError(
                "Give a token (HEADRACE_TOKEN), hr_… as it was printed by `make run` or `make token`, without `Bearer`."
            )
        if app and not _APP.match(app):
            raise ValueError("`app` (HEADRACE_APP) has up to 64 of A-Z, a-z, 0-9, `.`, `_`, `-` and `/`.")
        self._own_headers = {"Authorization": f"Bearer {self.token}", "User-Agent": agent()}
        if app:
            self._own_headers["Headrace-App"] = app
        self.retries = retries
        self.timeout = timeout
        self.connections = connections
        self._first = 0
        self._pools: dict[_Key, httpx.AsyncClient] = {}
        self._is_closed = False

    async def ask(self, call: Call, kind: type[T]) -> T:
        """The answer to a call as a type. HeadraceError where it is a refusal, or none comes."""
        return await self.read(call, lambda raw: typed.decoded(raw, kind))

    async def send(self, call: Call) -> bytes:
        """The body of the answer to a call."""
        return await self.read(call, bytes)

    async def read(self, call: Call, reader: Callable[[bytes], T]) -> T:
        """What `reader` makes of the answer to a call, tried as often as the retries allow. What it cannot read
        (ValueError) is none of Headrace's answers. ClientClosed after `aclose`."""
        start = time.monotonic()
        first_sent = time.time() if call.first_sent is None else call.first_sent
        is_fresh = False
        for attempt in range(1, self.retries.attempts + 1):
            at = self._first
            try:
                seconds_left = self.retries.total_seconds - (time.monotonic() - start)
                return await self._once(
                    call, self.urls[at], reader, max(seconds_left, _LEAST_SECONDS), is_fresh
                )
            except HeadraceError as error:
                unknown, is_fresh = isinstance(error, Unavailable), isinstance(error, NoAnswer)
                wait = self.retries.pause(error, attempt, time.monotonic() - start, random.random())
                if wait is None or (unknown and not call.repeatable):
                    raise
                _LOG.info("%s %s: %s, again in %.2f s", call.method, call.path, error.code, wait)
                await self.pause(wait)
                if self._is_closed:  # meanwhile
                    raise
                if unknown:
                    if self._first == at:  # else another call has moved on
                        self._first = (at + 1) % len(self.urls)
                    call = replace(call, first_sent=first_sent)
        raise AssertionError("the last try returns or raises")

    async def pause(self, seconds: float) -> None:
        """Wait between two tries."""
        await async_pause(seconds)

    async def _once(
        self, call: Call, url: str, reader: Callable[[bytes], T], most_seconds: float, is_fresh: bool
    ) -> T:
        import httpx

        headers = {**self._own_headers, **call.headers}
        extensions = {}
        if call.first_sent is not None and headers.keys() & {REQUEST, RESEND}:
            headers[RESEND] = resend_seconds(call.first_sent, time.time())
            extensions["trace"] = _count_to_departure(call.first_sent)
        content = call.content()
        if content is not None:
            headers.setdefault("Content-Type", "application/json")
        until = time.monotonic() + most_seconds + call.wait_seconds
        try:
            async with self._connections(call, is_fresh).stream(
                call.method,
                url + call.target,
                content=content,
                headers={name: value.encode() for name, value in headers.items()},
                timeout=httpx.Timeout(
                    min(self.timeout, most_seconds) + call.wait_seconds,
                    connect=min(_CONNECT_SECONDS, most_seconds),
                ),
                extensions=extensions,
            ) as answer:
                raw = await _whole(answer, until)
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise NoAnswer(
                "NO_ANSWER",
                f"No answer from {url} ({type(error).__name__} {error}). Is the service up?",
                retryable=True,
            ) from error
        except RuntimeError as error:  # by httpx, where `aclose` came in between
            if self._is_closed:
                raise _closed_error() from error
            raise
        if answer.status_code >= 300:
            raise of_answer(answer.status_code, answer.headers, raw, time.time())
        try:
            if raw and not raw.startswith(b"{") and call.path != DOCS:
                raise ValueError("no JSON object")
            return reader(raw)
        except ValueError as error:
            raise NoAnswer(
                "NO_ANSWER",
                f"{url} answered {answer.status_code} with what is none of Headrace's answers "
                f"({error}). Is there a proxy in between?",
                retryable=True,
            ) from error

    def _connections(self, call: Call, is_fresh: bool) -> Any:
        """The pool of this process and event loop; one that was forked away from belongs to the parent.

        Calls that wait for messages have one of their own, without a bound: as many as `connections` would keep those
        from the service that settle and renew. `is_fresh`: one whose connections are used once. What broke one idle
        connection, such as a restarted firewall, broke its neighbours, too: each repeat would meet the next of them.
        """
        import httpx

        if self._is_closed:
            raise _closed_error()
        is_waiting = call.wait_seconds > 0
        key = os.getpid(), async_loop(), is_waiting, is_fresh
        pool = self._pools.get(key)
        if pool is None:
            self._forget_closed_loops()
            limits = httpx.Limits(
                max_connections=None if is_waiting else self.connections,
                max_keepalive_connections=0 if is_fresh else self.connections,
            )
            pool = self._pools.setdefault(key, httpx.AsyncClient(limits=limits, verify=trust(self.urls)))
        return pool

    async def aclose(self) -> None:
        """Close the connections. Later calls raise ClientClosed."""
        self._is_closed = True
        self._forget_closed_loops()
        for key in [*self._pools]:
            if key[:2] == (os.getpid(), async_loop()) and (pool := self._pools.pop(key, None)):
                await pool.aclose()

    def _forget_closed_loops(self) -> None:
        for key in [*self._pools]:
            if (loop := key[1]) and loop.is_closed():
                self._pools.pop(key, None)


async def _whole(answer: httpx.Response, until: float) -> bytes:
    """The body of an answer, each part of which comes in time, but perhaps a few bytes at a time."""
    import httpx

    parts: list[bytes] = []
    async for part in answer.aiter_bytes():
        if parts and time.monotonic() > until:
            raise httpx.ReadTimeout("it was not whole in time")
        parts.append(part)
    return b"".join(parts)


def _closed_error() -> ClientClosed:
    return ClientClosed("CLIENT_CLOSED", "This client was closed; nothing was sent. Make a new one.")


def _count_to_departure(first_sent: float) -> Any:
    """Updates Headrace-Resend when a connection is there and the request leaves: the service allows for the way,
    not for a wait in the pool, and would not look back to what the first try has stored."""

    async def trace(event: str, info: dict[str, Any]) -> None:
        if event.endswith("send_request_headers.started"):
            request, resend = info["request"], RESEND.encode()
            seconds = resend_seconds(first_sent, time.time()).encode()
            request.headers = [
                (name, seconds if name == resend else value) for name, value in request.headers
            ]

    return trace
