"""Finds messages: one by id, with its status per group; lists with filters; backlog and other counts."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from ...domain import ids, ranges
from ...domain.account import Account, account, under_way
from ...domain.cursor import Cursor, Position, fold, position
from ...domain.errors import Conflict, NotFound, newer_format
from ...domain.limits import FRAGMENTS, MAX_ANSWER_BYTES, RETENTION_GRACE
from ...domain.message import Message
from ...domain.record import Unfinished
from ...domain.segment import Segment
from ...domain.status import OPEN, Status
from ...domain.topic import CursorKey, Group, Topic
from ...domain.transaction import UNDECIDED, Transaction, TransactionState
from ...ports.control import leave_out
from ...ports.log import Log
from ...ports.records import Records
from ...ports.timers import Timers
from ...ports.transactions import Counted, Transactions
from ...ports.world import Clock
from ..core.catalog import Catalog
from ..core.log_reader import LogReader
from ..produce.delayed import Delayed, Waiting
from .statuses import Look, Statuses

_ROWS = 16
_GRACE_MS = RETENTION_GRACE // timedelta(milliseconds=1)
_UNDONE = (*OPEN, Status.NEW, Status.DEAD)
_MOST_COUNTING_MS = 8_000  # of a request: API Gateway ends one after 29 s
_MOST_COUNTED = 1_000  # timers of a fragment, transactions of a state: of more it is told "at least"
_ROWS_PER_PAGE = 512  # what one page of a list reads at most; a sparse filter goes on with the next page


Seen = Message | Waiting | Transaction
"""A message in its log, or as it waits for its time or a decision before it."""


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list is limited to. `status` is that of the named group, or without a group that over all groups."""

    group: Group | None = None
    status: str | None = None
    tag: str | None = None
    shard: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None


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


