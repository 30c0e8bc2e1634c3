"""A group's destination gets one message for each message that ends so; events tell of states that need a person."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.domain.attention import Attention, Kind
from chalicelib.domain.ladder import Retry
from chalicelib.domain.limits import BLOB_THRESHOLD_BYTES
from chalicelib.domain.message import Draft, Message
from chalicelib.domain.notice import ABOUT_HEADER, MESSAGE_DEAD, TYPES, Events
from chalicelib.domain.settings import Destination
from chalicelib.domain.status import Status
from chalicelib.domain.times import DAY_MS, HOUR_MS, SECOND_MS
from chalicelib.domain.topic import Group
from chalicelib.services.consume.settle import Nack
from tests.support import factories as make
from tests.support.dead_letters import redrive_first
from tests.support.desk import GIVE_BACK, Desk
from tests.support.stages import Stage

REJECT = Nack(dead_letter=True, reason="no such account")
KEYED = Draft(b'{"n":1}', keys=("order-1",), tag="paid", ordering_key="account-3")


def other(desk: Desk, **settings: Any) -> Desk:
    """Another topic."""
    return Desk(desk.stage, desk.deps, desk.deps.admin.put_topic(make.uid("told-"), settings)[0])


def to(target: Desk, *, include_body: bool = False) -> Destination:
    return Destination(target.topic.name, target.topic.uid, include_body)


def told(target: Desk) -> list[Message]:
    """What lies in a topic, once two movers have run."""
    for _ in range(3):
        for deps in (target.deps, target.stage.process()):
            deps.mover.run_once()
    shards = range(target.topic.shards)
    found = [row.message(n, o) for n in shards for row in target.rows(n) for o in range(row.first, row.end)]
    return [message for message in found if message]


def bodies(target: Desk) -> list[dict[str, Any]]:
    return [json.loads(message.draft.body) for message in told(target)]


def kinds_of(topic: str, stage: Stage) -> list[str]:
    return [state.kind for state in stage.adapters.marks.attention(None, 100) if state.topic == topic]


def acked(desk: Desk, group: Group, message: Message) -> None:
    desk.ack(group, desk.receive(group))


def acked_from_the_lane(desk: Desk, group: Group, message: Message) -> None:
    desk.nack(group, desk.receive(group), Nack(delay_ms=SECOND_MS))
    desk.stage.clock.advance(SECOND_MS)
    desk.ack(group, desk.receive(group))


def rejected(desk: Desk, group: Group, message: Message) -> None:
    desk.nack(group, desk.receive(group), REJECT)


def tried_in_vain(desk: Desk, group: Group, message: Message) -> None:
    for _ in range(2):
        desk.nack(group, desk.receive(group), GIVE_BACK)


def lapsed(desk: Desk, group: Group, message: Message) -> None:
    for _ in range(3):
        desk.receive(group)
        desk.stage.clock.advance(30 * SECOND_MS)


def found_by_the_schedule(desk: Desk, group: Group, message: Message) -> None:
    desk.stage.clock.advance(8 * DAY_MS)
    desk.deps.expirer.run_once()


def succeeded_by_hand(desk: Desk, group: Group, message: Message) -> None:
    for _ in range(2):
        desk.deps.deliveries.settle(desk.topic, group, message, Status.SUCCESS)


def buried_by_hand_while_it_waits(desk: Desk, group: Group, message: Message) -> None:
    desk.nack(group, desk.receive(group), Nack(delay_ms=HOUR_MS))
    for _ in range(2):
        desk.deps.deliveries.settle(desk.topic, group, message, Status.DEAD, "not wanted")


ENDS: dict[Callable[[Desk, Group, Message], None], tuple[str, str | None, int]] = {
    acked: ("SUCCESS", None, 1),
    acked_from_the_lane: ("SUCCESS", None, 2),
    rejected: ("DEAD", "REJECTED", 1),
    tried_in_vain: ("DEAD", "ATTEMPTS_EXHAUSTED", 2),
    lapsed: ("DEAD", "ATTEMPTS_EXHAUSTED", 2),
    found_by_the_schedule: ("DEAD", "EXPIRED", 0),
    succeeded_by_hand: ("SUCCESS", None, 0),
    buried_by_hand_while_it_waits: ("DEAD", "REJECTED", 1),
}


@pytest.mark.parametrize("end", ENDS)
def test_each_way_to_end_is_told_once(stage: Stage, end: Callable[[Desk, Group, Message], None]) -> None:
    desk = Desk.at(stage, retry=Retry(2, (1,)))
    dead, success, events = (other(desk, shards=4) for _ in range(3))
    desk.deps.catalog.set_events(Events(events.topic.name, events.topic.uid, (MESSAGE_DEAD,)))
    group = desk.group(on_dead=to(dead, include_body=True), on_success=to(success))
    [result] = desk.produce(KEYED)
    end(desk, group, desk.deps.lookup.message(desk.topic, result.id))
    outcome, reason, attempts = ENDS[end]
    whole = {"body": {"n": 1}} if outcome == "DEAD" else {}
    [message] = told(dead if outcome == "DEAD" else success)
    body = json.loads(message.draft.body)
    assert body == {
        "topic": desk.topic.name,
        "group": group.name,
        "message_id": result.id,
        "keys": ["order-1"],
        "tag": "paid",
        "outcome": outcome,
        "reason": reason,
        "attempts": attempts,
        "last_error": body["last_error"],
        "answer": None,
        "ended_at": body["ended_at"],
        **whole,
    }
    assert message.draft.ordering_key == "account-3"
    assert told(success if outcome == "DEAD" else dead) == []
    of_events = [(m.draft.headers["ce-type"], json.loads(m.draft.body)) for m in told(events)]
    body.pop("body", None)
    assert of_events == ([(MESSAGE_DEAD, body)] if outcome == "DEAD" else [])


@pytest.mark.parametrize("mode", ["queue", "serial", "broadcast"])
def test_many_that_end_at_once_are_told_in_few_rows_to_all_shards(stage: Stage, mode: str) -> None:
    desk = Desk.at(stage, mode=mode)
    target = other(desk, shards=4)
    group = desk.group(on_success=to(target))
    consumers = [desk.consumer(group, name) for name in ("one", "two")] if mode == "broadcast" else [None]
    desk.produce(*(make.draft(n, ordering_key=f"key {n}") for n in range(40)))
    for consumer in consumers:
        desk.ack(group, desk.receive(group, 40, consumer))
    timers = [t for f in stage.adapters.timers.fragments() for t in stage.adapters.timers.behind(f, "0", 99)]
    assert [len(timer.drafts) for timer in timers] == [40]  # of the last: a receive moves what is due before
    assert len({body["message_id"] for body in bodies(target)}) == 40
    assert len(told(target)) == 40 * len(consumers)
    assert len({message.shard for message in told(target)}) == 4


def test_bodies_take_as_many_rows_as_they_need(stage: Stage) -> None:
    desk = Desk.at(stage, max_body_bytes=1 << 20)
    target = other(desk, max_body_bytes=1 << 20)
    group = desk.group(on_dead=to(target, include_body=True))
    large = Draft(b'"%s"' % (b"x" * BLOB_THRESHOLD_BYTES))
    rough = Draft(b"\xff" * BLOB_THRESHOLD_BYTES, is_json=False, content_type="image/png")
    desk.produce(large, rough, *(Draft(b'"%d%s"' % (n, b"y" * 150_000)) for n in range(5)))
    while some := desk.receive(group):
        desk.nack(group, some, REJECT)
    found = bodies(target)
    assert len(found) == 7
    assert sorted(len(body.get("body", "")) for body in found) == [0, 0, *[150_001] * 5]
    assert sum("body_base64" in body for body in found) == 1


def test_what_the_destination_refuses_is_dropped_and_needs_a_person(stage: Stage) -> None:
    desk = Desk.at(stage)
    target = other(desk, max_body_bytes=400)
    group = desk.group(on_dead=to(target, include_body=True))
    desk.produce(Draft(b'"%s"' % (b"x" * 400)), KEYED)
    desk.nack(group, desk.receive(group), REJECT)
    assert [body["keys"] for body in bodies(target)] == [["order-1"]]
    assert kinds_of(desk.topic.name, stage) == [Kind.REFUSED]
    stage.clock.advance(DAY_MS + 1)
    desk.deps.watch.run_once()
    assert kinds_of(desk.topic.name, stage) == []


def test_a_destination_that_was_made_again_gets_nothing(stage: Stage) -> None:
    desk = Desk.at(stage)
    target = other(desk)
    group = desk.group(on_dead=to(target))
    desk.deps.admin.delete_topic(target.topic)
    again, _ = desk.deps.admin.put_topic(target.topic.name, {})
    desk.produce(KEYED)
    desk.nack(group, desk.receive(group), REJECT)
    assert told(Desk(stage, desk.deps, again)) == []
    assert kinds_of(desk.topic.name, stage) == [Kind.DESTINATION_GONE]


@pytest.mark.parametrize("way", ["at once", "lane", "redrive", "replay"])
def test_a_destination_s_message_starts_no_destination(stage: Stage, way: str) -> None:
    desk = Desk.at(stage, retry=Retry(2, (1,)))
    target = other(desk, shards=1, retry=Retry(2, (1,)))
    group = desk.group(on_dead=to(target))
    back = target.group(on_dead=to(desk), on_success=to(desk))
    desk.produce(KEYED)
    desk.nack(group, desk.receive(group), REJECT)
    [message] = told(target)
    if way == "lane":
        target.nack(back, target.receive(back), Nack(delay_ms=SECOND_MS))
        stage.clock.advance(SECOND_MS)
    elif way == "redrive":
        target.nack(back, target.receive(back), REJECT)
        redrive_first(desk.deps, target.topic, back, 9)
    elif way == "replay":
        target.ack(back, target.receive(back))
        copy = Draft(message.draft.body, headers=message.draft.headers)
        target.produce(copy)
    if way == "at once":
        target.ack(back, target.receive(back))
    else:
        target.nack(back, target.receive(back), REJECT)
    assert len(told(desk)) == 1


def test_what_is_purged_or_filtered_out_is_not_told(stage: Stage) -> None:
    desk = Desk.at(stage)
    target = other(desk)
    group = desk.group(on_dead=to(target), on_success=to(target), tags=("wanted",))
    desk.produce(KEYED, make.draft(tag="wanted"))
    assert desk.receive(group)
    desk.deps.purger.purge(desk.topic, group, [""])
    stage.clock.advance(8 * DAY_MS)
    desk.deps.expirer.run_once()
    assert told(target) == []


def test_events_tell_each_state_once_when_it_begins_and_when_it_ends(stage: Stage) -> None:
    desk = Desk.at(stage)
    events = other(desk)
    name = desk.topic.name
    states = [
        Attention(kind, stage.clock.now_ms(), topic, "billing", "one", stage.clock.now_ms())
        for topic in (name, events.topic.name)
        for kind in (Kind.DISABLED, Kind.CIRCUIT_OPEN, Kind.NO_CONSUMERS)
    ]
    desk.deps.catalog.set_events(Events(events.topic.name, events.topic.uid, TYPES))
    for old, new in ([], states), ([], states), (states, []), (states, []), ([], states[:1]):
        desk.deps.note_changes(old, new)
        stage.clock.advance(SECOND_MS)
    found = sorted((m.draft.headers["ce-type"], m.draft.headers["ce-subject"]) for m in told(events))
    disabled, circuit = "headrace.consumer.disabled", "headrace.consumer.circuit_"
    subject = f"{name}/billing/one"
    assert found == sorted(
        [
            (disabled, subject),
            (disabled, subject),
            (f"{circuit}opened", subject),
            (f"{circuit}closed", subject),
        ]
    )
    assert all(m.draft.headers[ABOUT_HEADER] == "/" for m in told(events))
    desk.deps.catalog.set_events(None)
    desk.deps.note_changes([], states)
    assert len(told(events)) == 4


def test_a_deleted_topic_of_the_events_needs_a_person(stage: Stage) -> None:
    desk = Desk.at(stage)
    events = other(desk)
    desk.deps.catalog.set_events(Events(events.topic.name, events.topic.uid, TYPES))
    desk.deps.admin.delete_topic(events.topic)
    group = desk.group()
    desk.produce(KEYED)
    desk.nack(group, desk.receive(group), REJECT)
    assert told(events) == []
    assert kinds_of("", stage) == [Kind.DESTINATION_GONE]
