"""The local poller of DynamoDB streams hands records to a function as AWS does."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.functions import Context, Function
from local.stream import BATCH, StreamPoller
from tests.functional.triggered import BOUND_SECONDS, CallLog, Table, new_table, offsets, until_seen


@pytest.fixture
def table(oracle: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    """Of DynamoDB Local, whose shards end as those on AWS do."""
    for name in ("AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_DYNAMODB_STREAMS"):
        monkeypatch.setenv(name, oracle)
    with new_table() as table:
        yield table


class Pumping:
    """A poller at work."""

    def __init__(self, table: Table, function: Function, **options: Any) -> None:
        self.poller = StreamPoller(
            table=table.name,
            name="route",
            function=function,
            dynamodb=table.dynamodb,
            streams=table.streams,
            **options,
        )
        self.thread = threading.Thread(target=self.poller.run)

    def __enter__(self) -> None:
        self.thread.start()
        assert self.poller.wait_until_ready(BOUND_SECONDS)

    def __exit__(self, *error: object) -> None:
        self.poller.stop()
        self.thread.join(BOUND_SECONDS)
        assert not self.thread.is_alive()


def test_records_arrive_in_order_and_in_batches(table: Table) -> None:
    calls, go = CallLog(), threading.Event()

    def route(event: Any, context: Any) -> None:
        calls.add(event)
        assert go.wait(BOUND_SECONDS)

    table.put("a", 0)  # before the poller's time
    with Pumping(table, route):
        table.put("a", 1)
        calls.count(1)
        for n in range(2, 2 + 2 * BATCH):
            table.put("ab"[n % 2], n)
        go.set()
        everything = range(1, 2 + 2 * BATCH)
        until_seen(calls, {"a": [1, *everything[1::2]], "b": [*everything[2::2]]})
    assert [len(event["Records"]) for event in calls.all] == [1, BATCH, BATCH]


@pytest.mark.parametrize("errors", [[], ["TrimmedDataAccessException"]])
def test_what_was_written_before_the_end_is_read(table: Table, errors: list[str]) -> None:
    calls, shown = CallLog(), CallLog()
    with Pumping(table, lambda event, context: shown.add(event)):
        streams = table.streams = Fickle(table.streams)
        with Pumping(table, lambda event, context: calls.add(event), seconds=60, batch=2):
            for n in range(5):
                table.put("a", n)
            until_seen(shown, {"a": [*range(5)]})  # the engine's stream shows a row some time after the write
            streams.errors = errors
    assert offsets(calls.all) == {"a": [*range(5)]}


def test_a_record_has_the_form_it_has_on_aws(table: Table) -> None:
    calls = CallLog()

    def route(event: Any, context: Context) -> None:
        calls.add((event, context.function_name, context.get_remaining_time_in_millis()))

    with Pumping(table, route):
        table.put("a", 7, m={"B": b"\x00\xff"})
        calls.count(1)
    event, name, remaining_ms = calls.all[0]
    (record,) = event["Records"]
    assert record["eventName"] == "INSERT"
    assert record["eventSource"] == "aws:dynamodb"
    assert f"table/{table.name}/stream/" in record["eventSourceARN"]
    assert record["eventID"]
    change = record["dynamodb"]
    assert change["Keys"] == {"s": {"S": "a"}, "o": {"N": "7"}}
    assert change["StreamViewType"] == "NEW_IMAGE"
    assert change["NewImage"]["m"] == {"B": base64.b64encode(b"\x00\xff").decode()}
    assert change["SequenceNumber"].isdigit()
    assert isinstance(change["ApproximateCreationDateTime"], float)
    assert name == "route"
    assert 0 < remaining_ms <= 60_000


def test_a_batch_that_failed_comes_again_before_anything_else(
    table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = CallLog()

    def route(event: Any, context: Any) -> None:
        calls.add(event)
        if len(calls.all) < 3:
            table.put("a", len(calls.all) + 1)
            raise ZeroDivisionError("not yet")

    with Pumping(table, route, retry_pauses=(0.0, 0.0, 0.0)):
        table.put("a", 1)
        calls.wait_for(lambda events: sum(len(event["Records"]) for event in events) == 5)
    assert calls.all[0] == calls.all[1] == calls.all[2]
    assert offsets(calls.all[3:]) == {"a": [2, 3]}
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_batch_that_is_put_off_comes_again_whole(table: Table) -> None:
    calls = CallLog()

    def route(event: Any, context: Any) -> Any:
        calls.add(event)
        first = event["Records"][0]["dynamodb"]["SequenceNumber"]
        return {"batchItemFailures": [{"itemIdentifier": first}] if len(calls.all) == 1 else []}

    with Pumping(table, route, retry_pauses=(0.0, 0.0)):
        table.put("a", 1)
        calls.count(2)
        table.put("a", 2)
        calls.wait_for(lambda events: 2 in offsets(events)["a"])
    assert offsets(calls.all) == {"a": [1, 1, 2]}


def test_a_batch_that_always_fails_does_not_stop_the_stream(
    table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = CallLog()

    def route(event: Any, context: Any) -> None:
        calls.add(event)
        if 1 in offsets([event])["a"]:
            raise ZeroDivisionError("never")

    with Pumping(table, route, retry_pauses=(0.0, 0.0)):
        table.put("a", 1)
        calls.count(3)
        table.put("a", 2)
        calls.wait_for(lambda events: 2 in offsets(events)["a"])
    assert offsets(calls.all) == {"a": [1, 1, 1, 2]}
    assert "route failed too often with 1 records: going on" in capsys.readouterr().err


def test_when_a_shard_ends_the_next_one_is_read_from_its_start(table: Table) -> None:
    calls, go = CallLog(), threading.Event()

    def route(event: Any, context: Any) -> None:
        calls.add(event)
        assert go.wait(BOUND_SECONDS)

    with Pumping(table, route):
        table.put("a", 1)
        calls.count(1)
        table.put("a", 2)
        table.switch_stream(False)
        table.switch_stream(True)
        table.put("a", 3)
        go.set()
        until_seen(calls, {"a": [1, 2, 3]})


def test_a_table_made_anew_is_followed(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    calls = CallLog()
    with Pumping(table, lambda event, context: calls.add(event)):
        table.put("a", 1)
        calls.count(1)
        table.delete()
        table.create(stream=True)
        table.put("a", 2)
        calls.wait_for(lambda events: 2 in offsets(events)["a"])


class Fickle:
    """A streams client some of whose answers are errors, or name events as we choose."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.errors: list[str] = []
        self.raised = CallLog()
        self.event_name = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get_records(self, **request: Any) -> Any:
        if self.errors:
            code = self.errors.pop()
            self.raised.add(code)
            raise ClientError({"Error": {"Code": code, "Message": "made up"}}, "GetRecords")
        answer = self._client.get_records(**request)
        for record in answer["Records"]:
            record["eventName"] = self.event_name or record["eventName"]
        return answer


