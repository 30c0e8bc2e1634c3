"""Redaction over HTTP: what people see of a body, what consumers get, and edits that carry the mask."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib.domain import redact
from chalicelib.domain.errors import Refused
from chalicelib.domain.message import Draft
from tests.functional.delivery.receivers import Receiver
from tests.support.background import Background
from tests.support.dead_letters import letters
from tests.support.http import Client, Group, ShiftingClock, Topic

MASK = redact.MASK
CARD = {"card": {"number": "4111", "brand": "V"}, "items": [{"pin": 1.50}, {"pin": 2}]}
SHOWN = {"card": {"number": MASK, "brand": "V"}, "items": [{"pin": MASK}, {"pin": MASK}]}


@pytest.fixture
def group(api: Client) -> Group:
    return api.topic(shards=1, redact=["/card/number", "/items/*/pin"]).group(keep_answers=True)


def seen(topic: Topic, id: str) -> Any:
    return topic.api.get(f"{topic.path}/messages/{id}").expect(200)["body"]


@pytest.mark.parametrize(
    ("pointer", "body", "shown"),
    [
        ("/a", '{"a":{"b":1},"c":2}', {"a": MASK, "c": 2}),
        ("/*", '{"a":1,"b":[2]}', {"a": MASK, "b": MASK}),
        ("/a/1", '{"a":[1,2,3]}', {"a": [1, MASK, 3]}),
        ("/a~1b/~0", '{"a/b":{"~":1}}', {"a/b": {"~": MASK}}),
        ("/a/b", '{"a":1}', {"a": 1}),
        ("/a", "1.10", 1.10),
    ],
)
def test_a_pointer_hides_what_it_leads_to(pointer: str, body: str, shown: Any) -> None:
    assert json.loads(redact.masked(Draft(body.encode()), [pointer])) == shown


@pytest.mark.parametrize(
    ("edit", "stored"),
    [
        ({"a": [{"p": MASK}, {"p": 9}]}, {"a": [{"p": 1.10}, {"p": 9}]}),
        ({"a": [{"p": 8}]}, {"a": [{"p": 8}]}),
        ({"a": [{"p": MASK}]}, None),
        ({"a": MASK}, {"a": MASK}),
    ],
)
def test_an_edit_with_the_mask_keeps_what_is_stored_there(edit: Any, stored: Any) -> None:
    before, body = Draft(b'{"a":[{"p":1.10},{"p":2}]}'), json.dumps(edit, ensure_ascii=False).encode()
    if stored is None:
        with pytest.raises(Refused, match="another length"):
            redact.restored(body, before, ["/a/*/p"])
    else:
        assert json.loads(redact.restored(body, before, ["/a/*/p"])) == stored


def test_people_see_masks_and_consumers_get_the_body_whole(group: Group) -> None:
    topic, api = group.topic, group.topic.api
    message = topic.produce(CARD, keys=["k"])
    delayed = topic.produce(CARD, delay_seconds=60)
    text = topic.publish(b"4111", Content_Type="text/plain").expect(201)
    listed = api.get(f"{topic.path}/messages?key=k").expect(200)["items"]
    assert [each["body"] for each in listed] == [SHOWN]
    assert (seen(topic, message["id"]), seen(topic, delayed["id"]), seen(topic, text["id"])) == (
        SHOWN,
        SHOWN,
        MASK,
    )
    held = group.receive()
    assert held[0]["body"] == CARD
    group.nack(*held, dead_letter=True)
    assert [each["body"] for each in letters(group)] == [SHOWN, MASK]
    merged = api.call(
        "PATCH", f"{group.path}/dead-letters", {"patch": {"card": {"brand": "M", "number": MASK}}}
    )
    assert merged.expect(200)["items"][0]["body"]["card"] == {"number": MASK, "brand": "M"}
    api.post(f"{group.path}/dead-letters/redrive", {"ids": [message["id"]]}).expect(200)
    assert group.bodies() == [{**CARD, "card": {"number": "4111", "brand": "M"}}]


def test_a_schedule_shows_its_message_masked_and_sends_it_whole(group: Group) -> None:
    topic, api = group.topic, group.topic.api
    body = {"topic": topic.name, "message": {"body": CARD}, "every_seconds": 60}
    assert api.put("/v1/schedules/masked", body).expect(201)["message"]["body"] == SHOWN
    api.post("/v1/schedules/masked/run").expect(201)
    assert group.bodies() == [CARD]
    edit = {**body, "every_seconds": 90, "message": {"body": {**SHOWN, "more": 1}}}
    assert api.put("/v1/schedules/masked", edit).expect(200)["message"]["body"] == {**SHOWN, "more": 1}
    api.post("/v1/schedules/masked/run").expect(201)
    assert group.bodies() == [{**CARD, "more": 1}]
    shorter = {**body, "message": {"body": {"items": [{"pin": MASK}]}}}
    api.put("/v1/schedules/masked", shorter).refused(422, "MASK_MOVED")
    api.delete(f"{topic.path}?confirm={topic.name}").expect(204)
    api.put(topic.path).expect(201)
    assert api.get("/v1/schedules/masked").expect(200)["message"]["body"] == {**SHOWN, "more": 1}
    other = api.topic()
    reader = other.group()
    api.put("/v1/schedules/masked", {**edit, "topic": other.name}).expect(200)
    api.post("/v1/schedules/masked/run").expect(201)
    assert reader.bodies() == [{**SHOWN, "more": 1}]
    api.delete("/v1/schedules/masked").expect(204)


def test_each_edit_may_carry_the_mask(group: Group, background: Background) -> None:
    topic, api = group.topic, group.topic.api
    logged, delayed = topic.produce(CARD), topic.produce(CARD, delay_seconds=60)
    edit = {**SHOWN, "more": 1}
    for each in (logged, delayed):
        answer = api.call("PATCH", f"{topic.path}/messages/{each['id']}", {"body": edit}).expect(200)
        assert answer["body"] == edit
    api.call("PATCH", f"{topic.path}/messages/{logged['id']}", {"body": {"items": [{"pin": MASK}]}}).refused(
        422, "MASK_MOVED"
    )
    [held] = group.receive()
    assert held["body"] == {**CARD, "more": 1}
    group.nack(held, delay_seconds=30)
    path = f"{topic.path}/messages/{logged['id']}?group={group.name}"
    api.call("PATCH", path, {"body": {**SHOWN, "more": 2}}).expect(200)
    background.later(topic, 31)
    assert group.bodies() == [{**CARD, "more": 2}]
    api.put(f"{topic.path}/jobs/due", {"body": CARD}).expect(201)
    api.put(f"{topic.path}/jobs/due", {"body": edit}).expect(200)
    background.move()
    assert group.bodies() == [{**CARD, "more": 1}]
    for status in (201, 200):
        api.put(f"{topic.path}/jobs/raw", {"body_base64": "//4A", "delay_seconds": 9}).expect(status)


def test_a_pointer_goes_on_hiding_what_was_accepted_before(group: Group, clock: ShiftingClock) -> None:
    topic, api = group.topic, group.topic.api
    old = topic.produce(CARD)
    clock.advance(1)
    one_topic = api.with_token(api.new_token("admin", topics=[topic.name])["token"])
    one_topic.put(topic.path, {"redact": []}).refused(403, "TOO_MUCH")
    one_topic.put(topic.path, {"redact": ["/card/number", "/items/*/pin", "/more"]}).expect(200)
    api.put(topic.path, {"redact": []}).expect(200)
    assert seen(topic, old["id"]) == SHOWN
    assert seen(topic, topic.produce(CARD)["id"]) == CARD
    api.put(topic.path, {"redact": ["card"]}).refused(400, "VALIDATION")


def test_answers_may_quote_what_is_hidden_and_are_not_kept_unless_asked(
    api: Client, background: Background, receiver: Receiver
) -> None:
    topic = api.topic(redact=["/card"])
    group = topic.group()
    assert api.get(group.path).expect(200)["keep_answers"] is False
    api.put(f"{group.path}/consumers/c", {"url": receiver.url}).expect(201)
    shown = api.post(f"{group.path}/consumers/c/test", {"message": {"body": CARD}, "transform": "body.card"})
    assert shown.expect(200)["request"]["body"] == json.dumps(MASK, ensure_ascii=False)
    receiver.status, receiver.body = 500, b"card 4111"
    message = topic.produce(CARD)
    background.push(topic)
    assert "answer" not in group.status_of(message["id"])
