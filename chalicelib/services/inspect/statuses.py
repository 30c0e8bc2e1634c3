"""The status of a message for each group, read from cursors, delivery records, timers and retry lanes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from operator import attrgetter

from ...domain import cursor_transitions as transitions
from ...domain import ranges
from ...domain.call_result import Answer, in_words
from ...domain.cursor import Cursor, Lease, OffsetState, offset_state
from ...domain.message import Draft, Message, overall
from ...domain.record import Record
from ...domain.retry_policy import last_attempt
from ...domain.spans import Span, in_order
from ...domain.status import OVER, Status, combined
from ...domain.timer import Timer, retry_id
from ...domain.topic import CursorKey, Group, Topic, cursor_key
from ...modes import POLICIES
from ...ports.world import Clock
from ...store import Cursors, Records, Timers
from ..core.catalog import Catalog
from ..core.log_reader import LogReader

_NEAR = 4  # offsets that are no further from one another are of one page
_AHEAD = 64


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    """The status of one message for one group. In a broadcast it combines those of its `consumers`, by name.

    `retries_left` does not count the first attempt, nor one that is under way; after a redrive all count again."""

    status: Status
    attempts: int
    next_attempt_ms: int | None = None
    last_error: str | None = None
    reason: str | None = None
    retries_left: int = 0
    answer: Answer | None = None
    consumers: Mapping[str, DeliveryStatus] = field(default_factory=dict)

    @property
    def failure(self) -> str | None:
        """What went wrong at last, in words."""
        return in_words(self.last_error, self.answer)


@dataclass(frozen=True, slots=True)
class OpenLease:
    """A lease of a message in a cursor, and in a broadcast the consumer whose cursor it is in. `has_lapsed`: it has
    ended, and no claim has taken it back yet."""

    lease: Lease
    consumer_uid: str
    attempt: int
    has_lapsed: bool


@dataclass(frozen=True, slots=True)
class LaneEntry:
    """The entry of a retry lane at which a message is tried: its offset, the last attempt that was begun there, and its
    lease until a claim takes it back; `has_lapsed`: that has ended. `due_ms`: when it was given back there to wait
    until this time; else 0."""

    offset: int
    attempt: int
    lease: Lease | None = None
    has_lapsed: bool = False
    due_ms: int = 0
    draft: Draft | None = None

    @property
    def is_running(self) -> bool:
        """Is it being tried?"""
        return self.lease is not None and not self.has_lapsed


class RecordsAhead:
    """Records, asked for message after message. If two neighbours of a shard are asked for, the next ones are read
    together, in a broadcast for all consumers: most messages have no record, and looking for one that does not exist
    costs a read as well. What was read last of a shard is not read again."""

    def __init__(self, records: Records) -> None:
        self._records = records
        # The offset that was asked for last, and its record.
        self._last: dict[CursorKey, tuple[int, Record | None]] = {}
        # By shard: the offsets that were read together, and the records among them by consumer and offset.
        self._ahead: dict[CursorKey, tuple[range, Mapping[tuple[str, int], Record]]] = {}

    def get(self, key: CursorKey, offset: int) -> Record | None:
        """The record of one delivery, read consistently after its cursor."""
        before, record = self._last.get(key, (None, None))
        if before != offset:
            record = self._read(key, offset, is_page=before is not None and 0 < before - offset <= _NEAR)
            self._last[key] = offset, record
        return record

    def _read(self, key: CursorKey, offset: int, *, is_page: bool) -> Record | None:
        shard = replace(key, consumer_uid="")
        offsets, records = self._ahead.get(shard, (range(0), {}))
        if offset not in offsets:
            if not is_page:
                return self._records.get(key, offset)
            offsets = range(max(0, offset - _AHEAD + 1), offset + 1)
            read_records = self._records.between(key.group_uid, key.shard, offsets[0], offset)
            records = {(each.consumer_uid, each.offset): each for each in read_records}
            self._ahead[shard] = offsets, records
        return records.get((key.consumer_uid, offset))


class TopicStatuses:
    """Statuses of messages of a topic at one moment. Groups, cursors and records are read once, when needed."""

    def __init__(self, statuses: Statuses, topic: Topic) -> None:
        self.topic = topic
        self._statuses, self._catalog, self._clock = statuses, statuses.catalog, statuses.clock
        self.groups = cache(lambda: statuses.catalog.groups(topic))
        self.records = RecordsAhead(statuses.records)
        self.cursor = cache(statuses.cursor)
        self._purged = cache(statuses.records.purged)
        self._known: dict[tuple[str, str], DeliveryStatus | None] = {}
        self._owed_nothing = cache(lambda group: statuses.catalog.owed_nothing(topic, group))

    def deliveries(self, message: Message) -> Mapping[str, DeliveryStatus]:
        """The status of the message for every group that is owed it."""
        statuses = {group.name: self.delivery(group, message) for group in self.groups()}
        return {name: status for name, status in statuses.items() if status is not None}

    def overall(self, message: Message) -> str:
        """The message's own status."""
        return overall(message.draft, [s.status for s in self.deliveries(message).values()])

    def status(self, message: Message, group: Group | None) -> str | None:
        """The message's status for one group, or its own (None); None where the group is not owed it."""
        if group is None:
            return self.overall(message)
        delivery = self.delivery(group, message)
        return delivery.status if delivery else None

    def delivery(self, group: Group, message: Message) -> DeliveryStatus | None:
        """The status for one group (in a broadcast: of all its consumers). None if the group does not get the
        message."""
        key = group.uid, message.id
        if key not in self._known:
            self._known[key] = self._delivery(group, message)
        return self._known[key]

    def _delivery(self, group: Group, message: Message) -> DeliveryStatus | None:
        keys = self._catalog.cursor_keys(self.topic, group, message.shard)
        found = {key.consumer_uid: self._status(group, key, message) for key in keys}
        statuses = {uid: status for uid, status in found.items() if status}
        if not statuses:
            return None
        if message.draft.cancelled:
            return DeliveryStatus(Status.CANCELLED, 0)
        if not POLICIES[group.mode].per_consumer:
            return statuses[""]
        names = self._catalog.consumer_names(self.topic, group)
        return _broadcast_status({names.get(uid, uid): status for uid, status in statuses.items()})

    def _status(self, group: Group, key: CursorKey, message: Message) -> DeliveryStatus | None:
        # A delivery that is settled in its shard may go on in the retry lane: its lease is there, then.
        cursor = self.cursor(key)
        state, span = offset_state(cursor, message.offset)
        is_skipped = not cursor.leases and key.consumer_uid in self._owed_nothing(group)
        if state is OffsetState.NOT_OWED or (is_skipped and state is not OffsetState.SETTLED):
            return None
        record = None if state is OffsetState.NEW else self.records.get(key, message.offset)
        if state is OffsetState.SETTLED and self._was_purged(group, key, message, record):
            return None
        status, draft = _status_of(state, span, record), message.draft
        if state is OffsetState.SETTLED and not record and not group.wants(message.draft):
            return replace(status, attempts=0)  # the claim that met it settled it
        if state is OffsetState.SETTLED and record and status.status == Status.RETRYING:
            status, entry = self._retrying_status(group, key, record, status)
            draft = entry if entry and entry.origin and entry.origin.whole else draft
        if status.status in OVER:
            return status
        # a redriven delivery is settled in its shard: if this one is not, the redrive was before a seek
        is_settled = state is OffsetState.SETTLED
        attempts_before_redrive = record.attempts_before_redrive if record and is_settled else 0
        last = last_attempt(self.topic, group, draft, attempts_before_redrive)
        return replace(status, retries_left=max(0, last - max(1, status.attempts)))

    def _was_purged(self, group: Group, key: CursorKey, message: Message, record: Record | None) -> bool:
        """Did a purge drop the delivery? Of one that its cursor held there is a note, and no record of an end."""
        if record and not record.waited_in_cursor:
            return record.status == Status.SKIPPED
        may_be = self.cursor(key).skipped and group.wants(message.draft)
        return bool(may_be) and ranges.contains(self._purged(key), message.offset)

    def _retrying_status(
        self, group: Group, key: CursorKey, record: Record, status: DeliveryStatus
    ) -> tuple[DeliveryStatus, Draft | None]:
        """The status of a delivery that is settled in its shard and goes on in its timer or in the retry lane; and what
        the timer holds, or the entry once it was claimed."""
        early = (record.next_ms or 0) > self._clock.now_ms()
        if early and (timer := self._statuses.retry_timer(group, key, record)):
            return status, timer.draft
        if entry := self._statuses.lane_entry(self.topic, group, key, record.offset):
            if entry.is_running:
                running = replace(status, status=Status.RUNNING, attempts=entry.attempt, next_attempt_ms=None)
                return running, entry.draft
            next_ms = entry.due_ms or (None if early else status.next_attempt_ms)
            attempts = max(status.attempts, entry.attempt)
            return replace(status, attempts=attempts, next_attempt_ms=next_ms), entry.draft
        return replace(status, next_attempt_ms=None) if early else status, None

    def open_leases(self, group: Group, message: Message) -> Iterator[OpenLease]:
        """The leases of the message that no claim has taken back: at most one, or in a broadcast one for each consumer.
        Retry lanes are read again, and a cursor where the message waits to be claimed."""
        for key in self._catalog.cursor_keys(self.topic, group, message.shard):
            cursor, now_ms = self.cursor(key), self._clock.now_ms()
            state, span = offset_state(cursor, message.offset)
            if state is OffsetState.SETTLED:
                entry = self._statuses.lane_entry(self.topic, group, key, message.offset)
                if entry and entry.lease:
                    yield OpenLease(entry.lease, key.consumer_uid, entry.attempt, entry.has_lapsed)
                continue
            if state is OffsetState.RETRYING and span and span.due_ms <= now_ms:
                cursor = self._statuses.stored_cursor(key)
            for lease in cursor.leases.values():
                if attempt := lease.attempts().get(message.offset):
                    yield OpenLease(lease, key.consumer_uid, attempt, lease.deadline_ms <= now_ms)


