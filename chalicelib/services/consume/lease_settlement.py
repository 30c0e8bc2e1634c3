"""Settling the deliveries of one lease, in as few writes as can hold them; extending it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from enum import Enum

from ...domain import cursor_size, cursor_write, notice
from ...domain import cursor_transitions as transitions
from ...domain.cursor import RETURNING, Cursor, Disposition, Lease, Result
from ...domain.errors import Conflict, HeadraceError
from ...domain.notice import Events
from ...domain.receipt import Receipt
from ...domain.spans import HEAVY
from ...domain.timer import Timer
from ...domain.topic import CursorKey, Group, Topic
from ...domain.trace import TraceEntry
from ...modes import POLICIES
from ...ports.world import Clock
from ..core.attempt_log import AttemptLog
from ..core.counters import DEAD, DELIVERED, FAILED, Counters
from ..core.cursor_store import CursorSnapshot, CursorStore
from ..core.log_reader import LogReader
from .decision import Decide, SettleDecision
from .settle_steps import Step, StepMaker, outcome_of, that_fit

_MISSES = 2  # of one lease; then its other receipts are not looked up


class Already(Enum):
    """The same settlement was recorded under this lease before: the client repeats a call whose answer was lost."""

    SETTLED = "settled"


_Decided = tuple[Receipt, SettleDecision, int]  # and the number of the attempt
SettleAnswer = HeadraceError | Already | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SettleContext:
    """The services that a settlement uses. `on_timers_stored` is called with new timers, `on_freed` with cursors
    from which others may claim more than before, or sooner, and the owner of the lease; `on_filled` with those of
    them that may have been seen empty."""

    states: CursorStore
    reader: LogReader
    attempt_log: AttemptLog
    clock: Clock
    counters: Counters
    events: Callable[[], Events | None]
    on_timers_stored: Callable[[Sequence[Timer]], None]
    on_filled: Callable[[CursorKey], None]
    on_freed: Callable[[Topic, Group, CursorKey, str], None]


class LeaseSettlement:
    """The deliveries of one lease, being settled."""

    def __init__(
        self, *, context: SettleContext, topic: Topic, group: Group, key: CursorKey, token: str
    ) -> None:
        self._context = context
        self._topic = topic
        self._group = group
        self.key = key
        self._token = token
        self._now_ms = context.clock.now_ms()
        self._steps = StepMaker(reader=context.reader, topic=topic, group=group, key=key, now_ms=self._now_ms)
        self._holds_back = POLICIES[group.mode].holds_back
        self.owner = ""  # known once the lease was found
        self.holes: set[int] = set()  # in a run: not settled, since one before them is not
        self._known: dict[tuple[int, int], TraceEntry] = {}
        self._misses = 0

    def settle(self, receipts: Sequence[Receipt], rule: Decide) -> tuple[set[int], HeadraceError | None]:
        """Settle in as few writes as possible. Returns the settled offsets, and the error that stopped the others."""
        settled_offsets: set[int] = set()
        try:
            self._settle(receipts, rule, settled_offsets)
        except HeadraceError as error:
            return settled_offsets, error
        return settled_offsets, None

    def _settle(self, receipts: Sequence[Receipt], rule: Decide, settled_offsets: set[int]) -> None:
        """As `settle`; adds to `settled_offsets`."""
        states = self._context.states
        state, is_consistent = states.last(self.key), False
        open_receipts = list({receipt.leased_offset: receipt for receipt in receipts}.values())
        while open_receipts:
            lease = state.cursor.leases.get(self._token)
            attempts = lease.attempts() if lease else {}
            live_receipts = [receipt for receipt in open_receipts if receipt.leased_offset in attempts]
            if lease or not settled_offsets:
                self.holes = _holes(lease, {receipt.leased_offset for receipt in live_receipts})
            live_receipts = [r for r in live_receipts if r.leased_offset not in self.holes]
            if len(live_receipts) < len(open_receipts) and not is_consistent:
                state, is_consistent = states.read(self.key), True
                continue
            if not live_receipts or lease is None:
                break
            decisions = self._decide(state, lease, live_receipts, rule)
            steps = that_fit(self._steps_of(lease, decisions))
            if not self._can_wait(state, steps):
                keyed = _with_keys(lease)
                make = self._steps.step, self._steps.step_by_timer
                steps = that_fit(make[each[0].leased_offset not in keyed](*each) for each in decisions)
            new_state = self._write(state, steps)
            if new_state:
                results = {result.offset for step in steps for result in step.results}
                settled_offsets.update(r.leased_offset for r in live_receipts if r.leased_offset in results)
                open_receipts = [r for r in open_receipts if r.leased_offset not in settled_offsets]
                self.note_written(live_receipts[0].claimed_ms, steps)
            state = new_state or states.last(self.key)

    def _decide(
        self, state: CursorSnapshot, lease: Lease, receipts: Sequence[Receipt], rule: Decide
    ) -> list[_Decided]:
        """The decision and the attempt number of each receipt, in the log's order. What has a key waits in place."""
        self._steps.amended, self.owner = state.cursor.amended, lease.owner
        attempts = lease.attempts()
        in_order = sorted(receipts, key=lambda r: r.leased_offset)
        numbers = [r.attempts_before_entry + attempts[r.leased_offset] for r in in_order]
        keyed = _with_keys(lease)
        decided = [(r, rule(r, n), n) for r, n in zip(in_order, numbers, strict=True)]
        for at, (receipt, decision, number) in enumerate(decided):
            if receipt.leased_offset in keyed and decision.disposition is Disposition.RETRY_LATER:
                decided[at] = receipt, replace(decision, disposition=Disposition.RETRY), number
        return decided

    def steps_in(self, state: CursorSnapshot | None, receipts: Sequence[Receipt], rule: Decide) -> list[Step]:
        """The steps that settle these receipts as a part of another write of the cursor in this state (None: as last
        seen); none if they need more than that: a record or a timer, or a newer state of the cursor."""
        state = state or self._context.states.last(self.key)
        lease = state.cursor.leases.get(self._token)
        offsets = {r.leased_offset for r in receipts}
        if lease is None or len(offsets) < len(receipts) or not offsets <= lease.attempts().keys():
            return []
        steps = that_fit(self._steps_of(lease, self._decide(state, lease, receipts, rule)))
        return steps if len(steps) == len(receipts) and not any(s.actions or s.ended for s in steps) else []

    def _steps_of(self, lease: Lease, decisions: Sequence[_Decided]) -> Iterator[Step]:
        """The steps of these decisions; in a run, a message that does not succeed gives back those behind it."""
        if not lease.run_ms:
            yield from (self._steps.step(*each) for each in decisions)
            return
        by_offset = {each[0].leased_offset: each for each in decisions}
        dispositions = {offset: decision.disposition for offset, (_, decision, _) in by_offset.items()}
        for offset, behind in transitions.in_run(lease, dispositions):
            released = tuple(Result(each, Disposition.RELEASED) for each in behind)
            yield replace(self._steps.step(*by_offset[offset]), behind=released)

    def after(self, cursor: Cursor, steps: Sequence[Step]) -> Cursor:
        """The cursor after these steps. What is left of a run has its time again."""
        lease = cursor.leases[self._token]
        if lease.run_ms:
            until_ms = max(lease.deadline_ms, self._now_ms + lease.run_ms)
            cursor = transitions.extend(cursor, self._token, until_ms) or cursor
        results = [result for step in steps for result in step.results]
        return transitions.settle(cursor, self._token, results)[0]

    def extend(self, offsets: Set[int], deadline_ms: int) -> tuple[Set[int], HeadraceError | None]:
        """Extend the lease for the messages at these offsets, or end it sooner. Returns those that it still holds, or
        may hold, and the error if it was not changed."""
        try:
            return self._extend(offsets, deadline_ms), None
        except HeadraceError as error:
            return offsets, error

    def _extend(self, offsets: Set[int], deadline_ms: int) -> Set[int]:
        states = self._context.states
        state, is_consistent = states.last(self.key), False
        while True:
            lease = state.cursor.leases.get(self._token)
            leased_offsets = offsets & lease.attempts().keys() if lease else frozenset[int]()
            if leased_offsets < offsets and not is_consistent:
                state, is_consistent = states.read(self.key), True
                continue
            # Claims from other cursors may have counted it as over.
            is_over = self._group.key_concurrency and lease and lease.deadline_ms <= self._now_ms
            if lease is None or not leased_offsets or is_over:
                return frozenset()
            self.owner = lease.owner
            names_all = lease.attempts().keys() <= offsets
            until_ms = deadline_ms if names_all else max(deadline_ms, lease.deadline_ms)
            if lease.deadline_ms == until_ms:
                return leased_offsets
            after = transitions.extend(state.cursor, self._token, until_ms)
            if after and states.write(self.key, state, cursor_write.change(state.cursor, after)):
                if until_ms < lease.deadline_ms:
                    self._context.on_freed(self._topic, self._group, self.key, self.owner)
                return leased_offsets
            state = states.last(self.key)  # the winner's

    def answer_to_repeat(self, receipt: Receipt, rule: Decide) -> SettleAnswer:
        """`Already`, if this lease settled the delivery before with the same outcome as `rule` gives now; else
        RECEIPT_STALE. It is looked up in the traces, which are best effort: an attempt that they lack is answered as
        stale."""
        try:
            attempt = self._traced_attempt(receipt)
        except HeadraceError as error:
            return error
        same = attempt and attempt.outcome == outcome_of(rule(receipt, attempt.attempt).disposition)
        return Already.SETTLED if same else stale()

    def _traced_attempt(self, receipt: Receipt) -> TraceEntry | None:
        """The attempt at this delivery, if a trace of this lease has it. Deliveries settled in one write have one trace
        row."""
        location = receipt.shard, receipt.offset
        if location not in self._known and self._misses < _MISSES:
            row = self._context.attempt_log.entries(
                self._steps.delivery_key(receipt.shard), receipt.offset, self._token
            )
            self._known |= {(receipt.shard, attempt.offset): attempt for attempt in row}
            self._misses += not row
        return self._known.get(location)

    def _can_wait(self, state: CursorSnapshot, steps: Sequence[Step]) -> bool:
        """Has the cursor space for the returned messages? In an ordered mode it always has."""
        if self._holds_back or not _returns_any(steps):
            return True
        return cursor_size.has_room_for_returns(self.after(state.cursor, steps))

    def _write(self, state: CursorSnapshot, steps: Sequence[Step]) -> CursorSnapshot | None:
        records = [step.record for step in steps if step.record]
        timers = [step.timer for step in steps if step.timer]
        ended = [step.ended for step in steps if step.ended]
        timers += notice.timers(self._topic, self._group, ended, self._context.events)
        change = cursor_write.change(state.cursor, self.after(state.cursor, steps))
        new_state = self._context.states.write(self.key, state, change, records, timers)
        if new_state and timers:
            self._context.on_timers_stored(timers)
        return new_state

    def note_written(self, claimed_ms: int, steps: Sequence[Step]) -> None:
        """After a write with these steps: count and trace the attempts, and wake what may go on now."""
        context = self._context
        if self._holds_back or self._group.key_concurrency or _returns_any(steps):
            context.on_filled(self.key)
            context.on_freed(self._topic, self._group, self.key, self.owner)
        self._count(steps)
        for called in dict.fromkeys(step.called for step in steps):
            attempts = [(step.shard, step.entry) for step in steps if step.entry and step.called == called]
            place = self._topic, self._group, self.owner, called, self.key.consumer_uid
            context.attempt_log.note(*place, row_id=self._token, started_ms=claimed_ms, attempts=attempts)

    def _count(self, steps: Sequence[Step]) -> None:
        counters, group = self._context.counters, self._group
        dispositions = [step.result.disposition for step in steps if step.was_tried]
        failed_count = len(dispositions) - dispositions.count(Disposition.SUCCESS)
        dead_count = sum(step.result.disposition == Disposition.DEAD for step in steps)
        counters.add(DELIVERED, dispositions.count(Disposition.SUCCESS))
        counters.add(FAILED, failed_count)
        if dead_count:
            counters.note("dead letter", topic=group.topic, group=group.name, count=dead_count)
        if failed_count and group.metrics:
            counters.add_of_group(group.topic, group.name, {FAILED: failed_count, DEAD: dead_count})


