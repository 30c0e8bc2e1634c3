"""A cursor that cannot be read stops its shard only; a seek or the sweeper puts it right."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import cast

import pytest

from chalicelib.domain.cursor_size import has_room_for_returns
from chalicelib.domain.cursor_transitions import rebuilt_lane
from chalicelib.domain.errors import Unavailable, Unreadable
from chalicelib.domain.ladder import Retry
from chalicelib.domain.limits import FRAGMENTS
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.spans import Span
from chalicelib.domain.timer import Timer, TimerKind, retry_id
from chalicelib.domain.times import DAY_MS
from chalicelib.domain.topic import Group, cursor_key
from chalicelib.services.consume.claimant import Claimant
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.wake import NO_NEWS, DispatchTask, News, task_of, workers_of
from chalicelib.store.log import Log
from chalicelib.store.records import Records
from chalicelib.wiring import Deps
from tests.contract.services.damaged.scenes import anew, stored
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.damage import NEWER, Change, change_cursor, having, without
from tests.support.desk import GIVE_BACK, Desk, attempts, offsets
from tests.support.push import EXACT, PushDesk, fails
from tests.support.stages import Stage
from tests.support.troubled import Troubled


@pytest.mark.parametrize("damage", [NEWER, without("x"), without("l"), having("f", {"S": "?"})], ids=range(4))
def test_a_cursor_that_cannot_be_read_stops_its_shard_only(stage: Stage, damage: Change) -> None:
    desk = Desk.at(stage, shards=2)
    group = desk.group()
    desk.produce(*(make.draft(n, shard=n % 2) for n in range(2)))
    desk.drain(group)
    desk.produce(*(make.draft(n, shard=n % 2) for n in range(4)))
    change_cursor(stage, cursor_key(desk.topic, group, 0), damage)
    reader = anew(desk)
    places: list[tuple[int, int]] = []
    with contextlib.suppress(Unavailable):
        while deliveries := reader.receive(group, 10):
            places += [(d.message.shard, d.message.offset) for d in deliveries]
            reader.ack(group, deliveries)
    assert places == [(1, 1), (1, 2)], "nothing begins again"
    with pytest.raises(Unavailable, match="cannot be read"):
        stage.adapters.cursors.get(cursor_key(desk.topic, group, 0))
    reader.deps.sweeper.run_once(lambda: True)


def test_however_many_cursors_cannot_be_read_the_other_shards_are_received_from(stage: Stage) -> None:
    desk = Desk.at(stage, shards=4)
    group = desk.group()
    desk.produce(*(make.draft(n, shard=n % 4) for n in range(4)))
    desk.drain(group)
    desk.produce(*(make.draft(n, shard=3) for n in range(8)))
    for shard in range(3):
        change_cursor(stage, cursor_key(desk.topic, group, shard), without("x"))
    offsets_received = [offset for _ in range(8) for offset in offsets(anew(desk).receive(group, 1))]
    assert offsets_received == list(range(1, 9)), "wherever a receive begins"


@pytest.mark.parametrize("damage", [NEWER, without("x")], ids=["newer", "damaged"])
def test_a_receive_waits_for_the_other_shards_beside_a_cursor_that_cannot_be_read(
    stage: Stage, damage: Change
) -> None:
    desk = Desk.at(stage, shards=2)
    group = desk.group()
    desk.produce(make.draft(shard=0))
    desk.drain(group)
    change_cursor(stage, cursor_key(desk.topic, group, 0), damage)
    desk.produce(make.draft(shard=1))
    reader = anew(desk)
    assert attempts(reader.receive(group, lease=10)) == {0: 1}
    start_ms = stage.clock.now_ms()
    receiver = reader.deps.receiver
    assert attempts(receiver.receive(desk.topic, group, None, 10, 20, 60)) == {0: 2}
    assert 10_000 <= stage.clock.now_ms() - start_ms <= 11_000, "when the lease of the message has ended"
    start_ms = stage.clock.now_ms()
    with pytest.raises(Unreadable):
        receiver.receive(desk.topic, group, None, 10, 5, 60)
    assert stage.clock.now_ms() - start_ms == 5_000


@pytest.mark.parametrize("damaged", [0, 1, 2, None], ids=["0", "1", "2", "lane"])
@pytest.mark.parametrize("max_in_flight", [1, 64], ids=["one run", "a run for each shard"])
@pytest.mark.parametrize("news", [NO_NEWS, News(changed=True)], ids=["", "changed"])
def test_a_cursor_that_cannot_be_read_stops_no_push_from_the_other_shards(
    stage: Stage, damaged: int | None, max_in_flight: int, news: News
) -> None:
    desk = PushDesk.at(stage, shards=3)
    group = desk.group(max_in_flight=max_in_flight)
    desk.subscriber(group, "one", behaviour=fails(1))
    desk.produce(*(make.draft(shard=n) for n in range(3)))
    desk.push()
    desk.pass_time(60)
    before = len(desk.subscribers.calls)
    assert before == 6, "each failed once, so the lane has a cursor, too"
    change_cursor(stage, cursor_key(desk.topic, group, damaged), without("x"))
    desk.restart()
    desk.subscribers.behaviours.clear()
    desk.produce(*(make.draft(shard=n) for n in range(3)))
    for worker in range(workers_of(desk.topic, group)):
        with contextlib.suppress(Unavailable):
            task = DispatchTask(desk.topic.name, group.name, worker)
            desk.deps.dispatcher.deliver(task, lambda: 60.0, news)
    assert len(desk.subscribers.calls) - before == (3 if damaged is None else 2)


def test_what_a_run_leaves_waiting_beside_a_damaged_cursor_is_called_for_in_time(stage: Stage) -> None:
    desk = PushDesk.at(stage, shards=2, mode="serial", retry=EXACT)
    group = desk.group(max_in_flight=1)
    desk.subscriber(group, "one")
    desk.produce(make.draft(shard=0))
    desk.push()
    change_cursor(stage, cursor_key(desk.topic, group, 0), without("x"))
    desk.restart()
    desk.subscribers.behaviours["one"] = fails(1)
    desk.produce(make.draft(shard=1))
    (task,) = desk.deps.waker.tasks_of(desk.topic, group)
    assert isinstance(task, DispatchTask)
    with pytest.raises(Unreadable):
        desk.deps.dispatcher.deliver(task, lambda: 60.0)
    stage.clock.advance(10_000)
    desk.inbox.asked.clear()
    desk.deps.mover.tick(range(FRAGMENTS))
    assert task in [task_of(event) for function, event in desk.inbox.asked if function == "deliver"]
    with pytest.raises(Unreadable):
        desk.deps.dispatcher.deliver(task, lambda: 60.0)
    assert [call.attempts[0][1] for call in desk.subscribers.calls] == [1, 1, 2]


@pytest.mark.parametrize(
    "damage",
    [without("x"), without("e"), having("e", {"S": "?"}), having("l", {"M": {"t": {"S": "?"}}})],
    ids=range(4),
)
def test_a_seek_puts_a_damaged_cursor_right_and_nobody_goes_on_as_before(
    stage: Stage, damage: Change
) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(6))
    assert desk.ack(group, desk.receive(group, 2)) == [None, None]
    messages = desk.receive(group, 2)
    behind = anew(desk)
    behind.deps.states.last(cursor_key(desk.topic, group, 0))
    change_cursor(stage, cursor_key(desk.topic, group, 0), damage)
    reader = anew(desk)
    with pytest.raises(Unavailable, match="A seek of the group mends it"):
        reader.receive(group)
    assert reader.seek(group, 2).next == 2
    assert [event for event, _ in reader.deps.counters.events()] == ["cursor rebuilt"]
    assert desk.ack(group, messages) == ["RECEIPT_STALE"] * 2
    again = behind.receive(group)
    assert offsets(again) == [2, 3, 4, 5]
    assert attempts(again) == dict.fromkeys(range(2, 6), 1)
    assert reader.receive(group) == []
    assert reader.ack(group, again) == [None] * 4
    assert reader.drain(group) == []


@pytest.mark.parametrize("days", [2, 9], ids=["rows there", "rows gone"])
def test_i1_a_seek_mends_a_damaged_cursor_on_a_quiet_log_and_producers_wait_for_it(
    stage: Stage, days: int
) -> None:
    """Where the log's end is not sure, it is asked of the cursors: also of this one."""
    desk = Desk.at(stage)
    group, other = desk.group(), desk.group("other")
    desk.produce(*make.drafts(3))
    assert desk.drain(group) == desk.drain(other) == [0, 1, 2]
    stage.clock.advance(days * DAY_MS)
    stage.drop_expired()
    change_cursor(stage, cursor_key(desk.topic, group, 0), without("x"))
    (refusal,) = anew(desk).deps.producer.produce(desk.topic, [make.draft()])
    assert isinstance(refusal, Unavailable)
    assert anew(desk).seek(group, "latest").next == 3
    assert [place.offset for place in anew(desk).produce(make.draft())] == [3]
    assert offsets(desk.receive(other)) == offsets(anew(desk).receive(group)) == [3]


