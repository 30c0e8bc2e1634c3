"""Which dead letters are wanted, and records that are read ahead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import hypothesis.strategies as st
from hypothesis import given, settings

from chalicelib.domain import cursor_write
from chalicelib.domain.cursor import Cursor, start_at
from chalicelib.domain.record import FailureFilter
from chalicelib.services.inspect.statuses import RecordsAhead
from tests.support import factories as make
from tests.support.stages import embedded_stage

_some = st.none() | st.sampled_from(("a", "b"))


@given(
    st.tuples(_some, _some, _some, st.none() | st.integers(0, 3)),
    st.sampled_from(("a", "b")),
    _some,
    st.sets(st.sampled_from(("a", "b"))),
    st.integers(0, 3),
)
def test_a_letter_is_wanted_where_it_is_all_that_was_asked_for(
    filters: tuple[str | None, str | None, str | None, int | None],
    reason: str,
    tag: str | None,
    keys: set[str],
    at_ms: int,
) -> None:
    record = make.dead_record(1)
    letter = make.letter(make.cursor_key(), record)
    draft = replace(letter.message.draft, tag=tag, keys=tuple(keys))
    message = replace(letter.message, draft=draft)
    letter = replace(letter, reason=cast(Any, reason), at_ms=at_ms, message=message)
    by_reason, by_tag, by_key, since_ms = filters
    is_wanted = (
        (by_reason is None or by_reason == reason)
        and (by_tag is None or by_tag == tag)
        and (by_key is None or by_key in keys)
        and (since_ms is None or since_ms <= at_ms)
    )
    assert FailureFilter(by_reason, by_tag, by_key, since_ms).matches(letter.to_filter) == is_wanted


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
