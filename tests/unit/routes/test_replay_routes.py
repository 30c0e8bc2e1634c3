"""Replays: calls of the API on a store in memory."""

from __future__ import annotations

from tests.support.http import Client, Topic
from tests.unit.routes.calls import StartedJobs, token

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
