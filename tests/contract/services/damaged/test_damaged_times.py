"""A damaged row that lost its time does not count as expired, and misleads nobody who looks for a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from chalicelib.domain.message import DeadReason, Message
from chalicelib.domain.topic import EARLIEST, Group, cursor_key
from chalicelib.services.core import by_time
from chalicelib.services.inspect.filters import Filters
from tests.contract.services.damaged.scenes import anew, letters
from tests.support import factories as make
from tests.support.damage import change_row, having, without
from tests.support.desk import Desk
from tests.support.stages import embedded_stage

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
ROWS = 40


def every(step_ms: int, **about: object) -> tuple[Desk, list[int]]:
    """A topic of ROWS rows so far from each other, and when each came."""
    desk = Desk.at(embedded_stage(), **about)
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
    desk = Desk.at(embedded_stage(), shards=2)
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


def places(desk: Desk, group: Group, at_ms: int) -> tuple[int, int]:
    """Where a seek to that time goes, and where the console says that it goes."""
    reader = anew(desk).deps
    place, _ = reader.positions.find(desk.topic, cursor_key(desk.topic, group, 0), f"@{at_ms}")
    extent = reader.surveyor.survey(desk.topic, whole=True).shards[0]
    return place, reader.surveyor.offset_at(desk.topic, extent, at_ms, lambda: True)


@pytest.mark.parametrize(
    "lost_offsets",
    [(20,), (0,), (39,), (10, 20, 30), tuple(range(19, 31)), tuple(range(12))],
    ids=["the middle", "the first", "the last", "some", "a run", "a run at the beginning"],
)
def test_rows_without_a_time_do_not_hide_what_came_since_a_time(lost_offsets: tuple[int, ...]) -> None:
    desk, times_ms = every(MINUTE_MS)
    group = desk.group()
    lose("a", desk, *lost_offsets)
    for offset, at_ms in enumerate(times_ms):
        expected = offset
        while expected - 1 in lost_offsets:
            expected -= 1  # they may have come since then
        if offset not in lost_offsets:
            assert places(desk, group, at_ms) == (expected, expected), f"row {offset}"
        else:
            assert max(places(desk, group, at_ms)) <= offset, f"row {offset}"


def test_a_row_of_before_1970_has_lost_its_time() -> None:
    desk, times_ms = every(MINUTE_MS)
    group = desk.group()
    change_row(desk.stage, desk.topic.shard_key(0), 20, having("a", {"N": "-5"}))
    assert places(desk, group, times_ms[5]) == (5, 5)


def test_a_search_that_is_ended_shows_nothing_later_than_what_came_then() -> None:
    desk, times_ms = every(MINUTE_MS)
    lose("a", desk, *range(15, 25))
    reader = anew(desk).deps
    extent = reader.surveyor.survey(desk.topic, whole=True).shards[0]
    for offset, at_ms in enumerate(times_ms):
        for reads in range(40):
            looks = iter(range(reads))

            def may_go_on(looks: Iterator[int] = looks) -> bool:
                return next(looks, None) is not None

            found = reader.surveyor.offset_at(desk.topic, extent, at_ms, may_go_on)
            assert found <= offset, f"row {offset}, {reads} looks"


@pytest.mark.parametrize("lost_offsets", [(0,), (0, 1)])
def test_what_waits_for_unknown_time_is_as_old_as_the_next(lost_offsets: tuple[int, ...]) -> None:
    desk, times_ms = every(MINUTE_MS, alarm_backlog=10)
    desk.group()
    lose("a", desk, *lost_offsets)
    process = anew(desk).deps
    (backlog,) = process.watch.run_once().backlogs
    age_ms = desk.stage.clock.now_ms() - times_ms[1]
    assert backlog.age_ms == (age_ms if len(lost_offsets) == 1 else 0)


def test_among_more_rows_without_a_time_than_are_looked_at_rather_more_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(by_time, "_MOST_STEPS", 3)
    desk, times_ms = every(MINUTE_MS)
    group = desk.group()
    lose("a", desk, *range(10, 25))
    for offset, at_ms in enumerate(times_ms):
        assert max(places(desk, group, at_ms)) <= offset, f"row {offset}"


def test_a_group_from_the_earliest_is_owed_what_lies_before_a_row_without_a_time() -> None:
    desk, _ = every(HOUR_MS, retention_days=1)
    lose("a", desk, 20)
    assert anew(desk).deps.positions.find(
        desk.topic, cursor_key(desk.topic, desk.group("early", begin="earliest"), 0), EARLIEST
    ) == (17, 17)


@pytest.mark.parametrize("lost", [5, 9, 11, 20, 21, 30])
def test_a_message_that_was_delayed_is_found_beside_a_row_without_a_time(lost: int) -> None:
    desk = Desk.at(embedded_stage())
    clock = desk.stage.clock
    for number in range(10):
        desk.produce(make.draft(number))
        clock.advance(MINUTE_MS)
    now_ms = clock.now_ms()
    [result] = desk.produce(replace(make.draft("later"), due_ms=now_ms + 1_000, accepted_ms=now_ms))
    clock.advance(2_000)
    desk.deps.mover.tick(range(8))
    for number in range(30):
        clock.advance(MINUTE_MS)
        desk.produce(make.draft(number))
    lose("a", desk, lost)
    found = anew(desk).deps.lookup.find(desk.topic, result.id)
    assert isinstance(found, Message)
    assert found.offset == 10