@pytest.mark.parametrize("days", [2, 9], ids=["rows there", "rows gone"])
def test_i1_of_two_damaged_cursors_on_a_quiet_log_each_is_mended_and_producers_wait_for_both(
    stage: Stage, days: int
) -> None:
    desk = Desk.at(stage)
    groups = [desk.group("one"), desk.group("other")]
    healthy = desk.group("healthy")
    desk.produce(*make.drafts(3))
    assert [desk.drain(group) for group in (*groups, healthy)] == [[0, 1, 2]] * 3
    stage.clock.advance(days * DAY_MS)
    stage.drop_expired()
    for group in groups:
        change_cursor(stage, cursor_key(desk.topic, group, 0), without("x"))
    late = anew(desk).group("late", begin="latest")
    for group in groups:
        (refusal,) = anew(desk).deps.producer.produce(desk.topic, [make.draft()])
        assert isinstance(refusal, Unavailable)
        assert anew(desk).seek(group, "latest").next == 3
    assert [place.offset for place in anew(desk).produce(make.draft())] == [3]
    assert [offsets(anew(desk).receive(group)) for group in (*groups, healthy, late)] == [[3]] * 4


@pytest.mark.parametrize("damaged", [(0,), (1,), (0, 2)], ids=str)
def test_beside_damaged_cursors_on_quiet_shards_the_others_take_what_may_go_to_any(
    stage: Stage, damaged: tuple[int, ...]
) -> None:
    desk = Desk.at(stage, shards=3)
    group = desk.group()
    desk.produce(*(make.draft(shard=n) for n in range(3)))
    desk.drain(group)
    stage.clock.advance(2 * DAY_MS)
    for shard in damaged:
        change_cursor(stage, cursor_key(desk.topic, group, shard), without("x"))
    for _ in range(6):
        (place,) = anew(desk).produce(make.draft())
        assert place.shard not in damaged
    later = anew(desk)
    later.produce(make.draft(due_ms=stage.clock.now_ms() + 1_000))
    stage.clock.advance(1_000)
    assert later.deps.mover.tick(range(FRAGMENTS)).moved == 1
    (refusal,) = later.deps.producer.produce(desk.topic, [make.draft(shard=damaged[0])])
    assert isinstance(refusal, Unavailable)


