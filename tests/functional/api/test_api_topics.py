"""Topics over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.ports.world import Units
from chalicelib.services.core.budgets import Budgets
from tests.support import settings
from tests.support.background import Background
from tests.support.http import Client, Reply, Topic

DEFAULTS = {row.name: row.default for row in settings.TOPIC} | {
    "redact": [],
    "retry": {"max_attempts": 16, "ladder": "rocketmq", "jitter": 0.1},
}


def test_a_new_topic_has_the_documented_defaults(api: Client) -> None:
    topic = api.put("/v1/topics/with-defaults").expect(201)
    assert {name: topic[name] for name in DEFAULTS} == DEFAULTS
    assert topic["topic"] == "with-defaults"
    assert topic.keys() == {*DEFAULTS, "topic", "created_at"}


def test_a_topic_needs_no_body_at_all(api: Client) -> None:
    api.call("PUT", "/v1/topics/no-body").expect(201)


def test_creating_a_topic_twice_changes_nothing(api: Client) -> None:
    first = api.put("/v1/topics/twice", {"shards": 3, "lease_seconds": 9}).expect(201)
    assert api.put("/v1/topics/twice", {"shards": 3, "lease_seconds": 9}).expect(200) == first
    assert api.put("/v1/topics/twice").expect(200) == first


@pytest.mark.parametrize(
    ("setting", "value"),
    [(row.name, value) for row in settings.TOPIC for value in settings.values(row)],
)
def test_a_setting_that_is_given_is_kept_and_shown(api: Client, setting: str, value: Any) -> None:
    path = f"/v1/topics/set-{setting}-{value}"
    api.put(path, {setting: value}).expect(201)
    view = api.get(path).expect(200)
    shards = {"shards": 1} if value == "serial" else {}
    assert {name: view[name] for name in DEFAULTS} == {**DEFAULTS, **shards, setting: value}


def test_growing_shows_where_keys_stay(api: Client) -> None:
    topic = api.topic(shards=2)
    view = api.put(topic.path, {"shards": 6}).expect(200)
    assert (view["shards"], view["key_shards"]) == (6, 2)
    assert api.get(topic.path).expect(200)["key_shards"] == 2
    assert api.put(topic.path, {"key_shards": 1}).expect(409)["code"] == "SHARDS_CANNOT_SHRINK"
    assert api.put(topic.path, {"key_shards": 7}).expect(422)["code"] == "NO_SUCH_SHARD"
    assert "key_shards" not in api.put(topic.path, {"key_shards": 6}).expect(200)


def test_a_change_keeps_the_settings_that_are_not_given(api: Client) -> None:
    topic = api.topic(lease_seconds=7, retry={"max_attempts": 3})
    view = api.put(topic.path, {"retry": {"jitter": 0}}).expect(200)
    assert view["lease_seconds"] == 7
    assert view["retry"] == {"max_attempts": 3, "ladder": "rocketmq", "jitter": 0}
    view = api.put(topic.path, {"retry": {"steps_from": "start"}}).expect(200)
    assert view["retry"] == {"max_attempts": 3, "ladder": "rocketmq", "jitter": 0, "steps_from": "start"}
    assert api.get(topic.path).expect(200)["retry"] == view["retry"]


def test_a_retention_may_be_hours_and_a_whole_number_stays_one(api: Client) -> None:
    topic = api.topic(retention_days=0.25)
    assert api.get(topic.path).expect(200)["retention_days"] == 0.25
    assert b'"retention_days":2,' in api.put(topic.path, {"retention_days": 2.0}).raw


def test_a_ladder_may_be_a_list_of_seconds_or_a_formula(api: Client) -> None:
    by_list = api.put("/v1/topics/ladder-list", {"retry": {"ladder": [1, 5, 9]}}).expect(201)
    assert by_list["retry"]["ladder"] == [1, 5, 9]
    formula = {"ladder": "exponential", "base_seconds": 2, "factor": 3, "cap_seconds": 60}
    by_formula = api.put("/v1/topics/ladder-formula", {"retry": formula}).expect(201)
    assert by_formula["retry"].items() >= formula.items()


def test_whoever_names_fixed_30_has_three_retries_unless_a_number_is_given(api: Client) -> None:
    topic = api.topic(retry={"ladder": "fixed-30"})
    assert api.get(topic.path).expect(200)["retry"]["max_attempts"] == 4
    group = api.put(f"{topic.path}/groups/g", {"retry": {"ladder": "fixed-30", "max_attempts": 7}}).expect(
        201
    )
    assert group["retry"]["max_attempts"] == 7
    view = api.put(f"{topic.path}/groups/g", {"retry": {"jitter": 0}}).expect(200)
    assert view["retry"] == {**group["retry"], "jitter": 0}
    topic_view = api.put(topic.path, {"retry": {"max_attempts": 9}}).expect(200)
    assert topic_view["retry"].items() >= {"ladder": "fixed-30", "max_attempts": 9}.items()
    assert api.put(topic.path, {"retry": {"ladder": "fixed-30"}}).expect(200) == topic_view


def test_a_setting_can_be_taken_back_with_null(api: Client) -> None:
    topic = api.topic(alarm_backlog=5, rate_limit=5)
    view = api.put(topic.path, {"alarm_backlog": None, "rate_limit": None}).expect(200)
    assert (view["alarm_backlog"], view["rate_limit"]) == (None, None)


def test_shards_grow_and_never_shrink(api: Client) -> None:
    topic = api.topic(shards=2)
    assert api.put(topic.path, {"shards": 5}).expect(200)["shards"] == 5
    api.put(topic.path, {"shards": 4}).refused(409, "SHARDS_CANNOT_SHRINK")
    assert api.get(topic.path).expect(200)["shards"] == 5


@pytest.mark.parametrize("query", ["", "?confirm=", "?confirm=other", "?confirm=TRUE"])
def test_deleting_a_topic_needs_its_name_again(api: Client, query: str) -> None:
    topic = api.topic()
    api.delete(topic.path + query).refused(400, "CONFIRM_MISSING")
    api.get(topic.path).expect(200)


def test_a_deleted_topic_is_gone_with_all_that_was_below_it(api: Client) -> None:
    topic = api.topic()
    topic.group()
    message = topic.produce("x")
    assert api.delete(f"{topic.path}?confirm={topic.name}").expect(204) is None
    for path in ("", "/groups/g", f"/messages/{message['id']}", "/messages", "/groups"):
        api.get(topic.path + path).refused(404, "TOPIC_NOT_FOUND")
    api.post(f"{topic.path}/messages", {"body": 1}).refused(404, "TOPIC_NOT_FOUND")
    api.delete(f"{topic.path}?confirm={topic.name}").refused(404, "TOPIC_NOT_FOUND")


def test_stats_count_what_was_accepted_and_where_each_group_stands(api: Client) -> None:
    topic = api.topic()
    group = topic.group()
    topic.batch([{"body": n} for n in range(10)])
    first, second, third, *_ = group.receive(4)
    group.ack(first)
    group.nack(second)
    group.nack(third, dead_letter=True)
    assert topic.accepted == 10
    counts = topic.counts()
    assert (counts["backlog"], counts["in_flight"], counts["retrying"], counts["dead"]) == (8, 1, 1, 1)
    assert isinstance(counts["oldest_age_seconds"], int)


def test_names_that_begin_alike_are_different_topics(api: Client) -> None:
    names = ["alike", "alike.", "alike-1", "alike_", "alike.a", "Alike", "alike0"]
    for name in names:
        api.put(f"/v1/topics/{name}").expect(201)
        api.put(f"/v1/topics/{name}/groups/{name}", {"from": "earliest"}).expect(201)
        api.post(f"/v1/topics/{name}/messages", {"body": name}).expect(201)
    for name in names:
        messages = api.post(f"/v1/topics/{name}/groups/{name}/receive", {"max": 99}).expect(200)["messages"]
        assert [m["body"] for m in messages] == [name]
    api.delete("/v1/topics/alike?confirm=alike").expect(204)
    for name in names[1:]:
        assert api.get(f"/v1/topics/{name}").expect(200)["stats"]["accepted"] == 1


def units(reply: Reply) -> str:
    return {name.lower(): value for name, value in reply.headers.items()}["headrace-units"]


def test_each_answer_says_what_it_cost(api: Client) -> None:
    topic = api.topic(shards=1)
    topic.group()
    produce = {"body": "x"}
    api.post(f"{topic.path}/messages", produce).expect(201)
    assert units(api.post(f"{topic.path}/messages", produce)) == "w=1 r=0"
    assert units(api.post(f"{topic.path}/messages", {"body": "x" * 3000, "dedup_id": "d"})) == "w=4 r=0"
    first, second = (api.post(f"{topic.path}/groups/g/receive", {"max": 1}) for _ in range(2))
    assert units(second) in ("w=1 r=0.5", "w=1 r=1"), "the retry lane is looked at now and then"
    ack = api.post(f"{topic.path}/groups/g/ack", {"receipts": [first.json["messages"][0]["receipt"]]})
    assert units(ack) == "w=2 r=0", "the cursor, and the trace"
    assert units(api.post(f"{topic.path}/messages", {"body": 1, "shard": 9})) == "w=0 r=1"


def test_a_spent_budget_refuses_new_messages_alone(api: Client, services: Background) -> None:
    topic = api.topic(shards=1, budget_usd=0.5, on_budget="refuse")
    group, path = topic.group(), f"{topic.path}/messages"
    topic.batch([{"body": n} for n in range(3)])
    topic.produce("later", delay_seconds=60)
    services.spend(topic, 0.5)
    services.clock.advance(61)
    refused = api.post(path, {"body": 1})
    refused.refused(429, "BUDGET_SPENT")
    assert 1 <= int(refused.headers["Retry-After"]) <= 86_400
    assert "0.5" not in refused.json["detail"], "a producer sees no amounts"
    assert topic.batch([{"body": 1}])[0]["error"]["code"] == "BUDGET_SPENT"
    topic.publish(b"x").refused(429, "BUDGET_SPENT")
    api.post(f"{topic.path}/transactions", {"message": {"body": 1}}).refused(429, "BUDGET_SPENT")
    first, second, third = group.receive()
    assert group.ack(first) == ["ok"]
    assert group.nack(second, dead_letter=True) == ["ok"]
    assert group.nack(third) == ["ok"]
    assert (
        api.post(f"{group.path}/dead-letters/redrive", {"ids": [second["id"]]}).expect(200)["redriven"] == 1
    )
    services.deps.mover.run_once()
    assert topic.accepted == 4, "what was accepted before is moved"
    api.put(topic.path, {"budget_usd": None}).expect(200)
    topic.produce(1)


def test_a_budget_that_warns_refuses_nothing_and_amounts_are_for_admins(
    api: Client, services: Background
) -> None:
    topic = api.topic(budget_usd=0.5)
    services.spend(topic, 0.75)
    topic.produce(1)
    for scopes in (("admin", "consume"), ("produce", "consume")):
        token = api.with_token(api.new_token(*scopes, topics=[topic.name])["token"])
        for path in (topic.path, "/v1/topics", "/v1/stats"):
            text = token.get(path).raw.decode()
            assert ("spent_usd" in text, '"budget_usd":0.5' in text) == (
                "admin" in scopes,
                "admin" in scopes and "stats" not in path,
            )
    assert topic.api.get(topic.path).expect(200)["stats"]["spent_usd"] == pytest.approx(0.75, abs=1e-4)


def test_spending_is_written_once_a_minute_and_process_and_begins_again_each_month(
    services: Background, api: Client
) -> None:
    topic, clock = api.topic(budget_usd=5), services.clock
    processes = [
        Budgets(
            token_buckets=services.deps.adapters.token_buckets, catalog=services.deps.catalog, clock=clock
        )
        for _ in range(2)
    ]
    stored = services.deps.catalog.topic(topic.name)
    with clock.stopped():
        for each in processes:
            with services.deps.adapters.units() as cost:
                for _ in range(1_000):
                    each.note(topic.name, Units(reads=1, writes=2), calls=1)
            assert cost.writes == 1
        a_call = 3_700e-9 + 2 * 625e-9 + 125e-9
        assert [each.spent_usd(stored) for each in processes] == pytest.approx(
            [1_000 * a_call, 1_001 * a_call]
        )
        clock.advance(61)
        assert [each.spent_usd(stored) for each in processes] == pytest.approx(
            [1_001 * a_call, 2_000 * a_call]
        )
        clock.advance(32 * 86_400)
        assert processes[0].spent_usd(stored) == 0


def test_a_priority_comes_with_a_message_on_every_way_and_a_token_may_be_limited_to_the_less_urgent(
    api: Client, services: Background
) -> None:
    topic = api.topic(priorities=3)
    group = topic.group()

    def sends(api: Client, name: str) -> list[Reply]:
        message = {"body": name, "priority": 0}
        schedule = {"topic": topic.name, "message": message, "every_seconds": 3600}
        return [
            api.post(f"{topic.path}/messages", message),
            Topic(api, topic.name).publish(b"", headrace_priority="0"),
            api.put(f"{topic.path}/jobs/{name}", {**message, "delay_seconds": 1}),
            api.post(f"{topic.path}/transactions", {"message": message}),
            api.put(f"/v1/schedules/{topic.name}-{name}", schedule),
            api.post(f"{topic.path}/messages/batch", {"messages": [message]}),
        ]

    limited = api.with_token(api.new_token("admin", "produce", most_urgent=1)["token"])
    child = api.with_token(limited.new_token("produce")["token"])
    limited.post("/v1/tokens", {"name": "t", "scopes": ["produce"], "most_urgent": 0}).refused(
        403, "TOO_MUCH"
    )
    for who in (limited, child):
        *singles, batch = sends(who, "refused")
        for reply in singles:
            reply.refused(403, "PRIORITY_FORBIDDEN")
        assert batch.json["results"][0]["error"]["code"] == "PRIORITY_FORBIDDEN"
        who.post(f"{topic.path}/messages", {"body": 0, "shard": 512}).refused(422, "NO_SUCH_SHARD")
        who.post(f"{topic.path}/messages", {"body": "last"}).expect(201)
        who.post(f"{topic.path}/messages", {"body": "middle", "priority": 1}).expect(201)
    transaction = sends(api, "urgent")[3].expect(201)["transaction_id"]
    api.post(f"/v1/transactions/{transaction}/commit").expect(200)
    api.post(f"/v1/schedules/{topic.name}-urgent/run").expect(201)
    services.pass_time(2)
    messages = group.receive(100)
    assert [message.get("priority") for message in messages] == [*[0] * 6, 1, 1, None, None]
    assert api.get(f"{topic.path}/messages/{messages[0]['id']}").expect(200)["priority"] == 0
    topic.publish(b"x", headrace_priority="high").refused(400, "VALIDATION")
    api.post(f"{topic.path}/messages", {"body": 1, "priority": 3}).refused(422, "NO_SUCH_PRIORITY")
    serial = {"body": 1, "priority": 0, "ordering_key": "k"}
    api.post(f"{api.topic(mode='serial', priorities=2).path}/messages", serial).refused(422, "WRONG_MODE")
