"""A cursor's item stays small: leases of 1,000 settled in any order by actors who do not see each other's writes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from chalicelib.domain import cursor_size, cursor_write
from chalicelib.domain import cursor_transitions as transitions
from chalicelib.domain.cursor import RETURNING, Cursor, Disposition, Result, Selection, start_at
from chalicelib.domain.cursor_write import Change
from chalicelib.domain.ids import base32
from chalicelib.domain.limits import MAX_CURSOR_BYTES, MAX_RECEIVE
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.spans import Span, coalesce
from chalicelib.domain.times import DAY_MS
from chalicelib.domain.topic import Mode
from chalicelib.modes import POLICIES, Candidate, ClaimVerdict, Keyed, Policy, Serial, Turn
from chalicelib.store.cursors import _item, cursor_of
from tests.support import factories as make
from tests.support.cursor_bytes import bytes_of

LEASE_MS = 30_000
DOCS = Path(__file__).parents[2] / "docs"
KEY = make.cursor_key(ShardKey("t" * 100, make.uid("t"), 0))
ACTORS = range(4)


def size_of(cursor: Cursor) -> int:
    return bytes_of(KEY, cursor)


class BoundMachine(RuleBasedStateMachine):
    """What the services do: claims that take less where there is no room, and what finds none to wait goes to a timer.
    Actors have old copies; a refused write shows them the truth."""

    policy: Policy

    @initialize(
        at=st.sampled_from((0, 10**6, 10**12)),
        units=st.sampled_from((1, 3, 10_000)),
        step=st.sampled_from((1, 1, 3, 60, 5_000)),
    )
    def start(self, at: int, units: int, step: int) -> None:
        """`step`: from one message to the next; a filter or holes may lie between."""
        self.now_ms = 1_800_000_000_000
        self.units = units
        self.step = step
        self.stored = start_at(at)
        self.known = dict.fromkeys(ACTORS, self.stored)
        self.tokens = 0
        self.largest = 0
        self.open = set[int]()  # what is claimed and not settled

    def _write(self, actor: int, change: Change) -> bool:
        is_current = cursor_write.holds(change, self.stored)
        if is_current:
            self.stored = cursor_write.apply(self.stored, change)
        self.known[actor] = self.stored
        return is_current

    @rule(by_ms=st.sampled_from((1_000, LEASE_MS // 2, LEASE_MS)))
    def time_passes(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @rule(
        actor=st.sampled_from(ACTORS),
        most=st.sampled_from((1, 1, 10, 100, MAX_RECEIVE)),
        times=st.sampled_from((1, 3, 30)),
    )
    def claims(self, actor: int, most: int, times: int) -> None:
        for _ in range(times):
            cursor = self.known[actor]
            current = transitions.lapse(cursor, self.now_ms)
            count = 0 if cursor_size.is_full(current) else most
            while count:
                selection = self._select(current, count)
                self.tokens += 1
                token = f"{self.tokens:x}.abcd" + (".30=" if self.policy.run else "")
                after = transitions.claim(current, selection, token, "ownerabc", self.now_ms + LEASE_MS)
                grant_count = sum(span.count for span in selection.granted)
                sure_count = 0 if selection.passed_over else grant_count
                if cursor_size.has_room_for_claim(current, after, sure_count):
                    break
                count = grant_count // 2 or min(1, count - 1)
            if not count or not (selection.granted or selection.passed_over):
                return
            if self._write(actor, cursor_write.change(cursor, after)):
                self.open |= {
                    o for span in (*selection.granted, *selection.passed_over) for o in span.offsets()
                }

    @rule(
        actor=st.sampled_from(ACTORS), times=st.sampled_from((1, 250)), wait_ms=st.sampled_from((0, DAY_MS))
    )
    def gives_back_one_after_the_other(self, actor: int, times: int, wait_ms: int) -> None:
        for _ in range(times):
            self.claims(actor, 1, 1)
            cursor = self.known[actor]
            newest = max(
                cursor.leases.values(), key=lambda lease: int(lease.token.partition(".")[0], 16), default=None
            )
            if newest:
                due_ms = self.now_ms + wait_ms
                self._settle(
                    actor, newest.token, [Result(o, Disposition.RETRY, due_ms) for o in newest.attempts()]
                )

    def _select(self, current: Cursor, most: int) -> Selection:
        spans = transitions.due_spans(current, self.now_ms)
        due = sorted((o, span) for span in spans for o in span.offsets())
        back = [Candidate(o, 1, span.attempt, span.unit) for o, span in due]
        places = range(current.next, current.next + (most + 50) * self.step, self.step)
        is_waiting = self.policy.holds_back and not cursor_size.has_room_for_new(current)
        fresh = [] if is_waiting else [candidate for o in places for candidate in self._from(o)]
        if not self.policy.reads_units:
            back = back[:most]
        return (Serial(run=most) if self.policy.run else self.policy).select(current, back, fresh, most)

    def _from(self, offset: int) -> Iterator[Candidate]:
        """A message, and what lies between it and the next."""
        yield Candidate(offset, 1, 1, self._unit(offset), turn=Turn(offset // 7 % 2))
        if self.step > 1:
            yield Candidate(offset + 1, self.step - 1, verdict=ClaimVerdict.SETTLE)

    def _unit(self, offset: int) -> str:
        return f"{offset // self.step % self.units:06x}" if self.policy.reads_units else ""

    @rule(
        actor=st.sampled_from(ACTORS),
        seed=st.integers(0, 1 << 32),
        share=st.sampled_from((0.02, 0.5, 0.9, 1.0)),
        fate=st.sampled_from(
            (
                Disposition.SUCCESS,
                Disposition.SUCCESS,
                Disposition.RETRY,
                Disposition.RELEASED,
                Disposition.RETRY_LATER,
            )
        ),
        together=st.sampled_from((1, 1, 30, 1000)),
        leases=st.sampled_from((1, 3, 30)),
    )
    def settles(
        self, actor: int, seed: int, share: float, fate: Disposition, together: int, leases: int
    ) -> None:
        random = Random(seed)
        tokens = list(self.stored.leases)
        for token in random.sample(tokens, min(leases, len(tokens))):
            lease = self.stored.leases.get(token)
            offsets = list(lease.attempts()) if lease else []
            sample = random.sample(offsets, round(len(offsets) * share))[: 60 if together == 1 else 1000]
            for start in range(0, len(sample), together):
                due_ms = self.now_ms + random.randrange(5_000)
                some = [Result(o, fate, due_ms) for o in sample[start : start + together]]
                if not self._settle(actor, token, some):
                    self._settle(actor, token, some)

    def _settle(self, actor: int, token: str, results: list[Result]) -> bool:
        cursor = self.known[actor]
        if self.policy.run and token in cursor.leases:
            fates = {result.offset: result.disposition for result in results}
            behind = [o for _, rest in transitions.in_run(cursor.leases[token], fates) for o in rest]
            settled = [o for o, _ in transitions.in_run(cursor.leases[token], fates)]
            results = [result for result in results if result.offset in settled]
            results += [Result(o, Disposition.RELEASED) for o in behind]
        after, accepted_results = transitions.settle(cursor, token, results)
        has_returns = any(result.disposition in RETURNING for result in accepted_results)
        if has_returns and not self.policy.holds_back and not cursor_size.has_room_for_returns(after):
            results = [Result(result.offset, Disposition.RETRY_LATER) for result in accepted_results]
            after, accepted_results = transitions.settle(cursor, token, results)
        if not accepted_results:
            self.known[actor] = self.stored
            return False
        if is_written := self._write(actor, cursor_write.change(cursor, after)):
            self.open -= {result.offset for result in accepted_results if result.disposition not in RETURNING}
        return is_written

    @rule(actor=st.sampled_from(ACTORS), back=st.integers(0, 3_000))
    def seeks(self, actor: int, back: int) -> None:
        cursor = self.known[actor]
        if self._write(
            actor, cursor_write.replacement(cursor, transitions.seek(cursor, max(0, cursor.next - back)))
        ):
            self.open.clear()

    @rule(seed=st.integers(0, 1 << 32), times=st.integers(1, 40))
    def amends(self, seed: int, times: int) -> None:
        random = Random(seed)
        for _ in range(times):
            self.stored = (
                transitions.amend(self.stored, self.stored.next + random.randrange(5_000)) or self.stored
            )

    @invariant()
    def the_item_is_small_and_complete(self) -> None:
        if not hasattr(self, "stored"):
            return
        offsets = [o for lease in self.stored.leases.values() for o in lease.attempts()]
        offsets += [o for span in self.stored.waiting for o in span.offsets()]
        assert len(offsets) == len(set(offsets)), "an offset is in one place"
        assert set(offsets) == self.open, "what was claimed and not settled is leased or waits"
        size = size_of(self.stored)
        assert size <= MAX_CURSOR_BYTES
        assert size <= cursor_size.most_bytes(self.stored) + 150, "the estimate is not below the truth"
        assert cursor_of(_item(self.stored)) == self.stored


@pytest.mark.parametrize("policy", [POLICIES[Mode.QUEUE], POLICIES[Mode.SERIAL], Serial(run=1), Keyed(3)])
def test_no_history_makes_a_cursor_large(policy: Policy) -> None:
    machine = type("Bound", (BoundMachine,), {"policy": policy})
    run_state_machine_as_test(machine, settings=settings(max_examples=5, stateful_step_count=15))


def test_where_what_waits_in_order_fills_a_cursor_further_keys_wait_until_it_is_due() -> None:
    machine = type("Bound", (BoundMachine,), {"policy": POLICIES[Mode.SERIAL]})()
    machine.start(at=0, units=10_000, step=1)
    machine.gives_back_one_after_the_other(actor=0, times=600, wait_ms=DAY_MS)
    count = machine.stored.next
    assert 150 < count == len(machine.stored.waiting)
    machine.the_item_is_small_and_complete()
    machine.time_passes(DAY_MS)
    machine.claims(actor=0, most=1, times=1)
    (lease,) = machine.stored.leases.values()
    assert lease.attempts() == {0: 2}
    machine.settles(0, 0, 1.0, Disposition.SUCCESS, 30, 1)
    machine.gives_back_one_after_the_other(actor=0, times=count, wait_ms=DAY_MS)
    assert machine.stored.next <= count + 1, "what was due goes first"


@given(st.sets(st.integers(0, 1_500)), st.integers(0, 10**12), st.sampled_from(("", "a1b2c3")))
def test_joining_keeps_every_offset_with_its_fate(offsets: set[int], at: int, unit: str) -> None:
    spans = coalesce(Span(at + o, 1, 1 + o % 3, unit) for o in offsets)
    attempt_of = {o - at: span.attempt for span in spans for o in span.offsets()}
    assert attempt_of == {o: 1 + o % 3 for o in offsets}
    assert sum(span.count for span in spans) == len(offsets)
    assert all(span.holds(at + o) for span in spans for o in range(1_600) if at + o in set(span.offsets()))
    assert coalesce(spans) == spans, "joined once is joined"


@given(st.sets(st.integers(0, 999), min_size=1), st.integers(1, 5))
def test_what_is_left_of_a_lease_takes_a_bit_for_each_offset_at_most(
    offsets_left: set[int], step: int
) -> None:
    cursor = transitions.claim(Cursor(), Selection((Span(0, 1_000),), next=1_000), "1.abcd", "owner", 0)
    worst = cursor_size.most_bytes(cursor)
    results = [Result(o, Disposition.SUCCESS) for o in range(1_000) if o not in offsets_left and o % step]
    after, _ = transitions.settle(cursor, "1.abcd", results)
    assert size_of(after) <= worst
    assert cursor_size.most_bytes(after) <= worst + 10


def test_each_message_of_a_serial_claim_has_room_for_returns_for_a_time_of_its_own() -> None:
    spans = tuple(Span(10**9 + n, unit=f"{n:06x}") for n in range(100))
    cursor = transitions.claim(Cursor(), Selection(spans, next=10**9 + 100), "1.abcd", "owner", 0)
    results = [Result(span.start, Disposition.RETRY, 1_800_000_000_000 + span.start) for span in spans]
    after, _ = transitions.settle(cursor, "1.abcd", results)
    assert len(after.waiting) == 100
    assert size_of(after) <= cursor_size.most_bytes(cursor)


@pytest.mark.parametrize("start", [0, 10**12])
@pytest.mark.parametrize("unit", ["", "abcd"])
def test_a_cursor_full_of_messages_far_apart_stays_small_when_its_leases_run_out(
    start: int, unit: str
) -> None:
    cursor, count = start_at(start), 512
    while count:
        offsets = range(cursor.next, cursor.next + count * 5_000, 5_000)
        spans = tuple(Span(offset, 1, 9, unit and f"{unit}{offset}") for offset in offsets)
        selection = Selection(spans, next=cursor.next + count * 5_000)
        after = transitions.claim(cursor, selection, f"{cursor.epoch:x}.abcd", "ownerabc", 1_800_000_000_000)
        is_granted = cursor_size.has_room_for_claim(cursor, after, count)
        cursor, count = (after, count) if is_granted else (cursor, count // 2)
    after = transitions.lapse(cursor, 1_800_000_000_000)
    assert not after.leases
    assert len(after.waiting) > 100
    assert size_of(after) <= min(cursor_size.most_bytes(after), MAX_CURSOR_BYTES)


def _open_leases(count: int, start: int, owner: str, unit: str) -> int:
    """How many leases of `count` messages a cursor takes, with tokens as the service makes them."""
    cursor, leases = start_at(start), 0
    while not cursor_size.is_full(cursor):
        selection = Selection((Span(cursor.next, count, unit=unit),), next=cursor.next + count)
        token = f"{base32(cursor.epoch + 1)}.abcd"
        after = transitions.claim(cursor, selection, token, owner, 1_800_000_000_000)
        if not cursor_size.has_room_for_claim(cursor, after, count):
            break
        cursor, leases = after, leases + 1
    return leases


@pytest.mark.parametrize(
    ("figure", "count", "unit"),
    [("about {} receives of 1,000", 1_000, ""), ("{} of one", 1, ""), ("{} ordering keys", 1, "abcd")],
)
def test_the_documented_numbers_of_open_leases_are_those_that_fit(figure: str, count: int, unit: str) -> None:
    """With and without a consumer's uid, at the begin of a log and at a high offset."""
    counts = [_open_leases(count, start, owner, unit) for start in (0, 10**12) for owner in ("", "ownerabc")]
    match = re.search(figure.format(r"(\d+)(?: to (\d+))?"), (DOCS / "limits.md").read_text())
    assert match
    low, high = int(match[1]), int(match[2] or match[1])
    assert low == pytest.approx(min(counts), rel=0.1)
    assert high == pytest.approx(max(counts), rel=0.1)


def _waiting_keys(start: int) -> int:
    """How many keys may wait in a cursor before it takes no new ones."""
    cursor = start_at(start)
    while cursor_size.has_room_for_new(cursor):
        selection = Selection((Span(cursor.next, 1, unit=f"{cursor.epoch:04x}"),), next=cursor.next + 1)
        leased = transitions.claim(cursor, selection, "1.abcd", "owner", 0)
        cursor, _ = transitions.settle(
            leased, "1.abcd", [Result(cursor.next, Disposition.RETRY, 1_800_000_000_000)]
        )
    return len(cursor.waiting)


def test_the_documented_number_of_keys_that_wait_is_how_many_fit() -> None:
    match = re.search(r"about (\d+) to (\d+); then the other keys wait", (DOCS / "limits.md").read_text())
    assert match
    assert int(match[1]) == pytest.approx(_waiting_keys(10**12), rel=0.1)
    assert int(match[2]) == pytest.approx(_waiting_keys(0), rel=0.1)
