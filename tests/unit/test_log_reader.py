"""How a shard is read where a read may be stale: nothing that is stored is skipped, and nothing that may still come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from chalicelib.domain.limits import HOLE_AGE, LATE_WRITER, MAX_HOLE
from chalicelib.domain.message import Draft
from chalicelib.domain.segment import Allocation, Rows, Segment, ShardKey
from chalicelib.domain.times import CLOCKS_DIFFER_MS, HOUR_MS
from chalicelib.services.core.log_reader import Freshness, LogReader
from chalicelib.store.log import Log
from tests.support import factories as make
from tests.support.clock import START_MS, ManualClock
from tests.support.embedded import embedded_dynamo

TOPIC = make.topic(created_ms=START_MS)
SHARD = TOPIC.shard_key(0)
HOLE_MS, LATE_MS = (round(age.total_seconds() * 1000) for age in (HOLE_AGE, LATE_WRITER))


class StaleLog(Log):
    """A read that is not consistent does not see the rows `unseen` yet; an answer holds `page` rows at most."""

    def __init__(self) -> None:
        super().__init__(embedded_dynamo())
        self.unseen: set[int] = set()
        self.page = 100
        self.reads = 0

    def read(self, shard: ShardKey, first: int, rows: int, *, consistent: bool = False) -> Rows:
        self.reads += 1
        found = super().read(shard, first, min(rows, self.page))
        return Rows(self._seen(found, consistent), is_end=found.is_end)

    def read_back(self, *place: object, consistent: bool = False) -> list[Segment]:
        return self._seen(super().read_back(*place), consistent)  # type: ignore[arg-type]

    def _seen(self, rows: list[Segment], consistent: bool) -> list[Segment]:
        return [row for row in rows if consistent or row.first not in self.unseen]


@dataclass
class Scene:
    """One shard, and a process that has read nothing of it yet."""

    log: StaleLog = field(default_factory=StaleLog)
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.reader = LogReader(cast(Any, self.log), self.clock)

    def put(self, first: int, messages: Sequence[Draft] | int = 1, **settings: Any) -> Segment:
        segment = make.segment(first, messages, **settings)
        self.log.put(SHARD, segment, make.packed(segment))
        return segment

    def offsets(self, first: int = 0, most: int = 100) -> list[int]:
        """Where messages were found."""
        slots = self.reader.slots_from(SHARD, first, first, most)
        return [slot.offset for slot in slots if slot.message]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_row_that_a_stale_read_missed_is_no_gap(scene: Scene) -> None:
    scene.put(0)
    scene.put(1)
    scene.put(2)
    scene.log.unseen = {1}
    assert scene.offsets() == [0, 1, 2]


@pytest.mark.parametrize("hints", [(2,), (2, 1)])
def test_a_read_that_ends_before_a_row_that_was_named_is_repeated(
    scene: Scene, hints: tuple[int, ...]
) -> None:
    """Wake-ups may come in another order than the rows."""
    scene.put(0)
    scene.put(1)
    scene.put(2)
    scene.log.unseen = {2}
    for last in hints:
        scene.reader.expect_rows({str(SHARD): last})
    assert scene.offsets() == [0, 1, 2]


def test_only_a_consistent_read_shows_that_a_message_is_gone(scene: Scene) -> None:
    scene.put(0, 3)
    scene.log.unseen = {0}
    slots = scene.reader.fetch(SHARD, [1, 3])
    assert [(at, slot.message is not None) for at, slot in slots.items()] == [(1, True), (3, False)]


def test_an_edit_that_is_noted_is_read_consistently(scene: Scene) -> None:
    segment = scene.put(0)
    assert scene.offsets() == [0]
    edited_segment = replace(segment, drafts=(make.draft("new"),))
    assert scene.log.amend(SHARD, segment, make.packed(edited_segment), 0, {})
    trust = Freshness(0, ((0, 1),), scene.reader.trust(make.group(TOPIC)).now)
    (slot,) = scene.reader.slots_from(SHARD, 0, 0, 1, trust)
    assert slot.message
    assert slot.message.draft.body == b'"new"'


@pytest.mark.parametrize(("age_ms", "end"), [(HOLE_MS - 1, 1), (HOLE_MS, 5)])
def test_a_hole_is_waited_for_and_then_closed(scene: Scene, age_ms: int, end: int) -> None:
    scene.put(0, allocation=Allocation.RESERVED)
    scene.put(4, allocation=Allocation.RESERVED)
    scene.clock.advance(age_ms)
    slots = scene.reader.slots_from(SHARD, 0, 0, 100)
    assert slots[-1].end == end
    late_segment = make.segment(1, 3)
    outcome = type(scene.log.put(SHARD, late_segment, make.packed(late_segment))).__name__
    assert outcome == ("Stored" if end == 1 else "OffsetTaken")
    assert scene.reader.closes_ms(SHARD) == (START_MS + HOLE_MS if end == 1 else None)


@pytest.mark.parametrize(
    ("ahead_ms", "end"), [(CLOCKS_DIFFER_MS, 1), (CLOCKS_DIFFER_MS + 1, 5), (HOUR_MS, 5)]
)
def test_a_hole_before_the_row_of_a_wrong_clock_is_not_waited_for(
    scene: Scene, ahead_ms: int, end: int
) -> None:
    """It would be, for as long as that clock was ahead. A late writer then takes other offsets."""
    scene.put(0, allocation=Allocation.RESERVED)
    scene.put(4, allocation=Allocation.RESERVED, accepted_ms=START_MS + ahead_ms)
    assert scene.reader.slots_from(SHARD, 0, 0, 100)[-1].end == end


@pytest.mark.parametrize(("age_ms", "first"), [(LATE_MS - 1, 5000 - MAX_HOLE), (LATE_MS, 5000)])
def test_a_late_writer_may_follow_rows_that_expired(scene: Scene, age_ms: int, first: int) -> None:
    """What lies further back than any hole has expired; the rest is closed row by row, so that no message that is
    stored there meanwhile is skipped."""
    scene.put(5000, allocation=Allocation.RESERVED)
    scene.clock.advance(age_ms)
    (hole, *_) = scene.reader.slots_from(SHARD, 0, 0, 1)
    assert (hole.message, hole.end) == (None, first)


def test_no_tombstones_stand_for_rows_that_expired_behind_one_that_did_not(scene: Scene) -> None:
    scene.put(0, allocation=Allocation.RESERVED)
    scene.put(2 + MAX_HOLE, allocation=Allocation.RESERVED)
    scene.clock.advance(LATE_MS)
    assert scene.offsets() == [0, 2 + MAX_HOLE]
    assert len(scene.log.read(SHARD, 0, 10)) == 2


def test_where_a_read_showed_the_end_of_the_log_nobody_asks_what_comes_after_it(scene: Scene) -> None:
    scene.put(0)
    scene.put(1)
    assert scene.offsets() == [0, 1]
    assert scene.log.reads == 1
    assert scene.reader.is_end(SHARD, 2)
    scene.put(2)
    assert scene.offsets(2) == [2]


def test_an_answer_that_holds_no_more_rows_is_no_end(scene: Scene) -> None:
    scene.log.page = 1
    for first in range(3):
        scene.put(first)
    assert scene.offsets() == [0, 1, 2]
