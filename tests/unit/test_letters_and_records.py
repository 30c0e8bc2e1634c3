"""Which dead letters are wanted, and records that are read ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import hypothesis.strategies as st
from hypothesis import given, settings

from chalicelib.domain import cursor_write
from chalicelib.domain.cursor import Cursor, start_at
from chalicelib.domain.ids import REQUEST_ID_CHARS, timed_id
from chalicelib.domain.record import DeadLetter, FailureFilter
from chalicelib.domain.topic import Group, Topic
from chalicelib.services.inspect.statuses import RecordsAhead
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.desk import Desk
from tests.support.stages import embedded_stage
from tests.support.troubled import Counted

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


def test_what_stands_far_apart_is_read_one_by_one_and_a_page_together() -> None:
    a, key = embedded_stage().adapters, make.cursor_key()
    records = Counted(a.records)
    ahead = RecordsAhead(cast(Any, records))
    for offset in range(1_000, 900, -5):
        ahead.get(key, offset)
    assert records.calls == {"get": 20}
    records.calls.clear()
    for offset in range(900, 700, -4):
        ahead.get(key, offset)
    assert records.calls == {"get": 1, "between": 4}, "sixty-four offsets at a time"
    records.calls.clear()
    for _ in range(3):
        ahead.get(key, 100)
    assert records.calls == {"get": 1}, "the same place is no page, and is read once"


def test_a_page_of_a_broadcast_is_read_once_for_all_its_consumers() -> None:
    a, group_key = embedded_stage().adapters, make.cursor_key()
    keys = [replace(group_key, consumer_uid=f"c{n}") for n in range(5)]
    change = cursor_write.replacement(Cursor(), start_at(1))
    for n, key in enumerate(keys):
        failed = [replace(make.record(offset), consumer_uid=key.consumer_uid) for offset in (40 + n, 50)]
        a.cursors.write(key, change, failed, exists=False)
    records = Counted(a.records)
    ahead = RecordsAhead(cast(Any, records))
    for offset in range(60, 30, -1):
        for key in keys:
            assert ahead.get(key, offset) == a.records.get(key, offset)
    assert records.calls == {"get": len(keys), "between": 1}


class Letters:
    """store.Records with so many dead letters of a group."""

    def __init__(self, letters: Sequence[DeadLetter]) -> None:
        self._letters = [(f"{n:04}", letter) for n, letter in enumerate(letters)]

    def dead(self, topic: Topic, group: Group, after: str | None, limit: int) -> list[tuple[str, DeadLetter]]:
        return [each for each in self._letters if after is None or each[0] > after][:limit]


def test_a_delayed_message_of_which_only_a_letter_is_left_is_found_on_each_page() -> None:
    stage, key = embedded_stage(), make.cursor_key()
    desk = Desk.at(stage)
    letters = [make.letter(key, make.dead_record(n)) for n in range(250)]
    ids = {n: timed_id(f"{n:0{REQUEST_ID_CHARS}}", None, START_MS) for n in (7, 107, 249)}
    for n, id in ids.items():
        letters[n] = replace(letters[n], message=replace(letters[n].message, id=id))
    letter_lookup = Deps(replace(stage.another(), records=cast(Any, Letters(letters)))).letter_lookup
    for n, id in ids.items():
        assert [letter.offset for letter in letter_lookup.letters(desk.topic, desk.group(), id)] == [n]
