"""Missing offsets, fetched from DynamoDB by the executors and written into the journal.

So the journal is complete, and the archive stays a function of it alone. What was fetched lies in the folder of its own
hour, which may belong to another day: that one has late data then.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from glue_jobs.archiving.log_rows import lines_of

PIECE = 20_000  # offsets that one query task looks for
Gap = tuple[str, int, int, int]
"""The shard (the log's partition key), first and last offset; a gap without an end goes on to what was accepted by the
time (ms) that is the fourth."""

ENDLESS = -1


def fetched(spark: SparkSession, table: str, region: str, gaps: Iterable[Gap]) -> DataFrame:
    """What DynamoDB has of these offsets: day, hour, line."""
    gaps, place = list(gaps), {"region_name": region, **_local_engine()}
    found = spark.sparkContext.parallelize(gaps, max(1, min(len(gaps), 64))).mapPartitions(
        lambda some: _fetch(table, place, some)
    )
    return spark.createDataFrame(found, "day string, hour string, line string")


def _local_engine() -> dict[str, str]:
    """Where DynamoDB is, if this machine has its own: executors do not see the environment of this process."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_DYNAMODB")
    if not endpoint:
        return {}
    return {"endpoint_url": endpoint, "aws_access_key_id": "local", "aws_secret_access_key": "local"}


def _fetch(table: str, place: Mapping[str, str], gaps: Iterable[Gap]) -> Iterator[tuple[str, str, str]]:
    import boto3  # here: executors make their own client

    client = boto3.client("dynamodb", **place)
    for shard, first, last, until_ms in gaps:
        for item in _rows(client, table, shard, first, last):
            if last == ENDLESS and int(item["a"]["N"]) > until_ms:
                break
            yield from lines_of(item)


def _rows(client: Any, table: str, shard: str, first: int, last: int) -> Iterator[dict[str, Any]]:
    """The rows that may hold one of the offsets: the one that begins at or before `first`, and all that follow."""
    before = client.query(
        **_query(table, shard, 0, first), ScanIndexForward=False, Limit=1, ConsistentRead=True
    )["Items"]
    begin = int(before[0]["o"]["N"]) if before else first
    if before and begin + int(before[0]["n"]["N"]) <= first:
        begin = first
    query = _query(table, shard, begin, 10**18 if last == ENDLESS else last)
    if last == ENDLESS:
        query["Limit"] = 100  # mostly there is nothing, or the next day's first row
    while True:
        answer = client.query(**query, ConsistentRead=True)
        yield from answer["Items"]
        if "LastEvaluatedKey" not in answer:
            return
        query["ExclusiveStartKey"] = answer["LastEvaluatedKey"]


def _query(table: str, shard: str, first: int, last: int) -> dict[str, Any]:
    return {
        "TableName": table,
        "KeyConditionExpression": "s = :s AND o BETWEEN :first AND :last",
        "ExpressionAttributeValues": {
            ":s": {"S": shard},
            ":first": {"N": str(first)},
            ":last": {"N": str(last)},
        },
    }
