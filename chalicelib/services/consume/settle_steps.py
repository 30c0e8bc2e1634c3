"""The writes of settling one delivery: its part of the cursor, its record, its timer, its trace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta

from ...domain import notice, ranges
from ...domain.cursor import RETURNING, Disposition, Result
from ...domain.limits import RETENTION_GRACE
from ...domain.message import DeadReason, Draft, Message, Origin
from ...domain.ranges import Ranges
from ...domain.receipt import Receipt
from ...domain.record import Record
from ...domain.retry_policy import wait_ms
from ...domain.status import Status
from ...domain.timer import Timer
from ...domain.times import DAY_MS
from ...domain.topic import CursorKey, Group, Topic, cursor_key
from ...domain.trace import AttemptOutcome, TraceEntry
from ..core.log_reader import LogReader
from . import retry_lane
from .decision import SettleDecision

_ACTIONS_PER_WRITE = 90  # a transaction takes 100
_ACTIONS_BESIDE_OUTBOX = 80  # and messages of two megabytes for a destination up to 17 rows
_ENTRIES_PER_WRITE = 90  # an update expression holds 4 KB
_BYTES_PER_WRITE = 2_000_000  # a transaction takes 4 MB
_GRACE_MS = RETENTION_GRACE // timedelta(milliseconds=1)
# How long a retry may wait in its lane: if the message's row may expire before, the entry holds the content.
_LANE_SLACK_MS = DAY_MS

_ENDS = {Disposition.SUCCESS: Status.SUCCESS, Disposition.DEAD: Status.DEAD}
_STATUSES = {**_ENDS, Disposition.RETRY: Status.RETRYING}


@dataclass(frozen=True, slots=True)
class Step:
    """One delivery's part of a write. `was_tried`: it ends an attempt; False where a message is given back unsent.
    `ended`: what is told of its end, if it ends and that may be told. `called`: see SettleDecision. `behind`: what it
    gives back of its run."""

    result: Result
    entry: TraceEntry | None
    shard: int
    record: Record | None = None
    timer: Timer | None = None
    was_tried: bool = True
    ended: Record | None = None
    called: str = ""
    behind: tuple[Result, ...] = ()

    @property
    def results(self) -> tuple[Result, ...]:
        """What it does in the cursor."""
        return self.result, *self.behind

    @property
    def actions(self) -> int:
        """How many actions of a transaction it takes."""
        return (self.record.actions if self.record else 0) + (self.timer is not None)

    @property
    def weight(self) -> int:
        """The bytes that its dead letter and its message for a destination add to a transaction; 0 without one."""
        messages = (each.message for each in (self.record, self.ended) if each)
        return sum(message.draft.weight for message in messages if message)


class StepMaker:
    """Makes the steps of deliveries under one lease, at one moment."""

    def __init__(self, *, reader: LogReader, topic: Topic, group: Group, key: CursorKey, now_ms: int) -> None:
        self._reader = reader
        self._topic = topic
        self._group = group
        self._key = key
        self._now_ms = now_ms
        self.amended: Ranges = ()  # the edited messages of the cursor's shard, as last read

    def step(self, receipt: Receipt, decision: SettleDecision, attempt: int) -> Step:
        """The step that carries out a decision about attempt number `attempt`. Reads the message from the log if the
        ladder gives its delay, or if it becomes a dead letter; raises Unavailable if that fails."""
        decision = self._by_ladder(receipt, decision, attempt) if decision.by_ladder else decision
        entry = _trace_entry(receipt, decision, attempt, self._now_ms)
        step = Result(receipt.leased_offset, decision.disposition, decision.due_ms)
        if decision.disposition is Disposition.RETRY_LATER:
            timer = self._timer(receipt, decision, attempt)
            retrying = self._record(receipt, Status.RETRYING, decision, attempt)
            return Step(step, entry, receipt.shard, retrying, timer, called=decision.called)
        status = _STATUSES.get(decision.disposition)
        is_recorded = receipt.entry is not None  # in the lane only the record shows the attempts
        if decision.disposition is Disposition.SUCCESS:
            is_recorded |= attempt > 1  # it replaces a record that says RETRYING
        else:
            is_recorded |= bool(decision.error) or decision.disposition is Disposition.DEAD
        record = self._record(receipt, status, decision, attempt) if status and is_recorded else None
        was_tried = decision.disposition is not Disposition.RELEASED
        ended = self._ended(receipt, status, decision, attempt, record) if status else None
        called = decision.called
        return Step(step, entry, receipt.shard, record, was_tried=was_tried, ended=ended, called=called)

    def _ended(
        self, receipt: Receipt, status: Status, decision: SettleDecision, attempt: int, record: Record | None
    ) -> Record | None:
        """What is told of the end of a delivery. What has gone from the log has at least its id."""
        if status == Status.RETRYING or (status == Status.SUCCESS and not self._group.on_success):
            return None
        record = record or self._record(receipt, status, decision, attempt)
        gone = Message(receipt.id, receipt.shard, receipt.offset, 0, Draft(b"", is_json=False))
        message = record.message or self._content(receipt) or gone
        return notice.without_needless_body(self._group, replace(record, message=message))

    def step_by_timer(self, receipt: Receipt, decision: SettleDecision, attempt: int) -> Step:
        """The step of a delivery that comes back by a timer, since the cursor has no room for it."""
        if decision.disposition not in RETURNING:
            return self.step(receipt, decision, attempt)
        was_tried = decision.disposition is Disposition.RETRY
        due_ms = max(decision.due_ms, self._now_ms)
        later = replace(decision, disposition=Disposition.RETRY_LATER, due_ms=due_ms)
        step = self.step(receipt, later, attempt if was_tried else attempt - 1)
        return step if was_tried else replace(step, entry=None, was_tried=False)

    def _by_ladder(self, receipt: Receipt, decision: SettleDecision, attempt: int) -> SettleDecision:
        """The decision with the due time of the message's ladder (of the group's, if the message has gone from the
        log), or of its expiry if that is earlier."""
        message = self._message(receipt)
        draft = message.draft if message else None
        number = receipt.attempt_since_redrive(attempt)
        took_ms = self._now_ms - receipt.claimed_ms
        pause_ms = wait_ms(self._topic, self._group, receipt.id, draft, number, took_ms=took_ms)
        return replace(decision, due_ms=receipt.within_expiry(self._now_ms + pause_ms, self._now_ms))

    def _next_ms(self, receipt: Receipt, decision: SettleDecision) -> int | None:
        """When the next attempt is due, if the delivery has left its shard's cursor; None if it waits in the cursor."""
        if decision.disposition is Disposition.RETRY_LATER:
            return decision.due_ms
        waits_in_lane = decision.disposition is Disposition.RETRY and receipt.entry is not None
        return (decision.due_ms or self._now_ms) if waits_in_lane else None

    def _record(self, receipt: Receipt, status: Status, decision: SettleDecision, attempt: int) -> Record:
        is_dead = decision.disposition is Disposition.DEAD
        ends_ms = max(self._now_ms, decision.due_ms)
        return Record(
            shard=receipt.shard,
            offset=receipt.offset,
            status=status,
            attempts=attempt,
            at_ms=self._now_ms,
            consumer_uid=receipt.consumer_uid,
            reason=decision.reason,
            last_error=decision.error,
            answer=decision.answer,
            next_ms=self._next_ms(receipt, decision),
            attempts_before_redrive=receipt.attempts_before_redrive,
            of=self.delivery_key(receipt.shard) if receipt.entry is not None else None,
            message=self._content(receipt) if is_dead else None,
            expires_s=None if is_dead else self._topic.expires_s(ends_ms),
        )

    def delivery_key(self, shard: int) -> CursorKey:
        """The key under which a message's own delivery is recorded, also while it is in the retry lane."""
        return cursor_key(self._topic, self._group, shard, self._key.consumer_uid)

    def _message(self, receipt: Receipt) -> Message | None:
        """The delivered message; None if it has expired from the log meanwhile."""
        reader = self._reader
        trust = reader.trust(self._group, self._key.consumer_uid, self.amended)
        slot = reader.fetch(self._key.shard, [receipt.leased_offset], trust)[receipt.leased_offset]
        return retry_lane.resolve(reader, self._topic, slot.message, trust) if slot.message else None

    def _content(self, receipt: Receipt) -> Message | None:
        message = self._message(receipt)
        return retry_lane.content(message) if message else None

    def _timer(self, receipt: Receipt, decision: SettleDecision, attempt: int) -> Timer:
        message, redriven = self._message(receipt), receipt.attempts_before_redrive
        if message is not None:
            expires_before = decision.due_ms + _LANE_SLACK_MS > message.ends_ms + _GRACE_MS
            draft = retry_lane.entry_of(message, attempt, redriven, whole=expires_before)
        else:
            origin = Origin(receipt.id, receipt.shard, receipt.offset, 0, attempt, redriven)
            draft = Draft(b"", is_json=False, origin=origin)
        uid = self._key.consumer_uid
        return retry_lane.timer_of(self._topic, self._group, uid, draft, decision.due_ms, self._now_ms)


