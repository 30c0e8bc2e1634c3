"""Functions on Lambda, by the real client against an endpoint of this machine."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError

from chalicelib.delivery.functions import FunctionFailed, LambdaFunctions, LambdaInvoker, Throttled
from chalicelib.domain.errors import Unavailable
from chalicelib.domain.times import SECOND_MS
from chalicelib.ports.world import Clock
from chalicelib.store.clients import Clients
from tests.functional.delivery.receivers import (
    OK,
    RawReceiver,
    Receiver,
    hangs,
    raw_receiver,
    read_request,
)
from tests.support.clock import START_MS, ManualClock

ACCOUNT, REGION = "123456789012", "eu-west-1"
ARN = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:orders-billing"


def client_of(url: str) -> Any:
    return boto3.client(
        "lambda",
        region_name=REGION,
        endpoint_url=url,
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(read_timeout=0.3, connect_timeout=1, retries={"total_max_attempts": 1}),
    )


@pytest.fixture
def client(receiver: Receiver) -> Iterator[Any]:
    client = client_of(f"http://127.0.0.1:{receiver.port}")
    yield client
    client.close()


@pytest.fixture
def functions(client: Any) -> LambdaFunctions:
    return LambdaFunctions(
        client=lambda seconds: client, region=REGION, account=ACCOUNT, prefix="headrace-prod-"
    )


def test_a_function_is_invoked_and_its_answer_comes_back(
    functions: LambdaFunctions, receiver: Receiver
) -> None:
    receiver.body = b'{"batchItemFailures":[]}'
    assert functions.call(ARN, b'{"n":1}', 5) == receiver.body
    (request,) = receiver.seen
    assert request.body == b'{"n":1}'
    assert request.headers["x-amz-invocation-type"] == "RequestResponse"
    assert "orders-billing" in request.path


def test_a_function_that_raises_has_failed_and_says_why(
    functions: LambdaFunctions, receiver: Receiver
) -> None:
    receiver.headers, receiver.body = {"X-Amz-Function-Error": "Unhandled"}, b'{"errorMessage":"no order"}'
    failed = FunctionFailed("the function failed", ran=True, said=receiver.body)
    assert functions.call(ARN, b"{}", 5) == failed


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (429, "TooManyRequestsException", Throttled()),
        (502, "EC2ThrottledException", Throttled()),
        (404, "ResourceNotFoundException", FunctionFailed("not invoked: ResourceNotFoundException")),
        (403, "AccessDeniedException", FunctionFailed("not invoked: AccessDeniedException")),
        (500, "ServiceException", FunctionFailed("not invoked: ServiceException", may_run=True)),
    ],
)
def test_each_refusal_of_lambda_has_its_meaning(
    functions: LambdaFunctions, receiver: Receiver, status: int, code: str, expected: object
) -> None:
    receiver.status, receiver.headers, receiver.body = (
        status,
        {"x-amzn-ErrorType": code},
        b'{"Message":"secret"}',
    )
    assert functions.call(ARN, b"{}", 5) == expected
    assert len(receiver.seen) == 1


@pytest.mark.parametrize("status", [500, 502, 503, 504])
@pytest.mark.parametrize(
    "page",
    [
        b"<html>Gateway Time-out</html>",
        b"upstream is late",
        b"{}",
        b"",
        b'{"code":7}',
        b'{"__type":"GatewayTimeout"}',
    ],
)
def test_a_page_of_what_stands_before_lambda_leaves_open_whether_the_function_runs(
    functions: LambdaFunctions, receiver: Receiver, status: int, page: bytes
) -> None:
    receiver.status, receiver.body = status, page
    assert functions.call(ARN, b"{}", 5) == FunctionFailed(f"Lambda did not answer ({status})", may_run=True)


@pytest.mark.parametrize("page", ["gestört".encode("latin-1"), b"[1]", b'["a"]', b'{"code":{"a":1}}'])
def test_an_answer_that_the_sdk_cannot_read_is_a_failed_call(
    functions: LambdaFunctions, client: Any, receiver: Receiver, page: bytes
) -> None:
    receiver.status, receiver.body = 502, page
    assert functions.call(ARN, b"{}", 5) == FunctionFailed("the connection to Lambda broke", may_run=True)
    invoker = LambdaInvoker(lambda _: client, {"deliver": "own-deliver"}, lambda: None, "")
    with pytest.raises(Unavailable):
        invoker.invoke("deliver", {})
    with pytest.raises(Unavailable):
        invoker.ask("deliver", {}, 20)


@pytest.mark.parametrize("page", [b"<html>Sign in</html>", b"", b"7", "{gestört".encode("latin-1")])
def test_an_answer_that_none_of_our_own_gives_is_unavailable(
    client: Any, receiver: Receiver, page: bytes
) -> None:
    receiver.body = page
    with pytest.raises(Unavailable):
        LambdaInvoker(lambda _: client, {"deliver": "own-deliver"}, lambda: None, "").ask("deliver", {}, 20)


def test_a_function_that_takes_too_long_has_failed() -> None:
    with raw_receiver(hangs(5)) as receiver:
        client = client_of(receiver.url)
        functions = LambdaFunctions(
            client=lambda seconds: client, region=REGION, account=ACCOUNT, prefix="headrace-"
        )
        assert functions.call(ARN, b"{}", 0.3) == FunctionFailed("no answer within 0.3 s", may_run=True)
        client.close()


def test_a_call_is_waited_for_as_long_as_it_may_take_and_no_longer() -> None:
    clients = Clients(REGION)
    lambda_clients = [clients.get("lambda", seconds) for seconds in (7, 7, 600)]
    assert [client.meta.config.read_timeout for client in lambda_clients] == [7, 7, 600]
    assert lambda_clients[0] is lambda_clients[1]
    timeouts: list[int] = []

    def client(seconds: int) -> Any:
        timeouts.append(seconds)
        return client_of("http://127.0.0.1:9")

    LambdaFunctions(client=client, region=REGION, account=ACCOUNT, prefix="headrace-").call(ARN, b"{}", 6.5)
    assert timeouts == [7]


class Frozen(ManualClock):
    """Its process is frozen: only the time of day goes on."""

    def monotonic_ms(self) -> int:
        return START_MS


class SetBack(ManualClock):
    """The time of day was set back by as much as has passed."""

    def now_ms(self) -> int:
        return START_MS


@contextmanager
def clients_at(url: str, clock: Clock) -> Iterator[Callable[[int], Any]]:
    """The clients of a process for a Lambda at a URL."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "local")
        patch.setenv("AWS_ENDPOINT_URL_LAMBDA", url)
        client = partial(Clients(REGION, clock=clock).get, "lambda")
        yield client
        client(5).close()


