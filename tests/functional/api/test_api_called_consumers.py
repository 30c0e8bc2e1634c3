"""Registering consumers that are called: what is refused, who must agree first, which secret signs."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from chalicelib import wiring
from chalicelib.domain.breaker import Health
from chalicelib.domain.call_result import CallResult, Exchange, PushBatch, Verdict
from chalicelib.domain.times import DAY_MS, SECOND_MS
from chalicelib.domain.topic import Consumer
from chalicelib.domain.transaction import CheckAnswer, Transaction
from tests.support.http import Client, Group, ShiftingClock

HOOK = "https://example.com/hook"
ARN = "arn:aws:lambda:eu-west-1:123456789012:function:f"


@dataclass
class World:
    """ports.Sender to a world in which owners agree or do not."""

    agrees: bool = True
    greeted: list[str] = field(default_factory=list)

    def send(self, consumer: Consumer, push_batch: PushBatch, seconds: float) -> tuple[CallResult, ...]:
        raise AssertionError("nothing is sent by registering")

    def refusal(self, kind: str, target: str) -> str | None:
        return None

    def ask(self, transaction: Transaction, secrets: Sequence[bytes], seconds: float) -> CheckAnswer:
        raise AssertionError("nobody is asked by registering")

    def greet(self, url: str) -> CallResult:
        self.greeted.append(url)
        return CallResult(Verdict.DONE) if self.agrees else CallResult(Verdict.FAILED, "no consent")

    def ping(
        self, consumer: Consumer, id: str, seconds: float, push_batch: PushBatch | None = None
    ) -> Exchange:
        raise AssertionError("nobody is tested here")


@pytest.fixture
def world(api: Client, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setitem(vars(wiring.deps()), "sender", world)
    return world


@pytest.fixture
def group(api: Client, world: World) -> Group:
    return api.topic(shards=2).group()


def put(group: Group, **fields: Any) -> Any:
    return group.api.put(f"{group.path}/consumers/c", fields)


def shown(group: Group) -> Any:
    return group.api.get(f"{group.path}/consumers/c").expect(200)


def raw(secret: str) -> bytes:
    assert secret.startswith("whsec_")
    return base64.b64decode(secret.removeprefix("whsec_"), validate=True)


def test_a_url_whose_owner_agrees_is_active_and_its_secret_is_shown_once(group: Group, world: World) -> None:
    consumer = put(group, url=HOOK).expect(201)
    assert world.greeted == [HOOK]
    assert len(raw(consumer.pop("secret"))) == 32
    assert consumer == shown(group) == put(group, url=HOOK).expect(200)
    assert consumer.items() >= {"kind": "url", "url": HOOK, "state": "ACTIVE", "why": None, "rank": 0}.items()
    assert consumer["shards"] == [0, 1]
    assert {
        name: consumer[name] for name in ("breaker", "failing_since_at", "disables_at", "open_until_at")
    } == {
        "breaker": "closed",
        "failing_since_at": None,
        "disables_at": None,
        "open_until_at": None,
    }
    [entry] = group.api.get(f"{group.path}/consumers").expect(200)["items"]
    assert entry == consumer


def test_a_url_whose_owner_does_not_agree_is_pending_and_says_why(group: Group, world: World) -> None:
    world.agrees = False
    consumer = put(group, url=HOOK).expect(201)
    assert (consumer["state"], consumer["why"], consumer["rank"], consumer["shards"]) == (
        "PENDING",
        "no consent",
        None,
        [],
    )
    assert "secret" in consumer
    assignment = group.api.get(f"{group.path}/assignment").expect(200)
    assert assignment["offline"] == [
        {"consumer": "c", "kind": "url", "state": "PENDING", "why": "PENDING: no consent"}
    ]
    world.agrees = True
    again = put(group, url=HOOK).expect(200)
    assert (again["state"], again["why"], "secret" in again) == ("ACTIVE", None, False)


def test_a_function_is_active_at_once_and_has_no_secret(group: Group, world: World) -> None:
    consumer = put(group, function=ARN).expect(201)
    assert consumer.items() >= {"kind": "function", "function": ARN, "state": "ACTIVE"}.items()
    assert "secret" not in consumer
    assert world.greeted == []
    group.api.post(f"{group.path}/consumers/c/rotate-secret").refused(422, "NO_SECRET")


def test_a_consumer_may_become_one_that_pulls(group: Group) -> None:
    put(group, url=HOOK).expect(201)
    consumer = put(group).expect(200)
    assert consumer["kind"] == "pull"
    assert consumer.keys().isdisjoint({"url", "secret", "breaker"})
    group.api.post(f"{group.path}/consumers/c/rotate-secret").refused(422, "NO_SECRET")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"url": HOOK, "function": ARN}, "TARGET_AMBIGUOUS"),
        ({"secret": "whsec_" + "A" * 44}, "SECRET_NEEDS_URL"),
        ({"function": ARN, "secret": "whsec_" + "A" * 44}, "SECRET_NEEDS_URL"),
        ({"timeout_seconds": 9}, "PUSH_NEEDED"),
        ({"batch_wait_seconds": 9}, "PUSH_NEEDED"),
        ({"function": ARN, "headers": {"X-Api-Key": "k"}}, "URL_NEEDED"),
        ({"function": ARN, "transform": "body"}, "URL_NEEDED"),
        ({"reject_statuses": [404]}, "URL_NEEDED"),
        ({"url": HOOK, "transform": "nope(body)"}, "INVALID_TRANSFORM"),
        ({"url": HOOK, "transform": "|".join(["[@,@]"] * 22)}, "INVALID_TRANSFORM"),
        ({"url": HOOK, "headers": {"ce_id": "1"}}, "HEADER_RESERVED"),
        ({"url": HOOK, "headers": {"Webhook-Signature": "v1,x"}}, "HEADER_RESERVED"),
    ],
)
def test_one_target_and_a_secret_for_a_url_only(group: Group, fields: dict[str, Any], code: str) -> None:
    put(group, **fields).refused(422, code)
    group.api.get(f"{group.path}/consumers/c").refused(404, "CONSUMER_NOT_FOUND")


@pytest.mark.parametrize("size", [24, 32, 64])
def test_a_secret_of_ones_own_may_have_24_to_64_bytes(group: Group, size: int) -> None:
    secret = "whsec_" + base64.b64encode(bytes(range(size))).decode()
    assert put(group, url=HOOK, secret=secret).expect(201)["secret"] == secret
    assert "secret" not in put(group, url=HOOK, secret=secret).expect(200)


def test_an_unknown_group_is_told_before_anybody_is_called(api: Client, world: World) -> None:
    topic = api.topic()
    api.put(f"{topic.path}/groups/nowhere/consumers/c", {"url": HOOK}).refused(404, "GROUP_NOT_FOUND")
    assert world.greeted == []


def test_a_broken_consumer_shows_its_breaker_and_when_it_will_be_disabled(
    group: Group, clock: ShiftingClock
) -> None:
    put(group, url=HOOK).expect(201)
    deps = wiring.deps()
    topic = deps.catalog.topic(group.topic.name)
    consumer_group = deps.catalog.group(topic, group.name)
    consumer = deps.catalog.consumer(topic, consumer_group, "c")
    now_ms = clock.now_ms()
    health = Health(failing_ms=now_ms - 3 * DAY_MS, open_until_ms=now_ms + 5 * SECOND_MS, times_opened=1)
    deps.registry.set_health(topic, consumer_group, consumer, lambda _: health)
    view = shown(group)
    assert (view["breaker"], view["rank"]) == ("open", None)
    assert view["failing_since_at"] < view["open_until_at"] < view["disables_at"]
    [offline] = group.api.get(f"{group.path}/assignment").expect(200)["offline"]
    assert offline["why"] == f"circuit breaker open until {view['open_until_at']}"
    clock.advance(6)
    assert (shown(group)["breaker"], shown(group)["rank"]) == ("half-open", 0)
    deps.registry.disable(topic, consumer_group, consumer, "it answered 410 Gone")
    disabled_view = shown(group)
    assert (disabled_view["state"], disabled_view["why"]) == ("DISABLED", "it answered 410 Gone")
