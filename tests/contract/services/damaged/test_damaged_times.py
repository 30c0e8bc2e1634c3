"""A damaged row that lost its time does not count as expired, and misleads nobody who looks for a time."""

from __future__ import annotations

import pytest

from chalicelib.domain.message import DeadReason
from chalicelib.services.inspect.filters import Filters
from tests.contract.services.damaged.scenes import anew, letters
from tests.support import factories as make
from tests.support.damage import change_row, without
from tests.support.desk import Desk
from tests.support.stages import memory_stage

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
ROWS = 40


def every(step_ms: int, **about: object) -> tuple[Desk, list[int]]:
    """A topic of ROWS rows so far from each other, and when each came."""
    desk = Desk.at(memory_stage(), **about)
    times_ms = []
    for number in range(ROWS):
        times_ms.append(desk.stage.clock.now_ms())
        desk.produce(make.draft(number))
        desk.stage.clock.advance(step_ms)
    return desk, times_ms


def lose(name: str, desk: Desk, *offsets: int) -> None:
    for offset in offsets:
        change_row(desk.stage, desk.topic.shard_key(0), offset, without(name))


@pytest.mark.parametrize("names", ["a", "ax"], ids=["its time", "its expiry too"])
def test_a_first_row_that_lost_its_time_is_owed_to_a_group_from_the_earliest(names: str) -> None:
    desk, _ = every(HOUR_MS)
    for name in names:
        lose(name, desk, 0)
    reader = anew(desk)
    group = reader.group("early", begin="earliest")
    assert reader.drain(group) == [*range(1, ROWS)]
    assert [(each.offset, each.reason) for each in letters(reader, group)] == [(0, DeadReason.UNDECODABLE)]


def test_a_first_row_that_lost_its_time_ends_when_its_retention_does() -> None:
    desk, _ = every(HOUR_MS, retention_days=1)
    lose("a", desk, 0)
    reader = anew(desk)
    group = reader.group("early", begin="earliest")
    assert reader.drain(group) == [*range(17, ROWS)]
    assert letters(reader, group) == []


def test_a_message_that_lost_its_time_is_listed_after_its_newer_neighbour() -> None:
    desk = Desk.at(memory_stage(), shards=2)
    for number in range(4):
        desk.produce(make.draft(number, shard=0))
        desk.stage.clock.advance(MINUTE_MS)
        desk.produce(make.draft(number, shard=1))
        desk.stage.clock.advance(MINUTE_MS)
    lose("a", desk, 2)
    found, rest = anew(desk).deps.lookup.newest_first(desk.topic, Filters(), 100, None)
    places = [(message.shard, message.offset) for message in found]
    assert places == [(1, 3), (0, 3), (0, 2), (1, 2), (1, 1), (0, 1), (1, 0), (0, 0)]
    assert rest is None
