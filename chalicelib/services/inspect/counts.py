"""Counts the messages of topics and groups exactly: backlog, in flight, retrying, dead."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...domain import ranges
from ...domain.account import Account, account, with_running_in_lanes
from ...domain.cursor import Cursor, OffsetState, offset_state, raise_floor
from ...domain.errors import Unreadable
from ...domain.limits import FRAGMENTS
from ...domain.record import Unfinished
from ...domain.status import Status
from ...domain.topic import CursorKey, Group, Topic
from ...domain.transaction import UNDECIDED, Counted
from ...ports.world import Clock
from ..core.catalog import Catalog
from ..core.log_reader import LogReader
from .statuses import Statuses

if TYPE_CHECKING:
    from ...store.log import Log
    from ...store.records import Records
    from ...store.timers import Timers
    from ...store.transactions import Transactions


_MOST_COUNTING_MS = 8_000  # of a request: API Gateway ends one after 29 s
_MOST_COUNTED = 1_000  # timers of a fragment, transactions of a state: of more it is told "at least"


@dataclass(kw_only=True, frozen=True, slots=True)
class ShardStatus:
    """One shard as one cursor sees it."""

    shard: int
    consumer_uid: str
    tail: int
    cursor: Cursor
    backlog: int


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A group's counts, and what they are made of."""

    backlog: int
    in_flight: int
    retrying: int
    dead: int
    oldest_age_seconds: int | None
    account: Account
    shards: tuple[ShardStatus, ...]


@dataclass(frozen=True, slots=True)
class TopicStats:
    """How many messages the topic ever accepted, how many are delayed or prepared, and how far its groups are."""

    accepted: int
    delayed: Counted
    prepared: Counted
    groups: Mapping[str, GroupStatus]


