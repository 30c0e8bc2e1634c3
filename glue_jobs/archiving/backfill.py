"""Missing offsets, edits and attempts as DynamoDB has them, for the journal.

So the journal is complete, and the archive stays a function of it alone. What was fetched lies in the folder of its own
hour, which may belong to another day: that one has late data then.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import chain, islice
from typing import Any, TypeVar

from glue_jobs.archiving import log_rows, trace_rows
from glue_jobs.archiving.log_rows import Item
from glue_jobs.archiving.scan import ENDLESS, AttemptCount, Gap, Settings
from glue_jobs.common.manifest import TooNew

Line = tuple[str, str, str]
"""Day, hour and text of a line of the journal. In the place of a damaged row: nothing, nothing, and where it is."""

Attempt = tuple[str, str, int, str, int | None, str, str, str]
"""Of a row of traces: group_uid, topic_uid, shard, trace, offset (None: it is damaged), and what a Line has."""

PIECE = 20_000  # offsets that one query task looks for
_FEW = 500  # answers that are gathered without Spark
_AT_ONCE = 16  # questions for DynamoDB from this process
_SPAN = 1_000  # offsets that a row of traces covers at most
_FORMAT = 1  # of rows that can be read here
_DAMAGES = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    OSError,  # of a time that no calendar has
    RecursionError,
    zlib.error,
)
T = TypeVar("T")
A = TypeVar("A")
Trace = tuple[str, int]
"""A group's traces on one shard (their partition key), and the first offset that is looked at."""


def traces(attempt_counts: Iterable[AttemptCount]) -> list[Trace]:
    """Those of the groups that attempts are known of."""
    return [
        (f"{each.group_uid}/{each.topic_uid}/{each.shard}", each.first)
        for each in attempt_counts
        if each.group_uid
    ]


def attempts(
    table: str, options: Mapping[str, str], traces: Iterable[Trace], begin_ms: int, end_ms: int
) -> Iterator[Attempt]:
    """What DynamoDB has of attempts that began in this time. Raises TooNew."""
    client = client_of(**options)
    for home, first in traces:
        begin = f"{max(0, first - _SPAN):016d}"
        rows = items(client, table, "k = :k AND o >= :first", k=home, first=begin)
        yield from attempts_of(home, rows, begin_ms, end_ms)


def attempts_of(home: str, items: Iterable[Item], begin_ms: int, end_ms: int) -> Iterator[Attempt]:
    """The attempts in rows of traces that began in this time; a damaged row has a damaged line. Raises TooNew."""
    group_uid, topic_uid, shard = home.rsplit("/", 2)
    for item in items:
        try:
            with _only_sound(home, item):
                if not begin_ms <= log_rows.time_of(item) < end_ms:
                    continue
                _refuse_newer(home, item)
                lines = list(trace_rows.lines_of(item))
        except _Damaged as error:
            yield group_uid, topic_uid, int(shard), "", None, "", "", str(error)
            continue
        trace = item["o"]["S"].partition("#")[2]
        for line in lines:
            yield group_uid, topic_uid, int(shard), trace, *line


class _Damaged(Exception):
    """A row can't be read; the text says which, and why."""


@contextmanager
def _only_sound(home: str, item: Item) -> Iterator[None]:
    """What can't be read of a row is _Damaged."""
    try:
        yield
    except _DAMAGES as error:
        sort_key = next(iter(item["o"].values()))
        raise _Damaged(f"{home}, {sort_key}: {type(error).__name__}: {error}") from error


def _refuse_newer(home: str, item: Item) -> None:
    if int(item["v"]["N"]) > _FORMAT:
        raise TooNew(f"DynamoDB has rows of a newer Headrace ({home}): update the jobs.")


def _pages(client: Any, query: dict[str, Any]) -> Iterator[list[Item]]:
    while True:
        answer = client.query(**query)
        yield answer["Items"]
        if "LastEvaluatedKey" not in answer:
            return
        query["ExclusiveStartKey"] = answer["LastEvaluatedKey"]


def table_of(settings: Settings, noun: str) -> tuple[str, dict[str, str]]:
    """A table's name, and how to reach it."""
    return f"{settings.prefix}-{noun}", client_options(settings.region)


def client_options(region: str) -> dict[str, str]:
    """What boto3 must know to reach DynamoDB. Executors do not see the environment of this process, which may name a
    DynamoDB on this machine."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_DYNAMODB")
    if not endpoint:
        return {"region_name": region}
    get = os.environ.get
    keys = {
        "aws_access_key_id": get("AWS_ACCESS_KEY_ID") or "local",
        "aws_secret_access_key": get("AWS_SECRET_ACCESS_KEY") or "local",
    }
    return {"region_name": region, "endpoint_url": endpoint, **keys}


@cache
def client_of(**options: str) -> Any:
    """A client of this process: executors make their own."""
    import boto3

    return boto3.client("dynamodb", **options)


def shards(table: str, options: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The log's partition keys of all shards whose rows may be there: those of the topics that are there, that are
    being deleted, or were deleted not long ago. And which rows of topics are damaged, and why."""
    client, keys, damages = client_of(**options), [], []
    for home in ("topics", "retired", "deleted"):
        for item in items(client, table, "pk = :home", home=home):
            try:
                keys += _shards_of(item)
            except _DAMAGES as error:
                damages.append(f"{home}, {item['sk']['S']}: {type(error).__name__}: {error}")
    return sorted({*keys}), damages


