"""Receive, ack, nack, extend over HTTP."""

from __future__ import annotations

import pytest

from tests.support.http import Client, ShiftingClock


def test_a_message_carries_all_that_the_contract_says(api: Client) -> None:
    topic = api.topic()
    group = topic.group()
    topic.produce("x")
    [message] = group.receive()
    assert message.keys() >= {
        "id", "body", "keys", "tag", "ordering_key", "headers", "attempt", "shard", "offset", "accepted_at", "receipt",
    }  # fmt: skip
    assert (message["keys"], message["tag"], message["ordering_key"], message["headers"]) == (
        [],
        None,
        None,
        {},
    )


def test_ten_messages_are_received_unless_asked_otherwise(api: Client) -> None:
    topic = api.topic(shards=1)
    group = topic.group()
    topic.batch([{"body": n} for n in range(30)])
    assert len(api.call("POST", f"{group.path}/receive").expect(200)["messages"]) == 10
    assert len(group.receive(1)) == 1
    assert len(group.receive(1000)) == 19


def test_a_receive_says_why_it_is_empty_and_repeats_its_answer_under_its_id(api: Client) -> None:
    topic = api.topic(shards=4)
    group = topic.group()
    path = f"{group.path}/receive"
    assert api.post(path).expect(200) == {"messages": [], "because": "empty"}
    topic.batch([{"body": n} for n in range(40)])
    asked = {"max": 3, "receive_id": "9f2c"}
    answers = [api.post(path, asked).expect(200) for _ in range(4)]
    assert answers == [answers[0]] * 4
    assert answers[0].keys() == {"messages"}
    for seconds, is_same in (("2", True), ("0", False)):
        headers = {"Headrace-Resend": seconds}
        answer = api.call("POST", path, asked, headers=headers).expect(200)
        assert (answer == answers[0]) is is_same, "who says that it is the first time is believed"
    api.call("POST", path, asked, headers={"Headrace-Resend": "soon"}).refused(400)


def test_a_receive_acknowledges_first_and_answers_each_receipt(api: Client) -> None:
    topic = api.topic(shards=1)
    group = topic.group(mode="serial")
    path = f"{group.path}/receive"
    sent = [topic.produce(n, ordering_key="k")["id"] for n in range(3)]
    answer = api.post(path, {"ack": [], "max": 1}).expect(200)
    assert answer["acked"] == []
    [first] = answer["messages"]
    answer = api.post(path, {"ack": [first["receipt"], "forged"]}).expect(200)
    assert [message["id"] for message in answer["messages"]] == sent[1:2]
    good, bad = answer["acked"]
    assert good == {"receipt": first["receipt"], "ok": True}
    assert bad["error"]["code"] == "RECEIPT_INVALID"
    answer = api.post(path, {"ack": [answer["messages"][0]["receipt"], first["receipt"]], "max": 0}).expect(
        200
    )
    assert [each.get("already", False) for each in answer["acked"]] == [False, True]
    assert answer["messages"] == []
    assert [group.status_of(id)["status"] for id in sent] == ["SUCCESS", "SUCCESS", "NEW"]
    asked = {"max": 1, "receive_id": "9f2c"}
    receipts = [each["receipt"] for each in api.post(path, asked).expect(200)["messages"]]
    answer = api.post(path, {**asked, "ack": receipts}).expect(200)
    assert ([each["ok"] for each in answer["acked"]], answer["messages"]) == ([True], []), (
        "what an earlier try received comes again, but not what is acknowledged"
    )
    api.post(path, {"max": 0, "ack": []}).refused(400)
    api.call("POST", f"{group.path}/pause").expect(200)
    assert group.receive() == []


def test_waiting_ends_when_the_time_is_up(api: Client, clock: ShiftingClock) -> None:
    group = api.topic().group()
    start = clock.now_ms()
    assert group.receive(wait_seconds=20) == []
    assert 20_000 <= clock.now_ms() - start < 25_000


def test_waiting_ends_early_when_a_message_comes(api: Client, clock: ShiftingClock) -> None:
    topic = api.topic()
    group = topic.group()
    clock.on_wait = lambda: topic.produce("just now")
    start = clock.now_ms()
    assert group.bodies(wait_seconds=20) == ["just now"]
    assert clock.now_ms() - start < 5_000


def test_a_lease_that_runs_out_raises_the_attempt_and_voids_the_receipt(
    api: Client, clock: ShiftingClock
) -> None:
    topic = api.topic()
    group = topic.group()
    message = topic.produce("x")
    [first] = group.receive(lease_seconds=5)
    clock.advance(4)
    assert group.receive() == []
    clock.advance(2)
    [second] = group.receive()
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert first["receipt"] != second["receipt"]
    assert group.ack(first) == ["RECEIPT_STALE"]
    assert group.nack(first) == ["RECEIPT_STALE"]
    assert group.settle("extend", [first], lease_seconds=60) == ["RECEIPT_STALE"]
    assert group.status_of(message["id"])["status"] == "RUNNING"
    assert group.ack(second) == ["ok"]
    assert group.status_of(message["id"]) == {
        "status": "SUCCESS", "attempts": 2, "next_attempt_at": None, "last_error": None, "retries_left": 0,
    }  # fmt: skip


