"""The three modes, end to end over HTTP."""

from __future__ import annotations

from tests.support.http import Client


def test_queue_messages_are_settled_in_any_order(api: Client) -> None:
    topic = api.topic(shards=1)
    group = topic.group()
    ids = [topic.produce(n)["id"] for n in range(6)]
    messages = group.receive()
    assert [m["body"] for m in messages] == list(range(6))
    assert group.ack(*reversed(messages[::2])) == ["ok"] * 3
    assert group.receive() == []
    assert [group.status_of(i)["status"] for i in ids] == ["SUCCESS", "RUNNING"] * 3
    assert group.nack(messages[3]) == ["ok"]
    [again] = group.receive()
    assert (again["body"], again["attempt"]) == (3, 2)
    assert group.ack(messages[1], messages[5], again) == ["ok"] * 3
    assert topic.counts()["backlog"] == 0


def test_a_run_takes_the_messages_of_one_key_in_few_calls(api: Client) -> None:
    topic = api.topic(mode="serial")
    group, queue = topic.group(), topic.group("q", mode="queue")
    drafts = [{"body": n, "ordering_key": "b" if n % 4 == 3 else "a"} for n in range(200)]
    topic.batch([*drafts, *({"body": n, "ordering_key": "a"} for n in range(200, 250))])
    api.post(f"{queue.path}/receive", {"run": True}).refused(422, "WRONG_MODE")
    bodies, calls, acks = [], 0, list[str]()
    while calls < 10:
        asked = {"run": True, "max": 80, "ack": acks, "receive_id": f"r{calls}"}
        answer = api.post(f"{group.path}/receive", asked).expect(200)
        calls += 1
        acks = [message["receipt"] for message in answer["messages"]]
        if not acks:
            break
        assert api.post(f"{group.path}/receive", asked).expect(200)["messages"] == answer["messages"]
        assert len({message["ordering_key"] for message in answer["messages"]}) == 1
        bodies += [message["body"] for message in answer["messages"]]
    assert [n for n in bodies if n % 4 != 3 or n > 200] == [n for n in range(250) if n % 4 != 3 or n > 200]
    assert [n for n in bodies if n % 4 == 3 and n < 200] == list(range(3, 200, 4))
    assert calls <= 10
    assert topic.counts()["consumed"] == 250


def test_key_concurrency_is_for_queues_and_says_that_keys_wait(api: Client) -> None:
    topic = api.topic()
    group = topic.group(key_concurrency=1)
    settings = {"mode": "serial", "key_concurrency": 1}
    api.put(f"{topic.path}/groups/other", settings).refused(422, "WRONG_MODE")
    topic.batch([{"body": n, "ordering_key": "a"} for n in range(2)])
    assert len(group.receive(50)) == 1
    assert api.post(f"{group.path}/receive").expect(200)["because"] == "keys_wait"
    assert api.get(group.path).expect(200)["limited_by"] == ["keys"]


def test_a_broadcast_needs_a_registered_consumer(api: Client) -> None:
    topic = api.topic(mode="broadcast")
    group = topic.group()
    api.post(f"{group.path}/receive").refused(422, "CONSUMER_REQUIRED")
    problem = api.post(f"{group.path}/receive", {"consumer": "nobody"}).refused(404, "CONSUMER_NOT_FOUND")
    assert f"PUT {group.path}/consumers/nobody" in problem["detail"]


def test_one_topic_serves_all_three_modes_at_once_without_copies(api: Client) -> None:
    topic = api.topic(shards=2)
    queue, serial, cast = (
        topic.group("q"),
        topic.group("s", mode="serial"),
        topic.group("b", mode="broadcast"),
    )
    cast.register("c")
    topic.batch([{"body": n, "ordering_key": f"k{n % 4}"} for n in range(12)])
    assert sorted(queue.bodies(50)) == list(range(12))
    assert sorted(cast.bodies(50, consumer="c")) == list(range(12))
    bodies = []
    while batch := serial.receive(50):
        bodies += [m["body"] for m in batch]
        serial.ack(*batch)
    assert sorted(bodies) == list(range(12))
    for key in range(4):
        assert [n for n in bodies if n % 4 == key] == sorted(n for n in bodies if n % 4 == key)
    assert topic.accepted == 12


def test_a_group_says_what_limits_it_and_who_waits_for_what(api: Client) -> None:
    topic = api.topic(shards=1, mode="serial")
    group = topic.group(filter="a")
    for n in range(6):
        topic.produce(n, ordering_key="busy" if n % 3 else "quiet", tag="a")
        topic.produce(n, ordering_key="foreign", tag="b")
    assert api.get(f"{group.path}/waiting").expect(200)["limited_by"] == []
    assert len(group.receive()) == 2  # the first of each key; what follows them was looked at
    waiting = api.get(f"{group.path}/waiting").expect(200)
    keys = [(each["value"], each["messages"], each["waits_for"]) for each in waiting["keys"]]
    assert (waiting["read"], keys) == (4, [("busy", 3, "keys"), ("quiet", 1, "keys")])
    assert topic.counts()["limited_by"] == ["keys"]
    api.put(group.path, {"rate_limit": 0.01}).expect(200)
    topic.produce(7, ordering_key="new", tag="a")
    assert len(group.receive()) == 1
    assert api.get(group.path).expect(200)["limited_by"] == ["rate", "keys"]
    topic.produce(8, ordering_key="newer", tag="a")
    waiting = api.get(f"{group.path}/waiting").expect(200)
    assert {each["value"]: each["waits_for"] for each in waiting["keys"]}["newer"] == "rate"
