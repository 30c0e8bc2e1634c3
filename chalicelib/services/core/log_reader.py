"""Reading a shard without a gap: finds segments, closes holes left by crashed writers, skips expired rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from ...domain import ranges
from ...domain.limits import HOLE_AGE, LATE_WRITER, MAX_ANSWER_BYTES, MAX_HOLE
from ...domain.message import Message
from ...domain.ranges import Ranges
from ...domain.segment import Allocation, Segment, ShardKey
from ...domain.times import CLOCKS_DIFFER_MS, HOUR_MS
from ...domain.topic import Group
from ...ports.world import Clock
from ...store import Log
from .expiring_cache import BoundedCache, TtlCache
from .segment_cache import SegmentCache

_FIRST_ROWS = 8
_MOST_ROWS = 256
_FOREVER = 1 << 62
_AHEAD = 3
_RECENT_MS = 1_000
_HOLE_MS = round(HOLE_AGE.total_seconds() * 1000)
_CLOCKS_DIFFER = timedelta(milliseconds=CLOCKS_DIFFER_MS)
_SKEW_MS = HOUR_MS  # how much the clocks of two processes may differ, generously


@dataclass(frozen=True, slots=True)
class Slot:
    """One offset and its message; None if there is none (any more), for `count` offsets."""

    offset: int
    message: Message | None
    segment_first: int
    count: int = 1

    @property
    def end(self) -> int:
        """The offset after the last one."""
        return self.offset + self.count


@dataclass(frozen=True, slots=True)
class Freshness:
    """Which cached segments are acceptable: those read since `since`; for the offsets in `amended`, those read
    consistently since `now`. `since` and `now` are not times but numbers of the cache's reads."""

    since: int = 0
    amended: Ranges = ()
    now: int = 0


ANY_COPY = Freshness()


