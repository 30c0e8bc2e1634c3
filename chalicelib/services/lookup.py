"""Seeing messages: one by id with its status per group, lists with filters, backlog and other counts."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..domain import cursor as algebra
from ..domain import ids, ranges
from ..domain.cursor import Cursor, Position, Span
from ..domain.errors import NotFound
from ..domain.limits import MAX_ANSWER_BYTES
from ..domain.message import Message, overall
from ..domain.segment import Segment
from ..domain.timer import Timer, retry_id
from ..domain.topic import CursorKey, Group, Topic, cursor_key
from ..domain.transaction import Transaction
from ..ports import Clock, Cursors, Log, Record, Records, Timers
from .catalog import Catalog
from .delayed import Delayed, Waiting
from .reader import Reader

_ROWS = 16
_ROWS_PER_PAGE = 512  # what one page of a list reads at most; a sparse filter goes on with the next page
_SEVERITY = ("SUCCESS", "NEW", "RUNNING", "RETRYING", "DEAD")


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    """How far one group is with one message."""

    status: str
    attempts: int
    next_attempt_ms: int | None = None
    last_error: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list is narrowed to. `status` is the group's where there is one, else the message's over all groups."""

    group: Group | None = None
    status: str | None = None
    tag: str | None = None
    shard: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(frozen=True, slots=True)
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
    shards: tuple[ShardStatus, ...]


