"""The journal's lines are as docs/journal.md says: a fixture that the archive's tests read as well."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.blob_expiry import parse
from chalicelib.domain.message import Draft, Origin
from chalicelib.domain.segment import ShardKey, Written
from chalicelib.services import journal
from chalicelib.services.journal import Journal
from chalicelib.store import codec
from chalicelib.store.changes import written_rows
from chalicelib.store.log import _item
from chalicelib.store.traces import _item as trace_item
from local.store import MemoryBlobs
from tests.support.journaled import DELIVERIES, DRAFTS, FIXTURE, MESSAGES, NOON_MS, SHARD


def lines_of(rows: list[Any]) -> list[tuple[str, dict[str, Any]]]:
    return [each for row in rows for each in journal.lines(row)]


@pytest.mark.parametrize(("table", "rows"), [("messages", MESSAGES), ("deliveries", DELIVERIES)])
def test_lines_are_those_of_the_fixture(table: str, rows: list[Any]) -> None:
    lines = lines_of(rows)
    assert {folder for folder, _ in lines} == {f"{table}/day=2026-11-21/hour=12"}
    text = (FIXTURE / f"{table}.jsonl").read_text()
    assert [line for _, line in lines] == [json.loads(line) for line in text.splitlines()]


def test_entries_of_retry_lanes_have_no_lines() -> None:
    lane = ShardKey("orders~billing", "g1", 0)
    assert lines_of([Written(lane, MESSAGES[0].segment)]) == []


def record(number: int, item: dict[str, Any], name: str = "INSERT") -> dict[str, Any]:
    """A stream's record as Lambda gets it."""
    plain = {
        key: {"B": base64.b64encode(value["B"]).decode()} if "B" in value else value
        for key, value in item.items()
    }
    change = {"Keys": {}, "NewImage": plain, "SequenceNumber": str(number)}
    arn = "arn:aws:dynamodb:us-east-1:0:table/t/stream/2026-11-21T10:00:00.123"
    return {"eventName": name, "eventSourceARN": arn, "dynamodb": change}


def stored(rows: list[Written]) -> list[dict[str, Any]]:
    return [
        _item(row.shard, row.segment, codec.pack(row.segment.drafts) if row.segment.drafts else None)
        for row in rows
    ]


def test_what_the_streams_carry_is_read_as_it_was_written() -> None:
    young = Written(SHARD, replace(MESSAGES[0].segment, edition=0, drafts=DRAFTS * 3, count=18))
    records = [record(n, item) for n, item in enumerate(stored([young, MESSAGES[1]]))]
    records += [record(9, trace_item(row)) for row in DELIVERIES]
    assert written_rows(records) == [young, MESSAGES[1], *DELIVERIES]


def test_removals_and_a_shards_memory_are_passed_over() -> None:
    memory = {"s": {"S": str(SHARD)}, "o": {"N": "-1"}, "t": {"N": "7"}}
    removal = record(2, stored([MESSAGES[1]])[0], "REMOVE")
    del removal["dynamodb"]["NewImage"]
    assert written_rows([record(1, memory), removal]) == []


def test_a_batch_that_comes_again_is_the_same_object() -> None:
    blobs = MemoryBlobs()
    records = [record(7 + n, item) for n, item in enumerate(stored([MESSAGES[0], MESSAGES[1]]))]
    for _ in range(2):
        report = Journal(blobs).write(records)
    assert report == {"lines": 7, "objects": 1}
    ((name, body),) = ((name, body) for name, body in blobs._blobs.items() if name.startswith("journal/"))
    assert name == "journal/messages/day=2026-11-21/hour=12/20261121100000123-7-8.jsonl.gz"
    assert len(gzip.decompress(body).splitlines()) == 7