def _trace_entry(receipt: Receipt, decision: SettleDecision, attempt: int, now_ms: int) -> TraceEntry | None:
    if decision.disposition is Disposition.RELEASED or decision.reason == DeadReason.UNDECODABLE:
        return None
    took_ms = now_ms - receipt.claimed_ms if decision.duration_ms is None else decision.duration_ms
    outcome = outcome_of(decision.disposition)
    return TraceEntry(receipt.offset, attempt, outcome, took_ms, decision.error or "", decision.answer)


def outcome_of(disposition: Disposition) -> str:
    """The name of the outcome in a trace."""
    return AttemptOutcome.RETRY if disposition is Disposition.RETRY_LATER else disposition.value


def that_fit(steps: Iterable[Step]) -> list[Step]:
    """The first steps that one write can hold; neighbours returned with the same due time share an entry of the
    cursor."""
    fit: list[Step] = []
    entries = actions = weight = 0
    for step in steps:
        if step.result.disposition in RETURNING:
            entries += not (fit and _joins(fit[-1].result, step.result))
        entries += len(ranges.of(each.offset for each in step.behind))
        actions += step.actions
        weight += step.weight
        most = _ACTIONS_BESIDE_OUTBOX if step.ended else _ACTIONS_PER_WRITE
        full = entries > _ENTRIES_PER_WRITE or actions > most or weight > _BYTES_PER_WRITE
        if fit and full:
            break
        fit.append(step)
    return fit


def _joins(one: Result, other: Result) -> bool:
    return other == replace(one, offset=one.offset + 1)