@dataclass(kw_only=True, frozen=True, slots=True)
class Statuses:
    """Reads only; nothing here changes anything."""

    catalog: Catalog
    cursors: Cursors
    records: Records
    timers: Timers
    reader: LogReader
    clock: Clock

    def of_topic(self, topic: Topic) -> TopicStatuses:
        """The statuses of several messages of a topic, which it reads when they are asked for."""
        return TopicStatuses(self, topic)

    def cursor(self, key: CursorKey) -> Cursor:
        """The cursor as the next claim will see it: leases that have ended are taken back."""
        return transitions.lapse(self.stored_cursor(key), self.clock.now_ms())

    def stored_cursor(self, key: CursorKey) -> Cursor:
        """The cursor as it is stored."""
        return self.cursors.get(key, consistent=True) or Cursor()

    def retry_timer(self, group: Group, key: CursorKey, record: Record) -> Timer | None:
        """The timer that will move the delivery to its retry lane; None if it has moved already."""
        if record.next_ms is None:
            return None
        id = retry_id(group.uid, key.consumer_uid, key.shard.shard, record.offset, record.attempts)
        return self.timers.find(record.next_ms, id)

    def lane_entry(self, topic: Topic, group: Group, key: CursorKey, offset: int) -> LaneEntry | None:
        """How far the message of this place is with attempts in the retry lane; None where it has had none there."""
        lane = cursor_key(topic, group, None, key.consumer_uid)
        for entry in _lane_entries(self.stored_cursor(lane), self.clock.now_ms()):
            (slot,) = self.reader.fetch(lane.shard, [entry.offset]).values()
            origin = slot.message.draft.origin if slot.message else None
            if origin and (origin.shard, origin.offset) == (key.shard.shard, offset):
                draft = slot.message.draft if slot.message else None
                return replace(entry, attempt=origin.attempts + entry.attempt, draft=draft)
        return None


