"""Deliveries by hand over HTTP: settle one, change one that waits for a retry, purge a group or a topic."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.background import Background
from tests.support.dead_letters import letters
from tests.support.http import Client, Group, Reply, ShiftingClock


def settle(group: Group, message: Any, outcome: str, **fields: Any) -> Reply:
    path = f"{group.topic.path}/messages/{message['id']}/settle"
    return group.api.post(path, {"group": group.name, "outcome": outcome, **fields})


def edit(group: Group, message: Any, query: str = "", **fields: Any) -> Reply:
    path = f"{group.topic.path}/messages/{message['id']}?group={group.name}{query}"
    return group.api.call("PATCH", path, fields)


def purge(group: Group, **fields: Any) -> Reply:
    return group.api.post(f"{group.path}/purge", {"confirm": group.name, **fields})


def states(group: Group) -> dict[str, int]:
    """The states of the group that are not zero; their sum is what the topic has accepted."""
    counts = group.topic.counts(group.name)
    assert sum(counts["states"].values()) == group.topic.accepted
    return {name: number for name, number in counts["states"].items() if number}


def events(group: Group, message: Any, name: str) -> list[Any]:
    path = f"{group.topic.path}/messages/{message['id']}/trace"
    return [event for event in group.api.get(path).expect(200)["events"] if event["event"] == name]


def adds_up(group: Group, message: Any) -> bool:
    fate = group.api.get(f"{group.topic.path}/messages/{message['id']}/fate").expect(200)
    return bool(fate["adds_up"])


@pytest.mark.parametrize("mode", ["queue", "serial"])
@pytest.mark.parametrize(("outcome", "status"), [("success", "SUCCESS"), ("dead", "DEAD")])
@pytest.mark.parametrize("place", ["new", "ahead", "running", "given back", "timer", "lapsed"])
def test_a_delivery_is_settled_wherever_it_is(
    api: Client, clock: ShiftingClock, mode: str, outcome: str, status: str, place: str
) -> None:
    topic = api.topic(shards=1, mode=mode)
    group = topic.group(lease_seconds=30)
    before = [topic.produce(n, ordering_key="other") for n in range(3)] if place == "ahead" else []
    message = topic.produce("it", ordering_key="k")
    receipt = None
    if place not in ("new", "ahead"):
        [held] = group.receive()
        receipt = held["receipt"]
        if place in ("given back", "timer"):
            group.nack(held, delay_seconds=0 if place == "given back" else 60, reason="no")
        if place == "lapsed":
            clock.advance(31)
    answer = settle(group, message, outcome, reason="by me").expect(200)
    assert (answer["status"], answer["last_error"]) == (status, "by me")
    assert settle(group, message, outcome).expect(200)["status"] == status  # safe to repeat
    settle(group, message, "dead" if outcome == "success" else "success").refused(409, "DELIVERY_OVER")
    if receipt:
        assert group.ack(receipt) == ["RECEIPT_STALE"]
    assert [each["reason"] for each in letters(group)] == (["REJECTED"] if outcome == "dead" else [])
    [event] = events(group, message, "settled")
    assert (event["outcome"], event["detail"], bool(event["by"]["id"])) == (status, "by me", True)
    clock.advance(120)
    assert (
        group.bodies(most=1 if before and mode == "serial" else 10)
        == ([0] if mode == "serial" else [0, 1, 2])[: len(before)]
    )
    assert adds_up(group, message)
    assert states(group)[status] == 1


def test_a_retry_is_changed_for_one_group_alone(
    api: Client, clock: ShiftingClock, background: Background
) -> None:
    topic = api.topic(shards=1)
    one, two = topic.group("one"), topic.group("two")
    message = topic.produce("bad", headers={"h": "1"})
    for group in (one, two):
        group.nack(*group.receive(), delay_seconds=3600)
    edit(one, message, body="good", headers={"h": "2"}, attempts_left=1).expect(200)
    delivery = one.status_of(message["id"])
    assert (delivery["status"], delivery["attempts"], delivery["retries_left"]) == ("RETRYING", 1, 1)
    edit(one, message, next_attempt_at="2020-01-01T00:00:00Z").expect(200)
    for event in events(one, message, "edited"):
        assert (event["group"], bool(event["by"]["id"])) == ("one", True)
    background.move()
    [held] = one.receive()
    assert (held["body"], held["headers"], held["attempt"]) == ("good", {"h": "2"}, 2)
    edit(one, message, body="too late").refused(409, "NOT_RETRYING")
    one.nack(held, delay_seconds=60)  # its last attempt
    [letter] = letters(one)
    assert (letter["body"], letter["reason"]) == ("good", "ATTEMPTS_EXHAUSTED")
    clock.advance(3601)
    background.move()
    assert [(m["body"], m["headers"]) for m in two.receive()] == [("bad", {"h": "1"})]
    assert states(one) == {"DEAD": 1}


def test_what_waits_in_order_gets_another_time_only(api: Client, clock: ShiftingClock) -> None:
    topic = api.topic(mode="serial", shards=1)
    group = topic.group()
    message = topic.produce("first", ordering_key="k")
    topic.produce("second", ordering_key="k")
    group.nack(*group.receive(), delay_seconds=3600)
    edit(group, message, body="other").refused(422, "KEEPS_ITS_PLACE")
    edit(group, message, next_attempt_at="2020-01-01T00:00:00Z").expect(200)
    [held] = group.receive()
    assert (held["body"], held["attempt"]) == ("first", 2)


def test_fields_for_all_and_for_one_group_do_not_mix(api: Client) -> None:
    topic = api.topic()
    group = topic.group()
    message = topic.produce(1)
    path = f"{topic.path}/messages/{message['id']}"
    for query, fields in (
        ("", {"attempts_left": 2}),
        ("?group=g", {"retry": {}}),
        ("?consumer=c", {"body": 1}),
    ):
        api.call("PATCH", f"{path}{query}", fields).refused(400, "VALIDATION")
    edit(group, message, body=2).refused(409, "NOT_RETRYING")
    edit(group, message, "&consumer=c", body=2).refused(422, "WRONG_MODE")


def test_a_broadcasts_consumer_is_named(api: Client) -> None:
    topic = api.topic(mode="broadcast", shards=1)
    group = topic.group()
    for name in ("one", "two"):
        group.register(name)
    message = topic.produce("it")
    settle(group, message, "dead").refused(422, "CONSUMER_REQUIRED")
    settle(group, message, "success", consumer="one").expect(200)
    assert group.bodies(consumer="one") == []
    assert group.bodies(consumer="two") == ["it"]
    topic.produce("more")
    assert purge(group, consumer="two").expect(200) == {"purged": 2}
    assert group.bodies(consumer="two") == []
    assert group.bodies(consumer="one") == ["more"]
    assert purge(group).expect(200) == {"purged": 1}


@pytest.mark.parametrize("mode", ["queue", "serial"])
def test_a_purge_drops_what_is_owed_and_counts_it_as_skipped(
    api: Client, clock: ShiftingClock, background: Background, mode: str
) -> None:
    topic = api.topic(shards=1, mode=mode)
    group = topic.group()
    messages = [topic.produce(n, ordering_key=f"k{n}") for n in range(8)]
    held = group.receive(6)
    assert len(held) == 6
    group.ack(held[0])
    group.nack(held[1], dead_letter=True)
    group.nack(*held[2:4], delay_seconds=60, reason="no")
    clock.advance(61)
    background.move()  # in a queue they are in the retry lane now
    [again] = group.receive(1)
    group.nack(again, delay_seconds=60)
    purge(group, confirm="other").refused(400, "CONFIRM_MISSING")
    assert purge(group).expect(200) == {"purged": 6}
    assert purge(group).expect(200) == {"purged": 0}
    assert states(group) == {"SUCCESS": 1, "DEAD": 1, "skipped": 6}
    counts = topic.counts()
    assert (counts["backlog"], counts["in_flight"], counts["retrying"], counts["dead"]) == (0, 0, 0, 1)
    assert group.ack(*held[4:]) == ["RECEIPT_STALE"] * 2
    for message in messages[2:]:
        fate = api.get(f"{topic.path}/messages/{message['id']}/fate").expect(200)
        assert (fate["skipped"], fate["adds_up"]) == ([group.name], True)
    clock.advance(120)
    background.move()
    assert group.receive() == []
    topic.produce("new")
    assert group.bodies() == ["new"]


@pytest.mark.parametrize("place", ["timer", "lane"])
def test_a_purge_drops_more_retries_than_one_write_can(
    api: Client, clock: ShiftingClock, background: Background, place: str
) -> None:
    topic = api.topic(shards=1)
    group = topic.group()
    topic.batch([{"body": n} for n in range(100)])
    group.nack(*group.receive(100), delay_seconds=60)
    if place == "lane":
        clock.advance(61)
        background.move()
        group.ack(*group.receive(1))
    count = 99 if place == "lane" else 100
    assert purge(group).expect(200) == {"purged": count}
    assert states(group) == {"skipped": count} | ({"SUCCESS": 1} if place == "lane" else {})
    clock.advance(120)
    background.move()
    assert group.receive() == []


def test_a_topic_is_purged_for_all_groups_and_of_what_is_delayed(
    api: Client, clock: ShiftingClock, background: Background
) -> None:
    topic = api.topic(shards=2)
    groups = [topic.group(name) for name in ("one", "two")]
    for n in range(3):
        topic.produce(n)
    delayed = [topic.produce(n, delay_seconds=60) for n in range(50)]
    api.post(f"{topic.path}/purge", {"confirm": "one"}).refused(400, "CONFIRM_MISSING")
    assert api.post(f"{topic.path}/purge", {"confirm": topic.name}).expect(200) == {"purged": 2 * 3 + 50}
    assert api.get(f"{topic.path}/messages/{delayed[0]['id']}").expect(200)["status"] == "CANCELLED"
    clock.advance(61)
    background.move()
    assert [group.receive() for group in groups] == [[], []]
    audit = api.get(f"/v1/audit?topic={topic.name}").expect(200)["items"]
    assert any(entry["path"].endswith("/purge") and entry["result"] == "OK" for entry in audit)
