"""A cursor's rules, one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chalicelib.domain import cursor_size, cursor_write, ranges
from chalicelib.domain import cursor_transitions as transitions
from chalicelib.domain.cursor import Cursor, Disposition, Lease, OffsetState, Result, Selection, offset_state
from chalicelib.domain.limits import MAX_AMENDED_RANGES, MAX_CURSOR_BYTES, MAX_RECEIVE
from chalicelib.domain.pull_share import Round
from chalicelib.domain.spans import LAPSED_MS, Span

LEASE = Lease("t", (Span(4, 2, attempt=3),), 100, "ann")
CURSOR = Cursor(4, 9, {"t": LEASE}, (Span(7, 1, attempt=2, due_ms=50), Span(8, 1)), 5, 2, 6, skipped=1)


@pytest.mark.parametrize(("now_ms", "is_over"), [(99, False), (100, True), (101, True)])
def test_a_lease_is_over_at_its_deadline(now_ms: int, is_over: bool) -> None:
    after = transitions.lapse(CURSOR, now_ms)
    assert after.leases == ({} if is_over else CURSOR.leases)
    assert after.waiting == (
        (Span(4, 2, attempt=4, due_ms=LAPSED_MS), *CURSOR.waiting) if is_over else CURSOR.waiting
    )
    assert is_over or after is CURSOR


def test_what_several_leases_held_comes_back_in_the_order_of_the_log() -> None:
    later = Lease("u", (Span(2, 1, attempt=3), Span(6, 1, attempt=3)), 100)
    after = transitions.lapse(replace(CURSOR, leases={"t": LEASE, "u": later}), 100)
    lapsed_spans = (Span(2, 1, attempt=4, due_ms=LAPSED_MS), Span(4, 3, attempt=4, due_ms=LAPSED_MS))
    assert after.waiting == (*lapsed_spans, *CURSOR.waiting)


def test_the_messages_of_leases_are_counted_one_by_one() -> None:
    other_lease = Lease("u", (Span(2, 2, mask=0b1001), Span(6)), 100)
    cursor = replace(CURSOR, leases={"t": LEASE, "u": other_lease})
    assert cursor.in_flight == 5
    assert other_lease.attempts() == {2: 1, 5: 1, 6: 1}


def test_settled_is_what_is_neither_leased_nor_waits_above_the_floor() -> None:
    assert CURSOR.settled == ((6, 7),)
    assert replace(CURSOR, leases={"t": LEASE, "u": Lease("u", (Span(6),), 100)}).settled == ()


@pytest.mark.parametrize(("tail", "count"), [(7, 4), (8, 4), (9, 5), (12, 8)])
def test_the_backlog_is_what_is_leased_waits_or_was_never_claimed(tail: int, count: int) -> None:
    assert CURSOR.backlog(tail) == count


def test_what_waits_for_a_time_comes_back_then() -> None:
    assert transitions.due_spans(CURSOR, 49) == (Span(8, 1),)
    assert transitions.due_spans(CURSOR, 50) == CURSOR.waiting


def test_a_claim_moves_on() -> None:
    selection = Selection((Span(9, 1),), (Span(10, 1, unit="u"),), ((11, 12),), 12, 8, 1)
    after = transitions.claim(CURSOR, selection, "new", "bob", 200)
    assert after.leases == {"t": LEASE, "new": Lease("new", (Span(9, 1),), 200, "bob")}
    assert after.waiting == (*CURSOR.waiting, Span(10, 1, unit="u"))
    assert (after.floor, after.next, after.epoch, after.begin, after.segment_at, after.skipped) == (
        4,
        12,
        6,
        2,
        8,
        2,
    )


def test_a_claim_of_what_came_back_leaves_the_frontier() -> None:
    after = transitions.claim(CURSOR, Selection((Span(8, 1),), next=9, segment_at=3), "new", "bob", 200)
    assert (after.next, after.segment_at, after.waiting) == (9, 6, CURSOR.waiting[:1])


def test_who_does_not_hold_it_settles_and_extends_nothing() -> None:
    assert transitions.settle(CURSOR, "other", [Result(4, Disposition.SUCCESS)]) == (CURSOR, ())
    assert transitions.settle(CURSOR, "t", [Result(7, Disposition.SUCCESS)]) == (CURSOR, ())
    assert transitions.extend(CURSOR, "other", 300) is None
    longer = transitions.extend(CURSOR, "t", 300)
    assert longer == replace(CURSOR, leases={"t": replace(LEASE, deadline_ms=300)})
    shorter = transitions.extend(CURSOR, "t", 60)
    assert shorter == replace(CURSOR, leases={"t": replace(LEASE, deadline_ms=60)})


@pytest.mark.parametrize(
    ("offset", "expected", "attempt"),
    [
        (1, OffsetState.NOT_OWED, None),
        (2, OffsetState.SETTLED, None),
        (4, OffsetState.RUNNING, 3),
        (5, OffsetState.RUNNING, 3),
        (6, OffsetState.SETTLED, None),
        (7, OffsetState.RETRYING, 2),
        (8, OffsetState.NEW, 1),
        (9, OffsetState.NEW, None),
    ],
)
def test_every_offset_has_a_state(offset: int, expected: OffsetState, attempt: int | None) -> None:
    state, span = offset_state(CURSOR, offset)
    assert (state, span and span.attempt) == (expected, attempt)


def test_only_what_waits_for_a_time_is_retried_now() -> None:
    assert [transitions.retry_now(CURSOR, offset) for offset in (4, 6, 8, 9)] == [None] * 4
    after = transitions.retry_now(CURSOR, 7)
    assert after == replace(CURSOR, waiting=(Span(7, 1, attempt=2), Span(8, 1)), epoch=6)


def test_what_was_claimed_is_not_amended() -> None:
    assert [transitions.amend(CURSOR, offset) is None for offset in (1, 2, 8, 9)] == [
        False,
        True,
        True,
        False,
    ]
    after = transitions.amend(CURSOR, 9)
    assert after == replace(CURSOR, amended=((9, 10),), epoch=6)


def test_notes_below_the_floor_become_one_and_so_do_the_lowest_of_too_many() -> None:
    cursor_with_notes = replace(CURSOR, amended=((0, 1), (3, 4), (12, 13)))
    after = transitions.amend(cursor_with_notes, 20)
    assert after is not None
    assert after.amended == ((0, 4), (12, 13), (20, 21))
    many = tuple((n, n + 1) for n in range(10, 10 + 2 * MAX_AMENDED_RANGES, 2))
    full = transitions.amend(replace(CURSOR, amended=many[:-1]), many[-1][0])
    assert full is not None
    assert full.amended == many
    over = transitions.amend(replace(CURSOR, amended=many), 9_000)
    assert over is not None
    assert over.amended == ((10, 13), *many[2:], (9_000, 9_001))


def test_a_seek_begins_anew() -> None:
    cursor_with_notes = replace(CURSOR, amended=((3, 4),))
    assert transitions.seek(cursor_with_notes, 7) == Cursor(
        7, 7, epoch=6, begin=7, segment_at=7, amended=((3, 4),)
    )


def test_a_settlement_depends_on_its_lease_and_a_claim_on_the_epoch() -> None:
    settlement, _ = transitions.settle(CURSOR, "t", [Result(4, Disposition.SUCCESS)])
    change = cursor_write.change(CURSOR, settlement)
    assert (change.scalars, change.most_waiting, change.set_waiting) == (None, None, {})
    assert cursor_write.holds(change, replace(CURSOR, epoch=9, waiting=()))
    assert not cursor_write.holds(change, replace(CURSOR, leases={"t": replace(LEASE, deadline_ms=101)}))
    claiming = cursor_write.change(
        CURSOR, transitions.claim(CURSOR, Selection((Span(9, 1),), next=10), "new", "", 200)
    )
    assert claiming.scalars is not None
    assert not cursor_write.holds(claiming, replace(CURSOR, epoch=6))
    assert not cursor_write.holds(claiming, replace(CURSOR, epoch=4))
    assert cursor_write.holds(claiming, replace(CURSOR, leases={}))


def test_a_change_makes_of_the_old_cursor_the_new_one() -> None:
    settlement, _ = transitions.settle(
        CURSOR, "t", [Result(4, Disposition.SUCCESS), Result(5, Disposition.RELEASED)]
    )
    assert settlement.leases == {}
    claim = transitions.claim(transitions.lapse(CURSOR, 100), Selection((Span(8),), next=9), "new", "", 200)
    for after in (settlement, claim, transitions.seek(CURSOR, 3)):
        assert cursor_write.apply(CURSOR, cursor_write.change(CURSOR, after)) == after
        assert cursor_write.apply(CURSOR, cursor_write.replacement(CURSOR, after)) == after


def test_a_write_names_each_entry_that_it_sets_removes_or_expects() -> None:
    back = [Result(4, Disposition.RETRY), Result(5, Disposition.SUCCESS)]
    settlement, _ = transitions.settle(CURSOR, "t", back)
    assert cursor_write.change(CURSOR, settlement).entries == 3, "the lease twice, and what waits again"
    claim = transitions.claim(CURSOR, Selection((Span(8),), next=9), "new", "", 200)
    assert cursor_write.change(CURSOR, claim).entries == 2, "a lease, and what waits no longer"


def test_what_is_given_back_finds_room_among_what_others_gave_back() -> None:
    back, _ = transitions.settle(CURSOR, "t", [Result(4, Disposition.RETRY)])
    change = cursor_write.change(CURSOR, back)
    assert change.set_waiting == {4: Span(4, 1, attempt=4)}
    assert change.most_waiting is not None
    in_flight_of = [Span(20 + 2 * n) for n in range(change.most_waiting)]
    assert cursor_write.holds(change, replace(CURSOR, waiting=tuple(in_flight_of)))
    assert not cursor_write.holds(change, replace(CURSOR, waiting=(*in_flight_of, Span(9_000))))


def test_a_cursor_is_full_only_while_something_is_under_way() -> None:
    spans = tuple(Span(10**9 * n, due_ms=10**12) for n in range(1, 400))
    assert cursor_size.is_full(replace(CURSOR, waiting=spans))
    assert not cursor_size.is_full(replace(CURSOR, leases={}, waiting=spans))
    assert not cursor_size.is_full(CURSOR)


def test_one_message_is_claimed_in_any_case_where_nothing_is_under_way() -> None:
    idle = replace(CURSOR, leases={})
    over = replace(idle, waiting=tuple(Span(10**9 * n, due_ms=10**12) for n in range(1, 400)))
    assert cursor_size.has_room_for_claim(idle, over, 1)
    assert not cursor_size.has_room_for_claim(idle, over, 2)
    assert not cursor_size.has_room_for_claim(CURSOR, over, 1)
    assert cursor_size.has_room_for_claim(CURSOR, CURSOR, 2)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"waiting": (*CURSOR.waiting, Span(20))}, id="an entry that waits"),
        pytest.param({"waiting": (Span(7, 1, attempt=2, due_ms=10**12), Span(8, 1))}, id="a longer time"),
        pytest.param({"amended": ((12, 13),)}, id="a note"),
        pytest.param({"round": Round(1, 2)}, id="a round"),
        pytest.param({"leases": {"t": LEASE, "u": replace(LEASE, token="u", spans=())}}, id="a lease"),
        pytest.param({"leases": {"t": replace(LEASE, owner="anna")}}, id="a longer owner"),
        pytest.param({"leases": {"t": replace(LEASE, spans=(Span(4, 2, attempt=33),))}}, id="more attempts"),
        pytest.param({"leases": {"t": replace(LEASE, spans=(Span(4, 2, unit="u"),))}}, id="a unit of order"),
    ],
)
def test_what_is_longer_takes_more(more: dict[str, Any]) -> None:
    assert cursor_size.most_bytes(replace(CURSOR, **more)) > cursor_size.most_bytes(CURSOR)


def test_a_lease_of_all_that_one_claim_takes_leaves_room_for_what_may_become_of_it() -> None:
    lease = replace(LEASE, spans=(Span(4, MAX_RECEIVE),))
    before = Cursor(4, 9_000, {"t": lease})
    worst = cursor_size.most_bytes(before)
    every_other = [Result(4 + n, Disposition.SUCCESS) for n in range(0, MAX_RECEIVE, 2)]
    after, _ = transitions.settle(before, "t", every_other)
    assert (
        cursor_size.most_bytes(replace(before, leases={}))
        < cursor_size.most_bytes(after)
        <= worst
        < MAX_CURSOR_BYTES
    )


steps = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3)), max_size=150)


@given(steps)
def test_notes_cover_all_that_was_amended_and_stay_few(steps: list[tuple[int, int]]) -> None:
    cursor, amended_offsets = Cursor(), set()
    for offset, distance in steps:
        at = cursor.floor + distance
        cursor = replace(cursor, floor=at, next=at)
        after = transitions.amend(cursor, offset)
        assert (after is None) == (offset < at)
        if after is None:
            continue
        assert after == replace(cursor, amended=after.amended, epoch=cursor.epoch + 1)
        cursor = after
        amended_offsets.add(offset)
        assert all(ranges.contains(cursor.amended, o) for o in amended_offsets)
        assert cursor.amended == ranges.normalise(cursor.amended)
        assert len(cursor.amended) <= MAX_AMENDED_RANGES


def test_what_lies_behind_is_one_note_and_leaves_room_for_others() -> None:
    cursor = Cursor(amended=tuple((n, n + 1) for n in range(0, 2 * MAX_AMENDED_RANGES, 2)))
    before = replace(cursor, floor=1_000, next=1_000)
    after = transitions.amend(before, 2_000)
    assert after is not None
    assert after.amended == ((0, 2 * MAX_AMENDED_RANGES - 1), (2_000, 2_001))


def test_a_seek_keeps_the_notes() -> None:
    cursor = replace(Cursor(next=9, floor=9), amended=((3, 4),))
    assert transitions.seek(cursor, 0).amended == ((3, 4),)
