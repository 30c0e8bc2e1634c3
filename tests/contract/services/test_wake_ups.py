"""Who is woken, with what, and how often: each rule of the wake-ups by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from chalicelib.domain.errors import Unavailable, unavailable
from chalicelib.domain.topic import lane_of
from chalicelib.domain.transaction import TransactionState
from chalicelib.ports.world import Invoker
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.mover_wakes import Hints, read_hints
from chalicelib.services.produce.appender import ProduceResult
from chalicelib.services.produce.transactions import Checks
from chalicelib.store.control import Control
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.push import PushDesk
from tests.support.stages import Stage
from tests.support.troubled import Counted, Troubled


def asked(desk: PushDesk, function: str) -> list[Mapping[str, Any]]:
    """The events of what was started since the last look."""
    events = [event for name, event in desk.inbox.asked if name == function]
    desk.inbox.asked.clear()
    return events


def pushed(stage: Stage, **settings: Any) -> PushDesk:
    desk = PushDesk.at(stage, **settings)
    desk.subscriber(desk.group(), "one")
    desk.inbox.asked.clear()
    return desk


@pytest.mark.parametrize(("wake", "count"), [("direct", 1), ("stream", 0)])
def test_a_producer_wakes_deliveries_itself_only_where_that_is_wanted(
    stage: Stage, wake: str, count: int
) -> None:
    desk = pushed(stage, wake=wake)
    desk.deps.waker.wake_after_append(desk.topic, [make.message()])
    assert len(asked(desk, "deliver")) == count


def test_a_producer_wakes_the_same_delivery_ten_times_a_second_at_most(stage: Stage) -> None:
    desk = pushed(stage, wake="direct")
    desk.deps.waker.wake_after_append(desk.topic, [make.message()])
    stage.clock.advance(100)
    desk.deps.waker.wake_after_append(desk.topic, [make.message()])
    assert len(asked(desk, "deliver")) == 1
    stage.clock.advance(1)
    desk.deps.waker.wake_after_append(desk.topic, [make.message()])
    assert len(asked(desk, "deliver")) == 1


def test_a_producer_that_needs_to_wake_nobody_reads_nothing(stage: Stage) -> None:
    desk = pushed(stage, wake="direct")
    counted = Counted(stage.adapters.control)
    deps = Deps(replace(desk.deps.adapters, control=cast(Control, counted)))
    for _ in range(20):
        deps.waker.wake_after_append(deps.catalog.topic(desk.topic.name), [make.message()])
    assert counted.calls["groups"] == 1


def test_a_producer_tells_each_delivery_which_shards_have_new_rows(stage: Stage) -> None:
    desk = pushed(stage, wake="direct", shards=4)
    few = desk.group("few", max_in_flight=1)
    desk.subscriber(few, "another")
    desk.inbox.asked.clear()
    waiting = ProduceResult("id", None, None, START_MS, due_ms=START_MS + 1)
    first, second, third = make.message(5, shard=2), make.message(7, shard=2), make.message(1, shard=3)
    desk.deps.waker.wake_after_append(desk.topic, [first, waiting, second, third])
    two, three = (str(desk.topic.shard_key(shard)) for shard in (2, 3))
    assert {(event["group"], event["worker"]): event["last"] for event in asked(desk, "deliver")} == {
        ("billing", 2): {two: 7},
        ("billing", 3): {three: 1},
        ("few", 0): {two: 7, three: 1},
    }
    desk.deps.waker.wake_after_append(desk.topic, [make.message(8, shard=2), make.message(0, shard=1)])
    (of_billing, of_few) = asked(desk, "deliver")
    assert of_billing["last"] == of_few["last"] == {str(desk.topic.shard_key(1)): 0}


def test_what_is_stored_is_not_refused_because_its_groups_cannot_be_read_now(stage: Stage) -> None:
    desk = pushed(stage, wake="direct")
    throttled = Troubled(stage.adapters.control, lambda name, *_: name == "groups")
    deps = Deps(replace(desk.deps.adapters, control=cast(Control, throttled)))
    topic = deps.catalog.topic(desk.topic.name)
    transaction = deps.transactor.prepare(topic, make.draft("x"), Checks())[0]
    assert deps.transactor.decide(transaction, TransactionState.COMMITTED).offset == 0
    deps.waker.wake_after_append(topic, [make.message()])
    assert throttled.refused == 2
    assert asked(desk, "deliver") == []


def test_nobody_is_woken_for_a_paused_group_or_for_who_is_disabled(stage: Stage) -> None:
    desk = pushed(stage)
    group = desk.deps.catalog.group(desk.topic, "billing")
    shard = {str(desk.topic.shard_key(0)): None}
    assert desk.deps.waker.route(shard) == 1
    desk.deps.admin.pause(desk.topic, group.name, True)
    assert desk.deps.waker.route(shard) == 0
    group = desk.deps.admin.pause(desk.topic, group.name, False)
    assert desk.deps.waker.route(shard) == 1
    (consumer,) = desk.deps.catalog.consumers(desk.topic, group)
    desk.deps.registry.disable(desk.topic, group, consumer, "It answered 410 Gone.")
    assert desk.deps.waker.route(shard) == 0


def test_each_shard_wakes_its_own_of_several_runs(stage: Stage) -> None:
    desk = PushDesk.at(stage, shards=4)
    desk.subscriber(desk.group(max_in_flight=20, batch_size=10), "one")
    asked(desk, "deliver")
    for shard in range(4):
        desk.deps.waker.route({str(desk.topic.shard_key(shard)): None})
    assert [event["worker"] for event in asked(desk, "deliver")] == [0, 1, 0, 1]


def test_a_topic_that_cannot_be_read_now_keeps_no_other_waiting(stage: Stage) -> None:
    desk = pushed(stage)

    control = Troubled(
        stage.adapters.control, lambda name, *arguments: name == "topic" and arguments == ("bad",)
    )
    process = Deps(replace(desk.deps.adapters, control=cast(Control, control)))
    bad = replace(desk.topic, name="bad")
    with pytest.raises(Unavailable):
        process.waker.route({str(bad.shard_key(0)): None, str(desk.topic.shard_key(0)): 7})
    assert [event["last"] for event in asked(desk, "deliver")] == [{str(desk.topic.shard_key(0)): 7}]


def test_who_routes_new_rows_is_told_that_a_delivery_could_not_be_started(stage: Stage) -> None:
    desk = pushed(stage)
    desk.subscriber(desk.group("mailer"), "another")
    asked(desk, "deliver")
    busy = Troubled(desk.inbox, lambda _, function, event: event["group"] == "billing")
    process = Deps(replace(desk.deps.adapters, invoker=cast(Invoker, busy)))
    with pytest.raises(Unavailable):
        process.waker.route({str(desk.topic.shard_key(0)): 7})
    assert [event["group"] for event in asked(desk, "deliver")] == ["mailer"], "the others are"


def test_the_groups_of_a_topic_are_read_once_for_all_shards_with_new_rows(stage: Stage) -> None:
    desk = pushed(stage, shards=4, wake="direct")
    counted = Counted(stage.adapters.control)
    waker = Deps(replace(desk.deps.adapters, control=cast(Control, counted))).waker
    assert waker.route({str(desk.topic.shard_key(shard)): 0 for shard in range(4)}) == 4
    waker.wake_after_append(desk.topic, [make.message(0, shard=shard) for shard in range(4)])
    assert (counted.calls["groups"], len(asked(desk, "deliver"))) == (2, 8)


def test_a_retry_lane_wakes_its_own_run_and_one_of_a_topic_that_is_no_more_none(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group(mode="broadcast")
    one, _ = (desk.subscriber(group, name) for name in ("one", "two"))
    asked(desk, "deliver")
    lane = lane_of(desk.topic, group, one.uid)
    assert desk.deps.waker.route({str(lane.shard_key(0)): None}) == 1
    assert [event["consumer_uid"] for event in asked(desk, "deliver")] == [one.uid]
    assert desk.deps.waker.route({str(replace(desk.topic, uid="former").shard_key(0)): None}) == 0


def test_a_mover_is_woken_for_who_delays_a_message_or_its_next_attempt(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.produce(make.draft(due_ms=START_MS + 5_000))
    assert len(asked(desk, "mover")) == 1
    desk.produce(make.draft())
    desk.nack(group, desk.receive(group), Nack(delay_ms=9_000))
    assert len(asked(desk, "mover")) == 1


@dataclass
class Wakes:
    """What a process sends for timers: when each wake-up comes, and for which fragments."""

    stage: Stage
    sent: list[tuple[int, list[int] | str]] = field(default_factory=list)
    is_away: bool = False

    def __post_init__(self) -> None:
        self.waker = Deps(replace(self.stage.another(), invoker=cast(Invoker, self))).waker

    def wake_mover(self, hint: Mapping[str, Any], delay_seconds: int) -> None:
        if self.is_away:
            raise unavailable()
        at_ms = self.stage.clock.now_ms() + delay_seconds * 1000
        assert hint["until_ms"] == at_ms + 100
        self.sent.append((at_ms - START_MS, hint.get("fragments", "all")))

    def after(self, *timers: tuple[int, int]) -> list[tuple[int, list[int] | str]]:
        """What is sent for timers of these times (ms from the start) and fragments."""
        self.sent.clear()
        self.waker.wake_movers([make.timer(START_MS + ms, fragment) for ms, fragment in timers])
        return self.sent


@pytest.mark.parametrize(
    ("due_ms", "at_ms"),
    [(-5, 0), (0, 0), (99, 0), (100, 1_000), (1_099, 1_000), (1_100, 2_000), (900_000, 900_000)],
)
def test_a_wake_up_comes_at_most_100_ms_early_or_900_late(stage: Stage, due_ms: int, at_ms: int) -> None:
    assert Wakes(stage).after((due_ms, 3)) == [(at_ms, [3])]


def test_the_schedule_wakes_for_what_is_due_in_more_than_15_minutes(stage: Stage) -> None:
    assert Wakes(stage).after((900_001, 3)) == []


def test_timers_of_one_second_share_a_wake_up(stage: Stage) -> None:
    wakes = Wakes(stage)
    assert wakes.after((5_000, 3), (5_100, 4), (7_001, 5)) == [(5_000, [3, 4]), (7_000, [5])]
    assert wakes.after((4_100, 3), (5_100, 3), (5_000, 4), (6_100, 5)) == []
    assert wakes.after((4_900, 5)) == [(5_000, "all")], "one that comes near another names all"
    assert wakes.after((5_100, 6), (4_100, 7)) == []
    assert wakes.after((9_001, 3)) == [(9_000, [3])]
    stage.clock.advance(5_000)
    assert wakes.after((5_000, 3)) == [(5_000, "all")], "what has come counts no more"


def test_a_clock_that_is_set_back_leaves_no_false_belief(stage: Stage) -> None:
    wakes = Wakes(stage)
    wakes.after((800_000, 3))
    stage.clock.advance(-3_600_000)
    wakes.after((0, 0))
    stage.clock.advance(3_600_000)
    assert wakes.after((800_000, 3)) == [(800_000, [3])]


def test_a_wake_up_that_could_not_be_sent_is_not_believed_in(stage: Stage) -> None:
    wakes = Wakes(stage)
    wakes.is_away = True
    assert wakes.after((5_000, 3)) == []
    wakes.is_away = False
    assert wakes.after((5_000, 3)) == [(5_000, [3])]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[" * 100_000,
        "null",
        "[]",
        "{}",
        '{"until_ms": "1"}',
        '{"until_ms": true}',
        '{"until_ms": 1.5}',
        '{"until_ms": 9999999999999}',
        '{"until_ms": 1, "fragments": 3}',
        '{"until_ms": 1, "fragments": "3"}',
        '{"until_ms": 1, "fragments": [8]}',
        '{"until_ms": 1, "fragments": [-1]}',
        '{"until_ms": 1, "fragments": [true]}',
        '{"until_ms": 1, "fragments": [[]]}',
    ],
)
def test_what_is_no_wake_up_is_dropped(body: str) -> None:
    good = '{"until_ms": 5, "fragments": [1, 7]}'
    hints = read_hints([body, good], range(8), START_MS)
    assert (hints.fragments, hints.until_ms, hints.dropped) == (frozenset({1, 7}), 5, 1)
    assert read_hints([body], range(8), START_MS).fragments == frozenset(), "and starts nothing"


def test_wake_ups_of_a_batch_are_one_run(stage: Stage) -> None:
    bodies = ['{"until_ms": 5, "fragments": [1]}', '{"until_ms": 9, "fragments": [2]}']
    assert read_hints(bodies, range(8), START_MS).fragments == frozenset({1, 2})
    assert read_hints([*bodies, '{"until_ms": 7}'], range(8), START_MS) == Hints(None, 9)


def test_i10_what_who_pulls_lets_go_is_found_by_the_sweep_if_the_wake_up_is_lost(stage: Stage) -> None:
    """It has looked before, and would come by at the lease's first end only."""
    desk = PushDesk.at(stage, shards=1)
    group = desk.group()
    desk.subscriber(group, "one")
    desk.produce(make.draft())
    messages = desk.receive(group, 1, lease=12 * 3600)
    desk.pass_time(180)
    desk.nack(group, messages)
    desk.inbox.asked.clear()
    desk.pass_time(120)
    assert len(desk.subscribers.calls) == 1
