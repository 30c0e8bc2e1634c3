"""Unclaimed messages in the log are edited and cancelled."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from chalicelib.domain.cursor import Cursor
from chalicelib.domain.errors import Conflict, NotFound, Refused
from chalicelib.domain.limits import FRAGMENTS
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.topic import Group, cursor_key
from chalicelib.services.consume.settle import Nack
from tests.support import factories as make
from tests.support.amending import NEW, bodies, cancel, edit, message_of
from tests.support.desk import Desk
from tests.support.stages import Stage


def test_an_edited_message_is_delivered_as_it_was_edited_and_only_it(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    results = desk.produce(*make.drafts(5, headers={"h": "1"}))
    message = edit(desk, results[2], headers={"h": "2"}, max_attempts=7)
    assert (message.id, message.draft.body, message.draft.headers) == (results[2].id, NEW, {"h": "2"})
    messages = desk.receive(group)
    assert bodies(messages) == [b'{"n":0}', b'{"n":1}', NEW, b'{"n":3}', b'{"n":4}']
    assert [d.message.draft.headers["h"] for d in messages] == ["1", "1", "2", "1", "1"]
    assert [d.receipt.last_attempt for d in messages] == [16, 16, 7, 16, 16]
    assert [d.message.id for d in messages] == [p.id for p in results]


def test_what_is_cancelled_is_passed_over_and_can_be_seen(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    results = desk.produce(*make.drafts(3))
    cancel(desk, results[1])
    cancel(desk, results[1])
    message = message_of(desk, results[1])
    assert (message.draft.cancelled, message.draft.body) == (True, b'{"n":1}')
    assert desk.deps.statuses.deliveries(desk.topic, message)[group.name].status == "CANCELLED"
    assert desk.drain(group) == [0, 2]
    cancel(desk, results[1])
    assert desk.deps.statuses.deliveries(desk.topic, message)[group.name].status == "CANCELLED"
    assert desk.cursor(group).next == 3
    assert [e.event for e in desk.trace(message.id)] == ["accepted", "cancelled"]


def test_what_was_cancelled_cannot_be_edited(stage: Stage) -> None:
    desk = Desk.at(stage)
    (result,) = desk.produce(make.draft("x"))
    cancel(desk, result)
    with pytest.raises(Conflict, match="MESSAGE_CANCELLED"):
        edit(desk, result)


def claim_and_settle(desk: Desk, group: Group, how: str) -> None:
    deliveries = desk.receive(group)
    if how == "acked":
        desk.ack(group, deliveries)
    elif how != "running":
        desk.nack(group, deliveries, Nack(delay_ms=9_000, dead_letter=how == "buried"))


@pytest.mark.parametrize("how", ["running", "acked", "failed", "buried"])
def test_what_a_group_has_claimed_is_refused_with_its_name(stage: Stage, how: str) -> None:
    desk = Desk.at(stage)
    group = desk.group("billing")
    desk.group("shipping")
    (result,) = desk.produce(make.draft("old"))
    claim_and_settle(desk, group, how)
    for change in (edit, cancel):
        with pytest.raises(Conflict, match=r"ALREADY_CLAIMED: .*'billing'"):
            change(desk, result)
    assert message_of(desk, result).draft.body == b'"old"'
    assert desk.rows()[0].edition == 0


@pytest.mark.parametrize("how", ["acked", "failed", "buried"])
def test_after_a_seek_back_only_what_is_left_of_an_attempt_forbids_a_change(stage: Stage, how: str) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    (result,) = desk.produce(make.draft("old"))
    claim_and_settle(desk, group, how)
    desk.seek(group, "earliest")
    if how == "acked":
        edit(desk, result)
        assert bodies(desk.receive(group)) == [NEW]
        return
    with pytest.raises(Conflict, match="ALREADY_CLAIMED"):
        edit(desk, result)


def test_a_group_that_is_not_owed_the_message_forbids_nothing(stage: Stage) -> None:
    desk = Desk.at(stage)
    (result,) = desk.produce(make.draft("old"))
    late_group = desk.group("late", "latest")
    edit(desk, result)
    desk.produce(make.draft("next"))
    assert bodies(desk.receive(late_group)) == [b'"next"']


def test_a_message_that_waits_for_no_time_has_none_to_change(stage: Stage) -> None:
    desk = Desk.at(stage)
    (result,) = desk.produce(make.draft("x"))
    with pytest.raises(Refused, match="NOT_DELAYED"):
        desk.deps.amender.amend(desk.topic, message_of(desk, result), {"due_ms": 1})


def test_what_has_expired_meanwhile_is_not_found(stage: Stage) -> None:
    desk = Desk.at(stage)
    (result,) = desk.produce(make.draft("x"))
    message = message_of(desk, result)
    stage.clock.advance(9 * 86_400 * SECOND_MS)
    stage.drop_expired()
    with pytest.raises(NotFound):
        desk.deps.amender.amend(desk.topic, message, {"body": NEW})


def test_a_message_that_was_delayed_can_be_changed_in_the_log_too(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    (result,) = desk.produce(make.draft("old", due_ms=stage.clock.now_ms() + 5_000))
    stage.clock.advance(5_000)
    desk.deps.mover.tick(range(FRAGMENTS))
    edit(desk, result)
    (claimed_message,) = desk.receive(group)
    assert (claimed_message.message.id, claimed_message.message.draft.body) == (result.id, NEW)


def test_the_store_writes_all_of_an_amendment_or_nothing(stage: Stage) -> None:
    """store.Log.amend, by itself."""
    log, cursors = stage.adapters.log, stage.adapters.cursors
    topic = make.topic()
    shard: ShardKey = topic.shard_key(0)
    segment = make.segment(0, 3)
    log.put(shard, segment, make.packed(segment))
    pack = log.pack(make.drafts(3, tag="t"), whole=True)
    keys = [cursor_key(topic, make.group(topic, uid=make.uid("g")), 0) for _ in range(3)]
    at_two = Cursor(floor=2, next=2, begin=2)
    cursors.create(keys[0], at_two)

    def amends(offset: int, cursor_of: Mapping[int, Cursor | None]) -> bool:
        (row,) = log.read(shard, 0, 1, consistent=True)
        return log.amend(shard, row, pack, offset, {keys[n]: cursor for n, cursor in cursor_of.items()})

    assert not amends(2, {0: None, 1: None}), "a cursor that is there"
    assert not amends(2, {0: at_two, 1: Cursor()}), "one that is not"
    assert log.read(shard, 0, 1)[0].drafts == segment.drafts
    assert amends(2, {0: at_two, 1: None})
    assert [cursors.get(key, consistent=True) for key in keys] == [
        Cursor(floor=2, next=2, begin=2, epoch=1, amended=((2, 3),)),
        Cursor(epoch=1, amended=((2, 3),)),
        None,
    ]
    (row,) = log.read(shard, 0, 1, consistent=True)
    assert (row.edition, [draft.tag for draft in row.drafts]) == (1, ["t"] * 3)
    assert not amends(2, {0: at_two}), "other notes"
    assert not log.amend(shard, segment, pack, 2, {keys[2]: None}), "another edition"
    assert cursors.get(keys[2], consistent=True) is None
    cursor_with_note = Cursor(floor=2, next=2, begin=2, epoch=1, amended=((2, 3),))
    assert amends(0, {0: cursor_with_note}), "not owed"
    assert not amends(1, {0: cursor_with_note})
