"""Delayed messages: found by id; edited, moved to another time or cancelled while they wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...domain import ids
from ...domain.append import Successor
from ...domain.errors import Conflict, changed_meanwhile
from ...domain.limits import SHARD_NUMBERS
from ...domain.message import Act, Message, with_acts
from ...domain.segment import ShardKey
from ...domain.timer import Timer
from ...domain.times import CLOCKS_DIFFER_MS
from ...domain.topic import Topic
from ...domain.transaction import Transaction, TransactionState
from ...ports.world import Clock
from ...store import Log, Timers, Transactions
from ..core.catalog import Catalog
from ..core.positions import Positions
from ..core.wake import Waker
from .dedup import entry_of_postponed
from .drafts import check_size
from .producer import Producer

_NOWHERE = -1
_ROWS = 64
_TRIES = 16  # each lost to another call's change of the same message
_FOREVER_MS = 1 << 62
_MOST_ROWS = 2_048  # how far behind its time a delayed message is looked for in a shard


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """A message that is not in the log: it waits for its due time, or was cancelled."""

    timer: Timer
    cancelled: bool = False

    @property
    def message(self) -> Message:
        """The producer's message; its shard and offset have no meaning."""
        assert self.timer.draft is not None
        return Message(self.timer.id, _NOWHERE, _NOWHERE, self.timer.stored_ms, self.timer.draft)

    @property
    def shard(self) -> int:
        """The shard that it will go to."""
        return self.timer.shard.shard


