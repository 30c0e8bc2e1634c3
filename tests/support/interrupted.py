"""Others that act in the middle of an operation, before calls that a test chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from chalicelib.store.timers import Timers


class Interrupted:
    """Timers between whose calls others act: before the call of each number that is given, the next of them."""

    def __init__(self, timers: Timers, before: Sequence[int], others: Sequence[Callable[[], object]]) -> None:
        self._timers = timers
        self._before = list(before)
        self._others = list(others)
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._timers, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            while self._others and self._before[0] <= self.calls:
                self._before.pop(0)
                self._others.pop(0)()
            self.calls += 1
            return call(*args, **kwargs)

        return counted


class Preceded:
    """A port before whose first call of a name others act."""

    def __init__(self, of: Any, name: str, other: Callable[[], object]) -> None:
        self._of = of
        self._name = name
        self._others = [other]

    def __getattr__(self, name: str) -> Any:
        if name == self._name and self._others:
            self._others.pop()()
        return getattr(self._of, name)
