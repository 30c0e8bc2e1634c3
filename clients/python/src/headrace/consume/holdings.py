"""The messages that a consumer has in its hands, and how long they are its own."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from ..models import Message


@dataclass
class Holding:
    """A message in hand. Times are monotonic seconds; `began_at` is when its handler began."""

    message: Message
    renewed: float
    began_at: float | None = None


class Holdings:
    """What was received and is not settled yet. Safe for threads."""

    def __init__(self, lease_seconds: float, max_runtime: float | None) -> None:
        self._lease = lease_seconds
        self._max_runtime = max_runtime
        self._held: dict[str, Holding] = {}
        self._changed = threading.Condition()
        self._open = 0

    def take(self, message: Message) -> None:
        """It was received just now."""
        with self._changed:
            self._held[message.receipt] = Holding(message, time.monotonic())
            self._open += 1

    def begin(self, message: Message) -> bool:
        """Its handler begins. False: its lease may be over, and another consumer may have it."""
        with self._changed:
            holding = self._held.get(message.receipt)
            if holding is None or time.monotonic() > holding.renewed + self._lease:
                return False
            holding.began_at = time.monotonic()
            return True

    def done(self, message: Message) -> None:
        """Its handler is through: there is room for another."""
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def drop(self, message: Message) -> None:
        """It is settled, or no longer ours."""
        with self._changed:
            self._held.pop(message.receipt, None)

    def wait_for_room(self, most: int, timeout: float) -> int:
        """How many more may be received, if `most` are at a time; waits for the first place."""
        with self._changed:
            self._changed.wait_for(lambda: self._open < most, timeout)
            return max(0, most - self._open)

    def wait_until_idle(self) -> None:
        """Until every handler is through."""
        with self._changed:
            self._changed.wait_for(lambda: self._open == 0)

    def ageing(self) -> list[Message]:
        """Those whose lease is half over and that we want to keep."""
        now = time.monotonic()
        with self._changed:
            return [
                holding.message
                for holding in self._held.values()
                if now > holding.renewed + self._lease / 2 and not self._too_long(holding, now)
            ]

    def renew(self, message: Message, since: float) -> None:
        """Its lease was extended by a call made at `since`."""
        with self._changed:
            if holding := self._held.get(message.receipt):
                holding.renewed = since

    def _too_long(self, holding: Holding, now: float) -> bool:
        return bool(self._max_runtime and holding.began_at and now > holding.began_at + self._max_runtime)
