"""Ports that count, refuse, answer shortly or let others act: what happens to a process in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from chalicelib.adapters import Adapters
from chalicelib.domain.errors import unavailable
from chalicelib.domain.segment import Rows, Segment, ShardKey
from chalicelib.store.log import Log
from chalicelib.store.timers import Timers


class Troubled:
    """A port whose calls may be refused before they are done, or have their answers lost."""

    def __init__(self, of: Any, predicate: Callable[..., bool], *, after: bool = False) -> None:
        self._of = of
        self._refuses = predicate
        self._after = after
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._refuses(name, *args):
                return getattr(self._of, name)(*args, **kwargs)
            self.refused += 1
            if self._after:
                getattr(self._of, name)(*args, **kwargs)
            raise unavailable("throttled")

        return call


class Counted:
    """A port that counts its calls."""

    def __init__(self, port: object) -> None:
        self._port = port
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self._port, name)


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


class _ShortAnswers:
    def __init__(self, log: Log, most: int) -> None:
        self._log = log
        self._most = most

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def read(self, shard: ShardKey, first: int, rows: int, *, consistent: bool = False) -> Rows:
        return self._log.read(shard, first, min(rows, self._most), consistent=consistent)

    def read_back(self, shard: ShardKey, last: int, rows: int, *, consistent: bool = False) -> list[Segment]:
        return self._log.read_back(shard, last, min(rows, self._most), consistent=consistent)


def with_short_answers(adapters: Adapters, most: int = 2) -> Adapters:
    """The ports of a process that gets so many rows of a log at once."""
    return replace(adapters, log=cast(Log, _ShortAnswers(adapters.log, most)))


class SlowMinute:
    """Lambda's: a minute, of which each question takes so long."""

    def __init__(self, each_ms: int) -> None:
        self._left_ms = 60_000
        self._each_ms = each_ms

    def get_remaining_time_in_millis(self) -> int:
        self._left_ms -= self._each_ms
        return max(0, self._left_ms)
