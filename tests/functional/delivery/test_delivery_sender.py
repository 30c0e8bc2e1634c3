"""One attempt at one consumer: receivers written with others' packages accept it, and answers mean what they
should."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from standardwebhooks import Webhook

from chalicelib.delivery import answers
from chalicelib.delivery.egress import Egress
from chalicelib.delivery.functions import LocalFunctions
from chalicelib.delivery.sender import Sender
from chalicelib.domain.call_result import CallResult, PushBatch, Verdict
from chalicelib.domain.signing import Secret
from chalicelib.domain.topic import Consumer
from chalicelib.ports.world import Sender as SenderPort
from tests.functional.delivery.receivers import (
    Receiver,
    Request,
    hangs,
    http_receiver,
    raw_receiver,
)
from tests.support import factories
from tests.support.factories import draft
from tests.support.http import ShiftingClock
from tests.unit.delivery.push_batches import push_batch, raw

SECRET, OLD = bytes(range(32)), b"o" * 24
MEDIA = ("application/json", "text/plain", "application/octet-stream", "image/png")


def consumer(
    target: str, kind: str = "url", secrets: tuple[Secret, ...] = (Secret(SECRET.hex()),)
) -> Consumer:
    group = factories.group(factories.topic())
    return factories.consumer(group, kind=kind, target=target, secrets=secrets)


def sender_of(egress: Egress, functions: LocalFunctions | None = None, status: int = 489) -> SenderPort:
    own_functions = functions or LocalFunctions(None)
    return Sender(
        egress=egress,
        functions=own_functions,
        clock=ShiftingClock(),
        real_clock=ShiftingClock(),
        monotonic=time.monotonic,
        origin="queue.example.com",
        never_retry_status=status,
    )


@pytest.fixture
def sender(egress: Egress) -> SenderPort:
    return sender_of(egress)


def send(sender: SenderPort, url: str, of: PushBatch | None = None, seconds: float = 5) -> CallResult:
    (outcome,) = sender.send(consumer(url), of or push_batch(draft(1)), seconds)
    return outcome


def check_signature(request: Request, secret: bytes = SECRET) -> None:
    """As the standard package does; it reads text only, so other bodies are signed once more by hand."""
    try:
        request.body.decode()
    except UnicodeDecodeError:
        id, timestamp = request.headers["webhook-id"], request.headers["webhook-timestamp"]
        content = f"{id}.{timestamp}.".encode() + request.body
        expected = base64.b64encode(hmac.new(secret, content, hashlib.sha256).digest()).decode()
        assert f"v1,{expected}" in request.headers["webhook-signature"].split(" ")
    else:
        Webhook(secret).verify(request.body, dict(request.headers), json_parse=False)


# What arrives


def test_receivers_of_others_accept_two_hundred_random_bodies(sender: SenderPort, receiver: Receiver) -> None:
    random_bytes = random.Random(7)
    bodies = [b"", b"\x00", b"\xff" * 3, b'{"a": 1}', "é€😀".encode()]
    bodies += [random_bytes.randbytes(random_bytes.randrange(300)) for _ in range(95)]
    bodies += [random_bytes.randbytes(random_bytes.randrange(300)).hex().encode() for _ in range(100)]
    for n, body in enumerate(bodies):
        assert send(sender, receiver.url, push_batch(raw(body, MEDIA[n % 4]))).verdict is Verdict.DONE
    for n, (body, request) in enumerate(zip(bodies, receiver.seen, strict=True)):
        assert request.body == body
        check_signature(request)
        assert request.headers["webhook-id"] == "0123456789ab-3-7"
        event = from_http_event(HTTPMessage(dict(request.headers), request.body))
        assert (event.get_source(), event.get_datacontenttype()) == ("/topics/orders", MEDIA[n % 4])


@pytest.mark.parametrize("payload", ["structured", "batch"])
def test_receivers_of_others_accept_the_other_content_modes(
    sender: SenderPort, receiver: Receiver, payload: str
) -> None:
    for body in (b"", b"\x00\xff", b"text"):
        assert send(sender, receiver.url, push_batch(raw(body), payload=payload)).verdict is Verdict.DONE
        request = receiver.seen[-1]
        check_signature(request)
        text = request.body if payload == "structured" else json.dumps(json.loads(request.body)[0]).encode()
        single = {"content-type": "application/cloudevents+json"}
        assert from_http_event(HTTPMessage(single, text)).get_data() == body


def test_without_a_live_secret_nothing_is_sent_and_no_attempt_is_made(
    sender: SenderPort, receiver: Receiver
) -> None:
    for secrets in ((), (Secret(SECRET.hex(), 1),)):
        (outcome,) = sender.send(consumer(receiver.url, secrets=secrets), push_batch(draft(1)), 5)
        assert outcome.verdict is Verdict.NOT_ATTEMPTED
    assert receiver.seen == []


def test_a_batch_is_one_request_and_one_outcome_for_each_message(
    sender: SenderPort, receiver: Receiver
) -> None:
    outcomes = sender.send(
        consumer(receiver.url), push_batch(draft(1), draft(2), draft(3), payload="batch"), 5
    )
    assert [outcome.verdict for outcome in outcomes] == [Verdict.DONE] * 3
    assert len(receiver.seen) == 1


# What an answer means


def test_the_status_that_means_never_again_is_a_setting(egress: Egress, receiver: Receiver) -> None:
    receiver.status = 422
    assert send(sender_of(egress, status=422), receiver.url).verdict is Verdict.REFUSED
    assert send(sender_of(egress), receiver.url).verdict is Verdict.FAILED


def test_no_answer_is_a_failure_with_the_reason_and_the_time(sender: SenderPort) -> None:
    with raw_receiver(hangs(5)) as receiver:
        outcome = send(sender, receiver.url, seconds=0.2)
    assert (outcome.verdict, outcome.status, outcome.detail) == (
        Verdict.FAILED,
        None,
        "no answer within 0.2 s",
    )
    assert outcome.duration_ms >= 190


@pytest.mark.parametrize("url", ["https://10.0.0.1/", "http://169.254.169.254/", "nonsense", ""])
def test_a_bad_address_is_a_failure_without_a_hint(sender: SenderPort, url: str) -> None:
    outcome = send(sender, url)
    assert (outcome.verdict, outcome.detail) == (Verdict.FAILED, "the address cannot be used")


def test_nothing_of_an_answers_headers_gets_into_an_outcome(sender: SenderPort, receiver: Receiver) -> None:
    receiver.status, receiver.headers, receiver.body = 500, {"X-Evil": "<script>"}, b"no"
    assert "script" not in repr(send(sender, receiver.url))


# Registration


@pytest.mark.parametrize("origins", ["queue.example.com", "QUEUE.Example.com", "*", " * "])
@pytest.mark.parametrize("status", [200, 404, 405, 500])
def test_a_url_agrees_by_its_header_whatever_its_status(
    receiver: Receiver, origins: str, status: int, public_egress: Callable[[Receiver], Egress]
) -> None:
    receiver.status, receiver.headers = status, {"WebHook-Allowed-Origin": origins}
    outcome = sender_of(public_egress(receiver)).greet("https://hooks.example.com/in")
    assert outcome.verdict is Verdict.DONE
    (request,) = receiver.seen
    assert (request.method, request.headers["webhook-request-origin"]) == ("OPTIONS", "queue.example.com")


@pytest.mark.parametrize(
    "origins",
    [None, "", "example.com", "evil.queue.example.com", "queue.example.com.evil", "*.example.com", "null"],
)
def test_any_other_answer_is_no_consent(
    receiver: Receiver, origins: str | None, public_egress: Callable[[Receiver], Egress]
) -> None:
    receiver.headers = {} if origins is None else {"WebHook-Allowed-Origin": origins}
    outcome = sender_of(public_egress(receiver)).greet("https://hooks.example.com/in")
    assert (outcome.verdict, outcome.status) == (Verdict.FAILED, 200)


def test_loopback_is_not_asked_where_it_is_allowed(sender: SenderPort) -> None:
    with http_receiver() as receiver:
        assert sender.greet(receiver.url).verdict is Verdict.DONE
        assert receiver.seen == []
        assert sender.refusal("url", receiver.url) is None


def test_a_target_that_may_not_be_called_gets_a_reason(sender: SenderPort) -> None:
    assert sender.refusal("url", "https://10.0.0.1/") == "has no address that may be called"
    assert sender.refusal("function", "nobody") == "is not in the file of local functions"


# Functions


FUNCTIONS = """
import threading
seen = []

