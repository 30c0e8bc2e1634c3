"""A log never begins again below what its cursors have seen, whichever rows TTL removed or jobs stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from chalicelib.domain.ladder import Retry
from chalicelib.domain.segment import Tail
from chalicelib.domain.times import DAY_MS, HOUR_MS, SECOND_MS
from chalicelib.domain.topic import Group, cursor_key, lane_of
from chalicelib.services.consume.settle import Nack
from chalicelib.store.cursors import Cursors
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import Desk, offsets, overtaken, require_stored
from tests.support.stages import Stage
from tests.support.troubled import Troubled

RUN_MS = 6 * HOUR_MS  # the checkpointer comes by so often


def consumed(stage: Stage, count: int = 5, **settings: Any) -> tuple[Desk, Group]:
    """A topic whose messages are all acknowledged."""
    desk = Desk.at(stage, **settings)
    group = desk.group()
    desk.produce(*make.drafts(count))
    assert desk.drain(group) == list(range(count))
    return desk, group


def wither(desk: Desk, days: int = 9) -> None:
    """All rows expire before a job has stored a checkpoint."""
    desk.stage.clock.advance(days * DAY_MS)
    desk.stage.drop_expired()


def afresh(desk: Desk) -> Desk:
    """The same topic in a process that has seen nothing."""
    deps = desk.stage.process()
    return Desk(desk.stage, deps, deps.catalog.topic(desk.topic.name))


@pytest.mark.parametrize(("before", "after"), [(1, 7), (1, 365), (7, 30)])
def test_i1_a_quiet_topics_retention_may_be_raised(empty_stage: Stage, before: int, after: int) -> None:
    desk, group = consumed(empty_stage, retention_days=before)
    desk.deps.admin.put_topic(desk.topic.name, {"retention_days": after})
    for _ in range(4 * (before + 3)):
        empty_stage.clock.advance(RUN_MS)
        empty_stage.process().checkpointer.run_once()
        empty_stage.drop_expired()
    assert desk.rows() == []
    assert empty_stage.adapters.log.tail(desk.topic.shard_key(0)) == Tail(4), "it was written down in time"
    fresh = afresh(desk)
    assert [place.offset for place in fresh.produce(make.draft())] == [5]
    assert offsets(fresh.receive(group)) == [5]


@pytest.mark.parametrize("place", ["shard", "consumers"])
def test_i1_tails_are_written_down_though_one_shard_or_a_groups_consumers_cannot_be_read(
    empty_stage: Stage, place: str
) -> None:
    desk = Desk.at(empty_stage, shards=4, mode="broadcast", retention_days=1)
    desk.group()
    desk.produce(*(make.draft(shard=n) for n in range(4)))
    empty_stage.clock.advance(2 * DAY_MS)
    away, adapters = str(desk.topic.shard_key(2)), empty_stage.another()
    refused: dict[str, Any] = {
        "shard": {"log": Troubled(adapters.log, lambda name, *call: name == "tail" and str(call[0]) == away)},
        "consumers": {"control": Troubled(adapters.control, lambda name, *call: name == "cursor_owners")},
    }
    report = Deps(replace(adapters, **refused[place])).checkpointer.run_once()
    assert [(each.topic, "throttled" in each.detail) for each in report.stretch.troubles] == [
        (desk.topic.name, True)
    ]
    wither(desk)
    tails = [adapters.log.tail(desk.topic.shard_key(n)) for n in range(4)]
    assert tails == [Tail(-1 if place == "shard" and n == 2 else 0) for n in range(4)]


def test_i1_without_any_checkpoint_the_log_goes_on_where_its_groups_stand(stage: Stage) -> None:
    desk, group = consumed(stage)
    slow = desk.group("slow")
    assert desk.ack(slow, desk.receive(slow, most=2)) == [None] * 2
    quiet_group = desk.group("gone")
    wither(desk)
    desk.deps.states.close([cursor_key(desk.topic, quiet_group, 0)])  # and nothing else of the group
    fresh = afresh(desk)
    assert fresh.deps.positions.find(fresh.topic, cursor_key(fresh.topic, group, 0), "latest") == (5, 5)
    assert stage.adapters.log.tail(desk.topic.shard_key(0)) == Tail(4), "now it is written down"
    assert [place.offset for place in fresh.produce(make.draft())] == [5]
    assert offsets(fresh.receive(group)) == [5]
    assert offsets(fresh.receive(slow)) == [5]


@pytest.mark.parametrize("mode", ["queue", "broadcast"])
def test_i10_without_any_checkpoint_a_retry_lane_goes_on_as_well(stage: Stage, mode: str) -> None:
    desk = Desk.at(stage, mode=mode, retry=Retry(5, (1,), jitter=0.0))
    group = desk.group()
    consumer = desk.consumer(group, "one")
    uid = consumer.uid if mode == "broadcast" else ""

    def fail_and_try_again(at: Desk) -> list[int]:
        at.produce(make.draft())
        at.nack(group, at.receive(group, consumer=consumer), Nack(delay_ms=SECOND_MS))
        at.stage.clock.advance(2 * SECOND_MS)
        at.deps.mover.run_once()
        return at.drain(group, consumer=consumer)

    assert [fail_and_try_again(desk) for _ in range(3)] == [[0], [1], [2]]
    wither(desk)
    assert fail_and_try_again(afresh(desk)) == [3]
    lane = cursor_key(desk.topic, group, None, uid)
    assert lane.shard == lane_of(desk.topic, group, uid).shard_key(0)
    cursor = stage.adapters.cursors.get(lane, consistent=True)
    assert cursor
    assert cursor.next == 4


@pytest.mark.parametrize("mode", ["queue", "broadcast"])
def test_the_end_of_a_retry_lane_is_written_down_before_its_rows_go(empty_stage: Stage, mode: str) -> None:
    desk = Desk.at(empty_stage, mode=mode, retention_days=1)
    group = desk.group()
    consumer = desk.consumer(group, "one")
    desk.produce(make.draft())
    desk.nack(group, desk.receive(group, consumer=consumer), Nack(delay_ms=SECOND_MS))
    empty_stage.clock.advance(2 * SECOND_MS)
    desk.deps.mover.run_once()
    assert desk.drain(group, consumer=consumer) == [0]
    for _ in range(4 * 4):
        empty_stage.clock.advance(RUN_MS)
        empty_stage.process().checkpointer.run_once()
        empty_stage.drop_expired()
    lane = lane_of(desk.topic, group, consumer.uid if mode == "broadcast" else "").shard_key(0)
    assert empty_stage.adapters.log.read(lane, 0, 10) == []
    assert empty_stage.adapters.log.tail(lane) == Tail(0)


def test_i1_writers_that_wake_up_at_once_to_an_empty_log_append_behind_its_cursors(stage: Stage) -> None:
    desk, group = consumed(stage)
    wither(desk)
    other = afresh(desk)

    def meanwhile(_: object) -> None:
        assert [place.offset for place in other.produce(make.draft("first"))] == [5]

    slow = desk.producer(overtaken(stage.adapters.log, meanwhile))
    (place,) = require_stored(slow.produce(desk.topic, [make.draft("second")]))
    assert place.offset == 6
    assert desk.drain(group) == [5, 6]


def test_who_begins_or_is_sent_to_the_end_of_an_empty_log_misses_nothing_and_drags_nobody_back(
    stage: Stage,
) -> None:
    desk, group = consumed(stage)
    wither(desk)
    fresh = afresh(desk)
    late_group = fresh.group("late", begin="latest")
    fresh.seek(group, "latest")
    assert (fresh.cursor(late_group).next, fresh.cursor(group).next) == (5, 5)
    fresh.deps.admin.delete_group(fresh.topic, group)
    assert [place.offset for place in fresh.produce(make.draft())] == [5]
    assert offsets(fresh.receive(late_group)) == [5]


def test_i1_a_log_that_begins_again_gives_nobody_what_it_held_before(stage: Stage) -> None:
    """No group is left that would know its end: a process must not use what it has cached of the former log."""
    desk, group = consumed(stage)
    desk.deps.admin.delete_group(desk.topic, group)
    wither(desk)
    fresh = afresh(desk)
    assert [place.offset for place in fresh.produce(make.draft("new"))] == [0]
    late_group = fresh.group("late", begin="earliest")
    assert [each.message.draft for each in desk.receive(late_group)] == [make.draft("new")]


def test_a_young_log_asks_nobody(stage: Stage) -> None:
    """What is younger than the shortest life of a row has lost none: its writers read no group and no cursor."""
    desk = Desk.at(stage)
    desk.group()
    tails, shard = Deps(replace(stage.another(), cursors=cast(Cursors, None))).tails, desk.topic.shard_key(0)
    assert tails.read(shard, desk.topic.created_ms) == Tail(-1)
    desk.produce(make.draft())
    stage.clock.advance(DAY_MS - 1)
    assert tails.read(shard) == Tail(0)
