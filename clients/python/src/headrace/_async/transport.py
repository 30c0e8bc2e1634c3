"""Sends calls over one pool of connections, and again where that is safe and may help."""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from .. import moments, typed
from .._pause import async_pause
from ..calls import DOCS, REQUEST, RESEND, Call, Request, agent, is_url
from ..errors import HeadraceError, NoAnswer, Unavailable, of_answer
from ..retries import Retries

T = TypeVar("T")
_LOG = logging.getLogger("headrace.transport")
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
        receive_url: str = "",
    ) -> None:
        self.urls = tuple(_END.sub("", url.strip()) for url in urls if url.strip())
        self.receive_url = _END.sub("", receive_url.strip())
        every_url = (*self.urls, *([self.receive_url] if self.receive_url else []))
        if not self.urls or not all(map(is_url, every_url)):
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
        self._own_headers = {
            "Authorization": f"Bearer {self.token}",
            "User-Agent": agent(),
            "Accept-Encoding": "gzip",
        }
        if app:
            self._own_headers["Headrace-App"] = app
        self.retries = retries
        self.timeout = timeout
        self.connections = connections
        self._first = 0
        from .._async_http import AsyncConnections  # here, for a quick import

        self._connections = AsyncConnections(every_url, connections)

    async def ask(self, call: Call, kind: type[T]) -> T:
        """The answer to a call as a type. HeadraceError where it is a refusal, or none comes."""
        __tracebackhide__ = True
        return await self.read(call, lambda raw: typed.decoded(raw, kind))

    async def send(self, call: Call) -> bytes:
        """The body of the answer to a call."""
        return await self.read(call, bytes)

    async def read(
        self,
        call: Call,
        reader: Callable[[bytes], T],
        *,
        since: float | None = None,
        pause: Callable[[float], Any] | None = None,
    ) -> T:
        """What `reader` makes of the answer to a call, tried for as long as the retries allow, counted from `since` (of
        the monotonic clock; now, if not given), but once at least. What it cannot read (ValueError) is none of
        Headrace's answers. ClientClosed after `aclose`. `pause` waits between two tries; if it returns true, one more
        try is the last."""
        __tracebackhide__ = True
        start = time.monotonic() if since is None else since
        first_sent = call.first_sent or moments.now()
        seconds_left = self.retries.total_seconds
        is_fresh, is_last, tries = False, False, 0
        while True:
            tries += 1
            at = self._first
            url = self.receive_url if call.path.endswith("/receive") else ""
            try:
                return await self._once(call, url or self.urls[at], reader, seconds_left, is_fresh)
            except HeadraceError as error:
                is_away, is_fresh = isinstance(error, Unavailable), isinstance(error, NoAnswer)
                unknown = is_away and getattr(error, "was_sent", True)
                if isinstance(error, NoAnswer) and call.first_sent:
                    error.was_sent = True  # before
                passed = time.monotonic() - start
                wait = self.retries.pause(error, tries, passed, random.random(), is_send=call.is_send)
                if wait is None or is_last or (unknown and not call.repeatable):
                    raise
                level = logging.INFO if call.is_send else logging.DEBUG  # a consumer logs an outage once
                _LOG.log(level, "%s %s: %s, again in %.2f s", call.method, call.path, error.code, wait)
                is_last = bool(await (pause or self.pause)(wait))
                if self._connections.is_closed:  # meanwhile
                    raise
                if is_away and not url and self._first == at:  # else another call has moved on
                    self._first = (at + 1) % len(self.urls)
                if unknown:
                    call = replace(call, first_sent=first_sent)
                seconds_left = max(start + self.retries.total_seconds - time.monotonic(), _LEAST_SECONDS)

    async def pause(self, seconds: float) -> None:
        """Wait between two tries."""
        await async_pause(seconds)

    async def _once(
        self, call: Call, url: str, reader: Callable[[bytes], T], most_seconds: float, is_fresh: bool
    ) -> T:
        __tracebackhide__ = True
        headers = {**self._own_headers, **call.headers}
        content = call.content()
        if content is not None:
            headers.setdefault("Content-Type", "application/json")
        says_since = call.first_sent is not None and (REQUEST in headers or RESEND in headers)
        request = Request(
            call.method,
            url,
            call.target,
            content,
            headers,
            seconds=min(self.timeout, most_seconds) + call.wait_seconds,
            until=time.monotonic() + most_seconds + call.wait_seconds,
            is_waiting=call.wait_seconds > 0,
            first_sent=call.first_sent if says_since else None,
        )
        status, answer_headers, raw = await self._connections.exchange(request, is_fresh=is_fresh)
        if status >= 300:
            raise of_answer(status, answer_headers, raw, time.time())
        try:
            if raw and not raw.startswith(b"{") and call.path != DOCS:
                raise ValueError("no JSON object")
            return reader(raw)
        except ValueError as error:
            raise NoAnswer(
                "NO_ANSWER",
                f"{url} answered {status} with what is none of Headrace's answers "
                f"({error}). Is there a proxy in between?",
                retryable=True,
            ) from None

    async def aclose(self) -> None:
        """Close the connections. Later calls raise ClientClosed."""
        await self._connections.aclose()
