"""What no flow of the product sends: the rest of the expressions' language, the limits, tokens, pages, streams. Both
engines answer alike."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from local.engine.core import Engine
from local.engine.server import Protocol
from tests.oracle.requests import Document, Request, Wire, comparable, difference

KEY = {"p": {"S": "a"}, "s": {"N": "1"}}
ITEM = {
    **KEY,
    "n": {"N": "7"},
    "t": {"S": "text"},
    "b": {"B": b64encode(b"\x01\xff").decode()},
    "flag": {"BOOL": True},
    "nil": {"NULL": True},
    "l": {"L": [{"N": "1"}, {"S": "x"}, {"M": {"k": {"N": "2"}}}]},
    "m": {"M": {"k": {"N": "2"}, "deep": {"M": {"l": {"L": [{"S": "y"}]}}}}},
}
VALUES = {
    ":seven": {"N": "7"},
    ":one": {"N": "1"},
    ":x": {"S": "x"},
    ":te": {"S": "te"},
    ":S": {"S": "S"},
    ":true": {"BOOL": True},
    ":list": {"L": [{"N": "1"}]},
}
CONDITIONS = (
    "n = :seven",
    "NOT n < :one",
    "n BETWEEN :one AND :seven",
    "n IN (:one, :seven, :x)",
    "t IN (:one, :seven)",
    "begins_with(t, :te)",
    "begins_with(n, :te)",
    "attribute_type(t, :S)",
    "attribute_exists(m.deep.l) AND attribute_not_exists(m.deep.x)",
    "m.k > :one",
    "size(t) < :seven",
    "size(l) > :one AND size(m) > :one",
    "size(n) > :one",
    "absent = :one OR (n = :seven AND (t = :x OR NOT t = :x))",
    "flag = :true",
    "nil = :true",
    "l = :list",
    "absent < :one",
    "n = :one = :one",
    "(n = :one",
    "n == :one",
    "n = :undefined",
    "#undefined = :one",
    "contains(t)",
    "unheard_of(t)",
    "",
    "n",
    "n = :one AND",
    "m.k.",
)
UPDATES = (
    "SET n = n + :one",
    "SET n = :one + n, t = :x",
    "SET novel = if_not_exists(novel, :seven), n = if_not_exists(n, :one)",
    "SET novel = if_not_exists(novel, :seven) + :one",
    "SET m.k = :x, m.another = :list REMOVE l",
    "REMOVE m.deep.k, absent, l",
    "REMOVE m.absent.k",
    "SET absent.k = :x",
    "SET n = t + :one",
    "SET n = absent + :one",
    "SET m = :x, m.k = :one",
    "SET n = :one, n = :seven",
    "SET s = :one",
    "ADD n :one, fresh :seven",
    "ADD t :one",
    "ADD n :x",
    "set n = :one remove t",
    "SET n = :one SET t = :x",
    "SET",
    "PUT n = :one",
    "SET n :one",
)
PROJECTIONS = ("n, t", "m", "absent", "n, absent", "p", "n,", "")


class Both:
    """A table of each engine, asked alike."""

    def __init__(self, theirs: Wire) -> None:
        self.ours, self.theirs = Protocol(Engine()), theirs
        self.table = f"language-{uuid4().hex[:8]}"
        keys = [{"AttributeName": "p", "KeyType": "HASH"}, {"AttributeName": "s", "KeyType": "RANGE"}]
        kinds = [{"AttributeName": "p", "AttributeType": "S"}, {"AttributeName": "s", "AttributeType": "N"}]
        stream = {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
        billing = "PAY_PER_REQUEST"
        self.ask(
            "CreateTable",
            KeySchema=keys,
            AttributeDefinitions=kinds,
            BillingMode=billing,
            StreamSpecification=stream,
        )

    def ask(self, operation: str, **body: Any) -> None:
        """The same of both."""
        if "TransactItems" not in body and "RequestItems" not in body:
            body["TableName"] = self.table
        assert difference(Request(f"DynamoDB_20120810.{operation}", body), self.ours, self.theirs) is None

    def put(self, item: Document) -> None:
        self.ask("PutItem", Item=item)

    def read_on(self, operation: str, **body: Any) -> None:
        """Page after page."""
        request = Request(f"DynamoDB_20120810.{operation}", {"TableName": self.table, **body})
        for _ in range(20):
            assert difference(request, self.ours, self.theirs) is None
            answer = json.loads(self.ours.answer(request.target, json.dumps(request.body).encode())[1])
            if "LastEvaluatedKey" not in answer:
                return
            request.body["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
        raise AssertionError("no end of it")


@pytest.fixture
def both(oracle: str) -> Iterator[Both]:
    with Wire(oracle) as wire:
        both = Both(wire)
        both.put(ITEM)
        yield both
        both.ask("DeleteTable")


def used(text: str, values: Document) -> Document:
    """The values that a text names, as a request must give them."""
    found = {
        name: value
        for name, value in values.items()
        if name in text.replace(",", " ").replace(")", " ").split()
    }
    return {"ExpressionAttributeValues": found} if found else {}


def test_conditions_are_read_alike(both: Both) -> None:
    for text in CONDITIONS:
        both.ask("PutItem", Item=ITEM, ConditionExpression=text, **used(text, VALUES))
        both.ask("Scan", FilterExpression=text, **used(text, VALUES))


def test_updates_are_carried_out_alike(both: Both) -> None:
    for text in UPDATES:
        for wanted in ("ALL_NEW", "UPDATED_NEW")[: 1 if "REMOVE" in text else 2]:
            both.put(ITEM)
            both.ask("UpdateItem", Key=KEY, UpdateExpression=text, ReturnValues=wanted, **used(text, VALUES))
        both.ask("GetItem", Key=KEY, ConsistentRead=True)
    both.ask(
        "UpdateItem", Key={**KEY, "s": {"N": "2"}}, UpdateExpression="SET n = :one", **used(":one", VALUES)
    )
    both.ask("Scan")


def test_projections_are_read_alike(both: Both) -> None:
    for text in PROJECTIONS:
        both.ask("GetItem", Key=KEY, ProjectionExpression=text)
        both.ask("Scan", ProjectionExpression=text, FilterExpression="attribute_exists(n)")


def test_a_placeholder_that_nothing_uses_is_refused(both: Both) -> None:
    both.ask("GetItem", Key=KEY, ProjectionExpression="#n", ExpressionAttributeNames={"#n": "n", "#x": "x"})
    both.ask("DeleteItem", Key=KEY, ConditionExpression="n = :seven", ExpressionAttributeValues=VALUES)


@pytest.mark.parametrize(
    "numbers", [range(-5, 6), [-(10**37), -1, 0, 1, 10**37], ["-1.5", "-1.25", "0.001", "1E2", "1E-3"]]
)
def test_numbers_sort_alike(both: Both, numbers: Any) -> None:
    for number in numbers:
        both.put({"p": {"S": "numbers"}, "s": {"N": str(number)}})
    for forward in (True, False):
        for text in ("p = :p", "p = :p AND s > :s", "p = :p AND s BETWEEN :s AND :t", "p = :p AND s <= :s"):
            values = {":p": {"S": "numbers"}, ":s": {"N": "-1.25"}, ":t": {"N": "1E2"}}
            values = {name: value for name, value in values.items() if name in text}
            request = {
                "KeyConditionExpression": text,
                "ExpressionAttributeValues": values,
                "ScanIndexForward": forward,
            }
            both.read_on("Query", **request)
            both.read_on("Query", **request, Limit=2)


def test_pages_end_alike(both: Both) -> None:
    for number in range(40):
        both.put({"p": {"S": "large"}, "s": {"N": str(number)}, "body": {"S": "x" * (30_000 + 731 * number)}})
    request = {"KeyConditionExpression": "p = :p", "ExpressionAttributeValues": {":p": {"S": "large"}}}
    both.read_on("Query", **request)
    both.read_on("Query", **request, ScanIndexForward=False, Select="COUNT")
    both.read_on("Query", **request, FilterExpression="s > :p", ConsistentRead=True)


@pytest.mark.parametrize("size", [400 * 1024 - 1, 400 * 1024, 400 * 1024 + 1])
def test_an_item_has_400_kb(both: Both, size: int) -> None:
    both.put({**KEY, "body": {"S": "x" * (size - len("p" + "a" + "s" + "body") - 2)}})
    both.ask("UpdateItem", Key=KEY, UpdateExpression="SET more = :one", **used(":one", VALUES))
    both.ask("GetItem", Key=KEY)


@pytest.mark.parametrize("count", [0, 1, 25, 26])
def test_a_batch_has_25_rows(both: Both, count: int) -> None:
    rows = [{"PutRequest": {"Item": {**KEY, "s": {"N": str(n)}}}} for n in range(count)]
    both.ask("BatchWriteItem", RequestItems={both.table: rows})
    both.ask("BatchWriteItem", RequestItems={both.table: [*rows[:2], *rows[:1]]})
    both.ask("Scan")


@pytest.mark.parametrize("count", [1, 100, 101])
def test_a_transaction_has_100_actions(both: Both, count: int) -> None:
    puts = [{"Put": {"TableName": both.table, "Item": {**KEY, "s": {"N": str(n)}}}} for n in range(count)]
    both.ask("TransactWriteItems", TransactItems=puts)
    both.ask("TransactWriteItems", TransactItems=[*puts[:2], *puts[:1]])
    both.ask("Scan")


def test_a_transaction_is_done_once_by_its_token(both: Both) -> None:
    add = {"TableName": both.table, "Key": KEY, "UpdateExpression": "ADD n :one", **used(":one", VALUES)}
    token = uuid4().hex
    for _ in range(2):
        both.ask("TransactWriteItems", TransactItems=[{"Update": add}], ClientRequestToken=token)
    both.ask("GetItem", Key=KEY)
    other = {**add, "ExpressionAttributeValues": {":one": {"N": "2"}}}
    both.ask("TransactWriteItems", TransactItems=[{"Update": other}], ClientRequestToken=token)
    both.ask("GetItem", Key=KEY)


def test_a_transaction_that_one_condition_refuses_changes_nothing(both: Both) -> None:
    there = {"TableName": both.table, "ConditionExpression": "attribute_exists(p)"}
    shown = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    gone = {**there, "ConditionExpression": "attribute_not_exists(p)", **shown}
    actions: list[Document] = [
        {"ConditionCheck": {**there, "Key": KEY}},
        {"Delete": {**there, "Key": {**KEY, "s": {"N": "2"}}}},
        {"Put": {**gone, "Item": {**KEY, "s": {"N": "3"}}}},
    ]
    both.ask("TransactWriteItems", TransactItems=actions)
    both.ask("TransactWriteItems", TransactItems=[{"Put": {**gone, "Item": ITEM}}, *actions[:1]])
    both.ask("TransactWriteItems", TransactItems=actions[::2])
    both.ask("Scan")


def test_streams_tell_alike(both: Both) -> None:
    both.put({**ITEM, "n": {"N": "8"}})
    both.put({**ITEM, "n": {"N": "8"}})  # changes nothing
    both.ask("UpdateItem", Key=KEY, UpdateExpression="REMOVE t")
    both.ask("DeleteItem", Key=KEY)
    both.ask("DeleteItem", Key=KEY)
    ours, theirs = (changes(engine, both.table) for engine in (both.ours, both.theirs))
    assert ours == theirs
    assert [name for name, _ in ours] == ["INSERT", "MODIFY", "MODIFY", "REMOVE"]


def changes(engine: Protocol | Wire, table: str) -> list[tuple[str, Document]]:
    """The records of a table's stream, without numbers and times."""

    def ask(operation: str, **body: Any) -> Document:
        service = "DynamoDB" if operation == "DescribeTable" else "DynamoDBStreams"
        target = f"{service}_20120810.{operation}"
        return dict(json.loads(engine.answer(target, json.dumps(body).encode())[1]))

    arn = ask("DescribeTable", TableName=table)["Table"]["LatestStreamArn"]
    records = []
    for shard in ask("DescribeStream", StreamArn=arn)["StreamDescription"]["Shards"]:
        where = {"ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = ask("GetShardIterator", StreamArn=arn, **where)["ShardIterator"]
        records += ask("GetRecords", ShardIterator=iterator)["Records"]
    parts = ("Keys", "NewImage", "StreamViewType")
    request = Request("GetRecords", {})
    return [
        (each["eventName"], comparable(request, 200, {part: each["dynamodb"].get(part) for part in parts}))
        for each in records
    ]