def test_an_expired_row_is_a_removed_one(table: Table) -> None:
    table.streams, calls = Fickle(table.streams), CallLog()
    table.streams.event_name = "UNKNOWN_TO_SDK_VERSION"  # DynamoDB Local says so, when it expires a row
    with Pumping(table, lambda event, context: calls.add(event)):
        table.put("a", 1)
        calls.count(1)
    assert [record["eventName"] for record in calls.all[0]["Records"]] == ["REMOVE"]


@pytest.mark.parametrize("code", ["ExpiredIteratorException", "ValidationException", "InternalServerError"])
def test_errors_of_the_engine_lose_and_repeat_nothing(
    table: Table, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table.streams, calls, go = Fickle(table.streams), CallLog(), threading.Event()

    def route(event: Any, context: Any) -> None:
        calls.add(event)
        assert go.wait(BOUND_SECONDS)

    with Pumping(table, route):
        table.put("a", 1)
        calls.count(1)
        table.put("a", 2)
        table.put("a", 3)
        go.set()
        until_seen(calls, {"a": [1, 2, 3]})
        table.streams.errors = [code, code]
        table.streams.raised.count(1)
        table.put("a", 4)
        until_seen(calls, {"a": [1, 2, 3, 4]})
    assert capsys.readouterr().err.count("GetRecords operation: made up") == 1


class Split:
    """A streams client with two shards that end, a child of one, and an old shard that had ended before."""

    def __init__(self) -> None:
        self.shards = [self.shard("child", "left"), self.shard("old", None, "9"), self.shard("left", "old")]
        self.shards.append(self.shard("right", "old"))
        self.left = {"left": 2, "right": 3, "child": 1}
        self.starts: dict[str, str] = {}

    @staticmethod
    def shard(name: str, parent: str | None, end: str | None = None) -> dict[str, Any]:
        span = {"StartingSequenceNumber": "1"} | ({"EndingSequenceNumber": end} if end else {})
        return {"ShardId": name, "SequenceNumberRange": span} | ({"ParentShardId": parent} if parent else {})

    def describe_stream(self, ExclusiveStartShardId: str = "", **request: Any) -> Any:
        names = ["", *(shard["ShardId"] for shard in self.shards)]
        at = names.index(ExclusiveStartShardId)
        more = {"LastEvaluatedShardId": names[at + 1]} if at + 2 < len(names) else {}
        return {"StreamDescription": {"Shards": self.shards[at : at + 1], **more}}

    def get_shard_iterator(self, ShardId: str, ShardIteratorType: str, **request: Any) -> Any:
        self.starts[ShardId] = ShardIteratorType
        return {"ShardIterator": ShardId}

    def get_records(self, ShardIterator: str, **request: Any) -> Any:
        self.left[ShardIterator] -= 1
        keys = {"s": {"S": ShardIterator}, "o": {"N": str(self.left[ShardIterator])}}
        record = {"eventName": "INSERT", "dynamodb": {"Keys": keys, "SequenceNumber": "1"}}
        more = {"NextShardIterator": ShardIterator} if self.left[ShardIterator] else {}
        return {"Records": [record], **more}


def test_parents_are_read_before_children(table: Table) -> None:
    calls = CallLog()
    table.streams = split_stream = Split()
    with Pumping(table, lambda event, context: calls.add(event)):
        until_seen(calls, {"left": [1, 0], "right": [2, 1, 0], "child": [0]})
    order = [shard for event in calls.all for shard in offsets([event])]
    assert order.index("child") > max(at for at, name in enumerate(order) if name == "left")
    assert split_stream.starts == {"left": "LATEST", "right": "LATEST", "child": "LATEST"}


def test_at_the_end_a_shard_that_ends_then_is_followed_by_its_child(table: Table) -> None:
    calls = CallLog()
    table.streams = Split()
    with Pumping(table, lambda event, context: calls.add(event), seconds=60):
        calls.count(2)
    assert offsets(calls.all) == {"left": [1, 0], "right": [2, 1, 0], "child": [0]}
