"""A summary of a topic at a bounded cost, for pages that are refreshed every few seconds.

`Lookup.stats` counts exactly, at any cost. A survey reads the ends of each shard, each group's cursors in one query,
and the first few failures ("at least" so many). Reads are not consistent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

from ...domain import cursor_transitions as transitions
from ...domain import ranges
from ...domain import status as words
from ...domain.cursor import Cursor, Position, fold, position
from ...domain.limits import MAX_OFFSET
from ...domain.meter import MINUTES, GroupReading, Reading
from ...domain.segment import Segment
from ...domain.topic import Caller, CursorKey, Group, Topic, cursor_key
from ...ports.control import leave_out
from ...ports.cursors import Cursors
from ...ports.log import Log
from ...ports.readings import Readings
from ...ports.records import Records
from ...ports.world import Clock
from ..core.catalog import Catalog

SETTLED = "SETTLED"
MOST_SHARDS = 8
MOST_FAILURES = 50
_MOST_LETTERS = 10
_MOST_TOPICS = 2_000  # that a board remembers
_MOST_POINTS = 64
_MOST_SEED = 40
_FRESH_MS = 1_000
_HOUR_MS = 3_600_000
_KNOWN_MS = 1_800_000


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets that one shard keeps, from `first` to `tail`. If it keeps none, `first` is greater than `tail`."""

    shard: int
    first: int
    tail: int
    first_ms: int | None = None
    tail_ms: int | None = None


@dataclass(kw_only=True, frozen=True, slots=True)
class Progress:
    """One cursor on one shard (None: on the retry lane), without leases that have ended."""

    key: CursorKey
    shard: int | None
    cursor: Cursor
    backlog: int
    oldest_ms: int | None = None

    @property
    def settled(self) -> int:
        """How many offsets are behind the cursor, whatever became of them."""
        return self.cursor.next - self.cursor.begin - _unsettled(self.cursor)