@dataclass(kw_only=True, frozen=True, slots=True)
class Delayed:
    """Delayed messages, before and after their time."""

    catalog: Catalog
    timers: Timers
    transactions: Transactions
    log: Log
    positions: Positions
    producer: Producer
    waker: Waker
    clock: Clock

    def find(self, topic: Topic, message_id: str) -> DelayedMessage | Transaction | Message | None:
        """The message with this id as it waits for its time or for a commit (or was rolled back), or where it stands
        in the log; None where it is none of these."""
        if transaction_id := ids.parse_half_id(message_id):
            return self._find_half(topic, transaction_id)
        parts = ids.parse_timed_id(message_id)
        return self._find_timed(topic, message_id, parts.due_ms, parts.shard) if parts else None

    def _find_half(self, topic: Topic, transaction_id: str) -> DelayedMessage | Transaction | Message | None:
        transaction = self.transactions.get(transaction_id)
        if transaction is None:
            # One that was postponed outlives the transaction's row.
            message_id = ids.half_id(transaction_id)
            forward = self.timers.find_moved(message_id)
            return self._find_timed(topic, message_id, forward.due_ms, None) if forward else None
        if transaction.topic_uid != topic.uid:
            return None
        if transaction.state is not TransactionState.COMMITTED:
            return transaction
        if transaction.due_ms is not None:
            return self._find_timed(topic, transaction.message_id, transaction.due_ms, transaction.shard)
        shard, offset = transaction.shard, transaction.offset
        assert shard is not None
        assert offset is not None
        rows = self.log.read_back(topic.shard_key(shard), offset, 1, consistent=True)
        message = rows[0].message(shard, offset) if rows and rows[0].end > offset else None
        return message if message and message.id == transaction.message_id else None

    def _find_timed(
        self, topic: Topic, message_id: str, first_ms: int, shard: int | None
    ) -> DelayedMessage | Message | None:
        """A message that was due at `first_ms` when its id was given out."""
        waiting, due_ms = self._find_with_due_ms(message_id, first_ms)
        if waiting:
            return waiting if waiting.timer.shard.topic_uid == topic.uid else None
        if shard is not None:
            return self._in_logs(topic, [shard] if shard < SHARD_NUMBERS else [], message_id, due_ms)
        message = self._in_logs(topic, topic.shard_numbers, message_id, due_ms)
        if message:
            return message
        grown = self.catalog.topic(topic.name, consistent=True)
        new = [number for number in grown.shard_numbers if number not in topic.shard_numbers]
        return self._in_logs(topic, new, message_id, due_ms)

    def _in_logs(self, topic: Topic, numbers: Iterable[int], message_id: str, due_ms: int) -> Message | None:
        """The message in the log of one of these shards, near the time at which it was due."""
        shards = [topic.shard_key(number) for number in numbers]
        # Who moved it may have had a clock that ran before ours: then it came into its log before its time.
        spans = [(due_ms, _FOREVER_MS), (due_ms - CLOCKS_DIFFER_MS, due_ms)]
        looks = (self._in_log(each, message_id, *span) for span in spans for each in shards)
        return next((message for message in looks if message), None)

    def find_waiting(self, message_id: str, first_ms: int) -> DelayedMessage | None:
        """A delayed message that was due at `first_ms` once, if it waits still or was cancelled. One read; more where
        its time was changed. Raises ChangedMeanwhile."""
        return self._find_with_due_ms(message_id, first_ms)[0]

    def _find_with_due_ms(self, message_id: str, first_ms: int) -> tuple[DelayedMessage | None, int]:
        """The same, and when it was due in the end.

        Others may change its time between two reads. It has gone only if it was not at its time and its row that leads
        there still is the same afterwards.
        """
        due_ms, previous = first_ms, None
        for _ in range(_TRIES):
            if timer := self.timers.find(due_ms, message_id):
                return DelayedMessage(timer), due_ms
            forward = self.timers.find_moved(message_id)
            if forward and forward.cancelled:
                return DelayedMessage(forward.cancelled, cancelled=True), forward.due_ms
            if forward is None or forward == previous:
                return None, due_ms
            due_ms, previous = forward.due_ms, forward
        raise changed_meanwhile("message")

    def _in_log(self, shard: ShardKey, message_id: str, from_ms: int, to_ms: int) -> Message | None:
        """Look through what entered the shard in that time."""
        at = self.positions.at_time(shard, from_ms)
        for _ in range(_MOST_ROWS // _ROWS):
            rows = self.log.read(shard, at, _ROWS, consistent=True)
            for row in rows:
                for offset in range(row.first, row.end):
                    message = row.message(shard.shard, offset)
                    if message and message.id == message_id:
                        return message
            if rows.is_end or rows[-1].accepted_ms >= to_ms:
                return None
            at = rows[-1].end
        return None

    def amend(
        self,
        topic: Topic,
        waiting: DelayedMessage,
        changes: Mapping[str, Any],
        by: str = "",
        since_ms: int = 0,
    ) -> DelayedMessage:
        """Change fields of the draft; `due_ms` hurries or postpones it, and its expiry, which counts from then. `by` is
        the token's id; the change is not noted as earlier than `since_ms`. Raises Conflict (it is too late, or others
        keep changing it) and TooLarge."""
        for _ in range(_TRIES):
            if waiting.cancelled:
                raise Conflict("MESSAGE_CANCELLED", "The message was cancelled.")
            if new := self._amend(topic, waiting.timer, changes, by, since_ms):
                return new
            waiting = self._read_again(waiting)
        raise changed_meanwhile("message")

    def _read_again(self, waiting: DelayedMessage) -> DelayedMessage:
        """The message after another process's change; Conflict if it no longer waits."""
        if current := self.find_waiting(waiting.timer.id, waiting.timer.due_ms):
            return current
        raise already_due()

    def _amend(
        self, topic: Topic, old: Timer, changes: Mapping[str, Any], by: str, since_ms: int
    ) -> DelayedMessage | None:
        """None where the timer is gone or another."""
        assert old.draft is not None
        draft = replace(old.draft, **changes)
        if "body" in changes:
            before = DelayedMessage(old).message
            draft = replace(draft, body=self.producer.unmasked(topic, before, draft))
            check_size(topic, draft.body)
            draft = self.producer.offload(topic, draft)
        due_ms = draft.due_ms or old.due_ms
        draft = replace(with_acts(draft, *self._acts_of(old, changes, due_ms, by, since_ms)), due_ms=None)
        if draft.expires_ms is not None and "expires_ms" not in changes:
            draft = replace(draft, expires_ms=draft.expires_ms + due_ms - old.due_ms)
        new = replace(old, draft=draft, due_ms=due_ms)
        if draft.keys and (due_ms > old.due_ms or "keys" in changes):
            self.producer.note_keys(topic, [(draft, due_ms)], _keys_noted_ms(old))
        # Its id leads to it for as long as its row will be there.
        keep_s, entry = topic.expires_s(self._comes_ms(new)), entry_of_postponed(topic, new)
        if not self.timers.amend(old, new, keep_s, entry):
            return None
        self.waker.wake_movers([new])
        return DelayedMessage(replace(new, edits=old.edits + 1))

    def _acts_of(
        self, old: Timer, changes: Mapping[str, Any], due_ms: int, by: str, since_ms: int
    ) -> Iterator[Act]:
        now_ms = max(self.clock.now_ms(), since_ms)
        if any(getattr(old.draft, name) != value for name, value in changes.items() if name != "due_ms"):
            yield Act("EDITED", now_ms, by)
        if due_ms != old.due_ms:
            yield Act("POSTPONED", now_ms, by, due_ms)

    def cancel(
        self, topic: Topic, waiting: DelayedMessage, by: str = "", successor: Successor | None = None
    ) -> None:
        """Cancel a message, which frees its dedup id; safe to repeat. `by` is the token's id. Raises Conflict where it
        is too late or others keep changing it; with a `successor`, to be stored with it, also if it was cancelled."""
        for _ in range(_TRIES):
            if waiting.cancelled and successor:
                raise Conflict("MESSAGE_CANCELLED", "The message was cancelled.")
            if waiting.cancelled or self._cancel(topic, waiting.timer, by, successor):
                return
            waiting = self._read_again(waiting)
        raise changed_meanwhile("message")

    def _cancel(self, topic: Topic, timer: Timer, by: str, successor: Successor | None) -> bool:
        assert timer.draft is not None
        draft = with_acts(timer.draft, Act("CANCELLED", self.clock.now_ms(), by))
        # A repeat of its dedup id must find that it was cancelled.
        window_ms = max(topic.retention_ms, topic.dedup_window_seconds * 1000)
        keep_s = (max(self._comes_ms(timer), _keys_noted_ms(timer)) + window_ms) // 1000
        return self.timers.cancel(replace(timer, draft=draft), keep_s, successor)

    def _comes_ms(self, timer: Timer) -> int:
        return max(timer.due_ms, self.clock.now_ms())


def _keys_noted_ms(timer: Timer) -> int:
    """The time under which a waiting message's keys were noted: when it was due at first, or prepared."""
    parts = ids.parse_timed_id(timer.id)
    if parts:
        return parts.due_ms
    return timer.draft.accepted_ms or timer.stored_ms if timer.draft else timer.stored_ms


def already_due() -> Conflict:
    """The error of a change of time that comes too late."""
    return Conflict("ALREADY_DUE", "The message has come due: it waits for no time any more.")
