"""Reads how far topics and their groups are: exactly, or at a bounded cost for pages that are refreshed often."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

from ...domain import cursor_transitions as transitions
from ...domain.account import Account, account, with_running_in_lanes
from ...domain.attention import stopped
from ...domain.cursor import Cursor, OffsetState, offset_state, raise_floor
from ...domain.errors import Unreadable
from ...domain.limits import MAX_OFFSET
from ...domain.meter import Reading
from ...domain.record import Unfinished
from ...domain.status import Status
from ...domain.timer import TimerKind
from ...domain.topic import Group, Topic, cursor_key
from ...domain.transaction import Counted, TransactionState
from ...ports.world import Clock
from ...store import Cursors, Log, Records, Timers, Transactions
from ..core.catalog import Catalog
from ..core.counters import LOG_BEHIND, Counters
from ..core.log_reader import LogReader
from ..core.positions import first_since
from ..core.rate_limiter import RateLimits
from .survey import Extent, GroupSurvey, Progress, TopicSurvey

MOST_SHARDS = 8
MOST_FAILURES = 50
_MOST_LETTERS = 10
_MOST_COUNTING_MS = 8_000  # of a request: API Gateway ends one after 29 s
_MOST_COUNTED = 1_000  # timers of a fragment, transactions of a state: more is shown as "at least"

T = TypeVar("T")
_When = Callable[[Extent, int], int | None]
# When the message at an offset of a shard came; None if that is not known.
_TimerCounts = Callable[[str, TimerKind], Counted]


def _unread(extent: Extent, offset: int) -> None:
    return None


@dataclass(kw_only=True, frozen=True, slots=True)
class Surveyor:
    """Reads only. A survey is bounded: it reads the ends of some shards, each group's cursors in one query, and the
    first few failures ("at least" so many); it may be a moment old. An exact one reads all shards and all records, in
    an order in which the counts add up while work goes on: the ends of the shards, cursors, records of failures, retry
    lanes, dead letters."""

    # `on_skip` is called for the unreadable row of each topic that `exact_topics` skips.
    catalog: Catalog
    log: Log
    reader: LogReader
    cursors: Cursors
    records: Records
    timers: Timers
    transactions: Transactions
    rate_limits: RateLimits
    counters: Counters
    clock: Clock
    on_skip: Callable[[Unreadable], object]

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
        """The topic now: MOST_SHARDS of its shards, from the place `first_shard` on. `whole`: also each shard's oldest
        message, one read more for each. `only`: one group; else all, while `may_go_on()`. `ages`: also the oldest
        waiting message, one read more for each shard with a backlog."""
        shards = topic.shard_numbers[first_shard : first_shard + MOST_SHARDS]
        extents = tuple(self._extent(topic, shard, whole=whole) for shard in shards)
        groups = [only] if only else self.catalog.groups(topic)
        when_came = self._when_came(topic) if ages else _unread
        surveys: list[GroupSurvey] = []
        for group in groups:
            if surveys and not may_go_on():
                break
            surveys.append(self._group(topic, group, extents, when_came))
        groups_left = len(groups) - len(surveys)
        return TopicSurvey(topic, self.clock.now_ms(), extents, tuple(surveys), groups_left)

    def offset_at(self, topic: Topic, extent: Extent, at_ms: int, may_go_on: Callable[[], bool]) -> int:
        """The first offset of a shard that was accepted at or after a time, by binary search. If `may_go_on()` ends
        it, the last offset known to be earlier."""
        key, low, high = topic.shard_key(extent.shard), extent.first, extent.tail + 1
        return first_since(lambda at: self.log.read_back(key, at, 1), at_ms, low, high, may_go_on)

    def reading(self, topic: Topic, only: Group | None = None) -> Reading:
        """The topic's meters now, of all shards, and of one group or all: half a read unit for each shard, and half for
        each group's cursors."""
        extents = tuple(self._extent(topic, shard) for shard in topic.shard_numbers)
        asked_for = [only] if only else self.catalog.groups(topic)
        groups = tuple(GroupSurvey(each, *self._progress(topic, each, extents)) for each in asked_for)
        for each in groups:
            self._count_behind(each)
        return TopicSurvey(topic, self.clock.now_ms(), extents, groups).reading

    def _count_behind(self, survey: GroupSurvey) -> None:
        """Count cursors that stand above the end of their log: what is appended below them is never delivered. A
        cursor may be newer than the end that was read, so the end is read again."""
        for each in survey.shards:
            end = each.tail + 1
            if each.cursor.next > end and not each.cursor.is_closed:
                end = self.log.tail(each.key.shard).offset + 1
            if each.cursor.next > end and not each.cursor.is_closed:
                self.counters.add(LOG_BEHIND, 1)
                ids = {"group": survey.group.name, "cursor": each.cursor.next, "log_end": end}
                self.counters.note("log behind cursor", topic=survey.group.topic, shard=each.shard, **ids)

    def furthest_behind(self, topic: Topic, tails: Sequence[int]) -> Iterator[tuple[Group, int, int | None]]:
        """Each group, its backlog (in a broadcast, that of the consumer who is furthest behind) and when the
        oldest message came that is not settled. `tails`: the last offsets of the shards."""
        extents = [Extent(shard, 0, tail) for shard, tail in zip(topic.shard_numbers, tails, strict=True)]
        when_came = self._when_came(topic, or_next=True)
        for group in self.catalog.groups(topic):
            shards, _ = self._progress(topic, group, extents, when_came)
            backlogs: Counter[str] = Counter()
            for each in shards:
                backlogs[each.key.consumer_uid] += each.backlog
            oldest_ms = min((each.oldest_ms for each in shards if each.oldest_ms), default=None)
            yield group, max(backlogs.values(), default=0), oldest_ms

    def exact_topics(self, topics: Sequence[Topic]) -> list[TopicSurvey | None]:
        """The exact survey of each topic; None if a row of it is unreadable. If that takes too long, of the first
        topics only. Timers are counted once for all of them."""
        timers = self._timers_by_topic() if topics else None
        surveys: list[TopicSurvey | None] = []
        for topic in self._in_time(topics):
            try:
                surveys.append(self.exact_topic(topic, timers))
            except Unreadable as error:
                self.on_skip(error)
                surveys.append(None)
        return surveys

    def exact_topic(self, topic: Topic, timers: _TimerCounts | None = None) -> TopicSurvey:
        """The exact survey of one topic, with its delayed and prepared messages. Pass `timers` if they are counted.
        Raises Unreadable."""
        timers = timers or self._timers_by_topic()
        extents = self._tails(topic)
        groups = self.catalog.groups(topic)
        undecided = self.transactions.count(topic, TransactionState.UNDECIDED, _MOST_COUNTED)
        checked = timers(topic.uid, TimerKind.CHECK)
        return TopicSurvey(
            topic,
            self.clock.now_ms(),
            extents,
            tuple(self.exact_group(topic, group, extents) for group in groups),
            delayed=timers(topic.uid, TimerKind.DELIVER),
            prepared=Counted(undecided.number + checked.number, undecided.whole and checked.whole),
        )

    def exact_groups(self, topic: Topic, groups: Sequence[Group]) -> list[GroupSurvey]:
        """The exact survey of each group. If it takes too long, of the first groups only."""
        extents = self._tails(topic) if groups else ()
        return [self.exact_group(topic, group, extents) for group in self._in_time(groups)]

    def exact_group(self, topic: Topic, group: Group, extents: Sequence[Extent] = ()) -> GroupSurvey:
        """The group's backlog and other counts, exact because offsets have no gaps. Pass the shards' `extents` if they
        are known."""

        def when_came(extent: Extent, offset: int) -> int | None:
            slot = self.reader.fetch(topic.shard_key(extent.shard), [offset])[offset]
            return slot.message.accepted_ms if slot.message else None

        extents = extents or self._tails(topic)
        shards, _ = self._progress(topic, group, extents, when_came, sure=True)
        at_ms = self.clock.now_ms()
        unfinished_deliveries = self.records.unfinished(topic.uid, group.uid)
        keys = self.catalog.cursor_keys(topic, group, None)
        lanes = tuple(Progress(key, None, self._now(self.cursors.get(key))) for key in keys)
        here = {(each.shard, each.key.consumer_uid) for each in shards}  # of who has left, nothing is counted
        # all others are in the cursor
        entries = (each for each in unfinished_deliveries if each.timed or each.status != Status.RETRYING)
        apart = [each for each in entries if (each.shard, each.consumer_uid) in here]
        in_lanes = sum(lane.cursor.in_flight for lane in lanes) - self._older_in_lanes(lanes, shards, apart)
        dead_count = self.records.count_dead(topic.uid, group.uid).number
        apart_count = sum(each.status == Status.RETRYING for each in apart)
        counts = dead_count, sum(each.retrying for each in shards) + apart_count
        survey = GroupSurvey(group, shards, lanes, *counts, account=_account(shards, apart, in_lanes))
        consumers = self.catalog.control.consumers(topic, group)
        is_rate_used = self.rate_limits.is_in_use(group)
        return replace(survey, stopped=stopped(consumers, at_ms), at_ms=at_ms, is_rate_used=is_rate_used)

    def _in_time(self, items: Sequence[T]) -> Iterator[T]:
        """The first ones, as many as there is time to count: at least one."""
        until_ms = self.clock.now_ms() + _MOST_COUNTING_MS
        for number, each in enumerate(items):
            if number and self.clock.now_ms() > until_ms:
                return
            yield each

    def _timers_by_topic(self) -> _TimerCounts:
        """How many timers of a kind each topic has, by uid."""
        counts = [self.timers.count_by_topic(fragment, _MOST_COUNTED) for fragment in self.timers.fragments()]
        is_whole = all(whole for _, whole in counts)
        return lambda *key: Counted(sum(by_topic.get(key, 0) for by_topic, _ in counts), is_whole)

    def _tails(self, topic: Topic) -> tuple[Extent, ...]:
        """The shards' last offsets, read consistently; where their logs begin is not read."""
        shards = topic.shard_numbers
        return tuple(Extent(shard, 0, self.log.tail(topic.shard_key(shard)).offset) for shard in shards)

    def _extent(self, topic: Topic, shard: int, *, whole: bool = False) -> Extent:
        key = topic.shard_key(shard)
        last = self.log.read_back(key, MAX_OFFSET, 1)
        if not last:
            tail = self.log.tail(key).offset
            return Extent(shard, tail + 1, tail)
        segments = last if not whole or last[0].first == 0 else [*self.log.read(key, 0, 1), *last]
        accepted_ranges = tuple((range(each.first, each.end), each.accepted_ms) for each in segments)
        return Extent(shard, segments[0].first, last[0].end - 1, accepted_ranges)

    def _progress(
        self,
        topic: Topic,
        group: Group,
        extents: Sequence[Extent],
        came: _When = _unread,
        sure: bool = False,
    ) -> tuple[tuple[Progress, ...], tuple[Progress, ...]]:
        """A group's cursors on these shards, and on its retry lanes. A consumer that is owed nothing now has no
        backlog."""
        owed_nothing = self.catalog.owed_nothing(topic, group)
        shards: list[Progress] = []
        lanes: list[Progress] = []
        for uid in self.catalog.cursor_owners(topic, group):
            cursors = self.cursors.of_owner(group.uid, uid, consistent=sure)
            for extent in extents:
                key = cursor_key(topic, group, extent.shard, uid)
                cursor = raise_floor(self._now(cursors.get(str(key.shard))))
                if uid in owed_nothing and not cursor.leases:
                    cursor = _after_skipping(cursor, extent.tail)
                oldest_ms = came(extent, cursor.floor) if cursor.backlog(extent.tail) else None
                shards.append(Progress(key, extent.shard, cursor, extent.tail, oldest_ms))
            lane = cursor_key(topic, group, None, uid)
            lanes.append(Progress(lane, None, self._now(cursors.get(str(lane.shard)))))
        return tuple(shards), tuple(lanes)

    def _group(self, topic: Topic, group: Group, extents: Sequence[Extent], when_came: _When) -> GroupSurvey:
        shards, lanes = self._progress(topic, group, extents, when_came)
        failures, read_to = self.records.first_unfinished(topic.uid, group.uid, MOST_FAILURES)
        dead = self.records.count_dead(topic.uid, group.uid, _MOST_LETTERS, lambda: False)
        failed = {(each.shard, each.offset, each.consumer_uid): each.status for each in failures}
        counts = dead.number, _retrying_count(shards, failures), not dead.whole, read_to is not None
        survey = GroupSurvey(group, shards, lanes, *counts, failed, read_to)
        return replace(survey, at_ms=self.clock.now_ms(), is_rate_used=self.rate_limits.is_in_use(group))

    def _now(self, row: Cursor | None) -> Cursor:
        return transitions.lapse(row or Cursor(), self.clock.now_ms())

    def _when_came(self, topic: Topic, *, or_next: bool = False) -> _When:
        """Reads when messages came, each once. `or_next`: if its row is gone, when the next one came."""

        @cache
        def when_came(extent: Extent, offset: int) -> int | None:
            if at_ms := extent.accepted_ms(offset):
                return at_ms
            key = topic.shard_key(extent.shard)
            rows = [row for row in self.log.read_back(key, offset, 1) if row.first <= offset < row.end]
            rows = rows or (self.log.read(key, offset, 1) if or_next else [])
            return rows[0].accepted_ms if rows else None

        return when_came

    def _older_in_lanes(
        self, lanes: Iterable[Progress], shards: Sequence[Progress], apart: Sequence[Unfinished]
    ) -> int:
        """How many leases in the lanes are of deliveries from before a seek, whose message is counted where the newer
        delivery is: in its shard's cursor, or dead. It reads their entries, if a record says that there may be such
        a delivery."""
        cursors = {(each.shard, each.key.consumer_uid): each.cursor for each in shards}
        dead = [each for each in apart if each.status == Status.DEAD]
        dead_places = {(each.shard, each.consumer_uid, each.offset) for each in dead}

        def is_counted_elsewhere(shard: int, consumer_uid: str, offset: int) -> bool:
            """Is the newest delivery dead, or in its shard's cursor? There it was begun by a seek."""
            cursor = cursors.get((shard, consumer_uid))
            is_here = cursor is not None and offset_state(cursor, offset)[0] is not OffsetState.SETTLED
            return is_here or (shard, consumer_uid, offset) in dead_places

        if not any(is_counted_elsewhere(each.shard, each.consumer_uid, each.offset) for each in apart):
            return 0
        count = 0
        for lane in lanes:
            leased_offsets = [offset for lease in lane.cursor.leases.values() for offset in lease.attempts()]
            for slot in self.reader.fetch(lane.key.shard, leased_offsets).values():
                origin = slot.message.draft.origin if slot.message else None
                if origin and is_counted_elsewhere(origin.shard, lane.key.consumer_uid, origin.offset):
                    count += 1
        return count


