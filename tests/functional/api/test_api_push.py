"""Delivery through the HTTP interface, to a subscriber on a real socket."""

from __future__ import annotations

import json
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
import trustme

from chalicelib.delivery.addresses import Rules
from chalicelib.delivery.egress import Egress
from chalicelib.delivery.functions import LocalFunctions
from chalicelib.delivery.sender import Sender
from tests.functional.conftest import ORIGIN
from tests.functional.delivery.receivers import Receiver, public_egress_to
from tests.support.background import Background
from tests.support.http import Client, Group, Topic
from tests.support.receiver import is_signed

OWN_SECRET = "whsec_" + "QUJD" * 11


def subscribe(group: Group, name: str = "c", **fields: Any) -> Any:
    return group.api.put(f"{group.path}/consumers/{name}", fields).expect(201)


def shown(group: Group, name: str = "c") -> Any:
    return group.api.get(f"{group.path}/consumers/{name}").expect(200)


def attempts(receiver: Receiver) -> list[int]:
    return [int(request.headers["headrace-attempt"]) for request in receiver.seen]


def seconds(later: str, earlier: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def test_a_message_arrives_byte_for_byte_and_says_where_it_comes_from(
    api: Client, background: Background, receiver: Receiver
) -> None:
    topic = api.topic(shards=1, priorities=2)
    group = topic.group()
    consumer = subscribe(group, url=receiver.url)
    assert (consumer["state"], consumer["kind"], consumer["url"]) == ("ACTIVE", "url", receiver.url)
    fields = {"keys": ["order-188"], "tag": "paid", "headers": {"Trace-Id": "t-1"}, "priority": 0}
    message = topic.produce({"x": [1, 2.50]}, **fields)
    assert background.push(topic) == {"DONE": 1}
    [request] = receiver.seen
    assert request.body == b'{"x":[1,2.5]}'
    assert (request.method, request.path) == ("POST", "/in?from=headrace")
    expected = {
        "content-type": "application/json",
        "ce-id": message["id"],
        "ce-source": f"/topics/{topic.name}",
        "ce-type": "headrace.message",
        "ce-specversion": "1.0",
        "ce-time": message["accepted_at"],
        "ce-subject": "order-188",
        "webhook-id": message["id"],
        "headrace-topic": topic.name,
        "headrace-group": "g",
        "headrace-shard": "256",
        "headrace-offset": "0",
        "headrace-priority": "0",
        "headrace-attempt": "1",
        "headrace-tag": "paid",
        "trace-id": "t-1",
    }
    assert {name: request.headers.get(name) for name in expected} == expected
    assert is_signed(consumer["secret"], request.headers, request.body)
    assert not is_signed(OWN_SECRET, request.headers, request.body)
    assert group.status_of(message["id"]).items() >= {"status": "SUCCESS", "attempts": 1}.items()
    assert background.push(topic) == {}


def test_what_a_leaving_consumer_leaves_behind_is_pushed_to_the_others_at_once(
    api: Client, background: Background, receiver: Receiver
) -> None:
    topic = api.topic(shards=2)
    group = topic.group(mode="serial")
    subscribe(group, "called", url=receiver.url)
    subscribe(group, "puller")
    topic.produce("of the second shard", shard=1)
    background.push(topic)
    assert not receiver.seen
    background.inbox.asked.clear()
    api.delete(f"{group.path}/consumers/puller").expect(204)
    events = [event for function, event in background.inbox.asked if function == "deliver"]
    assert [(event["group"], event["worker"], event.get("changed")) for event in events] == [
        ("g", 0, True),
        ("g", 1, True),
    ]
    background.push(topic)
    assert attempts(receiver) == [1]


def test_a_subscriber_that_answers_202_may_acknowledge_later(
    api: Client, background: Background, receiver: Receiver
) -> None:
    topic = api.topic(retry={"max_attempts": 3, "ladder": [5]})
    group = topic.group(auto_ack=False, lease_seconds=60)
    subscribe(group, url=receiver.url)
    receiver.status = 202
    message = topic.produce("x")
    assert background.push(topic) == {"DONE": 1}
    assert background.later(topic, 50) == {}
    assert group.status_of(message["id"])["status"] == "RUNNING"
    assert background.later(topic, 11) == {"DONE": 1}
    assert attempts(receiver) == [1, 2]
    settlement = {"group": group.name, "outcome": "success"}
    api.post(f"{topic.path}/messages/{message['id']}/settle", settlement).expect(200)
    assert group.status_of(message["id"])["status"] == "SUCCESS"
    assert background.later(topic, 61) == {}


STATIC = {"Authorization": "Bearer s3cr/et-1", "X_Tenant": 'acme "eu"'}


def test_static_headers_go_with_deliveries_and_tests_and_are_never_shown(
    api: Client, background: Background, receiver: Receiver
) -> None:
    topic = api.topic(retry={"max_attempts": 1, "ladder": [5]})
    group = topic.group()
    consumer = subscribe(group, url=receiver.url, headers=STATIC)
    assert consumer["headers"] == dict.fromkeys(STATIC, "•••")
    subscribe_again = {"url": receiver.url, "reject_statuses": [409, 404]}
    api.put(f"{group.path}/consumers/c", subscribe_again).expect(200)  # they stay
    receiver.status = 500
    receiver.body = (
        b'{"got": "s3cr\\/et-1", "and": "acme \\"eu\\"", "Bearer s3cr/et-1": "acme &quot;eu&quot;"}'
    )
    message = topic.produce("x", headers={"x-tenant": "theirs", "a": "1"})
    assert background.push(topic) == {"FAILED": 1}
    [request] = receiver.seen
    assert (request.headers["authorization"], request.headers["x_tenant"]) == tuple(STATIC.values())
    assert (request.headers.get("x-tenant"), request.headers["a"]) == (None, "1")
    said = group.status_of(message["id"])["answer"]["text"]
    tested = api.post(f"{group.path}/consumers/c/test", {}).expect(200)
    assert receiver.seen[-1].headers["authorization"] == STATIC["Authorization"]
    assert tested["request"]["headers"]["Authorization"] == "•••"
    for text in (said, tested["answer"]["body"]):
        assert "et-1" not in text.replace("acme", "et-1")
        assert "•••" in text
    api.put(f"{group.path}/consumers/c", subscribe_again | {"headers": {}}).expect(200)
    api.post(f"{group.path}/consumers/c/test", {}).expect(200)
    assert "authorization" not in receiver.seen[-1].headers


def test_a_final_status_makes_a_dead_letter_at_once(
    api: Client, background: Background, receiver: Receiver
) -> None:
    topic = api.topic()
    group = topic.group()
    subscribe(group, url=receiver.url, reject_statuses=[404], transform="body.n")
    receiver.status = 500
    topic.produce({"n": 1})
    assert background.push(topic) == {"FAILED": 1}
    since = shown(group)["failing_since_at"]
    topic.produce({"card": 1})
    assert background.push(topic) == {"REFUSED": 1}
    assert shown(group)["failing_since_at"] == since is not None, "what was not sent says nothing of it"
    receiver.status = 404
    topic.produce({"n": 2})
    assert background.push(topic) == {"REFUSED": 1}
    assert shown(group)["failing_since_at"] is None
    letters = api.get(f"{group.path}/dead-letters").expect(200)["items"]
    endings = {(letter["reason"], letter["last_error"]) for letter in letters}
    assert endings == {("REJECTED", "HTTP 404"), ("REJECTED", "transform: the result is null")}


@pytest.mark.parametrize("payload", ["binary", "structured", "batch"])
def test_what_a_transform_makes_is_sent_and_signed_and_what_it_cannot_make_is_a_dead_letter(
    api: Client, background: Background, receiver: Receiver, payload: str
) -> None:
    topic = api.topic(shards=1)
    group = topic.group(payload=payload, batch_size=2 if payload == "batch" else 1)
    consumer = subscribe(group, url=receiver.url, transform="body.n && {n: to_number(body.n), tag: tag}")
    test_body = {"message": {"body": {"n": "7"}, "tag": "paid"}, "dry_run": True}
    preview = api.post(f"{group.path}/consumers/c/test", test_body).expect(200)
    assert (preview["ok"], preview["answer"], receiver.seen) == (True, None, [])
    topic.produce({"n": "7"}, tag="paid")
    topic.produce({"card": "4111"})
    assert background.push(topic) == {"DONE": 1, "REFUSED": 1}
    [request] = receiver.seen
    assert is_signed(consumer["secret"], request.headers, request.body)
    sent = json.loads(request.body)
    sent = sent[0] if payload == "batch" else sent
    assert (sent if payload == "binary" else sent["data"]) == {"n": 7, "tag": "paid"}
    [letter] = api.get(f"{group.path}/dead-letters").expect(200)["items"]
    assert (letter["reason"], letter["last_error"]) == ("REJECTED", "transform: the result is null")
    other = api.post(f"{group.path}/consumers/c/test", test_body | {"transform": "length(body.n)"}).expect(
        200
    )
    assert re.search(r"(^|:)1\W*$", other["request"]["body"])
    wrong = api.post(f"{group.path}/consumers/c/test", test_body | {"transform": "abs(body.n)"}).expect(200)
    assert (wrong["ok"], wrong["detail"]) == (False, "transform: a function got a value of the wrong type")


def test_a_batch_waits_to_be_filled_and_no_run_waits_with_it(
    api: Client, background: Background, receiver: Receiver
) -> None:
    topic = api.topic(shards=1)
    group = topic.group(payload="batch", batch_size=3)
    subscribe(group, url=receiver.url, batch_wait_seconds=20)
    topic.produce(1)
    assert background.push(topic) == {}
    assert background.later(topic, 10) == {}
    topic.produce(2)
    assert background.push(topic) == {}
    background.pass_time(10)
    assert background.run(topic) == {"DONE": 2}, "a timer started the run"
    topic.batch([{"body": n} for n in (3, 4, 5)])
    assert background.push(topic) == {"DONE": 3}
    assert [len(json.loads(request.body)) for request in receiver.seen] == [2, 3]


def test_a_function_is_given_a_batch_and_only_what_it_names_comes_again(
    api: Client, background: Background
) -> None:
    topic = api.topic(shards=1, retry={"ladder": [1], "max_attempts": 2})
    group = topic.group(batch_size=10)
    assert subscribe(group, function="charge").items() >= {"kind": "function", "state": "ACTIVE"}.items()
    bodies = [{"order": 1, "total": 5}, {"order": 2}, {"order": 3, "total": 7}]
    results = topic.batch([{"body": body} for body in bodies])
    assert background.push(topic) == {"DONE": 2, "FAILED": 1}
    statuses = [group.status_of(result["id"]) for result in results]
    assert [status["status"] for status in statuses] == ["SUCCESS", "RETRYING", "SUCCESS"]
    assert statuses[1]["last_error"] == "the function reported it as failed"
    assert background.later(topic, 2) == {"FAILED": 1}
    assert group.status_of(results[1]["id"])["status"] == "DEAD"


def test_a_topic_whose_wake_is_direct_needs_no_stream(
    api: Client, background: Background, receiver: Receiver
) -> None:
    for wake, expected in (("stream", {}), ("direct", {"DONE": 1})):
        topic = api.topic(wake=wake)
        subscribe(topic.group(), url=receiver.url)
        background.run(topic)
        topic.produce("x")
        assert background.run(topic) == expected


def test_a_delivery_that_calls_headrace_is_refused(api: Client) -> None:
    """Our own deliveries carry a header that the API refuses on every path, so messages cannot go in circles."""
    topic = api.topic()
    for path in (f"/v1/publish/{topic.name}", f"{topic.path}/messages"):
        reply = api.call("POST", path, {"body": 1}, headers={"Headrace-Hop": "1"})
        reply.refused(422, "LOOP")
    assert topic.accepted == 0


# The guard, as it is on AWS


@pytest.fixture
def go_out_by(background: Background, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Egress], None]]:
    """Gives the service another way out."""
    egresses: list[Egress] = []

    def go(egress: Egress) -> None:
        egresses.append(egress)
        sender = Sender(
            egress=egress,
            functions=LocalFunctions(None),
            clock=background.clock,
            real_clock=background.clock,
            monotonic=time.monotonic,
            origin=ORIGIN,
        )
        deps = background.deps
        context = replace(deps.dispatcher.context, sender=sender)
        monkeypatch.setitem(vars(deps), "sender", sender)
        monkeypatch.setitem(vars(deps), "dispatcher", replace(deps.dispatcher, context=context))

    yield go
    for egress in egresses:
        egress.close()


