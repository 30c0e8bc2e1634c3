"""What the sends of both twins ask of the service: each option on each way, what goes again, and in which parts."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from types import FrameType
from typing import Any

import msgspec
import pytest

from headrace import Outgoing, Retries, Sent, errors
from headrace._async.sends import AsyncSends
from headrace._sync.sends import Batch, Sends
from headrace.calls import REQUEST, Call
from headrace.moments import now
from headrace.outgoing import RequestIds, SendOptions

AT = "2026-11-22T00:00:00Z"
PREPARED = {
    "transaction_id": "t1",
    "message_id": "m",
    "topic": "orders",
    "state": "PREPARED",
    "prepared_at": AT,
}
AWAY = errors.Unavailable("UNAVAILABLE", "no answer", retryable=True)
FULL: dict[str, Any] = {"code": "RATE_LIMITED", "status": 429, "detail": "later"}
WRONG: dict[str, Any] = {"code": "NO_SUCH_SHARD", "status": 400, "detail": "there is none"}


def sent_fields(id: str = "m", *, duplicate: bool = False) -> dict[str, Any]:
    return {"id": id, "topic": "orders", "status": "NEW", "accepted_at": AT, "duplicate": duplicate}


class Transport:
    """Answers calls with these, one after the other; what it has no answer for was stored."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[Call] = []
        self.pauses: list[float] = []
        self.retries = Retries(attempts=3, base_seconds=1)
        self._numbers = itertools.count()

    def send(self, call: Call) -> Any:
        self.calls.append(call)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return msgspec.json.encode(answer if answer is not None else self._answer_of(call))

    def ask(self, call: Call, kind: Any) -> Any:
        return msgspec.json.decode(self.send(call), type=kind)

    def read(self, call: Call, reader: Callable[[bytes], Any], **_: Any) -> Any:
        return reader(self.send(call))

    def pause(self, seconds: float) -> Any:
        self.pauses.append(seconds)

    def _answer_of(self, call: Call) -> Any:
        if "/transactions" in call.path:
            return PREPARED
        if call.path.endswith("/batch"):
            return {"results": [sent_fields(f"m{next(self._numbers)}") for _ in call.body["messages"]]}
        return sent_fields()


class AsyncTransport(Transport):
    """The same for the asyncio twin."""

    async def send(self, call: Call) -> Any:
        return super().send(call)

    async def ask(self, call: Call, kind: Any) -> Any:
        return msgspec.json.decode(super().send(call), type=kind)

    async def read(self, call: Call, reader: Callable[[bytes], Any], **_: Any) -> Any:
        return reader(super().send(call))

    async def pause(self, seconds: float) -> None:
        super().pause(seconds)


class Twin:
    """The sends of one of both clients, called alike."""

    def __init__(self, is_async: bool, *answers: Any) -> None:
        self.is_async = is_async
        self.transport = AsyncTransport(*answers) if is_async else Transport(*answers)
        self._sends: Any = (AsyncSends if is_async else Sends)(self.transport)  # type: ignore[arg-type]

    def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        result = getattr(self._sends, name)(*arguments, **options)
        return asyncio.run(result) if inspect.iscoroutine(result) else result

    @property
    def calls(self) -> list[Call]:
        return self.transport.calls

    def inside(self, block: Any, error: Exception | None = None) -> Any:
        """Enter a block and leave it, well or by this error."""

        async def both() -> Any:
            entered = await block.__aenter__()
            await block.__aexit__(type(error) if error else None, error, None)
            return entered

        if self.is_async:
            return asyncio.run(both())
        entered = block.__enter__()
        block.__exit__(type(error) if error else None, error, None)
        return entered


twins = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])

OPTIONS: dict[str, tuple[Any, Mapping[str, Any]]] = {
    "key": ("k", {"keys": ["k"]}),
    "keys": (["a", "b"], {"keys": ["a", "b"]}),
    "tag": ("t", {"tag": "t"}),
    "ordering_key": ("o", {"ordering_key": "o"}),
    "shard": (0, {"shard": 0}),
    "priority": (0, {"priority": 0}),
    "headers": ({"h": "1"}, {"headers": {"h": "1"}}),
    "tenant": ("acme", {"tenant": "acme"}),
    "delay": ("2m", {"delay_seconds": 120}),
    "deliver_at": (
        datetime(2026, 11, 22, tzinfo=timezone.utc),
        {"deliver_at": "2026-11-22T00:00:00.000Z"},
    ),
    "expires_in": ("1m", {"expires_in_seconds": 60}),
    "sent_at": ("2026-01-01T00:00:00Z", {"sent_at": "2026-01-01T00:00:00Z"}),
    "dedup_id": ("d", {"dedup_id": "d"}),
    "dedup_until": ("done", {"dedup_until": "done"}),
    "retry": ({"max_attempts": 3}, {"retry": {"max_attempts": 3}}),
    "content_type": ("text/plain", {"content_type": "text/plain"}),
    "callback_url": ("https://a.example/", {"callback_url": "https://a.example/"}),
}


