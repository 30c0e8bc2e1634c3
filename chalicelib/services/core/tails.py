"""The ends of logs, even if their last rows have expired.

TTL removes rows in no order, and the checkpoint may be old or missing. But a cursor never expires, and all offsets
below it were used. So if the last row is too old to be surely the last, all cursors on the log are read, and the
highest is stored as the checkpoint before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from ...domain.limits import TAIL_SURE
from ...domain.segment import ShardKey, Tail
from ...domain.topic import CursorKey, cursor_key
from ...ports.world import Clock
from ...store import Control, Cursors, Log

_SURE_MS = TAIL_SURE // timedelta(milliseconds=1)


class Tails:
    """Reads tails, for appends and for groups that begin at the end."""

    def __init__(self, *, log: Log, control: Control, cursors: Cursors, clock: Clock) -> None:
        self._log = log
        self._control = control
        self._cursors = cursors
        self._clock = clock

    def read(self, shard: ShardKey, created_ms: int = 0) -> Tail:
        """The tail, never below a cursor that stands on the shard. `created_ms` is its topic's: a log younger than the
        shortest retention has lost no row.

        Two reads; for an old log without new rows for a day, also the groups and a cursor of each. Raises Unreadable
        if one of these cannot be read: what is appended below it would be lost when its row is repaired."""
        tail = self._log.tail(shard)
        if max(tail.accepted_ms, created_ms) > self._clock.now_ms() - _SURE_MS:
            return tail
        cursors = (self._cursors.get(key, consistent=True) for key in self._cursor_keys(shard))
        given_out = max((each.next for each in cursors if each and not each.is_closed), default=0)
        if given_out - 1 <= tail.offset:
            return tail
        tail = replace(tail, offset=given_out - 1)
        self._log.checkpoint(shard, tail)
        return tail

    def _cursor_keys(self, shard: ShardKey) -> Iterator[CursorKey]:
        """The keys of all cursors on the shard: of all groups of its topic or, on a retry lane, of its one owner."""
        name, is_lane, group_name = shard.topic.partition("~")
        topic = self._control.topic(name)
        if topic is None:
            return
        owner = self._control.group(topic, group_name) if is_lane else None
        groups = self._control.groups(topic) if not is_lane else [owner] if owner else []
        for group in groups:
            for uid in self._control.cursor_owners(topic, group):
                key = cursor_key(topic, group, None if is_lane else shard.shard, uid)
                if key.shard == shard:
                    yield key