@dataclass(frozen=True, slots=True)
class GroupSurvey:
    """How far a group is. `dead` and `retrying` are "at least" where there may be more of them."""

    group: Group
    shards: tuple[Progress, ...]
    lanes: tuple[Progress, ...]
    dead: int
    retrying: int
    more_dead: bool = False
    more_retrying: bool = False
    failures: Mapping[tuple[int, int, str], str] = field(default_factory=dict)
    """RETRYING or DEAD by shard, offset and consumer's uid."""

    def status_of(self, shard: int, offset: int) -> str | None:
        """The status of the delivery at this offset; None if the group does not get it. SETTLED: it is over, but
        whether it failed was not read."""
        statuses = [self._status(progress, offset) for progress in self.shards if progress.shard == shard]
        open_statuses = [status for status in statuses if status]
        return (
            words.combined([words.Status(each) for each in open_statuses])
            if open_statuses and SETTLED not in open_statuses
            else SETTLED
            if open_statuses
            else None
        )

    def _status(self, progress: Progress, offset: int) -> str | None:
        where, span = position(progress.cursor, offset)
        if where is Position.NOT_OWED:
            return None
        if where is Position.RETRYING and span and span.attempt == 1:
            return words.Status.NEW  # passed over for now: nobody has tried it
        if where is not Position.SETTLED:
            return str(where)
        status = self.failures.get((progress.shard or 0, offset, progress.key.consumer_uid))
        return status or (SETTLED if self.more_retrying else words.Status.SUCCESS)

    def locations_of(self, status: str) -> list[tuple[int, int]]:
        """Shards and offsets of the deliveries that are RUNNING, RETRYING or DEAD; the newest first."""
        locations = {(shard, offset) for (shard, offset, _), each in self.failures.items() if each == status}
        for progress in self.shards:
            if status == words.Status.RUNNING:
                spans = [span for lease in progress.cursor.leases.values() for span in lease.spans]
            elif status == words.Status.RETRYING:
                spans = [span for span in progress.cursor.waiting if span.attempt > 1]
            else:
                spans = []
            locations |= {(progress.shard or 0, offset) for span in spans for offset in span.offsets()}
        return sorted(locations, key=lambda each: -each[1])

    @property
    def backlog(self) -> int:
        """How many messages of all shards the group has not settled."""
        return sum(each.backlog for each in self.shards)

    @property
    def in_flight(self) -> int:
        """How many messages are leased, on the shards and in the retry lanes."""
        return sum(each.cursor.in_flight for each in (*self.shards, *self.lanes))

    @property
    def settled(self) -> int:
        """How many offsets are behind the group, whatever became of them."""
        return sum(each.settled for each in self.shards)

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest message that is not settled came into the log."""
        return min((each.oldest_ms for each in self.shards if each.oldest_ms), default=None)


@dataclass(frozen=True, slots=True)
class TopicSurvey:
    """A topic as it was at `at_ms`: of its shards those that were asked for, and its groups as far as they went."""

    topic: Topic
    at_ms: int
    shards: tuple[Extent, ...]
    groups: tuple[GroupSurvey, ...]
    groups_left: int = 0

    def seen_by(self, caller: Caller) -> TopicSurvey:
        """The same with the groups that the caller's token may use."""
        groups = tuple(each for each in self.groups if caller.may_use_group(each.group.name))
        return self if len(groups) == len(self.groups) else replace(self, groups=groups)

    @property
    def is_whole(self) -> bool:
        """Were all shards and all groups looked at?"""
        return len(self.shards) == self.topic.shards and not self.groups_left

    @property
    def accepted(self) -> int:
        """How many messages came into the log in the topic's life."""
        return sum(each.tail + 1 for each in self.shards)

    @property
    def reading(self) -> Reading:
        """The same as a reading of the topic's meters; of a whole survey."""
        groups = {each.group.name: _meter(each.shards, each.lanes, self.shards) for each in self.groups}
        return Reading(self.at_ms, self.accepted, groups)

    @property
    def tail_ms(self) -> int | None:
        """When the last message came."""
        return max((each.tail_ms for each in self.shards if each.tail_ms), default=None)


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

    def look(
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
        groups = [only] if only else self._catalog.groups(topic, leave_out)
        oldest: dict[tuple[int, int], int | None] | None = {} if ages else None
        surveys: list[GroupSurvey] = []
        for group in groups:
            if surveys and not may_go_on():
                break
            if only or not self._catalog.has_hidden_cursors(topic, group):
                surveys.append(self._group(topic, group, extents, oldest))
        more = len(groups) - len(surveys)
        return TopicSurvey(topic, self._clock.now_ms(), extents, tuple(surveys), more)

    def offset_at(self, topic: Topic, extent: Extent, at_ms: int, may_go_on: Callable[[], bool]) -> int:
        """The first offset of a shard that was accepted at or after a time, by binary search. If `may_go_on()` ends
        it, the last offset known to be earlier."""
        low, high = extent.first, extent.tail + 1
        key = topic.shard_key(extent.shard)
        while low < high and may_go_on():
            rows = self._log.read_back(key, (low + high) // 2, 1)
            if not rows or rows[0].end <= low:
                low = (low + high) // 2 + 1
            elif rows[0].accepted_ms < at_ms:
                low = rows[0].end
            else:
                high = min(rows[0].first, (low + high) // 2)
        return low

    def _extent(self, topic: Topic, shard: int, *, whole: bool = False) -> Extent:
        key = topic.shard_key(shard)
        last = self._log.read_back(key, MAX_OFFSET, 1)
        if not last:
            tail = self._log.tail(key).offset
            return Extent(shard, tail + 1, tail)
        first = self._log.read(key, 0, 1)[0] if whole else last[0]
        return Extent(shard, first.first, last[0].end - 1, first.accepted_ms, last[0].accepted_ms)

    def reading(self, topic: Topic, only: Group | None = None) -> Reading:
        """The topic's meters now, of all shards, and of all groups or one: half a read unit for each shard, and half
        for each group's cursors."""
        extents = [self._extent(topic, shard) for shard in range(topic.shards)]
        names = [only] if only else self._catalog.groups(topic, leave_out)
        groups = {
            group.name: _meter(*self._cursors_of(topic, group, extents, None), extents) for group in names
        }
        return Reading(self._clock.now_ms(), sum(each.tail + 1 for each in extents), groups)

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
        failures = self._records.unfinished(topic.uid, group.uid, MOST_FAILURES)
        dead = self._records.count_dead(topic.uid, group.uid, _MOST_LETTERS)
        return GroupSurvey(
            group,
            tuple(shards),
            tuple(lanes),
            dead,
            sum(each.status == words.Status.RETRYING for each in failures),
            dead >= _MOST_LETTERS,
            len(failures) >= MOST_FAILURES,
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
        cursor = fold(self._now(cursors.get(str(key.shard))))
        tail = max(extent.tail, cursor.next - 1)  # the two were not read at the same moment
        backlog = max(0, tail + 1 - cursor.floor - ranges.total(cursor.settled))
        oldest_ms = None
        if backlog and oldest is not None:
            location = extent.shard, cursor.floor
            if location not in oldest:
                oldest[location] = self._accepted_ms(topic, *location)
            oldest_ms = oldest[location]
        return Progress(key=key, shard=extent.shard, cursor=cursor, backlog=backlog, oldest_ms=oldest_ms)

    def _now(self, row: Cursor | None) -> Cursor:
        return transitions.expire(row or Cursor(), self._clock.now_ms())

    def _accepted_ms(self, topic: Topic, shard: int, offset: int) -> int | None:
        rows = self._log.read_back(topic.shard_key(shard), offset, 1)
        return rows[0].accepted_ms if rows and _holds(rows[0], offset) else None


def _meter(shards: Sequence[Progress], lanes: Sequence[Progress], extents: Sequence[Extent]) -> GroupReading:
    by_shard = {each.shard: 0 for each in extents}
    for progress in shards:
        by_shard[progress.shard or 0] += progress.backlog
    return GroupReading(
        sum(progress.settled for progress in shards),
        sum(by_shard.values()),
        sum(lane.cursor.next for lane in lanes),
        tuple(by_shard.values()),
    )


def _unsettled(cursor: Cursor) -> int:
    return cursor.in_flight + sum(span.count for span in cursor.waiting)


def _holds(row: Segment, offset: int) -> bool:
    return row.first <= offset < row.end


@dataclass(frozen=True, slots=True)
class Point:
    """A topic's counts at one moment: messages accepted in its life, and messages that its groups have settled."""

    at_ms: int
    accepted: int
    settled: int


class Board:
    """The last surveys of each topic, kept in this process. Each look renews the oldest ones up to a limit of read
    units, so a page of many topics costs as much as one of a few."""

    def __init__(self, surveyor: Surveyor, readings: Readings, clock: Clock) -> None:
        self._surveyor = surveyor
        self._readings = readings
        self._clock = clock
        self._surveys: dict[str, TopicSurvey] = {}
        self._points: dict[str, deque[Point]] = {}
        self._walked_to: str | None = None
        self._walked_ms = 0
        self._lock = Lock()

    def renewed(self, topics: Sequence[Topic], may_go_on: Callable[[], bool]) -> dict[str, TopicSurvey]:
        """Surveys by the topic's uid, as far as there are any; some of them from a moment ago."""
        for topic in sorted(topics, key=lambda topic: self._seen_ms(topic.uid)):
            if not may_go_on():
                break
            if self._seen_ms(topic.uid) < self._clock.now_ms() - _FRESH_MS:
                self.keep(self._surveyor.look(topic, may_go_on=may_go_on))
        return {topic.uid: self._surveys[topic.uid] for topic in topics if topic.uid in self._surveys}

    def _remember(self, topic: Topic) -> None:
        """What the meter reader read in the last hour, for a process that has not looked at the topic before."""
        if topic.uid in self._points:
            return
        since_ms = self._clock.now_ms() - _HOUR_MS
        readings = self._readings.latest(topic.uid, MINUTES, _MOST_SEED)
        points = [
            Point(reading.at_ms, reading.accepted, sum(each.settled for each in reading.groups.values()))
            for reading in readings
            if reading.at_ms >= since_ms
        ]
        self._points[topic.uid] = deque(points, maxlen=_MOST_POINTS)

    def walk(self, behind: Callable[[str | None], Sequence[Topic]], may_go_on: Callable[[], bool]) -> None:
        """Look at some topics more, going on where the last walk ended: sooner or later each one's turn comes.
        `behind` tells the topics behind a name (None: the first ones)."""
        self._walked_ms = self._clock.now_ms()
        topics = behind(self._walked_to)
        if not topics:
            self._walked_to = None  # the end of the list
        for topic in topics:
            if may_go_on():
                self.renewed([topic], may_go_on)
                self._walked_to = topic.name

    def is_turn_of(self, topics: Sequence[Topic]) -> bool:
        """Was the last walk later than the last look at one of these? One look may cost most of what a page may read:
        so the topics of a page and all others take turns."""
        return bool(topics) and max(self._seen_ms(topic.uid) for topic in topics) < self._walked_ms

    def known(self) -> list[TopicSurvey]:
        """The surveys of the last minutes, of all topics."""
        since_ms = self._clock.now_ms() - _KNOWN_MS
        with self._lock:
            return [survey for survey in self._surveys.values() if survey.at_ms >= since_ms]

    def forget(self, uid: str) -> None:
        """Drop what is known of a topic: it is gone."""
        with self._lock:
            self._surveys.pop(uid, None)
            self._points.pop(uid, None)

    def points(self, topic: Topic) -> Sequence[Point]:
        """What was counted of the topic lately, the oldest first."""
        return tuple(self._points.get(topic.uid, ()))

    def keep(self, survey: TopicSurvey) -> None:
        """Remember a survey."""
        self._remember(survey.topic)
        uid = survey.topic.uid
        settled_count = sum(group.settled for group in survey.groups)
        with self._lock:
            self._surveys.pop(uid, None)
            self._surveys[uid] = survey
            points = self._points.setdefault(uid, deque(maxlen=_MOST_POINTS))
            points.append(Point(survey.at_ms, survey.accepted, settled_count))
            while len(self._surveys) > _MOST_TOPICS:
                oldest = next(iter(self._surveys))
                del self._surveys[oldest]
                self._points.pop(oldest, None)

    def _seen_ms(self, uid: str) -> int:
        survey = self._surveys.get(uid)
        return survey.at_ms if survey else 0