def test_a_message_that_was_delayed_is_found_on_a_quiet_log_beside_a_damaged_cursor(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    (result,) = desk.produce(make.draft(due_ms=stage.clock.now_ms() + 1_000))
    stage.clock.advance(1_000)
    assert len(desk.receive(group)) == 1
    stage.clock.advance(2 * DAY_MS)
    change_cursor(stage, cursor_key(desk.topic, group, 0), without("x"))
    assert anew(desk).deps.delayed.find(desk.topic, result.id)


def test_a_retry_waits_for_the_cursor_of_its_quiet_lane_to_be_made_anew(stage: Stage) -> None:
    desk = Desk.at(stage, retry=Retry(5, (1,), jitter=0.0))
    group = desk.group()
    desk.produce(*make.drafts(2))
    desk.nack(group, desk.receive(group), Nack(delay_ms=1_000))
    stage.clock.advance(1_000)
    desk.ack(group, desk.receive(group))
    stage.clock.advance(2 * DAY_MS)
    change_cursor(stage, cursor_key(desk.topic, group, None), without("x"))
    reader = anew(desk)
    reader.produce(make.draft())
    messages = reader.claim(Claimant(topic=desk.topic, group=group, lease_seconds=30), 0, 1)
    assert messages
    reader.nack(group, messages, Nack(delay_ms=1_000))
    stage.clock.advance(1_000)
    assert reader.deps.mover.tick(range(FRAGMENTS)).moved == 0
    anew(desk).deps.positions.mend_lane(desk.topic, group)
    stage.clock.advance(60_000)
    assert anew(desk).deps.mover.tick(range(FRAGMENTS)).moved == 1
    assert attempts(anew(desk).receive(group)) == {2: 2}


def test_a_rebuilt_cursor_gives_what_was_edited_before_as_it_is_now(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    results = desk.produce(*make.drafts(2))
    behind = anew(desk)
    reader, shard = behind.deps.reader, desk.topic.shard_key(0)
    assert len(reader.slots_from(shard, 0, 0, 2, reader.trust(group))) == 2, "it has a copy"
    message = desk.deps.lookup.message(desk.topic, results[1].id)
    desk.deps.amender.amend(desk.topic, message, {"body": b'"edited"'})
    change_cursor(stage, cursor_key(desk.topic, group, 0), lambda item: without("a")(without("x")(item)))
    anew(desk).seek(group, "earliest")
    assert [d.message.draft.body for d in behind.receive(group)][1] == b'"edited"'


def test_a_damaged_cursor_of_a_retry_lane_is_made_anew_of_what_is_retrying(stage: Stage) -> None:
    desk = Desk.at(stage, retry=Retry(5, (1,), jitter=0.0))
    group = desk.group()
    desk.produce(*make.drafts(6))
    desk.nack(group, desk.receive(group), Nack(delay_ms=1_000))
    stage.clock.advance(1_000)
    again = desk.receive(group, 100)
    assert desk.ack(group, again[:1]) == [None], "this one is done"
    assert desk.nack(group, again[1:3], Nack(delay_ms=60_000)) == [None] * 2, "these wait for their timers"
    lane = cursor_key(desk.topic, group, None)
    change_cursor(stage, lane, without("x"))
    reader = anew(desk)
    with pytest.raises(Unavailable, match="A seek of the group mends it"):
        reader.receive(group)
    reader.deps.positions.mend_lane(desk.topic, group)
    assert [event for event, _ in reader.deps.counters.events()] == ["cursor rebuilt"]
    reader.deps.positions.mend_lane(desk.topic, group)
    messages = reader.receive(group, 100)
    _, *put_off = (d.message.offset for d in again[:3])
    assert attempts(messages) == dict.fromkeys((d.message.offset for d in again[3:]), 2)
    assert desk.ack(group, again[3:]) == ["RECEIPT_STALE"] * 3
    assert reader.ack(group, messages) == [None] * 3
    stage.clock.advance(60_000)
    assert attempts(reader.receive(group)) == dict.fromkeys(put_off, 3)


def test_what_comes_into_a_lane_while_it_is_made_anew_is_delivered_once(stage: Stage) -> None:
    desk = Desk.at(stage, retry=Retry(5, (1,), jitter=0.0))
    group = desk.group()
    desk.produce(*make.drafts(2))
    for delivery, delay_ms in zip(desk.receive(group), (1_000, 2_000), strict=True):
        desk.nack(group, [delivery], Nack(delay_ms=delay_ms))
    stage.clock.advance(1_000)
    lane = cursor_key(desk.topic, group, None)
    assert attempts(desk.receive(group, lease=1)) == {0: 2}
    change_cursor(stage, lane, without("x"))

    def comes(name: str, shard: ShardKey, *_: object) -> bool:
        if name == "read" and shard == lane.shard:
            stage.clock.advance(1_000)
            desk.deps.mover.tick(range(FRAGMENTS))
        return False

    log = cast(Log, Troubled(stage.adapters.log, comes))
    Deps(replace(stage.another(), log=log)).positions.mend_lane(desk.topic, group)
    again = anew(desk).receive(group, 100)
    assert sorted(offsets(again)) == [0, 1]
    assert desk.ack(group, again) == [None, None]
    assert desk.drain(group) == []


def given_back_in_damaged_lane(stage: Stage) -> tuple[Desk, Group]:
    """A message was given back in a retry lane, whose cursor was damaged then."""
    desk = Desk.at(stage, retry=Retry(5, (1,), jitter=0.0))
    group = desk.group()
    desk.produce(make.draft())
    assert desk.nack(group, desk.receive(group), Nack(delay_ms=1_000)) == [None]
    stage.clock.advance(1_000)
    assert desk.nack(group, desk.receive(group), GIVE_BACK) == [None]
    change_cursor(stage, cursor_key(desk.topic, group, None), without("x"))
    return desk, group


def test_what_was_given_back_in_a_lane_is_delivered_when_its_cursor_is_made_anew(stage: Stage) -> None:
    desk, group = given_back_in_damaged_lane(stage)
    anew(desk).deps.positions.mend_lane(desk.topic, group)
    again = anew(desk).receive(group, 100)
    assert attempts(again) == {0: 3}
    assert desk.ack(group, again) == [None]
    assert desk.drain(group) == []


@pytest.mark.parametrize("fires_meanwhile", [False, True])
def test_what_a_timer_brings_back_at_once_is_delivered_once_in_a_lane_made_anew(
    stage: Stage, fires_meanwhile: bool
) -> None:
    """Where a lane's cursor has no room, a message that is given back has a timer; its record is the same."""
    desk, group = given_back_in_damaged_lane(stage)
    lane = cursor_key(desk.topic, group, None)
    draft = stage.adapters.log.read(lane.shard, 0, 1, consistent=True)[0].drafts[0]
    assert draft.origin
    timer = Timer(
        due_ms=stage.clock.now_ms(),
        id=retry_id(group.uid, "", 0, 0, 2),
        kind=TimerKind.RETRY,
        shard=lane.shard,
        draft=replace(draft, origin=replace(draft.origin, attempts=2)),
        keep_days=desk.topic.retention_days,
    )
    stage.adapters.timers.store([timer])

    def fires(name: str, *_: object) -> bool:
        if name == "get" and fires_meanwhile:
            desk.deps.mover.tick(range(FRAGMENTS))
        return False

    records = cast(Records, Troubled(stage.adapters.records, fires))
    Deps(replace(stage.another(), records=records)).positions.mend_lane(desk.topic, group)
    again = anew(desk).receive(group, 100)
    assert [(each.message.offset, each.attempt) for each in again] == [(0, 3)]
    assert desk.ack(group, again) == [None]
    assert desk.drain(group) == []


def test_a_lane_with_more_entries_than_a_cursor_holds_goes_on_with_what_lies_behind() -> None:
    entries = [Span(offset * 1_000, attempt=1 + offset % 7) for offset in range(2_000)]
    cursor = rebuilt_lane(entries, 2_000_000, START_MS)
    assert has_room_for_returns(cursor)
    assert 0 < len(cursor.waiting) < 2_000
    assert cursor.next == entries[len(cursor.waiting)].start
    assert rebuilt_lane([], 7, START_MS).next == 7


def test_a_cursor_of_a_later_release_is_left_to_it_also_by_a_seek(stage: Stage) -> None:
    desk = stored(stage)
    group = desk.group()
    desk.drain(group)
    change_cursor(stage, cursor_key(desk.topic, group, 0), NEWER)
    with pytest.raises(Unavailable, match="later release"):
        anew(desk).seek(group, "earliest")
