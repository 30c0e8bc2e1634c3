"""The marks that the sweep looks at: which topics, from when on, and until when a mark's window lasts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chalicelib.domain.mark import WINDOW_MS, Mark, complete_until_ms, window_of
from tests.support import factories as make
from tests.support.stages import Stage


def test_marks_come_by_time_from_one_on(stage: Stage) -> None:
    marks, (one, other), start_ms = stage.adapters.marks, (make.uid("a-"), make.uid("b#")), 9_000_000_000_000
    for topic, at_ms in ((one, 5), (other, 3), (one, 9), (one, 5)):
        marks.mark(Mark(topic, start_ms + at_ms))
    found_marks = [(mark.topic, mark.at_ms - start_ms) for mark in marks.since(start_ms + 4)]
    assert found_marks == [(one, 5), (one, 9)]
    assert (other, 3) in [(mark.topic, mark.at_ms - start_ms) for mark in marks.since(start_ms)]


def test_watched_topics_are_listed_with_their_versions(stage: Stage) -> None:
    marks, name = stage.adapters.marks, make.uid("w-")
    marks.watch(name, 1)
    marks.watch(name, 2)
    assert marks.each_minute().watched[name] == 2
    marks.unwatch(name)
    marks.unwatch(name)
    assert name not in marks.each_minute().watched


@given(
    name=st.text(min_size=1, max_size=9),
    now_ms=st.integers(10**12, 10**13),
    later_ms=st.integers(0, WINDOW_MS),
)
def test_a_window_is_over_only_after_all_that_was_put_in_under_its_mark(
    name: str, now_ms: int, later_ms: int
) -> None:
    begin_ms = window_of(name, now_ms)
    assert begin_ms <= now_ms < begin_ms + WINDOW_MS
    assert window_of(name, begin_ms) == begin_ms
    if window_of(name, now_ms + later_ms) == begin_ms:
        assert begin_ms > complete_until_ms(now_ms + later_ms)
