"""Others that act in the middle of an operation, before calls that a test chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from chalicelib.ports.timers import Timers


class Interrupted:
    """Timers between whose calls others act: before the call of each number that is given, the next of them."""

    def __init__(self, timers: Timers, before: Sequence[int], others: Sequence[Callable[[], object]]) -> None:
        self._timers = timers
        self._before = list(before)
        self._others = list(others)
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._timers, name)

        def counted(*given: Any, **named: Any) -> Any:
            while self._others and self._before[0] <= self.calls:
                self._before.pop(0)
                self._others.pop(0)()
            self.calls += 1
            return call(*given, **named)

        return counted
