"""Reads the surveys of topics at a bounded cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...domain import cursor_transitions as transitions
from ...domain import ranges
from ...domain import status as words
from ...domain.cursor import Cursor, raise_floor
from ...domain.limits import MAX_OFFSET
from ...domain.meter import GroupReading, Reading
from ...domain.record import Unfinished
from ...domain.segment import Segment
from ...domain.topic import CursorKey, Group, Topic, cursor_key
from ...ports.world import Clock
from ..core.catalog import Catalog
from ..core.positions import first_since
from .survey import Extent, GroupSurvey, Progress, TopicSurvey, meters_of

if TYPE_CHECKING:
    from ...store.cursors import Cursors
    from ...store.log import Log
    from ...store.records import Records


MOST_SHARDS = 8
MOST_FAILURES = 50
_MOST_LETTERS = 10


class Surveyor:
    """Reads only."""

    def __init__(
        self, *, catalog: Catalog, log: Log, cursors: Cursors, records: Records, clock: Clock
    ) -> None:
        self._catalog = catalog
        self._log = log
        self._cursors = cursors
        self._records = records
        self._clock = clock

    def survey(
        self,
        topic: Topic,
        *,
        whole: bool = False,
        first_shard: int = 0,
        only: Group | None = None,
        ages: bool = True,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> TopicSurvey:
        """The topic now: MOST_SHARDS of its shards, from `first_shard` on. `whole`: also each shard's oldest message,
        one read more for each. `only`: one group; else all, while `may_go_on()`. `ages`: also the oldest waiting
        message, one read more for each shard with a backlog."""
        shards = range(first_shard, min(topic.shards, first_shard + MOST_SHARDS))
        extents = tuple(self._extent(topic, shard, whole=whole) for shard in shards)
        groups = [only] if only else self._catalog.groups(topic)
        oldest: dict[tuple[int, int], int | None] | None = {} if ages else None
        surveys: list[GroupSurvey] = []
        for group in groups:
            if surveys and not may_go_on():
                break
            surveys.append(self._group(topic, group, extents, oldest))
        groups_left = len(groups) - len(surveys)
        return TopicSurvey(topic, self._clock.now_ms(), extents, tuple(surveys), groups_left)

    def offset_at(self, topic: Topic, extent: Extent, at_ms: int, may_go_on: Callable[[], bool]) -> int:
        """The first offset of a shard that was accepted at or after a time, by binary search. If `may_go_on()` ends
        it, the last offset known to be earlier."""
        key = topic.shard_key(extent.shard)
        return first_since(
            lambda offset: self._log.read_back(key, offset, 1),
            at_ms,
            extent.first,
            extent.tail + 1,
            may_go_on,
        )

    def _extent(self, topic: Topic, shard: int, *, whole: bool = False) -> Extent:
        key = topic.shard_key(shard)
        last = self._log.read_back(key, MAX_OFFSET, 1)
        if not last:
            tail = self._log.tail(key).offset
            return Extent(shard, tail + 1, tail)
        segments = last if not whole or last[0].first == 0 else [*self._log.read(key, 0, 1), *last]
        accepted_ranges = tuple((range(each.first, each.end), each.accepted_ms) for each in segments)
        return Extent(shard, segments[0].first, last[0].end - 1, accepted_ranges)

    def reading(self, topic: Topic, only: Group | None = None) -> Reading:
        """The topic's meters now, of all shards, and of one group or all: half a read unit for each shard, and half for
        each group's cursors."""
        extents = [self._extent(topic, shard) for shard in range(topic.shards)]
        readings: dict[str, GroupReading] = {}
        for group in [only] if only else self._catalog.groups(topic):
            shards, lanes = self._cursors_of(topic, group, extents, None)
            readings[group.name] = meters_of(shards, lanes, extents)
        return Reading(self._clock.now_ms(), sum(each.tail + 1 for each in extents), readings)

    def _cursors_of(
        self,
        topic: Topic,
        group: Group,
        extents: Sequence[Extent],
        oldest: dict[tuple[int, int], int | None] | None,
    ) -> tuple[list[Progress], list[Progress]]:
        """A group's cursors on these shards, and on its retry lanes."""
        shards: list[Progress] = []
        lanes: list[Progress] = []
        for uid in self._catalog.cursor_owners(topic, group):
            cursors = self._cursors.of_owner(group.uid, uid)
            for extent in extents:
                key = cursor_key(topic, group, extent.shard, uid)
                shards.append(self._progress(topic, key, cursors, extent, oldest))
            lane = cursor_key(topic, group, None, uid)
            lanes.append(
                Progress(key=lane, shard=None, cursor=self._now(cursors.get(str(lane.shard))), backlog=0)
            )
        return shards, lanes

    def _group(
        self,
        topic: Topic,
        group: Group,
        extents: Sequence[Extent],
        oldest: dict[tuple[int, int], int | None] | None,
    ) -> GroupSurvey:
        shards, lanes = self._cursors_of(topic, group, extents, oldest)
        failures, are_all = self._records.first_unfinished(topic.uid, group.uid, MOST_FAILURES)
        dead_count = self._records.count_dead(topic.uid, group.uid, _MOST_LETTERS)
        return GroupSurvey(
            group,
            tuple(shards),
            tuple(lanes),
            dead_count,
            _retrying_count(shards, failures),
            dead_count >= _MOST_LETTERS,
            not are_all,
            {(each.shard, each.offset, each.consumer_uid): each.status for each in failures},
        )

    def _progress(
        self,
        topic: Topic,
        key: CursorKey,
        cursors: Mapping[str, Cursor],
        extent: Extent,
        oldest: dict[tuple[int, int], int | None] | None,
    ) -> Progress:
        cursor = raise_floor(self._now(cursors.get(str(key.shard))))
        tail = max(extent.tail, cursor.next - 1)  # the two were not read at the same moment
        backlog = max(0, tail + 1 - cursor.floor - ranges.total(cursor.settled))
        oldest_ms = None
        if backlog and oldest is not None:
            location = extent.shard, cursor.floor
            if location not in oldest:
                oldest[location] = extent.accepted_ms(cursor.floor) or self._accepted_ms(topic, *location)
            oldest_ms = oldest[location]
        return Progress(key=key, shard=extent.shard, cursor=cursor, backlog=backlog, oldest_ms=oldest_ms)

    def _now(self, row: Cursor | None) -> Cursor:
        return transitions.lapse(row or Cursor(), self._clock.now_ms())

    def _accepted_ms(self, topic: Topic, shard: int, offset: int) -> int | None:
        rows = self._log.read_back(topic.shard_key(shard), offset, 1)
        return rows[0].accepted_ms if rows and _holds(rows[0], offset) else None


def _retrying_count(shards: Sequence[Progress], failures: Sequence[Unfinished]) -> int:
    """How many deliveries wait for another attempt. Those that wait in their shard's cursor need not have a record, and
    those that have one may be under way: of them the cursor tells, if it was looked at. Of a broadcast's consumers who
    have left nothing is counted."""
    looked_at = {progress.shard for progress in shards}
    uids = {progress.key.consumer_uid for progress in shards}
    waiting_count = sum(
        span.count for progress in shards for span in progress.cursor.waiting if span.attempt > 1
    )
    return waiting_count + sum(
        each.status == words.Status.RETRYING
        and (each.timed or each.shard not in looked_at)
        and each.consumer_uid in uids
        for each in failures
    )


def _holds(row: Segment, offset: int) -> bool:
    return row.first <= offset < row.end
