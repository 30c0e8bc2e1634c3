"""Both engines make the same archive: rows, checksums and manifests; each goes on where the other was."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as some
from pyspark.sql import SparkSession

from glue_jobs.archiving.engine import ARROW, SPARK, Settings, Unusual
from glue_jobs.archiving.on_arrow import engine, hashes, lines, spill
from glue_jobs.archiving.on_arrow.rows import DELIVERIES, MESSAGES
from glue_jobs.archiving.window import Window
from glue_jobs.common import session
from glue_jobs.common.arguments import DONE
from glue_jobs.common.bucket import Entry, FolderBucket
from glue_jobs.common.checksums import checksums
from glue_jobs.common.parquet import is_readable
from glue_jobs.common.schemas import JOURNAL, ORDER, TABLES
from tests.glue.journals import DAY, NOON_MS, Line, Place, delivery, message

FEW = settings(
    max_examples=40 if os.environ.get("HEADRACE_SOAK") else 2,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # each example is two jobs: to make one smaller takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

texts = some.text(some.characters(exclude_categories=["Cs"]), max_size=40)
offsets = some.integers(0, 12)
shards = some.integers(0, 2)
uids = some.sampled_from(["u1", "u2"])
messages = some.builds(
    message,
    offsets,
    topic=some.sampled_from(["orders", "invoices"]),
    shard=shards,
    topic_uid=uids,
    edition=some.integers(0, 3),
    tag=some.none() | texts,
    keys=some.none() | some.lists(some.none() | texts, max_size=3),
    headers=some.none() | some.dictionaries(texts, some.none() | texts, max_size=3),
    ordering_key=some.none() | texts,
    body=some.none() | texts | some.text("ab}{\"'", min_size=30, max_size=200),
    void=some.sampled_from([None, None, None, "cancelled", "tombstone"]),
)
deliveries = some.builds(
    delivery,
    offsets,
    some.integers(1, 3),
    topic=some.sampled_from(["orders", "invoices"]),
    shard=shards,
    topic_uid=uids,
    group=some.sampled_from(["billing", "audit"]),
    group_uid=some.sampled_from(["g1", "g2"]),
    consumer=texts,
    consumer_uid=some.sampled_from(["", "c1"]),
    outcome=some.sampled_from(["SUCCESS", "RETRY", "DEAD", "LAPSED", "REDRIVEN"]),
    detail=texts,
)


def contents(place: Place) -> dict[str, Any]:
    """What the manifest says, but for files, whose sizes differ."""
    fields = asdict(place.manifest())
    for parts in fields["tables"].values():
        for part in parts:
            assert [file["name"].rpartition("/")[2].partition("-")[0] for file in part.pop("files")] == [
                part["checksum"].lower()
            ]
    return {**fields, "retired": ()}


def rows(place: Place) -> list[list[tuple[Any, ...]]]:
    times = {"messages": "accepted_at", "deliveries": "started_at"}
    return [
        place.query(f"* replace (epoch_us({time}) as {time}) from % order by all", table)
        for table, time in times.items()
        if place.files(table)
    ]


@pytest.fixture
def make_place(spark: SparkSession, tmp_path: Path) -> Callable[[str], Place]:
    """An empty place for an engine."""

    def place(made_by: str) -> Place:
        name = f"b{uuid.uuid4().hex[:12]}"
        folder = tmp_path / name
        session.map_bucket(spark, name, folder)
        return Place(spark, FolderBucket(folder, name), name, folder, made_by=made_by)

    return place


def latest(lines: list[Line]) -> list[Line]:
    """Without lines that contradict one another: of two of an edition, either may be taken."""
    return list(
        {(m["topic"], m["topic_uid"], m["shard"], m["offset"], m["edition"]): m for m in lines}.values()
    )


NAMES = {
    "string": "string",
    "int32": "int",
    "int64": "bigint",
    "binary": "binary",
    "timestamp[us, tz=UTC]": "timestamp",
    "list<item: string>": "array<string>",
    "list<element: string>": "array<string>",
    "map<string, string>": "map<string,string>",
}
"""What Spark calls Arrow's types."""


@FEW
@given(some.lists(messages, min_size=20, max_size=60).map(latest), some.lists(deliveries, max_size=40))
def test_the_same_journal_becomes_the_same_archive(
    make_place: Callable[[str], Place],
    monkeypatch: pytest.MonkeyPatch,
    message_lines: list[Line],
    attempt_lines: list[Line],
) -> None:
    for number, each in enumerate(attempt_lines):  # an attempt is told once, but for copies
        each["trace"] = f"t{number % 15}"
        each["started_ms"] = NOON_MS + number % 15
    attempt_lines = list({json.dumps({**each, "attempt": 0}): each for each in attempt_lines}.values())
    monkeypatch.setattr(spill, "BLOCK", 5)
    places = [make_place(ARROW), make_place(SPARK)]
    for place in places:
        for name, some_lines in (
            ("a", message_lines),
            ("b", message_lines[:3]),
            ("c", attempt_lines),
            ("d", attempt_lines[:3]),
        ):
            if some_lines:
                place.journal(name, some_lines)
        place.archive()
    arrow, spark = places
    assert contents(arrow) == contents(spark)
    assert rows(arrow) == rows(spark)
    for place, table in itertools.product(places, TABLES):
        assert all(is_readable(place.bucket, table, file) for file in place.files(table))


