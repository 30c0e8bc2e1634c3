"""Reading a shard without a gap: finds segments, closes holes that dead writers left, skips expired rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from ..domain.limits import HOLE_AGE, LATE_WRITER, MAX_ANSWER_BYTES, MAX_HOLE
from ..domain.message import Message
from ..domain.segment import Segment, ShardKey, Way
from ..ports import Clock, Log
from .segments import Segments

_FIRST_ROWS = 8
_MOST_ROWS = 256
_AHEAD = 3


@dataclass(frozen=True, slots=True)
class Slot:
    """One offset and its message; None where none is (left) there, which may hold for `count` offsets."""

    offset: int
    message: Message | None
    segment_first: int
    count: int = 1

    @property
    def end(self) -> int:
        return self.offset + self.count


class Reader:
    """Reads segments, keeps them, and answers offsets and messages."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._segments = Segments()
        self._ended: dict[ShardKey, int] = {}  # where the last claim's reading ended

    def fresh(self, shard: ShardKey, first: int, segment_at: int, most: int) -> list[Slot]:
        """Up to `most` slots from `first` on, without a gap; short where the log ends, where a hole is young,
        or where the bodies are more than an answer can hold.

        `segment_at` is where the segment that holds `first` begins, as far as the caller knows.
        """
        slots: list[Slot] = []
        at = first
        size = 0
        while len(slots) < most and size <= MAX_ANSWER_BYTES:
            hint = segment_at if at == first and segment_at <= first else at
            rows = self._rows_for(shard, first, most - len(slots))
            segment = self._segments.holding(shard, at) or self._load(shard, at, hint, rows)
            if segment is None:
                break
            found = list(_slots(shard, segment, at, most - len(slots)))
            slots += found
            size += sum(slot.message.draft.size for slot in found if slot.message)
            at = slots[-1].end
        self._ended[shard] = at
        return slots

    def fetch(self, shard: ShardKey, offsets: Iterable[int]) -> dict[int, Slot]:
        """The slots of single offsets that were written some time ago."""
        found: dict[int, Slot] = {}
        for offset in offsets:
            segment = (
                self._segments.holding(shard, offset)
                or self._holding(shard, offset)
                or self._holding(shard, offset, consistent=True)  # only such a read may call a message gone
            )
            if segment is None:
                found[offset] = Slot(offset, None, offset)
            else:
                found[offset] = next(_slots(shard, segment, offset, 1))
        return found

    def segment_at(self, shard: ShardKey, slots: list[Slot], following: int) -> int:
        """Where the segment that holds offset `following` begins, as the slots just read tell."""
        last = next((s for s in reversed(slots) if s.end <= following), None)
        if last is None:
            return following
        kept = self._segments.holding(shard, last.offset)
        return last.segment_first if kept and kept.end > following else following

    def _load(self, shard: ShardKey, at: int, hint: int, most_rows: int) -> Segment | None:
        rows = self._log.read(shard, hint, most_rows)
        for row in rows:
            self._segments.keep(shard, row)
        holding = self._segments.holding(shard, at)
        if holding or not rows:
            return holding
        if rows[0].first <= at:  # the hint was too old and the rows end before `at`
            return self._holding(shard, at) or self._load(shard, at, at, most_rows)
        return self._holding(shard, at) or self._gap(shard, at)

    def _rows_for(self, shard: ShardKey, first: int, want: int) -> int:
        """How many rows hold `want` messages, judged by the segments seen of this shard; more of them where
        nobody has claimed since we did, for then the next claims will need them."""
        average = self._segments.average(shard)
        if average is None:
            return min(want, _FIRST_ROWS)
        ahead = _AHEAD if self._ended.get(shard) == first else 1
        return max(1, min(_MOST_ROWS, round(want * ahead / average + 0.5)))

    def _holding(self, shard: ShardKey, offset: int, *, consistent: bool = False) -> Segment | None:
        rows = self._log.read_back(shard, offset, 1, consistent=consistent)
        if rows and rows[0].end > offset:
            return self._segments.keep(shard, rows[0])
        return None

    def _gap(self, shard: ShardKey, at: int) -> Segment | None:
        """What stands for offsets that a read has missed: a late row, a closed hole, or rows that expired.

        That read may have been stale: only consistent ones may call an offset missing, and in this order,
        so that whatever was there before `following` came is seen.
        """
        rows = self._log.read(shard, at, 1, consistent=True)
        before = self._log.read_back(shard, at, 1, consistent=True)
        if before and before[0].end > at:
            return self._segments.keep(shard, before[0])
        if not rows:
            return None
        following = rows[0]
        age = timedelta(milliseconds=self._clock.now_ms() - following.accepted_ms)
        if following.way is Way.RESERVED:
            if age < HOLE_AGE:
                return None
            if before and following.first - before[0].end <= MAX_HOLE:
                return self._close(shard, before[0].end, at, following)
            if age < LATE_WRITER and following.first - at <= MAX_HOLE:  # perhaps a hole behind expired rows
                return self._close(shard, at, at, following)
        missing = following.first - at
        if following.way is Way.RESERVED and age < LATE_WRITER:
            missing -= MAX_HOLE
        return Segment(at, missing, "expired", following.accepted_ms, following.expires_s)

    def _close(self, shard: ShardKey, start: int, at: int, following: Segment) -> Segment:
        """Close a hole from its start, where the late writer would put its segment, up to `at`."""
        while True:
            closed = self._log.put_tombstone(shard, start, following.accepted_ms, following.expires_s)
            self._segments.keep(shard, closed)
            if closed.end > at:
                return closed
            start = closed.end


def _slots(shard: ShardKey, segment: Segment, at: int, most: int) -> Iterator[Slot]:
    if segment.is_tombstone:
        yield Slot(at, None, segment.first, segment.end - at)
        return
    for offset in range(at, min(segment.end, at + most)):
        yield Slot(offset, segment.message(shard.shard, offset), segment.first)
