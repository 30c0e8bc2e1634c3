"""Transactions over HTTP, with producers on real sockets that are asked what became of them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks import Webhook

import app
from chalicelib import adapters, functions, settings, wiring
from local.gateway import Gateway
from tests.functional.delivery.receivers import Receiver, Request, http_receiver
from tests.support.http import Client, ShiftingClock, Topic
from tests.support.push import Inbox


class Time:
    """The context of an invocation: a minute is left."""

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


class World:
    """One stage whose functions run when a test says so."""

    def __init__(self, deps: wiring.Deps, inbox: Inbox, clock: ShiftingClock) -> None:
        self.deps, self.inbox, self.clock = deps, inbox, clock

    def pass_time(self, seconds: float) -> list[Mapping[str, Any]]:
        """Time passes; then the movers run once, and the checks they start. The checks' reports."""
        self.clock.advance(seconds)
        self.deps.mover.run_once()
        reports: list[Mapping[str, Any]] = []
        while self.inbox.asked:
            function, event = self.inbox.asked.popleft()
            if function == "check":
                reports.append(functions.check(json.loads(json.dumps(event)), Time(), self.deps))
        return reports


@pytest.fixture(scope="module")
def world(engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    environment = {
        "HEADRACE_PREFIX": f"tx{uuid.uuid4().hex[:8]}",
        "HEADRACE_DATA": str(tmp_path_factory.mktemp("data")),
        "HEADRACE_ALLOW_LOOPBACK": "1",
    }
    clock, inbox = ShiftingClock(), Inbox()
    deps = wiring.Deps(adapters.dynamo_adapters(settings.read(environment), clock=clock, invoker=inbox))
    deps.setup()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "deps", lambda: deps)
        yield World(deps, inbox, clock)
    deps.sender.egress.close()  # type: ignore[attr-defined]


@pytest.fixture
def api(world: World) -> Client:
    return Client(Gateway(app.app), world.deps.tokens.create("all", ("produce", "consume", "admin"))[1])


@pytest.fixture
def topic(api: Client) -> Topic:
    name = f"bank-{uuid.uuid4().hex[:8]}"
    api.put(f"/v1/topics/{name}", {"shards": 2}).expect(201)
    return Topic(api, name)


@pytest.fixture
def producer() -> Iterator[Receiver]:
    with http_receiver() as receiver:
        yield receiver


def prepare(topic: Topic, message: Mapping[str, Any] | None = None, **fields: Any) -> Any:
    body = {"message": message or {"body": {"paid": 5}}, **fields}
    return topic.api.post(f"{topic.path}/transactions", body).expect(201)


def path(transaction: Mapping[str, Any], call: str = "") -> str:
    return f"/v1/transactions/{transaction['transaction_id']}{call}"


def state(topic: Topic, transaction: Mapping[str, Any]) -> Any:
    return topic.api.get(path(transaction)).expect(200)


# The interface


def test_a_message_is_prepared_committed_and_received(topic: Topic) -> None:
    group = topic.group()
    transaction = prepare(topic, {"body": {"amount": 5.10}, "keys": ["k"], "tag": "paid"})
    assert transaction.pop("check_secret").startswith("whsec_")
    assert transaction.pop("duplicate") is False
    assert (
        transaction.items() >= {"topic": topic.name, "state": "PREPARED", "offset": None, "checks": 0}.items()
    )
    assert state(topic, transaction) == transaction
    view = topic.api.get(f"{topic.path}/messages/{transaction['message_id']}").expect(200)
    assert view.items() >= {"status": "PREPARED", "offset": None, "body": {"amount": 5.1}}.items()
    assert view["transaction_id"] == transaction["transaction_id"]
    assert group.receive() == []
    assert topic.api.get(f"{topic.path}/messages").expect(200)["items"] == []
    decision = topic.api.post(path(transaction, "/commit")).expect(200)
    assert (decision["state"], decision["message_id"]) == ("COMMITTED", transaction["message_id"])
    assert topic.api.post(path(transaction, "/commit")).expect(200) == decision == state(topic, transaction)
    topic.api.post(path(transaction, "/rollback")).refused(409, "TRANSACTION_DECIDED")
    (claimed_message,) = group.receive()
    assert (claimed_message["id"], claimed_message["shard"], claimed_message["offset"]) == (
        transaction["message_id"],
        decision["shard"],
        decision["offset"],
    )
    assert group.ack(claimed_message) == ["ok"]
    view = topic.api.get(f"{topic.path}/messages/{transaction['message_id']}").expect(200)
    assert view["status"] == "SUCCESS"
    events = topic.api.get(f"{topic.path}/messages/{transaction['message_id']}/trace").expect(200)["events"]
    assert events


def test_a_rollback_frees_the_dedup_id(topic: Topic) -> None:
    message = {"body": 1, "dedup_id": "d"}
    first = prepare(topic, message)
    again = topic.api.post(f"{topic.path}/transactions", {"message": message}).expect(200)
    assert (again["transaction_id"], again["duplicate"]) == (first["transaction_id"], True)
    topic.api.post(path(first, "/rollback")).expect(200)
    assert prepare(topic, message)["transaction_id"] != first["transaction_id"]


