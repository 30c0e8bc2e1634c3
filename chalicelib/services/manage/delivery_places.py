"""Finds a delivery that is not over: in its shard's cursor, in its retry timer, or in the retry lane."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...domain import by_hand
from ...domain import cursor_transitions as transitions
from ...domain.cursor import Cursor, OffsetState, Selection, offset_state
from ...domain.errors import Conflict, NotFound
from ...domain.message import Draft, Message
from ...domain.ranges import Range, normalise
from ...domain.sharding import unit_of
from ...domain.spans import Span, coalesce
from ...domain.status import Status
from ...domain.timer import Timer
from ...domain.topic import CursorKey, Group, Topic, cursor_key
from ...modes import POLICIES
from ...ports.world import Clock
from ..consume import retry_lane
from ..core.cursor_store import CursorSnapshot, CursorStore
from ..core.log_reader import LogReader, Slot
from ..inspect.fate import entry_ahead
from ..inspect.statuses import Statuses

if TYPE_CHECKING:
    from ...store import Log, Records


_MOST_ROWS = 2_048  # of a retry lane
_MOST_AHEAD = 20_000  # messages before a settled one that are read
_MOST_KEYS_AHEAD = 1_000  # of a SERIAL group: each takes space in the cursor


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A delivery that is not over: where it is, its attempts, and its content. Either in a cursor (`key`, `snapshot`
    and `offset`, also of its entry in the retry lane), or in a `timer`."""

    status: Status
    attempts: int
    message: Message
    attempts_before_redrive: int = 0
    due_ms: int = 0
    key: CursorKey | None = None
    snapshot: CursorSnapshot | None = None
    offset: int = 0
    timer: Timer | None = None


class Moved(Exception):
    """The delivery is in another place than it was a moment ago."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryPlaces:
    """Reads only; nothing here changes anything."""

    states: CursorStore
    statuses: Statuses
    records: Records
    log: Log
    reader: LogReader
    clock: Clock

    def find(self, topic: Topic, group: Group, key: CursorKey, message: Message) -> Found | None:
        """Where the delivery is; None if it is over. Raises NotFound if the group is not owed the message."""
        snapshot = self.states.read(key)
        found = self._in_cursor(key, snapshot, message.offset, message)
        if found is not None:
            if found.status is Status.CANCELLED:
                raise not_owed(group)
            if message.draft.cancelled:
                raise Conflict("MESSAGE_CANCELLED", "The message was cancelled: no group gets it.")
            return found
        record = self.records.get(key, message.offset)
        if record and record.status == Status.SKIPPED:
            raise not_owed(group)
        if record is None or record.status != Status.RETRYING or record.next_ms is None:
            return None
        if timer := self.statuses.retry_timer(group, key, record):
            return self._of_timer(topic, group, key, message, timer)
        return self._in_lane(topic, group, key, message)

    def _in_cursor(self, key: CursorKey, seen: CursorSnapshot, offset: int, message: Message) -> Found | None:
        """The delivery in this cursor; None if it is settled there. CANCELLED: the cursor began behind it."""
        state, span = offset_state(transitions.lapse(seen.cursor, self.clock.now_ms()), offset)
        if state is OffsetState.SETTLED:
            return None
        if state is OffsetState.NOT_OWED or seen.cursor.is_closed:
            return Found(status=Status.CANCELLED, attempts=0, message=message)
        origin = message.draft.origin
        begun = (span.attempt - (state is not OffsetState.RUNNING)) if span else 0
        status = Status.RUNNING if state is OffsetState.RUNNING else Status.RETRYING if begun else Status.NEW
        return Found(
            status=Status.RETRYING if origin and status is Status.NEW else status,
            attempts=(origin.attempts if origin else 0) + begun,
            message=message,
            attempts_before_redrive=origin.attempts_before_redrive if origin else 0,
            due_ms=span.due_ms if span else 0,
            key=key,
            snapshot=seen,
            offset=offset,
        )

    def _of_timer(self, topic: Topic, group: Group, key: CursorKey, message: Message, timer: Timer) -> Found:
        assert timer.draft
        assert timer.draft.origin
        origin = timer.draft.origin
        return Found(
            status=Status.RETRYING,
            attempts=origin.attempts,
            message=self._content(topic, group, key, message, timer.draft),
            attempts_before_redrive=origin.attempts_before_redrive,
            due_ms=timer.due_ms,
            timer=timer,
        )

    def _content(self, topic: Topic, group: Group, key: CursorKey, message: Message, draft: Draft) -> Message:
        """The message that an entry of the lane, or its timer, holds or refers to."""
        trust = self.reader.trust(group, key.consumer_uid)
        entry = replace(message, draft=draft)
        return retry_lane.resolve(self.reader, topic, entry, trust)

    def _in_lane(self, topic: Topic, group: Group, key: CursorKey, message: Message) -> Found:
        lane = cursor_key(topic, group, None, key.consumer_uid)
        snapshot = self.states.read(lane)
        entry = self.statuses.lane_entry(topic, group, key, message.offset)
        offset = entry.offset if entry else None
        if offset is None:
            place = key.shard.shard, message.offset
            offset, _ = entry_ahead(self.log, lane.shard, snapshot.cursor.next, place, _MOST_ROWS)
        slot = self.reader.fetch(lane.shard, [offset])[offset] if offset is not None else None
        if offset is None or slot is None or slot.message is None:
            raise Moved
        content = self._content(topic, group, key, message, slot.message.draft)
        if found := self._in_cursor(lane, snapshot, offset, content):
            return found
        raise Moved

    def ahead(self, topic: Topic, group: Group, key: CursorKey, cursor: Cursor, offset: int) -> Selection:
        """What becomes of the offsets before this one that were never claimed: they wait in the cursor, in a SERIAL
        group each with its ordering key. They are read, since a late writer may still fill a hole among them. Raises
        Conflict if there are too many."""
        if offset < cursor.next:
            return Selection(next=cursor.next, segment_at=cursor.segment_at)
        reads_units = POLICIES[group.mode].reads_units
        if offset - cursor.next > (_MOST_KEYS_AHEAD if reads_units else _MOST_AHEAD):
            raise no_room()
        trust = self.reader.trust(group, key.consumer_uid, cursor.amended)
        spans: list[Span] = []
        holes: list[Range] = []
        at, slots = cursor.next, list[Slot]()
        while at <= offset:
            slots = self.reader.slots_from(key.shard, at, at, offset + 1 - at, trust)
            if not slots:
                raise Moved  # a stale read, or a young hole
            for slot in (slot for slot in slots if slot.offset < offset):
                if slot.message is None:
                    holes.append((slot.offset, min(slot.end, offset)))
                    continue
                message = retry_lane.resolve(self.reader, topic, slot.message, trust) if reads_units else None
                unit = unit_of(message.draft.ordering_key, message.draft.tenant) if message else ""
                spans.append(Span(slot.offset, 1, 1, unit))
            at = slots[-1].end
        segment_at = self.reader.segment_at(key.shard, slots, offset + 1)
        return by_hand.pass_over(coalesce(spans), normalise(holes), offset, segment_at)


def not_owed(group: Group) -> NotFound:
    """The error for a delivery that there is not."""
    return NotFound(
        "DELIVERY_NOT_FOUND",
        f"Group {group.name!r} does not get this message: it skipped it, or a purge did.",
    )


def no_room() -> Conflict:
    """The error for a change that the cursor has no space for."""
    return Conflict(
        "CURSOR_FULL",
        "Too many messages of the shard wait before this one; settle those first, or try again when fewer wait.",
    )
