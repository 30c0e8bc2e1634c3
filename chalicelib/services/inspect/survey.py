"""The values of a survey: how far a topic and its groups are. `Surveyor` reads them, exactly or at a bounded cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from heapq import merge
from itertools import groupby

from ...domain import status as words
from ...domain.account import Account
from ...domain.attention import Attention
from ...domain.cursor import Cursor, OffsetState, offset_state
from ...domain.cursor_transitions import free_units, full_units
from ...domain.meter import GroupReading, Reading
from ...domain.spans import Span, ranges_of
from ...domain.topic import Caller, Consumer, CursorKey, Group, Topic
from ...domain.transaction import Counted

SETTLED = "SETTLED"
_NOT_COUNTED = Counted(0)
_STUCK_MS = 60_000


class Kind(IntEnum):
    """What is wrong with a group; what does most harm has the highest number: who waits comes before what is dead."""

    RETRYING = 1
    PAUSED = 2
    DEAD = 3
    ALARM = 4  # more waits than the topic's alarm allows
    STUCK = 5  # the oldest waits for long, and no message is leased, or none was settled for long


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong, and how much of it. `still_ms`: since when nothing was settled, although messages are
    leased; None where none is."""

    kind: Kind
    topic: str
    group: str
    number: int
    at_least: bool = False
    since_ms: int | None = None
    still_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets that one shard keeps, from `first` to `tail`. If it keeps none, `first` is greater than `tail`.
    `accepted`: when the segments that were read for this came, by their offsets."""

    shard: int
    first: int
    tail: int
    accepted: tuple[tuple[range, int], ...] = ()

    @property
    def tail_ms(self) -> int | None:
        """When its last message came."""
        return self.accepted[-1][1] if self.accepted else None

    def accepted_ms(self, offset: int) -> int | None:
        """When the message at this offset came, if it is in one of the segments that were read."""
        return next((at_ms for offsets, at_ms in self.accepted if offset in offsets), None)


@dataclass(frozen=True, slots=True)
class Progress:
    """One cursor on one shard (None: on the retry lane), without leases that have ended. `tail`: the last offset of the
    shard. `oldest_ms`: when its oldest message that is not settled came into the log, if that was read."""

    key: CursorKey
    shard: int | None
    cursor: Cursor
    tail: int = -1
    oldest_ms: int | None = None

    @property
    def backlog(self) -> int:
        """How many messages up to the tail are not settled."""
        return self.cursor.backlog(self.tail)

    def held_units(self, now_ms: int, of_key: int | None) -> set[str]:
        """The units of waiting messages that wait for an earlier one of their unit, or for one of `of_key` places."""
        if of_key:
            return full_units(self.cursor, of_key)
        return {span.unit for span in self.cursor.waiting if span.unit} - free_units(self.cursor, now_ms)

    @property
    def settled(self) -> int:
        """How many offsets the cursor has settled, in any way."""
        cursor = self.cursor
        return cursor.next - cursor.begin - cursor.backlog(cursor.next - 1)

    @property
    def retrying(self) -> int:
        """How many messages wait in the cursor for another attempt."""
        return sum(span.count for span in self.cursor.waiting if span.attempt > 1)


@dataclass(frozen=True, slots=True)
class GroupSurvey:
    """How far a group is. `dead` and `retrying` are "at least" where there may be more of them. Only an exact survey
    has the `account`, and the consumers that are `stopped` until a person acts. `failures`: RETRYING or DEAD by shard,
    offset and consumer's uid, up to the shard and offset `read_to` (None: all)."""

    group: Group
    shards: tuple[Progress, ...]
    lanes: tuple[Progress, ...]
    dead: int = 0
    retrying: int = 0
    more_dead: bool = False
    more_retrying: bool = False
    failures: Mapping[tuple[int, int, str], str] = field(default_factory=dict)
    read_to: tuple[int, int] | None = None
    account: Account = field(default_factory=Account)
    stopped: Sequence[tuple[Consumer, Attention]] = ()
    at_ms: int = 0
    is_rate_used: bool = False  # its rate limit has given half of what an idle group may get, or more

    @property
    def limited_by(self) -> list[str]:
        """What holds up the messages that wait, as far as it is known; nothing if none waits."""
        if all(each.backlog <= each.cursor.in_flight for each in self.shards):
            return []
        pushed: Counter[str] = Counter()
        for each in (*self.shards, *self.lanes):
            leases = (lease for lease in each.cursor.leases.values() if not lease.is_pulled)
            pushed[each.key.consumer_uid] += sum(span.count for lease in leases for span in lease.spans)
        found = {
            "rate": self.is_rate_used,
            "concurrency": 2 * max(pushed.values(), default=0) >= self.group.max_in_flight,
            "keys": any(each.held_units(self.at_ms, self.group.key_concurrency) for each in self.shards),
        }
        return [limit for limit, holds in found.items() if holds]

    def status_of(self, shard: int, offset: int) -> str | None:
        """The status of the delivery at this offset; None if the group does not get it. SETTLED: it is over, but
        whether it failed was not read."""
        found = {self._status(progress, offset) for progress in self.shards if progress.shard == shard}
        statuses = [status for status in found if status]
        if SETTLED in statuses or not statuses:
            return SETTLED if statuses else None
        return words.combined([words.Status(each) for each in statuses])

    def _status(self, progress: Progress, offset: int) -> str | None:
        where, span = offset_state(progress.cursor, offset)
        if where is OffsetState.NOT_OWED:
            return None
        if where is OffsetState.RETRYING and span and span.attempt == 1:
            return words.Status.NEW  # skipped for now: not tried yet
        if where is not OffsetState.SETTLED:
            return str(where)
        status = self.failures.get((progress.shard or 0, offset, progress.key.consumer_uid))
        return status or (SETTLED if self.more_retrying else words.Status.SUCCESS)

    def locations_of(self, status: str) -> Iterator[tuple[int, int]]:
        """Shards and offsets of the deliveries that are RUNNING, RETRYING or DEAD; the highest offsets
        first."""
        failed = ((shard, offset) for (shard, offset, _), each in self.failures.items() if each == status)
        sources: list[Iterable[tuple[int, int]]] = [sorted(failed, key=_highest_first)]
        for progress in self.shards:
            leased = [span for lease in progress.cursor.leases.values() for span in lease.spans]
            waiting = [span for span in progress.cursor.waiting if span.attempt > 1]
            spans: dict[str, list[Span]] = {words.Status.RUNNING: leased, words.Status.RETRYING: waiting}
            sources.append(_from_the_last(progress.shard or 0, spans.get(status, ())))
        return (location for location, _ in groupby(merge(*sources, key=_highest_first)))

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
        """How many offsets the group has settled, in any way."""
        return sum(each.settled for each in self.shards)

    @property
    def succeeded(self) -> int:
        """How many of them succeeded: at most so many, where there may be more failures."""
        cursors = {(each.shard, each.key.consumer_uid): each.cursor for each in self.shards}
        places = [(cursors.get((shard, uid), Cursor()), offset) for shard, offset, uid in self.failures]
        left = sum(offset_state(*place)[0] is OffsetState.SETTLED for place in places)
        skipped_count = sum(cursor.skipped for cursor in cursors.values())
        return max(0, self.settled - skipped_count - max(left, self.dead))

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest message that is not settled came into the log."""
        return min((each.oldest_ms for each in self.shards if each.oldest_ms), default=None)

    @property
    def oldest_age_seconds(self) -> int | None:
        """How old that message was when this was read."""
        return max(0, self.at_ms - self.oldest_ms) // 1000 if self.oldest_ms else None


@dataclass(frozen=True, slots=True)
class TopicSurvey:
    """A topic as it was at `at_ms`: of its shards those that were asked for, and its groups as far as they went.
    `groups_left`: how many groups it lacks, for which there was no time. Only an exact survey has the numbers of
    `delayed` and `prepared` messages. `still_ms`: since when the meters of a group stand still, by its name, as far as
    earlier readings show it."""

    topic: Topic
    at_ms: int
    shards: tuple[Extent, ...]
    groups: tuple[GroupSurvey, ...]
    groups_left: int = 0
    delayed: Counted = _NOT_COUNTED
    prepared: Counted = _NOT_COUNTED
    still_ms: Mapping[str, int] = field(default_factory=dict)

    def seen_by(self, caller: Caller) -> TopicSurvey:
        """The same as the caller may see it, with the groups that its token may use."""
        groups = tuple(each for each in self.groups if caller.may_use_group(each.group.name))
        return replace(self, topic=caller.seen(self.topic), groups=groups)

    @property
    def is_whole(self) -> bool:
        """Were all shards and all cursors of all groups looked at?"""
        return self.has_all_shards and not self.groups_left

    @property
    def has_all_shards(self) -> bool:
        return len(self.shards) == len(self.topic.shard_numbers)

    @property
    def accepted(self) -> int:
        """How many messages came into the log in the topic's life."""
        return sum(each.tail + 1 for each in self.shards)

    @property
    def reading(self) -> Reading:
        """The same as a reading of the topic's meters; of a whole survey."""
        groups = {each.group.name: self._meters(each) for each in self.groups}
        return Reading(self.at_ms, self.accepted, groups)

    def _meters(self, of: GroupSurvey) -> GroupReading:
        by_shard = {each.shard: 0 for each in self.shards}
        for progress in of.shards:
            by_shard[progress.shard or 0] += progress.backlog
        retried_count = sum(lane.cursor.next for lane in of.lanes)
        return GroupReading(of.settled, of.backlog, retried_count, tuple(by_shard.values()))

    def troubles(self, now_ms: int) -> list[Trouble]:
        """What is wrong with the groups."""
        return [trouble for each in self.groups for trouble in _troubles(self, each, now_ms)]

    def behind(self, before: TopicSurvey, readings: Sequence[Reading]) -> TopicSurvey:
        """The same with since when its groups stand still: by earlier readings, the oldest first, and by what a survey
        before said, if it goes further back than they do."""
        if not self.is_whole:
            return self
        still_ms: dict[str, int] = {}
        for name, now in self.reading.groups.items():
            for reading in reversed(readings):
                then = reading.groups.get(name)
                if then is None or (then.settled, then.retried) != (now.settled, now.retried):
                    break
                still_ms[name] = reading.at_ms
            else:
                still_ms |= {name: before.still_ms[name]} if name in before.still_ms else {}
        return replace(self, still_ms=still_ms)

    def worst_trouble(self, now_ms: int) -> Kind | None:
        """What the worst trouble is; None if there is none."""
        return max((trouble.kind for trouble in self.troubles(now_ms)), default=None)

    @property
    def tail_ms(self) -> int | None:
        """When the last message came."""
        return max((each.tail_ms for each in self.shards if each.tail_ms), default=None)


