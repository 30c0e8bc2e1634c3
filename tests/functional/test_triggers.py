"""What surrounds our functions locally behaves as on AWS: the stream's pump, schedules, invocations."""

from __future__ import annotations

import base64
import itertools
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from chalice import Chalice
from chalice.app import CloudWatchEvent, Cron, LambdaFunctionEvent, Rate

from local.dynamodb import client, stream_pumps
from local.functions import Context, Function, Invocations, functions_of
from local.schedule import Schedule, Schedules, schedules_of
from local.stream import BATCH, StreamPoller
from local.triggers import Triggers

_BOUND_SECONDS = 120.0


class Seen:
    """What a function was called with, in order; can be waited for."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._changed = threading.Condition()

    def add(self, what: Any) -> None:
        with self._changed:
            self.all.append(what)
            self._changed.notify_all()

    def wait_for(self, enough: Callable[[list[Any]], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: enough(self.all), _BOUND_SECONDS), self.all

    def count(self, wanted: int) -> None:
        self.wait_for(lambda all_: len(all_) >= wanted)


# The stream


class Table:
    """A table of the log's form."""

    def __init__(self, stream: bool) -> None:
        self.name = f"triggers-{uuid.uuid4().hex}"
        self.dynamodb, self.streams = client("dynamodb"), client("dynamodbstreams")
        self.create(stream)

    def create(self, stream: bool) -> None:
        keys = (("s", "S", "HASH"), ("o", "N", "RANGE"))
        view = {"StreamSpecification": {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"}}
        self.dynamodb.create_table(
            TableName=self.name,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, _, kind in keys],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": type_} for name, type_, _ in keys],
            **(view if stream else {}),
        )

    def put(self, shard: str, offset: int, **more: Any) -> None:
        item = {"s": {"S": shard}, "o": {"N": str(offset)}, **more}
        self.dynamodb.put_item(TableName=self.name, Item=item)

    def switch_stream(self, on: bool) -> None:
        view = {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"} if on else {"StreamEnabled": False}
        self.dynamodb.update_table(TableName=self.name, StreamSpecification=view)

    def delete(self) -> None:
        self.dynamodb.delete_table(TableName=self.name)


@pytest.fixture
def table(engine: str) -> Iterator[Table]:
    made = Table(stream=True)
    yield made
    made.delete()


class Pumping:
    """A pump at work."""

    def __init__(self, table: Table, function: Function, **options: Any) -> None:
        self.pump = StreamPoller(table.name, "route", function, table.dynamodb, table.streams, **options)
        self.thread = threading.Thread(target=self.pump.run)

    def __enter__(self) -> None:
        self.thread.start()
        assert self.pump.wait_until_ready(_BOUND_SECONDS)

    def __exit__(self, *error: object) -> None:
        self.pump.stop()
        self.thread.join(_BOUND_SECONDS)
        assert not self.thread.is_alive()


def offsets(events: list[Any]) -> dict[str, list[int]]:
    """Offsets by shard, as the records of events came."""
    found: dict[str, list[int]] = defaultdict(list)
    for record in itertools.chain.from_iterable(event["Records"] for event in events):
        keys = record["dynamodb"]["Keys"]
        found[keys["s"]["S"]].append(int(keys["o"]["N"]))
    return found


def until_seen(seen: Seen, wanted: dict[str, list[int]]) -> None:
    seen.wait_for(lambda events: offsets(events) == wanted)


def test_records_arrive_in_order_and_in_batches(table: Table) -> None:
    seen, go = Seen(), threading.Event()

    def route(event: Any, context: Any) -> None:
        seen.add(event)
        assert go.wait(_BOUND_SECONDS)

    table.put("a", 0)  # before the pump's time
    with Pumping(table, route):
        table.put("a", 1)
        seen.count(1)
        for n in range(2, 2 + 2 * BATCH):
            table.put("ab"[n % 2], n)
        go.set()
        everything = range(1, 2 + 2 * BATCH)
        until_seen(seen, {"a": [1, *everything[1::2]], "b": [*everything[2::2]]})
    assert [len(event["Records"]) for event in seen.all] == [1, BATCH, BATCH]


def test_a_record_has_the_form_it_has_on_aws(table: Table) -> None:
    seen = Seen()

    def route(event: Any, context: Context) -> None:
        seen.add((event, context.function_name, context.get_remaining_time_in_millis()))

    with Pumping(table, route):
        table.put("a", 7, m={"B": b"\x00\xff"})
        seen.count(1)
    event, name, remaining = seen.all[0]
    (record,) = event["Records"]
    assert record["eventName"] == "INSERT"
    assert record["eventSource"] == "aws:dynamodb"
    assert f"table/{table.name}/stream/" in record["eventSourceARN"]
    assert record["eventID"]
    change = record["dynamodb"]
    assert change["Keys"] == {"s": {"S": "a"}, "o": {"N": "7"}}
    assert change["StreamViewType"] == "KEYS_ONLY"
    assert change["SequenceNumber"].isdigit()
    assert isinstance(change["ApproximateCreationDateTime"], float)
    assert name == "route"
    assert 0 < remaining <= 60_000


def test_binary_values_come_as_base64(table: Table) -> None:
    table.switch_stream(False)
    view = {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
    table.dynamodb.update_table(TableName=table.name, StreamSpecification=view)
    seen = Seen()
    with Pumping(table, lambda event, context: seen.add(event)):
        table.put("a", 7, m={"B": b"\x00\xff"})
        seen.count(1)
    image = seen.all[0]["Records"][0]["dynamodb"]["NewImage"]
    assert image["m"] == {"B": base64.b64encode(b"\x00\xff").decode()}


def test_a_batch_that_failed_comes_again_before_anything_else(
    table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = Seen()

    def route(event: Any, context: Any) -> None:
        seen.add(event)
        if len(seen.all) < 3:
            table.put("a", len(seen.all) + 1)
            raise ZeroDivisionError("not yet")

    with Pumping(table, route, retry_pauses=(0.0, 0.0, 0.0)):
        table.put("a", 1)
        seen.wait_for(lambda events: sum(len(event["Records"]) for event in events) == 5)
    assert seen.all[0] == seen.all[1] == seen.all[2]
    assert offsets(seen.all[3:]) == {"a": [2, 3]}
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_batch_that_is_put_off_comes_again_whole(table: Table) -> None:
    seen = Seen()

    def route(event: Any, context: Any) -> Any:
        seen.add(event)
        first = event["Records"][0]["dynamodb"]["SequenceNumber"]
        return {"batchItemFailures": [{"itemIdentifier": first}] if len(seen.all) == 1 else []}

    with Pumping(table, route, retry_pauses=(0.0, 0.0)):
        table.put("a", 1)
        seen.count(2)
        table.put("a", 2)
        seen.wait_for(lambda events: 2 in offsets(events)["a"])
    assert offsets(seen.all) == {"a": [1, 1, 2]}


def test_a_batch_that_always_fails_does_not_stop_the_stream(
    table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = Seen()

    def route(event: Any, context: Any) -> None:
        seen.add(event)
        if 1 in offsets([event])["a"]:
            raise ZeroDivisionError("never")

    with Pumping(table, route, retry_pauses=(0.0, 0.0)):
        table.put("a", 1)
        seen.count(3)
        table.put("a", 2)
        seen.wait_for(lambda events: 2 in offsets(events)["a"])
    assert offsets(seen.all) == {"a": [1, 1, 1, 2]}
    assert "route failed too often with 1 records: going on" in capsys.readouterr().err


def test_a_table_without_a_stream_gets_one(engine: str) -> None:
    table, seen = Table(stream=False), Seen()
    with Pumping(table, lambda event, context: seen.add(event)):
        table.put("a", 1)
        until_seen(seen, {"a": [1]})
    table.delete()


def test_a_stream_of_keys_becomes_one_of_new_rows_where_those_are_wanted(table: Table) -> None:
    seen = Seen()
    with Pumping(table, lambda event, context: seen.add(event), images=True):
        table.put("a", 1, m={"S": "x"})
        seen.count(1)
    assert seen.all[0]["Records"][0]["dynamodb"]["NewImage"]["m"] == {"S": "x"}


def test_when_a_shard_ends_the_next_one_is_read_from_its_start(table: Table) -> None:
    seen, go = Seen(), threading.Event()

    def route(event: Any, context: Any) -> None:
        seen.add(event)
        assert go.wait(_BOUND_SECONDS)

    with Pumping(table, route):
        table.put("a", 1)
        seen.count(1)
        table.put("a", 2)
        table.switch_stream(False)
        table.switch_stream(True)
        table.put("a", 3)
        go.set()
        until_seen(seen, {"a": [1, 2, 3]})


def test_a_table_made_anew_is_followed(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    seen = Seen()
    with Pumping(table, lambda event, context: seen.add(event)):
        table.put("a", 1)
        seen.count(1)
        table.delete()
        table.create(stream=True)
        table.put("a", 2)
        seen.wait_for(lambda events: 2 in offsets(events)["a"])


class Fickle:
    """A streams client some of whose answers are errors, or name events as we choose."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.errors: list[str] = []
        self.raised = Seen()
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
    table.streams, seen = Fickle(table.streams), Seen()
    table.streams.event_name = "UNKNOWN_TO_SDK_VERSION"  # DynamoDB Local says so, when it expires a row
    with Pumping(table, lambda event, context: seen.add(event)):
        table.put("a", 1)
        seen.count(1)
    assert [record["eventName"] for record in seen.all[0]["Records"]] == ["REMOVE"]


@pytest.mark.parametrize("code", ["ExpiredIteratorException", "ValidationException", "InternalServerError"])
def test_errors_of_the_engine_lose_and_repeat_nothing(
    table: Table, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table.streams, seen, go = Fickle(table.streams), Seen(), threading.Event()

    def route(event: Any, context: Any) -> None:
        seen.add(event)
        assert go.wait(_BOUND_SECONDS)

    with Pumping(table, route):
        table.put("a", 1)
        seen.count(1)
        table.put("a", 2)
        table.put("a", 3)
        go.set()
        until_seen(seen, {"a": [1, 2, 3]})
        table.streams.errors = [code, code]
        table.streams.raised.count(1)
        table.put("a", 4)
        until_seen(seen, {"a": [1, 2, 3, 4]})
    assert capsys.readouterr().err.count("GetRecords operation: made up") == 1


def test_trimmed_records_are_passed_over(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    table.streams, seen = Fickle(table.streams), Seen()
    with Pumping(table, lambda event, context: seen.add(event)):
        table.put("a", 1)
        seen.count(1)
        table.streams.errors = ["TrimmedDataAccessException"]
        table.streams.raised.count(1)
        table.put("a", 2)
        until_seen(seen, {"a": [1, 1, 2]})  # what is left of the shard, from its start
    assert capsys.readouterr().err == ""


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
    seen = Seen()
    table.streams = split = Split()
    with Pumping(table, lambda event, context: seen.add(event)):
        until_seen(seen, {"left": [1, 0], "right": [2, 1, 0], "child": [0]})
    order = [shard for event in seen.all for shard in offsets([event])]
    assert order.index("child") > max(at for at, name in enumerate(order) if name == "left")
    assert split.starts == {"left": "LATEST", "right": "LATEST", "child": "LATEST"}


def test_a_shard_that_appears_later_is_read_whole(table: Table) -> None:
    seen = Seen()
    table.streams = split = Split()
    late = split.shards.pop(0)

    def route(event: Any, context: Any) -> None:
        seen.add(event)
        if len(seen.all) == 5:
            split.shards.append(late)

    with Pumping(table, route):
        until_seen(seen, {"left": [1, 0], "right": [2, 1, 0], "child": [0]})
    assert split.starts["child"] == "TRIM_HORIZON"


# Schedules


class Machine:
    """Time that passes when somebody waits, up to an end."""

    def __init__(self, end: float) -> None:
        self.now, self.end = 100.0, 100.0 + end

    def clock(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.now > self.end


def app_of(seen: Seen) -> Chalice:
    """A schedule of each kind, a plain function, and a middleware, as app.py may have."""
    app = Chalice("tiny", configure_logs=False)

    @app.middleware("all")
    def between(event: Any, get_response: Any) -> Any:
        if isinstance(event, LambdaFunctionEvent):
            event.event["passed"] = True
        return get_response(event)

    @app.schedule(Rate(1, Rate.MINUTES))
    def minutely(event: CloudWatchEvent) -> None:
        context: Any = event.context
        seen.add((context.function_name, event.detail_type, event.resources))

    @app.schedule("rate(6 hours)", name="quarterly")
    def renamed(event: CloudWatchEvent) -> None:
        seen.add(("quarterly", event.time))
        raise ZeroDivisionError("a failure of the app's")

    @app.schedule(Cron(0, 3, "*", "*", "?", "*"))
    def nightly(event: CloudWatchEvent) -> None: ...

    @app.lambda_function(name="route")
    def named_otherwise(event: dict[str, Any], context: Context) -> None:
        seen.add((context.function_name, event, context.aws_request_id))

    @app.route("/deliver")
    def deliver() -> None: ...

    return app


def test_schedules_are_those_of_the_app(capsys: pytest.CaptureFixture[str]) -> None:
    assert schedules_of(app_of(Seen())) == [Schedule("minutely", 60), Schedule("quarterly", 6 * 3600)]
    assert "nightly does not run here: cron(0 3 * * ? *) is not a rate." in capsys.readouterr().err


def test_schedules_run_at_once_and_then_at_their_rates() -> None:
    machine, runs = Machine(end=3600), defaultdict(list)
    schedules = [Schedule("minutely", 60), Schedule("often", 25.5), Schedule("seldom", 86400)]

    def invoke(function: str, event: dict[str, Any]) -> None:
        runs[function].append(machine.now - 100)

    Schedules(schedules, invoke, wait=machine.wait, clock=machine.clock).run()
    assert runs == {
        "minutely": [60.0 * n for n in range(61)],
        "often": [25.5 * n for n in range(142)],
        "seldom": [0.0],
    }


def test_a_machine_that_slept_makes_up_for_one_run() -> None:
    machine, runs = Machine(end=1000), []

    def invoke(function: str, event: dict[str, Any]) -> None:
        runs.append(machine.now - 100)
        if len(runs) == 2:
            machine.now += 500

    Schedules([Schedule("minutely", 60)], invoke, wait=machine.wait, clock=machine.clock).run()
    assert runs[:5] == [0.0, 60.0, 560.0, 620.0, 680.0]


def test_a_run_that_lasts_delays_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    seen, go = Seen(), threading.Event()

    def held(event: Any, context: Context) -> None:
        seen.add(("held", context.aws_request_id))
        assert go.wait(_BOUND_SECONDS)

    def broken(event: Any, context: Context) -> None:
        seen.add(("broken", context.aws_request_id))
        raise ZeroDivisionError("a failure of the app's")

    invocations = Invocations({"held": held, "broken": broken}, pauses=())
    machine = Machine(end=120)
    schedules = [Schedule("held", 60), Schedule("broken", 60)]
    Schedules(schedules, invocations.invoke, wait=machine.wait, clock=machine.clock).run()
    seen.count(6)
    assert sorted(name for name, _ in seen.all) == ["broken"] * 3 + ["held"] * 3
    assert len({id_ for _, id_ in seen.all}) == 6
    go.set()
    assert invocations.stop(_BOUND_SECONDS)
    assert capsys.readouterr().err.count("Function broken failed") == 3


# Invocations


@pytest.fixture
def seen() -> Seen:
    return Seen()


def test_a_function_gets_its_event_as_json_once(seen: Seen) -> None:
    invocations = Invocations({"deliver": lambda event, context: seen.add(event)})
    event = {"a": (1, 2), "b": {"c": None}}
    invocations.invoke("deliver", event)
    event["a"] = (3,)
    seen.count(1)
    assert invocations.stop(_BOUND_SECONDS)
    assert seen.all == [{"a": [1, 2], "b": {"c": None}}]


def test_what_cannot_be_invoked_is_refused(seen: Seen) -> None:
    invocations = Invocations({"deliver": lambda event, context: None})
    with pytest.raises(LookupError, match="no function named delivr"):
        invocations.invoke("delivr", {})
    with pytest.raises(TypeError):
        invocations.invoke("deliver", {"a": object()})


def test_a_failing_function_is_called_three_times_with_pauses(
    seen: Seen, capsys: pytest.CaptureFixture[str]
) -> None:
    def deliver(event: Any, context: Context) -> None:
        seen.add((time.monotonic(), context.aws_request_id))
        raise ZeroDivisionError("always")

    functions = {"deliver": deliver, "end": lambda *_: seen.add(None)}
    invocations = Invocations(functions, pauses=(0.05, 0.1), idle_seconds=0.01)
    invocations.invoke("deliver", {})
    seen.count(3)
    invocations.invoke("end", {})
    seen.count(4)
    assert invocations.stop(_BOUND_SECONDS)
    (first, one), (second, two), (third, three) = seen.all[:3]
    assert second - first >= 0.05
    assert third - second >= 0.1
    assert one == two == three
    assert seen.all[3] is None
    assert capsys.readouterr().err.count("ZeroDivisionError: always") == 3


def test_a_function_that_recovers_is_not_called_again(seen: Seen) -> None:
    def deliver(event: Any, context: Context) -> None:
        seen.add(event)
        if len(seen.all) == 1:
            raise ZeroDivisionError("once")

    invocations = Invocations({"deliver": deliver}, pauses=(0.0, 0.0), most=1)
    invocations.invoke("deliver", {"n": 1})
    seen.count(2)
    invocations.invoke("deliver", {"n": 2})
    seen.count(3)
    assert seen.all == [{"n": 1}, {"n": 1}, {"n": 2}]


def test_a_pause_holds_up_nobody(seen: Seen) -> None:
    def deliver(event: Any, context: Context) -> None:
        seen.add(event["n"])
        if event["n"] == 0:
            raise ZeroDivisionError("for a minute")

    invocations = Invocations({"deliver": deliver}, most=1)
    for n in range(3):
        invocations.invoke("deliver", {"n": n})
    seen.count(3)
    assert seen.all == [0, 1, 2]
    assert invocations.stop(_BOUND_SECONDS)


def test_as_many_run_at_once_as_are_allowed(seen: Seen) -> None:
    go = threading.Event()

    def deliver(event: Any, context: Context) -> None:
        seen.add(event["n"])
        assert go.wait(_BOUND_SECONDS)

    invocations = Invocations({"deliver": deliver}, most=20)
    for n in range(30):
        invocations.invoke("deliver", {"n": n})
    seen.count(20)
    assert (sorted(seen.all), invocations.threads) == (list(range(20)), 20)
    go.set()
    seen.count(30)
    assert invocations.stop(_BOUND_SECONDS)


def test_idle_threads_go_and_come_again(seen: Seen) -> None:
    ended = Seen()

    def deliver(event: Any, context: Context) -> None:
        thread = threading.current_thread()

        def wait() -> None:
            thread.join(_BOUND_SECONDS)
            ended.add(thread.is_alive())

        threading.Thread(target=wait).start()
        seen.add(event)

    invocations = Invocations({"deliver": deliver}, idle_seconds=0.01)
    for turn in (1, 2):
        invocations.invoke("deliver", {})
        ended.count(turn)
        assert invocations.threads == 0
    assert ended.all == [False, False]
    assert len(seen.all) == 2


def test_the_remaining_time_shrinks_to_nothing() -> None:
    machine = Machine(end=0)
    context = Context("deliver", "id", threading.Event(), seconds=60, clock=machine.clock)
    remaining = []
    for _ in range(4):
        remaining.append(context.get_remaining_time_in_millis())
        machine.wait(25)
    assert remaining == [60_000, 35_000, 10_000, 0]


def test_time_outs_are_by_function(seen: Seen) -> None:
    def deliver(event: Any, context: Context) -> None:
        seen.add(context.get_remaining_time_in_millis())

    invocations = Invocations({"a": deliver, "b": deliver}, seconds={"b": 900.0}, most=1)
    invocations.invoke("a", {})
    invocations.invoke("b", {})
    seen.count(2)
    assert 0 < seen.all[0] <= 60_000 < seen.all[1] <= 900_000


def test_stop_tells_running_functions_waits_for_them_and_starts_no_other(seen: Seen) -> None:
    go = threading.Event()

    def deliver(event: Any, context: Context) -> None:
        seen.add(("began", event["n"]))
        assert go.wait(_BOUND_SECONDS)
        seen.add(("ended", context.get_remaining_time_in_millis()))

    invocations = Invocations({"deliver": deliver}, most=1)
    for n in range(2):
        invocations.invoke("deliver", {"n": n})
    seen.count(1)
    assert not invocations.stop(0.01), "one runs"
    invocations.invoke("deliver", {"n": 2})
    go.set()
    assert invocations.stop(_BOUND_SECONDS)
    assert seen.all == [("began", 0), ("ended", 0)]


def test_functions_of_an_app_may_run_in_many_threads(seen: Seen) -> None:
    functions = functions_of(app_of(seen))
    assert functions.keys() == {"minutely", "quarterly", "nightly", "route"}
    invocations = Invocations(functions)
    for n in range(500):
        invocations.invoke("route", {"n": n})
    seen.count(500)
    assert sorted(event["n"] for _, event, _ in seen.all) == list(range(500))
    assert all(name == "route" and event["passed"] for name, event, _ in seen.all)
    assert len({id_ for *_, id_ in seen.all}) == 500
    assert invocations.stop(_BOUND_SECONDS)


# All together


def test_an_app_with_its_triggers(table: Table, seen: Seen, capsys: pytest.CaptureFixture[str]) -> None:
    app = app_of(seen)
    invocations = Invocations(functions_of(app))
    triggers = Triggers(app, invocations, stream_pumps(functions_of(app), table.name, client))
    triggers.start()
    table.put("a", 1)
    invocations.invoke("route", {"by": "hand"})
    seen.count(4)
    triggers.stop()
    found = {name: rest for name, *rest in seen.all if name == "minutely"}
    assert found["minutely"] == ["Scheduled Event", ["arn:aws:events:us-east-1:000000000000:rule/minutely"]]
    events = [rest[0] for name, *rest in seen.all if name == "route"]
    assert offsets([event for event in events if "Records" in event]) == {"a": [1]}
    assert {"by": "hand", "passed": True} in events
    assert "Function quarterly failed" in capsys.readouterr().err


def test_without_a_function_for_it_the_stream_is_left_alone(engine: str) -> None:
    app = Chalice("tiny", configure_logs=False)
    pumps = stream_pumps(functions_of(app), "no-such-table", client)
    Triggers(app, Invocations({}), pumps).start()  # it would wait, and tell of the trouble
    assert not any(thread.name == "stream" for thread in threading.enumerate())
