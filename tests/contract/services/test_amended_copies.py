"""After an edit no consumer gets the old copy, even if a process has read it before."""

from __future__ import annotations

import pytest

from chalicelib.domain.errors import Conflict, Unavailable
from chalicelib.domain.limits import MAX_AMENDED_CURSORS
from chalicelib.domain.times import SECOND_MS
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.services.consume.settle import Nack
from tests.support import factories as make
from tests.support.amending import (
    NEW,
    before_amending,
    before_writing,
    bodies,
    cancel,
    edit,
    having_read,
    message_of,
)
from tests.support.desk import Desk
from tests.support.stages import Stage


def test_a_process_that_had_read_ahead_delivers_the_new_body(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    results = desk.produce(*make.drafts(4))
    other = having_read(desk, group)
    edit(desk, results[2])
    cancel(desk, results[3])
    assert bodies(other.receive(group)) == [b'{"n":1}', NEW]


def test_an_edit_that_lands_in_the_middle_of_a_claim_wins_and_the_claim_is_made_anew(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    results = desk.produce(*make.drafts(2))
    other = having_read(desk, group)
    before_writing(other, lambda: edit(desk, results[1]))
    assert bodies(other.receive(group)) == [NEW]


def test_an_edit_that_a_claim_overtakes_is_refused(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    (result,) = desk.produce(make.draft("old"))
    messages: list[ClaimedMessage] = []
    before_amending(desk, lambda: messages.extend(desk.receive(group)))
    with pytest.raises(Conflict, match="ALREADY_CLAIMED"):
        edit(desk, result)
    assert bodies(messages) == [b'"old"']
    assert message_of(desk, result).draft.body == b'"old"'


def test_what_failed_is_retried_from_the_lane_as_it_was_edited(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    results = desk.produce(*make.drafts(2))
    other = having_read(desk, group)
    edit(desk, results[1])
    messages = desk.receive(group)
    assert desk.nack(group, messages, Nack(delay_ms=5_000)) == [None]
    stage.clock.advance(6 * SECOND_MS)
    (again,) = other.receive(group)
    assert (again.attempt, again.message.draft.body, again.message.id) == (2, NEW, results[1].id)
    assert other.nack(group, [again], Nack(delay_ms=5_000)) == [None]
    stage.clock.advance(6 * SECOND_MS)
    assert bodies(other.receive(group)) == [NEW]


def test_what_is_buried_is_the_edited_message(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    results = desk.produce(*make.drafts(2))
    other = having_read(desk, group)
    edit(desk, results[1])
    messages = desk.receive(group)
    assert other.nack(group, messages, Nack(dead_letter=True)) == [None]
    (letter,) = other.deps.letter_lookup.find(desk.topic, group, results[1].id)
    assert letter.message.draft.body == NEW
    assert other.deps.dead_letters.redrive(desk.topic, group, [letter]) == 1
    stage.clock.advance(SECOND_MS)
    assert bodies(other.receive(group)) == [NEW]


def test_a_group_that_comes_up_during_an_edit_is_told_before_it_is_answered(stage: Stage) -> None:
    desk = Desk.at(stage)
    results = desk.produce(*make.drafts(2))
    other = having_read(desk, desk.group("first"))
    before_amending(desk, lambda: desk.group("second"))
    edit(desk, results[1])
    second = desk.group("second")
    assert desk.cursor(second).amended == ((1, 2),)
    assert bodies(other.receive(second)) == [b'{"n":0}', NEW]


def test_nobody_can_tell_where_a_group_comes_up_and_claims_during_an_edit(stage: Stage) -> None:
    desk = Desk.at(stage)
    (result,) = desk.produce(make.draft("old"))
    before_amending(desk, lambda: desk.receive(desk.group("second")))
    with pytest.raises(Unavailable):
        edit(desk, result)
    with pytest.raises(Conflict, match="ALREADY_CLAIMED"):
        edit(desk, result)


def test_more_readers_than_a_transaction_can_tell_forbid_a_change(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group(mode="broadcast")
    (result,) = desk.produce(make.draft("old"))
    control = desk.stage.adapters.control
    for n in range(MAX_AMENDED_CURSORS):
        control.put_consumer(desk.topic, group, make.consumer(group, f"c{n:03d}"), None)
    edit(desk, result)
    control.put_consumer(desk.topic, group, make.consumer(group, "one-more"), None)
    with pytest.raises(Conflict, match="TOO_MANY_READERS"):
        edit(desk, result, b'"newer"')