def _once(_: RawReceiver, sock: socket.socket) -> None:
    """Answers one request, and lets its connection go without a word at the next one."""
    sock.sendall(OK)
    read_request(sock)


def _again_and_again(_: RawReceiver, sock: socket.socket) -> None:
    sock.sendall(OK)
    while read_request(sock):
        sock.sendall(OK)


@pytest.mark.parametrize("clock_of", [Frozen, SetBack])
def test_a_connection_that_lambda_dropped_while_it_rested_costs_no_attempt(
    clock_of: type[ManualClock],
) -> None:
    clock = clock_of()
    with raw_receiver(_once) as receiver, clients_at(receiver.url, clock) as client:
        functions = LambdaFunctions(client=client, region=REGION, account=ACCOUNT, prefix="headrace-")
        for _ in range(3):
            assert functions.call(ARN, b"{}", 5) == b""
            clock.advance(10 * 60 * SECOND_MS)
        assert receiver.connections == 3


def test_calls_that_follow_one_another_share_a_connection() -> None:
    clock = ManualClock()
    with raw_receiver(_again_and_again) as receiver, clients_at(receiver.url, clock) as client:
        functions = LambdaFunctions(client=client, region=REGION, account=ACCOUNT, prefix="headrace-")
        invoker = LambdaInvoker(client, {"deliver": "own-deliver"}, lambda: None, "")
        for _ in range(10):
            assert functions.call(ARN, b"{}", 5) == b""
            invoker.invoke("deliver", {})
            clock.advance(SECOND_MS)
        assert receiver.connections == 1


def test_a_connection_that_breaks_leaves_open_whether_the_function_runs() -> None:
    with raw_receiver(lambda receiver, _: None) as receiver_that_breaks:
        client = client_of(receiver_that_breaks.url)
        functions = LambdaFunctions(
            client=lambda seconds: client, region=REGION, account=ACCOUNT, prefix="headrace-"
        )
        assert functions.call(ARN, b"{}", 5) == FunctionFailed("the connection to Lambda broke", may_run=True)
        client.close()


