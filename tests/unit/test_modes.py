"""What a mode grants of what it is shown; whether that keeps order is for the cursor's machine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chalicelib.domain.cursor import Cursor, Lease, Selection
from chalicelib.domain.limits import MAX_PASSED_OVER
from chalicelib.domain.spans import HEAVY, Span
from chalicelib.domain.topic import Mode
from chalicelib.modes import POLICIES, Candidate, ClaimVerdict, Turn


def serial(cursor: Cursor, *candidates: Candidate, most: int = 9) -> Selection:
    """What is below the cursor's frontier came back; the rest is fresh."""
    back = [candidate for candidate in candidates if candidate.offset < cursor.next]
    return POLICIES[Mode.SERIAL].select(cursor, back, candidates[len(back) :], most)


def granted(selection: Selection) -> list[int]:
    return [span.start for span in selection.granted]


def of(unit: str, offset: int, verdict: ClaimVerdict = ClaimVerdict.DELIVER) -> Candidate:
    return Candidate(offset, attempt=2, unit=unit, verdict=verdict)


def waits(*units: str) -> Cursor:
    """Messages of these units wait, from 0 on."""
    return Cursor(next=len(units), waiting=tuple(Span(n, unit=unit) for n, unit in enumerate(units)))


@pytest.mark.parametrize(
    ("candidates", "offsets", "settled"),
    [
        pytest.param([of("a", 0), of("a", 1), of("b", 2)], [0, 2], (), id="the first of each unit"),
        pytest.param([of("a", 1), of("b", 2)], [2], (), id="nothing before the first is due"),
        pytest.param(
            [of("a", 0, ClaimVerdict.SETTLE), of("a", 1), of("b", 2)],
            [1, 2],
            ((0, 1),),
            id="behind a dead one",
        ),
        pytest.param(
            [of("a", 0, ClaimVerdict.SETTLE), of("b", 2)], [2], ((0, 1),), id="what is not due stops it there"
        ),
        pytest.param(
            [of("a", 0, ClaimVerdict.SETTLE), of("a", 1, ClaimVerdict.SETTLE)],
            [],
            ((0, 2),),
            id="two dead ones",
        ),
    ],
)
def test_of_what_came_back_each_unit_gets_its_first(
    candidates: Sequence[Candidate], offsets: list[int], settled: tuple[tuple[int, int], ...]
) -> None:
    selection = serial(waits("a", "a", "b"), *candidates)
    assert (granted(selection), selection.settled, selection.next) == (offsets, settled, 3)
    assert {(span.attempt, span.unit) for span in selection.granted} <= {(2, "a"), (2, "b")}


@pytest.mark.parametrize(
    "span",
    [
        pytest.param(Span(0, 3, unit="a"), id="a run"),
        pytest.param(Span(0, 3, unit="a", mask=0b1101), id="a mask"),
    ],
)
def test_behind_dead_ones_the_next_of_the_same_span_holds_back_its_unit(span: Span) -> None:
    first, second, third = span.offsets()
    cursor = Cursor(next=4, waiting=(span,))
    dead_candidate = of("a", first, ClaimVerdict.SETTLE)
    selection = serial(cursor, dead_candidate, of("a", second), of("a", third), of("a", 4), of("b", 5))
    assert (granted(selection), selection.settled) == ([second, 5], ((first, first + 1),))
    not_due = serial(cursor, dead_candidate, of("a", 4), of("b", 5))
    assert granted(not_due) == [5]


def test_a_unit_that_is_under_way_gets_nothing() -> None:
    lease = Lease("t", (Span(0, unit="a"),), 9)
    cursor = Cursor(next=2, leases={"t": lease}, waiting=(Span(1, unit="a"),))
    selection = serial(cursor, of("a", 1, ClaimVerdict.SETTLE), of("a", 2), of("b", 3), of("b", 4))
    assert granted(selection) == [3]
    assert selection.settled == ()
    assert selection.passed_over == (Span(2, unit="a"),)
    assert selection.next == 4, "what is behind the last grant stays unclaimed"


def test_no_more_is_granted_than_was_asked_for() -> None:
    selection = serial(waits("a", "b"), of("a", 0), of("b", 1), of("c", 2), most=2)
    assert (granted(selection), selection.next) == ([0, 1], 2)
    selection = serial(waits("a", "b"), of("a", 0), of("b", 1), of("c", 2), most=1)
    assert (granted(selection), selection.next) == ([0], 2)


