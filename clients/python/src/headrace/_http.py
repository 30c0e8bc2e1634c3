"""Connections of the client for threads, by urllib3. `_async_http` is its twin."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import (
    ClosedPoolError,
    ConnectTimeoutError,
    EmptyPoolError,
    HTTPError,
    NewConnectionError,
    ReadTimeoutError,
)
from urllib3.util import make_headers

from ._environment import proxy_of, trust
from .calls import CONNECT_SECONDS, RESEND, Request
from .errors import closed_error, no_answer
from .moments import Moment, now, resend_seconds

if TYPE_CHECKING:
    from urllib3.response import HTTPResponse

_NO_RETRIES = urllib3.Retry(total=False, redirect=0)
_IDLE_SECONDS = 30.0
"""After so long something in between may have forgotten a connection."""
_WAITING = 1000
_UNSENT = (ConnectTimeoutError, EmptyPoolError, NewConnectionError)
_PART_BYTES = 65_536


class _Age(str):
    """The header of a repeat. Its value is made when the request leaves: the service allows for the way, not for a wait
    in the pool, and would not look back to what the first try has stored."""

    first_sent: Moment

    def encode(self, encoding: str = "", errors: str = "") -> bytes:
        return resend_seconds(self.first_sent, now()).encode()


class _Idle(HTTPConnection):
    _used = 0.0

    @property
    def is_connected(self) -> bool:
        return time.monotonic() - self._used < _IDLE_SECONDS and super().is_connected

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]
        answer = super().getresponse()
        self._used = time.monotonic()
        return answer


class _IdleTls(_Idle, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Idle


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _IdleTls


class Connections:
    """To the addresses of one service. A process that was forked away has its own."""

    def __init__(self, urls: Sequence[str], number: int) -> None:
        self._urls = urls
        self._number = number
        self.is_closed = False
        self._pools: dict[tuple[int, str, bool], tuple[HTTPConnectionPool, str]] = {}

    def exchange(self, request: Request, *, is_fresh: bool) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of the answer. Raises NoAnswer.

        Calls that wait for messages have connections of their own, without a bound: as many as `number` would keep
        those from the service that settle and renew. `is_fresh`: by a connection that is used once. What broke one idle
        connection, such as a restarted firewall, broke its neighbours, too: each repeat would meet the next of them.
        """
        __tracebackhide__ = True
        if self.is_closed:
            raise closed_error()
        if is_fresh:
            pool, prefix = self._made(request.url, 1)
        else:
            key = os.getpid(), request.url, request.is_waiting
            made = self._pools.get(key)
            if made is None:
                number = _WAITING if request.is_waiting else self._number
                made = self._pools.setdefault(key, self._made(request.url, number, not request.is_waiting))
            pool, prefix = made
        try:
            return _exchange(pool, prefix, request)
        finally:
            if is_fresh:
                pool.close()

    def _made(self, url: str, number: int, is_bound: bool = False) -> tuple[HTTPConnectionPool, str]:
        """A pool, and what is before a call's path in its requests."""
        context = trust(self._urls)
        proxy = proxy_of(url)
        manager: urllib3.PoolManager
        if proxy is None:
            manager = urllib3.PoolManager(maxsize=number, block=is_bound, ssl_context=context)
        else:
            parts = urlsplit(proxy)
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else None
            manager = urllib3.ProxyManager(
                proxy,
                proxy_headers=make_headers(proxy_basic_auth=user),
                maxsize=number,
                block=is_bound,
                ssl_context=context,
            )
        manager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
        path = urlsplit(url).path
        is_whole = proxy is not None and url.lower().startswith("http:")
        return manager.connection_from_url(url), url if is_whole else path

    def close(self) -> None:
        """Close those of this process."""
        self.is_closed = True
        for key in [*self._pools]:
            if key[0] == os.getpid() and (made := self._pools.pop(key, None)):
                made[0].close()


def _exchange(
    pool: HTTPConnectionPool, prefix: str, request: Request
) -> tuple[int, Mapping[str, str], bytes]:
    __tracebackhide__ = True
    headers = {
        name: value if value.isascii() else value.encode().decode("latin-1")  # as UTF-8
        for name, value in request.headers.items()
    }
    if request.first_sent is not None:
        headers[RESEND] = age = _Age()
        age.first_sent = request.first_sent
    connect_seconds = min(CONNECT_SECONDS, request.seconds)
    try:
        answer = pool.urlopen(
            request.method,
            prefix + request.target,
            request.content,
            headers,
            retries=_NO_RETRIES,
            redirect=False,
            assert_same_host=False,  # through a proxy the target is a whole URL
            timeout=urllib3.Timeout(connect=connect_seconds, read=request.seconds),
            pool_timeout=request.seconds,  # type: ignore[arg-type]
            preload_content=False,
        )
        parts: list[bytes] = []
        while part := answer.read1(_PART_BYTES):
            if parts and time.monotonic() > request.until:
                answer.close()
                answer.release_conn()
                raise no_answer(request.url, "it was not whole in time")
            parts.append(part)
    except ClosedPoolError:
        raise closed_error() from None
    except HTTPError as error:
        raise no_answer(request.url, _plain(error), was_sent=not isinstance(error, _UNSENT)) from None
    return answer.status, answer.headers, b"".join(parts)


def _plain(error: HTTPError) -> str | HTTPError:
    if isinstance(error, ReadTimeoutError):
        return "it did not answer in time"
    is_late = isinstance(error, ConnectTimeoutError | EmptyPoolError) and not isinstance(
        error, NewConnectionError
    )
    return "no connection in time" if is_late else error
