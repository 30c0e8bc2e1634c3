"""Where logs end, whatever expiry has left of them.

TTL removes rows in no order, and the checkpoint behind them may be old or missing. But a cursor never expires: offsets
below one were given out. So where the last row is not young enough to vouch for the end, all cursors on the log are
asked, and what they know is written down before anybody acts on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from ...domain.limits import TAIL_SURE
from ...domain.segment import ShardKey, Tail
from ...domain.topic import CursorKey, cursor_key
from ...modes import POLICIES
from ...ports.control import Control
from ...ports.cursors import Cursors
from ...ports.log import Log
from ...ports.world import Clock

_SURE_MS = TAIL_SURE // timedelta(milliseconds=1)


class Tails:
    """Reads tails for those who append, or begin at the end."""

    def __init__(self, log: Log, control: Control, cursors: Cursors, clock: Clock) -> None:
        self._log = log
        self._control = control
        self._cursors = cursors
        self._clock = clock

    def read(self, shard: ShardKey, created_ms: int = 0) -> Tail:
        """The tail, never below a cursor that stands on the shard. `created_ms` is its topic's: a log that is younger
        than any row's life has lost none.

        Two reads; where the log is old and has been quiet for a day also the groups and a cursor of each."""
        tail = self._log.tail(shard)
        if max(tail.accepted_ms, created_ms) > self._clock.now_ms() - _SURE_MS:
            return tail
        cursors = (self._cursors.get(key, consistent=True) for key in self._cursor_keys(shard))
        given_out = max((c.next for c in cursors if c and not c.is_closed), default=0)
        if given_out - 1 <= tail.offset:
            return tail
        tail = replace(tail, offset=given_out - 1)
        self._log.checkpoint(shard, tail)
        return tail

    def _cursor_keys(self, shard: ShardKey) -> Iterator[CursorKey]:
        """Whose cursors may stand on the shard: all groups' of its topic or, on a retry lane, its one owner's."""
        name, is_lane, group_name = shard.topic.partition("~")
        topic = self._control.topic(name)
        if topic is None:
            return
        owner = self._control.group(topic, group_name) if is_lane else None
        groups = self._control.groups(topic) if not is_lane else [owner] if owner else []
        for group in groups:
            uids = [""]
            if POLICIES[group.mode].per_consumer:
                uids = [consumer.uid for consumer in self._control.consumers(topic, group)]
            for uid in uids:
                key = cursor_key(topic, group, None if is_lane else shard.shard, uid)
                if key.shard == shard:
                    yield key