def test_a_url_whose_owner_has_not_agreed_is_not_called(
    api: Client, background: Background, receiver: Receiver, go_out_by: Callable[[Egress], None]
) -> None:
    authority, tls = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(tls)
    receiver.secure(authority.issue_cert("hooks.example.com"))
    go_out_by(public_egress_to(receiver, tls))
    topic = api.topic()
    group = topic.group()
    consumer = subscribe(group, url="https://hooks.example.com/in")
    assert (consumer["state"], consumer["why"]) == (
        "PENDING",
        "OPTIONS: HTTP 200 without WebHook-Allowed-Origin for us",
    )
    topic.produce("x")
    assert background.push(topic) == {}
    [request] = receiver.seen
    assert (request.method, request.headers["webhook-request-origin"]) == ("OPTIONS", ORIGIN)
    receiver.headers["WebHook-Allowed-Origin"] = ORIGIN
    again = api.put(f"{group.path}/consumers/c", {"url": "https://hooks.example.com/in"}).expect(200)
    assert (again["state"], again["why"], "secret" in again) == ("ACTIVE", None, False)
    assert background.run(topic) == {"DONE": 1}
    assert is_signed(consumer["secret"], receiver.seen[-1].headers, receiver.seen[-1].body)


def refuse_to_dial(address: str, port: int, seconds: float) -> socket.socket:
    raise AssertionError("nothing may be called")


