"""The service's time, in the test's hand."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone

import msgspec

from .. import outgoing
from .._sync.transport import Transport
from ..calls import Call

__tracebackhide__ = True  # pytest shows the test's own line


class _Moved(msgspec.Struct):
    now: datetime
    finished: bool


class Clock:
    """Moves the time of the service, and of this process's clients (whose delays become times)."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def now(self) -> datetime:
        """The service's time."""
        return self._advance(0).now

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> datetime:
        """Let time pass, rounded up to whole seconds; its new value. What is due on the way happens in its order, and
        deliveries have ended when this returns. ValueError for a step back."""
        step = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if step < timedelta():
            raise ValueError(f"Time goes forward only, not by {step}.")
        target = self._advance(0).now + step
        while (seconds_left := math.ceil((target - (answer := self._advance(0)).now).total_seconds())) > 0:
            answer = self._advance(seconds_left)
        outgoing.ahead = answer.now - datetime.now(timezone.utc)
        return answer.now

    def settle(self) -> None:
        """Let happen what is due now."""
        self._advance(0)

    def _advance(self, seconds: int) -> _Moved:
        while True:
            body = {"advance_seconds": seconds}
            answer = self._transport.ask(Call("POST", "/v1/clock", body, repeatable=False), _Moved)
            if answer.finished or seconds:
                return answer