def _shards_of(topic: Item) -> list[str]:
    """The shards of a topic as its row in the table `control` has them: those of the last priority, and of each more
    urgent one a quarter as many, from a multiple of 256 on."""
    life, count = f"{topic['name']['S']}:{topic['uid']['S']}", int(topic["shards"]["N"])
    urgent = int(topic["priorities"]["N"]) - 1 if "priorities" in topic else 0
    numbers = [256 * n + i for n in range(1, urgent + 1) for i in range(max(1, count // 4))]
    return [f"{life}/{number}" for number in (*range(count), *numbers)]


def few_answers(questions: Sequence[T], ask: Callable[[Iterable[T]], Iterable[A]]) -> list[A] | None:
    """The answers to questions for DynamoDB, asked from here, several at a time. None: there are many answers."""
    answers: list[A] = []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for some in pool.map(lambda each: [*islice(ask([each]), _FEW + 1)], questions):
            answers += some
            if len(answers) > _FEW:
                pool.shutdown(cancel_futures=True)
                return None
    return answers


def offsets(table: str, options: Mapping[str, str], gaps: Iterable[Gap]) -> Iterator[Line]:
    """What DynamoDB has of these offsets. Raises TooNew."""
    client = client_of(**options)
    for shard, first, last, until_ms in gaps:
        pages = _rows(client, table, shard, first, last)
        yield from lines_of(shard, pages, until_ms if last == ENDLESS else None)


def edits(table: str, options: Mapping[str, str], gaps: Iterable[Gap]) -> Iterator[Line]:
    """What DynamoDB has of the rows that begin within these offsets and were edited. They are read at half the price:
    what the stream did not bring is hours old. Raises TooNew."""
    client = client_of(**options)
    for shard, first, last, _ in gaps:
        query = _query(table, shard, first, last)
        query["FilterExpression"] = "e > :none"
        query["ExpressionAttributeValues"][":none"] = {"N": "0"}
        yield from lines_of(shard, _pages(client, query))


def lines_of(shard: str, pages: Iterable[Iterable[Item]], until_ms: int | None = None) -> Iterator[Line]:
    """The messages in rows of the log that were accepted up to `until_ms`; a damaged row has a damaged line. Nothing is
    read behind a page of which every sound row is later: one row whose time is wrong ends no look. Raises TooNew."""
    for page in pages:
        is_late: set[bool] = set()  # of its sound rows
        for item in page:
            try:
                with _only_sound(shard, item):
                    is_late.add(is_later := until_ms is not None and log_rows.time_of(item) > until_ms)
                    if is_later:
                        continue
                    _refuse_newer(shard, item)
                    lines = list(log_rows.lines_of(item))
            except _Damaged as error:
                lines = [("", "", str(error))]
            yield from lines
        if is_late == {True}:
            return


def rows_at(table: str, options: Mapping[str, str], shard: str, offset: int) -> Iterator[Item]:
    """The row of the log that covers an offset, if it is there, and perhaps others. Raises TooNew."""
    for item in chain.from_iterable(_rows(client_of(**options), table, shard, offset, offset)):
        _refuse_newer(shard, item)
        yield item


def items(client: Any, table: str, where: str, **texts: str) -> Iterator[Item]:
    """The rows of a table where a condition on its keys is met, with texts for `:name`."""
    known = {f":{name}": {"S": text} for name, text in texts.items()}
    query = {"KeyConditionExpression": where, "ExpressionAttributeValues": known}
    yield from chain.from_iterable(_pages(client, {"TableName": table, **query}))


def _rows(client: Any, table: str, shard: str, first: int, last: int) -> Iterator[list[Item]]:
    """Pages of the rows that may hold one of the offsets: the one that begins at or before `first`, and all that
    follow."""
    before = client.query(
        **_query(table, shard, 0, first), ScanIndexForward=False, Limit=1, ConsistentRead=True
    )["Items"]
    begin = first
    if before and not _ends_before(before[0], first):
        begin = int(before[0]["o"]["N"])
    query = _query(table, shard, begin, 10**18 if last == ENDLESS else last)
    if last == ENDLESS:
        query["Limit"] = 100  # mostly there is nothing, or the next day's first row
    yield from _pages(client, {**query, "ConsistentRead": True})


def _ends_before(item: Item, offset: int) -> bool:
    try:
        return int(item["o"]["N"]) + int(item["n"]["N"]) <= offset
    except _DAMAGES:
        return False  # it is read, and skipped


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
