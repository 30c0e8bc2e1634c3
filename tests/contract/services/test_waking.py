"""Nothing that stopped a delivery is left to the sweep: a run comes back when the obstacle is gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from chalicelib.domain.append import Stored
from chalicelib.domain.segment import Allocation, Rows, ShardKey
from chalicelib.domain.topic import Consumer, Group
from chalicelib.functions import deliver, route
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.wake import DispatchTask, News
from chalicelib.store.control import Control
from chalicelib.store.log import Log
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.push import EXACT, PushDesk, fails
from tests.support.stages import Stage, embedded_stage
from tests.support.troubled import Counted

_SHORTER_THAN_A_SWEEP_S = 10


class Lagging:
    """A log of which reads that are not consistent don't show the last rows yet."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.sure_reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def read(self, shard: ShardKey, first: int, most: int, *, consistent: bool = False) -> Rows:
        self.sure_reads += consistent
        return self._log.read(shard, first, most, consistent=True) if consistent else Rows(is_end=True)


class Context:
    """A function's, with time enough."""

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


def record(shard: ShardKey, offset: int) -> dict[str, Any]:
    return {"eventName": "INSERT", "dynamodb": {"Keys": {"s": {"S": str(shard)}, "o": {"N": str(offset)}}}}


def away_from_the_sweep(stage: Stage) -> None:
    """None comes by in the next seconds."""
    left_ms = 60_000 - (stage.clock.now_ms() - START_MS) % 60_000
    if left_ms <= _SHORTER_THAN_A_SWEEP_S * 1000:
        stage.clock.advance(left_ms)


