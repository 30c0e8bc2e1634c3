"""The three modes, end to end over HTTP."""

from __future__ import annotations

from tests.support.http import Client, ShiftingClock


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


def test_a_serial_group_without_keys_goes_one_by_one_in_each_shard(api: Client) -> None:
    topic = api.topic(mode="serial", shards=2)
    group = topic.group()
    for n in range(6):
        topic.produce(n, shard=n % 2)
    bodies_of: dict[int, list[int]] = {0: [], 1: []}
    while batch := group.receive(10):
        assert len({m["shard"] for m in batch}) == len(batch)
        for message in batch:
            bodies_of[message["shard"]].append(message["body"])
        group.ack(*batch)
    assert bodies_of == {0: [0, 2, 4], 1: [1, 3, 5]}


def test_a_serial_group_goes_one_by_one_for_each_key_and_keys_pass_each_other(api: Client) -> None:
    topic = api.topic(mode="serial")
    group = topic.group()
    for n in range(9):
        topic.produce(n, ordering_key=f"k{n % 3}")
    first = group.receive()
    assert [m["body"] for m in first] == [0, 1, 2]
    assert group.receive() == []
    group.ack(first[1])
    second = group.receive()
    assert [m["body"] for m in second] == [4]
    group.ack(first[0], first[2], second[0])
    assert sorted(group.bodies()) == [3, 5, 7]


def test_a_failed_serial_message_comes_before_the_next_of_its_key(api: Client) -> None:
    topic = api.topic(mode="serial")
    group = topic.group()
    for n in range(3):
        topic.produce(n, ordering_key="k")
    [message] = group.receive()
    group.nack(message, delay_seconds=10)
    assert group.receive() == []


def test_a_serial_retry_keeps_its_turn_until_it_is_dead(api: Client, clock: ShiftingClock) -> None:
    topic = api.topic(mode="serial", retry={"max_attempts": 2})
    group = topic.group()
    for n in range(2):
        topic.produce(n, ordering_key="k")
    [message] = group.receive()
    group.nack(message, delay_seconds=10)
    clock.advance(11)
    [message] = group.receive()
    assert (message["body"], message["attempt"]) == (0, 2)
    group.nack(message)
    [message] = group.receive()
    assert (message["body"], message["attempt"]) == (1, 1)
    assert topic.counts()["dead"] == 1


def test_a_broadcast_gives_everything_to_each_consumer_from_its_registration_on(api: Client) -> None:
    topic = api.topic(mode="broadcast")
    group = topic.group()
    topic.produce("before")
    group.register("a")
    topic.produce("for a")
    group.register("b")
    topic.produce("for both")
    assert sorted(group.bodies(consumer="a")) == ["for a", "for both"]
    assert group.bodies(consumer="b") == ["for both"]


def test_a_broadcast_consumer_settles_for_itself_alone(api: Client) -> None:
    topic = api.topic(mode="broadcast", shards=1)
    group = topic.group()
    group.register("a")
    group.register("b")
    message = topic.produce("x")
    [of_a] = group.receive(consumer="a")
    [of_b] = group.receive(consumer="b")
    assert group.ack(of_a) == ["ok"]
    assert group.status_of(message["id"])["status"] == "RUNNING"
    assert group.nack(of_b) == ["ok"]
    [again] = group.receive(consumer="b")
    assert again["attempt"] == 2
    assert group.receive(consumer="a") == []
    group.ack(again)
    assert group.status_of(message["id"])["status"] == "SUCCESS"


def test_a_broadcast_needs_a_registered_consumer(api: Client) -> None:
    topic = api.topic(mode="broadcast")
    group = topic.group()
    api.post(f"{group.path}/receive").refused(422, "CONSUMER_REQUIRED")
    problem = api.post(f"{group.path}/receive", {"consumer": "nobody"}).refused(404, "CONSUMER_NOT_FOUND")
    assert f"PUT {group.path}/consumers/nobody" in problem["detail"]


def test_a_broadcast_consumer_that_was_away_gets_what_was_kept(api: Client, clock: ShiftingClock) -> None:
    topic = api.topic(mode="broadcast")
    group = topic.group(offline="keep")
    group.register("a")
    clock.advance(3600)
    topic.produce("while away")
    group.heartbeat("a")
    assert group.bodies(consumer="a") == ["while away"]


def test_a_broadcast_may_skip_what_came_while_a_consumer_was_away(api: Client, clock: ShiftingClock) -> None:
    topic = api.topic(mode="broadcast")
    group = topic.group(offline="skip")
    group.register("a")
    topic.produce("at home")
    clock.advance(29)
    assert group.bodies(consumer="a") == ["at home"]
    clock.advance(31)
    topic.produce("while away")
    assert group.receive(consumer="a") == []
    topic.produce("back again")
    assert group.bodies(consumer="a") == ["back again"]


def test_a_broadcast_consumer_that_leaves_and_returns_begins_anew(api: Client) -> None:
    topic = api.topic(mode="broadcast")
    group = topic.group()
    group.register("a")
    topic.produce("missed")
    api.delete(f"{group.path}/consumers/a").expect(204)
    api.post(f"{group.path}/receive", {"consumer": "a"}).refused(404, "CONSUMER_NOT_FOUND")
    group.register("a")
    topic.produce("seen")
    assert group.bodies(consumer="a") == ["seen"]


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