def test_every_option_is_tried_here() -> None:
    assert OPTIONS.keys() == SendOptions.__annotations__.keys()


@twins
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_goes_along_on_every_way(is_async: bool, option: str) -> None:
    value, fields = OPTIONS[option]
    twin = Twin(is_async)
    options = {option: value}
    twin.call("send", "orders", 1, **options)
    message = Outgoing(body=1, **options)
    twin.call("send_many", "orders", [message])
    twin.call("prepare", "orders", message)
    with_all = {"body": 1, **fields}
    (single, many, transaction) = (call.body for call in twin.calls)
    assert single == with_all
    assert many == {"messages": [with_all]}
    assert transaction["message"] == {"dedup_id": transaction["message"]["dedup_id"], **with_all}
    assert all(call.is_send for call in twin.calls), "repeated for as long as the retries allow"


@twins
def test_bytes_are_published_with_all_that_is_said_of_them(is_async: bool) -> None:
    twin = Twin(is_async)
    twin.call(
        "publish",
        "orders",
        b"raw",
        content_type="text/plain",
        key="k",
        tag="t",
        tenant="acme",
        ordering_key="o",
        priority=0,
        dedup_id="d",
        dedup_until="done",
        callback_url="https://a.example/",
        delay="1m",
        headers={"ce-id": "1"},
    )
    twin.call("publish", "orders", b"raw", delay=60)
    twin.call("publish", "orders", b"raw")
    all_said, delayed_call, plain = twin.calls
    assert (all_said.path, all_said.raw) == ("/v1/publish/orders", b"raw")
    assert {name: value for name, value in all_said.headers.items() if name != REQUEST} == {
        "Content-Type": "text/plain",
        "Headrace-Key": "k",
        "Headrace-Tag": "t",
        "Headrace-Tenant": "acme",
        "Headrace-Ordering-Key": "o",
        "Headrace-Priority": "0",
        "Headrace-Dedup-Id": "d",
        "Headrace-Dedup-Until": "done",
        "Headrace-Callback-Url": "https://a.example/",
        "Headrace-Delay-Seconds": "60",
        "ce-id": "1",
    }
    assert delayed_call.headers.keys() == {REQUEST, "Content-Type", "Headrace-Delay-Seconds"}
    assert plain.headers.keys() == {REQUEST, "Content-Type"}
    assert len({call.headers[REQUEST] for call in twin.calls}) == 3


@twins
@pytest.mark.parametrize(
    "options",
    [
        {"key": "a\nb"},
        {"tag": " a"},
        {"content_type": "text/plain\n"},
        {"headers": {"a b": "1"}},
        {"headers": {"é": "1"}},
        {"headers": {"a:b": "1"}},
    ],
)
def test_what_no_header_can_hold_is_refused_and_not_tried(is_async: bool, options: Any) -> None:
    """It was sent five times, and asked whether the service is up."""
    twin = Twin(is_async)
    with pytest.raises(ValueError, match="No header can be"):
        twin.call("publish", "orders", b"raw", **options)
    twin.call(
        "publish", "orders", b"raw", key="a b", tag="", headers={"a": "b\tc", "Headrace-Forward-A": "é"}
    )
    assert len(twin.calls) == 1


# Batches.


@twins
def test_many_go_in_batches_each_under_a_name_of_its_own(is_async: bool) -> None:
    twin, progress = Twin(is_async), list[int]()
    results = twin.call("send_many", "orders", range(7), chunk=3, on_progress=progress.append)
    assert [result.id for result in results] == [f"m{n}" for n in range(7)]
    assert [[each["body"] for each in call.body["messages"]] for call in twin.calls] == [
        [0, 1, 2],
        [3, 4, 5],
        [6],
    ]
    assert progress == [3, 6, 7]
    assert len({call.headers[REQUEST] for call in twin.calls}) == 3
    assert all(call.first_sent is None for call in twin.calls)