def _lane_entries(lane: Cursor, now_ms: int) -> Iterator[LaneEntry]:
    for lease in lane.leases.values():
        for offset, attempt in lease.attempts().items():
            yield LaneEntry(offset, attempt, lease, lease.deadline_ms <= now_ms)
    for offset, span in in_order(lane.waiting):
        yield LaneEntry(offset, span.attempt - 1, due_ms=span.next_ms or 0)


def _status_of(state: OffsetState, span: Span | None, record: Record | None) -> DeliveryStatus:
    """What cursor and record say together: the cursor about the present, the record about the past."""
    error, answer = (record.last_error, record.answer) if record else (None, None)
    if state is OffsetState.RUNNING:
        return DeliveryStatus(Status.RUNNING, span.attempt if span else 1, None, error, answer=answer)
    if state is OffsetState.NEW:
        return DeliveryStatus(Status.NEW, 0)
    if state is OffsetState.RETRYING and span:
        return DeliveryStatus(Status.RETRYING, span.attempt - 1, span.next_ms, error, answer=answer)
    if record is None or record.waited_in_cursor:
        return DeliveryStatus(Status.SUCCESS, 1)
    next_ms = (record.next_ms or None) if record.status == Status.RETRYING else None
    return DeliveryStatus(record.status, record.attempts, next_ms, error, record.reason, answer=answer)


def _broadcast_status(consumers: Mapping[str, DeliveryStatus]) -> DeliveryStatus:
    """What a broadcast's consumers have come to: the most attempts, the next of all, what went wrong at worst."""
    statuses = list(consumers.values())
    status = combined([each.status for each in statuses])
    failures = [each for each in statuses if each.last_error or each.reason]
    worst = next((each for each in failures if each.status == status), failures[0] if failures else None)
    attempts, left = (max(map(attrgetter(name), statuses)) for name in ("attempts", "retries_left"))
    next_ms = min((each.next_attempt_ms for each in statuses if each.next_attempt_ms), default=None)
    error, answer = (worst.last_error, worst.answer) if worst else (None, None)
    reason = worst.reason if worst and status == Status.DEAD else None
    return DeliveryStatus(status, attempts, next_ms, error, reason, left, answer, consumers)
