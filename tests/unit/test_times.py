"""Times as they are read and shown, and when rows end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from chalicelib.api import parse
from chalicelib.api.fields import at
from chalicelib.domain.errors import Malformed
from chalicelib.domain.times import HOUR_MS, rfc3339
from tests.support import factories as make
from tests.support.desk import Desk
from tests.support.stages import embedded_stage

_FIRST_MS = int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * 1000
_LAST_MS = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * 1000 + 999


@given(st.integers(_FIRST_MS, _LAST_MS) | st.integers(1_700_000_000_000, 2_200_000_000_000))
@example(2_190_901_588_858)  # as a float of seconds it is a little less
@example(_FIRST_MS)
def test_a_time_is_read_as_it_was_shown_to_the_millisecond(ms: int) -> None:
    text = at(ms)
    assert len(text) == len("2030-01-01T00:00:00.000Z")
    assert parse.time_ms(text, "at") == ms


@pytest.mark.parametrize("shown", [at, rfc3339])
def test_a_time_that_no_calendar_has_is_shown_as_the_nearest(shown: Callable[[int], str]) -> None:
    """A damaged row may have it: the messages beside it are still listed, received and pushed."""
    assert shown(10**17) == "9999-12-31T23:59:59.000Z"
    assert shown(-(10**17)).endswith("1-01-01T00:00:00.000Z")


@pytest.mark.parametrize(
    "text", ["2030-01-01T00:00:00.0009Z", "2030-01-01T01:00:00+01:00", "2029-12-31T23:59:00.000000-00:01"]
)
def test_what_is_finer_than_a_millisecond_is_left_out_and_offsets_count(text: str) -> None:
    assert parse.time_ms(text, "at") == 1_893_456_000_000


@pytest.mark.parametrize(
    "text", ["2030-01-01t00:00:00z", "2030-01-01T00:00:00.0z", "2030-01-01t01:00:00+01:00"]
)
def test_t_and_z_may_be_lower_case(text: str) -> None:
    assert parse.time_ms(text, "at") == 1_893_456_000_000


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01"])
def test_a_time_that_no_calendar_has_in_utc_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        parse.time_ms(text, "at")


STEPS = st.lists(st.tuples(st.sampled_from((1, 2, 7, 30)), st.integers(0, 100)), min_size=2, max_size=8)


@given(STEPS)
@settings(max_examples=40, deadline=None)
def test_i1_no_row_ends_before_an_older_one(steps: list[tuple[int, int]]) -> None:
    desk = Desk.at(stage := embedded_stage())
    for days, hours in steps:
        desk.topic, _ = desk.deps.admin.put_topic(desk.topic.name, {"retention_days": days})
        desk.produce(make.draft())
        stage.clock.advance(hours * HOUR_MS)
    assert all(older.ends_ms <= newer.ends_ms for older, newer in pairwise(desk.rows()))
