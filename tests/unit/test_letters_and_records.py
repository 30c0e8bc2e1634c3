"""Which dead letters are wanted, and records that are read ahead."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from chalicelib.domain import cursor_write
from chalicelib.domain.cursor import Cursor, start_at
from chalicelib.services.inspect.statuses import RecordsAhead
from tests.support import factories as make
from tests.support.stages import embedded_stage


@settings(max_examples=50, deadline=None)
@given(st.sets(st.integers(0, 150), max_size=20), st.lists(st.integers(0, 150), max_size=40))
def test_whatever_is_asked_for_a_record_read_ahead_is_the_one_that_is_there(
    failed_offsets: set[int], offsets: list[int]
) -> None:
    a, key = embedded_stage().adapters, make.cursor_key()
    change = cursor_write.replacement(Cursor(), start_at(1))
    a.cursors.write(key, change, [make.record(n) for n in failed_offsets], exists=False)
    ahead = RecordsAhead(a.records)
    for offset in offsets:
        assert ahead.get(key, offset) == a.records.get(key, offset)