def keep(event):
    seen.append(event)

def with_context(event, context):
    return {"batchItemFailures": [{"itemIdentifier": event["messages"][1]["id"]}]}

def echo(event):
    return event["messages"][0]["body"]

def raises(event):
    raise ValueError("secret")

def hangs(event):
    threading.Event().wait(1)

async def waits(event):
    pass

def unprintable(event):
    return object()

def says_too_much(event):
    return {"text": "x" * 6 * 1024 * 1024}
"""


@pytest.fixture
def functions(tmp_path: Path) -> LocalFunctions:
    path = tmp_path / "functions.py"
    path.write_text(FUNCTIONS)
    return LocalFunctions(path)


def call(
    egress: Egress, functions: LocalFunctions, name: str, of: PushBatch, seconds: float = 5
) -> list[CallResult]:
    return list(sender_of(egress, functions).send(consumer(name, "function", ()), of, seconds))


def test_a_function_is_called_with_the_batch_and_reports_what_failed(
    egress: Egress, functions: LocalFunctions
) -> None:
    batch = push_batch(draft(1), draft(2), draft(3))
    outcomes = call(egress, functions, "with_context", batch)
    assert [o.verdict for o in outcomes] == [Verdict.DONE, Verdict.FAILED, Verdict.DONE]
    assert [o.verdict for o in call(egress, functions, "keep", batch)] == [Verdict.DONE] * 3


def test_a_coroutine_is_refused_as_it_would_fail_on_lambda(egress: Egress, functions: LocalFunctions) -> None:
    refusal = functions.refusal("waits")
    assert refusal is not None
    assert "asyncio.run" in refusal
    [outcome] = call(egress, functions, "waits", push_batch(draft(1)))
    assert outcome.verdict is Verdict.FAILED
    assert "async def" in outcome.detail


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("raises", "the function failed"),
        ("unprintable", "the function failed"),
        ("says_too_much", "the function failed"),
        ("hangs", "no answer within 0.1 s"),
        ("nobody", "the function is not in the file of local functions"),
        ("threading", "the function is not in the file of local functions"),
    ],
)
def test_a_function_that_fails_fails_the_whole_batch(
    egress: Egress, functions: LocalFunctions, name: str, detail: str
) -> None:
    outcomes = call(egress, functions, name, push_batch(draft(1), draft(2)), 0.1 if name == "hangs" else 5)
    assert [(o.verdict, o.detail) for o in outcomes] == [(Verdict.FAILED, detail)] * 2
    # Lambda's longest time, and its longest start.
    assert [o.busy_ms > 909_000 for o in outcomes] == [name == "hangs"] * 2


@pytest.mark.parametrize(
    ("content_type", "body", "text"),
    [
        ("text/html; charset=utf-8", b"<h1>down</h1>", "<h1>down</h1>"),
        ("application/problem+json", b'{"title": "no"}', '{"title": "no"}'),
        ("", "zu Ende: Mühle".encode(), "zu Ende: Mühle"),
        ("text/plain", b"\x1b[31mred\x00 1\r\n2\t3", "\ufffd[31mred\ufffd 1\n2\t3"),
        ("text/plain", b"x" + "ü".encode() * 400, "x" + "ü" * 249),
        ("image/png", b"\x89PNG", None),
        ("text/plain", b"  ", None),
    ],
)
def test_a_failures_answer_is_kept_if_it_is_text(
    egress: Egress, receiver: Receiver, content_type: str, body: bytes, text: str | None
) -> None:
    receiver.status, receiver.body, receiver.headers = 500, body, {"content-type": content_type}
    result = send(sender_of(egress), receiver.url)
    assert (result.answer and result.answer.text) == text
    receiver.status = 200
    assert send(sender_of(egress), receiver.url).answer is None


def test_an_answer_that_echoes_the_request_holds_no_secret(egress: Egress, receiver: Receiver) -> None:
    receiver.status, receiver.headers = 500, {"content-type": "text/plain"}
    secret = base64.b64encode(SECRET).decode()
    receiver.body = f"whsec_{secret} {secret} Authorization: Bearer abc.def, Basic dXNlcjpwdw==".encode()
    result = send(sender_of(egress), receiver.url)
    assert result.answer
    assert result.answer.text == "••• ••• Authorization: Bearer •••, Basic •••"
    echoed = answers.kept(500, "text/plain", b"webhook-signature: v1,abc= v1,def=", ["v1,abc=", "v1,def="])
    assert echoed
    assert echoed.text == "webhook-signature: ••• •••"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_functions_error_is_kept(egress: Egress, tmp_path: Path) -> None:
    file = tmp_path / "functions.py"
    file.write_text("def work(event):\n    raise ValueError('no such order')\n")
    functions = LocalFunctions(file)
    (result,) = sender_of(egress, functions).send(consumer("work", "function"), push_batch(draft(1)), 5)
    assert result.answer
    assert json.loads(result.answer.text) == {"errorMessage": "no such order", "errorType": "ValueError"}