class Lookup:
    """Reads only; nothing here changes anything."""

    def __init__(
        self,
        catalog: Catalog,
        log: Log,
        cursors: Cursors,
        records: Records,
        timers: Timers,
        reader: Reader,
        delayed: Delayed,
        clock: Clock,
    ) -> None:
        self._timers = timers
        self._delayed = delayed
        self._catalog = catalog
        self._log = log
        self._cursors = cursors
        self._records = records
        self._reader = reader
        self._clock = clock

    def find(self, topic: Topic, message_id: str) -> Message | Waiting | Transaction:
        """The message with this id, in the log or before it; or NotFound."""
        return self._delayed.find(topic, message_id) or self.message(topic, message_id)

    def message(self, topic: Topic, message_id: str) -> Message:
        """The message with this id in the log, or NotFound. One read; more for one that was delayed."""
        message = self._in_its_place(topic, message_id)
        if message is None and ids.parse_message_id(message_id) is None:
            found = self._delayed.find(topic, message_id)
            message = found if isinstance(found, Message) else None
        if message:
            return message
        raise NotFound(
            "MESSAGE_NOT_FOUND", f"Topic {topic.name!r} has no message with this id; it may have expired."
        )

    def _in_its_place(self, topic: Topic, message_id: str) -> Message | None:
        """The message whose id tells its shard and offset."""
        place = ids.parse_message_id(message_id)
        if place is None or place[1] >= topic.shards:
            return None
        slot = self._reader.fetch(topic.shard_key(place[1]), [place[2]], self._reader.recent())[place[2]]
        return slot.message if slot.message and slot.message.id == message_id else None

    def standing(self, topic: Topic, message_id: str) -> str:
        """NEW, or what keeps a message from everybody: DELAYED, CANCELLED. Few reads: a message that was
        delayed is NEW once it is due, whatever became of it then."""
        timed = ids.parse_timed_id(message_id)
        if timed and (waiting := self._delayed.waiting(message_id, timed.due_ms)):
            return "CANCELLED" if waiting.cancelled else "DELAYED"
        message = self._in_its_place(topic, message_id)
        return "CANCELLED" if message and message.draft.cancelled else "NEW"

    def deliveries(self, topic: Topic, message: Message) -> dict[str, DeliveryStatus]:
        """The status of the message for every group that is owed it."""
        found = {group.name: self.delivery(topic, group, message) for group in self._catalog.groups(topic)}
        return {name: status for name, status in found.items() if status is not None}

    def _overall(self, topic: Topic, message: Message) -> str:
        """The status of the message over all groups."""
        return overall(message.draft, [s.status for s in self.deliveries(topic, message).values()])

    def delivery(self, topic: Topic, group: Group, message: Message) -> DeliveryStatus | None:
        """The status for one group: of a broadcast, the worst of its consumers'. None where it is not owed it."""
        keys = self._cursor_keys(topic, group, message.shard)
        statuses = [self._status(topic, group, key, message.offset) for key in keys]
        if message.draft.cancelled:
            return DeliveryStatus("CANCELLED", 0) if any(statuses) else None
        return max((s for s in statuses if s), key=lambda s: _SEVERITY.index(s.status), default=None)

    def _cursor_keys(self, topic: Topic, group: Group, shard: int) -> list[CursorKey]:
        return [cursor_key(topic, group, shard, uid) for uid in self._catalog.cursor_owners(topic, group)]

    def _cursor(self, key: CursorKey, *, consistent: bool = True) -> Cursor:
        """The cursor as the next claim will find it: leases that have ended hold nothing."""
        stored = self._cursors.get(key, consistent=consistent) or Cursor()
        return algebra.expire(stored, self._clock.now_ms())

    def _status(self, topic: Topic, group: Group, key: CursorKey, offset: int) -> DeliveryStatus | None:
        place, span = algebra.position(self._cursor(key), offset)
        if place is Position.NOT_OWED:
            return None
        if place is Position.NEW:
            return DeliveryStatus("NEW", 0)
        record = self._records.get(key, offset)
        told = _told(place, span, record)
        if place is Position.SETTLED and record and told.status == "RETRYING":
            return self._retrying(topic, group, key, record, told)
        return told

    def _retrying(
        self, topic: Topic, group: Group, key: CursorKey, record: Record, told: DeliveryStatus
    ) -> DeliveryStatus:
        """The status of what is settled in its shard: its timer or the retry lane has it."""
        early = (record.next_ms or 0) > self._clock.now_ms()
        if early and self.retry_timer(group, key, record):
            return told
        if attempt := self.attempt_in_lane(topic, group, key, record.offset):
            return DeliveryStatus("RUNNING", attempt, None, told.last_error)
        return replace(told, next_attempt_ms=None) if early else told

    def retry_timer(self, group: Group, key: CursorKey, record: Record) -> Timer | None:
        """The timer that will take the delivery to its retry lane; None where it has."""
        if record.next_ms is None:
            return None
        id = retry_id(group.uid, key.consumer_uid, key.shard.shard, record.offset, record.attempts)
        return self._timers.find(record.next_ms, id)

    def attempt_in_lane(self, topic: Topic, group: Group, key: CursorKey, offset: int) -> int | None:
        """The number of the attempt that is under way in the retry lane for the message of this place."""
        lane = cursor_key(topic, group, None, key.consumer_uid)
        leases = self._cursor(lane).leases
        leased = {o: n for lease in leases.values() for o, n in lease.attempts().items()}
        for slot in self._reader.fetch(lane.shard, leased).values():
            origin = slot.message.draft.origin if slot.message else None
            if origin and (origin.shard, origin.offset) == (key.shard.shard, offset):
                return origin.attempts + leased[slot.offset]
        return None

    def newest_first(
        self, topic: Topic, filters: Filters, limit: int, starts: dict[int, int] | None
    ) -> tuple[list[Message], dict[int, int] | None]:
        """Up to `limit` messages, newest first, and where the next page starts in each shard (None: the end)."""
        shards = [filters.shard] if filters.shard is not None else list(range(topic.shards))
        if starts is None:
            starts = {shard: self._log.tail(topic.shard_key(shard)).offset for shard in shards}
        left = {shard: start for shard, start in starts.items() if start >= 0}
        budget = _Budget(_ROWS_PER_PAGE)
        walks = [
            self._walk(topic, shard, start, filters, budget, left) for shard, start in left.copy().items()
        ]
        found: list[Message] = []
        weight = 0
        for message in heapq.merge(*walks, key=lambda m: (-m.accepted_ms, -m.offset)):
            in_time = filters.to_ms is None or message.accepted_ms <= filters.to_ms
            passes = in_time and self.passes(topic, filters, message)
            weight += message.draft.weight if passes else 0
            if found and weight > MAX_ANSWER_BYTES:
                break
            left[message.shard] = message.offset - 1
            if passes:
                found.append(message)
            if len(found) == limit or budget.spent:
                break
        rest = {shard: start for shard, start in left.items() if start >= 0}
        return found, rest or None

    def _walk(
        self, topic: Topic, shard: int, start: int, filters: Filters, budget: _Budget, left: dict[int, int]
    ) -> Iterator[Message]:
        """Messages of one shard from `start` back to the filter's `from`; marks the shard's end in `left`."""
        key = topic.shard_key(shard)
        at = start
        wanted = 1  # the walks of all shards must have begun before the budget is spent
        while at >= 0 and not budget.spent:
            rows = self._log.read_back(key, at, wanted)
            budget.take(len(rows))
            wanted = min(_ROWS, wanted * 4)
            for row in rows:
                if filters.from_ms is not None and row.accepted_ms < filters.from_ms:
                    rows = []
                    break
                yield from _back(row, shard, at)
                at = row.first - 1
                left[shard] = min(left[shard], at)  # a tombstone yields nothing, and yet is behind us
            if not rows:
                left[shard] = -1
                return

    def passes(self, topic: Topic, filters: Filters, message: Message) -> bool:
        """Is the message what the filters ask for, its time aside?"""
        if filters.shard not in (None, message.shard) or filters.tag not in (None, message.draft.tag):
            return False
        if filters.group is None:
            return filters.status is None or filters.status == self._overall(topic, message)
        status = self.delivery(topic, filters.group, message)
        return status is not None and filters.status in (None, status.status)

    def stats(self, topic: Topic) -> tuple[int, dict[str, GroupStatus]]:
        """How many messages the topic has taken in its life, and the status of each group."""
        tails = self._tails(topic)
        groups = self._catalog.groups(topic)
        accepted = sum(tail + 1 for tail in tails)
        return accepted, {group.name: self.group_status(topic, group, tails) for group in groups}

    def _tails(self, topic: Topic) -> list[int]:
        return [self._log.tail(topic.shard_key(shard)).offset for shard in range(topic.shards)]

    def group_status(self, topic: Topic, group: Group, tails: Sequence[int] | None = None) -> GroupStatus:
        """Backlog and the like: exact, because offsets are dense. `tails` where they are known already."""
        shards = [
            self._shard_status(key, tail)
            for shard, tail in enumerate(tails or self._tails(topic))
            for key in self._cursor_keys(topic, group, shard)
        ]
        now_ms = self._clock.now_ms()
        ages = [now_ms - accepted for s in shards if s.backlog and (accepted := self._accepted(topic, s))]
        return GroupStatus(
            backlog=sum(s.backlog for s in shards),
            in_flight=sum(s.cursor.in_flight for s in shards) + self._in_lanes(topic, group),
            retrying=sum(span.count for s in shards for span in s.cursor.waiting if span.attempt > 1)
            + self._records.count_retrying(topic.uid, group.uid),
            dead=self._records.count_dead(topic.uid, group.uid),
            oldest_age_seconds=max(ages) // 1000 if ages else None,
            shards=tuple(shards),
        )

    def _in_lanes(self, topic: Topic, group: Group) -> int:
        """How many messages are being tried again at the moment."""
        owners = self._catalog.cursor_owners(topic, group)
        lanes = (cursor_key(topic, group, None, uid) for uid in owners)
        return sum(self._cursor(lane, consistent=False).in_flight for lane in lanes)

    def _shard_status(self, key: CursorKey, tail: int) -> ShardStatus:
        cursor = algebra.fold(self._cursor(key))
        unsettled = tail + 1 - cursor.floor - ranges.total(cursor.settled)
        return ShardStatus(key.shard.shard, key.consumer_uid, tail, cursor, max(0, unsettled))

    def _accepted(self, topic: Topic, status: ShardStatus) -> int | None:
        slot = self._reader.fetch(topic.shard_key(status.shard), [status.cursor.floor])[status.cursor.floor]
        return slot.message.accepted_ms if slot.message else None


@dataclass(slots=True)
class _Budget:
    """How many rows a page may still read."""

    left: int

    def take(self, rows: int) -> None:
        self.left -= rows

    @property
    def spent(self) -> bool:
        return self.left <= 0


def _back(row: Segment, shard: int, at: int) -> Iterable[Message]:
    for offset in range(min(row.end - 1, at), row.first - 1, -1):
        message = row.message(shard, offset)
        if message:
            yield message


def _told(place: Position, span: Span | None, record: Record | None) -> DeliveryStatus:
    """What cursor and record say together: the cursor about the present, the record about the past."""
    attempts = span.attempt if span else 1
    error = record.last_error if record else None
    if place is Position.RUNNING:
        return DeliveryStatus("RUNNING", attempts, None, error)
    if place is Position.NEW:
        return DeliveryStatus("NEW", 0)
    if place is Position.RETRYING and span:
        return DeliveryStatus("RETRYING", span.attempt - 1, span.due_ms or None, error)
    if record is None:
        return DeliveryStatus("SUCCESS", 1)
    return DeliveryStatus(
        record.status,
        record.attempts,
        record.next_ms if record.status == "RETRYING" else None,
        error,
        record.reason,
    )