def test_lambda_out_of_reach_is_a_failure(receiver: Receiver) -> None:
    client = client_of("http://127.0.0.1:9")
    functions = LambdaFunctions(
        client=lambda seconds: client, region=REGION, account=ACCOUNT, prefix="headrace-"
    )
    assert functions.call(ARN, b"{}", 5) == FunctionFailed("Lambda was not reached")
    with pytest.raises(Unavailable):
        LambdaInvoker(lambda _: client, {"deliver": "headrace-deliver"}, lambda: None, "").invoke(
            "deliver", {}
        )
    client.close()


def test_an_event_larger_than_lambda_takes_is_not_sent(
    functions: LambdaFunctions, receiver: Receiver
) -> None:
    assert functions.call(ARN, bytes((6 << 20) + 1), 5) == FunctionFailed(
        "the event is larger than Lambda takes"
    )
    assert receiver.seen == []


@pytest.mark.parametrize("name", [ARN, f"{ARN}:live", f"{ARN}:$LATEST", f"{ARN}:7"])
def test_a_function_of_our_own_account_and_region_may_be_called(
    functions: LambdaFunctions, name: str
) -> None:
    assert functions.refusal(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        "orders-billing",
        f"{ACCOUNT}:function:orders-billing",
        ARN.replace(ACCOUNT, "210987654321"),
        ARN.replace(REGION, "us-east-1"),
        ARN.replace("orders-billing", "headrace-prod-deliver"),
        ARN.replace("orders-billing", "Headrace-Prod-deliver"),
        ARN.replace("orders-billing", "headrace-prod-deliver:live"),
        ARN.replace(":function:", ":layer:"),
        ARN.replace(":lambda:", ":sqs:"),
        ARN + "/../x",
        ARN + "\n",
        ARN + ":",
    ],
)
def test_any_other_function_is_refused_and_not_called(
    functions: LambdaFunctions, receiver: Receiver, name: str
) -> None:
    assert functions.refusal(name)
    assert isinstance(functions.call(name, b"{}", 5), FunctionFailed)
    assert receiver.seen == []


def test_one_of_our_own_is_started_and_not_waited_for(client: Any, receiver: Receiver) -> None:
    receiver.status = 202
    LambdaInvoker(lambda _: client, {"deliver": "headrace-prod-deliver"}, lambda: None, "").invoke(
        "deliver", {"shard": 3}
    )
    (request,) = receiver.seen
    assert request.headers["x-amz-invocation-type"] == "Event"
    assert json.loads(request.body) == {"shard": 3}
    assert request.path == "/2015-03-31/functions/headrace-prod-deliver/invocations"


def test_one_of_our_own_is_asked_and_answers(client: Any, receiver: Receiver) -> None:
    receiver.body = b'{"exchange":null}'
    waits: list[int] = []

    def waiting(seconds: int) -> Any:
        waits.append(seconds)
        return client

    invoker = LambdaInvoker(waiting, {"deliver": "own-deliver"}, lambda: None, "")
    assert invoker.ask("deliver", {"ping": {}}, 20) == {"exchange": None}
    (request,) = receiver.seen
    assert request.headers["x-amz-invocation-type"] == "RequestResponse"
    assert waits == [20]


@pytest.mark.parametrize("status", [200, 429, 500])
def test_one_of_our_own_that_fails_or_is_busy_is_unavailable(
    client: Any, receiver: Receiver, status: int
) -> None:
    receiver.status, receiver.body = status, b'{"errorMessage":"secret"}'
    receiver.headers = {"X-Amz-Function-Error": "Unhandled"} if status == 200 else {}
    with pytest.raises(Unavailable) as error:
        LambdaInvoker(lambda _: client, {"deliver": "own-deliver"}, lambda: None, "").ask("deliver", {}, 20)
    assert "secret" not in str(error.value)
    assert len(receiver.seen) == 1, "a test event is sent once"


def test_a_wake_up_of_the_mover_is_a_message_that_is_delayed() -> None:
    sent: list[dict[str, Any]] = []

    class Sqs:
        def send_message(self, **message: Any) -> None:
            sent.append(message)
            if message["DelaySeconds"] == 9:
                raise EndpointConnectionError(endpoint_url="https://sqs.example.com")

    invoker = LambdaInvoker(lambda _: None, {}, Sqs, "https://sqs.example.com/wakes")
    invoker.wake_mover({"until_ms": 5}, 3)
    body = {"QueueUrl": "https://sqs.example.com/wakes", "MessageBody": '{"until_ms": 5}', "DelaySeconds": 3}
    assert sent == [body]
    with pytest.raises(Unavailable):
        invoker.wake_mover({"until_ms": 5}, 9)
