"""A message that cannot be read becomes a dead letter of each group; its neighbours are delivered."""

from __future__ import annotations

import pytest

from chalicelib.domain.errors import Conflict
from chalicelib.domain.message import DeadReason
from chalicelib.domain.record import DeadLetter, FailureFilter
from chalicelib.domain.topic import Group
from chalicelib.services.inspect.lookup import Filters
from tests.support import factories as make
from tests.support.damage import Change, change_row, having, without
from tests.support.desk import Desk
from tests.support.stages import Stage

DAMAGES: dict[str, Change] = {
    "not compressed": having("m", {"B": b"\x00\xff damaged"}),
    "not JSON": having("m", {"S": '[{"b":1},{"b":'}),
    "no list": having("m", {"S": '{"b":1}'}),
    "empty": having("m", {"S": ""}),
    "no messages": without("m"),
    "one message too few": having("m", {"S": '[{"b":1}]'}),
    "one without a body": having("m", {"S": '[{"b":1},{"p":2}]'}),
    "one with an expiry of words": having("m", {"S": '[{"b":1},{"b":2,"e":"never"}]'}),
}


@pytest.fixture
def stage(empty_stage: Stage) -> Stage:
    return empty_stage


def damaged(stage: Stage, damage: Change = DAMAGES["not JSON"], **about: object) -> Desk:
    """A topic with three rows of two messages each. The second row, with offsets 2 and 3, cannot be read."""
    desk = Desk.at(stage, **about)
    for number in range(3):
        desk.produce(make.draft(f"first {number}"), make.draft(f"second {number}"))
    change_row(stage, desk.topic.shard_key(0), 2, damage)
    return Desk(stage, stage.process(), desk.topic)


def letters(desk: Desk, group: Group) -> list[DeadLetter]:
    return desk.deps.letter_lookup.page(desk.topic, group, FailureFilter(), None, 100)[0]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("mode", ["queue", "serial"])
def test_the_messages_of_the_row_become_dead_letters_and_the_others_are_delivered(
    stage: Stage, mode: str, damage: str
) -> None:
    desk = damaged(stage, DAMAGES[damage], mode=mode)
    groups = [desk.group("all"), desk.group("some", tags=("paid",))]
    assert desk.drain(groups[0]) == [0, 1, 4, 5]
    assert desk.drain(groups[1]) == [], "a filter hides no unreadable message"
    for group in groups:
        assert [(x.offset, x.reason) for x in letters(desk, group)] == [
            (2, DeadReason.UNDECODABLE),
            (3, DeadReason.UNDECODABLE),
        ]
    assert desk.deps.counters.take()["Undecodable"] == 4
    places = [place["offset"] for event, place in desk.deps.counters.events() if event == "undecodable"]
    assert places == [2, 3, 2, 3]
    shown = desk.deps.lookup.newest_first(desk.topic, Filters(), 9, None)[0]
    assert [message.offset for message in shown] == [5, 4, 3, 2, 1, 0]


def test_a_dead_letter_is_redriven_once_it_has_a_body(stage: Stage) -> None:
    desk = damaged(stage)
    group = desk.group()
    desk.drain(group)
    letter = letters(desk, group)[0]
    dead_letters, topic = desk.deps.dead_letters, desk.topic
    with pytest.raises(Conflict, match="UNDECODABLE"):
        dead_letters.retry_now(topic, group, letter.message.id)
    assert dead_letters.redrive(topic, group, [letter]) == 0
    edited_letter = dead_letters.edit(topic, group, letter, b'"new"')
    assert dead_letters.redrive(topic, group, [edited_letter]) == 1
    stage.clock.advance(1_000)
    [delivery] = desk.receive(group)
    assert (delivery.message.offset, delivery.message.draft.body) == (2, b'"new"')
    assert desk.ack(group, [delivery]) == [None]


def test_an_unreadable_message_cannot_be_edited_in_the_log(stage: Stage) -> None:
    desk = damaged(stage)
    desk.group()
    message = desk.deps.lookup.newest_first(desk.topic, Filters(), 3, None)[0][2]
    with pytest.raises(Conflict, match="UNDECODABLE"):
        desk.deps.amender.amend(desk.topic, message, {"body": b"1"})
