"""Messages in the log are edited and cancelled while nobody has claimed them."""

from __future__ import annotations

import pytest

from chalicelib.domain.errors import Conflict, NotFound, Refused
from chalicelib.domain.limits import FRAGMENTS
from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.topic import Group
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
