"""How many messages a consumer of a run may claim: beside its other consumers, other runs, and a store in trouble."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, cast

import pytest

from chalicelib.domain.topic import Consumer, Group
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.services.consume.settle import Nack
from chalicelib.services.inspect.letter_lookup import DeadLetterFilter
from chalicelib.services.push.sources import lane_share
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.push import PushDesk
from tests.support.push_run import capacity_of, claims_of, sources_of
from tests.support.stages import embedded_stage
from tests.support.troubled import Troubled


class Run:
    """A run for a group of two subscribers, in a process that may have cursors of the test's own."""

    def __init__(self, most: int = 8, shards: int = 1, refuses: Any = None) -> None:
        self.desk = PushDesk.at(embedded_stage(), shards=shards)
        self.group: Group = self.desk.group(max_in_flight=most)
        self.one, self.two = (self.desk.subscriber(self.group, name) for name in ("one", "two"))
        a = self.desk.deps.adapters
        deps = (
            Deps(replace(a, cursors=cast(Any, Troubled(a.cursors, refuses)))) if refuses else self.desk.deps
        )
        self.sources = sources_of(deps, self.desk.topic, self.group)
        self.capacity = capacity_of(deps)
        self.claims = claims_of(deps, self.capacity)

    def sent(self) -> Counter[str]:
        """How many messages each consumer is granted now; they stay under way."""
        counts: Counter[str] = Counter()
        for consumer, messages in self.claims.grants(self.sources):
            self.capacity.count(consumer, messages, +1)
            counts[consumer.name] += len(messages)
        return counts

    def has_sent(self, consumer: Consumer, count: int) -> None:
        self.capacity.count(consumer, [make.claimed_message()] * count, +1)


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("left", [0, 1])
def test_a_consumer_gets_no_more_than_its_room_and_leaves_the_others_theirs(
    is_first: bool, left: int
) -> None:
    run = Run()
    busy, other = (run.one, run.two) if is_first else (run.two, run.one)
    run.has_sent(busy, 4 - left)
    run.desk.produce(*make.drafts(20))
    assert run.sent() == Counter({busy.name: left, other.name: 4})


def test_what_other_runs_hold_of_the_lane_is_not_taken_twice() -> None:
    run = Run()
    run.desk.produce(*make.drafts(8))
    run.desk.nack(run.group, run.desk.receive(run.group), Nack(dead_letter=True))
    run.desk.deps.dead_letters.redrive_matching(run.desk.topic, run.group, DeadLetterFilter(), 8)
    assert len(run.desk.receive(run.group, lane_share(8), run.one)) == lane_share(8)
    assert run.sent().total() == 0


def test_a_shards_guarantee_is_all_its_consumers_whatever_other_runs_hold() -> None:
    run = Run(most=64, shards=3)
    run.desk.produce(*make.drafts(80, shard=1))
    assert len(run.desk.receive(run.group, 80, run.one)) == 80
    run.desk.produce(*make.drafts(30, shard=0))
    run.capacity.read_other_runs(run.sources)
    assert run.capacity.free(run.sources) <= 0
    assert run.sent().total() == run.sources.limits(0).guaranteed == 4


def test_while_the_other_runs_cannot_be_asked_only_what_is_guaranteed_is_sent() -> None:
    run = Run(most=64, refuses=lambda name, *_: name == "of_owner")
    run.desk.produce(*make.drafts(64))
    assert run.sent().total() == run.sources.limits(0).guaranteed == 8
    assert run.claims.fault
    assert run.desk.cursor(run.group).in_flight == 8
    assert {each.attempt for each in run.desk.receive(run.group, 100)} == {1}, "the rest was given back"


def test_what_another_run_held_is_claimed_after_a_second_once_it_is_free() -> None:
    run = Run(shards=2)
    run.desk.produce(*make.drafts(6, shard=1))
    held = run.desk.receive(run.group, 6, run.one)
    run.desk.produce(*make.drafts(20, shard=0))
    assert run.sent().total() == 2
    assert run.desk.ack(run.group, held) == [None] * 6
    assert run.sent().total() == 0, "not looked yet"
    run.desk.stage.clock.advance(1_001)
    assert run.sent().total() == 6


def test_who_found_every_place_taken_claims_again_if_they_are_free_after_its_last_return() -> None:
    """Otherwise no run would look again: the run that held them saw nothing waiting."""
    looks: list[str] = []

    def is_done_meanwhile(name: str, *_: object) -> bool:
        looks.extend([name] if name == "of_owner" else [])
        if len(looks) == 2 and held:
            messages = [held.pop() for _ in range(8)]
            assert set(run.desk.ack(run.group, messages)) == {None}
        return False

    held: list[ClaimedMessage] = []
    run = Run(shards=2, refuses=is_done_meanwhile)
    run.desk.produce(*make.drafts(8, shard=1))
    held += run.desk.receive(run.group, 8, run.one)
    run.desk.produce(*make.drafts(20, shard=0))
    assert run.sent().total() == 8
    assert held == []