@pytest.mark.parametrize(
    "target",
    [
        {"url": "http://127.0.0.1:1/"},
        {"url": "https://127.0.0.1/"},
        {"url": "https://[::1]/"},
        {"url": "https://localhost/"},
        {"url": "https://10.0.0.1/"},
        {"url": "https://192.168.0.1/"},
        {"url": "https://169.254.169.254/latest/meta-data/"},
        {"url": "https://[fd00::1]/"},
        {"url": "https://[::ffff:10.0.0.1]/"},
        {"url": "https://2130706433/"},
        {"url": "https://inside.example.com/"},
        {"url": "https://nowhere.example.com/"},
        {"url": f"https://{ORIGIN}/v1/publish/x"},
        {"url": "http://hooks.example.com/"},
        {"url": "https://hooks.example.com:8443/"},
        {"url": "https://user:secret@hooks.example.com/"},
        {"url": "https://hooks.example.com/#here"},
        {"url": "ftp://hooks.example.com/"},
        {"url": ""},
        {"function": "nobody"},
        {"function": ""},
    ],
    ids=lambda target: " ".join(target.values()),
)
def test_what_must_not_be_called_cannot_be_registered(
    api: Client, go_out_by: Callable[[Egress], None], target: dict[str, str]
) -> None:
    names = {"hooks.example.com": ("93.184.216.34",), "inside.example.com": ("93.184.216.34", "10.0.0.5")}
    rules = Rules(own_hosts=frozenset({ORIGIN}))
    go_out_by(
        Egress(
            rules=rules,
            monotonic=time.monotonic,
            resolve=lambda host: names.get(host, ()),
            dial=refuse_to_dial,
        )
    )
    group = api.topic().group()
    reply = api.put(f"{group.path}/consumers/c", target)
    reply.refused(422, "TARGET_REFUSED")
    assert not any(value and value in reply.raw.decode() for value in target.values())
    api.get(f"{group.path}/consumers/c").refused(404, "CONSUMER_NOT_FOUND")


