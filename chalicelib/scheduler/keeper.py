"""Rows of the log are deleted only after the archive has them.

The archive's job writes `archive/proved.json`: by shard, which offsets are in the archive and which are lost. A row
near its end that is in neither list gets two more days. That is a write, so the row also comes into the journal once
more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from ..domain.ranges import normalise
from ..domain.segment import Segment, ShardKey
from ..domain.times import DAY_MS, DAY_SECONDS
from ..domain.topic import Topic
from ..ports.log import Log
from ..ports.world import Blobs, Clock
from .walk import HasTime, from_another

PROOF = "archive/proved.json"
_NEAR_S, _MORE_S = DAY_SECONDS, 2 * DAY_SECONDS  # the expirer comes by four times a day
_YOUNG_MS = DAY_MS  # no row lives shorter than that and the grace, and it is near a day before its end
_ROWS = 100
_LONGEST_MS = 60_000  # for one topic: the other half of its time is for what its groups are owed
_PARTS = 64  # of a shard: runs that have no time for all begin with different ones
_AFTER_ALL = 2**53  # behind every offset


class _Proof(msgspec.Struct):
    """What is asked of the proof; it has more."""

    ranges: dict[str, list[tuple[int, int]]] = {}
    lost: dict[str, list[tuple[int, int]]] = {}


class RetentionGuard:
    """Looks at the rows of each shard that are not proved to be archived. If there are none near their end, that
    costs half a read unit per shard."""

    def __init__(self, log: Log, blobs: Blobs, clock: Clock) -> None:
        self._log = log
        self._blobs = blobs
        self._clock = clock

    def proved_ends(self) -> Mapping[str, int]:
        """By the log's partition key: the first offset that is not proved to be archived."""
        try:
            proof = msgspec.json.decode(self._blobs.get(PROOF) or b"{}", type=_Proof)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return {}  # all rows stay until it can be read; what else the job does is done
        spans = {key: [*ranges, *proof.lost.get(key, ())] for key, ranges in proof.ranges.items()}
        return {key: _first_uncovered(each) for key, each in spans.items()}

    def keep(
        self, topic: Topic, proved_ends: Mapping[str, int], has_time: HasTime, turn: int
    ) -> tuple[int, bool]:
        """Keep the topic's rows that are near their end and not archived. Returns how many messages that are, and
        whether there was time for all; the next run (with another `turn`) begins elsewhere."""
        now_ms = self._clock.now_ms()
        now_s, count = now_ms // 1000, 0
        shards = [topic.shard_key(number) for number in range(topic.shards)]
        parts = [
            part for shard in shards for part in self._parts(shard, proved_ends.get(str(shard), 0), now_ms)
        ]
        young_from: dict[ShardKey, int] = {}
        for shard, first, end in from_another(parts, turn):
            while first < min(end, young_from.get(shard, end)):
                if not has_time() or self._clock.now_ms() - now_ms > _LONGEST_MS:
                    return count, False
                rows = self._log.read(shard, first, _ROWS)
                ending_rows = [row for row in rows if row.expires_s <= now_s + _NEAR_S]
                count += sum(
                    row.count for row in ending_rows if self._log.keep(shard, row.first, now_s + _MORE_S)
                )
                if not rows or _is_young(rows[-1], now_ms):
                    young_from[shard] = first
                    break
                first = rows[-1].end
        return count, True

    def _parts(self, shard: ShardKey, first: int, now_ms: int) -> Iterator[tuple[ShardKey, int, int]]:
        """The offsets from `first` on in parts, the shard with each; none if all that stands there is young."""
        rows = self._log.read(shard, first, 1)
        if not rows or _is_young(rows[0], now_ms):
            return
        end = max(row.end for row in (*rows, *self._log.read_back(shard, _AFTER_ALL, 1)))
        size = max(_ROWS, -(-(end - first) // _PARTS))
        yield from ((shard, start, min(start + size, end)) for start in range(first, end, size))


def _is_young(row: Segment, now_ms: int) -> bool:
    """Is the row younger than the shortest life? Then it is far from its end, and so is all behind it."""
    return row.accepted_ms > now_ms - _YOUNG_MS


def _first_uncovered(spans: Iterable[tuple[int, int]]) -> int:
    """The first offset, from 0 on, that is in none of the spans (their last offset belongs to them)."""
    ranges = normalise((first, last + 1) for first, last in spans)
    return ranges[0][1] if ranges and ranges[0][0] == 0 else 0