def partitions(place: Place) -> list[tuple[str, str, int, str]]:
    """What the manifest says of rows, wherever they are."""
    tables = place.manifest().tables
    return [(name, part.topic, part.rows, part.checksum) for name in tables for part in tables[name]]


def by_file(place: Place, table: str) -> list[list[tuple[Any, ...]]]:
    """The rows of a table's files as they stand in them."""
    time = {"messages": "accepted_at", "deliveries": "started_at"}[table]
    return [
        place.query(f"* replace (epoch_us({time}) as {time}) from %", table, [file])
        for file in place.shown(table)
    ]


def in_order(some_rows: list[tuple[Any, ...]], table: str) -> bool:
    """Are they sorted as a file's should be? Nothing comes first."""
    places = [TABLES[table].names.index(name) for name in ORDER[table]]
    keys = [[(row[place] is not None, row[place]) for place in places] for row in some_rows]
    return keys == sorted(keys)


@pytest.mark.parametrize("compacted_by", [ARROW, pytest.param(SPARK, marks=pytest.mark.soak)])
@FEW
@given(some.lists(messages, min_size=20, max_size=60).map(latest), some.lists(deliveries, max_size=40))
def test_compaction_leaves_each_row_and_puts_them_in_order(
    make_place: Callable[[str], Place],
    compacted_by: str,
    message_lines: list[Line],
    attempt_lines: list[Line],
) -> None:
    place = make_place(ARROW)
    place.journal("a", message_lines)
    if attempt_lines:
        place.journal("b", attempt_lines)
    place.archive("--rows-per-file", "3")
    before, partitions_before = rows(place), partitions(place)
    assert replace(place, made_by=compacted_by).compact() == DONE
    assert rows(place) == before
    assert partitions(place) == partitions_before
    for table in TABLES:
        files = by_file(place, table)
        assert len(files) == len(place.manifest().tables.get(table, ()))
        assert all(in_order(some_rows, table) for some_rows in files)


def test_what_arrow_cannot_compact_spark_does(place: Place) -> None:
    place.journal("a", [message(n) for n in range(4)])
    assert place.archive("--rows-per-file", "2") == DONE
    before = rows(place)
    old = place.folder / place.files()[0]
    table = pq.read_table(old, partitioning=None)
    pq.write_table(table.select([*reversed(table.column_names)]), old)  # the same, but not as Headrace has it
    assert place.compact() == DONE
    assert rows(place) == before
    assert len(place.files()) == 1


def test_what_one_engine_archived_the_other_leaves_as_it_is(place: Place) -> None:
    place.journal("a", [message(n, body='"ö"' * n) for n in range(20)])
    place.journal("b", [delivery(n) for n in range(20)])
    assert place.archive("--engine", ARROW) == DONE
    files = place.files() + place.files("deliveries")
    assert place.archive("--engine", SPARK, "--window", DAY) == DONE
    assert place.files() + place.files("deliveries") == files
    assert place.archive("--engine", ARROW, "--window", DAY) == DONE
    assert place.files() + place.files("deliveries") == files


VALUES: dict[str, list[Any]] = {
    "topic": ["", "a", "orders", "ä" * 9, "x" * 31, "x" * 32, "x" * 33, None],
    "shard": [0, 1, -1, 2**31 - 1, -(2**31), None, 7, 8],
    "offset": [0, 1, -1, 2**63 - 1, -(2**63), None, 7, 8],
    "accepted_at": [0, 1, NOON_MS * 1000, None, -5, 6, 7, 8],
    "keys": [[], ["a"], ["a", None, "b"], None, [""], ["x" * 40] * 3, ["y"], ["z"]],
    "headers": [
        {},
        {"a": "b"},
        {"b": None, "a": "ö"},
        None,
        {"": ""},
        {"x" * 70: "y" * 9},
        {"q": "r"},
        {"s": "t"},
    ],
    "body": [b"", b"1", b"1234", b"12345678", bytes(range(256)) * 5, None, b"x" * 63, b"x" * 64],
}


