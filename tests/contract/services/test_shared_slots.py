"""The runs of a group share its slots in large parts: claims of a few messages cost as many writes as those of many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from chalicelib.domain.cursor import Disposition
from chalicelib.domain.topic import Consumer, Group
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.services.consume.decision import SettleDecision
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.push import PushDesk, capacity_of, claims_of, sources_of
from tests.support.rarely import rarely
from tests.support.stages import embedded_stage

MOST = 64


def nothing() -> None:
    """Happens where a test does not say what."""


class Watched:
    """A process's cursors: something happens before and after it looks at what other runs have."""

    def __init__(self, cursors: Any, run: Run) -> None:
        self._cursors = cursors
        self._run = run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursors, name)

    def of_owner(self, *args: Any, consistent: bool = False, **settings: Any) -> Any:
        if not consistent:  # before claims, for these
            return self._cursors.of_owner(*args, **settings)
        self._run.before_look()
        cursors = self._cursors.of_owner(*args, consistent=True, **settings)
        self._run.after_look()
        return cursors


@dataclass
class Run:
    """The run of one of the group's tasks, in a process of its own; a test says when its calls end."""

    desk: PushDesk
    group: Group
    worker: int
    under_way: list[tuple[Consumer, Sequence[ClaimedMessage]]] = field(default_factory=list)
    claims_made: int = 0
    sent: int = 0
    before_look: Callable[[], None] = nothing
    after_look: Callable[[], None] = nothing

    def __post_init__(self) -> None:
        adapters = self.desk.stage.another()
        deps = Deps(replace(adapters, cursors=cast(Any, Watched(adapters.cursors, self))))
        self.settler = deps.settler
        self.sources = sources_of(deps, self.desk.topic, self.group, self.worker)
        self.capacity = capacity_of(deps)
        self.claims = claims_of(deps, self.capacity)

    def launch(self) -> None:
        for consumer, messages in self.claims.grants(self.sources):
            self.capacity.count(consumer, messages, +1)
            self.under_way.append((consumer, messages))
            self.claims_made += 1
            self.sent += len(messages)

    @property
    def message_count(self) -> int:
        """How many messages are under way."""
        return sum(len(messages) for _, messages in self.under_way)

    def end(self) -> None:
        """All its calls are answered."""
        for consumer, messages in self.under_way:
            self.capacity.count(consumer, messages, -1)
            receipts = [each.receipt for each in messages]
            answers = self.settler.settle(
                self.desk.topic, self.group, receipts, lambda *_: SettleDecision(Disposition.SUCCESS)
            )
            assert set(answers) <= {None}
        self.under_way.clear()


@pytest.mark.parametrize("shards", [2, 4, *rarely(8)])
@pytest.mark.parametrize("keep_step", [True, False], ids=["in step", "one after the other"])
def test_each_of_several_runs_claims_about_half_an_equal_part_at_a_time_or_more(
    shards: int, keep_step: bool
) -> None:
    desk = PushDesk.at(embedded_stage(), shards=shards)
    group = desk.group(max_in_flight=MOST)
    desk.subscriber(group, "one")
    for shard in range(shards):
        desk.produce(*make.drafts(1_600, shard=shard))
    runs = [Run(desk, group, worker) for worker in range(shards)]
    for _ in range(20):
        desk.stage.clock.advance(10)
        for run in runs:
            run.end()
            if not keep_step:
                run.launch()
        for run in runs if keep_step else ():
            run.launch()
        assert sum(len(messages) for run in runs for _, messages in run.under_way) <= MOST
    for run in runs:
        assert run.sent / run.claims_made > 0.45 * MOST / shards
        assert run.sent > 0.45 * 20 * MOST / shards