def test_the_lease_is_the_calls_the_groups_or_the_topics(api: Client, clock: ShiftingClock) -> None:
    topic = api.topic(lease_seconds=100)
    plain, own = topic.group("plain"), topic.group("own", lease_seconds=50)
    topic.produce("x")
    plain.receive()
    own.receive()
    clock.advance(51)
    assert (plain.bodies(), own.bodies(lease_seconds=10)) == ([], ["x"])
    clock.advance(11)
    assert (plain.bodies(), own.bodies()) == ([], ["x"])
    clock.advance(40)
    assert plain.bodies() == ["x"]


def test_extending_gives_a_lease_more_time_from_now(api: Client, clock: ShiftingClock) -> None:
    topic = api.topic(shards=1)
    group = topic.group()
    topic.produce("a")
    topic.produce("b")
    messages = group.receive(lease_seconds=10)
    clock.advance(9)
    assert group.settle("extend", messages, lease_seconds=30) == ["ok", "ok"]
    clock.advance(25)
    assert group.receive() == []
    assert group.ack(messages[0]) == ["ok"]
    clock.advance(6)
    [again] = group.receive()
    assert (again["body"], again["attempt"]) == ("b", 2)


def test_settling_answers_in_the_order_of_the_receipts(api: Client) -> None:
    topic = api.topic(shards=3)
    group = topic.group()
    for n in range(9):
        topic.produce(n, shard=n % 3)
    messages = group.receive()
    group.ack(messages[4])
    receipts = [messages[8], "forged", messages[4], messages[0], "", *messages[1:3]]
    assert group.ack(*receipts) == [
        "ok",
        "RECEIPT_INVALID",
        "already",
        "ok",
        "RECEIPT_INVALID",
        "ok",
        "ok",
    ]


def test_a_refused_receipt_is_a_problem_in_its_place(api: Client) -> None:
    group = api.topic().group()
    answer = api.post(f"{group.path}/ack", {"receipts": ["x"]}).expect(200)
    [result] = answer["results"]
    assert result.keys() == {"receipt", "error"}
    assert (result["error"]["status"], result["error"]["code"]) == (400, "RECEIPT_INVALID")


@pytest.mark.parametrize("mode", ["queue", "serial", "broadcast"])
def test_what_nobody_began_with_is_given_back_and_has_all_its_attempts_yet(api: Client, mode: str) -> None:
    topic = api.topic(mode=mode, retry={"max_attempts": 1})
    group = topic.group()
    group.register("ann")
    message = topic.produce("x", ordering_key="k")
    for how in ({"delay_seconds": None}, {"delay_seconds": 0}):
        [received] = group.receive(consumer="ann")
        assert received["attempt"] == 1
        body = {"receipts": [received["receipt"]], "untried": True}
        for wrong in ({"dead_letter": True}, {"reason": "no paper"}):
            problem = api.post(f"{group.path}/nack", {**body, **wrong}).refused(400, "VALIDATION")
            assert [error["path"] for error in problem["errors"]] == ["untried"]
        assert group.nack(received, untried=True, **how) == ["ok"]
    path = api.get(f"{topic.path}/messages/{message['id']}/trace").expect(200)["events"]
    assert [each["event"] for each in path] == ["accepted"]
    [received] = group.receive(consumer="ann")
    assert group.nack(received, reason="no") == ["ok"]
    assert group.status_of(message["id"])["status"] == "DEAD"
    assert group.api.post(f"{group.path}/dead-letters/redrive", {}).expect(200)["redriven"] == 1
    [redriven] = group.receive(consumer="ann", wait_seconds=1)
    assert group.nack(redriven, untried=True) == ["ok"]
    [again] = group.receive(consumer="ann", wait_seconds=1)
    assert again["attempt"] == redriven["attempt"] == 2
    assert group.ack(again) == ["ok"]


def test_a_message_can_be_buried_at_once(api: Client) -> None:
    topic = api.topic()
    group = topic.group()
    message = topic.produce("x")
    messages = group.receive()
    body = {"receipts": [messages[0]["receipt"]], "dead_letter": True, "delay_seconds": 5}
    problem = api.post(f"{group.path}/nack", body).refused(400, "VALIDATION")
    assert [error["path"] for error in problem["errors"]] == ["delay_seconds"]
    assert group.nack(*messages, dead_letter=True, reason="not ours") == ["ok"]
    status = group.status_of(message["id"])
    assert (status["status"], status["reason"], status["last_error"]) == ("DEAD", "REJECTED", "not ours")
    assert group.receive() == []


@pytest.mark.parametrize("how", ["ack", "nack", "extend"])
def test_a_receipt_is_good_in_its_own_group_only(api: Client, how: str) -> None:
    topic = api.topic()
    one, two = topic.group("one"), topic.group("two")
    other = api.topic().group("one")
    topic.produce("x")
    [message] = one.receive()
    fields = {"lease_seconds": 60} if how == "extend" else {}
    assert two.settle(how, [message], **fields) == ["RECEIPT_INVALID"]
    assert other.settle(how, [message], **fields) == ["RECEIPT_INVALID"]
    assert one.ack(message) == ["ok"]


def test_a_thousand_messages_are_received_and_settled_in_one_call_each(api: Client) -> None:
    topic = api.topic(shards=2)
    group = topic.group()
    topic.batch([{"body": n} for n in range(1000)])
    messages = group.receive(1000)
    assert sorted(m["body"] for m in messages) == list(range(1000))
    assert set(group.ack(*messages[::2])) == {"ok"}
    assert set(group.nack(*messages[1::2], reason="again")) == {"ok"}
    assert sorted(group.bodies(1000)) == sorted(m["body"] for m in messages[1::2])