def test_a_message_in_a_transaction_is_changed_by_its_transaction_only(topic: Topic) -> None:
    message = f"{topic.path}/messages/{prepare(topic)['message_id']}"
    topic.api.call("PATCH", message, {"body": 1}).refused(409, "IN_TRANSACTION")
    topic.api.delete(message).refused(409, "IN_TRANSACTION")


def test_what_was_rolled_back_is_cancelled_for_whoever_would_change_it(topic: Topic) -> None:
    transaction = prepare(topic)
    topic.api.post(path(transaction, "/rollback")).expect(200)
    message = f"{topic.path}/messages/{transaction['message_id']}"
    topic.api.call("PATCH", message, {"body": 1}).refused(409, "MESSAGE_CANCELLED")
    topic.api.delete(message).expect(204)


def test_i11_a_key_finds_the_message_once_and_shows_what_it_is(topic: Topic) -> None:
    transaction = prepare(topic, {"body": 1, "keys": ["order-7"]})
    url = f"{topic.path}/messages?key=order-7"
    (item,) = topic.api.get(url).expect(200)["items"]
    assert (item["id"], item["status"]) == (transaction["message_id"], "PREPARED")
    assert item["transaction_id"] == transaction["transaction_id"]
    for _ in range(2):
        topic.api.post(path(transaction, "/commit")).expect(200)
    (item,) = topic.api.get(url).expect(200)["items"]
    assert (item["id"], item["status"]) == (transaction["message_id"], "NEW")
    assert item["accepted_at"] == transaction["prepared_at"]


def test_what_is_prepared_is_listed_in_pages_until_it_is_decided(topic: Topic) -> None:
    transactions = [prepare(topic, {"body": n, "tag": "t" if n else "u"}) for n in range(5)]
    url = f"{topic.path}/messages?status=PREPARED"
    items = [item for page in topic.api.pages(url, 2) for item in page]
    assert [item["id"] for item in items] == [each["message_id"] for each in transactions]
    assert [item["body"] for item in items] == list(range(5))
    assert {item["status"] for item in items} == {"PREPARED"}
    assert len(topic.api.get(f"{url}&tag=t").expect(200)["items"]) == 4
    topic.api.post(path(transactions[0], "/commit")).expect(200)
    topic.api.post(path(transactions[1], "/rollback")).expect(200)
    assert len(topic.api.get(url).expect(200)["items"]) == 3
    stats = topic.api.get(topic.path).expect(200)["stats"]
    assert (stats["accepted"], stats["prepared"], stats["delayed"]) == (1, 3, 0)
    topic.api.get(f"{url}&group=g").refused(400, "VALIDATION")


@pytest.mark.parametrize(
    ("body", "at"),
    [
        ({}, "message"),
        ({"message": {}}, "message.body"),
        ({"message": {"body": 1, "delay_secnds": 3}}, "message.delay_secnds"),
        ({"message": {"body": 1, "deliver_at": "soon"}}, "message.deliver_at"),
        ({"message": {"body": 1}, "check_after_seconds": 0}, "check_after_seconds"),
        ({"message": {"body": 1}, "check_after_seconds": 86_401}, "check_after_seconds"),
        ({"message": {"body": 1}, "check_after_seconds": 1.5}, "check_after_seconds"),
        ({"message": {"body": 1}, "check_url": "https://a.example/" + "x" * 2_031}, "check_url"),
        ({"message": {"body": 1}, "checkurl": "https://a.example/"}, "checkurl"),
    ],
)
def test_a_mistake_is_refused_with_its_path(topic: Topic, body: Any, at: str) -> None:
    (issue,) = topic.api.post(f"{topic.path}/transactions", body).refused(400, "VALIDATION")["errors"]
    assert issue["path"] == at
    assert topic.api.get(f"{topic.path}/transactions").expect(200) == {"items": []}


@pytest.mark.parametrize("seconds", [1, 86_400])
def test_the_ends_of_the_time_between_checks(topic: Topic, seconds: int) -> None:
    assert prepare(topic, check_after_seconds=seconds)["check_after_seconds"] == seconds


@pytest.mark.parametrize("url", ["http://10.0.0.1/", "ftp://a.example/", "https://a.example:22/", "nonsense"])
def test_a_check_url_that_may_not_be_called_is_refused_and_not_repeated(topic: Topic, url: str) -> None:
    reply = topic.api.post(f"{topic.path}/transactions", {"message": {"body": 1}, "check_url": url})
    reply.refused(422, "TARGET_REFUSED")
    assert url not in reply.raw.decode()


@pytest.mark.parametrize("id", ["0" * 24, "x", "..", "%00", "0" * 3_000])
def test_an_unknown_transaction_is_404(topic: Topic, id: str) -> None:
    for method, call in (("GET", ""), ("POST", "/commit"), ("POST", "/rollback")):
        answer = topic.api.call(method, f"/v1/transactions/{id}{call}", {} if call else None)
        answer.refused(404)


# The producer is asked


