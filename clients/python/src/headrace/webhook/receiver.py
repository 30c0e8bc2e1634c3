"""What a subscriber answers, without a socket: adapters carry requests here and answers back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from .. import typed
from .._tracebacks import shortened
from ..calls import encode
from ..consume.handlers import is_async
from ..consume.outcomes import Bury, Retry
from ..consume.settings import Middleware
from ..durations import Duration, seconds
from .attempts import Attempts, Outcome
from .events import TEST, Event, events_of
from .signing import TOLERANCE_SECONDS, WHAT_A_SECRET_IS, SignatureError, key_of, verify

_LOG = logging.getLogger("headrace")
_STATES = ("commit", "rollback", "unknown")
C = TypeVar("C", bound=Callable[..., Any])


@dataclass(frozen=True)
class Answer:
    """What to answer a request with."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Headrace asks what became of a prepared transaction."""

    transaction_id: str
    topic: str
    message_id: str = ""
    keys: list[str] = []
    checks: int = 0
    prepared_at: datetime | None = None


class Webhook:
    """A subscriber: verifies, agrees to be called, hands messages to a handler, and says what became of them.

        webhook = Webhook("whsec_…")

        @webhook.handler
        def mail(message): ...

    What the handler returns is success. What it raises lets the message come again by its ladder; `Retry(in_seconds)`
    asks for a longer wait, `Bury("why")` makes it a dead letter. The handler is called as a consumer's is: with the
    message, a typed body, or both. A test event is answered with success, and no handler sees it. `secrets` may be
    several: the old and the new one while they rotate, and the `check_secret` of a topic. `origins` are the host names
    that may call; `tolerance` is how far a signature's time may be from `clock` (in seconds, or as "5m").
    """

    def __init__(
        self,
        secrets: str | Sequence[str],
        *,
        origins: Sequence[str] = ("*",),
        tolerance: Duration = TOLERANCE_SECONDS,
        middleware: Sequence[Middleware] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._secrets = [secrets] if isinstance(secrets, str) else list(secrets)
        if not self._secrets:
            raise ValueError(f"Give at least one secret. {WHAT_A_SECRET_IS}")
        for secret in self._secrets:
            key_of(secret)
        self._tolerance = seconds(tolerance)
        self._origins = tuple(origin.lower() for origin in origins)
        self._middleware = middleware
        self._clock = clock
        self._attempts: Attempts | None = None
        self._check: Callable[[Check], str] | None = None

    def handler(self, handler: C) -> C:
        """Make a function the handler of what is pushed."""
        self._attempts = Attempts(handler, self._middleware)
        return handler

    def check(self, handler: C) -> C:
        """Make a function the one that decides about transactions: it takes a `Check`, and returns "commit", "rollback"
        or "unknown". TypeError for an async function, which cannot be awaited here."""
        if is_async(handler):
            raise TypeError("A check is written with `def`: it is called, and its answer is not awaited.")
        self._check = handler
        return handler

    def answer(self, method: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Answer one request. An async handler runs in a loop that all threads share, for the messages of a batch side
        by side. Never raises."""
        read = self._read(method, headers, body)
        return read if isinstance(read, Answer) else _answer_of(read[0].all(read[1]))

    async def answer_async(self, method: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """The same in this event loop; a handler that is not async runs in a thread."""
        if self._attempts is None or not self._attempts.is_async:
            return await asyncio.to_thread(self.answer, method, headers, body)
        read = self._read(method, headers, body)
        return read if isinstance(read, Answer) else _answer_of(await read[0].all_async(read[1]))

    def _read(
        self, method: str, headers: Mapping[str, str], body: bytes
    ) -> Answer | tuple[Attempts, list[Event]]:
        """The messages of a request and what handles them, or the answer where there are none."""
        headers = {name.lower(): value for name, value in headers.items()}
        if method == "OPTIONS":
            return self._answer_handshake(headers.get("webhook-request-origin", ""))
        if method != "POST":
            return Answer(405, {**_TEXT, "Allow": "POST, OPTIONS"})
        try:
            verify(self._secrets, headers, body, self._clock(), self._tolerance)
            if "ce-id" not in headers and (check := _check_of(body)) is not None:
                return self._answer_check(check)
            if headers.get("ce-type") == TEST:
                return Answer(204)
            events = events_of(headers, body)
        except SignatureError as error:
            return Answer(401, _TEXT, str(error).encode())
        except (ValueError, KeyError) as error:
            return Answer(400, _TEXT, str(error).encode())
        if self._attempts is None:
            return Answer(404, _TEXT, b"There is no handler here.")
        return self._attempts, events

    def _answer_handshake(self, origin: str) -> Answer:
        """The handshake."""
        if not {"*", origin.lower()}.intersection(self._origins):
            return Answer(403, _TEXT, b"This origin may not call.")
        return Answer(204, {"WebHook-Allowed-Origin": origin or "*"})

    def _answer_check(self, check: Check) -> Answer:
        if self._check is None:
            return Answer(404, _TEXT, b"There is no check of transactions here.")
        try:
            state = self._check(check)
        except Exception as error:
            _LOG.error("transaction %s: the check failed", check.transaction_id, exc_info=shortened(error))
            state = "unknown"
        if state not in _STATES:
            _LOG.error("transaction %s: a check answers one of %s", check.transaction_id, ", ".join(_STATES))
            state = "unknown"
        return Answer(200, {"Content-Type": "application/json"}, encode({"state": state}))


_TEXT = {"Content-Type": "text/plain; charset=utf-8"}
MAX_BODY_BYTES = 10 * 1024 * 1024
"""No request of Headrace is larger."""
TOO_LARGE = Answer(413, _TEXT, b"No request of Headrace is larger than 10 MB.")
NO_LENGTH = Answer(411, _TEXT, b"This server does not read a chunked body: send a Content-Length.")


def _check_of(body: bytes) -> Check | None:
    try:
        return typed.decoded(body, Check)
    except msgspec.DecodeError:
        return None


def _answer_of(outcomes: Sequence[Outcome]) -> Answer:
    """One answer for all messages of a request. Where they ended differently it is 500: the service then sends them
    again in smaller requests, until each has an answer of its own."""
    failures = [error for error in outcomes if error is not None]
    burials = [error for error in failures if isinstance(error, Bury)]
    retries = [error for error in failures if isinstance(error, Retry)]
    if not failures:
        return Answer(204)
    if len(burials) == len(outcomes):
        return Answer(489, _TEXT, burials[0].reason.encode())
    if len(retries) == len(outcomes):
        waits = [retry.delay_seconds for retry in retries if retry.delay_seconds is not None]
        after = {"Retry-After": str(max(waits))} if waits else {}
        return Answer(503, {**_TEXT, **after}, retries[0].reason.encode())
    return Answer(500, _TEXT, type(failures[0]).__name__.encode())
