"""Being called: each adapter's example in docs/python.md is run, and judged by what it answers to signed requests."""

from __future__ import annotations

import asyncio
import io
import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from wsgiref.simple_server import WSGIRequestHandler, make_server
from wsgiref.validate import validator

import pytest
from standardwebhooks.webhooks import Webhook as Signer

from headrace import Bury, Headrace, Message, Retry, once
from headrace.once import Once
from headrace.webhook import Answer, Check, Event, SignatureError, Webhook, verify
from headrace.webhook.asgi import asgi_app
from headrace.webhook.function import function
from headrace.webhook.wsgi import wsgi_app

SECRET = "whsec_c2VjcmV0IG9mIDI0IGJ5dGVzIG9yIG1vcmU="
NOW = 1_795_248_525
PAGE = (Path(__file__).parents[3] / "docs" / "python.md").read_text()
Call = Callable[[str, Mapping[str, str], bytes], tuple[int, Mapping[str, str], bytes]]


def signed_headers(body: bytes, now: float, secret: str = SECRET, **headers: str) -> dict[str, str]:
    """The headers of a push, signed by the standard's own library."""
    signature = Signer(secret).sign("m-1-2", datetime.fromtimestamp(int(now), timezone.utc), body.decode())
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
        "X-Shop": "7",
    }
    stamps = {"webhook-id": "m-1-2", "webhook-timestamp": str(int(now)), "webhook-signature": signature}
    return {**binary, **stamps, **{name.replace("_", "-"): value for name, value in headers.items()}}


def of_wsgi(app: Any) -> Call:
    def call(method: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        variables = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
        environ = {
            "REQUEST_METHOD": method,
            "PATH_INFO": "/",
            "SCRIPT_NAME": "",
            "QUERY_STRING": "",
            "SERVER_NAME": "testserver",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.errors": io.StringIO(),
            "wsgi.multithread": False,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            "CONTENT_TYPE": variables.pop("HTTP_CONTENT_TYPE", ""),
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": io.BytesIO(body),
            **variables,
        }
        response: list[Any] = []
        parts = app(
            environ, lambda status, headers_sent, exc_info=None: response.extend([status, headers_sent])
        )
        answer = b"".join(parts)
        getattr(parts, "close", lambda: None)()
        return int(response[0].split()[0]), {n.lower(): v for n, v in response[1]}, answer

    return call


def of_asgi(app: Any) -> Call:
    def call(method: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        incoming = [
            {"type": "http.request", "body": body[:3], "more_body": True},
            {"type": "http.request", "body": body[3:]},
        ]
        asgi_messages: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return incoming.pop(0)

        async def send(message: dict[str, Any]) -> None:
            asgi_messages.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": "/",
            "headers": [(n.lower().encode(), v.encode()) for n, v in headers.items()],
        }
        asyncio.run(app(scope, receive, send))
        fields = {n.decode(): v.decode() for n, v in asgi_messages[0]["headers"]}
        return asgi_messages[0]["status"], fields, asgi_messages[1]["body"]

    return call


def example(title: str) -> dict[str, Any]:
    """The names that a section's example defines."""
    section = PAGE.split(f"### {title}\n", 1)[1].split("\n#", 1)[0]
    block = re.search(r"```python\n(.*?)```", section, re.S)
    assert block
    assert len([line for line in block[1].splitlines() if line.strip()]) <= 12
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(block[1], title, "exec"), names)
    return names


def django_app(names: Mapping[str, Any]) -> Any:
    import types

    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application

    urls: Any = types.ModuleType("example_urls")
    urls.urlpatterns = names["urlpatterns"]
    if not settings.configured:
        settings.configure(
            ROOT_URLCONF=urls,
            ALLOWED_HOSTS=["*"],
            SECRET_KEY="k",
            MIDDLEWARE=["django.middleware.csrf.CsrfViewMiddleware"],
        )
        django.setup()
    return get_wsgi_application()


ADAPTERS = {
    "WSGI": lambda names: of_wsgi(validator(names["app"])),
    "ASGI": lambda names: of_asgi(names["app"]),
    "Flask": lambda names: of_wsgi(names["app"]),
    "Django": lambda names: of_wsgi(django_app(names)),
}


