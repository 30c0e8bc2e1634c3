"""Connections of the client for asyncio, by httpx. `_http` is its twin."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from ._environment import proxy_of, trust
from .calls import CONNECT_SECONDS, RESEND, Request
from .errors import closed_error, no_answer
from .moments import Moment, now, resend_seconds

_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_Key = tuple[int, asyncio.AbstractEventLoop, str, bool, bool]


class AsyncConnections:
    """To the addresses of one service. An event loop, and a process that was forked away, have their own."""

    def __init__(self, urls: Sequence[str], number: int) -> None:
        self._urls = urls
        self._number = number
        self.is_closed = False
        self._pools: dict[_Key, httpx.AsyncHTTPTransport] = {}

    async def exchange(self, request: Request, *, is_fresh: bool) -> tuple[int, Mapping[str, str], bytes]:
        """As that of `_http`. httpx's client would log a line for each request: its transport does not."""
        __tracebackhide__ = True
        timeout = httpx.Timeout(request.seconds, connect=min(CONNECT_SECONDS, request.seconds))
        extensions: dict[str, Any] = {"timeout": timeout.as_dict()}
        headers = {name.encode(): value.encode() for name, value in request.headers.items()}
        if request.first_sent is not None:
            headers[RESEND.encode()] = b"1"
            extensions["trace"] = _count_to_departure(request.first_sent)
        pool = self._pool(request, is_fresh)
        try:
            answer = await pool.handle_async_request(
                httpx.Request(
                    request.method,
                    request.url + request.target,
                    content=request.content,
                    headers=headers,
                    extensions=extensions,
                )
            )
            try:
                parts: list[bytes] = []
                async for part in answer.aiter_bytes():
                    if parts and time.monotonic() > request.until:
                        raise no_answer(request.url, "it was not whole in time")
                    parts.append(part)
            finally:
                await answer.aclose()
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise no_answer(request.url, _plain(error), was_sent=not isinstance(error, _UNSENT)) from None
        except RuntimeError:  # by httpx, where `aclose` came in between
            if self.is_closed:
                raise closed_error() from None
            raise
        return answer.status_code, answer.headers, b"".join(parts)

    def _pool(self, request: Request, is_fresh: bool) -> httpx.AsyncHTTPTransport:
        if self.is_closed:
            raise closed_error()
        key = os.getpid(), asyncio.get_running_loop(), request.url, request.is_waiting, is_fresh
        pool = self._pools.get(key)
        if pool is None:
            self._forget_closed_loops()
            limits = httpx.Limits(
                max_connections=None if request.is_waiting else self._number,
                max_keepalive_connections=0 if is_fresh else self._number,
                keepalive_expiry=30.0,
            )
            made = httpx.AsyncHTTPTransport(
                limits=limits,
                verify=trust(self._urls) or False,
                proxy=proxy_of(request.url),
            )
            pool = self._pools.setdefault(key, made)
        return pool

    async def aclose(self) -> None:
        """Close those of this process and event loop."""
        self.is_closed = True
        self._forget_closed_loops()
        for key in [*self._pools]:
            if key[:2] == (os.getpid(), asyncio.get_running_loop()) and (pool := self._pools.pop(key, None)):
                await pool.aclose()

    def _forget_closed_loops(self) -> None:
        for key in [*self._pools]:
            if key[1].is_closed():
                self._pools.pop(key, None)


def _plain(error: httpx.HTTPError) -> str | httpx.HTTPError:
    if isinstance(error, httpx.ReadTimeout):
        return "it did not answer in time"
    return "no connection in time" if isinstance(error, httpx.TimeoutException) else error


def _count_to_departure(first_sent: Moment) -> Any:
    """Updates Headrace-Resend when a connection is there and the request leaves: the service allows for the way,
    not for a wait in the pool, and would not look back to what the first try has stored."""

    async def trace(event: str, info: dict[str, Any]) -> None:
        if event.endswith("send_request_headers.started"):
            request, resend = info["request"], RESEND.encode()
            seconds = resend_seconds(first_sent, now()).encode()
            request.headers = [
                (name, seconds if name == resend else value) for name, value in request.headers
            ]

    return trace
