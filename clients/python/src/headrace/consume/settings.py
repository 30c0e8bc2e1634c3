"""The settings of a consumer."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from ..durations import Duration, seconds
from ..models import Message
from ..outgoing import new_id

Middleware = Callable[[Message, Callable[[Message], Any]], Any]
"""Called around the handler with the message and what goes on; what it raises counts as the handler's. Of an async
handler the rest is awaited: write it with `async def`."""


@dataclass(frozen=True)
class ConsumerSettings:
    """A consumer of a group.

    `concurrency` handlers run at a time; `prefetch` messages wait for their turn (None: as many as handlers begin in
    a second). `lease` is the length of a lease (the group's, if not given). The consumer renews it while a handler
    runs, until `max_runtime`: then another consumer may get the message. A failed handler is retried `local_retries`
    times at once before the message goes back. `wait` is the length of a long poll, `rest` the longest pause between
    two empty ones. After a stop the consumer ends within `drain`: other consumers get the messages whose handlers still
    run. A missing group is created with `mode`, `tags` and `begin`, for which the token needs the scope admin.
    """

    topic: str
    group: str
    concurrency: int = 1
    prefetch: int | None = None
    lease: Duration | None = None
    max_runtime: Duration | None = None
    local_retries: int = 0
    tags: Sequence[str] | None = None
    mode: str | None = None
    begin: str = "earliest"
    name: str | None = None
    register: bool = True
    middleware: Sequence[Middleware] = ()
    wait: Duration = 10
    rest: Duration = 1.0
    ack_linger: Duration = 0.02
    auto_ack: bool = True
    drain: Duration = "25s"

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ValueError("concurrency must be at least 1.")
        if (self.prefetch or 0) < 0 or self.local_retries < 0:
            raise ValueError("prefetch and local_retries must be at least 0.")
        for duration in (self.lease, self.max_runtime, self.wait, self.rest, self.ack_linger, self.drain):
            if duration is not None:
                seconds(duration)
        if self.max_runtime is not None and not seconds(self.max_runtime):
            raise ValueError("max_runtime must be more than 0; None is no limit.")

    @property
    def max_runtime_seconds(self) -> float | None:
        """For how many seconds a lease is renewed; None: for as long as the handler runs."""
        return seconds(self.max_runtime) if self.max_runtime is not None else None

    def consumer_name(self) -> str:
        """The name to register under: this host, process and consumer."""
        host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:60].strip("-.")
        return self.name or f"{host or 'host'}-{os.getpid()}-{new_id(4)}"


class ConsumerOptions(TypedDict, total=False):
    """The same as keywords, for type checkers."""

    concurrency: int
    prefetch: int | None
    lease: Duration | None
    max_runtime: Duration | None
    local_retries: int
    tags: Sequence[str] | None
    mode: str | None
    begin: str
    name: str | None
    register: bool
    middleware: Sequence[Middleware]
    wait: Duration
    rest: Duration
    ack_linger: Duration
    auto_ack: bool
    drain: Duration