@twins
@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([1_999_990, 2_000_008], [2]),
        ([1_999_990, 2_000_009], [1, 1]),
        ([3_000_000, 20, 999_977, 20], [3, 1]),
        ([5_000_000, 20], [1, 1]),
        ([20, 5_000_000], [1, 1]),
        ([3_000_000, 3_000_000, 3_000_000], [1, 1, 1]),
        ([2_500_000, 2_500_000, 1_000_000], [1, 2]),
    ],
)
def test_a_batch_has_the_size_that_a_call_takes(is_async: bool, sizes: list[int], parts: list[int]) -> None:
    """Of the text of each message, with what stands between them; one alone goes as it is, and is refused there."""
    bodies = ["x" * (size - len('{"body":""}')) for size in sizes]
    twin = Twin(is_async)
    assert len(twin.call("send_many", "orders", bodies)) == len(sizes)
    assert [len(call.body["messages"]) for call in twin.calls] == parts


def results(*each: Any) -> dict[str, Any]:
    return {"results": [{"error": result} if "code" in result else result for result in each]}


@twins
def test_of_a_batch_what_may_be_tried_again_is_under_the_same_name_and_says_since_when(
    is_async: bool,
) -> None:
    twin = Twin(
        is_async,
        results(sent_fields("a"), FULL, WRONG, FULL),
        results(sent_fields("a", duplicate=True), sent_fields("b"), FULL),
        results(sent_fields("a", duplicate=True), sent_fields("b", duplicate=True), sent_fields("d")),
    )
    messages = [{"body": n} for n in range(4)]
    outcomes = twin.call("send_batch", Batch("orders", "r-1", messages))
    assert [outcome.id if isinstance(outcome, Sent) else outcome.code for outcome in outcomes] == [
        "a",
        "b",
        "NO_SUCH_SHARD",
        "d",
    ]
    assert [[each["body"] for each in call.body["messages"]] for call in twin.calls] == [
        [0, 1, 2, 3],
        [0, 1, 3],  # what was stored, too: the service knows a request's messages by their contents
        [0, 1, 3],
    ]
    assert not any(outcome.duplicate for outcome in outcomes if isinstance(outcome, Sent))
    assert {call.headers[REQUEST] for call in twin.calls} == {"r-1"}
    first, second, third = (call.first_sent for call in twin.calls)
    assert first is None
    assert second == third is not None
    assert twin.transport.pauses == [0.75, 1.5], "growing"


@twins
def test_a_batch_is_given_up_after_so_many_tries(is_async: bool) -> None:
    twin = Twin(is_async, *[results(FULL)] * 9)
    (outcome,) = twin.call("send_batch", Batch("orders", "r", [{"body": 1}], first_sent=now()))
    assert isinstance(outcome, errors.RateLimited)
    assert len(twin.calls) == 3
    assert len({call.first_sent for call in twin.calls}) == 1


@twins
@pytest.mark.parametrize(
    "refusal",
    [errors.ClientClosed("CLIENT_CLOSED", ""), errors.Unauthorized("TOKEN_EXPIRED", "since a second")],
)
def test_what_the_first_try_came_to_stands_though_the_second_is_refused(
    is_async: bool, refusal: errors.HeadraceError
) -> None:
    """A sender that sees only refusals would send stored messages again."""
    batch = Batch("orders", "r", [{"body": n} for n in range(2)])
    result, error = Twin(is_async, results(sent_fields("a"), FULL), refusal).call("send_batch", batch)
    assert result.id == "a"
    assert isinstance(error, errors.RateLimited)
    with pytest.raises(type(refusal)):
        Twin(is_async, refusal).call("send_batch", batch)


# Blocks.


@twins
def test_a_block_sends_at_its_end_what_was_noted_a_topic_at_a_time(is_async: bool) -> None:
    twin = Twin(is_async)
    block = twin.call("publish_after")
    with pytest.raises(RuntimeError, match="inside the block"):
        block.send("orders", 0)
    for round_number in range(2):
        twin.transport.calls.clear()
        send_in_block(twin, block, ("orders", 1), ("bills", 2), ("orders", 3))
        assert [[each["body"] for each in call.body["messages"]] for call in twin.calls] == [[1, 3], [2]]
        assert len(block.results) == 3, f"of round {round_number} alone"


