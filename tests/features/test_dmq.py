"""Rows of docs/features/dmq.md that no other test shows."""

from __future__ import annotations

import pytest
from headrace import Headrace, errors
from headrace.testing import LocalHeadrace


def test_a_new_subscriber_gets_what_came_before_it(headrace: LocalHeadrace) -> None:
    headrace.put_topic("orders")
    headrace.put_group("orders", "shop", begin="earliest")
    headrace.send_many("orders", range(3))
    headrace.expect("orders", "shop").delivered(0)
    with headrace.subscriber("orders", "shop") as subscriber:
        headrace.expect("orders", "shop", within=30).delivered(3)
    assert sorted(push.body for push in subscriber.pushes) == [0, 1, 2]


def test_a_body_over_the_topics_limit_is_refused_and_the_rest_goes(headrace: LocalHeadrace) -> None:
    headrace.put_topic("orders", max_body_bytes=65_536)
    with pytest.raises(errors.HeadraceError, match="BODY_TOO_LARGE"):
        headrace.send("orders", b"x" * 65_537)
    large, small = headrace.send_many("orders", [b"x" * 65_537, b"x" * 65_536])
    assert isinstance(large, errors.HeadraceError)
    assert not isinstance(small, errors.HeadraceError)
    headrace.expect("orders").accepted(1)


def test_a_message_that_nobody_waits_for_is_stored(headrace: LocalHeadrace) -> None:
    headrace.put_topic("orders")
    message = headrace.send("orders", 1)
    assert message.status == "NEW"
    assert headrace.get_message("orders", message.id).body == 1
    with pytest.raises(errors.TopicNotFound):
        headrace.send("ordres", 1)
    with pytest.raises(errors.GroupNotFound):
        headrace.put_consumer("orders", "nowhere", "me")


@pytest.mark.parametrize("url", ["", "queue.example.com:8700", "/v1"])
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="HEADRACE_URL"):
        Headrace(url, "hr_a_token")


def test_unacknowledged_messages_come_again_and_again(headrace: LocalHeadrace) -> None:
    headrace.put_topic("orders", retry={"ladder": "fixed-30", "max_attempts": 1000})
    headrace.put_group("orders", "shop", begin="earliest")
    headrace.send("orders", 1)
    attempts = []
    for _ in range(20):
        (message,) = headrace.receive("orders", "shop", lease=10)
        attempts.append(message.attempt)
        headrace.clock.advance(seconds=11)
    assert attempts == list(range(1, 21))
