"""What ends without success: exhausted attempts, rejections, expired messages; and what a redrive makes of it."""

from __future__ import annotations

from itertools import accumulate

import pytest

from chalicelib.console.pages.message import next_attempts_ms
from chalicelib.domain.ladder import NAMED, Retry
from chalicelib.domain.message import Draft
from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.topic import Group, cursor_key
from chalicelib.services.consume.claimant import Claimant
from chalicelib.services.consume.settle import Nack
from tests.support import factories as make
from tests.support.dead_letters import redrive_first
from tests.support.desk import Desk, attempts, offsets, records
from tests.support.push import PushDesk, fails
from tests.support.stages import Stage, embedded_stage

LEASE_ENDED = "The lease ended before the message was settled."


@pytest.mark.parametrize("by", ["lapse", "nack"])
def test_i1_exhausted_attempts_are_buried_with_a_record(stage: Stage, by: str) -> None:
    desk = Desk.at(stage, retry=Retry(2, "fixed-30"))
    group = desk.group()
    desk.produce(make.draft(), make.draft(max_attempts=1), make.draft(max_attempts=3))
    for attempt in (1, 2, 3, 4):
        messages = [message for _ in range(3) for message in desk.receive(group, lease=10)]
        assert attempts(messages) == {o: attempt for o, most in ((1, 1), (0, 2), (2, 3)) if attempt <= most}
        if by == "nack":
            desk.nack(group, messages)
        stage.clock.advance(10 * SECOND_MS)
    record_at = records(desk, group)
    error = LEASE_ENDED if by == "lapse" else None
    assert {o: (r.status, r.attempts, r.reason, r.last_error) for o, r in record_at.items()} == {
        o: ("DEAD", n, "ATTEMPTS_EXHAUSTED", error) for o, n in ((0, 2), (1, 1), (2, 3))
    }
    assert desk.deps.surveyor.exact_group(desk.topic, group).dead == 3
    assert desk.deps.surveyor.exact_group(desk.topic, group).backlog == 0


@pytest.mark.parametrize("mode", ["queue", "serial"])
def test_what_ends_its_worker_takes_no_neighbours_along(stage: Stage, mode: str) -> None:
    desk = Desk.at(stage, mode=mode, shards=2)
    group = desk.group()
    consumers = [desk.consumer(group, name) for name in ("one", "two")]
    desk.produce(*(make.draft(n, ordering_key=f"key {n}") for n in range(50)))
    crashes = 0
    for turn in range(300):
        messages = desk.receive(group, 50, consumers[turn % 2])
        if any(message.message.draft.body == b"25" for message in messages):
            crashes += 1
            assert crashes == 1 or len(messages) == 1
            stage.clock.advance(30 * SECOND_MS)
        else:
            desk.ack(group, messages)
    assert crashes == 16
    (dead,) = [letter for _, letter in stage.adapters.records.dead(desk.topic, group, None, 9)]
    assert (dead.message.draft.body, dead.last_error) == (b"25", LEASE_ENDED)
    assert desk.deps.surveyor.exact_group(desk.topic, group).backlog == 0


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
        status = desk.deps.statuses.of_topic(desk.topic).delivery(group, message)
        assert status
        assert (status.status, status.attempts, status.retries_left) == ("RETRYING", attempt, retries_left)
        stage.clock.advance(15 * SECOND_MS)
    (claimed_message,) = desk.receive(group)
    desk.nack(group, [claimed_message], Nack(delay_ms=10 * SECOND_MS))
    (letter,) = desk.deps.letter_lookup.letters(desk.topic, group, result.id)
    assert (letter.attempts, letter.reason) == (4, "ATTEMPTS_EXHAUSTED")


def short(stage: Stage, **settings: object) -> Draft:
    """A message that expires in a second."""
    return make.draft(expires_ms=stage.clock.now_ms() + SECOND_MS, **settings)


def bury(desk: Desk, group: Group) -> int:
    """Bury what has expired a second later; how much that was."""
    desk.stage.clock.advance(SECOND_MS)
    claimant = Claimant(topic=desk.topic, group=group, lease_seconds=30)
    return desk.deps.claimer.expire(claimant, 0, lambda: True)


