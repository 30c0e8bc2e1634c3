"""How Lambda divides an account's concurrency, in virtual time: which invocations start, and which are throttled.

A function with a reservation has just that much, independent of the others; those without share what is left.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping

At = Callable[[float], None]


class Timeline:
    """Actions at times, in order."""

    def __init__(self) -> None:
        self._deeds: list[tuple[float, int, At]] = []
        self._count = 0

    def at(self, at_seconds: float, deed: At) -> None:
        """Schedule an action, which is called with the time."""
        self._count += 1
        heapq.heappush(self._deeds, (at_seconds, self._count, deed))

    def run(self, until: float) -> None:
        while self._deeds and self._deeds[0][0] <= until:
            now, _, deed = heapq.heappop(self._deeds)
            deed(now)


class Account:
    """An account's concurrency in one region."""

    def __init__(self, timeline: Timeline, limit: int, reservations: Mapping[str, int]) -> None:
        self._timeline = timeline
        self._reserved = reservations
        self._shared = limit - sum(reservations.values())
        self._busy: Counter[str] = Counter()
        self.throttles: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    def start(self, function: str, now: float, seconds: float, then: At | None = None) -> bool:
        """Run a function for so long, then do something; False where it is throttled."""
        pool = function if function in self._reserved else ""
        if self._busy[pool] >= self._reserved.get(function, self._shared):
            self.throttles[function] += 1
            return False
        self._busy[pool] += 1
        self.most[pool] = max(self.most[pool], self._busy[pool])

        def end(at_seconds: float) -> None:
            self._busy[pool] -= 1
            if then:
                then(at_seconds)

        self._timeline.at(now + seconds, end)
        return True
