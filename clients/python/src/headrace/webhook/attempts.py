"""A handler, and how its attempts at messages end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from .. import _background, tracing
from .._tracebacks import shortened
from ..consume.handlers import Handler, bound, is_async
from ..consume.outcomes import Bury, Retry
from ..consume.settings import Middleware
from ..models import Message
from .events import Event

_LOG = logging.getLogger("headrace")
Outcome = BaseException | None
"""How an attempt ended: None is success."""


class TimeUp(Exception):
    """The attempt was given no time, or did not end in it."""


class Attempts:
    """Calls a handler for messages: an async one for all of them side by side, another for one after the other."""

    def __init__(self, handler: Handler, middleware: Sequence[Middleware]) -> None:
        self.is_async = is_async(handler)
        self._call: Callable[[Message], Any] = bound(handler, middleware)

    def all(self, events: Sequence[Event]) -> list[Outcome]:
        """How each ended. An async handler runs in the loop that all threads share."""
        if self.is_async:
            return _background.run(self.all_async(events))
        return [self.one(event) for event in events]

    def one(self, event: Event) -> Outcome:
        """How it ended, of a handler that is not async."""
        try:
            with tracing.handling(event.topic, event.group, event.id, event.attempt, event.headers):
                self._call(event)
        except Exception as error:
            return _noted(event, error)
        return None

    async def all_async(self, events: Sequence[Event], seconds: float | None = None) -> list[Outcome]:
        """How each ended, of an async handler: TimeUp for those that take longer than so many seconds."""
        outcomes = await asyncio.gather(
            *(self._in_time(event, seconds) for event in events), return_exceptions=True
        )
        for event, outcome in zip(events, outcomes, strict=True):
            if isinstance(outcome, SystemExit | KeyboardInterrupt):
                raise outcome
            if isinstance(outcome, asyncio.CancelledError):  # the handler's own: not this task's
                _noted(event, outcome)
        return outcomes

    async def _in_time(self, event: Event, seconds: float | None) -> Outcome:
        try:
            return await asyncio.wait_for(self._one_async(event), seconds)
        except asyncio.TimeoutError:
            return TimeUp()

    async def _one_async(self, event: Event) -> Outcome:
        try:
            with tracing.handling(event.topic, event.group, event.id, event.attempt, event.headers):
                await self._call(event)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # a SystemExit would end the loop, if it left this task
            return _noted(event, error)
        return None


def _noted(event: Event, error: BaseException) -> Outcome:
    facts = (event.topic, event.group, event.id, event.attempt, error)
    is_decision = isinstance(error, Bury | Retry)
    _LOG.warning("%s/%s %s attempt %d: %r", *facts, exc_info=None if is_decision else shortened(error))
    return error
