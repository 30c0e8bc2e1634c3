"""A shard and its stored cursor, with a history that a checker can ask: what the cursor machine acts on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from chalicelib.domain import cursor_transitions as transitions
from chalicelib.domain import cursor_write, ranges
from chalicelib.domain.cursor import RETURNING, Cursor, Disposition, Result, Selection, raise_floor
from chalicelib.domain.cursor_write import Change
from chalicelib.modes import Candidate, ClaimVerdict, Policy, Turn

LEASE_MS = 1_000
MOST_ATTEMPTS = 4
GONE = "gone"  # the unit of an offset whose row expired


@dataclass(frozen=True)
class Write:
    """An attempted write: its change, the token it concerns, and whether it was applied."""

    change: Change
    applied: bool
    token: str = ""
    results: tuple[Result, ...] = ()


class World:
    """The truth: the log's units, the stored cursor, and everything that was ever accepted."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.now_ms = 1_000_000
        self.units: list[str] = []
        self.stored = Cursor()
        self.rounds = 0  # claims, seeks and amendments that were written
        self.editions: defaultdict[int, int] = defaultdict(int)
        self.tokens: list[str] = []
        self.writes: list[Write] = []
        self.accepted: dict[tuple[str, int], Disposition] = {}
        self.begin_again(0)

    def begin_again(self, at: int) -> None:
        """What a seek means for the checker: everything before it is forgotten."""
        self.begin = at
        self.grants: defaultdict[int, int] = defaultdict(int)
        self.settled: set[int] = set()
        self.due: dict[int, int] = {}

    def write(self, change: Change, token: str = "", results: tuple[Result, ...] = ()) -> bool:
        """What a store does with a write; remembered for those who ask after a lost answer."""
        is_current = cursor_write.holds(change, self.stored)
        if is_current:
            self.stored = cursor_write.apply(self.stored, change)
        self.writes.append(Write(change, is_current, token, results))
        return is_current

    # What a claim does: the services' part, with verdicts made up from the units.

    def plan(self, snapshot: Cursor, most: int) -> tuple[Cursor, Selection]:
        current = transitions.lapse(snapshot, self.now_ms)
        spans = transitions.due_spans(current, self.now_ms)
        due = sorted((offset, span.attempt) for span in spans for offset in span.offsets())
        back = [self._candidate(offset, attempt) for offset, attempt in due]
        fresh = list(self._fresh(current.next))
        return current, self.policy.select(current, back, fresh, most)

    def _candidate(self, offset: int, attempt: int, count: int = 1) -> Candidate:
        unit = self.units[offset]
        settle = unit == GONE or attempt > MOST_ATTEMPTS
        shown_unit = unit if self.policy.reads_units else ""
        verdict = ClaimVerdict.SETTLE if settle else ClaimVerdict.DELIVER
        turn = Turn.LAST if unit in ("a", "b") else Turn.FIRST  # those are heavy tenants'
        return Candidate(offset, count, attempt, shown_unit, verdict, turn=turn)

    def _fresh(self, at: int) -> Iterator[Candidate]:
        while at < len(self.units):
            count = 1
            while self.units[at] == GONE and at + count < len(self.units) and self.units[at + count] == GONE:
                count += 1
            yield self._candidate(at, 1, count)
            at += count

    def read(self, selection: Selection, snapshot: Cursor, copies: dict[int, int]) -> dict[int, int]:
        """The editions of what a claim grants, from an actor's copies where the cursor it knows allows that."""
        for offset in offsets(ranges.normalise((s.start, s.end) for s in selection.granted)):
            if offset not in copies or ranges.contains(snapshot.amended, offset):
                copies[offset] = self.editions[offset]
        return dict(copies)

    def enter_amend(self, offset: int, after: Cursor) -> None:
        self.rounds += 1
        self.editions[offset] += 1
        self.stored = after

    def enter_claim(self, before: Cursor, selection: Selection, editions: dict[int, int]) -> None:
        """Check a claim that was written against the history, then enter it."""
        self.rounds += 1
        for lease in before.leases.values():
            for offset in lease.attempts().keys() - lease.begun().keys() if lease.run_ms else ():
                self.grants[offset] -= lease.deadline_ms <= self.now_ms  # it was not tried
        run: set[int] = set()
        for offset in offsets(selection.settled):
            assert offset not in self.settled, "a settled offset is settled again"
            self.settled.add(offset)
        for span in selection.granted:
            for offset in span.offsets():
                assert offset not in self.settled, "I6: a settled offset is delivered again"
                assert editions[offset] == self.editions[offset], "an old copy is delivered"
                assert self.due.pop(offset, 0) <= self.now_ms, "I9: delivered before it was due"
                self.grants[offset] += 1
                assert span.attempt == self.grants[offset], "I14: attempts are 1, 2, 3 …"
                if self.policy.holds_back:
                    self._in_order(offset, run if self.policy.run else set())
                    run.add(offset)

    def _in_order(self, offset: int, run: set[int]) -> None:
        unit = self.units[offset]
        for earlier in range(self.begin, offset):
            same = self.units[earlier] == unit and earlier not in run
            assert not same or earlier in self.settled, "I7: granted before its predecessor was settled"

    def settle_accepted(self, token: str, results: tuple[Result, ...], lease_offsets: dict[int, int]) -> None:
        for result in results:
            assert result.offset in lease_offsets, "I5: accepted an offset that the lease did not hold"
            assert result.offset not in self.settled, "I5: settled a second time"
            self.accepted[token, result.offset] = result.disposition
            if result.disposition is Disposition.RELEASED:
                self.grants[result.offset] -= 1
            if result.disposition in RETURNING:
                self.due[result.offset] = result.due_ms
            else:
                self.settled.add(result.offset)

    def is_recorded(self, write: Write) -> bool:
        """Is what the write wanted recorded, by itself or by a twin under the same token?"""
        for result in write.results:
            fate = self.accepted.get((write.token, result.offset))
            if fate is None or (fate in RETURNING) != (result.disposition in RETURNING):
                return False
        return True

    # The invariants of a stored cursor.

    def check(self) -> None:
        cursor = self.stored
        settled_offsets = set(range(self.begin, cursor.floor)) | set(offsets(cursor.settled))
        leased_offsets = [o for lease in cursor.leases.values() for s in lease.spans for o in s.offsets()]
        waiting_offsets = [o for s in cursor.waiting for o in s.offsets()]
        above = sorted([*offsets(cursor.settled), *leased_offsets, *waiting_offsets])
        assert above == list(range(cursor.floor, cursor.next)), (
            "[floor, next) is settled, leased or waiting: one each"
        )
        assert settled_offsets == self.settled, "exactly what was accepted is settled"
        assert cursor.epoch == self.rounds, "one epoch for each claim, seek and amendment"
        assert cursor.next <= len(self.units)
        assert raise_floor(cursor).floor >= cursor.floor
        for offset in leased_offsets:
            assert self.grants[offset] >= 1
        for span in cursor.waiting:
            for offset in span.offsets():
                assert span.attempt == self.grants[offset] + 1, (
                    "I14: what waits has the next attempt's number"
                )
        if self.policy.reads_units:
            self._check_units(leased_offsets)

    def _check_units(self, leased_offsets: list[int]) -> None:
        units = [self.units[o] for lease in self.stored.leases.values() for o in lease.begun()]
        most = max(1, self.policy.of_key)
        assert max(Counter(units).values(), default=0) <= most, (
            "I7: at most one message of a unit (n of a key)"
        )
        assert self.policy.run or len(units) == len(leased_offsets)

    def stuck(self, snapshot: Cursor) -> bool:
        """May a claim that knows the truth grant nothing? Only if no message could be granted."""
        current = transitions.lapse(snapshot, self.now_ms)
        if self.policy.of_key:
            full = transitions.full_units(current, self.policy.of_key)
            due_units = (s.unit for s in transitions.due_spans(current, self.now_ms))
            return {*due_units, *self.units[current.next :]} <= full
        busy_units = {s.unit for lease in current.leases.values() for s in lease.spans}
        for span in sorted(current.waiting, key=lambda s: s.start):
            if not self.policy.reads_units:
                if span.due_ms <= self.now_ms:
                    return False
            elif span.unit not in busy_units:
                if span.due_ms <= self.now_ms:
                    return False
                busy_units.add(span.unit)
        return all(unit in busy_units for unit in self.units[current.next :])


def offsets(spans: ranges.Ranges) -> Iterator[int]:
    return (offset for start, end in spans for offset in range(start, end))


def span_of(cursor: Cursor, token: str) -> dict[int, int]:
    lease = cursor.leases.get(token)
    return lease.attempts() if lease else {}