class Lookup:
    """Reads only; nothing here changes anything."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        log: Log,
        records: Records,
        reader: LogReader,
        delayed: Delayed,
        statuses: Statuses,
        timers: Timers,
        transactions: Transactions,
        clock: Clock,
    ) -> None:
        self._timers = timers
        self._transactions = transactions
        self.statuses = statuses
        self._delayed = delayed
        self._catalog = catalog
        self._log = log
        self._records = records
        self._reader = reader
        self._clock = clock

    def find(self, topic: Topic, message_id: str) -> Seen:
        """The message with this id, in the log, delayed or prepared. Raises NotFound."""
        entry = self._delayed.find(topic, message_id)
        if isinstance(entry, Message):
            return self._there(topic, entry)
        return entry or self.message(topic, message_id)

    def find_by_dedup_id(self, topic: Topic, dedup_id: str) -> Seen | None:
        """The message stored under this dedup id, while the id is remembered. One read more than `find`."""
        entry = self._log.dedup_entry(topic.uid, dedup_id)
        if entry is None or entry.expires_s * 1000 <= self._clock.now_ms():
            return None
        try:
            return self.find(topic, entry.message_id)
        except NotFound:
            return None

    def message(self, topic: Topic, message_id: str) -> Message:
        """The message with this id in the log. Raises NotFound. One read; more if it was delayed."""
        message = self._in_its_place(topic, message_id)
        if message is None and ids.parse_message_id(message_id) is None:
            entry = self._delayed.find(topic, message_id)
            message = entry if isinstance(entry, Message) else None
        return self._there(topic, message)

    def _there(self, topic: Topic, message: Message | None) -> Message:
        if message and self._is_there(topic, message):
            return message
        raise NotFound(
            "MESSAGE_NOT_FOUND", f"Topic {topic.name!r} has no message with this id; it may have expired."
        )

    def _is_there(self, topic: Topic, message: Message) -> bool:
        """Is its retention not over or, until its row is to expire, a group's delivery of it unsettled or dead? Whether
        TTL comes in time makes no difference."""
        now_ms = self._clock.now_ms()
        if now_ms < topic.keeps_until_ms(message):
            return True
        if now_ms >= message.ends_ms + _GRACE_MS:
            return False
        deliveries = self.statuses.deliveries(topic, message).values()
        return any(delivery.status in _UNDONE for delivery in deliveries)

    def _in_its_place(self, topic: Topic, message_id: str) -> Message | None:
        """The message whose id tells its shard and offset. Raises Conflict where only a later release can read it."""
        location = ids.parse_message_id(message_id)
        if location is None or location[1] >= topic.shards:
            return None
        _, shard, offset = location
        slot = self._reader.fetch(topic.shard_key(shard), [offset], self._reader.recent())[offset]
        if slot.newer:
            raise newer_format()
        return slot.message if slot.message and slot.message.id == message_id else None

    def standing(self, topic: Topic) -> Callable[[str], str]:
        """Returns a function from a message id to its status, as produce shows it of a duplicate; NEW if the message
        has expired. Groups and cursors are read once for all ids."""
        look = self.statuses.look(topic)

        def status_of(message_id: str) -> str:
            try:
                message = self.find(topic, message_id)
            except (NotFound, Conflict):
                return Status.NEW
            return look.overall(message) if isinstance(message, Message) else before_log(message)

        return status_of

    def newest_first(
        self,
        topic: Topic,
        filters: Filters,
        limit: int,
        starts: dict[int, int] | None,
        look: Look | None = None,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> tuple[list[Message], dict[int, int] | None]:
        """Up to `limit` messages, newest first, and where the next page starts in each shard (None: the end). Pass
        `look` to see their statuses at the same moment. Reading stops when `may_go_on()` is False."""
        look = look or self.statuses.look(topic)
        shards = [filters.shard] if filters.shard is not None else list(range(topic.shards))
        if starts is None:
            starts = {shard: self._log.tail(topic.shard_key(shard)).offset for shard in shards}
        next_offsets = {shard: start for shard, start in starts.items() if start >= 0}
        budget = _Budget(_ROWS_PER_PAGE, may_go_on)
        walks = [
            self._walk(topic, shard, start, filters, budget, next_offsets)
            for shard, start in next_offsets.copy().items()
        ]
        messages: list[Message] = []
        weight = 0
        for message in heapq.merge(*walks, key=lambda m: (-m.accepted_ms, -m.offset)):
            in_time = filters.to_ms is None or message.accepted_ms <= filters.to_ms
            passes = in_time and self.passes(look, filters, message)
            weight += message.draft.weight if passes else 0
            if messages and weight > MAX_ANSWER_BYTES:
                break
            next_offsets[message.shard] = message.offset - 1
            if passes:
                messages.append(message)
            if len(messages) == limit or budget.spent:
                break
        rest = {shard: start for shard, start in next_offsets.items() if start >= 0}
        return messages, rest or None

    def _walk(
        self,
        topic: Topic,
        shard: int,
        start: int,
        filters: Filters,
        budget: _Budget,
        next_offsets: dict[int, int],
    ) -> Iterator[Message]:
        """Messages of one shard from `start` back to the filter's `from`, or to where retention has ended; marks the
        shard's end in `next_offsets`."""
        key, now_ms = topic.shard_key(shard), self._clock.now_ms()
        from_ms = max(filters.from_ms or 0, now_ms - topic.retention_ms + 1)
        at = start
        count = 1  # the walks of all shards must have begun before the budget is spent
        while at >= 0 and not budget.spent:
            rows = self._log.read_back(key, at, count)
            budget.take(len(rows))
            count = min(_ROWS, count * 4)
            for row in rows:
                if 0 < row.accepted_ms < from_ms:  # a damaged row may not know its time
                    rows = []
                    break
                if now_ms < topic.keeps_until_ms(row):
                    yield from _back(row, shard, at)
                at = row.first - 1
                next_offsets[shard] = min(
                    next_offsets[shard], at
                )  # a tombstone yields nothing, and yet is behind us
            if not rows:
                next_offsets[shard] = -1
                return

    def passes(self, look: Look, filters: Filters, message: Message) -> bool:
        """Is the message what the filters ask for, its time aside?"""
        if filters.shard not in (None, message.shard) or filters.tag not in (None, message.draft.tag):
            return False
        if filters.group is None:
            return filters.status is None or filters.status == look.overall(message)
        status = look.delivery(filters.group, message)
        return status is not None and filters.status in (None, status.status)

    def stats(self, topics: Sequence[Topic]) -> list[TopicStats]:
        """Counts for each topic; if that takes too long, for the first topics only. Timers are counted once for all
        of them."""
        until_ms = self._clock.now_ms() + _MOST_COUNTING_MS
        delayed_counts, whole = self._delayed_by_topic() if topics else ({}, True)
        result: list[TopicStats] = []
        for topic in topics:
            if result and self._clock.now_ms() > until_ms:
                break
            result.append(self._stats(topic, Counted(delayed_counts.get(topic.uid, 0), whole)))
        return result

    def _stats(self, topic: Topic, delayed_counts: Counted) -> TopicStats:
        tails = self._tails(topic)
        transaction_counts = [self._transactions.count(topic, state, _MOST_COUNTED) for state in UNDECIDED]
        return TopicStats(
            accepted=sum(tail + 1 for tail in tails),
            delayed=delayed_counts,
            prepared=Counted(
                sum(c.number for c in transaction_counts), all(c.whole for c in transaction_counts)
            ),
            groups={
                group.name: self.group_status(topic, group, tails)
                for group in self._catalog.groups(topic, leave_out)
                if not self._catalog.has_hidden_cursors(topic, group)
            },
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

    def group_status(self, topic: Topic, group: Group, tails: Sequence[int] | None = None) -> GroupStatus:
        """The group's backlog and other counts, exact because offsets have no gaps. Pass `tails` if they are
        known."""
        shards = [
            self._shard_status(key, tail)
            for shard, tail in enumerate(tails or self._tails(topic))
            for key in self.statuses.keys(topic, group, shard)
        ]
        now_ms = self._clock.now_ms()
        ages = [
            now_ms - accepted_ms for s in shards if s.backlog and (accepted_ms := self._accepted(topic, s))
        ]
        unfinished_deliveries = self._records.unfinished(topic.uid, group.uid)
        lanes = self._lanes(topic, group)
        in_lanes = sum(cursor.in_flight for cursor in lanes.values())
        waiting_count = sum(span.count for s in shards for span in s.cursor.waiting if span.attempt > 1)
        here = {(each.shard, each.consumer_uid) for each in shards}  # of who has left, nothing is counted
        entries = (
            each for each in unfinished_deliveries if each.timed or each.status == Status.DEAD
        )  # else the cursor tells
        apart = [each for each in entries if (each.shard, each.consumer_uid) in here]
        return GroupStatus(
            backlog=sum(s.backlog for s in shards),
            in_flight=sum(s.cursor.in_flight for s in shards) + in_lanes,
            retrying=waiting_count + sum(each.status == Status.RETRYING for each in apart),
            dead=self._records.count_dead(topic.uid, group.uid),
            oldest_age_seconds=max(ages) // 1000 if ages else None,
            account=_account(shards, apart, in_lanes - self._older_in_lanes(lanes, shards, apart)),
            shards=tuple(shards),
        )

    def _lanes(self, topic: Topic, group: Group) -> dict[CursorKey, Cursor]:
        """The cursors of the group's retry lanes: their leases are of messages that are being tried again."""
        keys = self.statuses.keys(topic, group, None)
        return {key: self.statuses.cursor(key, consistent=False) for key in keys}

    def _older_in_lanes(
        self, lanes: Mapping[CursorKey, Cursor], shards: Sequence[ShardStatus], apart: Sequence[Unfinished]
    ) -> int:
        """How many leases in the lanes are of deliveries from before a seek, whose message is counted where the newer
        delivery is: in its shard's cursor, or dead. It reads their entries, if a record tells that there may be such
        a delivery."""
        cursors = {(each.shard, each.consumer_uid): each.cursor for each in shards}
        dead = {(each.shard, each.consumer_uid, each.offset) for each in apart if each.status == Status.DEAD}
        if not dead and all(_has_left(cursors, each.shard, each.consumer_uid, each.offset) for each in apart):
            return 0
        count = 0
        for key, cursor in lanes.items():
            leased_offsets = [offset for lease in cursor.leases.values() for offset in lease.attempts()]
            for slot in self._reader.fetch(key.shard, leased_offsets).values():
                origin = slot.message.draft.origin if slot.message else None
                if origin is None:
                    continue
                place = origin.shard, key.consumer_uid, origin.offset
                if place in dead or not _has_left(cursors, *place):
                    count += 1
        return count

    def _shard_status(self, key: CursorKey, tail: int) -> ShardStatus:
        cursor = fold(self.statuses.cursor(key))
        backlog = tail + 1 - cursor.floor - ranges.total(cursor.settled)
        return ShardStatus(
            shard=key.shard.shard,
            consumer_uid=key.consumer_uid,
            tail=tail,
            cursor=cursor,
            backlog=max(0, backlog),
        )

    def _accepted(self, topic: Topic, status: ShardStatus) -> int | None:
        slot = self._reader.fetch(topic.shard_key(status.shard), [status.cursor.floor])[status.cursor.floor]
        return slot.message.accepted_ms if slot.message else None


@dataclass(slots=True)
class _Budget:
    """How many rows a page may still read."""

    left: int
    may_go_on: Callable[[], bool]

    def take(self, rows: int) -> None:
        self.left -= rows

    @property
    def spent(self) -> bool:
        return self.left <= 0 or not self.may_go_on()


def _has_left(cursors: Mapping[tuple[int, str], Cursor], shard: int, consumer_uid: str, offset: int) -> bool:
    """Did the latest delivery leave its shard's cursor? One that did not was begun by a seek, beside an older one."""
    cursor = cursors.get((shard, consumer_uid))
    return cursor is None or position(cursor, offset)[0] is Position.SETTLED


def _account(
    shards: Sequence[ShardStatus], unfinished_deliveries: Iterable[Unfinished], in_lanes: int
) -> Account:
    """Where all deliveries of a group are."""
    elsewhere: defaultdict[tuple[int, str], list[tuple[int, str]]] = defaultdict(list)
    for each in unfinished_deliveries:
        elsewhere[each.shard, each.consumer_uid].append((each.offset, each.status))
    parts = (account(s.cursor, s.tail, elsewhere[s.shard, s.consumer_uid]) for s in shards)
    return under_way(sum(parts, Account()), in_lanes)


def before_log(entry: Waiting | Transaction) -> str:
    """The status of a message before its log."""
    if isinstance(entry, Transaction):
        return "CANCELLED" if entry.state is TransactionState.ROLLED_BACK else "PREPARED"
    return "CANCELLED" if entry.cancelled else "DELAYED"


def _back(row: Segment, shard: int, at: int) -> Iterable[Message]:
    for offset in range(min(row.end - 1, at), row.first - 1, -1):
        message = row.message(shard, offset)
        if message:
            yield message