def callback(receiver: Receiver, path: str = "/in") -> str:
    return f"http://127.0.0.1:{receiver.port}{path}"


def with_callbacks(topic: Topic, *hosts: str, **settings: Any) -> tuple[Group, Any]:
    group = topic.group(**settings)
    return group, topic.api.put(group.path, {"callbacks": {"hosts": [*hosts]}}).expect(200)


@pytest.mark.parametrize("mode", ["queue", "serial"])
def test_a_message_goes_to_its_own_url_and_others_to_the_consumers(
    api: Client, background: Background, receiver: Receiver, mode: str
) -> None:
    topic = api.topic(shards=1)
    group, stored = with_callbacks(topic, "127.0.0.1", mode=mode)
    secret = stored["callback_secrets"]["127.0.0.1"]
    pulled = topic.produce("pulled", ordering_key="a")
    first = topic.produce(1, callback_url=callback(receiver, "/jobs/1"), ordering_key="b")
    late = topic.produce(2, callback_url=callback(receiver, "/jobs/2"), delay_seconds=60)
    assert background.push(topic) == {"DONE": 1}, "without any consumer"
    background.later(topic, 60)
    assert {request.path: request.body for request in receiver.seen} == {"/jobs/1": b"1", "/jobs/2": b"2"}
    assert all(is_signed(secret, request.headers, request.body) for request in receiver.seen)
    [left] = group.receive()
    assert left["id"] == pulled["id"], "the rest is left to who pulls"
    group.ack(left)
    for message in (first, late):
        delivered = api.get(f"{topic.path}/messages/{message['id']}/trace").expect(200)["events"][-1]
        assert (delivered["outcome"], delivered["consumer"]) == ("SUCCESS", "127.0.0.1")
    own = subscribe(group, url=receiver.url)["secret"]
    topic.produce("plain")
    topic.produce(3, callback_url=callback(receiver, "/jobs/3"))
    background.later(topic, 60)
    by_path = {request.path: request for request in receiver.seen[2:]}
    assert is_signed(own, by_path["/in?from=headrace"].headers, b'"plain"')
    assert is_signed(secret, by_path["/jobs/3"].headers, b"3")
    assert not is_signed(own, by_path["/jobs/3"].headers, b"3")