def _after_skipping(cursor: Cursor, tail: int) -> Cursor:
    """The cursor after what it has not settled was skipped."""
    end = max(cursor.next, tail + 1)
    skipped_count = cursor.skipped + cursor.backlog(tail)
    return replace(cursor, floor=end, next=end, waiting=(), skipped=skipped_count)


def _account(shards: Sequence[Progress], apart: Iterable[Unfinished], in_lanes: int) -> Account:
    """Where all deliveries of a group are. `apart`: those that left their shard's cursor, RETRYING, DEAD or
    SKIPPED."""
    elsewhere: defaultdict[tuple[int | None, str], list[tuple[int, str]]] = defaultdict(list)
    for each in apart:
        elsewhere[each.shard, each.consumer_uid].append((each.offset, each.status))
    parts = (account(each.cursor, each.tail, elsewhere[each.shard, each.key.consumer_uid]) for each in shards)
    return with_running_in_lanes(sum(parts, Account()), in_lanes)


def _retrying_count(shards: Sequence[Progress], failures: Sequence[Unfinished]) -> int:
    """How many deliveries wait for another attempt. Those that wait in their shard's cursor need not have a record, and
    those that have one may be under way: the cursor counts them, if it was read. Consumers who have left a broadcast do
    not count."""
    looked_at = {each.shard for each in shards}
    uids = {each.key.consumer_uid for each in shards}
    retries = (each for each in failures if each.status == Status.RETRYING and each.consumer_uid in uids)
    apart_count = sum(each.timed or each.shard not in looked_at for each in retries)
    return sum(each.retrying for each in shards) + apart_count
