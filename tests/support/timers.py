"""Timers of all topics lie together: what a test needs to have them to itself."""

from __future__ import annotations

from chalicelib.domain.limits import FRAGMENTS
from chalicelib.store.timers import Timers

FOREVER = 10**15 - 2


def drop_all(timers: Timers) -> None:
    """Leave nothing in any fragment. A look is bounded in bytes: several are taken."""
    for fragment in range(FRAGMENTS):
        while rows := timers.first_due(fragment, FOREVER, 1_000).timers:
            timers.drop(rows)
