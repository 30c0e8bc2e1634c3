"""Can this process work at all? Asked by anybody, as often as they like: so one answer does for some seconds."""

from __future__ import annotations

from collections.abc import Callable

from ...domain.errors import unavailable
from ...ports.world import Clock
from .expiring_cache import TtlCache

_ANSWER_MS = 5_000


class Readiness:
    """Looks whether the tables can be read."""

    def __init__(self, unreadable: Callable[[], str | None], clock: Clock) -> None:
        """`unreadable` names a table that cannot be read, None where all can."""
        self._unreadable = unreadable
        self._answers: TtlCache[str, str] = TtlCache(clock, _ANSWER_MS)

    def check(self) -> None:
        """Raises Unavailable, with the table's name, where one could not be read some seconds ago or now."""
        table = self._answers.get("")
        if table is None:
            table = self._answers.put("", self._unreadable() or "")
        if table:
            raise unavailable(f"The table {table!r} cannot be read.")
