"""The leases of other runs of the mover at fragments that this run wants, and when it looks at these again.

A run that is alive has seen or will see what is due, and renews its lease long before the end: the first look asks
whether it has. If it died, or was ended, no run comes by before the next minute's: the second look is when the
lease ends.
"""

from __future__ import annotations

LEASE_MS = 15_000
"""How long a lease at a fragment lasts."""
RENEW_MS = 5_000
"""After so long its holder renews it."""
_RENEWED_MS = RENEW_MS + 2_000  # so long after a renewal, a run that is alive has made the next one


class ForeignLeases:
    """By fragment: the end of another run's lease, as this run first met it, and the time of the next look. Threads
    of one run share it."""

    def __init__(self) -> None:
        self._ends_ms: dict[int, int] = {}
        self._looks_ms: dict[int, int] = {}

    def __bool__(self) -> bool:
        """Is a look to come?"""
        return bool(self._looks_ms)

    def meet(self, fragment: int, until_ms: int, now_ms: int) -> None:
        """Another run holds the fragment until `until_ms`. No more looks, if it has renewed its lease since it was
        first met."""
        if self._ends_ms.setdefault(fragment, until_ms) != until_ms:
            self.stop(fragment)
            return
        renewal_ms = until_ms - LEASE_MS + _RENEWED_MS
        self._looks_ms[fragment] = renewal_ms if now_ms < renewal_ms else until_ms

    def forget(self, fragment: int) -> None:
        """The fragment is ours now."""
        self._ends_ms.pop(fragment, None)
        self.stop(fragment)

    def stop(self, fragment: int) -> None:
        """No more looks at this fragment."""
        self._looks_ms.pop(fragment, None)

    def take_due(self, now_ms: int) -> set[int]:
        """The fragments to look at now; these looks are the caller's."""
        due = {fragment for fragment, look_ms in self._looks_ms.copy().items() if look_ms <= now_ms}
        for fragment in due:
            self.stop(fragment)
        return due

    def next_look_ms(self) -> int | None:
        """When the next look is due; None: never."""
        return min(self._looks_ms.copy().values(), default=None)
