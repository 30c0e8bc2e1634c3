"""Can this process reach the tables? Anyone may ask, so one answer is reused for some seconds."""

from __future__ import annotations

from collections.abc import Callable

from ...domain.errors import unavailable
from ...ports.world import Clock
from .expiring_cache import TtlCache

_ANSWER_MS = 5_000


class Readiness:
    """Looks whether the tables can be read."""

    def __init__(self, unreadable: Callable[[], str | None], clock: Clock) -> None:
        """`unreadable` returns the name of a table that cannot be read, or None."""
        self._unreadable = unreadable
        self._answers: TtlCache[str, str] = TtlCache(clock, _ANSWER_MS)

    def check(self) -> None:
        """Raises Unavailable with the table's name, if one could not be read now or some seconds ago."""
        table = self._answers.get("")
        if table is None:
            table = self._answers.put("", self._unreadable() or "")
        if table:
            raise unavailable(f"The table {table!r} cannot be read.")
