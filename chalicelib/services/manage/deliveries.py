"""One delivery, by hand: find it, end it, or change what waits for its next attempt.

A delivery is in its shard's cursor, in a retry timer, or in the retry lane, and each change is one write on the
condition that it is still there: what moved meanwhile is looked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ...domain import by_hand, cursor_size, notice, ranges
from ...domain import cursor_transitions as transitions
from ...domain.cursor import Cursor, OffsetState, Selection, offset_state
from ...domain.errors import Conflict, NotFound, Refused, changed_meanwhile
from ...domain.message import DeadReason, Draft, Message
from ...domain.notice import Events
from ...domain.record import Record
from ...domain.sharding import unit_of
from ...domain.spans import Span, coalesce
from ...domain.status import Status
from ...domain.timer import Timer
from ...domain.topic import CursorKey, Group, Topic, cursor_key
from ...domain.trace import AttemptOutcome, TraceEntry
from ...modes import POLICIES
from ...ports.world import Clock
from ...store import Log, Records, Timers
from ..consume import retry_lane
from ..core.attempt_log import AttemptLog
from ..core.cursor_store import CursorSnapshot, CursorStore
from ..core.log_reader import LogReader, Slot
from ..core.wake import Waker
from ..inspect.fate import entry_ahead
from ..inspect.statuses import Statuses
from ..produce.drafts import check_size
from ..produce.producer import Producer

_TRIES = 16  # each lost to a claim, a settlement, or a move from timer to lane
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
class Deliveries:
    """Changes single deliveries of a group, in a broadcast of one consumer. `on_filled` is called with retry lanes from
    which something may be claimed sooner."""

    states: CursorStore
    statuses: Statuses
    records: Records
    log: Log
    reader: LogReader
    timers: Timers
    events: Callable[[], Events | None]
    producer: Producer
    attempt_log: AttemptLog
    waker: Waker
    clock: Clock
    on_filled: Callable[[CursorKey], None]

    def settle(
        self,
        topic: Topic,
        group: Group,
        message: Message,
        outcome: Status,
        reason: str | None = None,
        by: str = "",
        consumer_uid: str = "",
    ) -> None:
        """End a delivery that is NEW, RUNNING or RETRYING with `outcome`, SUCCESS or DEAD; its lease becomes stale.
        Safe to repeat. `by` is the token's id. Raises Conflict if it ended otherwise, and NotFound if the group is not
        owed it."""
        key = cursor_key(topic, group, message.shard, consumer_uid)

        def attempt() -> bool:
            found = self._find(topic, group, key, message)
            if found is None:
                self._check_outcome(group, key, message, outcome)
                return True
            record = self._end(topic, key, found, outcome, reason)
            # An older delivery, from before a seek, that goes on in the retry lane ends, too: the next try finds it.
            older = self.records.get(key, message.offset) if found.key == key else None
            has_older = older is not None and older.status == Status.RETRYING and older.next_ms is not None
            told = notice.without_needless_body(group, replace(record, message=found.message))
            timers = [] if has_older else notice.timers(topic, group, [told], self.events)
            records = [] if has_older else [record]
            if not self._write_end(topic, group, key, found, records, others=timers) or has_older:
                return False
            self.waker.wake_movers(timers)
            detail = " ".join(filter(None, (by or "-", outcome, reason)))
            self._note(topic, group, key, found, AttemptOutcome.SETTLED, detail)
            self.waker.wake_group(topic, group)  # what waited for it in order may go on
            return True

        _until_done(attempt)

    def _check_outcome(self, group: Group, key: CursorKey, message: Message, outcome: Status) -> None:
        """Raises Conflict unless the delivery is over with this outcome, and NotFound if a purge dropped it."""
        record = self.records.get(key, message.offset)
        is_recorded = record is not None and not record.waited_in_cursor
        if not is_recorded and ranges.contains(self.records.purged(key), message.offset):
            raise not_owed(group)
        status = record.status if record and is_recorded else Status.SUCCESS
        if status != outcome:
            text = f"The delivery to group {group.name!r} is {status} already: it stays so."
            raise Conflict("DELIVERY_OVER", text)

    def _end(self, topic: Topic, key: CursorKey, found: Found, outcome: Status, reason: str | None) -> Record:
        ended = self._record(topic, key, found, outcome, self.clock.now_ms())
        if outcome is Status.SUCCESS:
            return replace(ended, last_error=reason)
        content = retry_lane.content(found.message)
        return replace(ended, last_error=reason, reason=DeadReason.REJECTED, message=content, expires_s=None)

    def _record(self, topic: Topic, key: CursorKey, found: Found, status: Status, ends_ms: int) -> Record:
        shard, offset, now_ms = found.message.shard, found.message.offset, self.clock.now_ms()
        record = Record(shard=shard, offset=offset, status=status, attempts=found.attempts, at_ms=now_ms)
        record = replace(record, consumer_uid=key.consumer_uid, of=key, expires_s=topic.expires_s(ends_ms))
        return replace(record, attempts_before_redrive=found.attempts_before_redrive)

    def _write_end(
        self,
        topic: Topic,
        group: Group,
        key: CursorKey,
        found: Found,
        records: Sequence[Record],
        timer: Timer | None = None,
        others: Sequence[Timer] = (),
    ) -> bool:
        """Take the delivery out of its place; store `others`, too. False: it moved, or what holds it was changed."""
        if found.timer:
            return self.timers.exchange(found.timer, timer, key, records, others)
        assert found.key
        assert found.snapshot
        cursor = found.snapshot.cursor
        ahead = self._ahead(topic, group, found.key, cursor, found.offset)
        after = by_hand.end(cursor, found.offset, ahead)
        if len(after.waiting) > len(cursor.waiting) and not cursor_size.has_room_for_claim(cursor, after, 0):
            raise no_room()
        beside = records, [*filter(None, [timer]), *others]
        return self.states.write_after(found.key, found.snapshot, after, *beside) is not None

    def edit(
        self,
        topic: Topic,
        group: Group,
        message: Message,
        changes: Mapping[str, Any],
        due_ms: int | None = None,
        attempts_left: int | None = None,
        by: str = "",
        consumer_uid: str = "",
    ) -> None:
        """Change a RETRYING delivery: fields of its draft, when its next attempt is due, how many are left. `by` is the
        token's id. Raises Conflict (it is not RETRYING), Refused (in a SERIAL group what waits in order has no copy of
        its own), TooLarge."""
        if "body" in changes:
            check_size(topic, changes["body"])
        key = cursor_key(topic, group, message.shard, consumer_uid)

        def attempt() -> bool:
            found = self._find(topic, group, key, message)
            if found is None or found.status is not Status.RETRYING:
                text = f"The delivery to group {group.name!r} does not wait for another attempt: nothing was changed."
                raise Conflict("NOT_RETRYING", text)
            if found.timer is None and POLICIES[group.mode].holds_back:
                if changes or attempts_left is not None:
                    raise _keeps_its_place()
                is_done = self._postpone(found, due_ms or 0)
            else:
                new = self._with_changes(topic, group, found, changes, due_ms, attempts_left)
                is_done = self._write_edit(topic, group, key, found, new)
            if is_done:
                self._note(topic, group, key, found, AttemptOutcome.EDITED, by)
                self.on_filled(cursor_key(topic, group, None, consumer_uid))
                self.waker.wake_group(topic, group)
            return is_done

        _until_done(attempt)

    def _postpone(self, found: Found, due_ms: int) -> bool:
        assert found.key
        assert found.snapshot
        after = by_hand.postpone(found.snapshot.cursor, found.offset, due_ms)
        if not cursor_size.has_room_for_returns(after):
            raise no_room()
        return self.states.write_after(found.key, found.snapshot, after) is not None

    def _with_changes(
        self,
        topic: Topic,
        group: Group,
        found: Found,
        changes: Mapping[str, Any],
        due_ms: int | None,
        attempts_left: int | None,
    ) -> Timer:
        """The timer of the changed delivery. It holds the whole message, of which only this group has a copy."""
        draft: Draft = replace(found.message.draft, **changes)
        if "body" in changes:
            draft = replace(draft, body=self.producer.unmasked(topic, found.message, draft))
            draft = self.producer.offload(topic, draft)
        if attempts_left is not None:
            made = found.attempts - found.attempts_before_redrive
            draft = replace(draft, max_attempts=made + attempts_left)
        message = replace(found.message, draft=draft)
        entry = retry_lane.entry_of(message, found.attempts, found.attempts_before_redrive, whole=True)
        now_ms = self.clock.now_ms()
        at_ms = max(found.due_ms, now_ms) if due_ms is None else due_ms
        if draft.expires_ms is not None:  # it is buried then
            at_ms = min(at_ms, max(now_ms, draft.expires_ms))
        uid = found.timer.consumer_uid if found.timer else found.key.consumer_uid if found.key else ""
        return retry_lane.timer_of(topic, group, uid, entry, at_ms)

    def _write_edit(self, topic: Topic, group: Group, key: CursorKey, found: Found, new: Timer) -> bool:
        record = self._record(topic, key, found, Status.RETRYING, new.due_ms)
        record = replace(record, next_ms=new.due_ms)
        if old := self.records.get(key, found.message.offset):
            record = replace(record, last_error=old.last_error, answer=old.answer)
        is_done = self._write_end(topic, group, key, found, [record], new)
        if is_done:
            self.waker.wake_movers([new])
        return is_done

    def _note(self, topic: Topic, group: Group, key: CursorKey, found: Found, what: str, detail: str) -> None:
        entry = TraceEntry(found.message.offset, found.attempts, what, detail=detail)
        self.attempt_log.note_by_hand(topic, group, key.consumer_uid, what, [(found.message.shard, entry)])

    def _find(self, topic: Topic, group: Group, key: CursorKey, message: Message) -> Found | None:
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
        origin, is_running = message.draft.origin, state is OffsetState.RUNNING
        begun = (span.attempt - (not is_running)) if span else 0
        status = Status.RUNNING if is_running else Status.RETRYING if begun or origin else Status.NEW
        attempts, before_redrive = (origin.attempts, origin.attempts_before_redrive) if origin else (0, 0)
        found = Found(status=status, attempts=attempts + begun, message=message)
        found = replace(found, attempts_before_redrive=before_redrive, due_ms=span.due_ms if span else 0)
        return replace(found, key=key, snapshot=seen, offset=offset)

    def _of_timer(self, topic: Topic, group: Group, key: CursorKey, message: Message, timer: Timer) -> Found:
        assert timer.draft
        assert timer.draft.origin
        origin, content = timer.draft.origin, self._content(topic, group, key, message, timer.draft)
        found = Found(status=Status.RETRYING, attempts=origin.attempts, message=content)
        before_redrive = origin.attempts_before_redrive
        return replace(found, attempts_before_redrive=before_redrive, due_ms=timer.due_ms, timer=timer)

    def _content(self, topic: Topic, group: Group, key: CursorKey, message: Message, draft: Draft) -> Message:
        """The message that an entry of the lane, or its timer, holds or refers to."""
        trust = self.reader.trust(group, key.consumer_uid)
        return retry_lane.resolve(self.reader, topic, replace(message, draft=draft), trust)

    def _in_lane(self, topic: Topic, group: Group, key: CursorKey, message: Message) -> Found:
        lane = cursor_key(topic, group, None, key.consumer_uid)
        snapshot = self.states.read(lane)
        if entry := self.statuses.lane_entry(topic, group, key, message.offset):
            offset: int | None = entry.offset
        else:
            place = key.shard.shard, message.offset
            offset, _ = entry_ahead(self.log, lane.shard, snapshot.cursor.next, place, _MOST_ROWS)
        if offset is not None and (entry_message := self.reader.fetch(lane.shard, [offset])[offset].message):
            content = self._content(topic, group, key, message, entry_message.draft)
            if found := self._in_cursor(lane, snapshot, offset, content):
                return found
        raise Moved

    def _ahead(self, topic: Topic, group: Group, key: CursorKey, cursor: Cursor, offset: int) -> Selection:
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
        holes: list[ranges.Range] = []
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
        return by_hand.pass_over(coalesce(spans), ranges.normalise(holes), offset, segment_at)


def _until_done(attempt: Callable[[], bool]) -> None:
    for _ in range(_TRIES):
        with suppress(Moved):
            if attempt():
                return
    raise changed_meanwhile("delivery")


def _keeps_its_place() -> Refused:
    return Refused(
        "KEEPS_ITS_PLACE",
        "In a SERIAL group a message that waits keeps its place in the shard: only its next_attempt_at can be changed.",
    )


def not_owed(group: Group) -> NotFound:
    """The error for a delivery that there is not."""
    text = f"Group {group.name!r} does not get this message: it skipped it, or a purge did."
    return NotFound("DELIVERY_NOT_FOUND", text)


def no_room() -> Conflict:
    """The error for a change that the cursor has no space for."""
    text = "Too many messages of the shard wait before this one; settle those first, or try again when fewer wait."
    return Conflict("CURSOR_FULL", text)
