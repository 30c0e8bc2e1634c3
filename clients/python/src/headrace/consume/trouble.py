"""Waiting for the end of temporary errors: pauses that grow, and one log line for each change."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable

from ..errors import HeadraceError, NotFound, Unavailable

_LOG = logging.getLogger("headrace")
_FIRST_SECONDS = 0.5
_LONGEST_SECONDS = 30.0
_LONGEST_ASKED_SECONDS = 3600.0  # by `Retry-After`
_MOST_DOUBLINGS = 10


class Trouble:
    """The temporary errors of the consumer of a `place`, a topic and group. `wait` waits so many seconds, or until the
    consumer is stopped."""

    def __init__(
        self, place: str, wait: Callable[[float], object], chance: Callable[[], float] = random.random
    ) -> None:
        self._place = place
        self._wait = wait
        self._chance = chance
        self._kind: str | None = None
        self._tries = 0
        self._since = 0.0

    def wait_out(self, error: HeadraceError) -> None:
        """A try has failed: wait before the next."""
        kind = "UNAVAILABLE" if isinstance(error, Unavailable) else error.code
        if self._kind is None:
            self._tries, self._since = 0, time.monotonic()
        if kind != self._kind:
            _LOG.warning("%s waits for the end of this: %s", self._place, error)
        self._kind = kind
        step = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0 ** min(self._tries, _MOST_DOUBLINGS))
        self._tries += 1
        asked = min(error.retry_after or 0.0, _LONGEST_ASKED_SECONDS)
        self._wait(max(step * (0.5 + self._chance() / 2), asked))

    def is_over(self) -> None:
        """A try has succeeded."""
        if self._kind is not None:
            _LOG.warning("%s is at work again after %.0f s", self._place, time.monotonic() - self._since)
        self._kind = None


def may_pass(error: HeadraceError) -> bool:
    """Is it a temporary error for a consumer that has been at work? What is missing may be created again."""
    return error.retryable or isinstance(error, NotFound)
