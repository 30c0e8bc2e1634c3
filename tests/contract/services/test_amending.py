"""Unclaimed messages in the log are edited and cancelled, also where copies of them are."""

from __future__ import annotations

import random

import pytest

from chalicelib.domain.errors import Conflict, NotFound, TooLarge, Unavailable
from chalicelib.domain.limits import (
    BLOB_THRESHOLD_BYTES,
    MAX_AMENDED_BYTES,
    MAX_AMENDED_CURSORS,
)
from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.topic import Group
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.bodies import with_body
from tests.support import factories as make
from tests.support.amending import (
    NEW,
    _attempt,
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


def test_what_has_expired_meanwhile_is_not_found(stage: Stage) -> None:
    desk = Desk.at(stage)
    (result,) = desk.produce(make.draft("x"))
    message = message_of(desk, result)
    stage.clock.advance(9 * 86_400 * SECOND_MS)
    stage.drop_expired()
    with pytest.raises(NotFound):
        desk.deps.amender.amend(desk.topic, message, {"body": NEW})


def _wide(seed: int, chars: int) -> str:
    """Text that does not compress well."""
    chance = random.Random(seed)
    return "".join(chr(chance.randrange(0x4E00, 0x9FFF)) for _ in range(chars))


def test_a_large_body_goes_to_the_blob_store_and_so_does_one_for_which_the_row_has_no_room(
    stage: Stage,
) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    results = desk.produce(*(make.draft(_wide(n, 6_000)) for n in range(20)))
    assert len(desk.rows()) == 1
    new_bodies: list[bytes] = []
    for n in range(20):
        size = BLOB_THRESHOLD_BYTES + 1 if n == 0 else 30_000
        new_bodies.append(make.draft(_wide(100 + n, size // 3)).body)
        edit(desk, results[n], new_bodies[-1])
    (row,) = desk.rows()
    assert {bool(draft.blob) for draft in row.drafts} == {True, False}
    messages = desk.receive(group, 20)
    blobs = stage.adapters.blobs
    assert [with_body(blobs, d.message).draft.body for d in messages] == new_bodies


def test_a_row_that_would_become_too_large_is_refused_and_stays_as_it_is(stage: Stage) -> None:
    desk = Desk.at(stage)
    results = desk.produce(*(make.draft("x", headers={"h": _wide(n, 3_000)}) for n in range(40)))
    answer, edits = "ok", 0
    while answer == "ok":
        before = desk.rows()
        answer = _attempt(edit, desk, results[edits], headers={"h": _wide(100 + edits, 8_000)})
        edits += 1
    assert (answer, desk.rows()) == ("SEGMENT_FULL", before)
    with pytest.raises(TooLarge, match="BODY_TOO_LARGE"):
        edit(desk, results[0], b"x" * (desk.topic.max_body_bytes + 1))
    assert MAX_AMENDED_BYTES < 400 * 1024


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


def test_what_failed_is_retried_buried_and_redriven_as_it_was_edited(stage: Stage) -> None:
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
    assert other.nack(group, [again], Nack(dead_letter=True)) == [None]
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