def test_runs_that_begin_together_begin_with_nearly_equal_parts() -> None:
    desk = PushDesk.at(embedded_stage(), shards=4)
    group = desk.group(max_in_flight=MOST)
    desk.subscriber(group, "one")
    for shard in range(4):
        desk.produce(*make.drafts(40, shard=shard))
    runs = [Run(desk, group, worker) for worker in range(4)]
    first_grants = [next(run.claims.grants(run.sources)) for run in runs]
    assert min(len(messages) for _, messages in first_grants) >= 12


def test_a_run_whose_shard_is_drained_does_not_ask_for_slots() -> None:
    desk = PushDesk.at(embedded_stage(), shards=2)
    group = desk.group(max_in_flight=MOST)
    desk.subscriber(group, "one")
    drained, other = (Run(desk, group, worker) for worker in range(2))
    desk.produce(*make.drafts(40, shard=1))
    other.launch()
    drained.capacity.read_other_runs(drained.sources)
    drained.launch()
    assert drained.claims.looks == 1


def test_a_shard_has_what_others_with_few_messages_do_not_use() -> None:
    """What they have fits into their guarantees."""
    desk = PushDesk.at(embedded_stage(), shards=4)
    group = desk.group(max_in_flight=MOST)
    desk.subscriber(group, "one")
    desk.produce(*make.drafts(2_000, shard=0))
    runs = [Run(desk, group, worker) for worker in range(4)]
    for _ in range(20):
        desk.stage.clock.advance(50)
        for shard, run in enumerate(runs):
            run.end()
            if shard:
                desk.produce(make.draft(shard=shard))
            run.launch()
    assert runs[0].sent > 20 * 0.75 * MOST
    assert [run.sent for run in runs[1:]] == [20] * 3


def test_shards_that_work_at_what_they_had_to_return_have_their_parts_soon() -> None:
    desk = PushDesk.at(embedded_stage(), shards=4)
    group = desk.group(max_in_flight=MOST)
    desk.subscriber(group, "one")
    desk.produce(*make.drafts(1_000, shard=0))
    runs = [Run(desk, group, worker) for worker in range(4)]
    runs[0].launch()
    for shard in (1, 2, 3):
        desk.produce(*make.drafts(1_000, shard=shard))
    for _ in range(5):
        for run in runs:
            run.end()
        for run in runs:
            run.launch()
    assert min(run.message_count for run in runs) >= 12


def test_who_returns_its_messages_goes_on_where_the_other_run_of_its_shard_has_ended_meanwhile() -> None:
    """Those that have the slots work at other shards: no other run would come."""

    def ends() -> None:
        same_shard.end()
        same_shard.launch()

    desk = PushDesk.at(embedded_stage(), shards=2)
    group = desk.group(max_in_flight=MOST)
    desk.subscriber(group, "one")
    other_shard, same_shard, run = (Run(desk, group, worker) for worker in (1, 0, 0))
    desk.produce(*make.drafts(60, shard=1))
    other_shard.launch()
    desk.produce(*make.drafts(5, shard=0))
    same_shard.launch()
    desk.produce(*make.drafts(16, shard=0))
    run.after_look = ends
    run.launch()
    assert same_shard.message_count == 0
    assert run.message_count == 5
    assert sum(each.message_count for each in (other_shard, run)) <= MOST


def test_who_others_trust_to_come_back_sees_what_they_returned() -> None:
    """Though it read their cursors a moment ago."""

    def goes_on() -> None:
        trusting.end()
        trusting.launch()

    desk = PushDesk.at(embedded_stage(), shards=2)
    group = desk.group(max_in_flight=1)
    desk.subscriber(group, "one")
    trusting, trusted = Run(desk, group, 0), Run(desk, group, 0)
    desk.produce(*make.drafts(2, shard=1))
    trusting.launch()
    desk.produce(*make.drafts(1, shard=0))
    trusted.before_look = goes_on
    trusted.launch()
    assert (trusting.message_count, trusted.message_count) == (0, 1)
    trusted.before_look = nothing
    trusted.end()
    trusted.launch()
    assert trusted.message_count == 1
