"""Being called: what `Webhook` answers to requests, and what `Once` lets through."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from standardwebhooks.webhooks import Webhook as Signer

from headrace import Bury, Headrace, Message, Retries, Retry, once
from headrace.once import Once
from headrace.webhook import Check, Event, SignatureError, Webhook, verify
from headrace.webhook.signing import sign
from headrace.webhook.wsgi import wsgi_app

SECRET = "whsec_c2VjcmV0IG9mIDI0IGJ5dGVzIG9yIG1vcmU="
NOW = 1_795_248_525
SRC = Path(__file__).parents[1] / "src"


def signed_headers(body: bytes, now: float, **headers: str) -> dict[str, str]:
    """The headers of a push, signed by the standard's own library."""
    signature = Signer(SECRET).sign("m-1-2", datetime.fromtimestamp(int(now), timezone.utc), body.decode())
    binary = {
        "content-type": "application/json",
        "ce-id": "m-1-2",
        "ce-source": "/topics/orders",
        "ce-type": "headrace.message",
        "ce-specversion": "1.0",
        "ce-time": "2026-11-21T08:08:44.951Z",
        "ce-subject": "order-188",
        "Headrace-Topic": "orders",
        "Headrace-Group": "shop",
        "Headrace-Shard": "1",
        "Headrace-Offset": "2",
        "Headrace-Attempt": "3",
        "Headrace-Tag": "caf%C3%A9 100%",
        "Headrace-Tenant": "M%C3%BCller",
        "X-Shop": "7",
    }
    stamps = {"webhook-id": "m-1-2", "webhook-timestamp": str(int(now)), "webhook-signature": signature}
    return {**binary, **stamps, **{name.replace("_", "-"): value for name, value in headers.items()}}


def webhook(handler: Callable[..., Any] | None = None, **settings: Any) -> Webhook:
    receiver = Webhook(SECRET, clock=lambda: NOW, **settings)
    if handler:
        receiver.handler(handler)
    return receiver


def test_a_pushed_message_says_where_it_comes_from() -> None:
    events: list[Event] = []
    body = b'{"order":188}'
    assert webhook(events.append).answer("POST", signed_headers(body, NOW), body).status == 204
    (event,) = events
    assert (event.topic, event.group, event.shard, event.offset, event.attempt) == ("orders", "shop", 1, 2, 3)
    assert (event.id, event.key, event.tag, event.tenant) == ("m-1-2", "order-188", "café 100%", "Müller")
    assert event.type == "headrace.message"
    assert event.headers == {"x-shop": "7"}
    assert event.accepted_at == datetime(2026, 11, 21, 8, 8, 44, 951000, timezone.utc)


@pytest.mark.parametrize(
    "kind", [Event, "Event", Message, Message | None, Event | None, bytes, dict, Check, str]
)
def test_a_handler_says_whether_it_wants_the_event_or_a_body(kind: Any) -> None:
    """The event is no type of a body, which would be none for any message; bytes are no value of another type."""
    got: list[Any] = []

    def handle(each: Any) -> None:
        got.append(each)

    handle.__annotations__["each"] = kind
    headers = signed_headers(b"<order/>", NOW, content_type="application/xml")
    status = webhook(handle).answer("POST", headers, b"<order/>").status
    if kind in (dict, Check, str):
        assert (status, got) == (489, [])
    else:
        assert (status, [getattr(each, "body", each) for each in got]) == (204, [b"<order/>"])
        assert type(got[0]) is (bytes if kind is bytes else Event)


def test_a_test_event_is_taken_and_no_handler_sees_it() -> None:
    webhook, events = Webhook(SECRET, clock=lambda: NOW), list[Any]()
    webhook.handler(events.append)
    headers = {**signed_headers(b"{}", NOW), "ce-type": "headrace.test"}
    assert webhook.answer("POST", headers, b"{}").status == 204
    assert webhook.answer("POST", headers, b"{ }").status == 401, "it is verified as any event is"
    assert events == []


