"""Rows of docs/features/rocketmq.md that no other test shows."""

from __future__ import annotations

import sqlite3

import pytest
from headrace import Message, Outgoing
from headrace.errors import TopicNotFound
from headrace.testing import LocalHeadrace


@pytest.fixture
def hr(headrace: LocalHeadrace) -> LocalHeadrace:
    headrace.put_topic("trade", retry={"ladder": [1]})
    return headrace


def test_what_got_no_answer_comes_again_to_another_before_the_next_of_its_key(hr: LocalHeadrace) -> None:
    hr.put_group("trade", "points", mode="serial", begin="earliest")
    first = hr.send("trade", "created", ordering_key="order-188")
    hr.send("trade", "paid", ordering_key="order-188")
    (lost_message,) = hr.receive("trade", "points", lease=5)
    hr.clock.advance(seconds=6)
    (again,) = hr.receive("trade", "points")
    assert (again.id, again.body, again.attempt) == (first.id, "created", 2)
    (answer,) = hr.ack("trade", "points", lost_message)
    assert not answer.ok
    hr.ack("trade", "points", again)
    assert [message.body for message in hr.receive("trade", "points")] == ["paid"]


def test_an_id_noted_with_the_work_makes_it_happen_once(hr: LocalHeadrace) -> None:
    bank = sqlite3.connect(":memory:", isolation_level=None)
    bank.execute("CREATE TABLE handled (id TEXT PRIMARY KEY)")
    bank.execute("CREATE TABLE paid (amount INTEGER)")

    @hr.consumer("trade", group="bank")
    def pay(message: Message) -> None:
        bank.execute("BEGIN")
        with bank:
            new = bank.execute("INSERT OR IGNORE INTO handled VALUES (?)", (message.id,)).rowcount
            if new:
                bank.execute("INSERT INTO paid VALUES (?)", (message.body,))
        if message.attempt < 3:
            raise OSError("and then the answer is lost")

    hr.send("trade", 30)
    for _ in range(3):
        assert len(hr.drain()) == 1
        hr.clock.advance(seconds=3)
    hr.expect("trade").delivered(1)
    assert bank.execute("SELECT amount FROM paid").fetchall() == [(30,)]
    bank.close()


def test_without_a_prepared_message_the_local_transaction_does_not_begin(hr: LocalHeadrace) -> None:
    steps = []
    with pytest.raises(TopicNotFound), hr.transaction("nowhere", {"paid": 30}):
        steps.append("local transaction")
    assert steps == []


def test_a_dead_letter_leads_to_its_transaction_which_stays_committed(hr: LocalHeadrace) -> None:
    hr.put_group("trade", "other-bank", begin="earliest")
    with hr.transaction("trade", Outgoing(body={"paid": 30}, key="order-188")) as half:
        pass
    (message,) = hr.receive("trade", "other-bank")
    hr.nack("trade", "other-bank", message, dead_letter=True, reason="no such account")
    (letter,) = hr.list_dead_letters("trade", "other-bank", key="order-188")
    assert (letter.transaction_id, letter.last_error) == (half.transaction_id, "no such account")
    assert hr.get_transaction(half.transaction_id).state == "COMMITTED"


def test_a_one_way_send_needs_no_look_at_its_future(hr: LocalHeadrace) -> None:
    with hr.producer() as producer:
        for n in range(3):
            producer.send("trade", n)
        producer.send("nowhere", "refused, and nobody is told")
    hr.expect("trade").accepted(3)


def test_a_message_shows_its_size_and_when_it_was_stored(hr: LocalHeadrace) -> None:
    result = hr.send("trade", {"order": 188}, key="order-188")
    message = hr.get_message("trade", result.id)
    assert (message.size, message.accepted_at, message.offset) == (
        len(b'{"order":188}'),
        result.accepted_at,
        0,
    )
    assert (message.keys, message.transaction_id) == (["order-188"], None)


def test_five_queues_of_two_consumers_are_three_and_two(hr: LocalHeadrace) -> None:
    hr.put_topic("five", shards=5)
    hr.put_group("five", "g", mode="serial", assignment="average")
    for name in ("a", "b"):
        hr.put_consumer("five", "g", name)
    shards = {each.consumer: each.shards for each in hr.list_consumers("five", "g")}
    assert shards == {"a": [0, 1, 2], "b": [3, 4]}


def test_of_nine_messages_three_instances_get_three_each(hr: LocalHeadrace) -> None:
    hr.put_group("trade", "g", begin="earliest")
    names = ("a", "b", "c")
    for name in names:
        hr.put_consumer("trade", "g", name)
    hr.send_many("trade", range(9))
    parts = [hr.receive("trade", "g", consumer=name, max=9) for name in names]
    assert [len(part) for part in parts] == [3, 3, 3]
    assert sorted(message.body for part in parts for message in part) == list(range(9))


def test_a_consumer_reads_ahead_and_no_further_than_it_was_told(hr: LocalHeadrace) -> None:
    hr.send_many("trade", range(10))
    under_way = []

    @hr.consumer("trade", group="g", concurrency=1, prefetch=2, wait=0.1)
    def handle(message: Message) -> None:
        stats = hr.get_topic("trade").stats
        assert stats is not None
        under_way.append(stats.groups["g"].in_flight)
        hr.stop()

    hr.run(for_seconds=30)
    assert 2 <= under_way[0] <= 3, "the one that is handled, and two that wait"


def test_an_outbox_table_stores_each_row_once(hr: LocalHeadrace) -> None:
    shop = sqlite3.connect(":memory:", isolation_level=None)
    shop.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY, body TEXT)")
    shop.executemany("INSERT INTO outbox (body) VALUES (?)", [("created",), ("paid",)])

    def relay(dies_after: int | None) -> None:
        for row, body in shop.execute("SELECT id, body FROM outbox ORDER BY id").fetchall():
            hr.send("trade", body, ordering_key="order-188", dedup_id=f"outbox-{row}")
            if row == dies_after:
                return
            shop.execute("DELETE FROM outbox WHERE id = ?", (row,))

    relay(dies_after=1)  # it was sent, and not taken out
    relay(dies_after=None)
    hr.put_group("trade", "g", mode="serial", begin="earliest")
    bodies = []
    while messages := hr.receive("trade", "g"):
        bodies += [message.body for message in messages]
        hr.ack("trade", "g", *messages)
    assert bodies == ["created", "paid"]
    shop.close()