@pytest.mark.parametrize("title", ADAPTERS)
def test_each_adapters_example_takes_what_is_signed_and_only_that(
    title: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ADAPTERS[title](example(title))
    body = b'{"order":188}'
    status, _, answer = call("POST", signed_headers(body, time.time()), body)
    assert (status, answer) == (204, b"")
    assert capsys.readouterr().out == "orders order-188 {'order': 188}\n"
    status, _, answer = call("POST", signed_headers(body, time.time()), b'{"order":189}')
    assert (status, answer) == (401, b"The signature is by no known secret.")
    assert capsys.readouterr().out == ""
    status, headers, _ = call("OPTIONS", {"WebHook-Request-Origin": "queue.example.com"}, b"")
    assert (status, headers["webhook-allowed-origin"]) == (204, "queue.example.com")
    assert call("PUT", {}, b"")[0] == 405


def test_the_lambda_example_names_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    handle = example("Lambda")["lambda_handler"]
    good = {"id": "a", "body": {"n": 1}, "keys": ["k"], "attempt": 1, "shard": 0, "offset": 4, "headers": {}}
    assert handle({"topic": "t", "group": "g", "messages": [good]}, None) == {"batchItemFailures": []}
    assert capsys.readouterr().out == "t k {'n': 1}\n"

    async def fails(message: Message) -> None:
        if message.body == b"bad":
            raise ValueError("bad")

    bad = {**good, "id": "b", "body_base64": "YmFk"}
    del bad["body"]
    batch = {"topic": "t", "group": "g", "messages": [good, bad]}
    assert function(fails)(batch, None) == {"batchItemFailures": [{"itemIdentifier": "b"}]}


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
    assert (event.id, event.key, event.tag, event.type) == (
        "m-1-2",
        "order-188",
        "café 100%",
        "headrace.message",
    )
    assert event.headers == {"x-shop": "7"}
    assert event.accepted_at == datetime(2026, 11, 21, 8, 8, 44, 951000, timezone.utc)


@pytest.mark.parametrize("kind", [Event, "Event", Message, Message | None, Event | None])
def test_a_handler_may_say_that_it_wants_the_event(kind: Any) -> None:
    """It is no type of a body, which would be none for any message."""
    events: list[Any] = []

    def handle(each: Any) -> None:
        events.append(each)

    handle.__annotations__["each"] = kind
    assert webhook(handle).answer("POST", signed_headers(b"7", NOW), b"7").status == 204
    assert [(type(each), each.body) for each in events] == [(Event, 7)]


@pytest.mark.parametrize(("kind", "status"), [(bytes, 204), (dict, 489), (Check, 489), (str, 489)])
def test_bytes_are_no_value_of_another_type(kind: Any, status: int) -> None:
    bodies: list[Any] = []

    def handle(each: Any) -> None:
        bodies.append(each)

    handle.__annotations__["each"] = kind
    headers = signed_headers(b"<order/>", NOW, content_type="application/xml")
    assert webhook(handle).answer("POST", headers, b"<order/>").status == status
    assert bodies == ([b"<order/>"] if status == 204 else [])


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


@pytest.mark.parametrize(
    ("error", "status", "after"),
    [
        (ValueError("x"), 500, None),
        (Bury("no such customer"), 489, None),
        (Retry("10m"), 503, "600"),
        (Retry(), 503, None),
    ],
)
def test_what_a_handler_raises_is_what_is_answered(error: Exception, status: int, after: str | None) -> None:
    def handle(message: Message) -> None:
        raise error

    answer = webhook(handle).answer("POST", signed_headers(b"1", NOW), b"1")
    assert (answer.status, answer.headers.get("Retry-After")) == (status, after)
    assert b"x" not in answer.body or status != 500


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
        ((None, None), 204, None),
        ((None, Bury("no such customer"), None), 500, None),
        ((Bury("no such customer"), KeyError("total")), 500, None),
        ((Bury("no such customer"), Bury("nor this one")), 489, None),
        ((Retry("10m"), None), 500, None),
        ((Retry("10m"), Retry(), Retry("20m")), 503, "1200"),
    ],
)
def test_one_message_of_a_request_decides_nothing_about_the_others(
    errors: Sequence[Exception | None], status: int, after: str | None, is_async: bool
) -> None:
    """The answer is for all of them: by 489 those that were handled would be dead letters."""

    def handle(message: Message) -> None:
        if error := errors[message.body]:
            raise error

    async def handle_later(message: Message) -> None:
        handle(message)

    hook = webhook(handle_later if is_async else handle)
    request = batch_of(len(errors))
    for answer in (hook.answer("POST", *request), asyncio.run(hook.answer_async("POST", *request))):
        assert (answer.status, answer.headers.get("Retry-After")) == (status, after)


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
    with pytest.raises(ValueError, match="whsec_"):
        Webhook("hunter2!")


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


def test_a_check_that_nobody_would_await_is_refused() -> None:
    """Each of its answers counted as unknown."""

    async def decide(check: Check) -> str:
        return "commit"

    with pytest.raises(TypeError, match="with `def`"):
        Webhook(SECRET).check(decide)


def test_what_comes_twice_is_handled_once(tmp_path: Path) -> None:
    middleware = Once(tmp_path / "handled")
    messages: list[Message] = []
    for hook in (
        webhook(messages.append, middleware=[middleware]),
        webhook(messages.append, middleware=[middleware]),
    ):
        for _ in range(2):
            assert hook.answer("POST", signed_headers(b"1", NOW), b"1").status == 204
    assert len(messages) == 1
    middleware.close()


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


def test_what_was_handled_is_known_for_as_long_as_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(once, "_FORGET_EVERY", 2)
    now, handled = [1000.0], list[str]()
    middleware = Once(tmp_path / "handled", keep="1m", clock=lambda: now[0])
    for id, seconds in (("a", 60), ("b", 0), ("a", 1), ("c", 0), ("d", 0), ("a", 0), ("b", 0)):
        message = cast(Message, SimpleNamespace(id=id, group="mailer"))
        middleware(message, lambda message: handled.append(message.id))
        now[0] += seconds
    assert handled == ["a", "b", "c", "d", "a"], "forgotten when its minute was over"
    middleware.close()


def test_async_handlers_work_in_both_worlds() -> None:
    bodies: list[Any] = []

    async def handle(message: Message) -> None:
        bodies.append(message.body)

    hook = webhook(handle)
    assert of_wsgi(wsgi_app(hook))("POST", signed_headers(b"1", NOW), b"1")[0] == 204
    assert of_asgi(asgi_app(hook))("POST", signed_headers(b"2", NOW), b"2")[0] == 204
    assert bodies == [1, 2]
    assert isinstance(asyncio.run(hook.answer_async("POST", {}, b"")), Answer)


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