def check_signature(request: Request, secret: str) -> None:
    """By Standard Webhooks' own library; its clock is not the test's."""
    at = datetime.fromtimestamp(int(request.headers["webhook-timestamp"]), UTC)
    signature = Webhook(secret).sign(request.headers["webhook-id"], at, request.body.decode())
    assert request.headers["webhook-signature"] == signature


@pytest.mark.parametrize(("answer", "state_after"), [("commit", "COMMITTED"), ("rollback", "ROLLED_BACK")])
def test_a_producer_that_is_asked_decides(
    topic: Topic, world: World, producer: Receiver, answer: str, state_after: str
) -> None:
    group = topic.group()
    producer.body = json.dumps({"state": answer, "more": 1}).encode()
    message = {"body": 1, "keys": ["transfer-1"]}
    transaction = prepare(topic, message, check_url=producer.url, check_after_seconds=5)
    world.pass_time(4)
    assert producer.seen == []
    world.pass_time(1.1)
    (request,) = producer.seen
    assert (request.method, request.headers["content-type"]) == ("POST", "application/json")
    check_signature(request, transaction["check_secret"])
    assert json.loads(request.body) == {
        "transaction_id": transaction["transaction_id"],
        "topic": topic.name,
        "message_id": transaction["message_id"],
        "keys": ["transfer-1"],
        "checks": 1,
        "prepared_at": transaction["prepared_at"],
    }
    after = state(topic, transaction)
    assert (after["state"], after["checks"], after["last_answer"]) == (state_after, 1, answer)
    world.pass_time(20)
    assert len(producer.seen) == 1
    assert len(group.receive()) == (answer == "commit")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b'{"state": "unknown"}'),
        (200, b'{"state": "COMMIT"}'),
        (200, b'{"state": ["commit"]}'),
        (200, b'["commit"]'),
        (200, b"commit"),
        (200, b'{"state": "rollback", "state": "commit"}'),
        (200, b'{"state": "commit", "why": {"a": 1, "a": 2}}'),
        (200, b""),
        (200, b"\xff\xfe"),
        (200, b"[" * 50_000),
        (200, b'{"state": "commit"' + b" " * 70_000 + b"}"),
        (404, b'{"state": "commit"}'),
        (500, b'{"state": "rollback"}'),
        (302, b'{"state": "commit"}'),
    ],
)
def test_whatever_else_a_producer_says_is_unknown_and_counts(
    topic: Topic, world: World, producer: Receiver, status: int, body: bytes
) -> None:
    producer.status, producer.body = status, body
    transaction = prepare(topic, check_url=producer.url, check_after_seconds=5)
    world.pass_time(5.1)
    after = state(topic, transaction)
    assert (after["state"], after["checks"]) == ("PREPARED", 1)
    assert after["last_answer"] in ("unknown", "the answer is malformed", f"HTTP {status}")
    producer.status, producer.body = 200, b'{"state": "rollback"}'
    world.pass_time(5.1)
    assert state(topic, transaction)["state"] == "ROLLED_BACK"
    first, second = producer.seen
    assert first.headers["webhook-id"] != second.headers["webhook-id"], "else it looks like a replay"


def test_the_secret_is_the_topics(topic: Topic, api: Client) -> None:
    name = f"bank-{uuid.uuid4().hex[:8]}"
    api.put(f"/v1/topics/{name}").expect(201)
    secrets = {prepare(topic)["check_secret"] for _ in range(2)}
    assert len(secrets) == 1
    assert prepare(Topic(api, name))["check_secret"] not in secrets


def test_undecided_transactions_are_asked_again(world: World, topic: Topic, producer: Receiver) -> None:
    producer.body = b'{"state": "unknown"}'
    fields = {"check_url": producer.url, "check_after_seconds": 60}
    transactions = [prepare(topic, {"body": n, "tag": f"t{n}"}, **fields) for n in range(3)]
    for _ in range(16):
        world.pass_time(60)
    assert {state(topic, each)["state"] for each in transactions} == {"UNDECIDED"}
    path_of_call = "/v1/transactions/recheck"
    preview = topic.api.post(path_of_call, {"topic": topic.name, "dry_run": True}).expect(200)
    assert (preview["count"], preview["sample"][0]["error"]) == (3, "unknown")
    body: dict[str, Any] = {"topic": topic.name, "filter": {"tag": "t1"}}
    assert topic.api.post(path_of_call, body).expect(200) == {"rechecked": 1}
    first = topic.api.post(path_of_call, {"topic": topic.name, "limit": 1}).expect(200)
    assert first["rechecked"] == 1
    ids = [each["transaction_id"] for each in transactions]
    assert topic.api.post(path_of_call, {"topic": topic.name, "ids": ids}).expect(200) == {"rechecked": 1}
    assert state(topic, transactions[1])["state"] == "PREPARED"
    producer.body = b'{"state": "commit"}'
    world.pass_time(1)
    assert {state(topic, each)["state"] for each in transactions} == {"COMMITTED"}
    assert topic.api.post(path_of_call, {"filter": {}}).expect(200)["rechecked"] == 0
