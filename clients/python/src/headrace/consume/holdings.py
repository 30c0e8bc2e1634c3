"""The messages that a consumer has in its hands: how long they are its own, and how many more it wants."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..models import Message

_WORK_SECONDS = 1.0  # messages that wait for a handler are about so much work
_MOST_WAITING = 500
_LONGEST_WAIT_SECONDS = 10.0
_SHARE_OF_LATEST = 0.1  # in the mean time of handlers


@dataclass
class Holding:
    """A message in hand. Times are monotonic seconds; `began_at` is when its handler began."""

    message: Message
    taken_at: float
    renewed: float
    began_at: float | None = None


class Holdings:
    """What was received and is not settled yet. Safe for threads.

    `prefetch` messages may wait for a handler. None: as many as the handlers begin in a second; a message that has
    waited for ten seconds is `overdue`."""

    def __init__(
        self,
        lease_seconds: float,
        max_runtime: float | None,
        concurrency: int = 1,
        prefetch: int | None = None,
    ) -> None:
        self._lease = lease_seconds
        self._max_runtime = max_runtime
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._held: dict[str, Holding] = {}
        self._open: dict[str, Holding] = {}  # their handlers are not through
        self._mean_seconds: float | None = None  # of a handler
        self._is_closed = False
        self._changed = threading.Condition()

    def take(self, message: Message) -> bool:
        """It was received just now. False: too late, see `close`."""
        now = time.monotonic()
        with self._changed:
            if not self._is_closed:
                self._held[message.receipt] = self._open[message.receipt] = Holding(message, now, now)
            return not self._is_closed

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
            holding = self._open.pop(message.receipt)
            if holding.began_at is not None:
                latest = time.monotonic() - holding.began_at
                mean = latest if self._mean_seconds is None else self._mean_seconds
                self._mean_seconds = mean + (latest - mean) * _SHARE_OF_LATEST
            self._changed.notify_all()

    def drop(self, message: Message) -> None:
        """It is settled, or no longer ours."""
        with self._changed:
            self._held.pop(message.receipt, None)

    def wait_for_room(self, timeout: float) -> int:
        """How many more may be received. Waits until handlers are free, or half of those that may wait have begun:
        fewer and larger calls."""
        with self._changed:
            self._changed.wait_for(self._has_room, timeout)
            return self._room() if self._has_room() else 0

    def _room(self) -> int:
        return self._concurrency + self.waiting_limit() - len(self._open)

    def _has_room(self) -> bool:
        return self._room() > self.waiting_limit() // 2

    def waiting_limit(self) -> int:
        """How many messages may wait for a handler. None, by default, until the first handler is through."""
        if self._prefetch is not None:
            return self._prefetch
        if self._mean_seconds is None:
            return 0
        work = self._concurrency * min(_WORK_SECONDS, self._lease / 4)
        return (
            _MOST_WAITING if self._mean_seconds * _MOST_WAITING < work else round(work / self._mean_seconds)
        )

    def wait_until_idle(self, timeout: float | None = None) -> bool:
        """Until every handler is through. False: the time was over before."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._open, timeout)

    def overdue(self) -> list[Message]:
        """Those that have waited for a handler for too long; they are no longer ours."""
        if self._prefetch is not None:
            return []
        since = time.monotonic() - _LONGEST_WAIT_SECONDS
        return self._let_go(lambda each: each.began_at is None and each.taken_at < since)

    def close(self) -> list[Message]:
        """Take no more. Those whose handlers have not begun; they are no longer ours."""
        with self._changed:
            self._is_closed = True
            return self._let_go(lambda each: each.began_at is None)

    def running(self) -> list[Message]:
        """Those whose handlers run; they are no longer ours."""
        return self._let_go(lambda each: each.began_at is not None)

    def _let_go(self, is_chosen: Callable[[Holding], bool]) -> list[Message]:
        with self._changed:
            chosen = [each for each in self._open.values() if is_chosen(each)]
            return [each.message for each in chosen if self._held.pop(each.message.receipt, None)]

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
