"""The latest attempts at a consumer, read from the traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

import pytest

from chalicelib.domain.topic import cursor_key
from chalicelib.services.inspect.trace import History, latest_attempts
from tests.support import factories as make
from tests.support.desk import Desk
from tests.support.stages import Stage


@dataclass
class Crowd:
    """A group with a few consumers, and traces of very many others beside theirs."""

    stage: Stage
    mode: str = "broadcast"
    shards: int = 1

    def __post_init__(self) -> None:
        self.traces, self.desk = self.stage.adapters.traces, Desk.at(self.stage, shards=self.shards)
        self.group = self.desk.group(mode=self.mode)
        self.consumer = self.desk.consumer(self.group, "one")

    def attempt(self, *offsets: int, shard: int = 0, by: str = "") -> None:
        """Attempts at these messages, each with a row of its own."""
        is_broadcast = self.mode == "broadcast"
        uid = (by or self.consumer.uid) if is_broadcast else ""
        key = cursor_key(self.desk.topic, self.group, shard, uid)
        self.traces.write(
            [
                make.trace(
                    key,
                    make.entries([offset]),
                    consumer=by or self.consumer.name,
                    started_ms=self.consumer.created_ms + offset,
                )
                for offset in offsets
            ]
        )

    def latest(
        self,
        limit: int = 4,
        may_go_on: Callable[[], bool] = lambda: True,
        shards: Sequence[int] = (0,),
    ) -> History:
        return latest_attempts(
            self.traces, self.desk.topic, self.group, self.consumer, shards, limit, may_go_on
        )


@pytest.mark.parametrize(("number", "is_whole"), [(1, True), (4, True), (5, False), (12, False)])
def test_a_broadcasts_consumer_has_its_attempts_though_very_many_others_have_theirs(
    stage: Stage, number: int, is_whole: bool
) -> None:
    broadcast = Crowd(stage)
    for n in range(90):
        broadcast.attempt(*range(number), by=f"other-{n}")
    broadcast.attempt(*range(number))
    history = broadcast.latest()
    assert [each.offset for each in history.attempts] == list(reversed(range(number)))[:4]
    assert history.is_whole == is_whole


@pytest.mark.parametrize(("shards", "places"), [((0,), [(0, 80), (0, 40), (0, 0)]), ((), [])])
def test_a_consumer_of_a_queue_has_its_attempts_though_very_many_take_from_its_shard(
    stage: Stage, shards: tuple[int, ...], places: list[tuple[int, int]]
) -> None:
    """Where it has none it is looked for once, as in others'."""
    queue = Crowd(stage, "queue", shards=2)
    for shard in (0, 1):
        queue.attempt(*(n for n in range(120) if n % 40), shard=shard, by="others")
    queue.attempt(*range(0, 120, 40))
    history = queue.latest(shards=shards)
    assert [(each.shard, each.offset) for each in history.attempts] == places
    assert not history.is_whole


def test_who_has_a_shard_alone_is_looked_for_as_often_as_there_are_shards(stage: Stage) -> None:
    queue = Crowd(stage, "queue", shards=2)
    queue.attempt(*range(50), shard=0, by="another")
    queue.attempt(*range(50), shard=1)
    reads = count()
    history = queue.latest(limit=50, may_go_on=lambda: next(reads) >= 0, shards=(1,))
    assert (len(history.attempts), next(reads)) == (50, 2)


def test_a_broadcasts_attempts_are_the_latest_of_all_shards(stage: Stage) -> None:
    """A quiet shard's, which are found at once, are older than those of shards that very many share."""
    broadcast = Crowd(stage, shards=2)
    broadcast.attempt(*range(8))
    broadcast.attempt(*range(100, 108), shard=1)
    broadcast.attempt(*range(108, 400), shard=1, by="another")
    assert {(each.shard, each.offset) for each in broadcast.latest().attempts} == {
        (1, n) for n in range(104, 108)
    }


@pytest.mark.parametrize("may_go_on", [True, False])
def test_what_lies_too_far_back_is_not_told_and_not_denied(stage: Stage, may_go_on: bool) -> None:
    broadcast = Crowd(stage)
    broadcast.attempt(*range(1, 2_100 if may_go_on else 150), by="another")
    broadcast.attempt(0)
    answers = iter([True, may_go_on])
    history = broadcast.latest(may_go_on=lambda: next(answers, may_go_on))
    assert (list(history.attempts), history.is_whole) == ([], False)