@pytest.mark.parametrize("count", [1, 127, 128, 129, 130, 150, 199, 200])
def test_i1_what_is_kept_before_and_behind_what_is_buried_is_delivered_once(stage: Stage, count: int) -> None:
    """Past a bound it stays where it is: the claim that meets it buries it."""
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(count), short(stage), *make.drafts(5))
    assert bury(desk, group) == (count <= 128)
    assert desk.drain(group) == [*range(count), *range(count + 1, count + 6)]
    assert list(desk.deps.adapters.records.dead(desk.topic, group, None, 9)) != []


def test_i7_what_is_kept_keeps_its_ordering_key(stage: Stage) -> None:
    desk = Desk.at(stage, mode="serial")
    group = desk.group()
    desk.produce(*(make.draft(ordering_key=key) for key in "aab"), short(stage, ordering_key="c"))
    assert bury(desk, group) == 1
    messages = desk.receive(group)
    assert offsets(messages) == [0, 2]
    desk.ack(group, messages)
    assert offsets(desk.receive(group)) == [1]


NEVER = 1_000_000


@pytest.mark.parametrize(
    ("name", "mode"),
    [*((name, "queue") for name in sorted(NAMED)), ("fixed-30", "serial"), ("fixed-30", "broadcast")],
)
def test_i9_every_named_ladder_is_climbed_to_the_second_and_ends_in_a_dead_letter(
    name: str, mode: str
) -> None:
    climb(embedded_stage(), Retry(len(NAMED[name]) + 1, name, jitter=0), NAMED[name], mode)


def climb(stage: Stage, retry: Retry, waits: tuple[int, ...], mode: str) -> None:
    """A message that always fails is tried at these distances, and is dead then."""
    desk = PushDesk.at(stage)
    group = desk.group(mode=mode, retry=retry)
    desk.subscriber(group, "down", behaviour=fails(NEVER))
    began_ms = stage.clock.now_ms()
    (result,) = desk.produce(make.draft())
    desk.push()
    desk.pass_time(sum(waits) + 60)
    seconds = [(call.at_ms - began_ms) / SECOND_MS for call in desk.subscribers.calls]
    assert seconds == list(accumulate(waits, initial=0))
    assert desk.subscribers.numbers() == {result.id: list(range(1, retry.max_attempts + 1))}
    ((_, letter),) = desk.deps.adapters.records.dead(desk.topic, group, None, 10)
    assert (letter.message.id, letter.attempts) == (result.id, retry.max_attempts)
    assert (letter.reason, letter.last_error) == ("ATTEMPTS_EXHAUSTED", "HTTP 500")
    status = desk.deps.surveyor.exact_group(desk.topic, group)
    assert (status.backlog, status.retrying, status.dead) == (0, 0, 1)
    desk.pass_time(60)
    assert len(desk.subscribers.calls) == retry.max_attempts


@pytest.mark.parametrize("mode", ["queue", "serial"])
@pytest.mark.parametrize("is_redriven", [False, True])
def test_the_attempts_to_come_are_shown_at_the_times_at_which_they_are_made(
    mode: str, is_redriven: bool
) -> None:
    desk = PushDesk.at(embedded_stage(), mode=mode, retry=Retry(4, (10, 60, 300), jitter=0))
    group = desk.group()
    desk.subscriber(group, "down", behaviour=fails(9))
    (result,) = desk.produce(make.draft())
    desk.push()
    if is_redriven:
        desk.pass_time(600)
        assert redrive_first(desk.deps, desk.topic, group, 1) == 1
        desk.push()
    call_count = len(desk.subscribers.calls)
    message = desk.deps.lookup.message(desk.topic, result.id)
    status = desk.deps.statuses.of_topic(desk.topic).deliveries(message)[group.name]
    moments = next_attempts_ms(desk.topic, group, message, status)
    assert len(moments) == 3
    desk.pass_time(600)
    assert moments == [call.at_ms for call in desk.subscribers.calls[call_count:]]