@pytest.mark.parametrize(("more", "skipped_count"), [(-1, 0), (0, MAX_PASSED_OVER), (1, MAX_PASSED_OVER)])
def test_a_claim_that_grants_nothing_keeps_what_it_skipped_if_that_is_much(
    more: int, skipped_count: int
) -> None:
    count = MAX_PASSED_OVER + more
    selection = serial(waits("a"), *(of("a", 1 + n) for n in range(count)))
    assert granted(selection) == []
    assert (len(selection.passed_over), selection.next) == (skipped_count, 1 + skipped_count)


def test_what_waits_already_takes_nothing_from_what_a_claim_may_skip() -> None:
    waiting = Cursor(next=501, waiting=(Span(0, unit="a"), Span(1, 500, unit="b")))
    selection = serial(waiting, *(of("a", 501 + n) for n in range(MAX_PASSED_OVER)), of("c", 900))
    assert (granted(selection), len(selection.passed_over)) == ([900], MAX_PASSED_OVER)


def test_what_is_settled_of_fresh_ones_moves_the_frontier() -> None:
    gap = Candidate(2, 3, verdict=ClaimVerdict.SETTLE)
    selection = serial(waits("a"), of("a", 1), gap, of("a", 5))
    assert (selection.settled, selection.passed_over, selection.next) == (((2, 5),), (Span(1, unit="a"),), 5)


def test_a_queue_takes_what_came_back_first() -> None:
    candidates = (
        [of("", 0), of("", 1, ClaimVerdict.SETTLE)],
        [of("", 4), Candidate(5, 2, verdict=ClaimVerdict.SETTLE), of("", 7)],
    )
    selection = POLICIES[Mode.QUEUE].select(Cursor(next=4, waiting=(Span(0, 2),)), *candidates, 2)
    assert selection == Selection((Span(0, 1, 2), Span(4, 1, 2)), settled=((1, 2),), next=5)
    selection = POLICIES[Mode.QUEUE].select(Cursor(next=4, waiting=(Span(0, 2),)), *candidates, 3)
    assert (granted(selection), selection.settled, selection.next) == ([0, 4, 7], ((1, 2), (5, 7)), 8)
    assert POLICIES[Mode.QUEUE].select(Cursor(next=4), [of("", 0)], [], 1).next == 4
    gap = Candidate(4, 3, verdict=ClaimVerdict.SETTLE)
    assert POLICIES[Mode.QUEUE].select(Cursor(next=4), [], [gap], 1).next == 7


def turn(offset: int, turn: Turn = Turn.LAST, unit: str = "") -> Candidate:
    return Candidate(offset, unit=unit, turn=turn)


def test_a_queue_takes_heavy_tenants_last_and_skips_up_to_what_it_took_of_others() -> None:
    queue = POLICIES[Mode.QUEUE]
    fresh = [turn(0), turn(1), turn(2, Turn.FIRST), turn(3), turn(4, Turn.FIRST)]
    for most, offsets, skipped, end in [
        (1, [2], [0, 1, 3], 4),
        (2, [2, 4], [0, 1, 3], 5),
        (3, [2, 4, 0], [1, 3], 5),
    ]:
        selection = queue.select(Cursor(), [], fresh, most)
        assert (granted(selection), [s.start for s in selection.passed_over]) == (offsets, skipped)
        assert (selection.next, {s.unit for s in selection.passed_over}) == (end, {HEAVY})
    waiting = Cursor(next=2, waiting=(Span(0, 2, unit=HEAVY),))
    selection = queue.select(waiting, [turn(0), turn(1, Turn.NOT_NOW)], [turn(2, Turn.NOT_NOW)], 9)
    assert (granted(selection), selection.passed_over, selection.next) == ([0], (Span(2, unit=HEAVY),), 3)


def test_a_serial_group_takes_heavy_tenants_last_and_keeps_each_units_order() -> None:
    fresh = [turn(1, unit="b"), turn(2, unit="b"), turn(3, Turn.FIRST, "c"), turn(4, Turn.FIRST, "c")]
    for most, offsets, skipped in [(1, [3], [1, 2]), (2, [3, 0], [1, 2]), (3, [3, 0, 1], [2])]:
        selection = serial(waits("a"), turn(0, unit="a"), *fresh, most=most)
        assert (granted(selection), [s.start for s in selection.passed_over]) == (offsets, skipped)
