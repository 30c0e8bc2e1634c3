"""Which shards a run serves, who may have their messages, and how many of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from chalicelib.domain.assignment import Team
from chalicelib.domain.topic import Consumer, ConsumerKind, Mode, Topic
from chalicelib.services.core.wake import DispatchTask
from chalicelib.services.push.sources import SourceLimits, Sources
from tests.support import factories as make

TOPIC = make.topic(shards=8)
GROUP = make.group(TOPIC)
A, B, C = (make.consumer(GROUP, name, kind=ConsumerKind.URL) for name in "abc")
PULLS = make.consumer(GROUP, "pulls")


def sources(
    owners: Sequence[Consumer | None] = (A, B) * 4,
    consumers: Sequence[Consumer] = (A, B),
    worker: int = 0,
    consumer_uid: str = "",
    topic: Topic = TOPIC,
    partitions: Sequence[str] = (),
    **settings: Any,
) -> Sources:
    group = make.group(topic, **{"max_in_flight": 64, **settings})
    task = DispatchTask(topic.name, group.name, worker, consumer_uid)
    return Sources(topic, group, task, Team(owners, consumers), partitions)


def test_the_workers_of_a_group_have_each_shard_once_and_one_has_the_lane() -> None:
    parts = [list(sources(worker=n, max_in_flight=36).in_turn(0, 36)) for n in range(8)]
    shards = [shard for part in parts for shard in part]
    assert sorted(str(shard) for shard in shards) == ["0", "1", "2", "3", "4", "5", "6", "7", "None"]
    assert None in parts[0]
    assert {len(part) for part in parts[1:]} == {1}


def test_a_run_looks_where_it_was_told_to() -> None:
    keys = [str(TOPIC.shard_key(shard)) for shard in range(10)]
    all_sources = sources(max_in_flight=1, uid="g")
    (lane,) = all_sources.keys.difference(keys)
    sources_by_news = {
        partitions: sources(max_in_flight=1, uid="g", partitions=partitions)
        for partitions in ((keys[2], keys[5]), (lane,), (lane, keys[0]), (keys[9],))
    }
    assert [list(each.in_turn(0, 64)) for each in sources_by_news.values()] == [[2, 5], [None], [None, 0], []]
    assert all(each.keys >= all_sources.keys for each in sources_by_news.values()), (
        "the rest is the task's, too"
    )


def test_a_look_begins_behind_the_shard_that_was_served_last() -> None:
    one = sources(max_in_flight=1, topic=make.topic(shards=3))
    assert [list(one.in_turn(0, 64, {0: behind})) for behind in (-1, 0, 1, 2)] == [
        [None, 0, 1, 2],
        [None, 1, 2, 0],
        [None, 2, 0, 1],
        [None, 0, 1, 2],
    ]


@pytest.mark.parametrize(("behind", "turn"), [(1, [2, 5]), (3, [5, 2]), (5, [2, 5])])
def test_the_shard_served_last_may_be_none_of_those_to_look_at_now(behind: int, turn: list[int]) -> None:
    told = sources(partitions=[str(TOPIC.shard_key(shard)) for shard in (2, 5)])
    assert list(told.in_turn(0, 64, {0: behind})) == turn


@pytest.mark.parametrize(("look", "most", "first"), [(1, 4, None), (1, 3, 0), (3, 3, 0), (4, 3, None)])
def test_where_few_may_be_in_flight_the_lane_mostly_comes_last(
    look: int, most: int, first: int | None
) -> None:
    turn = list(sources(max_in_flight=1, topic=make.topic(shards=3)).in_turn(look, most))
    assert turn[0] == first
    assert (turn[-1] is None) is (first is not None)
    assert len(turn) == 4


@pytest.mark.parametrize(
    ("settings", "shard", "limits"),
    [
        ({"max_in_flight": 75}, 0, SourceLimits(75, 2, 38, 1)),
        ({"max_in_flight": 75}, None, SourceLimits(18, 2, 38, 1)),
        ({"max_in_flight": 75, "batch_size": 50}, 0, SourceLimits(75, 2, 50, 1)),
        ({"max_in_flight": 108}, 0, SourceLimits(108, 3, 54, 2)),
        ({"max_in_flight": 3}, None, SourceLimits(1, 0, 2, 0)),
        ({"max_in_flight": 75, "mode": Mode.SERIAL}, 0, SourceLimits(75, 2, 75, 2)),
    ],
)
def test_a_source_has_a_guarantee_and_each_of_its_consumers_a_part(
    settings: dict[str, Any], shard: int | None, limits: SourceLimits
) -> None:
    assert sources(**settings).limits(shard) == limits


def test_in_a_queue_all_that_are_called_share_every_source() -> None:
    one = sources(owners=(A, B, None, PULLS), consumers=(A, B, C), topic=make.topic(shards=4))
    assert [one.consumers_of(shard) for shard in (0, 1, None)] == [(A, B, C)] * 3
    assert [one.consumers_of(shard) for shard in (2, 3, 4)] == [()] * 3, (
        "nobody, or somebody who pulls, has it"
    )
    assert one.called_consumers() == {A, B, C}
    assert one.called_for(None, A) == one.called_for(0, A) == {A}
    assert one.target(C, make.claimed_message()) is C


def test_in_an_ordered_mode_the_owner_of_a_shard_gets_its_messages() -> None:
    one = sources(owners=(None, B, A), consumers=(A, B, C), topic=make.topic(shards=3), mode=Mode.SERIAL)
    assert [one.consumers_of(shard) for shard in (0, 1, 2)] == [(), (B,), (A,)]
    assert one.consumers_of(None) == (B,), "somebody claims from the lane"
    assert one.called_consumers() == {A, B}
    assert one.called_for(None, B) == {A, B}
    assert one.called_for(1, B) == {B}
    assert one.target(B, make.claimed_message(shard=2)) is A
    assert one.target(B, make.claimed_message(shard=0)) is B
