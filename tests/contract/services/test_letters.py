"""Dead letters: each rule of editing, redriving and deleting them, by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from chalicelib.domain.cursor import Disposition
from chalicelib.domain.errors import Conflict, NotFound, TooLarge
from chalicelib.domain.ladder import Retry
from chalicelib.domain.limits import BLOB_THRESHOLD_BYTES
from chalicelib.domain.message import DeadReason, Draft
from chalicelib.domain.status import Status
from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.topic import Group, cursor_key
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.services.consume.decision import SettleDecision
from chalicelib.services.consume.settle import Nack
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.dead_letters import ALL, BURY, Table, redrive_first
from tests.support.desk import Desk
from tests.support.push import PushDesk
from tests.support.stages import Stage, embedded_stage


def test_another_body_is_json_within_the_topics_bound_and_kept_where_it_has_room(stage: Stage) -> None:
    table = Table(stage, Draft(b"\xff", is_json=False, content_type="image/png", keys=("k",)))
    most = table.topic.max_body_bytes
    with pytest.raises(TooLarge):
        table.edit(text(most + 1))
    table.edit(text(most))
    draft = table.letter().message.draft
    assert (draft.body, draft.blob_bytes, draft.is_json, draft.content_type, draft.keys) == (
        *(b"", most, True, "application/json"),
        ("k",),
    )
    table.edit(text(BLOB_THRESHOLD_BYTES))
    draft = table.letter().message.draft
    assert (len(draft.body), draft.blob, draft.blob_bytes) == (BLOB_THRESHOLD_BYTES, None, 0)
    assert table.redrive() == 1
    (claimed_message,) = table.desk.receive(table.group)
    assert claimed_message.message.draft.body == text(BLOB_THRESHOLD_BYTES)


def text(size: int) -> bytes:
    return b'"%s"' % (b"x" * (size - 2))


def test_what_was_read_before_somebody_elses_change_is_changed_no_more(stage: Stage) -> None:
    table = Table(stage)
    before = table.letter()
    after = table.edit(b"2", table.edit(b"1"))
    attempts: list[Callable[[], object]] = [
        lambda: table.edit(b"3", before),
        lambda: table.dead_letters.discard(table.topic, table.group, before),
    ]
    for attempt in attempts:
        with pytest.raises(Conflict) as refusal:
            attempt()
        assert refusal.value.code == "DEAD_LETTER_CHANGED"
    assert table.letter().message.draft.body == b"2"
    assert table.redrive(before) == 0
    table.dead_letters.discard(table.topic, table.group, after)
    with pytest.raises(NotFound):
        table.letter()


@pytest.mark.parametrize("reason", ["EXPIRED", "ATTEMPTS_EXHAUSTED", "RATE_LIMITED", "REJECTED"])
def test_a_burial_and_its_reason_outlive_the_redrive(stage: Stage, reason: str) -> None:
    """Except for REJECTED no attempt ends with it: before the redrive only the record has it."""
    desk = Desk.at(stage, retry=Retry(1, (10,), jitter=0.0))
    group = desk.group()
    end_ms = START_MS + SECOND_MS
    is_expiring = reason == "EXPIRED"
    over_limit = DeadReason.RATE_LIMITED if reason == "RATE_LIMITED" else None
    draft = make.draft("x", expires_ms=end_ms if is_expiring else None, dead_reason=over_limit)
    results = desk.produce(make.draft("before"), draft, replace(draft, body=b"2"))
    desk.ack(group, desk.receive(group, 1, lease=600))
    if reason == "ATTEMPTS_EXHAUSTED":
        desk.receive(group, lease=1)
    elif reason == "REJECTED":
        desk.nack(group, desk.receive(group), BURY)
    stage.clock.advance(SECOND_MS)
    assert desk.receive(group) == []
    paths = [desk.trace(result.id) for result in results]
    buried_events = [event for path in paths[1:] for event in path if event.event == "buried"]
    detail = "no such account" if reason == "REJECTED" else reason
    assert [event.detail for event in buried_events] == [detail] * 2
    stage.clock.advance(SECOND_MS)
    assert redrive_first(desk.deps, desk.topic, group, 9, by="ann") == 2
    for path, result in zip(paths, results, strict=True):
        *before, after = desk.trace(result.id)
        if result is results[0]:
            assert [*before, after] == path
        else:
            assert (before, after.event, after.by) == (path, "redriven", "ann")


@pytest.mark.parametrize("how", ["redrive", "try now", "try a timer now", "give back from the lane"])
def test_whoever_found_nothing_a_moment_ago_gets_it_at_once(stage: Stage, how: str) -> None:
    """A process remembers for a moment that a lane was empty."""
    table = Table(stage)

    def receive() -> list[ClaimedMessage]:
        return table.deps.receiver.receive(table.topic, table.group, None, 9, 0, 30)

    if how in ("try a timer now", "give back from the lane"):
        table.redrive()
        (claimed_message,) = receive()
    if how == "try a timer now":
        table.desk.nack(table.group, [claimed_message], Nack(delay_ms=60 * SECOND_MS))
    assert receive() == []
    if how == "redrive":
        table.redrive()
    elif how == "give back from the lane":
        table.desk.nack(table.group, [claimed_message], Nack())
    else:
        table.dead_letters.retry_now(table.topic, table.group, table.ids[0])
    assert [each.message.id for each in receive()] == table.ids


@pytest.mark.parametrize("how", ["redrive", "try now"])
def test_its_subscribers_are_woken_once(stage: Stage, how: str) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    (result,) = desk.produce(make.draft("x"))
    (claimed_message,) = desk.deps.receiver.receive(desk.topic, group, None, 1, 0, 30)
    desk.nack(group, [claimed_message], BURY)
    desk.subscriber(group, "one")
    desk.push()
    desk.inbox.asked.clear()
    (letter,) = desk.deps.letter_lookup.find(desk.topic, group, result.id)
    if how == "redrive":
        assert desk.deps.dead_letters.redrive(desk.topic, group, [letter]) == 1
    else:
        desk.deps.dead_letters.retry_now(desk.topic, group, result.id)
    assert [event["group"] for function, event in desk.inbox.asked if function == "deliver"] == [group.name]


def test_what_died_for_a_broadcasts_consumer_stays_when_that_has_left(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group(mode="broadcast")
    leaver, stayer = desk.consumer(group, "leaver"), desk.consumer(group, "stayer")
    (result,) = desk.produce(make.draft("x"))
    for consumer in (leaver, stayer):
        desk.nack(group, desk.receive(group, 1, consumer), BURY)
    letters = desk.deps.letter_lookup.find(desk.topic, group, result.id)
    assert [each.key.consumer_uid for each in letters] == [leaver.uid, stayer.uid]
    desk.deps.registry.unregister(desk.topic, group, leaver)
    assert desk.deps.letter_lookup.find(desk.topic, group, result.id) == letters[::-1], "who left comes last"
    assert desk.deps.dead_letters.redrive(desk.topic, group, letters) == 1
    (claimed_message,) = desk.receive(group, 1, stayer)
    assert claimed_message.message.id == result.id
    assert desk.deps.letter_lookup.find(desk.topic, group, result.id) == letters[:1], "who left, has it"


def test_a_process_that_saw_a_message_before_it_failed_tries_it_now(stage: Stage) -> None:
    desk = Desk.at(stage, mode="serial")
    group = desk.group()
    (result,) = desk.produce(make.draft("x", ordering_key="k"))
    beside = Deps(stage.another())
    beside.states.last(cursor_key(desk.topic, group, 0))
    desk.nack(group, desk.receive(group), Nack(delay_ms=60 * SECOND_MS))
    beside.dead_letters.retry_now(desk.topic, group, result.id)
    (claimed_message,) = beside.receiver.receive(desk.topic, group, None, 1, 0, 30)
    assert claimed_message.message.id == result.id


def test_i7_letters_of_a_serial_group_come_again_one_after_the_other_of_each_key(stage: Stage) -> None:
    """In the order of the log, in whichever order they are named, while others that failed before them wait."""
    desk = Desk.at(stage, mode="serial", shards=2)
    group = desk.group()
    desk.produce(*(make.draft(n, ordering_key="key") for n in range(7)))
    desk.produce(*(make.draft(n, shard=shard) for n in range(2) for shard in (0, 1)))
    while messages := desk.receive(group, 100):
        desk.nack(group, messages, BURY)
    letters = desk.deps.letter_lookup.page(desk.topic, group, ALL, None, 100)[0]
    assert desk.deps.dead_letters.redrive(desk.topic, group, letters[::-1]) == 11
    consumers = [desk.consumer(group, name) for name in ("one", "two")]
    came: list[tuple[str | None, int, int]] = []
    for turn in range(60):
        messages = desk.receive(group, 100, consumers[turn % 2])
        again = desk.receive(group, 100, consumers[(turn + 1) % 2])
        assert again == [], "each unit's next message waits for the one before"
        came += [(m.message.draft.ordering_key, m.message.shard, body(m)) for m in messages]
        failed = [m for m in messages if body(m) == 1 and m.attempt == 2]
        desk.ack(group, [m for m in messages if m not in failed])
        desk.nack(group, failed, Nack(delay_ms=2 * SECOND_MS))
        stage.clock.advance(SECOND_MS)
    assert [n for key, _, n in came if key] == [0, 1, 1, 2, 3, 4, 5, 6]
    for shard in (0, 1):
        assert [n for key, at, n in came if not key and at == shard] == [0, 1, 1]


def body(claimed_message: ClaimedMessage) -> int:
    return int(claimed_message.message.draft.body)


@given(
    st.sampled_from(("queue", "serial")),
    st.lists(
        st.sampled_from(("take", "nack", "bury", "give back", "redrive", "wait", "wait long")), max_size=8
    ),
)
@settings(max_examples=60)
def test_what_is_shown_as_retrying_or_dead_comes_at_once_when_it_is_retried_now(
    mode: str, deeds: list[str]
) -> None:
    desk = Desk.at(embedded_stage(), mode=mode)
    group = desk.group()
    (result,) = desk.produce(make.draft("x"))
    for deed in deeds:
        _do(desk, group, deed)
    message = desk.deps.lookup.message(desk.topic, result.id)
    status = desk.deps.statuses.of_topic(desk.topic).deliveries(message)[group.name].status
    if status in (Status.RETRYING, Status.DEAD):
        desk.deps.dead_letters.retry_now(desk.topic, group, result.id)
        assert [each.message.id for each in desk.receive(group)] == [result.id]
    elif status is not Status.NEW:  # what was given back unsent is NEW, and its pause may end now
        with pytest.raises(Conflict, match="neither RETRYING nor DEAD"):
            desk.deps.dead_letters.retry_now(desk.topic, group, result.id)


def _do(desk: Desk, group: Group, deed: str) -> None:
    if deed.startswith("wait"):
        desk.stage.clock.advance((3_600 if deed == "wait long" else 20) * SECOND_MS)
    elif deed == "redrive":
        redrive_first(desk.deps, desk.topic, group, 1)
    elif messages := desk.receive(group, lease=30):
        later = SettleDecision(Disposition.RELEASED, desk.stage.clock.now_ms() + 60 * SECOND_MS)
        if deed == "give back":
            receipts = [each.receipt for each in messages]
            desk.deps.settler.settle(desk.topic, group, receipts, lambda *_: later)
        elif deed != "take":
            desk.nack(group, messages, BURY if deed == "bury" else Nack(delay_ms=60 * SECOND_MS))
