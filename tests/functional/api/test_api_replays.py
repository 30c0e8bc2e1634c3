"""Replays over HTTP: asked for, checked, fed by a job, each message once, for one group or all."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import pytest

from chalicelib import wiring
from chalicelib.domain import ids
from chalicelib.domain.limits import DEFAULT_REPLAY_RATE, MAX_WHERE_CHARS, REPLAY_LIFE
from tests.support.background import Background
from tests.support.damage import change_control, having
from tests.support.http import Client, Reply, ShiftingClock, Topic

DAY = {"from": "2030-01-01T00:00:00.000Z", "to": "2030-01-02T00:00:00.000Z"}


def ask(topic: Topic, **fields: Any) -> Reply:
    return topic.api.post(f"{topic.path}/replays", {**DAY, **fields})


def replay(topic: Topic, **fields: Any) -> str:
    return str(ask(topic, **fields).expect(202)["replay_id"])


def archived(number: int, body: bytes | None = None, **fields: Any) -> Any:
    text = base64.b64encode(b'{"n":%d}' % number if body is None else body).decode()
    place = {"id": f"old-{number}", "shard": number % 4}
    return {**place, "body_base64": text, "content_type": "application/json", **fields}


def send(api: Client, replay_id: str, messages: Sequence[Any]) -> list[Any]:
    answer = api.post(f"/v1/replays/{replay_id}/messages", {"messages": messages}).expect(200)
    results: list[Any] = answer["results"]
    return results


def tell(api: Client, replay_id: str, **fields: Any) -> Reply:
    return api.call("PATCH", f"/v1/replays/{replay_id}", fields)


def test_a_replay_is_stored_as_it_was_asked_for(api: Client) -> None:
    topic = api.topic()
    topic.group()
    fields = {"tag": "t", "key": "k", "where": "a.b > 5", "group": "g", "rate": 7, "dry_run": True}
    replay_view = ask(topic, **fields).expect(202)
    assert replay_view.items() >= {**fields, **DAY, "topic": topic.name, "into": topic.name}.items()
    assert replay_view.items() >= {"state": "PENDING", "matched": None, "sent": 0, "error": None}.items()
    assert replay_view["predicate"] == [">", ["a", "b"], 5]
    view = api.get(f"/v1/replays/{replay_view['replay_id']}").expect(200)
    assert view == {name: value for name, value in replay_view.items() if name not in ("started", "run_with")}


def test_a_replay_of_a_later_release_is_left_out_of_the_list_and_not_run_as_one_of_all_messages(
    api: Client,
) -> None:
    topic = api.topic()
    good_ids, later_id = [replay(topic)], replay(topic, where="n > 1")
    good_ids.append(replay(topic))
    change_control(
        wiring.deps(),
        f"replays#{ids.replay_home(topic.name)}",
        later_id,
        having("where", {"S": "n RESEMBLES 1"}),
    )
    listed = api.get(f"{topic.path}/replays").expect(200)["items"]
    assert sorted(view["replay_id"] for view in listed) == sorted(good_ids)
    api.get(f"/v1/replays/{later_id}").expect(503)
    api.post(f"/v1/replays/{later_id}/messages", {"messages": [archived(1)]}).expect(503)


def test_a_replay_whose_job_nobody_runs_here_says_how_to_run_it(api: Client) -> None:
    replay_view = ask(api.topic()).expect(202)
    assert replay_view["started"] is False
    assert replay_view["run_with"] == f"make replay ARGS='--replay {replay_view['replay_id']}'"
    assert replay_view["rate"] == DEFAULT_REPLAY_RATE


def test_an_archived_topic_that_is_gone_can_be_replayed_into_another(api: Client) -> None:
    topic = api.topic()
    path = "/v1/topics/nobody-has-this/replays"
    api.post(path, DAY).refused(404, "TOPIC_NOT_FOUND")
    assert api.post(path, {**DAY, "into": topic.name}).expect(202)["into"] == topic.name


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"from": "yesterday"}, "from"),
        ({"to": DAY["from"]}, "to"),
        ({"where": "a = (SELECT 1)"}, "where"),
        ({"where": "reflect('java.lang.System', 'exit') = 1"}, "where"),
        ({"where": "a=" + "1" * MAX_WHERE_CHARS}, "where"),
        ({"where": ""}, "where"),
        ({"rate": 0}, "rate"),
        ({"rate": 10_001}, "rate"),
        ({"tag": "a b"}, "tag"),
        ({"into": "~"}, "into"),
        ({"dryrun": True}, "dryrun"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_stored(
    api: Client, fields: dict[str, Any], path: str
) -> None:
    problem = ask(api.topic(), **fields).refused(400, "VALIDATION")
    assert [issue["path"] for issue in problem["errors"]] == [path]


def test_an_unknown_group_or_replay_is_told(api: Client) -> None:
    ask(api.topic(), group="nobody").refused(404, "GROUP_NOT_FOUND")
    api.get("/v1/replays/nobody").refused(404, "REPLAY_NOT_FOUND")
    tell(api, "nobody", state="DONE").refused(404, "REPLAY_NOT_FOUND")


def test_a_token_of_other_topics_may_neither_read_from_here_nor_send_into_there(api: Client) -> None:
    here, there = api.topic(), api.topic()
    token = api.post("/v1/tokens", {"name": "x", "scopes": ["admin"], "topics": [here.name]}).expect(201)
    mine = api.with_token(token["token"])
    mine.post(f"{here.path}/replays", {**DAY, "into": there.name}).refused(403, "TOPIC_FORBIDDEN")
    mine.get(f"/v1/replays/{replay(there)}").refused(404, "REPLAY_NOT_FOUND")
    mine.get(f"/v1/replays/{replay(here)}").expect(200)


def test_a_topics_replays_are_listed_the_newest_first(api: Client, clock: ShiftingClock) -> None:
    here, there = api.topic(), api.topic()
    path = f"{here.path}/replays"
    assert api.get(path).expect(200) == {"items": []}
    ids = []
    for into in (here, there, here):
        ids.append(replay(here, into=into.name))
        clock.advance(1)
    replay(there)
    assert [[each["replay_id"] for each in page] for page in api.pages(path, 2)] == [ids[:0:-1], ids[:1]]
    [newest, *_] = api.get(path).expect(200)["items"]
    assert newest == api.get(f"/v1/replays/{ids[2]}").expect(200)


def test_a_list_of_replays_leaves_out_those_into_topics_of_others(api: Client) -> None:
    here, there = api.topic(), api.topic()
    mine = replay(here)
    replay(here, into=there.name)
    token = api.post("/v1/tokens", {"name": "x", "scopes": ["admin"], "topics": [here.name]}).expect(201)
    holder = api.with_token(token["token"])
    items = holder.get(f"{here.path}/replays").expect(200)["items"]
    assert [each["replay_id"] for each in items] == [mine]
    holder.get(f"{there.path}/replays").refused(403, "TOPIC_FORBIDDEN")


def test_archived_messages_come_again_whole_and_marked(api: Client) -> None:
    topic = api.topic()
    group = topic.group()
    replay_id = replay(topic)
    fields: dict[str, Any] = {"keys": ["k"], "tag": "t", "ordering_key": "o", "headers": {"h": "v"}}
    exact = b'{"n":12345678901234567890.10}'
    [result, *_] = send(
        api,
        replay_id,
        [
            archived(1, exact),
            archived(2, **fields),
            archived(3, b"\xff\x00", content_type="image/png"),
            archived(4, b'{ "spaced": 1 }'),
        ],
    )
    assert result["id"] != "old-1"
    assert result["duplicate"] is False
    message_of = {m["headers"]["headrace-replay-of"]: m for m in group.receive()}
    assert message_of.keys() == {f"old-{n}" for n in (1, 2, 3, 4)}
    assert all(m["headers"]["headrace-replay"] == replay_id for m in message_of.values())
    first, second = message_of["old-1"], message_of["old-2"]
    assert first["body"] == {"n": 12345678901234567890.10}
    assert {name: second[name] for name in ("body", "keys", "tag", "ordering_key")} == {
        **{name: fields[name] for name in ("keys", "tag", "ordering_key")},
        "body": {"n": 2},
    }
    assert second["headers"]["h"] == "v"
    assert base64.b64decode(message_of["old-3"]["body_base64"]) == b"\xff\x00"
    assert message_of["old-4"]["body"] == {"spaced": 1}
    trace = api.get(f"{topic.path}/messages/{result['id']}/trace").expect(200)["events"]
    assert trace[0]["event"] == "accepted"
    assert trace[0]["detail"] == f"replay {replay_id} of old-1"


def test_i3_what_was_sent_under_a_replay_is_not_sent_again_not_even_after_the_topics_window(
    api: Client, clock: ShiftingClock
) -> None:
    topic = api.topic(dedup_window_seconds=1)
    replay_id, other = replay(topic), replay(topic)
    first = send(api, replay_id, [archived(n) for n in range(5)])
    clock.advance(REPLAY_LIFE.total_seconds() - 3600)
    again = send(api, replay_id, [archived(n) for n in (3, 1, 6)])
    assert [result["duplicate"] for result in again] == [True, True, False]
    assert [result["id"] for result in again[:2]] == [first[3]["id"], first[1]["id"]]
    assert topic.accepted == 6
    assert [result["duplicate"] for result in send(api, other, [archived(3)])] == [False]


def test_a_retry_of_a_message_that_was_replayed_into_one_group_stays_there(
    api: Client, clock: ShiftingClock, background: Background
) -> None:
    topic = api.topic(shards=1)
    one, other = topic.group("one"), topic.group("other")
    send(api, replay(topic, group="one"), [archived(1)])
    one.nack(*one.receive(), delay_seconds=5)
    clock.advance(6)
    background.move()
    [again] = one.receive(wait_seconds=1)
    assert again["attempt"] == 2
    assert other.receive() == []
    assert topic.counts("other").items() >= {"backlog": 0, "in_flight": 0, "dead": 0}.items()


def test_a_replay_tells_how_far_it_is_and_is_over_when_it_is_done(api: Client) -> None:
    topic = api.topic()
    replay_id = replay(topic)
    tell(api, replay_id, state="RUNNING", matched=3).expect(200)
    tell(api, replay_id, state="FAILED", matched=3, sent=1, error="no answer").expect(200)
    view = api.get(f"/v1/replays/{replay_id}").expect(200)
    assert view.items() >= {"state": "FAILED", "matched": 3, "sent": 1, "error": "no answer"}.items()
    send(api, replay_id, [archived(1)])
    tell(api, replay_id, state="RUNNING").expect(200)
    for _ in range(2):
        tell(api, replay_id, state="DONE", matched=3, sent=3).expect(200)
    for again in (
        {"state": "RUNNING"},
        {"state": "FAILED", "matched": 3, "sent": 3},
        {"state": "DONE", "matched": 4},
    ):
        tell(api, replay_id, **again).refused(409, "REPLAY_OVER")
    view = api.get(f"/v1/replays/{replay_id}").expect(200)
    assert view.items() >= {"state": "DONE", "matched": 3, "sent": 3}.items()
    api.post(f"/v1/replays/{replay_id}/messages", {"messages": [archived(2)]}).refused(409, "REPLAY_OVER")
    assert topic.accepted == 1


def test_a_dry_run_and_an_old_replay_take_no_messages(api: Client, clock: ShiftingClock) -> None:
    topic = api.topic()
    dry, old = replay(topic, dry_run=True), replay(topic)
    api.post(f"/v1/replays/{dry}/messages", {"messages": [archived(1)]}).refused(409, "REPLAY_OVER")
    clock.advance(REPLAY_LIFE.total_seconds() + 1)
    api.post(f"/v1/replays/{old}/messages", {"messages": [archived(1)]}).refused(409, "REPLAY_OVER")
    assert topic.accepted == 0


def test_a_replay_into_a_group_that_was_made_anew_takes_no_messages(
    api: Client, clock: ShiftingClock
) -> None:
    topic = api.topic()
    group = topic.group()
    replay_id = replay(topic, group="g")
    send(api, replay_id, [archived(1)])
    api.delete(group.path).expect(204)
    clock.advance(5)  # what servers remember of a group
    body = {"messages": [archived(2)]}
    api.post(f"/v1/replays/{replay_id}/messages", body).refused(404, "GROUP_NOT_FOUND")
    topic.group()
    api.post(f"/v1/replays/{replay_id}/messages", body).refused(409, "REPLAY_OVER")
