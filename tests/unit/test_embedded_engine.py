"""The embedded engine beside what `tests/oracle` compares: commits, expiry, streams, what it does not know."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from chalicelib.store.layout import Tables
from chalicelib.store.tables import create_missing
from local.engine.client import Client, Streams
from local.engine.core import Engine
from local.engine.errors import Refused

NOW_S = 1_800_000_000
TABLE: dict[str, Any] = {
    "TableName": "rows",
    "BillingMode": "PAY_PER_REQUEST",
    "KeySchema": [{"AttributeName": "k", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "k", "AttributeType": "S"}],
    "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
}


def opened(file: Path | None) -> Client:
    """A client of an engine with one table, whose rows expire by `x`."""
    client = Client(Engine(file, lambda: NOW_S * 1000))
    if "rows" not in client.list_tables()["TableNames"]:
        client.create_table(**TABLE)
        ttl = {"Enabled": True, "AttributeName": "x"}
        client.update_time_to_live(TableName="rows", TimeToLiveSpecification=ttl)
    return client


@pytest.fixture(params=["file", "memory"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    client = opened(tmp_path / "engine.db" if request.param == "file" else None)
    yield client
    client.engine.close()


def put(client: Client, key: str, **attributes: dict[str, Any]) -> None:
    client.put_item(TableName="rows", Item={"k": {"S": key}, **attributes})


def keys(client: Client) -> list[str]:
    return sorted(item["k"]["S"] for item in client.scan(TableName="rows")["Items"])


def test_two_processes_make_the_tables_at_the_same_time(client: Client) -> None:
    tables = Tables("both")

    class First:
        """Has just seen that the rows of a table do not expire when the other process makes them."""

        def __getattr__(self, name: str) -> Any:
            return getattr(client, name)

        def describe_time_to_live(self, **request: Any) -> Any:
            answer = client.describe_time_to_live(**request)
            create_missing(client, tables)
            return answer

    create_missing(First(), tables)
    expiring = client.describe_time_to_live(TableName=tables.log)["TimeToLiveDescription"]
    assert expiring == {"TimeToLiveStatus": "ENABLED", "AttributeName": "x"}


def test_what_waits_for_a_commit_goes_into_the_next_one_together(client: Client) -> None:
    storage, is_writing, may_go_on = client.engine._storage, threading.Event(), threading.Event()
    statements: list[str] = []
    storage._writer.set_trace_callback(statements.append)

    def hold(connection: object) -> None:
        is_writing.set()
        assert may_go_on.wait(10)

    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(storage.write, hold)
        assert is_writing.wait(10)
        later = [pool.submit(put, client, str(n)) for n in range(8)]
        while len(storage._jobs) < len(later):
            threading.Event().wait(0.001)
        may_go_on.set()
        for each in (first, *later):
            each.result(10)
    assert statements.count("COMMIT") == 2
    assert keys(client) == [str(n) for n in range(8)]


def test_a_refusal_is_the_writes_own_and_the_others_of_its_commit_are_stored(client: Client) -> None:
    storage = client.engine._storage
    there = client.engine.prepared("Put", {"TableName": "rows", "Item": {"k": {"S": "a"}}})
    condition = {"TableName": "rows", "Key": {"k": {"S": "b"}}, "ConditionExpression": "attribute_exists(k)"}
    refused = client.engine.prepared("Delete", condition)
    jobs = [_job(write.look) for write in (there, refused)]
    storage._write_together(jobs)
    assert jobs[0].error is None
    assert isinstance(jobs[1].error, Refused)
    assert keys(client) == ["a"]


def _job(look: Any) -> Any:
    from local.engine.storage import _Job

    return _Job(lambda connection: look(connection).apply(connection), lambda answer: None)


def test_what_was_answered_is_in_the_file(tmp_path: Path) -> None:
    client = opened(tmp_path / "engine.db")
    put(client, "a", x={"N": str(NOW_S - 1)})
    client.engine.close()
    again = opened(tmp_path / "engine.db")
    assert keys(again) == ["a"]
    assert again.engine.drop_expired() == 1
    again.engine.close()
    assert (tmp_path / "engine.db").stat().st_mode & 0o777 == 0o600


def test_what_has_expired_goes_and_its_stream_says_who_removed_it(client: Client) -> None:
    streams = Streams(client.engine)
    arn = client.describe_table(TableName="rows")["Table"]["LatestStreamArn"]
    shard = streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"][0]["ShardId"]
    place = {"StreamArn": arn, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
    put(client, "gone", x={"N": str(NOW_S)})
    put(client, "stays", x={"N": str(NOW_S + 1)})
    put(client, "for ever")
    put(client, "no time", x={"S": "soon"})
    assert client.engine.drop_expired() == 1
    assert keys(client) == ["for ever", "no time", "stays"]
    iterator = streams.get_shard_iterator(**place)["ShardIterator"]
    last = streams.get_records(ShardIterator=iterator)["Records"][-1]
    assert (last["eventName"], last["userIdentity"]["principalId"]) == ("REMOVE", "dynamodb.amazonaws.com")
    assert last["dynamodb"]["Keys"] == {"k": {"S": "gone"}}


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        ({"Item": {"k": {"S": "a"}}, "Expected": {}}, "Expected of PutItem"),
        ({"Item": {"k": {"S": "a"}, "set": {"SS": ["a"]}}}, "attribute values of type SS"),
    ],
)
def test_what_it_does_not_know_is_named(client: Client, request_: dict[str, Any], named: str) -> None:
    with pytest.raises(NotImplementedError, match=f"does not know {named}; `--engine dynamodb-local` has it"):
        client.put_item(TableName="rows", **request_)
