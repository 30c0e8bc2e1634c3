"""Producing, lists of messages and replays: calls of the API on a store in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib import wiring
from chalicelib.domain.limits import MAX_BATCH_BYTES
from chalicelib.domain.times import HOUR_SECONDS
from chalicelib.wiring import Deps
from tests.support.http import Client, Topic
from tests.support.troubled import Troubled
from tests.unit.routes.calls import StartedJobs, change, token


@pytest.mark.parametrize(("port", "call"), [("control", "groups"), ("cursors", "get")])
def test_a_duplicate_is_answered_though_nobody_can_say_what_became_of_it(
    deps: Deps, topic: Topic, monkeypatch: pytest.MonkeyPatch, port: str, call: str
) -> None:
    """A batch that was refused for it would be sent again, and what it stored be there twice."""
    topic.group()
    message = {"body": "x", "dedup_id": "d"}
    first = topic.produce(**message)
    troubled = Troubled(getattr(deps.adapters, port), lambda name, *_: name == call)
    changes: dict[str, Any] = {port: troubled}
    process = Deps(replace(deps.adapters, **changes))
    monkeypatch.setattr(wiring, "deps", lambda: process)
    assert topic.api.post(f"{topic.path}/messages", message).expect(200) == {**first, "duplicate": True}
    twin, new = topic.batch([message, {"body": "y"}])
    assert (twin["id"], twin["duplicate"], new["duplicate"]) == (first["id"], True, False)
    assert troubled.refused
    monkeypatch.setattr(wiring, "deps", lambda: deps)
    assert topic.accepted == 2


def test_the_bytes_of_an_event_without_a_type_have_the_usual_one(topic: Topic) -> None:
    event = {"specversion": "1.0", "type": "t", "source": "s", "id": "1", "data_base64": "AAE="}
    media = {"Content-Type": "application/cloudevents+json"}
    path = f"/v1/publish/{topic.name}"
    id = topic.api.call("POST", path, event, headers=media).expect(201)["id"]
    view = topic.api.get(f"{topic.path}/messages/{id}").expect(200)
    assert view["content_type"] == "application/octet-stream"


def test_an_event_is_known_by_the_dedup_id_that_its_sender_names(topic: Topic) -> None:
    event = {"ce_specversion": "1.0", "ce_type": "t", "ce_source": "s", "ce_id": "1"}
    topic.publish(b"x", headrace_dedup_id="mine", **event).expect(201)
    topic.publish(b"x", **{**event, "ce_id": "2"}, headrace_dedup_id="mine").refused(409, "DEDUP_MISMATCH")
    messages = topic.api.get(f"{topic.path}/messages?dedup_id=mine").expect(200)["items"]
    assert len(messages) == 1


def test_a_batch_may_have_just_so_many_bytes(topic: Topic) -> None:
    text = b'{"messages": [{"body": 1}]}'
    path = f"{topic.path}/messages/batch"
    whole = text.ljust(MAX_BATCH_BYTES)
    headers = {"Content-Type": "application/json"}
    topic.api.call("POST", path, raw=whole, headers=headers).expect(200)
    topic.api.call("POST", path, raw=whole + b" ", headers=headers).refused(413, "BATCH_TOO_LARGE")


def test_a_page_of_one_selection_is_not_continued_with_another(topic: Topic) -> None:
    for tag in ("a", "a", "b", "b"):
        topic.produce(tag, delay_seconds=HOUR_SECONDS, tag=tag)
    page = change(topic, "?tag=a&limit=1", cancel=True).expect(200)
    token_query = f"&page_token={page['next_page_token']}"
    change(topic, f"?tag=b&limit=1{token_query}", cancel=True).refused(400)
    other = topic.api.topic()
    change(other, f"?tag=a&limit=1{token_query}", cancel=True).refused(400)
    assert len(change(topic, f"?tag=a&limit=1{token_query}", cancel=True).expect(200)["items"]) == 1


DAY = {"from": "2030-01-01T00:00:00.000Z", "to": "2030-01-02T00:00:00.000Z"}


def test_a_replay_for_one_group_is_for_those_who_may_use_it(api: Client) -> None:
    source, into = api.topic(), api.topic()
    for topic in (source, into):
        topic.group("mail")
        topic.group("bank")
    path = f"{source.path}/replays"
    mailer = token(api, "mailer", "admin", groups=["mail"])
    mailer.post(path, {**DAY, "group": "bank"}).refused(403, "GROUP_FORBIDDEN")
    mailer.post(path, DAY).refused(403, "GROUP_FORBIDDEN")
    mine = mailer.post(path, {**DAY, "group": "mail"}).expect(202)["replay_id"]
    others = [api.post(path, {**DAY, **of}).expect(202)["replay_id"] for of in ({}, {"group": "bank"})]
    mailer.get(f"/v1/replays/{mine}").expect(200)
    for other in others:
        mailer.get(f"/v1/replays/{other}").refused(404)
    assert [each["replay_id"] for each in mailer.get(path).expect(200)["items"]] == [mine]
    both = api.post(path, {**DAY, "into": into.name}).expect(202)["replay_id"]
    for topics in ([source.name], [into.name]):
        stranger = token(api, "stranger", "admin", topics=topics)
        stranger.post(path, {**DAY, "into": into.name}).refused(403, "TOPIC_FORBIDDEN")
        stranger.get(f"/v1/replays/{both}").refused(404)


def test_a_replay_whose_job_shall_not_start_waits_for_it(topic: Topic, jobs: StartedJobs) -> None:
    path = f"{topic.path}/replays"
    assert topic.api.post(path, {**DAY, "start": False}).expect(202)["started"] is False
    assert jobs.started == []
    assert topic.api.post(path, DAY).expect(202)["started"] is True
    assert jobs.started == ["replay"]
