"""Missing offsets and attempts as DynamoDB has them, which an engine writes into the journal.

So the journal is complete, and the archive stays a function of it alone. What was fetched lies in the folder of its own
hour, which may belong to another day: that one has late data then.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from glue_jobs.archiving import trace_rows
from glue_jobs.archiving.engine import ENDLESS, Gap, Tried
from glue_jobs.archiving.log_rows import lines_of
from glue_jobs.common.manifest import TooNew
from glue_jobs.common.output import progress

T = TypeVar("T")

PIECE = 20_000  # offsets that one query task looks for
_SPAN = 1_000  # offsets that a row of traces covers at most
_FORMAT = 1  # of rows that can be read here
Trace = tuple[str, int]
"""A group's traces on one shard (their partition key), and the first offset that is looked at."""


def traces(tried: Iterable[Tried]) -> list[Trace]:
    """Those of the groups that attempts are known of."""
    return [
        (f"{each.group_uid}/{each.topic_uid}/{each.shard}", each.first) for each in tried if each.group_uid
    ]


def attempts(
    table: str, place: Mapping[str, str], traces: Iterable[Trace], begin_ms: int, end_ms: int
) -> Iterator[tuple[Any, ...]]:
    """What DynamoDB has of attempts that began in this time: the place of each row (group_uid, topic_uid, shard, trace
    and the offset of its first), and its lines, each as day, hour and line. A damaged row is passed over.
    Raises TooNew."""
    import boto3  # here: executors make their own client

    client = boto3.client("dynamodb", **place)
    for home, first in traces:
        query = {
            "TableName": table,
            "KeyConditionExpression": "k = :k AND o >= :first",
            "ExpressionAttributeValues": {
                ":k": {"S": home},
                ":first": {"S": f"{max(0, first - _SPAN):016d}"},
            },
        }
        group_uid, topic_uid, shard = home.rsplit("/", 2)
        for item in _pages(client, query):
            if begin_ms <= int(item["a"]["N"]) < end_ms:
                lines = _lines_of(item, home, trace_rows.lines_of)
                if lines:
                    trace = item["o"]["S"].partition("#")[2]
                    yield group_uid, topic_uid, int(shard), trace, lines[0][0], [line[1:] for line in lines]


def _lines_of(
    item: Mapping[str, Any], home: str, read: Callable[[Mapping[str, Any]], Iterable[T]]
) -> list[T]:
    """A row's lines, none where it is damaged. Raises TooNew."""
    if int(item["v"]["N"]) > _FORMAT:
        raise TooNew(f"DynamoDB has rows of a newer Headrace ({home}): update the jobs.")
    try:
        return list(read(item))
    except (ValueError, LookupError, TypeError, zlib.error) as error:
        place = next(iter(item["o"].values()))
        progress(f"A row can't be read and is passed over: {home}, {place}: {type(error).__name__}: {error}")
        return []


def _pages(client: Any, query: dict[str, Any]) -> Iterator[dict[str, Any]]:
    while True:
        answer = client.query(**query)
        yield from answer["Items"]
        if "LastEvaluatedKey" not in answer:
            return
        query["ExclusiveStartKey"] = answer["LastEvaluatedKey"]


def place_of(region: str) -> dict[str, str]:
    """Where DynamoDB is; executors do not see the environment of this process, in which this machine may have its
    own."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_DYNAMODB")
    if not endpoint:
        return {"region_name": region}
    keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
    return {"region_name": region, "endpoint_url": endpoint, **keys}


def offsets(table: str, place: Mapping[str, str], gaps: Iterable[Gap]) -> Iterator[tuple[str, str, str]]:
    """What DynamoDB has of these offsets: day, hour, line. A damaged row is passed over. Raises TooNew."""
    import boto3

    client = boto3.client("dynamodb", **place)
    for shard, first, last, until_ms in gaps:
        for item in _rows(client, table, shard, first, last):
            if last == ENDLESS and int(item["a"]["N"]) > until_ms:
                break
            yield from _lines_of(item, shard, lines_of)


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
    yield from _pages(client, {**query, "ConsistentRead": True})


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
