"""Rows of docs/features/xxl_mq.md that no other test shows."""

from __future__ import annotations

import pytest
from headrace.models import Message
from headrace.testing import LocalHeadrace


@pytest.fixture
def hr(headrace: LocalHeadrace) -> LocalHeadrace:
    headrace.put_topic("orders", shards=1, retry={"ladder": [1]})
    return headrace


def bodies(messages: list[Message]) -> list[object]:
    return [message.body for message in messages]


def test_of_two_serial_consumers_one_works_and_the_other_takes_over(hr: LocalHeadrace) -> None:
    hr.put_group("orders", "deduct", mode="serial", begin="earliest")
    for name in ("node-1", "node-2"):
        hr.put_consumer("orders", "deduct", name)
    results = [hr.send("orders", n) for n in range(3)]
    for n in range(2):
        assert hr.receive("orders", "deduct", consumer="node-2") == []
        (message,) = hr.receive("orders", "deduct", consumer="node-1")
        assert message.body == n, "one at a time, in the order sent"
        hr.ack("orders", "deduct", message)
    (attempt,) = [e for e in hr.get_trace("orders", results[0].id) if e.event == "delivered"]
    assert (attempt.consumer, attempt.rank, attempt.total) == ("node-1", 0, 2)
    hr.clock.advance(seconds=20)
    hr.heartbeat("orders", "deduct", "node-2")
    hr.clock.advance(seconds=15)  # node-1 has given no sign of life for more than thirty seconds
    assert bodies(hr.receive("orders", "deduct", consumer="node-2")) == [2]


def test_who_only_sends_sets_nothing_up(hr: LocalHeadrace) -> None:
    hr.send("orders", {"order": "188"})
    assert list(hr.list_groups("orders")) == []
    hr.put_group("orders", "mailer", begin="earliest")
    hr.send("orders", {"order": "189"})
    assert list(hr.list_consumers("orders", "mailer")) == []


def test_a_topic_tells_how_much_waits_and_how_much_was_consumed(hr: LocalHeadrace) -> None:
    hr.put_group("orders", "mailer", begin="earliest")
    hr.send_many("orders", range(5))
    hr.ack("orders", "mailer", *hr.receive("orders", "mailer", max=2))
    stats = hr.get_topic("orders").stats
    assert stats is not None
    counts = stats.groups["mailer"]
    assert (stats.accepted, counts.backlog, counts.consumed) == (5, 3, 2)


def test_a_failed_message_has_one_retry_less_and_comes_again(hr: LocalHeadrace) -> None:
    hr.put_group("orders", "mailer", begin="earliest", retry={"max_attempts": 4, "ladder": [1]})
    sent_message = hr.send("orders", {"order": "188"})
    retries = []
    for _ in range(3):
        (message,) = hr.receive("orders", "mailer")
        hr.nack("orders", "mailer", message, reason="no paper")
        retries.append(hr.get_message("orders", sent_message.id).deliveries["mailer"].retries_left)
        hr.clock.advance(seconds=3)
    assert retries == [3, 2, 1], "retries that are still to be made"
    outcomes = [e.outcome for e in hr.get_trace("orders", sent_message.id) if e.event == "delivered"]
    assert outcomes == ["RETRY"] * 3
    (message,) = hr.receive("orders", "mailer")
    assert message.attempt == 4
    assert hr.get_message("orders", sent_message.id).deliveries["mailer"].retries_left == 0
