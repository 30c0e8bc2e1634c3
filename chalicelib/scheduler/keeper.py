"""Rows of the log go only after the archive has proved that it has them.

The archive's job leaves `archive/proved.json` behind: by shard, which offsets it has, and which nobody has any more. A
row that is neither, and near its end, is given two days more. That is a write, so the stream carries the row once more
and the journal has it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from ..domain.ranges import normalise
from ..domain.topic import Topic
from ..ports.log import Log
from ..ports.world import Blobs, Clock
from .walk import HasTime

PROOF = "archive/proved.json"
_NEAR_S, _MORE_S = 86_400, 2 * 86_400  # the expirer comes by four times a day
_YOUNG_MS = 86_400_000  # no row lives shorter than that and the grace, and it is near a day before its end
_ROWS = 100
_LONGEST_MS = 60_000  # for one topic: the other half of its time is for what its groups are owed


class RetentionGuard:
    """Looks at each shard behind what is proved: half a read unit where that is all. Rows may have been written under
    other settings than those around them, so each that is old enough is looked at."""

    def __init__(self, log: Log, blobs: Blobs, clock: Clock) -> None:
        self._log = log
        self._blobs = blobs
        self._clock = clock

    def proved(self) -> Mapping[str, int]:
        """By shard, as the log's partition key: the first offset that is not proved."""
        proof = json.loads(self._blobs.get(PROOF) or b"{}")
        ranges, gaps = proof.get("ranges", {}), proof.get("lost", {})
        return {key: _following([*ranges.get(key, ()), *gaps.get(key, ())]) for key in ranges}

    def keep(self, topic: Topic, proved: Mapping[str, int], has_time: HasTime) -> tuple[int, bool]:
        """Keep the topic's rows that are not proved and near their end; how many messages that are, and whether there
        was time for all. What there was none for, the next run finds behind what this one has kept."""
        now_ms = self._clock.now_ms()
        now_s, count = now_ms // 1000, 0
        for number in range(topic.shards):
            shard = topic.shard_key(number)
            first = proved.get(str(shard), 0)
            while True:
                if not has_time() or self._clock.now_ms() - now_ms > _LONGEST_MS:
                    return count, False
                rows = self._log.read(shard, first, _ROWS)
                near = [row for row in rows if row.expires_s <= now_s + _NEAR_S]
                count += sum(row.count for row in near if self._log.keep(shard, row.first, now_s + _MORE_S))
                # What is younger than the shortest life is far from its end, and so is all behind it.
                if not rows or rows[-1].accepted_ms > now_ms - _YOUNG_MS:
                    break
                first = rows[-1].end
        return count, True


def _following(spans: Iterable[list[int]]) -> int:
    """The first offset, from 0 on, that is in none of the spans (their last offset belongs to them)."""
    ranges = normalise((first, last + 1) for first, last in spans)
    return ranges[0][1] if ranges and ranges[0][0] == 0 else 0
