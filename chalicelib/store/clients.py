"""The one factory of AWS clients. Everything that watches or disturbs calls to AWS hooks in here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from ..ports.world import Clock

OnClient = Callable[[Any], None]

_READ_SECONDS = 5
_ATTEMPTS = {"lambda": 1, "sqs": 2}  # calling a consumer's function twice would be two attempts
_REST_MS = 4_000  # servers close what rests for five seconds or more, and a process that is frozen hears nothing of it
_thread = threading.local()
_making = threading.Lock()  # boto3 makes clients in one thread at a time


@contextmanager
def sent_once() -> Iterator[None]:
    """What this thread sends to DynamoDB meanwhile is not sent again if it may have been carried out: after a lost
    answer the outcome is unknown. What was refused, or was never sent, is sent again as always."""
    _thread.sends_once = True
    try:
        yield
    finally:
        _thread.sends_once = False


class Clients:
    """Makes boto3 clients for one process; `on_client` sees each before its first use (fault plan, counts). By `clock`
    those that try only once have their connections closed when they have rested."""

    def __init__(self, region: str, on_client: OnClient | None = None, clock: Clock | None = None) -> None:
        self._region = region
        self._on_client = on_client
        self._clock = clock
        self._used: dict[Any, tuple[int, int]] = {}  # when by both clocks, by client
        self._made: dict[tuple[str, int], Any] = {}

    def get(self, service: str, read_seconds: int = _READ_SECONDS) -> Any:
        """The process's client for a service that waits so long for an answer. Endpoints and credentials are botocore's
        business. Threads may ask at the same time."""
        with _making:
            client = self._made.get((service, read_seconds))
            if client is None:
                client = self._made[service, read_seconds] = self._make(service, read_seconds)
            if self._clock and service in _ATTEMPTS:
                self._close_if_rested(client, self._clock)
        return client

    def _make(self, service: str, read_seconds: int) -> Any:
        config = _config(read_seconds, _ATTEMPTS.get(service, 3))
        client = _session().client(service, region_name=self._region, config=config)
        client.meta.events.register_first("needs-retry.dynamodb", _refuse_to_repeat)
        if self._on_client:
            self._on_client(client)
        return client

    def _close_if_rested(self, client: Any, clock: Clock) -> None:
        """Close the connections that a client keeps, if it has rested by either clock: on one that was dropped, its
        only attempt would fail. Calls under way go on."""
        now_ms, monotonic_ms = clock.now_ms(), clock.monotonic_ms()
        used_ms, used_monotonic_ms = self._used.get(client, (now_ms, monotonic_ms))
        self._used[client] = now_ms, monotonic_ms
        if max(now_ms - used_ms, monotonic_ms - used_monotonic_ms) > _REST_MS:
            client.close()


@cache
def _session() -> Any:
    import boto3.session

    return boto3.session.Session()


def _config(read_timeout: int, attempts: int) -> Any:
    from botocore.config import Config

    return Config(
        connect_timeout=2,
        read_timeout=read_timeout,
        max_pool_connections=64,
        retries={"mode": "standard", "total_max_attempts": attempts},
        tcp_keepalive=True,
        user_agent="headrace",  # else botocore builds one for each request: a tenth of its time
        parameter_validation=False,  # our own requests, tested; saves a tenth of the handler's time
    )


def _refuse_to_repeat(
    response: tuple[Any, dict[str, Any]] | None, caught_exception: Exception | None, operation: Any, **_: Any
) -> None:
    """End a request of `sent_once` whose outcome is unknown, in the place of the SDK, which would send it again."""
    from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError

    if not getattr(_thread, "sends_once", False):
        return
    if caught_exception and not isinstance(caught_exception, ConnectTimeoutError | EndpointConnectionError):
        raise caught_exception
    if response and response[0].status_code >= 500:
        raise ClientError(response[1], operation.name)