def _from_the_last(shard: int, spans: Iterable[Span]) -> Iterator[tuple[int, int]]:
    for low, high in reversed(ranges_of(spans)):
        for offset in range(high - 1, low - 1, -1):
            yield shard, offset


def _highest_first(location: tuple[int, int]) -> tuple[int, int]:
    shard, offset = location
    return -offset, shard


def _troubles(of: TopicSurvey, survey: GroupSurvey, now_ms: int) -> list[Trouble]:
    name, backlog, oldest_ms = survey.group.name, survey.backlog, survey.oldest_ms
    topic, still_ms = of.topic, of.still_ms.get(name, now_ms)
    troubles = []
    if survey.dead:
        troubles.append(Trouble(Kind.DEAD, topic.name, name, survey.dead, survey.more_dead))
    if topic.is_over_alarm(backlog):
        troubles.append(Trouble(Kind.ALARM, topic.name, name, backlog, since_ms=oldest_ms))
    lease_ms = (survey.group.lease_seconds or topic.lease_seconds) * 1000
    # Leases that no consumer settles hide nothing.
    stands_still = now_ms - still_ms > max(_STUCK_MS, 2 * lease_ms)
    if survey.group.is_paused(now_ms) and backlog:
        troubles.append(Trouble(Kind.PAUSED, topic.name, name, backlog, since_ms=oldest_ms))
    elif oldest_ms and now_ms - oldest_ms > _STUCK_MS and (stands_still or not survey.in_flight):
        since_ms = still_ms if survey.in_flight else None
        troubles.append(Trouble(Kind.STUCK, topic.name, name, backlog, False, oldest_ms, since_ms))
    if survey.retrying:
        troubles.append(Trouble(Kind.RETRYING, topic.name, name, survey.retrying, survey.more_retrying))
    return troubles
