"""Where a group begins, or is sought: found in a log with gaps, in any order of TTL's deletions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.domain.segment import Segment
from chalicelib.domain.times import DAY_MS
from chalicelib.domain.topic import EARLIEST, LATEST, CursorKey, Topic, Where
from chalicelib.services.core import positions
from chalicelib.services.core.positions import Positions
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.stages import embedded_stage

STEP_MS = DAY_MS // 4
RETENTION_STEPS = 8


@dataclass
class Row:
    """A row of a log: how many messages it has, how many steps after the row before it came, whether it was written
    under a retention of one day (instead of two), and whether TTL has taken it."""

    count: int
    steps: int
    is_short: bool
    is_gone: bool


ROWS = st.lists(
    st.builds(Row, st.integers(1, 4), st.integers(0, 3), st.booleans(), st.booleans()), max_size=12
)


class Shelf:
    """A shard with these rows, the last of which is there, looked at so much later than that came."""

    def __init__(self, rows: Sequence[Row], later_steps: int, later_ms: int = 0) -> None:
        stage = embedded_stage()
        self.topic: Topic = make.topic(retention_days=2)
        self.shard = self.topic.shard_key(0)
        self.rows: list[Segment] = []
        first, now_ms = 0, START_MS
        for number, row in enumerate(rows, 1):
            now_ms += row.steps * STEP_MS
            days = 1 if row.is_short else 2
            expires_s = make.topic(retention_days=days).expires_s(now_ms)
            segment = make.segment(first, row.count, accepted_ms=now_ms, expires_s=expires_s)
            first = segment.end
            if not row.is_gone or number == len(rows):
                self.rows.append(segment)
                stage.adapters.log.put(self.shard, segment, make.packed(segment))
        self.end = first
        stage.clock.at_ms = self.now_ms = now_ms + later_steps * STEP_MS + later_ms
        self.positions: Positions = stage.process().positions

    def find(self, where: Where) -> tuple[int, int]:
        # a log that is so young is not asked for other ends than its last row's
        young = make.topic(created_ms=self.now_ms, uid=self.topic.uid, retention_days=2)
        assert young.shard_key(0) == self.shard
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(positions, "_ROWS", 2)
            return self.positions.find(young, CursorKey(self.shard, "group"), where)

    @property
    def earliest(self) -> int:
        firsts = (row.first for row in self.rows if self.topic.keeps_until_ms(row) > self.now_ms)
        return next(firsts, self.end)


@given(
    rows=ROWS,
    later_steps=st.integers(0, 2 * RETENTION_STEPS),
    later_ms=st.sampled_from([-1, 0, 1, 999, 1000, 1001]),
)
def test_the_earliest_is_the_first_row_whose_retention_goes_on_and_the_latest_is_behind_all(
    rows: list[Row], later_steps: int, later_ms: int
) -> None:
    shelf = Shelf(rows, later_steps, later_ms)
    assert shelf.find(EARLIEST) == (shelf.earliest, shelf.earliest)
    assert shelf.find(LATEST) == (shelf.end, shelf.end)


@given(rows=ROWS, later_steps=st.integers(0, RETENTION_STEPS), offset=st.integers(-1, 50))
def test_an_offset_is_itself_within_the_log_and_its_segment_holds_it(
    rows: list[Row], later_steps: int, offset: int
) -> None:
    shelf = Shelf(rows, later_steps)
    place, segment_at = shelf.find(offset)
    assert place == min(max(offset, shelf.earliest), shelf.end)
    before = [row.first for row in shelf.rows if row.first <= place]
    assert segment_at == (before[-1] if before and place < shelf.end else place)


@given(
    rows=ROWS,
    later_steps=st.integers(0, RETENTION_STEPS),
    at_step=st.integers(-1, 40),
    off_ms=st.sampled_from([-1, 0, 1]),
)
def test_a_time_divides_the_rows_that_came_before_from_those_that_came_since(
    rows: list[Row], later_steps: int, at_step: int, off_ms: int
) -> None:
    shelf = Shelf(rows, later_steps)
    at_ms = START_MS + at_step * STEP_MS + off_ms
    place, segment_at = shelf.find(f"@{at_ms}")
    assert segment_at == place
    assert shelf.earliest <= place <= shelf.end
    for row in shelf.rows:
        if row.first >= shelf.earliest:
            assert (row.first >= place) if row.accepted_ms >= at_ms else (row.end <= place)


@given(rows=ROWS, at_step=st.integers(-1, 40))
def test_a_time_is_found_among_all_rows_that_are_left(rows: list[Row], at_step: int) -> None:
    shelf = Shelf(rows, 4 * RETENTION_STEPS)
    at_ms = START_MS + at_step * STEP_MS
    place = shelf.positions.at_time(shelf.shard, at_ms)
    since = [row.first for row in shelf.rows if row.accepted_ms >= at_ms]
    before = [row.end for row in shelf.rows if row.accepted_ms < at_ms]
    assert max(before, default=0) <= place <= min(since, default=shelf.end)