@twins
def test_a_block_whose_topics_are_refused_has_a_result_for_each_message(is_async: bool) -> None:
    topic_not_found = errors.TopicNotFound("TOPIC_NOT_FOUND", "there is none")
    twin = Twin(is_async, topic_not_found)
    block = twin.call("publish_after")
    with pytest.raises(errors.TopicNotFound):
        send_in_block(twin, block, ("orders", 1), ("orders", 2), ("bills", 3))
    assert [type(result) for result in block.results] == [errors.TopicNotFound, errors.TopicNotFound, Sent]
    with pytest.raises(RuntimeError, match="inside the block"):
        block.send("orders", 4)


@twins
def test_a_block_that_fails_sends_nothing(is_async: bool) -> None:
    twin = Twin(is_async)
    block = twin.call("publish_after")
    send_in_block(twin, block, ("orders", 1), error=LookupError())
    assert twin.calls == []
    with pytest.raises(RuntimeError, match="inside the block"):
        block.send("orders", 2)


def send_in_block(twin: Twin, block: Any, *messages: tuple[str, Any], error: Exception | None = None) -> None:
    """Send inside a block, which ends well or by this error. What cannot be sent is refused at once."""

    def note() -> None:
        with pytest.raises(TypeError):
            block.send("orders", object())
        with pytest.raises(ValueError, match="no name"):
            block.send("..", 1)
        for topic, body in messages:
            block.send(topic, body)

    async def both() -> None:
        await block.__aenter__()
        note()
        await block.__aexit__(type(error) if error else None, error, None)

    if twin.is_async:
        asyncio.run(both())
    else:
        block.__enter__()
        note()
        block.__exit__(type(error) if error else None, error, None)


# Transactions.


@twins
def test_a_transaction_is_prepared_with_a_dedup_id_and_its_checks(is_async: bool) -> None:
    twin = Twin(is_async)
    twin.call("prepare", "orders", {"paid": 1}, check_url="https://example.com", check_after="2m")
    twin.call("prepare", "orders", Outgoing(body=1, dedup_id="mine"))
    first, second = (call.body for call in twin.calls)
    assert first.pop("message").keys() == {"body", "dedup_id"}
    assert first == {"check_url": "https://example.com", "check_after_seconds": 120}
    assert second == {"message": {"body": 1, "dedup_id": "mine"}}


@twins
@pytest.mark.parametrize("error", [None, LookupError("the database said no")])
def test_a_block_decides_once_as_it_ended(is_async: bool, error: Exception | None) -> None:
    twin = Twin(is_async)
    block = twin.call("transaction", "orders", 1, check_url="https://example.com", check_after=9)
    transaction = twin.inside(block, error)
    assert transaction.transaction_id == "t1"
    preparation, decision = twin.calls
    assert (preparation.body["check_url"], preparation.body["check_after_seconds"]) == (
        "https://example.com",
        9,
    )
    assert decision.path == f"/v1/transactions/t1/{'rollback' if error else 'commit'}"


@twins
@pytest.mark.parametrize(
    "rollback_error",
    [
        AWAY,
        errors.TransactionDecided("TRANSACTION_DECIDED", "committed"),
        errors.RateLimited("RATE_LIMITED", "later", retryable=True),
        errors.Unauthorized("TOKEN_EXPIRED", "since a second"),
    ],
)
def test_who_could_not_roll_back_keeps_the_error_of_the_block(
    is_async: bool, rollback_error: errors.HeadraceError
) -> None:
    error = LookupError("the database said no")
    twin = Twin(is_async, PREPARED, rollback_error)
    twin.inside(twin.call("transaction", "orders", 1), error)
    notes: Sequence[str] = getattr(error, "__notes__", [])
    assert not hasattr(error, "add_note") or "was not rolled back" in notes[0]


@twins
def test_transactions_are_listed_by_their_state(is_async: bool) -> None:
    pager = Twin(is_async).call("list_transactions", "orders", state="COMMITTED", limit=7)
    assert pager._call.target == "/v1/topics/orders/transactions?state=COMMITTED&limit=7"


def names_with_another_thread_at(step: int) -> list[str]:
    """Names of a new client, the first of which is made while another thread makes its own, at this step of it."""
    ids, steps, names = RequestIds(), itertools.count(), list[str]()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is not RequestIds.next.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and next(steps) == step:
            names.append(ids.next())
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        names.append(ids.next())
    finally:
        sys.settrace(before)
    return [*names, ids.next()]


def test_two_threads_that_send_first_never_have_one_name() -> None:
    """The service would take a message of the second for a resend of the first's."""
    step = 0
    while len(names := names_with_another_thread_at(step)) == 3:
        assert len(set(names)) == 3, f"at step {step}"
        step += 1
    assert step > 5
