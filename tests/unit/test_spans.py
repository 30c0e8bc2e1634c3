"""Spans, with masks and without, against plain sets of offsets."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chalicelib.domain import cursor_transitions as transitions
from chalicelib.domain import ranges
from chalicelib.domain.cursor import Cursor, Disposition, Lease, Result, Selection
from chalicelib.domain.limits import MAX_RECEIVE
from chalicelib.domain.spans import Span, coalesce

FIRST = 1_000
some_offsets = st.integers(0, 2**60).map(lambda bits: {FIRST + at for at in range(60) if bits >> at & 1})
scattered = st.builds(
    lambda *sets: set().union(*sets), some_offsets, some_offsets.map(lambda s: {o + 200 for o in s})
)
Fates = dict[int, tuple[int, str, int]]


def fates_of(spans: tuple[Span, ...]) -> Fates:
    """What each offset's next delivery is; every offset once."""
    pairs = [(offset, (s.attempt, s.unit, s.due_ms)) for s in spans for offset in s.offsets()]
    assert len(pairs) == len(dict(pairs)) == sum(s.count for s in spans)
    return dict(pairs)


def mask_over(offsets: set[int]) -> Span:
    first = min(offsets)
    return Span(first, len(offsets), mask=sum(1 << offset - first for offset in offsets))


@given(some_offsets.filter(bool))
def test_a_mask_stands_for_its_bits(offsets: set[int]) -> None:
    span = mask_over(offsets)
    assert list(span.offsets()) == sorted(offsets)
    assert span.ranges() == ranges.of(offsets)
    assert span.end == max(offsets) + 1
    assert {at for at in range(FIRST - 3, FIRST + 64) if span.holds(at)} == offsets


@given(st.integers(1, 5))
def test_a_run_stands_for_its_count(count: int) -> None:
    span = Span(FIRST, count)
    assert (
        list(span.offsets())
        == list(range(FIRST, FIRST + count))
        == [at for at in range(990, 1_010) if span.holds(at)]
    )
    assert span.ranges() == ((FIRST, FIRST + count),) == ((FIRST, span.end),)


@given(scattered, scattered, st.booleans())
def test_joining_changes_nothing_but_the_form(once: set[int], twice: set[int], at_first: bool) -> None:
    """Some were attempted once, some twice; those may come as a mask already."""
    spans = [Span(offset) for offset in once - twice]
    again = [Span(offset, attempt=2, unit="", due_ms=7) for offset in twice]
    if at_first:
        again = list(coalesce(again))
    spans_joined = coalesce([*spans, *again])
    assert fates_of(spans_joined) == dict.fromkeys(once - twice, (1, "", 0)) | dict.fromkeys(
        twice, (2, "", 7)
    )
    assert [s.start for s in spans_joined] == sorted(s.start for s in spans_joined)
    assert fates_of(coalesce(spans_joined)) == fates_of(spans_joined)


@pytest.mark.parametrize(
    ("offsets", "entries", "masks"),
    [
        pytest.param(range(5), 1, 0, id="neighbours are a run"),
        pytest.param(range(0, 16, 2), 8, 0, id="eight runs stay runs"),
        pytest.param(range(0, 18, 2), 1, 1, id="nine go under a mask"),
        pytest.param(range(0, 9_000, 1_000), 9, 0, id="far from one another"),
        pytest.param([*range(0, 20, 2), *range(500, 520, 2)], 2, 2, id="two clusters"),
        pytest.param([*range(0, 20, 2), 19 + 9 * 6], 1, 1, id="near enough"),
        pytest.param([*range(0, 20, 2), 19 + 9 * 6 + 1], 2, 1, id="too far"),
        pytest.param([*range(0, 20, 2), 500, 502, 504], 4, 1, id="a mask and three runs together"),
        pytest.param([*range(0, 200, 20), 500, 600], 3, 1, id="a mask and two runs"),
        pytest.param(range(0, 9 * 53, 53), 1, 1, id="a mask is shorter"),
        pytest.param(range(0, 9 * 54, 54), 9, 0, id="a mask is as long"),
        pytest.param(range(0, MAX_RECEIVE, 3), 1, 1, id="as many as one claim takes"),
        pytest.param(range(0, MAX_RECEIVE + 3, 3), 2, 1, id="and more"),
    ],
)
def test_many_runs_close_to_one_another_become_one_entry(
    offsets: list[int], entries: int, masks: int
) -> None:
    spans_joined = coalesce([Span(offset) for offset in offsets])
    assert (len(spans_joined), sum(bool(s.mask) for s in spans_joined)) == (entries, masks)
    assert set(fates_of(spans_joined)) == set(offsets)


@given(
    scattered,
    st.sets(st.integers(FIRST, FIRST + 260)),
    st.sampled_from([Disposition.SUCCESS, Disposition.RETRY, Disposition.RELEASED]),
)
def test_settling_takes_out_what_it_names(
    lease_offsets: set[int], result_offsets: set[int], fate: Disposition
) -> None:
    spans = coalesce([Span(offset, attempt=3) for offset in lease_offsets])
    cursor = Cursor(FIRST, 2_000, {"t": Lease("t", spans, 9)} if lease_offsets else {})
    after, results = transitions.settle(cursor, "t", [Result(offset, fate, 5) for offset in result_offsets])
    assert ("t" in after.leases) is bool(lease_offsets - result_offsets)
    spans_left = after.leases["t"].spans if "t" in after.leases else ()
    assert {result.offset for result in results} == lease_offsets & result_offsets
    assert fates_of(spans_left) == dict.fromkeys(lease_offsets - result_offsets, (3, "", 0))
    back = {
        Disposition.SUCCESS: set[int](),
        Disposition.RETRY: lease_offsets & result_offsets,
        Disposition.RELEASED: lease_offsets & result_offsets,
    }[fate]
    assert fates_of(after.waiting) == dict.fromkeys(back, (3 + (fate is Disposition.RETRY), "", 5))


@given(scattered, st.sets(st.integers(FIRST, FIRST + 260)), st.sets(st.integers(FIRST, FIRST + 260)))
def test_a_claim_takes_from_what_waits(
    waiting_offsets: set[int], granted_offsets: set[int], settled_offsets: set[int]
) -> None:
    spans = coalesce([Span(offset, attempt=2) for offset in waiting_offsets])
    cursor = Cursor(FIRST, 2_000, waiting=spans)
    offsets_taken = sorted(waiting_offsets & granted_offsets - settled_offsets)
    selection = Selection(
        tuple(Span(offset, attempt=2) for offset in offsets_taken), (), ranges.of(settled_offsets), 2_000
    )
    after = transitions.claim(cursor, selection, "t", "", 9)
    offsets_left = waiting_offsets - granted_offsets - settled_offsets
    assert set(fates_of(after.waiting)) == offsets_left
    assert list(after.leases["t"].attempts() if offsets_taken else ()) == offsets_taken
    assert after.floor == min([*offsets_left, *offsets_taken], default=2_000)


@given(scattered.filter(bool), st.data())
def test_what_waits_for_a_time_can_be_hurried(waiting_offsets: set[int], data: st.DataObject) -> None:
    offset = data.draw(st.sampled_from(sorted(waiting_offsets)))
    cursor = Cursor(FIRST, 2_000, waiting=coalesce([Span(o, attempt=2, due_ms=8) for o in waiting_offsets]))
    after = transitions.retry_now(cursor, offset)
    assert after is not None
    assert fates_of(after.waiting) == {o: (2, "", 0 if o == offset else 8) for o in waiting_offsets}
    assert after.epoch == cursor.epoch + 1
    assert transitions.retry_now(after, offset) is None
