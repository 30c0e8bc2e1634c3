"""In a log no row expires before an older one, also if its topic's retention changes: the first row is the first to
expire."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given, settings

from chalicelib.domain.times import HOUR_MS
from tests.support import factories as make
from tests.support.desk import Desk
from tests.support.stages import embedded_stage

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
