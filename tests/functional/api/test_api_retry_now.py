"""What waits for its next attempt, or is dead, is tried now."""

from __future__ import annotations

import pytest

from tests.functional.delivery.receivers import Receiver
from tests.support.background import Background
from tests.support.dead_letters import letters, produce_and_bury, receive_again, retry_now
from tests.support.http import Client


@pytest.mark.parametrize("mode", ["queue", "serial"])
def test_what_waits_for_its_next_attempt_can_be_tried_now_and_is_tried_once(
    api: Client, background: Background, mode: str
) -> None:
    topic = api.topic(mode=mode)
    group = topic.group()
    message = topic.produce("x")
    group.nack(*group.receive(), delay_seconds=3600, reason="later")
    assert group.receive() == []
    answer = retry_now(group, message["id"]).expect(200)
    assert answer.items() >= {"id": message["id"], "group": "g", "status": "RETRYING", "attempts": 1}.items()
    retry_now(group, message["id"]).expect(200)
    [second] = receive_again(group)
    assert second["attempt"] == 2
    group.ack(second)
    background.later(topic, 7200)
    assert group.receive() == []
    assert group.status_of(message["id"]).items() >= {"status": "SUCCESS", "attempts": 2}.items()


def test_what_is_dead_can_be_tried_now(api: Client) -> None:
    topic = api.topic()
    group = topic.group()
    [message] = produce_and_bury(topic, group, "x")
    assert retry_now(group, message["id"]).expect(200)["status"] == "RETRYING"
    assert [(m["body"], m["attempt"]) for m in receive_again(group)] == [("x", 2)]
    assert letters(group) == []


@pytest.mark.parametrize("status", ["NEW", "RUNNING", "SUCCESS"])
def test_there_is_nothing_to_retry_for_what_neither_waits_nor_is_dead(api: Client, status: str) -> None:
    topic = api.topic()
    group = topic.group()
    message = topic.produce("x")
    messages = group.receive() if status != "NEW" else []
    if status == "SUCCESS":
        group.ack(*messages)
    retry_now(group, message["id"]).refused(409, "NOTHING_TO_RETRY")
    assert group.status_of(message["id"])["status"] == status


@pytest.mark.parametrize("mode", ["queue", "serial"])
def test_a_subscriber_is_called_at_once_for_what_is_tried_now(
    api: Client, background: Background, receiver: Receiver, mode: str
) -> None:
    topic = api.topic(mode=mode)
    group = topic.group(retry={"ladder": [3600]})
    api.put(f"{group.path}/consumers/c", {"url": receiver.url}).expect(201)
    receiver.status = 500
    message = topic.produce("x")
    assert background.push(topic) == {"FAILED": 1}
    receiver.status = 200
    assert background.push(topic) == {}
    retry_now(group, message["id"]).expect(200)
    assert background.run(topic) == {"DONE": 1}
    assert background.later(topic, 7200) == {}
    assert [r.headers["headrace-attempt"] for r in receiver.seen] == ["1", "2"]
