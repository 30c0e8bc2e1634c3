"""Counts a group's deliveries on one log by state. Each offset is counted once, so that the counts add up.

A delivery that left its shard's cursor for the retry lane or the dead letters is known by its record. After a seek a
message may also have an older delivery (docs/state_machine.md): only the one in the cursor is counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace

from .cursor import Cursor, OffsetState, offset_state
from .status import Status


@dataclass(frozen=True, slots=True)
class Account:
    """How many deliveries are in which state. `skipped` offsets are not owed: from before the group's beginning,
    excluded by its filter, cancelled, holes in the log, or dropped by a purge."""

    new: int = 0
    running: int = 0
    retrying: int = 0
    success: int = 0
    dead: int = 0
    skipped: int = 0

    @property
    def total(self) -> int:
        """All deliveries, in any state."""
        return sum(astuple(self))

    def __add__(self, other: Account) -> Account:
        return Account(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


def account(cursor: Cursor, tail: int, elsewhere: Iterable[tuple[int, str]]) -> Account:
    """The account of one cursor, after `lapse`. `elsewhere` are offsets of deliveries that left the cursor, each with
    RETRYING, DEAD or SKIPPED; `tail` is the last offset of its log."""
    left = [status for offset, status in elsewhere if offset_state(cursor, offset)[0] is OffsetState.SETTLED]
    retrying_count, dead_count = left.count(Status.RETRYING), left.count(Status.DEAD)
    purged_count = left.count(Status.SKIPPED)
    untried_count = sum(span.count for span in cursor.waiting if span.attempt == 1)
    tried_count = sum(span.count for span in cursor.waiting) - untried_count
    unsettled_count = cursor.in_flight + untried_count + tried_count
    settled_count = cursor.next - cursor.begin - unsettled_count
    skipped_count = min(cursor.skipped + purged_count, max(0, settled_count - retrying_count - dead_count))
    return Account(
        new=max(0, tail + 1 - cursor.next) + untried_count,
        running=cursor.in_flight,
        retrying=tried_count + retrying_count,
        success=max(0, settled_count - retrying_count - dead_count - skipped_count),
        dead=dead_count,
        skipped=cursor.begin + skipped_count,
    )


def with_running_in_lanes(sums: Account, in_lanes: int) -> Account:
    """The account, with `in_lanes` deliveries counted as RUNNING instead of RETRYING: they are leased in a retry
    lane."""
    running = min(in_lanes, sums.retrying)
    return replace(sums, running=sums.running + running, retrying=sums.retrying - running)
