"""An entry of a retry lane that cannot be read is tried where its message stands, or becomes a dead letter."""

from __future__ import annotations

import pytest

from chalicelib.domain.ladder import Retry
from chalicelib.domain.limits import FRAGMENTS
from chalicelib.domain.message import DeadReason
from chalicelib.domain.topic import Group, lane_of
from chalicelib.services.consume.settle import Nack
from chalicelib.services.inspect.filters import Filters
from tests.contract.services.damaged.scenes import DAMAGES, DEAD_LETTER, LONG, anew, letters
from tests.support import factories as make
from tests.support.damage import change_row, without
from tests.support.desk import Desk, attempts
from tests.support.stages import Stage


def in_lane(stage: Stage, *, is_edited: bool) -> tuple[Desk, Group]:
    """A desk whose two messages have failed once and are in the retry lane: as references or, edited, whole."""
    desk = Desk.at(stage, retry=Retry(5, (1,), jitter=0.0))
    group = desk.group()
    desk.produce(make.draft("first"), make.draft(LONG))
    desk.nack(group, desk.receive(group), DEAD_LETTER if is_edited else Nack(delay_ms=1_000))
    dead_letters = desk.deps.dead_letters
    if is_edited:
        edits = [dead_letters.edit(desk.topic, group, letter, b'"mended"') for letter in letters(desk, group)]
        assert dead_letters.redrive(desk.topic, group, edits) == 2
    stage.clock.advance(1_000)
    desk.deps.mover.tick(range(FRAGMENTS))
    return desk, group


@pytest.mark.parametrize("damage", DAMAGES)
def test_i15_a_damaged_entry_of_a_retry_lane_is_tried_where_its_message_stands(
    stage: Stage, damage: str
) -> None:
    desk, group = in_lane(stage, is_edited=False)
    change_row(stage, lane_of(desk.topic, group).shard_key(0), 0, DAMAGES[damage])
    reader = anew(desk)
    again = reader.receive(group)
    assert attempts(again) == {0: 2, 1: 2}
    assert {d.message.draft.body for d in again} == {b'"first"', f'"{LONG}"'.encode()}
    assert reader.ack(group, again) == [None, None]
    states = reader.deps.counts.group_status(desk.topic, group).account
    assert (states.success, states.retrying, states.dead) == (2, 0, 0)


@pytest.mark.parametrize("damage", ["not JSON", "no count"])
@pytest.mark.parametrize("is_edited", [False, True])
def test_i15_a_delivery_whose_entry_names_it_nowhere_becomes_a_dead_letter(
    stage: Stage, is_edited: bool, damage: str
) -> None:
    desk, group = in_lane(stage, is_edited=is_edited)
    desk.produce(make.draft("third"), make.draft("fourth"), make.draft("fifth"))
    delivery_at = {delivery.message.offset: delivery for delivery in desk.receive(group, 5)}
    third, fourth, fifth = (delivery_at[offset] for offset in (2, 3, 4))
    assert desk.nack(group, [third], Nack(delay_ms=3_600_000)) == [None], "this one waits for its timer"
    assert desk.nack(group, [fourth], Nack(delay_ms=1_000)) == [None]
    assert desk.ack(group, [fifth]) == [None]
    stage.clock.advance(31_000)
    desk.deps.mover.tick(range(FRAGMENTS))
    lane = lane_of(desk.topic, group).shard_key(0)
    change_row(stage, lane, 0, lambda item: without("l")(DAMAGES[damage](item)))
    reader = anew(desk)
    assert reader.drain(group) == [3], "whose entry can be read"
    dead_letters = letters(reader, group)
    assert [(letter.offset, letter.reason) for letter in dead_letters] == [
        (0, "UNDECODABLE"),
        (1, "UNDECODABLE"),
    ]
    assert reader.deps.counters.take()["Undecodable"] == 2
    states = reader.deps.counts.group_status(desk.topic, group).account
    assert (states.success, states.retrying, states.dead) == (2, 1, 2)
    for letter in dead_letters:
        message = reader.deps.lookup.message(desk.topic, letter.message.id)
        assert reader.deps.lookup.statuses.deliveries(desk.topic, message)[group.name].status == "DEAD"
        assert reader.deps.fates.of(desk.topic, message).owed[group.name].adds_up
    stage.clock.advance(3_600_000)
    assert reader.drain(group) == [2]


@pytest.mark.parametrize("damage", DAMAGES)
def test_i15_a_damaged_entry_that_held_the_content_is_a_dead_letter_of_its_message(
    stage: Stage, damage: str
) -> None:
    desk, group = in_lane(stage, is_edited=True)
    ids = [message.id for message in desk.deps.lookup.newest_first(desk.topic, Filters(), 9, None)[0]]
    change_row(stage, lane_of(desk.topic, group).shard_key(0), 0, DAMAGES[damage])
    reader = anew(desk)
    offsets = reader.drain(group)
    dead_letters = letters(reader, group)
    assert {*offsets} | {letter.offset for letter in dead_letters} == {0, 1}
    assert {letter.reason for letter in dead_letters} <= {DeadReason.UNDECODABLE}
    assert {letter.message.id for letter in dead_letters} <= {*ids}
    states = reader.deps.counts.group_status(desk.topic, group).account
    assert (states.success, states.retrying, states.dead) == (len(offsets), 0, len(dead_letters))
    for letter in dead_letters:
        message = reader.deps.lookup.message(desk.topic, letter.message.id)
        assert reader.deps.lookup.statuses.deliveries(desk.topic, message)[group.name].status == "DEAD"
        assert reader.deps.fates.of(desk.topic, message).owed[group.name].adds_up