class LogReader:
    """Reads segments, caches them, and returns the messages of offsets."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._segments = SegmentCache()
        # where the last claim stopped reading, and whether the log ended there
        self._ended: TtlCache[ShardKey, tuple[int, bool]] = TtlCache(clock, None)
        # when the holes just found may be closed
        self._young: TtlCache[ShardKey, int] = TtlCache(clock, _HOLE_MS)
        self._last: TtlCache[str, int] = TtlCache(clock, None)  # the last row, as given in hints
        self._began_ms = self._recent_ms = clock.now_ms()
        self._recent_moment = 0
        self._met: BoundedCache[str, int] = BoundedCache()

    def trust(self, group: Group, consumer_uid: str = "", amended_ranges: Ranges = ()) -> Freshness:
        """Which cached segments are acceptable for a group (in a broadcast, a consumer) whose cursor has the notes
        `amended_ranges`.

        A message that was edited before the group existed is in no note of the group's cursor. So segments that were
        cached before this process first met the group are not used, unless the group is older than everything in the
        cache.
        """
        now = self._segments.moment()
        if not consumer_uid and group.created_ms + _SKEW_MS < self._began_ms:
            return Freshness(0, amended_ranges, now)
        return Freshness(self._met.of(consumer_uid or group.uid, lambda: now), amended_ranges, now)

    def recent(self) -> Freshness:
        """For the console and lists: segments read within the last second."""
        now_ms = self._clock.now_ms()
        if not 0 <= now_ms - self._recent_ms <= _RECENT_MS:
            self._recent_ms, self._recent_moment = now_ms, self._segments.moment()
        return Freshness(self._recent_moment)

    def now(self) -> Freshness:
        """For what must not be a moment old: segments that were read consistently, from now on."""
        now = self._segments.moment()
        return Freshness(now, ((0, _FOREVER),), now)

    def keep(self, shard: ShardKey, segment: Segment) -> None:
        """Keep a segment as it was just written."""
        self._segments.keep(shard, segment, 0, sure=False)

    def expect_rows(self, last: Mapping[str, int]) -> None:
        """Note that the log has these rows (offsets by the log's partition key): a read that ends before them is
        stale."""
        for shard, offset in last.items():
            self._last.put(shard, max(offset, self._last.get(shard) or 0))

    def _last_row(self, shard: ShardKey) -> int:
        last = self._last.get(str(shard))
        return -1 if last is None else last

    def slots_from(
        self, shard: ShardKey, first: int, segment_at: int, most: int, trust: Freshness = ANY_COPY
    ) -> list[Slot]:
        """Up to `most` slots from `first` on, without a gap; fewer at the end of the log, before a young hole, or if an
        answer cannot hold more bodies.

        `segment_at` is where the segment that holds `first` begins, as far as the caller knows.
        """
        slots: list[Slot] = []
        at = first
        size = 0
        end: int | None = None  # of the log, as just read
        is_consistent = bool(trust.amended) and trust.amended[-1][1] > first
        while len(slots) < most and size <= MAX_ANSWER_BYTES:
            if at == end and at > self._last_row(shard):
                break
            hint = segment_at if at == first and segment_at <= first else at
            rows = self._rows_for(shard, first, most - len(slots))
            segment = self._copy(shard, at, trust)
            if segment is None:
                segment, end = self._load(shard, at, hint, rows, is_consistent)
            if segment is None:
                end = at
                break
            chunk = list(_slots(shard, segment, at, most - len(slots)))
            slots += chunk
            size += sum(slot.message.draft.size for slot in chunk if slot.message)
            at = slots[-1].end
        self._ended.put(shard, (at, at == end))
        return slots

    def is_end(self, shard: ShardKey, offset: int) -> bool:
        """Did the last claim's reading of this shard end at this offset because nothing was there?"""
        return self._ended.get(shard) == (offset, True)

    def fetch(self, shard: ShardKey, offsets: Iterable[int], trust: Freshness = ANY_COPY) -> dict[int, Slot]:
        """The slots of single offsets that were written some time ago."""
        slots: dict[int, Slot] = {}
        for offset in offsets:
            is_amended = ranges.contains(trust.amended, offset)
            segment = (
                self._copy(shard, offset, trust, offset + 1)
                or (None if is_amended else self._row_at(shard, offset))
                or self._row_at(shard, offset, sure=True)  # only such a read may show that it is gone
            )
            slots[offset] = next(_slots(shard, segment, offset, 1)) if segment else Slot(offset, None, offset)
        return slots

    def last_row(self, shard: ShardKey, offset: int, trust: Freshness = ANY_COPY) -> Segment | None:
        """The row that holds this offset, or else the last one before it; None where no row is left of those. One read
        at most, which may be a moment old."""
        if copy := self._copy(shard, offset, trust, offset + 1):
            return copy
        return next(iter(self._log.read_back(shard, offset, 1)), None)

    def closes_ms(self, shard: ShardKey) -> int | None:
        """When the young hole that stopped the last reading of this shard may be closed."""
        return self._young.get(shard)

    def segment_at(self, shard: ShardKey, slots: list[Slot], next_offset: int) -> int:
        """Where the segment that holds offset `next_offset` begins, from the slots just read."""
        last = next((s for s in reversed(slots) if s.end <= next_offset), None)
        if last is None:
            return next_offset
        segment = self._segments.segment_holding(shard, last.offset)
        return last.segment_first if segment and segment.segment.end > next_offset else next_offset

    def _copy(self, shard: ShardKey, at: int, trust: Freshness, end: int | None = None) -> Segment | None:
        """The cached segment that holds `at`, if it is acceptable from there to its end (or to `end`)."""
        entry = self._segments.segment_holding(shard, at)
        if entry is None or entry.read < trust.since:
            return None
        is_amended = ranges.touch(trust.amended, at, end or entry.segment.end)
        return None if is_amended and entry.sure < trust.now else entry.segment

    def _load(
        self, shard: ShardKey, at: int, hint: int, most_rows: int, is_consistent: bool
    ) -> tuple[Segment | None, int | None]:
        """The segment that holds `at`, and where the log ends, if the read shows that."""
        now = self._segments.moment()
        read_rows = self._log.read(shard, hint, most_rows, consistent=is_consistent)
        rows = [self._segments.keep(shard, row, now, sure=is_consistent) for row in read_rows]
        holding = next((row for row in rows if row.first <= at < row.end), None)
        if not rows and not is_consistent and at <= self._last_row(shard):
            return self._load(shard, at, at, most_rows, is_consistent=True)
        if holding or not rows:
            return holding, rows[-1].end if rows and read_rows.is_end else None
        if row := self._row_at(shard, at, sure=is_consistent):
            return row, None
        if rows[0].first <= at:  # the hint was too old and the rows end before `at`
            return self._load(shard, at, at, most_rows, is_consistent)
        return self._gap(shard, at), None

    def _rows_for(self, shard: ShardKey, first: int, count: int) -> int:
        """An estimate of how many rows hold `count` messages, from the cached segments of this shard; more if no other
        process has claimed since, as the next claims will then need them."""
        average = self._segments.average(shard)
        if average is None:
            return min(count, _FIRST_ROWS)
        ended = self._ended.get(shard)
        ahead = _AHEAD if ended and ended[0] == first else 1
        return max(1, min(_MOST_ROWS, round(count * ahead / average + 0.5)))

    def _row_at(self, shard: ShardKey, offset: int, *, sure: bool = False) -> Segment | None:
        now = self._segments.moment()
        rows = self._log.read_back(shard, offset, 1, consistent=sure)
        if rows and rows[0].end > offset:
            return self._segments.keep(shard, rows[0], now, sure=sure)
        return None

    def _gap(self, shard: ShardKey, at: int) -> Segment | None:
        """The segment for offsets that a read has missed: a late row, a closed hole, or expired rows.

        That read may have been stale. Only consistent reads may show that an offset is missing, in this order, so that
        every row that was there before `next_segment` is seen.
        """
        now = self._segments.moment()
        rows = self._log.read(shard, at, 1, consistent=True)
        before = self._log.read_back(shard, at, 1, consistent=True)
        if before and before[0].end > at:
            return self._segments.keep(shard, before[0], now, sure=True)
        if not rows:
            return None
        next_segment = rows[0]
        age = timedelta(milliseconds=self._clock.now_ms() - next_segment.accepted_ms)
        if next_segment.allocation is Allocation.RESERVED:
            if -_CLOCKS_DIFFER <= age < HOLE_AGE:  # the age of a row written by a wrong clock is unknown
                self._young.put(shard, next_segment.accepted_ms + _HOLE_MS)
                return None
            if before and next_segment.first - before[0].end <= MAX_HOLE:
                return self._close(shard, before[0].end, at, next_segment)
            # Perhaps a hole behind expired rows.
            if age < LATE_WRITER and next_segment.first - at <= MAX_HOLE:
                return self._close(shard, at, at, next_segment)
        size = next_segment.first - at
        if next_segment.allocation is Allocation.RESERVED and age < LATE_WRITER:
            size -= MAX_HOLE
        return Segment(at, size, "expired", next_segment.accepted_ms, next_segment.expires_s)

    def _close(self, shard: ShardKey, start: int, at: int, segment: Segment) -> Segment:
        """Close a hole from its start, where the late writer would put its segment, up to `at`."""
        while True:
            now = self._segments.moment()
            tombstone = self._log.put_tombstone(shard, start, segment.accepted_ms, segment.expires_s)
            self._segments.keep(shard, tombstone, now, sure=True)
            if tombstone.end > at:
                return tombstone
            start = tombstone.end


def _slots(shard: ShardKey, segment: Segment, at: int, most: int) -> Iterator[Slot]:
    if not segment.drafts:
        yield Slot(at, None, segment.first, segment.end - at)
        return
    for offset in range(at, min(segment.end, at + most)):
        yield Slot(offset, segment.message(shard.shard, offset), segment.first)
