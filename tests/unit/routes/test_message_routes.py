"""Lists of messages and what they tell: calls of the API on a store in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.api.fields import at
from chalicelib.domain.limits import MAX_KEY_CHARS
from chalicelib.domain.times import HOUR_SECONDS
from tests.support.clock import ManualClock
from tests.support.http import Client, Reply, Topic
from tests.unit.routes.calls import change, token


def test_a_page_of_one_selection_is_not_continued_with_another(topic: Topic) -> None:
    for tag in ("a", "a", "b", "b"):
        topic.produce(tag, delay_seconds=HOUR_SECONDS, tag=tag)
    page = change(topic, "?tag=a&limit=1", cancel=True).expect(200)
    token_query = f"&page_token={page['next_page_token']}"
    change(topic, f"?tag=b&limit=1{token_query}", cancel=True).refused(400)
    other = topic.api.topic()
    change(other, f"?tag=a&limit=1{token_query}", cancel=True).refused(400)
    assert len(change(topic, f"?tag=a&limit=1{token_query}", cancel=True).expect(200)["items"]) == 1


@pytest.mark.parametrize(
    "look",
    [
        lambda topic, key: topic.api.get(f"{topic.path}/messages?key={key}"),
        lambda topic, key: change(topic, f"?key={key}", cancel=True),
    ],
)
def test_a_key_is_asked_for_up_to_its_longest(topic: Topic, look: Callable[[Topic, str], Reply]) -> None:
    look(topic, "k" * MAX_KEY_CHARS).expect(200)
    look(topic, "k" * (MAX_KEY_CHARS + 1)).refused(400)


def test_prepared_messages_from_a_time_on(topic: Topic, clock: ManualClock) -> None:
    path = f"{topic.path}/transactions"
    topic.api.post(path, {"message": {"body": 1}}).expect(201)
    clock.advance(60_000)
    late_id = topic.api.post(path, {"message": {"body": 2}}).expect(201)["message_id"]
    query = f"status=PREPARED&from={at(clock.now_ms() - 1)}"
    messages = topic.api.get(f"{topic.path}/messages?{query}").expect(200)["items"]
    assert [each["id"] for each in messages] == [late_id]


def test_what_was_done_to_a_message_bears_the_name_of_who_did_it(api: Client, topic: Topic) -> None:
    group = topic.group()
    desk = Topic(token(api, "desk", "produce", "admin"), topic.name)
    letters = f"{topic.path}/groups/g/dead-letters"

    def deed() -> Any:
        return api.get(f"{topic.path}/messages/{id}/trace").expect(200)["events"]

    id = desk.produce({"n": 1})["id"]
    assert "desk" in str(deed()[0])
    desk.api.call("PATCH", f"{topic.path}/messages/{id}", {"body": {"n": 2}}).expect(200)
    assert "desk" in str(deed()[-1])
    group.nack(*group.receive(), dead_letter=True)
    desk.api.call("PATCH", letters, {"patch": {"n": 3}, "ids": [id]}).expect(200)
    assert "desk" in str(deed()[-1])
    desk.api.post(f"{topic.path}/messages/{id}/retry", {"group": "g"}).expect(200)
    assert "desk" in str(deed()[-1])