def test_what_stands_behind_a_hole_comes_when_the_hole_may_be_closed(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one")
    behind = make.segment(2, 3, allocation=Allocation.RESERVED, accepted_ms=stage.clock.now_ms())
    shard = desk.topic.shard_key(0)
    for row in (make.segment(0, 1, accepted_ms=stage.clock.now_ms()), behind):
        assert stage.adapters.log.put(shard, row, make.packed(row)) == Stored()
    desk.push()
    assert len(desk.subscribers.calls) == 1, "a writer may still fill the hole"
    away_from_the_sweep(stage)
    desk.pass_time(_SHORTER_THAN_A_SWEEP_S)
    assert len(desk.subscribers.calls) == 4


def lagging(desk: PushDesk) -> tuple[Lagging, Deps]:
    log = Lagging(desk.deps.adapters.log)
    return log, Deps(replace(desk.deps.adapters, log=cast(Log, log)))


def woken_by(desk: PushDesk, offset: int, run: Callable[[dict[str, Any]], object]) -> None:
    """The stream shows a row, and what that wakes runs."""
    desk.inbox.asked.clear()
    route({"Records": [record(desk.topic.shard_key(0), offset)]}, desk.deps)
    ((function, event),) = desk.inbox.asked
    assert function == "deliver"
    run(dict(event))


def test_who_was_woken_for_a_row_does_not_believe_a_read_that_ends_before_it(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    desk.subscriber(desk.group(), "one")
    (first,) = desk.produce(make.draft())
    assert first.offset == 0
    log, deps = lagging(desk)
    woken_by(desk, first.offset, lambda event: deliver(event, Context(), deps))
    assert len(desk.subscribers.calls) == 1
    assert log.sure_reads == 1, "one read more, and only where the first was stale"


def test_the_last_of_several_new_rows_is_told(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    desk.subscriber(desk.group(), "one")
    desk.inbox.asked.clear()
    shard = desk.topic.shard_key(0)
    report = route({"Records": [record(shard, offset) for offset in (3, 17, 5, -1)]}, desk.deps)
    assert report["woken"] == 1
    ((_, event),) = desk.inbox.asked
    assert event["last"] == {str(shard): 17}


def process(desk: PushDesk) -> Deps:
    """A further process, with caches of its own."""
    return Deps(replace(desk.deps.adapters))


def warmed(desk: PushDesk) -> Deps:
    """One that has just looked at everything."""
    deps = process(desk)
    deliver({"topic": desk.topic.name, "group": "billing"}, Context(), deps)
    deps.waker.route({str(desk.topic.shard_key(0)): None})
    desk.inbox.asked.clear()
    return deps


def woken(desk: PushDesk, deps: Deps) -> None:
    """What was woken runs in one process."""
    while desk.inbox.asked:
        function, event = desk.inbox.asked.popleft()
        if function == "deliver":
            deliver(dict(event), Context(), deps)


def test_who_thinks_that_a_group_is_paused_hears_that_it_goes_on(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one")
    desk.produce(make.draft())
    desk.deps.admin.pause(desk.topic, group.name, True)
    warm = warmed(desk)
    desk.deps.waker.wake_after_resumption(desk.topic, desk.deps.admin.pause(desk.topic, group.name, False))
    woken(desk, warm)
    assert len(desk.subscribers.calls) == 1


def test_who_saw_a_cursor_at_the_end_hears_that_it_was_sought_back(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one")
    desk.produce(make.draft())
    desk.push()
    warm = warmed(desk)
    desk.seek(group, "earliest")
    desk.deps.waker.wake_group(desk.topic, group)
    woken(desk, warm)
    assert len(desk.subscribers.calls) == 2


def test_a_message_that_a_router_thinks_is_for_nobody_comes_seconds_later(stage: Stage) -> None:
    is_missed_by_its_router_and_comes(stage, "queue")


def test_a_broadcasts_message_that_a_router_thinks_is_for_nobody_comes_as_soon() -> None:
    is_missed_by_its_router_and_comes(embedded_stage(), "broadcast")


def is_missed_by_its_router_and_comes(stage: Stage, mode: str) -> None:
    desk = PushDesk.at(stage)
    group = desk.group(mode=mode)
    warm = warmed(desk)
    desk.deps.waker.wake_for(desk.topic, group, desk.subscriber(group, "one"))
    desk.run()
    desk.produce(make.draft())
    assert warm.waker.route({str(desk.topic.shard_key(0)): 0}) == 0
    woken(desk, warm)
    assert not desk.subscribers.calls
    away_from_the_sweep(stage)
    desk.pass_time(_SHORTER_THAN_A_SWEEP_S)
    assert len(desk.subscribers.calls) == 1


def is_resumed(desk: PushDesk, group: Group) -> Callable[[], None]:
    desk.deps.admin.pause(desk.topic, group.name, True)
    return lambda: desk.deps.waker.wake_after_resumption(
        desk.topic, desk.deps.admin.pause(desk.topic, group.name, False)
    )


def loses_who_pulls(desk: PushDesk, group: Group) -> Callable[[], None]:
    puller = desk.consumer(group, "desk")

    def leaves() -> None:
        desk.deps.registry.unregister(desk.topic, group, puller)
        desk.deps.waker.wake_for(desk.topic, group, puller)

    return leaves


def gets_who_pulls(desk: PushDesk, group: Group) -> Callable[[], None]:
    """The shards are assigned again: the pull consumer's becomes the subscriber's."""
    desk.consumer(group, "desk")
    return lambda: desk.deps.waker.wake_for(desk.topic, group, desk.consumer(group, "another"))


@pytest.mark.parametrize(
    ("prepare", "mode", "shard"),
    [
        (is_resumed, "queue", 0),
        (is_resumed, "broadcast", 0),
        (loses_who_pulls, "queue", 0),
        (gets_who_pulls, "serial", 2),
    ],
)
def test_i10_a_message_that_a_run_thinks_is_not_for_it_comes_seconds_later(
    stage: Stage, prepare: Callable[[PushDesk, Group], Callable[[], None]], mode: str, shard: int
) -> None:
    """Its process believes that the group is paused, or that a pull consumer has the shard."""
    desk = PushDesk.at(stage, shards=3)
    group = desk.group(mode=mode)
    desk.subscriber(group, "one")
    change = prepare(desk, group)
    warm = warmed(desk)
    change()
    desk.run()
    (message,) = desk.produce(make.draft(shard=shard))
    desk.inbox.asked.clear()
    desk.deps.waker.route({str(desk.topic.shard_key(shard)): message.offset})
    assert desk.inbox.asked
    woken(desk, warm)
    assert not desk.subscribers.calls
    away_from_the_sweep(stage)
    desk.pass_time(_SHORTER_THAN_A_SWEEP_S)
    assert len(desk.subscribers.calls) == 1


def grows(desk: PushDesk, group: Group) -> None:
    desk.deps.admin.put_topic(desk.topic.name, {"shards": 2})


def loses_a_worker(desk: PushDesk, group: Group) -> None:
    desk.deps.admin.put_group(desk.topic, group.name, {"max_in_flight": 1})


@pytest.mark.parametrize(("shards", "change", "at_once"), [(1, grows, 0), (2, loses_a_worker, 1)])
def test_a_message_in_a_shard_that_a_worker_does_not_know_yet_comes_seconds_later(
    stage: Stage, shards: int, change: Callable[[PushDesk, Group], None], at_once: int
) -> None:
    """One in a shard that it knows as another worker's comes at once."""
    desk = PushDesk.at(stage, shards=shards)
    group = desk.group(max_in_flight=64)
    desk.subscriber(group, "one")
    warm, router = warmed(desk), process(desk)
    change(desk, group)
    desk.topic = router.catalog.topic(desk.topic.name)
    desk.deps.waker.wake_after_redivision(desk.topic)
    (message,) = desk.produce(make.draft(shard=1))
    desk.inbox.asked.clear()
    assert router.waker.route({str(desk.topic.shard_key(1)): message.offset}) == 1
    woken(desk, warm)
    assert len(desk.subscribers.calls) == at_once
    away_from_the_sweep(stage)
    desk.pass_time(_SHORTER_THAN_A_SWEEP_S)
    assert len(desk.subscribers.calls) == 1


def returned(desk: PushDesk, group: Group, messages: list[ClaimedMessage]) -> None:
    desk.nack(group, messages)


def returned_by_ladder(desk: PushDesk, group: Group, messages: list[ClaimedMessage]) -> None:
    desk.nack(group, messages, Nack(delay_ms=None))


def acknowledged_before_another(desk: PushDesk, group: Group, messages: list[ClaimedMessage]) -> None:
    desk.produce(make.draft(ordering_key="k"))
    assert desk.ack(group, messages) == [None]


def returned_to_the_lane(desk: PushDesk, group: Group, messages: list[ClaimedMessage]) -> None:
    desk.nack(group, messages, Nack(delay_ms=1000))
    desk.stage.clock.advance(1000)
    messages = desk.receive(group, 1, lease=12 * 3600)
    assert messages[0].receipt.entry is not None
    desk.inbox.asked.clear()
    desk.nack(group, messages)


def ended_sooner(desk: PushDesk, group: Group, messages: list[ClaimedMessage]) -> None:
    assert desk.extend(group, messages, 5) == [None]


@pytest.mark.parametrize(
    ("mode", "settle", "at_once"),
    [
        ("queue", returned, 1),
        ("queue", returned_to_the_lane, 1),
        ("serial", returned, 1),
        ("serial", returned_by_ladder, 0),
        ("serial", acknowledged_before_another, 1),
        ("queue", ended_sooner, 0),
    ],
)
def test_i10_what_a_settlement_of_who_pulls_lets_go_is_pushed_when_it_is_due(
    stage: Stage, mode: str, settle: Callable[[PushDesk, Group, list[ClaimedMessage]], None], at_once: int
) -> None:
    """Also by a process that has just seen the lease."""
    desk = PushDesk.at(stage, shards=2)
    group = desk.group(mode=mode, retry=EXACT, max_in_flight=64)
    desk.subscriber(group, "one")
    desk.produce(make.draft(ordering_key="k"))
    messages = desk.receive(group, 1, lease=12 * 3600)
    away_from_the_sweep(stage)
    warm = warmed(desk)
    settle(desk, group, messages)
    woken(desk, warm)
    assert len(desk.subscribers.calls) == at_once
    desk.pass_time(_SHORTER_THAN_A_SWEEP_S)
    assert len(desk.subscribers.calls) == 1


@pytest.mark.parametrize("mode", ["queue", "serial"])
def test_a_settlement_wakes_nobody_and_reads_nothing_more_where_all_pull(stage: Stage, mode: str) -> None:
    desk = PushDesk.at(stage)
    group = desk.group(mode=mode)
    control = Counted(desk.deps.adapters.control)
    desk.deps = Deps(replace(desk.deps.adapters, control=cast(Control, control)))
    desk.produce(make.draft())
    assert desk.nack(group, desk.receive(group)) == [None]
    assert desk.ack(group, desk.receive(group)) == [None]
    assert control.calls["consumers"] == 0
    assert not desk.inbox.asked


@pytest.mark.parametrize("mode", ["queue", "serial", "broadcast"])
def test_a_run_wakes_nobody_for_what_it_settles_itself(stage: Stage, mode: str) -> None:
    desk = PushDesk.at(stage, shards=1)
    desk.subscriber(desk.group(mode=mode), "one", behaviour=fails(1))
    desk.produce(make.draft())

    def runs(event: dict[str, Any]) -> None:
        desk.inbox.asked.clear()
        deliver(event, Context(), desk.deps)

    woken_by(desk, 0, runs)
    assert len(desk.subscribers.calls) == 1
    assert "deliver" not in [function for function, _ in desk.inbox.asked]


def test_i10_whoever_registers_while_the_consumers_are_being_read_is_called(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread of the process, which routes new rows, read the list before and caches it afterwards."""
    desk = PushDesk.at(stage, shards=1)
    group = desk.group()
    catalog, read = desk.deps.catalog, desk.deps.catalog.control.consumers
    newcomers: list[Consumer] = []

    def read_slowly(*of: Any) -> list[Consumer]:
        consumers = read(*of)
        if not newcomers:
            newcomers.append(make.consumer(group))  # the next reading is the registration's
            newcomers[:] = [desk.subscriber(group, "one")]
        return consumers

    monkeypatch.setattr(catalog.control, "consumers", read_slowly)
    assert catalog.consumers(desk.topic, group) == []
    desk.deps.waker.wake_for(desk.topic, group, *newcomers)
    desk.produce(make.draft())
    desk.pass_time(_SHORTER_THAN_A_SWEEP_S)
    assert len(desk.subscribers.calls) == 1
    assert [consumer.name for consumer in catalog.consumers(desk.topic, group)] == ["one"]


@pytest.mark.parametrize(("shards", "reading"), [(1, "of_owner"), (4, "get")])
def test_i10_a_seek_beside_a_slow_reading_of_the_cursor_is_not_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, shards: int, reading: str
) -> None:
    """A run of this process reads the cursor while another thread seeks, and would keep it as it was before."""
    desk = PushDesk.at(stage, shards=shards)
    group = desk.group()
    desk.subscriber(group, "one")
    desk.produce(make.draft(shard=0))
    desk.push()
    stage.clock.advance(2_000)  # what is cached of the cursor is too old now
    dispatcher, cursors, seeks = desk.deps.dispatcher, desk.deps.states.cursors, ["earliest"]
    task, read = DispatchTask(desk.topic.name, group.name), getattr(cursors, reading)

    def read_slowly(of: object, *more: object, **settings: Any) -> Any:
        answer = read(of, *more, **settings)
        if seeks and of in (desk.cursor_key(group), group.uid):
            desk.seek(group, seeks.pop())
            dispatcher.deliver(task, lambda: 60.0, News(changed=True))
        return answer

    monkeypatch.setattr(cursors, reading, read_slowly)
    dispatcher.deliver(task, lambda: 60.0)
    assert not seeks
    assert len(desk.subscribers.calls) == 2
