"""Settling deliveries: ack, nack, extend, and what came of a push. A lease that has passed on changes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from functools import partial

from ...domain import cursor_size, cursor_write
from ...domain import cursor_transitions as transitions
from ...domain.cursor import RETURNING, Fate, Result
from ...domain.errors import Conflict, HeadraceError, Malformed, unavailable
from ...domain.ladder import overridden, wait_ms
from ...domain.limits import RETENTION_GRACE
from ...domain.message import DeadReason, Draft, Message, Origin
from ...domain.ranges import Ranges
from ...domain.record import Record
from ...domain.signing import Receipt, open_receipt
from ...domain.status import Status
from ...domain.timer import Timer, TimerKind, retry_id
from ...domain.topic import CursorKey, Group, Topic, cursor_key, lane_of
from ...domain.trace import Tried
from ...modes import POLICIES
from ...ports.world import Clock
from ..core.attempt_log import AttemptLog
from ..core.counters import DELIVERED, FAILED, Counters
from ..core.cursor_store import CursorSnapshot, CursorStore
from ..core.log_reader import LogReader
from ..core.signing_keys import SigningKeys
from . import retry_queue
from .decision import Decide, SettleDecision, decision_after_failure

_ACTIONS_PER_WRITE = 90  # a transaction takes 100
_ENTRIES_PER_WRITE = 90  # an update expression holds 4 KB
_BYTES_PER_WRITE = 2_000_000  # a transaction takes 4 MB
_GRACE_MS = RETENTION_GRACE // timedelta(milliseconds=1)
_LANE_SLACK_MS = (
    86_400_000  # a retry may wait so long in its lane: who might outlive the row takes its content along
)

_STATUSES = {Fate.SUCCESS: Status.SUCCESS, Fate.RETRY: Status.RETRYING, Fate.DEAD: Status.DEAD}
_MISSES = 2  # of one lease: then its other receipts are not looked up either


class Already(Enum):
    """What this lease has settled before, and just so: a lost answer was asked for again."""

    SETTLED = "settled"


SettleAnswer = HeadraceError | Already | None


@dataclass(frozen=True, slots=True)
class Nack:
    """How to give messages back: after a delay (None: as long as the message's ladder says), or for good."""

    delay_ms: int | None = 0
    dead_letter: bool = False
    reason: str | None = None


Alive = Callable[[Topic, Group, str], None]
"""The consumer with this uid has just shown a sign of life."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One delivery's part of a write."""

    result: Result
    tried: Tried | None
    shard: int
    record: Record | None = None
    timer: Timer | None = None

    @property
    def actions(self) -> int:
        """How many actions of a transaction it takes."""
        dead = self.record is not None and self.record.message is not None
        return (self.record is not None) + (self.timer is not None) + dead

    @property
    def weight(self) -> int:
        return self.record.message.draft.weight if self.record and self.record.message else 0


class Settler:
    """Settles deliveries, all of one lease in one write. Answers stand in the order of the receipts."""

    def __init__(
        self,
        states: CursorStore,
        reader: LogReader,
        attempt_log: AttemptLog,
        clock: Clock,
        signing_keys: SigningKeys,
        filed: Callable[[Sequence[Timer]], None],
        counters: Counters,
        alive: Alive,
        filled: Callable[[CursorKey], None],
    ) -> None:
        """`filed` is told of new timers, `alive` of consumers that settle or extend what they hold, `filled` of cursors
        in which something waits again."""
        self._states = states
        self._reader = reader
        self._attempt_log = attempt_log
        self._clock = clock
        self._signing_keys = signing_keys
        self._filed = filed
        self._counters = counters
        self._alive = alive
        self._filled = filled

    def ack(self, topic: Topic, group: Group, receipts: Sequence[str]) -> list[SettleAnswer]:
        """Record SUCCESS; per receipt None, Already, or why not (RECEIPT_STALE, RECEIPT_INVALID)."""
        return self._settle_texts(topic, group, receipts, lambda *_: SettleDecision(Fate.SUCCESS))

    def nack(self, topic: Topic, group: Group, receipts: Sequence[str], how: Nack) -> list[SettleAnswer]:
        """Give messages back for another attempt, or bury them; per receipt None, Already, or why not."""
        climbs = how.delay_ms is None
        due_ms = self._clock.now_ms() + (how.delay_ms or 0) if climbs or how.delay_ms else 0

        def rule(receipt: Receipt, attempt: int) -> SettleDecision:
            if how.dead_letter:
                return SettleDecision(Fate.DEAD, reason=DeadReason.REJECTED, detail=how.reason)
            return replace(decision_after_failure(group, receipt, attempt, due_ms, how.reason), climbs=climbs)

        return self._settle_texts(topic, group, receipts, rule)

    def extend(
        self, topic: Topic, group: Group, receipts: Sequence[str], lease_seconds: int
    ) -> list[SettleAnswer]:
        """Move the deadline of the receipts' leases to `lease_seconds` from now."""
        deadline_ms = self._clock.now_ms() + lease_seconds * 1000
        answers, opened = self._open(group, receipts)
        owners: set[str] = set()
        for (key, token), members in _by_lease(topic, group, opened).items():
            for i, receipt in members:
                answers[i] = self._extend(key, token, receipt.leased, deadline_ms, owners)
        self._note_signs(topic, group, owners)
        return answers

    def _extend(
        self, key: CursorKey, token: str, offset: int, deadline_ms: int, owners: set[str]
    ) -> SettleAnswer:
        state = self._states.last(key)
        for fresh in (False, True, True, True):
            state = self._states.read(key) if fresh else state
            lease = state.cursor.leases.get(token)
            if lease is None or offset not in lease.attempts():
                continue
            owners.add(lease.owner)
            if lease.deadline_ms == deadline_ms:
                return None  # another receipt of the same lease has done it
            after = transitions.extend(state.cursor, token, deadline_ms)
            try:
                if after and self._states.write(key, state, cursor_write.change(state.cursor, after)):
                    return None
            except HeadraceError as error:
                return error
        return _stale()

    def _open(
        self, group: Group, texts: Sequence[str]
    ) -> tuple[list[SettleAnswer], list[tuple[int, Receipt]]]:
        """Verify receipts; those that are good, with their places."""
        answers: list[SettleAnswer] = [None] * len(texts)
        good: list[tuple[int, Receipt]] = []
        for i, text in enumerate(texts):
            receipt = self._signing_keys.first(partial(open_receipt, text=text))
            if receipt is None or receipt.group_uid != group.uid:
                answers[i] = Malformed("RECEIPT_INVALID", "This is not a receipt of this group.")
            else:
                good.append((i, receipt))
        return answers, good

    def _settle_texts(
        self, topic: Topic, group: Group, texts: Sequence[str], rule: Decide
    ) -> list[SettleAnswer]:
        answers, opened = self._open(group, texts)
        owners: set[str] = set()
        settled = self._settle(topic, group, [receipt for _, receipt in opened], rule, owners)
        for (i, _), answer in zip(opened, settled, strict=True):
            answers[i] = answer
        self._note_signs(topic, group, owners)
        stale = [(i, receipt) for i, receipt in opened if isinstance(answers[i], Conflict)]
        for (key, token), members in _by_lease(topic, group, stale).items():
            lease = _Leased(self, topic, group, key, token)
            for i, receipt in members:
                answers[i] = lease.repeated(receipt, rule)
        return answers

    def settle(
        self, topic: Topic, group: Group, receipts: Sequence[Receipt], rule: Decide
    ) -> list[SettleAnswer]:
        """Settle deliveries as `rule` decides; per receipt None or why not."""
        return self._settle(topic, group, receipts, rule, set())

    def _settle(
        self, topic: Topic, group: Group, receipts: Sequence[Receipt], rule: Decide, owners: set[str]
    ) -> list[SettleAnswer]:
        """The same; `owners` becomes those whose leases it met."""
        answers: list[SettleAnswer] = [None] * len(receipts)
        for (key, token), members in _by_lease(topic, group, enumerate(receipts)).items():
            lease = _Leased(self, topic, group, key, token)
            settled, error = lease.settle([receipt for _, receipt in members], rule)
            owners.add(lease.owner)
            for i, receipt in members:
                answers[i] = None if receipt.leased in settled else error or _stale()
                settled.discard(receipt.leased)  # the same receipt twice in one call: the second is stale
        return answers

    def _note_signs(self, topic: Topic, group: Group, owners: set[str]) -> None:
        for owner in owners - {""}:
            self._alive(topic, group, owner)


class _Leased:
    """The deliveries of one lease, being settled."""

    def __init__(self, of: Settler, topic: Topic, group: Group, key: CursorKey, token: str) -> None:
        self._of = of
        self._topic = topic
        self._group = group
        self._key = key
        self._token = token
        self._now_ms = of._clock.now_ms()
        self._amended: Ranges = ()
        self.owner = ""  # as far as the lease was met
        self._known: dict[tuple[int, int], Tried] = {}
        self._misses = 0

    def settle(self, receipts: Sequence[Receipt], rule: Decide) -> tuple[set[int], HeadraceError | None]:
        """The leased offsets that were settled, in as few writes as can hold them, and what stopped the others."""
        states = self._of._states
        state, fresh = states.last(self._key), False
        settled: set[int] = set()
        left = list({receipt.leased: receipt for receipt in receipts}.values())
        while left:
            lease = state.cursor.leases.get(self._token)
            attempts = lease.attempts() if lease else {}
            live_receipts = [receipt for receipt in left if receipt.leased in attempts]
            if len(live_receipts) < len(left) and not fresh:
                state, fresh = states.read(self._key), True
                continue
            if not live_receipts or lease is None:
                break
            self._amended, self.owner = state.cursor.amended, lease.owner
            try:
                in_order = sorted(live_receipts, key=lambda r: r.leased)
                numbers = [r.before + attempts[r.leased] for r in in_order]
                ruled = [(r, rule(r, n), n) for r, n in zip(in_order, numbers, strict=True)]
                steps = _that_fit(self._step(*each) for each in ruled)
                if not self._can_wait(state, steps):
                    steps = _that_fit(self._step_onwards(*each) for each in ruled)
                written = self._write(state, steps)
            except HeadraceError as error:
                return settled, error
            if written:
                settled.update(step.result.offset for step in steps)
                self._count(steps)
                left = [receipt for receipt in left if receipt.leased not in settled]
                who, started_ms = (lease.owner, self._key.consumer_uid), live_receipts[0].claimed_ms
                tried = [(step.shard, step.tried) for step in steps if step.tried]
                self._of._attempt_log.note(self._topic, self._group, who, self._token, started_ms, tried)
            state = written or states.last(self._key)
        return settled, None

    def repeated(self, receipt: Receipt, rule: Decide) -> SettleAnswer:
        """Already, where this lease has settled the delivery before just as `rule` would now. The traces tell, as far
        as they go: what they do not know of is as good as stale."""
        try:
            tried = self._traced(receipt)
        except HeadraceError as error:
            return error
        same = tried and tried.outcome == _outcome(rule(receipt, tried.attempt).fate)
        return Already.SETTLED if same else _stale()

    def _traced(self, receipt: Receipt) -> Tried | None:
        """The attempt at this delivery, if it was noted under this lease. What was settled in one write is one row."""
        place = receipt.shard, receipt.offset
        if place not in self._known and self._misses < _MISSES:
            row = self._of._attempt_log.tried(self._place(receipt.shard), receipt.offset, self._token)
            self._known |= {(receipt.shard, tried.offset): tried for tried in row}
            self._misses += not row
        return self._known.get(place)

    def _can_wait(self, state: CursorSnapshot, steps: Sequence[_Step]) -> bool:
        """Has the cursor room for what comes back? For what keeps its place there, it always has."""
        in_lane = self._key.shard.topic_uid != self._topic.uid
        keeps_place = not in_lane and POLICIES[self._group.mode].holds_back
        if keeps_place or not any(step.result.fate in RETURNING for step in steps):
            return True
        after, _ = transitions.settle(state.cursor, self._token, [step.result for step in steps])
        return cursor_size.has_room_to_wait(after)

    def _step_onwards(self, receipt: Receipt, ruled: SettleDecision, attempt: int) -> _Step:
        """The step of a delivery that comes back by a timer, since the cursor has no room for it."""
        if ruled.fate not in RETURNING:
            return self._step(receipt, ruled, attempt)
        was_tried = ruled.fate is Fate.RETRY
        later = replace(ruled, fate=Fate.RETRY_LATER, due_ms=max(ruled.due_ms, self._now_ms))
        step = self._step(receipt, later, attempt if was_tried else attempt - 1)
        return step if was_tried else replace(step, tried=None)

    def _write(self, state: CursorSnapshot, steps: Sequence[_Step]) -> CursorSnapshot | None:
        after, _ = transitions.settle(state.cursor, self._token, [step.result for step in steps])
        records = [step.record for step in steps if step.record]
        timers = [step.timer for step in steps if step.timer]
        change = cursor_write.change(state.cursor, after)
        written = self._of._states.write(self._key, state, change, records, timers)
        if written and timers:
            self._of._filed(timers)
        if written and any(step.result.fate in RETURNING for step in steps):
            self._of._filled(self._key)
        return written

    def _count(self, steps: Sequence[_Step]) -> None:
        fates = [step.result.fate for step in steps if step.result.fate is not Fate.RELEASED]
        self._of._counters.add(DELIVERED, fates.count(Fate.SUCCESS))
        self._of._counters.add(FAILED, len(fates) - fates.count(Fate.SUCCESS))

    def _step(self, receipt: Receipt, ruled: SettleDecision, attempt: int) -> _Step:
        ruled = self._climbed(receipt, ruled, attempt) if ruled.climbs else ruled
        tried = _tried(receipt, ruled, attempt, self._now_ms)
        step = Result(receipt.leased, ruled.fate, ruled.due_ms)
        if ruled.fate is Fate.RETRY_LATER:
            timer = self._timer(receipt, ruled, attempt)
            return _Step(
                step, tried, receipt.shard, self._record(receipt, Status.RETRYING, ruled, attempt), timer
            )
        status = _STATUSES.get(ruled.fate)
        has_record = attempt > 1 or receipt.entry is not None  # its record says RETRYING
        in_lane = receipt.entry is not None  # where only the record tells of attempts
        is_recorded = (
            has_record if ruled.fate is Fate.SUCCESS else ruled.detail or in_lane or ruled.fate is Fate.DEAD
        )
        record = self._record(receipt, status, ruled, attempt) if status and is_recorded else None
        return _Step(step, tried, receipt.shard, record)

    def _climbed(self, receipt: Receipt, ruled: SettleDecision, attempt: int) -> SettleDecision:
        """The ruling with the time that the message's ladder says. What retention took has no ladder of its own."""
        message = self._message(receipt)
        policy = self._group.retry or self._topic.retry
        if message:
            policy = overridden(policy, message.draft.ladder, message.draft.jitter)
        wait = wait_ms(policy, attempt - receipt.spent, receipt.id)
        return replace(ruled, due_ms=self._now_ms + wait)

    def _next_ms(self, receipt: Receipt, ruled: SettleDecision) -> int | None:
        """When the next attempt of what has left its shard's cursor is due. Of what waits in it, the cursor tells."""
        if ruled.fate is Fate.RETRY_LATER:
            return ruled.due_ms
        return self._now_ms if ruled.fate is Fate.RETRY and receipt.entry is not None else None

    def _record(self, receipt: Receipt, status: Status, ruled: SettleDecision, attempt: int) -> Record:
        dead = ruled.fate is Fate.DEAD
        ends_ms = max(self._now_ms, ruled.due_ms)
        return Record(
            receipt.shard,
            receipt.offset,
            status,
            attempt,
            self._now_ms,
            receipt.consumer_uid,
            ruled.reason,
            ruled.detail,
            self._next_ms(receipt, ruled),
            receipt.spent,
            self._place(receipt.shard) if receipt.entry is not None else None,
            self._content(receipt) if dead else None,
            None if dead else self._topic.expires_s(ends_ms),
        )

    def _place(self, shard: int) -> CursorKey:
        return cursor_key(self._topic, self._group, shard, self._key.consumer_uid)

    def _message(self, receipt: Receipt) -> Message | None:
        """The message that was delivered; None where retention took it meanwhile. Raises Unavailable where only a later
        release, which has delivered it, can read it."""
        reader = self._of._reader
        trust = reader.trust(self._group, self._key.consumer_uid, self._amended)
        slot = reader.fetch(self._key.shard, [receipt.leased], trust)[receipt.leased]
        message = retry_queue.meant(reader, self._topic, slot.message, trust) if slot.message else None
        if slot.newer or (slot.message and message is None):
            raise unavailable("Only a later release can read this message; try again.")
        return message

    def _content(self, receipt: Receipt) -> Message | None:
        message = self._message(receipt)
        return retry_queue.content(message) if message else None

    def _timer(self, receipt: Receipt, ruled: SettleDecision, attempt: int) -> Timer:
        lane = lane_of(self._topic, self._group, self._key.consumer_uid)
        message = self._message(receipt)
        if message is not None:
            outlived = ruled.due_ms + _LANE_SLACK_MS > message.ends_ms + _GRACE_MS
            draft = retry_queue.entry_of(message, attempt, receipt.spent, whole=outlived)
        else:
            gone = Origin(receipt.id, receipt.shard, receipt.offset, 0, attempt, receipt.spent)
            draft = Draft(b"", is_json=False, origin=gone)
        consumer_uid = self._key.consumer_uid
        return Timer(
            ruled.due_ms,
            retry_id(self._group.uid, consumer_uid, receipt.shard, receipt.offset, attempt),
            TimerKind.RETRY,
            lane.shard_key(0),
            draft,
            self._topic.retention_days,
            self._group.uid,
            consumer_uid,
        )


def _tried(receipt: Receipt, ruled: SettleDecision, attempt: int, now_ms: int) -> Tried | None:
    if ruled.fate is Fate.RELEASED or ruled.reason == DeadReason.UNDECODABLE:
        return None
    took_ms = now_ms - receipt.claimed_ms if ruled.duration_ms is None else ruled.duration_ms
    return Tried(receipt.offset, attempt, _outcome(ruled.fate), took_ms, ruled.detail or "")


def _outcome(fate: Fate) -> str:
    """What a trace calls it."""
    return "RETRY" if fate is Fate.RETRY_LATER else fate.value


def _by_lease(
    topic: Topic, group: Group, receipts: Iterable[tuple[int, Receipt]]
) -> dict[tuple[CursorKey, str], list[tuple[int, Receipt]]]:
    by_lease: defaultdict[tuple[int | None, str, str], list[tuple[int, Receipt]]] = defaultdict(list)
    for i, receipt in receipts:
        shard = receipt.shard if receipt.entry is None else None
        by_lease[shard, receipt.consumer_uid, receipt.token].append((i, receipt))
    return {
        (cursor_key(topic, group, shard, uid), token): members
        for (shard, uid, token), members in by_lease.items()
    }


def _that_fit(steps: Iterable[_Step]) -> list[_Step]:
    """The first steps that one write can hold; neighbours that come back together share an entry of the cursor."""
    fit: list[_Step] = []
    entries = actions = weight = 0
    for step in steps:
        neighbour = fit and _joins(fit[-1].result, step.result)
        entries += step.result.fate in RETURNING and not neighbour
        actions += step.actions
        weight += step.weight
        full = entries > _ENTRIES_PER_WRITE or actions > _ACTIONS_PER_WRITE or weight > _BYTES_PER_WRITE
        if fit and full:
            break
        fit.append(step)
    return fit


def _joins(one: Result, other: Result) -> bool:
    return one.offset + 1 == other.offset and (one.fate, one.due_ms) == (other.fate, other.due_ms)


def _stale() -> Conflict:
    return Conflict(
        "RECEIPT_STALE", "The lease has passed on or the message is settled; nothing was changed."
    )
