"""What ends without success: exhausted attempts, rejections, expired messages; and what a redrive makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from chalicelib.domain.ladder import Retry
from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.topic import cursor_key
from chalicelib.services.consume.settle import Nack
from chalicelib.services.inspect.letter_lookup import DeadLetterFilter
from chalicelib.store.control import Control
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import Desk, attempts, offsets, records
from tests.support.stages import Stage
from tests.support.troubled import Troubled


@pytest.mark.parametrize("by", ["lapse", "nack"])
def test_i1_exhausted_attempts_are_buried_with_a_record(stage: Stage, by: str) -> None:
    desk = Desk.at(stage, retry=Retry(2, "fixed-30"))
    group = desk.group()
    desk.produce(make.draft(), make.draft(max_attempts=1), make.draft(max_attempts=3))
    for attempt in (1, 2, 3, 4):
        messages = desk.receive(group, lease=10)
        assert attempts(messages) == {o: attempt for o, most in ((1, 1), (0, 2), (2, 3)) if attempt <= most}
        if by == "nack":
            desk.nack(group, messages)
        stage.clock.advance(10 * SECOND_MS)
    record_at = records(desk, group)
    assert {o: (r.status, r.attempts, r.reason) for o, r in record_at.items()} == {
        o: ("DEAD", n, "ATTEMPTS_EXHAUSTED") for o, n in ((0, 2), (1, 1), (2, 3))
    }
    assert desk.deps.surveyor.exact_group(desk.topic, group).dead == 3
    assert desk.deps.surveyor.exact_group(desk.topic, group).backlog == 0


def test_a_failure_of_the_last_attempt_is_buried_at_once(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(make.draft(max_attempts=1))
    desk.nack(group, desk.receive(group), Nack(reason="no route"))
    record = records(desk, group)[0]
    assert (record.status, record.attempts, record.reason) == ("DEAD", 1, "ATTEMPTS_EXHAUSTED")
    assert record.last_error == "no route"


def test_a_message_rejected_for_good_is_buried_at_once(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(2))
    desk.nack(group, desk.receive(group)[:1], Nack(dead_letter=True, reason="no such account"))
    record = records(desk, group)[0]
    assert (record.status, record.reason, record.last_error) == ("DEAD", "REJECTED", "no such account")
    letter = stage.adapters.records.dead_letter(cursor_key(desk.topic, group, 0), 0)
    assert letter
    assert letter.message.draft.body == b'{"n":0}'
    stage.clock.advance(3600 * SECOND_MS)
    assert offsets(desk.receive(group)) == [1]


def test_i1_expired_messages_are_buried_with_a_record_however_many(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    now_ms = stage.clock.now_ms()
    desk.produce(*make.drafts(200, expires_ms=now_ms + 5_000), make.draft("good"))
    stage.clock.advance(4_999)
    assert offsets(desk.receive(group, 1)) == [0]
    stage.clock.advance(1)
    assert offsets(desk.receive(group, 1)) == [200]
    assert desk.deps.surveyor.exact_group(desk.topic, group).dead == 199
    assert {r.reason for r in records(desk, group).values()} == {"EXPIRED"}


def test_i5_a_late_success_is_recorded_with_its_attempt(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(2))
    desk.nack(group, desk.receive(group, 1))
    assert desk.drain(group) == [0, 1]
    assert {o: (r.status, r.attempts) for o, r in records(desk, group).items()} == {0: ("SUCCESS", 2)}


def test_a_redriven_message_has_all_its_attempts_again_and_says_so(stage: Stage) -> None:
    desk = Desk.at(stage, retry=Retry(3, (10,), jitter=0.0))
    group = desk.group()
    (result,) = desk.produce(make.draft())
    desk.nack(group, desk.receive(group), Nack(dead_letter=True))
    (letter,) = desk.deps.letter_lookup.letters(desk.topic, group, result.id)
    desk.deps.dead_letters.redrive(desk.topic, group, [letter])
    message = desk.deps.lookup.message(desk.topic, result.id)
    stage.clock.advance(5 * SECOND_MS)
    for attempt, retries_left in ((2, 2), (3, 1)):
        (claimed_message,) = desk.receive(group)
        assert claimed_message.attempt == attempt
        desk.nack(group, [claimed_message], Nack(delay_ms=10 * SECOND_MS))
        status = desk.deps.statuses.delivery(desk.topic, group, message)
        assert status
        assert (status.status, status.attempts, status.retries_left) == ("RETRYING", attempt, retries_left)
        stage.clock.advance(15 * SECOND_MS)
    (claimed_message,) = desk.receive(group)
    desk.nack(group, [claimed_message], Nack(delay_ms=10 * SECOND_MS))
    (letter,) = desk.deps.letter_lookup.letters(desk.topic, group, result.id)
    assert (letter.attempts, letter.reason) == (4, "ATTEMPTS_EXHAUSTED")


def test_what_is_redriven_is_counted_though_nobody_can_be_woken_now(stage: Stage) -> None:
    """Whoever were told that it failed would try again, and be told that there is nothing to send."""
    desk = Desk.at(stage)
    group = desk.group()
    results = desk.produce(*make.drafts(3))
    desk.nack(group, desk.receive(group), Nack(dead_letter=True))
    throttled = Troubled(stage.adapters.control, lambda name, *_: name == "consumers")
    dead_letters = Deps(replace(stage.adapters, control=cast(Control, throttled))).dead_letters
    dead_letters.retry_now(desk.topic, group, results[0].id)
    assert dead_letters.redrive_matching(desk.topic, group, DeadLetterFilter(), 1)[0] == 1
    letters = desk.deps.letter_lookup.find(desk.topic, group, results[2].id)
    assert dead_letters.redrive(desk.topic, group, letters) == 1
    assert throttled.refused == 3
    stage.clock.advance(5 * SECOND_MS)
    assert desk.drain(group) == [0, 1, 2]
