"""The journal's lines are as docs/journal.md says: a fixture that the archive's tests read as well."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain.message import Draft
from chalicelib.domain.segment import Segment, ShardKey
from chalicelib.domain.topic import CursorKey
from chalicelib.domain.trace import TraceRow, Tried
from chalicelib.ports import Written
from chalicelib.services import journal
from chalicelib.services.journal import Journal
from chalicelib.store import codec
from chalicelib.store.changes import batch_name, written
from chalicelib.store.log import _item
from chalicelib.store.memory import MemoryBlobs
from chalicelib.store.traces import _item as trace_item

FIXTURE = Path(__file__).parents[1] / "support/journal_v1"
NOON_MS = 1_795_262_400_000  # 2026-11-21T12:00:00Z
SHARD = ShardKey("orders", "u1", 0)
DRAFTS = (
    Draft(
        b'{"price":1.50,"n":1e5}',
        tag="paid",
        keys=("o-1", "c-7"),
        ordering_key="c-7",
        headers={"h": "\u00f6"},
    ),
    Draft("gr\u00fc\u00df \U0001f30d".encode(), is_json=False, content_type="text/plain"),
    Draft(b"\x00\xff", is_json=False, content_type="image/png"),
    Draft(b"", blob="bodies/orders/u1/abc", blob_bytes=300_000),
    Draft(b'"was delayed"', id="abcdefghjkmn-u123"),
    Draft(b'"gone"', cancelled=True, changed_ms=NOON_MS + 5),
)
MESSAGES = [
    Written(SHARD, Segment(40, len(DRAFTS), "req000000001", NOON_MS, 9, DRAFTS, edition=1)),
    Written(SHARD, Segment(46, 1, "tombstone", NOON_MS, 9)),
]
DELIVERIES = [
    TraceRow(
        CursorKey(SHARD, "g1"), "t1", "worker-1", 0, 2, NOON_MS + 7,
        (Tried(40, 1, "SUCCESS", 12), Tried(41, 1, "RETRY", 12, "503"), Tried(42, 3, "DEAD", 9, "refused")),
        9, "billing",
    ),
    TraceRow(CursorKey(SHARD, "g2", "c9"), "t2", "screen", None, 1, NOON_MS + 8, (Tried(40, 1, "LAPSED"),), 9, "all"),
]  # fmt: skip


def lines_of(rows: list[Any]) -> list[tuple[str, dict[str, Any]]]:
    return [each for row in rows for each in journal.lines(row)]


@pytest.mark.parametrize(("table", "rows"), [("messages", MESSAGES), ("deliveries", DELIVERIES)])
def test_lines_are_those_of_the_fixture(table: str, rows: list[Any]) -> None:
    found = lines_of(rows)
    assert {folder for folder, _ in found} == {f"{table}/day=2026-11-21/hour=12"}
    text = (FIXTURE / f"{table}.jsonl").read_text()
    assert [line for _, line in found] == [json.loads(line) for line in text.splitlines()]


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
    assert written(records) == [young, MESSAGES[1], *DELIVERIES]


def test_removals_and_a_shards_memory_are_passed_over() -> None:
    memory = {"s": {"S": str(SHARD)}, "o": {"N": "-1"}, "t": {"N": "7"}}
    removed = record(2, stored([MESSAGES[1]])[0], "REMOVE")
    del removed["dynamodb"]["NewImage"]
    assert written([record(1, memory), removed]) == []


def test_a_batch_that_comes_again_is_the_same_object() -> None:
    blobs = MemoryBlobs()
    records = [record(7 + n, item) for n, item in enumerate(stored([MESSAGES[0], MESSAGES[1]]))]
    for _ in range(2):
        told = Journal(written, batch_name, blobs).write(records)
    assert told == {"lines": 7, "objects": 1}
    ((name, body),) = blobs._blobs.items()
    assert name == "journal/messages/day=2026-11-21/hour=12/20261121100000123-7-8.jsonl.gz"
    assert len(gzip.decompress(body).splitlines()) == 7


def test_lines_of_another_hour_are_another_object() -> None:
    blobs = MemoryBlobs()
    late = Written(SHARD, replace(MESSAGES[1].segment, first=47, accepted_ms=NOON_MS + 12 * 3_600_000))
    records = [record(n, item) for n, item in enumerate(stored([MESSAGES[1], late]))]
    assert Journal(written, batch_name, blobs).write(records)["objects"] == 2
    assert {name.rpartition("/")[0] for name in blobs._blobs} == {
        "journal/messages/day=2026-11-21/hour=12",
        "journal/messages/day=2026-11-22/hour=00",
    }
