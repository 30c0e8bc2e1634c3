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

from .. import tracing, typed
from ..calls import encode
from ..consume.handlers import bound, is_async
from ..consume.outcomes import Bury, Retry
from ..consume.settings import Middleware
from ..models import Message
from .events import TEST, Event, events_of
from .signing import SignatureError, key_of, verify

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
    that may call.
    """

    def __init__(
        self,
        secrets: str | Sequence[str],
        *,
        origins: Sequence[str] = ("*",),
        middleware: Sequence[Middleware] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._secrets = [secrets] if isinstance(secrets, str) else list(secrets)
        for secret in self._secrets:
            key_of(secret)
        self._origins = tuple(origin.lower() for origin in origins)
        self._middleware = middleware
        self._clock = clock
        self._call: Callable[[Message], Any] | None = None
        self._async = False
        self._check: Callable[[Check], str] | None = None

    def handler(self, handler: C) -> C:
        """Make a function the handler of what is pushed."""
        self._call, self._async = bound(handler, self._middleware), is_async(handler)
        return handler

    def check(self, handler: C) -> C:
        """Make a function the one that decides about transactions: it takes a `Check`, and returns "commit", "rollback"
        or "unknown". TypeError for an async function, which cannot be awaited here."""
        if is_async(handler):
            raise TypeError("A check is written with `def`: it is called, and its answer is not awaited.")
        self._check = handler
        return handler

    def answer(self, method: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Answer one request. Never raises."""
        events = self._read(method, headers, body)
        if isinstance(events, Answer):
            return events
        errors: list[Exception | None] = []
        for event in events:
            with _Attempt(event) as attempt:
                result = self._handle(event)
                if self._async:
                    asyncio.run(result)
            errors.append(attempt.error)
        return _answer_of(errors)

    async def answer_async(self, method: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """The same in an event loop; a handler that is not async runs in a thread."""
        if not self._async:
            return await asyncio.to_thread(self.answer, method, headers, body)
        events = self._read(method, headers, body)
        if isinstance(events, Answer):
            return events
        errors: list[Exception | None] = []
        for event in events:
            with _Attempt(event) as attempt:
                await self._handle(event)
            errors.append(attempt.error)
        return _answer_of(errors)

    def _handle(self, event: Event) -> Any:
        assert self._call is not None
        return self._call(event)

    def _read(self, method: str, headers: Mapping[str, str], body: bytes) -> Answer | list[Event]:
        """The messages of a request, or the answer where there are none."""
        headers = {name.lower(): value for name, value in headers.items()}
        if method == "OPTIONS":
            return self._answer_handshake(headers.get("webhook-request-origin", ""))
        if method != "POST":
            return Answer(405, {**_TEXT, "Allow": "POST, OPTIONS"})
        try:
            verify(self._secrets, headers, body, self._clock())
            if "ce-id" not in headers and (check := _check_of(body)) is not None:
                return self._answer_check(check)
            if headers.get("ce-type") == TEST:
                return Answer(204)
            events = events_of(headers, body)
        except SignatureError as error:
            return Answer(401, _TEXT, str(error).encode())
        except (ValueError, KeyError) as error:
            return Answer(400, _TEXT, str(error).encode())
        return events if self._call else Answer(404, _TEXT, b"There is no handler here.")

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
        except Exception:
            _LOG.exception("transaction %s: the check failed", check.transaction_id)
            state = "unknown"
        if state not in _STATES:
            _LOG.error("transaction %s: a check answers one of %s", check.transaction_id, ", ".join(_STATES))
            state = "unknown"
        return Answer(200, {"Content-Type": "application/json"}, encode({"state": state}))


_TEXT = {"Content-Type": "text/plain; charset=utf-8"}


def _check_of(body: bytes) -> Check | None:
    try:
        return typed.decoded(body, Check)
    except msgspec.DecodeError:
        return None


class _Attempt:
    """Around one handler: its span, its log line, and how it ended."""

    def __init__(self, event: Event) -> None:
        self.error: Exception | None = None
        self._event = event
        self._span = tracing.handling(event.topic, event.group, event.id, event.attempt, event.headers)

    def __enter__(self) -> _Attempt:
        self._span.__enter__()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        try:
            self._span.__exit__(kind, error, trace)
        except BaseException as exit_error:
            if exit_error is not error:
                raise
        if error is not None and not isinstance(error, Exception):
            return False
        if isinstance(error, Exception):
            self.error = error
            is_decision = isinstance(error, Bury | Retry)
            facts = (self._event.topic, self._event.group, self._event.id, self._event.attempt, error)
            _LOG.warning("%s/%s %s attempt %d: %r", *facts, exc_info=None if is_decision else error)
        return True


def _answer_of(errors: Sequence[Exception | None]) -> Answer:
    """One answer for all messages of a request. Where they ended differently it is 500: the service then sends them
    again in smaller requests, until each has an answer of its own."""
    failures = [error for error in errors if error is not None]
    burials = [error for error in failures if isinstance(error, Bury)]
    retries = [error for error in failures if isinstance(error, Retry)]
    if not failures:
        return Answer(204)
    if len(burials) == len(errors):
        return Answer(489, _TEXT, burials[0].reason.encode())
    if len(retries) == len(errors):
        waits = [retry.delay_seconds for retry in retries if retry.delay_seconds is not None]
        after = {"Retry-After": str(max(waits))} if waits else {}
        return Answer(503, {**_TEXT, **after}, retries[0].reason.encode())
    return Answer(500, _TEXT, type(failures[0]).__name__.encode())
