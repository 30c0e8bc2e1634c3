"""Faults that last: for seconds or minutes a partition is throttled, transactions meet others, a service is away.

Unlike a call that fails once, weather outlasts every retry: it shows which code depends on one answer.
"""

from __future__ import annotations

from typing import Any

from chalicelib.domain.segment import ShardKey
from chalicelib.domain.topic import CursorKey

SKIES = ("throttled", "conflicts", "blobs", "invoker")
_SHORTEST_MS, _LONGEST_MS = 500, 90_000
_REFUSED = 0.9  # of the calls to a partition that is throttled
_CONFLICT = 0.5

Partition = tuple[str, str]


class Weather:
    """Troubles that last, one after the other, of the kinds that a world has."""

    def __init__(self, world: Any, skies: tuple[str, ...], every_s: float) -> None:
        self._world = world
        self._skies = skies
        self._every_s = every_s
        self._used: dict[Partition, None] = {}
        self._until: dict[Partition, float] = {}  # by what is away: until when

    def changes(self) -> None:
        """An actor: now and then something is away for a while."""
        rng = self._world.random
        while True:
            self._world.pause(rng.expovariate(1 / self._every_s))
            if not self._skies:
                return
            sky = rng.choice(self._skies)
            place = rng.choice(list(self._used)) if sky == "throttled" and self._used else (sky, "")
            self.away(place, rng.uniform(_SHORTEST_MS, _LONGEST_MS))

    def away(self, place: Partition, ms: float) -> None:
        """From now on it is away, for so long."""
        self._until[place] = self._world.scheduler.now + ms

    def clears(self) -> None:
        """From now on all is well."""
        self._skies = ()
        self._until.clear()

    def refuses(self, method: str, args: tuple[Any, ...], kwargs: Any) -> str:
        """The trouble that a call meets, or none."""
        if not self._skies:
            return ""
        port = method.partition(".")[0]
        place = partition_of(port, args)
        self._used[place] = None
        draw = self._world.random.random
        if self._is_away((port, "")):
            return "away"
        if self._is_away(place) and draw() < _REFUSED:
            return "throttled"
        if self._is_away(("conflicts", "")) and _is_transaction(method, args, kwargs) and draw() < _CONFLICT:
            return "conflict"
        return ""

    def _is_away(self, place: Partition) -> bool:
        return bool(self._until.get(place, 0) > self._world.scheduler.now)


def partition_of(port: str, args: tuple[Any, ...]) -> Partition:
    """Where DynamoDB keeps what a call is about."""
    first = args[0] if args else ""
    if isinstance(first, list | tuple) and first:
        first = first[0]
    match first:
        case ShardKey():
            return port, str(first)
        case CursorKey():
            return port, first.group_uid
        case int() | str():
            return port, str(first)
    for name in ("fragment", "uid", "topic_uid", "id"):
        if (value := getattr(first, name, None)) is not None:
            return port, str(value)
    return port, "-"


def _is_transaction(method: str, args: tuple[Any, ...], kwargs: Any) -> bool:
    """Does the call write several rows at once?"""
    if method in ("log.put", "cursors.write"):
        beside = (*args[3 if method == "log.put" else 2 :], *(v for v in kwargs.values()))
        return any(isinstance(each, list | tuple) and each for each in beside)
    return method in ("log.amend", "timers.amend", "transactions.change", "transactions.prepare")