def test_each_way_in_takes_a_callback_url_that_a_group_allows(
    api: Client, background: Background, receiver: Receiver
) -> None:
    topic = api.topic(shards=1)
    url = callback(receiver)
    body = {"body": 1, "callback_url": url}
    schedule, job = f"/v1/schedules/{topic.name}", f"{topic.path}/jobs/j"
    timing = {"topic": topic.name, "every_seconds": 60}
    calls: list[Callable[[], Any]] = [
        lambda: api.post(f"{topic.path}/messages", body),
        lambda: api.post(f"{topic.path}/transactions", {"message": body}),
        lambda: api.put(job, {**body, "delay_seconds": 60}),
        lambda: api.put(schedule, {**timing, "message": body}),
        lambda: topic.publish(b"1", **{"Headrace-Callback-Url": url}),
    ]
    for made in calls:
        assert "127.0.0.1" in made().refused(422, "CALLBACK_REFUSED")["detail"]
    assert topic.batch([body, {"body": 2}])[0]["error"]["code"] == "CALLBACK_REFUSED"
    with_callbacks(topic, "127.0.0.1")
    stored = [made().json for made in calls]
    api.post(f"/v1/transactions/{stored[1]['transaction_id']}/commit").expect(200)
    assert topic.batch([body])[0]["status"] == "NEW"
    api.put(job, {**body, "callback_url": callback(receiver, "/again"), "delay_seconds": 60}).expect(200)
    background.later(topic, 61)
    assert sorted(request.path for request in receiver.seen) == ["/again", *["/in"] * 5]
    assert api.get(schedule).expect(200)["message"]["callback_url"] == url
    for wrong in ("ftp://a.example/", "http://a.example/"):
        api.post(f"{topic.path}/messages", {"body": 1, "callback_url": wrong}).refused(400, "VALIDATION")


