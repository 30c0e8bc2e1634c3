"""When the runs of this process come back to shards that have nothing to claim yet.

Called by `run.py`.
"""

from __future__ import annotations

from ...domain.segment import ShardKey
from ...ports.world import Clock
from ..core.expiring_cache import TtlCache

_MOST_AHEAD_MS = 60_000  # how much the clock of a mover may be ahead of ours
_STEP_MS = 500


class Comebacks:
    """The wake-ups that this process has stored, by shard. A mover whose clock is ahead takes one too early: the run
    that it starts finds nothing, and the same wake-up, stored again, would be taken at once, again and again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stored: TtlCache[ShardKey, tuple[int, int]] = TtlCache(clock, None)

    def wake_ms(self, shard: ShardKey, due_ms: int, *, was_in_vain: bool) -> int:
        """When to wake a run for what is due: mostly then. `was_in_vain`: this run was woken for nothing in particular,
        and found nothing. If this process has stored the same wake-up before, it was perhaps taken too early, and the
        next one is as much later; if it was not, it is still stored, and one more does no harm."""
        early_ms = due_ms - self._clock.now_ms()
        stored_for_ms, later_ms = self._stored.get(shard) or (0, 0)
        if stored_for_ms != due_ms:
            later_ms = 0
        elif was_in_vain and early_ms <= _MOST_AHEAD_MS:
            later_ms = max(early_ms, later_ms + _STEP_MS)
        self._stored.put(shard, (due_ms, later_ms))
        return due_ms + later_ms
