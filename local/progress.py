"""Says how far a long command is, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

_QUIET_SECONDS, _EVERY_SECONDS = 2.0, 1.0
_MB = 1_000_000


class Progress:
    """Of a number of bytes. A command that ends soon says nothing."""

    def __init__(self, what: str, total: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._what, self._total, self._monotonic = what, total, monotonic
        self._done = 0
        self._next = monotonic() + _QUIET_SECONDS

    def add(self, count: int) -> None:
        """So many bytes more are done."""
        self._done += count
        if self._monotonic() >= self._next:
            self._next = self._monotonic() + _EVERY_SECONDS
            print(f"{self._what}: {self._done // _MB} of {self._total // _MB} MB", file=sys.stderr)