def _holes(lease: Lease | None, named: Set[int]) -> set[int]:
    """The offsets that are named though one before them in their run is not."""
    if lease is None or not lease.run_ms:
        return set()
    return {o for _, others in transitions.parts_of_run(lease, named) for o in others} & named


def _with_keys(lease: Lease) -> set[int]:
    """The offsets of a lease with a unit of order: its claim has reserved the space for their return."""
    return {o for span in lease.spans if span.unit not in ("", HEAVY) for o in span.offsets()}


def _returns_any(steps: Sequence[Step]) -> bool:
    return any(step.result.disposition in RETURNING for step in steps)


def stale() -> Conflict:
    """The error for a receipt whose lease has ended or passed on (RECEIPT_STALE)."""
    return Conflict(
        "RECEIPT_STALE", "The lease has passed on or the message is settled; nothing was changed."
    )


def is_stale(answer: SettleAnswer) -> bool:
    """Is it that error?"""
    return isinstance(answer, Conflict) and answer.code == "RECEIPT_STALE"


def out_of_order() -> Conflict:
    """The error for a message of a run that would be settled before one ahead of it (RUN_OUT_OF_ORDER)."""
    return Conflict(
        "RUN_OUT_OF_ORDER",
        "A message before this one in its run is not settled. Settle that one first, or both in one call.",
    )