def test_structured_and_batch_modes_are_the_same_messages() -> None:
    events: list[Event] = []
    event = {
        "id": "b",
        "source": "/topics/orders",
        "type": "shop.order",
        "specversion": "1.0",
        "time": "2026-11-21T08:08:44.951Z",
        "datacontenttype": "text/plain",
        "data_base64": "aGk=",
        "headraceshard": "5",
        "headraceattempt": "2",
        "shopid": "9",
    }
    for media, document in (("cloudevents", event), ("cloudevents-batch", [event, {**event, "id": "c"}])):
        body = json.dumps(document).encode()
        headers = signed_headers(body, NOW, content_type=f"application/{media}+json; charset=utf-8")
        plain = {n: v for n, v in headers.items() if not n.startswith(("ce-", "Headrace-A", "Headrace-S"))}
        assert webhook(events.append).answer("POST", plain, body).status == 204
    assert [e.id for e in events] == ["b", "b", "c"]
    assert {(e.body, e.type, e.shard, e.attempt, e.attributes["shopid"]) for e in events} == {
        (b"hi", "shop.order", 5, 2, "9")
    }


@pytest.mark.parametrize("body", [b'{"order":', b"", b"caf\xe9", b"[" * 5000])
def test_a_body_that_is_said_to_be_json_and_is_none_is_bytes(body: bytes) -> None:
    """As it is when pulled: the exception made it a dead letter."""
    events: list[Event] = []
    event = {"id": "b", "source": "/topics/orders", "data_base64": base64.b64encode(body).decode()}
    structured = json.dumps({**event, "datacontenttype": "application/json"}).encode()
    for media, sent in (("application/json", body), ("application/cloudevents+json", structured)):
        headers = signed_headers(b"", NOW, content_type=media) | sign(SECRET, "m-1-2", NOW, sent)
        assert webhook(events.append).answer("POST", headers, sent).status == 204
    assert [event.body for event in events] == [body, body]


