"""The context of a function whose time passes as it is asked about it."""

from __future__ import annotations


class SlowMinute:
    """Lambda's: a minute, of which each question takes so long."""

    def __init__(self, each_ms: int) -> None:
        self._left_ms = 60_000
        self._each_ms = each_ms

    def get_remaining_time_in_millis(self) -> int:
        self._left_ms -= self._each_ms
        return max(0, self._left_ms)
