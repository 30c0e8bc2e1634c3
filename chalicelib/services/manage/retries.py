"""Deliveries that wait for another attempt: found by a filter, page by page, and made due at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...domain import cursor_transitions as transitions
from ...domain import cursor_write
from ...domain.call_result import in_words
from ...domain.cursor import Cursor
from ...domain.message import Message
from ...domain.record import Failure, FailureFilter, Record
from ...domain.spans import in_order
from ...domain.timer import Timer
from ...domain.topic import CursorKey, Group, Topic, cursor_key, lane_of
from ...ports.world import Clock
from ...store import Cursors, Records
from ..consume import retry_lane
from ..core.catalog import Catalog
from ..core.cursor_store import CursorSnapshot, CursorStore
from ..core.log_reader import LogReader
from ..core.wake import Waker
from ..inspect.letter_lookup import LetterLookup
from ..inspect.statuses import Statuses
from ..produce.producer import Producer

_LANE = -1  # before a group's shards
_LOOKS = 200  # at what waits in cursors, in one page: each reads a record
_ENTRIES_PER_WRITE = 40  # an update expression holds 4 KB
# How far a list has come: first through the cursors, `[consumer uid, shard, offset]`, then through the records,
# `[sort key]` ("": at their beginning).
Position = Sequence[Any]


@dataclass(frozen=True, slots=True)
class WaitingRetry:
    """A delivery whose next attempt is not due yet: it waits in a cursor at this offset, or as a timer."""

    key: CursorKey
    offset: int
    failure: Failure
    timer: Timer | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Retries:
    """What waits for its next attempt, in cursors (in SERIAL, or where it was given back) and as timers. `on_filled` is
    called with the retry lanes that got an entry."""

    catalog: Catalog
    letter_lookup: LetterLookup
    statuses: Statuses
    cursors: Cursors
    records: Records
    reader: LogReader
    states: CursorStore
    producer: Producer
    waker: Waker
    clock: Clock
    on_filled: Callable[[CursorKey], None]

    def page(
        self,
        topic: Topic,
        group: Group,
        uid: str | None,
        which: FailureFilter,
        after: Position | None,
        limit: int,
    ) -> tuple[list[WaitingRetry], Position | None]:
        """Up to `limit` deliveries that wait, of one consumer of a broadcast or (None) of all, and the next position
        (None: the end). A page may be empty before the end."""
        found: list[WaitingRetry] = []
        if after is None or len(after) > 1:
            for looks, (place, key) in enumerate(self._places(topic, group, uid, after), 1):
                if each := self._in_cursor(topic, group, key, place[-1], which):
                    found.append(each)
                if len(found) == limit or looks == _LOOKS:
                    return found, place
            return found, [""]
        rows, end = self.records.waiting(topic, group, self.clock.now_ms(), after[0] or None)
        for position, record in rows:
            key = cursor_key(topic, group, record.shard, record.consumer_uid)
            is_wanted = uid in (None, record.consumer_uid)
            if is_wanted and (each := self._by_timer(topic, group, key, record, which)):
                found.append(each)
            if len(found) == limit:
                return found, [position]
        return found, [end] if end else None

    def of_messages(
        self, topic: Topic, group: Group, uid: str | None, ids: Sequence[str]
    ) -> list[WaitingRetry]:
        """Those of these messages that wait."""
        places = (place for id in ids for place in self.letter_lookup.locations(topic, group, id))
        own = [(key, offset) for key, offset in places if uid in (None, key.consumer_uid)]
        return [each for key, offset in own if (each := self._at(topic, group, key, offset))]

    def _at(self, topic: Topic, group: Group, key: CursorKey, offset: int) -> WaitingRetry | None:
        now_ms, everything = self.clock.now_ms(), FailureFilter()
        record = self.records.get(key, offset)
        is_early = record is not None and (record.next_ms or 0) > now_ms
        if record and is_early and (each := self._by_timer(topic, group, key, record, everything)):
            return each
        entry = self.statuses.lane_entry(topic, group, key, offset) if record else None
        if entry:
            key, offset = cursor_key(topic, group, None, key.consumer_uid), entry.offset
        waiting = self.statuses.stored_cursor(key).waiting
        is_waiting = any(span.due_ms > now_ms and span.holds(offset) for span in waiting)
        return self._in_cursor(topic, group, key, offset, everything) if is_waiting else None

    def _by_timer(
        self, topic: Topic, group: Group, key: CursorKey, record: Record, which: FailureFilter
    ) -> WaitingRetry | None:
        """The timer of a record, if it matches; what has none is in the lane already."""
        if not which.reads_draft and not which.matches(_failure("", record)):
            return None
        timer = self.statuses.retry_timer(group, key, record)
        if timer is None or timer.draft is None or timer.draft.origin is None:
            return None
        failure = _failure(timer.draft.origin.id, record)
        if which.reads_draft:
            entry = Message(failure.id, 0, 0, 0, timer.draft)
            message = retry_lane.resolve(self.reader, topic, entry, self.reader.recent())
            failure = replace(failure, draft=message.draft)
        return WaitingRetry(key, record.offset, failure, timer) if which.matches(failure) else None

    def _places(
        self, topic: Topic, group: Group, uid: str | None, after: Position | None
    ) -> Iterator[tuple[Position, CursorKey]]:
        """The positions behind `after` of what waits in cursors, each with its cursor."""
        owners = self.catalog.cursor_owners(topic, group)
        for owner in sorted(owners if uid is None else {uid} & set(owners)):
            if after and owner < after[0]:
                continue
            cursors = self.cursors.of_owner(group.uid, owner, consistent=True)
            for number in (_LANE, *topic.shard_numbers):
                key = cursor_key(topic, group, None if number == _LANE else number, owner)
                now_ms, cursor = self.clock.now_ms(), cursors.get(str(key.shard), Cursor())
                for offset, span in in_order(cursor.waiting):
                    if span.due_ms > now_ms and (after is None or [owner, number, offset] > list(after)):
                        yield [owner, number, offset], key

    def _in_cursor(
        self, topic: Topic, group: Group, key: CursorKey, offset: int, which: FailureFilter
    ) -> WaitingRetry | None:
        """What waits in a cursor, if it matches."""
        slot = self.reader.fetch(key.shard, [offset], self.reader.recent())[offset]
        if slot.message is None:
            return None
        message = retry_lane.resolve(self.reader, topic, slot.message, self.reader.recent())
        own_key = cursor_key(topic, group, message.shard, key.consumer_uid)
        record = self.records.get(own_key, message.offset)
        failure = Failure(message.id, message.accepted_ms, None, None, message.draft)
        if record:
            failure = replace(_failure(message.id, record), draft=message.draft)
        return WaitingRetry(key, offset, failure) if which.matches(failure) else None

    def make_due(self, topic: Topic, group: Group, waiting: Sequence[WaitingRetry]) -> int:
        """Make their next attempts due now; how many did not happen meanwhile."""
        count = 0
        in_cursors: dict[CursorKey, list[int]] = {}
        timers: dict[str, list[Timer]] = {}
        for each in waiting:
            if each.timer:
                timers.setdefault(each.key.consumer_uid, []).append(each.timer)
            else:
                in_cursors.setdefault(each.key, []).append(each.offset)
        for key, offsets in in_cursors.items():
            for start in range(0, len(offsets), _ENTRIES_PER_WRITE):
                count += self._make_due(key, offsets[start : start + _ENTRIES_PER_WRITE])
        for uid, members in timers.items():
            moves = [(timer, timer.draft) for timer in members if timer.draft]
            results = self.producer.move(lane_of(topic, group, uid), moves)
            count += sum(result is not None for result in results)
            self.on_filled(cursor_key(topic, group, None, uid))
        if count:
            self.waker.wake_group(topic, group)
        return count

    def _make_due(self, key: CursorKey, offsets: Sequence[int]) -> int:
        number = 0

        def attempt(state: CursorSnapshot) -> cursor_write.Change | None:
            nonlocal number
            after, number = state.cursor, 0
            for offset in offsets:
                if changed := transitions.retry_now(after, offset):
                    after, number = changed, number + 1
            after = replace(after, epoch=state.cursor.epoch + 1)
            return cursor_write.change(state.cursor, after) if number else None

        self.states.read(key)
        self.states.update(key, attempt)
        return number


def _failure(id: str, record: Record) -> Failure:
    return Failure(id, record.at_ms, record.reason, in_words(record.last_error, record.answer), None)
