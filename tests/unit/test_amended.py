"""What a cursor notes of messages that were changed in the log."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import given

from chalicelib.domain import cursor_transitions as transitions
from chalicelib.domain import ranges
from chalicelib.domain.cursor import Cursor
from chalicelib.domain.limits import MAX_AMENDED_RANGES

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


@given(st.sets(st.integers(0, 400), max_size=MAX_AMENDED_RANGES))
def test_a_few_notes_ahead_of_the_cursor_are_exact(offsets: set[int]) -> None:
    cursor = Cursor()
    for offset in offsets:
        cursor = transitions.amend(cursor, offset) or cursor
    assert cursor.amended == ranges.of(offsets)


def test_what_lies_behind_is_one_note_and_leaves_room_for_others() -> None:
    cursor = Cursor(amended=tuple((n, n + 1) for n in range(0, 2 * MAX_AMENDED_RANGES, 2)))
    before = replace(cursor, floor=1_000, next=1_000)
    after = transitions.amend(before, 2_000)
    assert after is not None
    assert after.amended == ((0, 2 * MAX_AMENDED_RANGES - 1), (2_000, 2_001))


def test_a_seek_keeps_the_notes() -> None:
    cursor = replace(Cursor(next=9, floor=9), amended=((3, 4),))
    assert transitions.seek(cursor, 0).amended == ((3, 4),)