def test_lines_of_another_hour_are_another_object() -> None:
    blobs = MemoryBlobs()
    late_row = Written(SHARD, replace(MESSAGES[1].segment, first=47, accepted_ms=NOON_MS + 12 * 3_600_000))
    records = [record(n, item) for n, item in enumerate(stored([MESSAGES[1], late_row]))]
    assert Journal(blobs).write(records)["objects"] == 2
    assert {name.rpartition("/")[0] for name in blobs.names("journal/", "", 9)} == {
        "journal/messages/day=2026-11-21/hour=12",
        "journal/messages/day=2026-11-22/hour=00",
    }


def test_what_cannot_be_read_lies_in_quarantine_and_the_rest_is_written() -> None:
    good, later, damaged_item = stored([MESSAGES[1]] * 3)
    later = {**later, "o": {"N": "100"}, "v": {"N": "2"}}
    damaged_item = {**damaged_item, "o": {"N": "200"}, "m": {"S": "[{"}}
    trace = trace_item(DELIVERIES[0])
    items = [damaged_item, later, {**trace, "m": {"S": "?"}}, {**trace, "v": {"N": "2"}}, good, trace]
    records = [record(n, item) for n, item in enumerate(items)]
    blobs = MemoryBlobs()
    report = Journal(blobs).write(records)
    assert report["unreadable"] == 4
    objects = {name.split("/")[1]: lines_in(blobs, name) for name in blobs._blobs}
    assert objects["quarantine"] == records[:4], "as they came"
    voids = [line["offset"] for line in objects["messages"] if line.get("void") == "undecodable"]
    assert voids == list(range(200, 200 + MESSAGES[1].segment.count))
    healthy = [line for line in objects["messages"] if line["offset"] < 100]
    assert healthy == [line for _, line in lines_of([MESSAGES[1]])]
    assert objects["deliveries"] == [line for _, line in lines_of([DELIVERIES[0]])]


@pytest.mark.parametrize(("name", "time"), [("a", 10**17), ("a", -(10**17)), ("x", 10**17), ("x", None)])
def test_a_time_that_no_calendar_has_stops_neither_the_row_nor_those_after_it(
    name: str, time: int | None
) -> None:
    """A batch that fails comes again for six hours, and nothing behind it is written meanwhile."""
    large = (Draft(b"", blob="bodies/orders/u1/abc"),)
    row = Written(SHARD, replace(MESSAGES[0].segment, count=1, drafts=large))
    damaged, sound = stored([row, MESSAGES[1]])
    damaged[name] = {"N": str(time)} if time else {"S": "?"}
    blobs = MemoryBlobs()
    counts = Journal(blobs).write([record(1, damaged), record(2, sound)])
    assert counts.get("unreadable", 0) == (name == "a" or time is None)
    assert blobs.names("journal/messages/day=2026-11-21/", "", 9), "the sound one's"


def test_a_large_body_is_noted_under_the_day_on_which_its_row_is_gone() -> None:
    blobs = MemoryBlobs()
    lane = ShardKey("orders~billing", "g1", 0)
    place = Origin("id", 3, 77, NOON_MS, 1, whole=True)
    drafts = (DRAFTS[0], Draft(b"", blob="bodies/orders/u1/abc"), Draft(b"", blob="what damage left"))
    expires_s = NOON_MS // 1000 + 8 * 86_400
    row = replace(MESSAGES[0].segment, first=40, count=3, drafts=drafts, expires_s=expires_s)
    entry = replace(row, count=1, drafts=(Draft(b"", blob="bodies/orders/u1/def", origin=place),))
    rows: list[Any] = [Written(SHARD, row), Written(lane, entry)]
    Journal(blobs).store(rows, "batch")
    names = blobs.names("expiring/", "", 9)
    assert names == ["expiring/2026-12-01/orders!u1!0!41!abc", "expiring/2026-12-01/orders!u1!3!77!def"]
    bodies = [parse(name) for name in names]
    assert [body.body for body in bodies if body] == ["bodies/orders/u1/abc", "bodies/orders/u1/def"]
    assert [body.name for body in bodies if body] == names


def lines_in(blobs: MemoryBlobs, name: str) -> list[Any]:
    raw = blobs.get(name)
    assert raw is not None
    return [json.loads(line) for line in gzip.decompress(raw).splitlines()]