def test_a_host_has_its_own_retries_and_circuit_and_a_dead_letter_where_it_may_be_called_no_more(
    api: Client, background: Background, receiver: Receiver
) -> None:
    topic = api.topic(shards=1, retry={"max_attempts": 2, "ladder": [60], "jitter": 0})
    group, _ = with_callbacks(topic, "127.0.0.1", "localhost")
    receiver.status, receiver.body = 500, b"out of order"
    receiver.headers["Content-Type"] = "text/plain"
    message = topic.produce("fails", callback_url=callback(receiver))
    background.push(topic)
    background.later(topic, 61)
    [letter] = api.get(f"{group.path}/dead-letters").expect(200)["items"]
    assert (letter["id"], letter["last_error"]) == (message["id"], "HTTP 500")
    assert (letter["answer"]["text"], letter["callback_url"]) == ("out of order", callback(receiver))
    receiver.status = 503
    for _ in range(12):
        topic.produce("down", callback_url=callback(receiver))
    background.push(topic)
    asked = len(receiver.seen)
    later = topic.produce("held", callback_url=callback(receiver))
    good = topic.produce("another host", callback_url=callback(receiver).replace("127.0.0.1", "localhost"))
    receiver.status = 200
    background.push(topic)
    assert [request.body for request in receiver.seen[asked:]] == [b'"another host"'], "the circuit is open"
    assert group.status_of(later["id"])["attempts"] == 0
    assert group.status_of(good["id"])["status"] == "SUCCESS"
    api.put(group.path, {"callbacks": {"hosts": ["other.example.com"]}}).expect(200)
    background.later(topic, 3600)
    assert group.status_of(later["id"]).items() >= {"status": "DEAD", "reason": "REJECTED"}.items()
    assert "no group allows calls to '127.0.0.1'" in group.status_of(later["id"])["last_error"]


def test_a_new_secret_signs_callbacks_beside_the_old_one(
    api: Client, background: Background, receiver: Receiver
) -> None:
    topic = api.topic()
    group, stored = with_callbacks(topic, "127.0.0.1", "a.example.com")
    old = stored["callback_secrets"]
    assert api.put(group.path, {"callbacks": stored["callbacks"]}).expect(200)["callback_secrets"] == old
    new = api.post(f"{group.path}/rotate-secret", {"overlap_seconds": 60}).expect(200)["callback_secrets"]
    assert len({*old.values(), *new.values()}) == 4
    for seconds_later, signs in ((0, [True, True]), (61, [False, True])):
        topic.produce(1, callback_url=callback(receiver))
        background.later(topic, seconds_later)
        headers = receiver.seen[-1].headers
        assert [is_signed(each["127.0.0.1"], headers, b"1") for each in (old, new)] == signs
    assert "callback_secrets" not in api.get(group.path).expect(200)
    api.post(f"{topic.group('plain').path}/rotate-secret", {}).refused(422, "NO_SECRET")
    everyone = topic.group("everyone", mode="broadcast")
    api.put(everyone.path, {"callbacks": stored["callbacks"]}).refused(422, "WRONG_MODE")
    for host in ("A.example.com", "a.example.com:443", "https://a.example.com", ""):
        api.put(group.path, {"callbacks": {"hosts": [host]}}).refused(400, "VALIDATION")