def test_a_hash_is_that_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    columns = {field.name: pa.nulls(64, field.type) for field in MESSAGES}
    for spread, (name, values) in enumerate(VALUES.items(), 1):
        some_values = [values[(n * spread + n // 8) % 8] for n in range(64)]
        kind = MESSAGES.field(name).type
        columns[name] = pa.array([v and [*v.items()] if name == "headers" else v for v in some_values], kind)
    table = pa.table(columns, schema=MESSAGES)
    for number in range(64):  # one by one, so that none makes up for another
        alone = table.slice(number, 1)
        pq.write_table(
            alone.set_column(0, "topic", pa.array([f"{number:02}"])), tmp_path / f"{number}.parquet"
        )
    sums = checksums(spark.read.parquet(str(tmp_path)), "messages", "topic").collect()
    assert len(sums) == 64
    for row in sums:
        alone = table.slice(int(row.topic), 1).set_column(0, "topic", pa.array([row.topic]))
        assert hashes.checksum(alone) == row.checksum & 2**64 - 1, alone.to_pylist()
    one_by_one = [hashes.checksum(table.slice(number, 1)) for number in range(64)]
    assert hashes.checksum(table) == hashes.combined_checksum(one_by_one)


@pytest.mark.parametrize(
    "line",
    [
        b'{"topic":"orders","topic_uid":"u1","shard":0}',
        b'{"topic":5,"topic_uid":"u1","shard":0,"offset":0}',
        b'{"topic":"orders","topic_uid":"u1","shard":0,"offset":0,"offset":1}',
        b'{"topic":"orders","topic_uid":"u1","shard":0,"offset":0,"headers":{"a":1}}',
        b'{"topic":"orders","topic_uid":"u1","shard":0,"offset":0,"headers":{"a":"1","a":"2"}}',
        b'{"topic":"orders","topic_uid":"u1","shard":0,"offset":0,"body":"\\ud800"}',
        b'{"topic":"orders","topic_uid":"u1","shard":0,"offset":0,"body":"\xff"}',
        b'{"topic":"orders","topic_uid":"u1","shard":0,"offset":0,"body_base64":"?"}',
        b'{"topic":"orders","topic_uid":"u1","shard":0,"offset":0}{"topic":"orders"}',
        b"[]",
        b"{",
        b"",
    ],
)
def test_what_the_service_does_not_write_is_left_to_spark(line: bytes) -> None:
    entry = Entry("a", 1)
    sound_line = json.dumps(message(0)).encode()
    with pytest.raises(Unusual):
        lines.read("messages", DAY, [entry], lambda _: gzip.compress(sound_line + b"\n" + line + b"\n"))


@pytest.mark.parametrize("apart", [(",", ":"), (", ", ": ")])
def test_headers_belong_to_their_lines_however_they_are_written(apart: tuple[str, str]) -> None:
    headers: list[Any] = [
        {"a": "}"},
        None,
        {"headers": "x", "b": '{"headers":{'},
        {},
        {"a": "1"},
        {"a": "1"},
        {"c": '\\"}', "a": None},
    ]
    messages = [message(n, headers=each, body='"headers":{"z":"z"}') for n, each in enumerate(headers)]
    text = "\n".join(json.dumps(line, separators=apart) for line in messages)
    table = lines.read("messages", DAY, [Entry("a", 1)], lambda _: gzip.compress(text.encode()))
    assert table["headers"].to_pylist() == [[*(each or {}).items()] for each in headers]


def test_what_memory_does_not_hold_goes_to_the_disk_and_comes_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "MEMORY_BYTES", 100)
    monkeypatch.setattr(lines, "_AT_ONCE", 1)
    monkeypatch.setattr(spill, "BLOCK", 2)
    for number in range(6):
        place.journal(f"{number}", [message(n, shard=n % 3) for n in range(number, number + 6)])
        place.journal(f"d{number}", [delivery(n, shard=n % 3) for n in range(number, number + 6)])
    window, settings = Window(date.fromisoformat(DAY)), Settings(None, "", 1_000_000, 0, 0)
    with place.as_it_is(), engine.OnArrow(place.bucket, window, settings) as arrow:
        result = arrow.write_messages(None)
        attempt_counts = arrow.attempt_counts()
        parts, without_id = arrow.write_deliveries(attempt_counts, [])
    assert result.scan.rows == result.scan.offsets == 11
    assert result.scan.ranges["orders:u1/1"] == ((1, 1), (4, 4), (7, 7), (10, 10))
    assert (parts["orders"].rows, without_id, len(attempt_counts)) == (11, 0, 3)


def test_a_block_that_memory_does_not_hold_is_unusual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "_BLOCK_BYTES", 1_000)
    some_lines = pa.table({"offset": [0, 1, spill.BLOCK], "body": ["a" * 600, "b" * 600, "c" * 600]})
    full = spill.Spill(tmp_path)
    full.put(spill.partition(some_lines, ()))
    assert full.take((1,))["body"].to_pylist() == ["c" * 600]
    with pytest.raises(Unusual):
        full.take((0,))


def test_both_know_the_same_columns() -> None:
    for name, schema in (("messages", MESSAGES), ("deliveries", DELIVERIES)):
        assert [NAMES.get(str(field.type)) for field in schema] == [
            f.dataType.simpleString() for f in TABLES[name]
        ]
        assert schema.names == TABLES[name].names
        assert lines.LINES[name].names == JOURNAL[name].names


def test_a_large_night_is_sparks(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MOST_BYTES", 1)
    place.journal("a", [message(0)])
    small_flags: list[bool] = []

    def start(is_small: bool = False) -> SparkSession:
        small_flags.append(is_small)
        return place.spark

    with_start = replace(place)
    monkeypatch.setattr(with_start, "start", start)
    assert with_start.archive() == DONE
    assert small_flags == [True]
    shutil.rmtree(place.folder / "archive")
    assert with_start.archive("--engine", ARROW) == DONE
    assert small_flags == [True]
