"""One delivery, by hand: end it, or change what waits for its next attempt.

A delivery is in its shard's cursor, in a retry timer, or in the retry lane, and each change is one write on the
condition that it is still there: what moved meanwhile is looked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ...domain import by_hand, cursor_size, notice, ranges
from ...domain.errors import Conflict, Refused, changed_meanwhile
from ...domain.message import DeadReason, Draft, Message
from ...domain.notice import Events
from ...domain.record import Record
from ...domain.status import Status
from ...domain.timer import Timer
from ...domain.topic import CursorKey, Group, Topic, cursor_key
from ...domain.trace import AttemptOutcome, TraceEntry
from ...modes import POLICIES
from ...ports.world import Clock
from ...store import Records, Timers
from ..consume import retry_lane
from ..core.attempt_log import AttemptLog
from ..core.cursor_store import CursorStore
from ..core.wake import Waker
from ..produce.drafts import check_size
from ..produce.producer import Producer
from .delivery_places import DeliveryPlaces, Found, Moved, no_room, not_owed

_TRIES = 16  # each lost to a claim, a settlement, or a move from timer to lane


@dataclass(frozen=True, kw_only=True, slots=True)
class Deliveries:
    """Changes single deliveries of a group, in a broadcast of one consumer. `on_filled` is called with retry lanes from
    which something may be claimed sooner."""

    delivery_places: DeliveryPlaces
    states: CursorStore
    records: Records
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
            found = self.delivery_places.find(topic, group, key, message)
            if found is None:
                self._check_outcome(group, key, message, outcome)
                return True
            record = self._end_of(topic, key, found, outcome, reason)
            has_older = found.key == key and self._has_older(key, message.offset)
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

    def _has_older(self, key: CursorKey, offset: int) -> bool:
        """Has the message an older delivery, from before a seek, that waits or runs in the retry lane? It ends, too:
        the next try finds it."""
        record = self.records.get(key, offset)
        return record is not None and record.status == Status.RETRYING and record.next_ms is not None

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

    def _end_of(
        self, topic: Topic, key: CursorKey, found: Found, outcome: Status, reason: str | None
    ) -> Record:
        ended = self._record(topic, key, found, outcome, self.clock.now_ms())
        if outcome is Status.SUCCESS:
            return replace(ended, last_error=reason)
        content = retry_lane.content(found.message)
        return replace(ended, last_error=reason, reason=DeadReason.REJECTED, message=content, expires_s=None)

    def _record(self, topic: Topic, key: CursorKey, found: Found, status: Status, ends_ms: int) -> Record:
        return Record(
            shard=found.message.shard,
            offset=found.message.offset,
            status=status,
            attempts=found.attempts,
            at_ms=self.clock.now_ms(),
            consumer_uid=key.consumer_uid,
            attempts_before_redrive=found.attempts_before_redrive,
            of=key,
            expires_s=topic.expires_s(ends_ms),
        )

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
        ahead = self.delivery_places.ahead(topic, group, found.key, cursor, found.offset)
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
            found = self.delivery_places.find(topic, group, key, message)
            if found is None or found.status is not Status.RETRYING:
                raise Conflict(
                    "NOT_RETRYING",
                    f"The delivery to group {group.name!r} does not wait for another attempt: nothing was changed.",
                )
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
            draft = replace(draft, body=self.producer.unmasked(topic, found.message, draft.body))
            draft = self.producer.offload(topic, draft)
        if attempts_left is not None:
            draft = replace(
                draft, max_attempts=found.attempts - found.attempts_before_redrive + attempts_left
            )
        entry = retry_lane.entry_of(
            replace(found.message, draft=draft), found.attempts, found.attempts_before_redrive, whole=True
        )
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

    def _note(
        self, topic: Topic, group: Group, key: CursorKey, found: Found, what: AttemptOutcome, detail: str
    ) -> None:
        entry = TraceEntry(found.message.offset, found.attempts, what, detail=detail)
        self.attempt_log.note_by_hand(topic, group, key.consumer_uid, what, [(found.message.shard, entry)])


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