@pytest.mark.parametrize("kind", ["push", "async push", "consumer"])
def test_the_log_shows_the_handlers_lines_alone(
    kind: str, hr: Headrace, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a send had no answer it showed 90 lines."""

    def handle(message: Message) -> None:
        hr.stop()
        Headrace("http://127.0.0.1:1", "hr_x", retries=Retries(attempts=1)).send("orders", 1)

    async def handle_later(message: Message) -> None:
        handle(message)

    if kind == "consumer":
        hr.send(topic, 1)
        hr.consumer(topic, group="g", wait=1)(handle)
        hr.run(for_seconds=30)
    else:
        hook = webhook(handle if kind == "push" else handle_later)
        assert hook.answer("POST", signed_headers(b"1", NOW), b"1").status == 500
    (exc_info,) = (record.exc_info for record in caplog.records if record.exc_info)
    trace = logging.Formatter().formatException(exc_info).splitlines()
    functions = [line.split(", in ")[1] for line in trace if line.startswith("  File ")]
    assert functions == ["handle_later", "handle"][kind != "async push" :]
    assert "NO_ANSWER" in trace[-1]


def batch_of(count: int) -> tuple[dict[str, str], bytes]:
    """The headers and the body of a request with so many messages: 0, 1 …"""
    event = {"source": "/topics/orders", "type": "headrace.message", "specversion": "1.0"}
    body = json.dumps([{**event, "id": f"m-{n}", "data": n} for n in range(count)]).encode()
    headers = signed_headers(body, NOW, content_type="application/cloudevents-batch+json")
    return {name: value for name, value in headers.items() if not name.startswith("ce-")}, body


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("errors", "status", "after"),
    [
        ((ValueError("x"),), 500, None),
        ((Bury("no such customer"),), 489, None),
        ((Retry("10m"),), 503, "600"),
        ((Retry(),), 503, None),
        ((None, None), 204, None),
        ((None, Bury("no such customer"), None), 500, None),
        ((Bury("no such customer"), KeyError("total")), 500, None),
        ((Bury("no such customer"), Bury("nor this one")), 489, None),
        ((Retry("10m"), None), 500, None),
        ((Retry("10m"), Retry(), Retry("20m")), 503, "1200"),
    ],
)
def test_an_answer_is_for_all_messages_of_its_request(
    errors: Sequence[Exception | None], status: int, after: str | None, is_async: bool
) -> None:
    """By a 489 for one of them, those that were handled would be dead letters."""

    def handle(message: Message) -> None:
        if error := errors[message.body]:
            raise error

    async def handle_later(message: Message) -> None:
        handle(message)

    hook = webhook(handle_later if is_async else handle)
    request = batch_of(len(errors))
    for answer in (hook.answer("POST", *request), asyncio.run(hook.answer_async("POST", *request))):
        assert (answer.status, answer.headers.get("Retry-After")) == (status, after)
        assert answer.body != b"x", "a text of an unexpected error stays here"


def test_signatures_that_are_none_old_or_anothers_are_refused() -> None:
    headers = {n.lower(): v for n, v in signed_headers(b"{}", NOW).items()}
    other_secret = "whsec_" + "b" * 32
    assert verify([other_secret, SECRET], headers, b"{}", NOW) == "m-1-2"
    for secrets, now, request_headers in (
        ([other_secret], NOW, headers),
        ([SECRET], NOW + 301.0, headers),
        ([SECRET], NOW - 301, headers),
        ([SECRET], NOW, {**headers, "webhook-timestamp": "soon"}),
        ([SECRET], NOW + 0.5, {**headers, "webhook-timestamp": "9" * 400}),
        ([SECRET], NOW, {}),
    ):
        with pytest.raises(SignatureError):
            verify(secrets, request_headers, b"{}", now)
    two = {**headers, "webhook-signature": f"v1,bm8= {headers['webhook-signature']} v2,x"}
    assert verify(SECRET, two, b"{}", NOW)
    for tolerance, status in (("10m", 404), (60, 401)):
        hook = Webhook(SECRET, tolerance=tolerance, clock=lambda: NOW + 400.0)
        assert hook.answer("POST", headers, b"{}").status == status


@pytest.mark.parametrize("secrets", ["", "whsec_", [""], [], [SECRET, "whsec_c2hvcnQ="], "hunter2!"])
def test_what_is_no_secret_is_refused(secrets: str | list[str]) -> None:
    """By an empty key everybody can sign."""
    with pytest.raises(ValueError, match="whsec_ and 24 to 64 bytes"):
        Webhook(secrets)


def test_origins_may_be_limited() -> None:
    hook = webhook(origins=["queue.example.com"])
    request = {"WebHook-Request-Origin": "queue.example.com"}
    assert hook.answer("OPTIONS", request, b"").headers["WebHook-Allowed-Origin"] == "queue.example.com"
    refusal = hook.answer("OPTIONS", {"WebHook-Request-Origin": "evil.example"}, b"")
    assert refusal.status == 403
    assert "WebHook-Allowed-Origin" not in refusal.headers


def test_a_check_is_answered_with_what_the_handler_says() -> None:
    hook = webhook()
    body = json.dumps({"transaction_id": "t", "topic": "payments", "checks": 2}).encode()
    headers = {n: v for n, v in signed_headers(body, NOW).items() if not n.startswith("ce-")}
    assert hook.answer("POST", headers, body).status == 404
    for answer, state in (("commit", "commit"), ("nonsense", "unknown")):
        hook.check(lambda check, says=answer: says if check.checks == 2 else "rollback")
        assert json.loads(hook.answer("POST", headers, body).body) == {"state": state}

    def fails(check: Check) -> str:
        raise OSError("the database is away")

    hook.check(fails)
    assert json.loads(hook.answer("POST", headers, body).body) == {"state": "unknown"}

    async def decides(check: Check) -> str:
        return "commit"

    with pytest.raises(TypeError, match="with `def`"):
        hook.check(decides)


def test_what_an_async_handler_fails_to_handle_is_not_taken_for_handled(tmp_path: Path) -> None:
    middleware, attempts = Once(tmp_path / "handled"), list[Message]()

    async def handle(message: Message) -> None:
        attempts.append(message)
        if len(attempts) == 1:
            raise OSError

    hook = webhook(handle, middleware=[middleware])
    answers = [hook.answer("POST", signed_headers(b"1", NOW), b"1").status for _ in range(3)]
    assert (answers, len(attempts)) == ([500, 204, 204], 2)
    middleware.close()


def message_of(id: str) -> Message:
    return cast(Message, SimpleNamespace(id=id, group="mailer"))


def test_of_two_attempts_at_the_same_time_one_waits(tmp_path: Path) -> None:
    now, handled = [1000.0], list[str]()
    first, second = (Once(tmp_path / "handled", clock=lambda: now[0]) for _ in range(2))

    def handle(message: Message) -> None:
        now[0] += 100
        with pytest.raises(Retry) as retry:
            second(message, lambda message: handled.append("at the same time"))
        assert retry.value.delay_seconds == 200, "when the reservation would end by itself"
        handled.append(message.id)

    first(message_of("a"), handle)
    assert second(message_of("a"), lambda message: handled.append("again")) is None
    assert handled == ["a"]
    first.close()
    second.close()


_KILLED = """
import os, sys, types
from headrace.once import Once
Once(sys.argv[1], hold="5m", clock=lambda: 1000.0)(types.SimpleNamespace(id="a", group="mailer"), lambda _: os._exit(9))
"""


def test_what_a_killed_process_had_begun_is_handled_when_its_time_is_over(tmp_path: Path) -> None:
    now, handled = [1299.0], list[Message]()
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, tmp_path / "handled"], env={"PYTHONPATH": str(SRC)}, check=False
    )
    assert killed.returncode == 9
    middleware = Once(tmp_path / "handled", clock=lambda: now[0])
    with pytest.raises(Retry):
        middleware(message_of("a"), handled.append)
    now[0] += 1
    middleware(message_of("a"), handled.append)
    assert len(handled) == 1
    middleware.close()


def test_what_was_handled_is_known_for_as_long_as_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(once, "_FORGET_EVERY", 2)
    now, handled = [1000.0], list[str]()
    middleware = Once(tmp_path / "handled", keep="1m", clock=lambda: now[0])
    for id, seconds in (("a", 60), ("b", 0), ("a", 1), ("c", 0), ("d", 0), ("a", 0), ("b", 0)):
        middleware(message_of(id), lambda message: handled.append(message.id))
        now[0] += seconds
    assert handled == ["a", "b", "c", "d", "a"], "forgotten when its minute was over"
    middleware.close()


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_real_push_arrives_and_a_real_check_decides(hr: Headrace, topic: str) -> None:
    events: list[Event] = []
    arrival = threading.Event()
    hr.put_group(topic, "shop", begin="earliest")
    with make_server(
        "127.0.0.1", 0, lambda environ, start: hook(environ, start), handler_class=_Quiet
    ) as server:
        url = f"http://127.0.0.1:{server.server_port}/"
        secret = hr.put_consumer(topic, "shop", "hook", url=url).secret
        tx = hr.prepare(topic, "decided", check_url=url, check_after="1s")
        assert secret is not None
        assert tx.check_secret is not None
        subscriber = Webhook([secret, tx.check_secret])
        subscriber.check(lambda check: "commit" if check.transaction_id == tx.transaction_id else "rollback")

        @subscriber.handler
        def handle(event: Message) -> None:
            assert isinstance(event, Event)
            events.append(event)
            if len(events) == 2:
                arrival.set()

        hook = wsgi_app(subscriber)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        hr.send(topic, {"order": 188}, key="order-188", tag="paid")
        assert arrival.wait(30)
        server.shutdown()
        thread.join()
    assert {json.dumps(e.body) for e in events} == {'{"order": 188}', '"decided"'}
    assert {(e.topic, e.group) for e in events} == {(topic, "shop")}
