"""The function `expire`: messages whose retention has ended become dead letters for every group that has not settled
them, and dead letters end that are older than their topic keeps them.

TTL deletes a row one day after its retention (limits.RETENTION_GRACE); this job runs four times in that day. With an
archive, it also keeps rows that the archive does not have yet (keeper.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import msgspec

from ..domain import strict_json
from ..domain.errors import Unavailable
from ..domain.ranges import normalise
from ..domain.segment import Segment, ShardKey
from ..domain.times import DAY_MS, DAY_SECONDS
from ..domain.topic import Group, Topic
from ..ports.world import Blobs, Clock
from ..store import Control, Log, Rounds
from .walk import HasTime, Report, Trouble, Walk, as_many_as_time_allows, from_another, owners

_JOB = "expire"

# Make dead letters of what a group (in a broadcast, a consumer) owes in a shard, or has in its retry lane (None),
# past its retention, as many as there is time for.
ExpireCursor = Callable[[Topic, Group, int | None, str, HasTime], int]
# By the log's partition key: the first offset that is not proved to be archived.
Ends = Mapping[str, int]


@dataclass(slots=True)
class ExpireReport(Report):
    """What one run did."""

    buried: int = 0
    ended: int = 0  # dead letters older than their topic keeps them
    kept: int = 0  # messages that the archive lacks, near their end


@dataclass(kw_only=True, frozen=True, slots=True)
class Expirer:
    """Visits all topics. A topic without old messages costs about one read unit per shard and group. `end_letters`
    deletes a group's old dead letters; `restore_marks` is shown each topic. Without a guard, rows go whether or not
    they are archived."""

    control: Control
    rounds: Rounds
    expire: ExpireCursor
    end_letters: Callable[[Topic, Group, HasTime], int]
    restore_marks: Callable[[Topic, HasTime], None]
    clock: Clock
    retention_guard: RetentionGuard | None

    def run_once(self, has_time: HasTime = lambda: True) -> ExpireReport:
        """Visit the topics, as many as there is time for; the next run goes on there. Within a topic, each run begins
        with another cursor."""
        report, is_whole = ExpireReport(), True
        proved_ends: Ends | None = None
        troubles: list[Trouble] = []
        try:
            proved_ends = self.retention_guard.proved_ends() if self.retention_guard else None
        except Unavailable as error:  # the bucket: the next run keeps rows, this one buries what is owed
            troubles.append(Trouble.of("", error))

        def visit(topic: Topic, has_time: HasTime, turn: int) -> None:
            nonlocal is_whole
            refusals: list[Unavailable] = []
            if self.retention_guard and proved_ends is not None:
                count, had_time = self.retention_guard.keep(topic, proved_ends, has_time, turn, refusals)
                report.kept += count
                is_whole = is_whole and had_time
            shards = (*topic.shard_numbers, None)
            cursors = list(product(owners(self.control, topic, refusals), shards))
            for (group, uid), shard in as_many_as_time_allows(cursors, turn, has_time):
                try:
                    report.buried += self.expire(topic, group, shard, uid, has_time)
                except Unavailable as error:
                    refusals.append(error)
            report.ended += self._end_letters(topic, has_time, turn, refusals)
            self.restore_marks(topic, has_time)
            for refusal in refusals:
                raise refusal

        walk = Walk(job=_JOB, control=self.control, rounds=self.rounds, clock=self.clock)
        report.stretch = walk.run(visit, has_time)
        report.stretch.troubles += troubles
        report.stretch.finished = report.stretch.finished and is_whole
        return report

    def _end_letters(self, topic: Topic, has_time: HasTime, turn: int, refusals: list[Unavailable]) -> int:
        if topic.dead_letter_days is None:
            return 0
        count = 0
        for group in from_another(self.control.groups(topic), turn):
            try:
                count += self.end_letters(topic, group, has_time)
            except Unavailable as error:
                refusals.append(error)
        return count


PROOF = "archive/proved.json"
_NEAR_S, _MORE_S = DAY_SECONDS, 2 * DAY_SECONDS  # the expirer comes by four times a day
_YOUNG_MS = DAY_MS  # no row lives shorter than that and the grace, and it is near a day before its end
_ROWS = 100
_LONGEST_MS = 60_000  # for one topic: the other half of its time is for what its groups are owed
_PARTS = 64  # of a shard: runs that have no time for all begin with different ones
_AFTER_ALL = 2**53  # behind every offset

_Part = tuple[ShardKey, int, int]  # a shard, and its offsets from one up to another


class _Proof(msgspec.Struct):
    """What is asked of the proof; it has more."""

    ranges: dict[str, list[tuple[int, int]]] = {}
    lost: dict[str, list[tuple[int, int]]] = {}


@dataclass(frozen=True, slots=True)
class RetentionGuard:
    """Looks at the rows of each shard that are not proved to be archived. If there are none near their end, that
    costs half a read unit per shard."""

    log: Log
    blobs: Blobs
    clock: Clock

    def proved_ends(self) -> Ends:
        """What is proved to be archived."""
        try:
            proof = strict_json.decoded(self.blobs.get(PROOF) or b"{}", _Proof)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return {}  # all rows stay until it can be read; what else the job does is done
        spans = {key: [*ranges, *proof.lost.get(key, ())] for key, ranges in proof.ranges.items()}
        return {key: _first_uncovered(each) for key, each in spans.items()}

    def keep(
        self, topic: Topic, proved_ends: Ends, has_time: HasTime, turn: int, refusals: list[Unavailable]
    ) -> tuple[int, bool]:
        """Keep the topic's rows that are near their end and not archived. Returns how many messages that are, and
        whether there was time for all; the next run (with another `turn`) begins elsewhere. A shard that the store
        refuses now is skipped, with the error in `refusals`."""
        now_ms = self.clock.now_ms()
        count, parts = 0, list(self._all_parts(topic, proved_ends, now_ms, refusals))
        ends: dict[ShardKey, int] = {}  # where the rest is young, or refused
        for shard, first, end in from_another(parts, turn):
            while first < min(end, ends.get(shard, end)):
                if not has_time() or self.clock.now_ms() - now_ms > _LONGEST_MS:
                    return count, False
                try:
                    rows = self.log.read(shard, first, _ROWS)
                    count += self._keep_ending(shard, rows, now_ms // 1000)
                except Unavailable as error:
                    refusals.append(error)
                    ends[shard] = 0
                    break
                if not rows or _is_young(rows[-1], now_ms):
                    ends[shard] = first
                    break
                first = rows[-1].end
        return count, True

    def _keep_ending(self, shard: ShardKey, rows: Sequence[Segment], now_s: int) -> int:
        ending_rows = [row for row in rows if row.expires_s <= now_s + _NEAR_S]
        return sum(row.count for row in ending_rows if self.log.keep(shard, row.first, now_s + _MORE_S))

    def _all_parts(
        self, topic: Topic, proved_ends: Ends, now_ms: int, refusals: list[Unavailable]
    ) -> Iterator[_Part]:
        for number in topic.shard_numbers:
            shard = topic.shard_key(number)
            try:
                yield from self._parts(shard, proved_ends.get(str(shard), 0), now_ms)
            except Unavailable as error:
                refusals.append(error)

    def _parts(self, shard: ShardKey, first: int, now_ms: int) -> Iterator[_Part]:
        """The offsets from `first` on in parts, the shard with each; none if all that stands there is young."""
        rows = self.log.read(shard, first, 1)
        if not rows or _is_young(rows[0], now_ms):
            return
        end = max(row.end for row in (*rows, *self.log.read_back(shard, _AFTER_ALL, 1)))
        size = max(_ROWS, -(-(end - first) // _PARTS))
        yield from ((shard, start, min(start + size, end)) for start in range(first, end, size))


def _is_young(row: Segment, now_ms: int) -> bool:
    """Is the row younger than the shortest life? Then it is far from its end, and so is all behind it."""
    return row.accepted_ms > now_ms - _YOUNG_MS


def _first_uncovered(spans: Iterable[tuple[int, int]]) -> int:
    """The first offset, from 0 on, that is in none of the spans (their last offset belongs to them)."""
    ranges = normalise((first, last + 1) for first, last in spans)
    return ranges[0][1] if ranges and ranges[0][0] == 0 else 0