class Counts:
    """Reads only, whatever it costs."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        log: Log,
        records: Records,
        reader: LogReader,
        statuses: Statuses,
        timers: Timers,
        transactions: Transactions,
        clock: Clock,
        on_skip: Callable[[Unreadable], object],
    ) -> None:
        """`on_skip` is called for the unreadable row of each topic that `stats` skips."""
        self._on_skip = on_skip
        self._catalog = catalog
        self._log = log
        self._records = records
        self._reader = reader
        self._statuses = statuses
        self._timers = timers
        self._transactions = transactions
        self._clock = clock

    def stats(self, topics: Sequence[Topic]) -> list[TopicStats | None]:
        """Counts for each topic; None if a row of it is unreadable. If that takes too long, for the first topics only.
        Timers are counted once for all of them."""
        until_ms = self._clock.now_ms() + _MOST_COUNTING_MS
        delayed_counts, whole = self._delayed_by_topic() if topics else ({}, True)
        result: list[TopicStats | None] = []
        for topic in topics:
            if result and self._clock.now_ms() > until_ms:
                break
            try:
                result.append(self._stats(topic, Counted(delayed_counts.get(topic.uid, 0), whole)))
            except Unreadable as error:
                self._on_skip(error)
                result.append(None)
        return result

    def topic_stats(self, topic: Topic) -> TopicStats:
        """The same for one topic. Raises Unreadable."""
        delayed_counts, whole = self._delayed_by_topic()
        return self._stats(topic, Counted(delayed_counts.get(topic.uid, 0), whole))

    def _stats(self, topic: Topic, delayed_counts: Counted) -> TopicStats:
        tails = self._tails(topic)
        groups = self._catalog.groups(topic)
        transaction_counts = [self._transactions.count(topic, state, _MOST_COUNTED) for state in UNDECIDED]
        return TopicStats(
            accepted=sum(tail + 1 for tail in tails),
            delayed=delayed_counts,
            prepared=Counted(
                sum(c.number for c in transaction_counts), all(c.whole for c in transaction_counts)
            ),
            groups={group.name: self.group_status(topic, group, tails) for group in groups},
        )

    def _delayed_by_topic(self) -> tuple[Mapping[str, int], bool]:
        """How many messages wait for their time in each topic (by uid), and whether those are all."""
        counts = [self._timers.count_delayed(fragment, _MOST_COUNTED) for fragment in range(FRAGMENTS)]
        by_topic: Counter[str] = Counter()
        for each, _ in counts:
            by_topic.update(each)
        return by_topic, all(whole for _, whole in counts)

    def _tails(self, topic: Topic) -> list[int]:
        return [self._log.tail(topic.shard_key(shard)).offset for shard in range(topic.shards)]

    def group_statuses(self, topic: Topic, groups: Sequence[Group]) -> list[GroupStatus]:
        """The counts of each group, as `group_status` has them. If it takes too long, of the first groups only."""
        until_ms = self._clock.now_ms() + _MOST_COUNTING_MS
        tails = self._tails(topic) if groups else ()
        statuses: list[GroupStatus] = []
        for group in groups:
            if statuses and self._clock.now_ms() > until_ms:
                break
            statuses.append(self.group_status(topic, group, tails))
        return statuses

    def group_status(self, topic: Topic, group: Group, tails: Sequence[int] | None = None) -> GroupStatus:
        """The group's backlog and other counts, exact because offsets have no gaps. Pass `tails` if they are
        known."""
        shards = [
            self._shard_status(key, tail)
            for shard, tail in enumerate(tails or self._tails(topic))
            for key in self._statuses.keys(topic, group, shard)
        ]
        now_ms = self._clock.now_ms()
        ages = [
            now_ms - accepted_ms
            for s in shards
            if s.backlog and (accepted_ms := self._floor_accepted_ms(topic, s))
        ]
        unfinished_deliveries = self._records.unfinished(topic.uid, group.uid)
        lanes = self._lanes(topic, group)
        in_lanes = sum(cursor.in_flight for cursor in lanes.values())
        waiting_count = sum(span.count for s in shards for span in s.cursor.waiting if span.attempt > 1)
        here = {(each.shard, each.consumer_uid) for each in shards}  # of who has left, nothing is counted
        # of all others the cursor tells
        entries = (each for each in unfinished_deliveries if each.timed or each.status == Status.DEAD)
        apart = [each for each in entries if (each.shard, each.consumer_uid) in here]
        return GroupStatus(
            backlog=sum(s.backlog for s in shards),
            in_flight=sum(s.cursor.in_flight for s in shards) + in_lanes,
            retrying=waiting_count + sum(each.status == Status.RETRYING for each in apart),
            dead=self._records.count_dead(topic.uid, group.uid),
            oldest_age_seconds=max(0, *ages) // 1000 if ages else None,
            account=_account(shards, apart, in_lanes - self._older_in_lanes(lanes, shards, apart)),
            shards=tuple(shards),
        )

    def _lanes(self, topic: Topic, group: Group) -> dict[CursorKey, Cursor]:
        """The cursors of the group's retry lanes: their leases are of messages that are being tried again."""
        keys = self._statuses.keys(topic, group, None)
        return {key: self._statuses.cursor(key, consistent=False) for key in keys}

    def _older_in_lanes(
        self, lanes: Mapping[CursorKey, Cursor], shards: Sequence[ShardStatus], apart: Sequence[Unfinished]
    ) -> int:
        """How many leases in the lanes are of deliveries from before a seek, whose message is counted where the newer
        delivery is: in its shard's cursor, or dead. It reads their entries, if a record tells that there may be such
        a delivery."""
        cursors = {(each.shard, each.consumer_uid): each.cursor for each in shards}
        dead_places = {
            (each.shard, each.consumer_uid, each.offset) for each in apart if each.status == Status.DEAD
        }
        if not dead_places and all(
            _has_left(cursors, each.shard, each.consumer_uid, each.offset) for each in apart
        ):
            return 0
        count = 0
        for key, cursor in lanes.items():
            leased_offsets = [offset for lease in cursor.leases.values() for offset in lease.attempts()]
            for slot in self._reader.fetch(key.shard, leased_offsets).values():
                origin = slot.message.draft.origin if slot.message else None
                if origin is None:
                    continue
                place = origin.shard, key.consumer_uid, origin.offset
                if place in dead_places or not _has_left(cursors, *place):
                    count += 1
        return count

    def _shard_status(self, key: CursorKey, tail: int) -> ShardStatus:
        cursor = raise_floor(self._statuses.cursor(key))
        backlog = tail + 1 - cursor.floor - ranges.total(cursor.settled)
        return ShardStatus(
            shard=key.shard.shard,
            consumer_uid=key.consumer_uid,
            tail=tail,
            cursor=cursor,
            backlog=max(0, backlog),
        )

    def _floor_accepted_ms(self, topic: Topic, status: ShardStatus) -> int | None:
        slot = self._reader.fetch(topic.shard_key(status.shard), [status.cursor.floor])[status.cursor.floor]
        return slot.message.accepted_ms if slot.message else None


def _has_left(cursors: Mapping[tuple[int, str], Cursor], shard: int, consumer_uid: str, offset: int) -> bool:
    """Did the latest delivery leave its shard's cursor? One that did not was begun by a seek, beside an older one."""
    cursor = cursors.get((shard, consumer_uid))
    return cursor is None or offset_state(cursor, offset)[0] is OffsetState.SETTLED


def _account(
    shards: Sequence[ShardStatus], unfinished_deliveries: Iterable[Unfinished], in_lanes: int
) -> Account:
    """Where all deliveries of a group are."""
    elsewhere: defaultdict[tuple[int, str], list[tuple[int, str]]] = defaultdict(list)
    for each in unfinished_deliveries:
        elsewhere[each.shard, each.consumer_uid].append((each.offset, each.status))
    parts = (account(s.cursor, s.tail, elsewhere[s.shard, s.consumer_uid]) for s in shards)
    return with_running_in_lanes(sum(parts, Account()), in_lanes)
