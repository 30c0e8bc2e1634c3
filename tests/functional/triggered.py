"""What tests of streams, schedules and invocations share: a table, an app, and a record of calls to wait for."""

from __future__ import annotations

import contextlib
import itertools
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from chalice import Chalice
from chalice.app import CloudWatchEvent, LambdaFunctionEvent, Rate

from chalicelib.store.clients import Clients
from local.functions import Context

BOUND_SECONDS = 120.0


class CallLog:
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
            assert self._changed.wait_for(lambda: enough(self.all), BOUND_SECONDS), self.all

    def count(self, number: int) -> None:
        self.wait_for(lambda all_: len(all_) >= number)


class Table:
    """A table of the log's form."""

    def __init__(self, stream: bool) -> None:
        self.name = f"triggers-{uuid.uuid4().hex}-log"
        clients = Clients("us-east-1")
        self.dynamodb, self.streams = clients.get("dynamodb", 60), clients.get("dynamodbstreams", 60)
        self.create(stream)

    def create(self, stream: bool) -> None:
        keys = (("s", "S", "HASH"), ("o", "N", "RANGE"))
        view = {"StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}}
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
        view = {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"} if on else {"StreamEnabled": False}
        self.dynamodb.update_table(TableName=self.name, StreamSpecification=view)

    def delete(self) -> None:
        self.dynamodb.delete_table(TableName=self.name)


@contextlib.contextmanager
def new_table() -> Iterator[Table]:
    table = Table(stream=True)
    yield table
    table.delete()


def offsets(events: list[Any]) -> dict[str, list[int]]:
    """Offsets by shard, as the records of events came."""
    offsets_of: dict[str, list[int]] = defaultdict(list)
    for record in itertools.chain.from_iterable(event["Records"] for event in events):
        keys = record["dynamodb"]["Keys"]
        offsets_of[keys["s"]["S"]].append(int(keys["o"]["N"]))
    return offsets_of


def until_seen(calls: CallLog, expected: dict[str, list[int]]) -> None:
    calls.wait_for(lambda events: offsets(events) == expected)


class Machine:
    """Time that passes during waits, up to an end."""

    def __init__(self, end: float) -> None:
        self.now, self.end = 100.0, 100.0 + end

    def clock(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.now > self.end


def app_of(calls: CallLog) -> Chalice:
    """Two schedules, a plain function, and a middleware, as app.py may have."""
    app = Chalice("tiny", configure_logs=False)

    @app.middleware("all")
    def between(event: Any, get_response: Any) -> Any:
        if isinstance(event, LambdaFunctionEvent):
            event.event["passed"] = True
        return get_response(event)

    @app.schedule(Rate(1, Rate.MINUTES))
    def minutely(event: CloudWatchEvent) -> None:
        context: Any = event.context
        calls.add((context.function_name, event.detail_type, event.resources))

    @app.schedule(Rate(6, Rate.HOURS), name="quarterly")
    def renamed(event: CloudWatchEvent) -> None:
        calls.add(("quarterly", event.time))
        raise ZeroDivisionError("a failure of the app's")

    @app.lambda_function(name="route")
    def named_otherwise(event: dict[str, Any], context: Context) -> None:
        calls.add((context.function_name, event, context.aws_request_id))

    @app.route("/deliver")
    def deliver() -> None: ...

    return app
