"""What a list of messages is limited to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...domain.message import Draft
from ...domain.topic import Group


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list of messages is limited to. `status` is that of the named group, or without a group that over all
    groups.

    `from_ms` and `to_ms` bound the time that a list is sorted by: of a message in its log, when it came there; of a
    delayed one, when it is due; of a prepared one, when it was prepared. Each list applies these two where it reads:
    `Lookup` while it walks the log, `KeyLookup` in the index, `delayed_list` by the order of timers, `prepared_list`
    by `covers`. All others are applied by `passes`."""

    group: Group | None = None
    status: str | None = None
    tag: str | None = None
    shard: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    def passes(
        self, shard: int | None, draft: Draft, status_for: Callable[[Group | None], str | None]
    ) -> bool:
        """Is the message of this shard in the list, its time aside? `status_for` gives its status for a group, or over
        all groups (None); it returns None where the group is not owed it, and is called only if it matters."""
        if self.shard not in (None, shard) or self.tag not in (None, draft.tag):
            return False
        if self.group is None and self.status is None:
            return True
        status = status_for(self.group)
        return status is not None and self.status in (None, status)

    def covers(self, time_ms: int) -> bool:
        """Is this time within the bounds?"""
        return (self.from_ms or 0) <= time_ms and (self.to_ms is None or time_ms <= self.to_ms)
