"""The Arrow engine by itself, without Spark: lines to rows, spill, files, and what it leaves to Spark."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from glue_jobs.archiving.engine import AttemptCount, Settings, Unusual
from glue_jobs.archiving.on_arrow import engine, lines, rows, spill
from glue_jobs.archiving.on_arrow.files import Files
from glue_jobs.archiving.publish import ASIDE, Mismatch
from glue_jobs.archiving.window import Window
from glue_jobs.common.bucket import Entry, FolderBucket
from glue_jobs.common.manifest import TooNew
from glue_jobs.common.schemas import DELIVERIES, MESSAGES
from tests.glue.journals import DAY, NOON_MS, Line, delivery, message

SHARD = {"topic": "orders", "topic_uid": "u1", "shard": 0}
GROUP = {"topic": "orders", "group": "billing", "topic_uid": "u1", "shard": 0}


def content(some: Sequence[Line]) -> bytes:
    return gzip.compress(b"".join(json.dumps(line).encode() + b"\n" for line in some))


def read(some: Sequence[Line], table: str = "messages") -> pa.Table:
    return lines.read(table, DAY, [Entry("a", 1)], lambda _: content(some))


def nothing(names: Sequence[str]) -> Sequence[bytes]:
    raise AssertionError(names)


def test_of_each_offset_the_last_edition_is_a_row_and_voids_are_none() -> None:
    some = [
        message(3, edition=1, body="new"),
        message(3, edition=0, body="old"),
        message(1, keys=None, headers=None),
        message(5, edition=2, void="cancelled"),
        message(5, edition=1),
        message(6, void="tombstone"),
        message(6, edition=1, body="still there"),
        message(2, body=None, body_base64="/w=="),
    ]
    block = rows.messages(read(some), SHARD, nothing)
    table = block.rows.to_pylist()
    bodies = [(row["offset"], row["body"]) for row in table]
    assert bodies == [(1, b'{"n":1}'), (2, b"\xff"), (3, b"new"), (6, b"still there")]
    assert (block.ranges, block.voids) == (((1, 3), (5, 6)), 1)
    assert (table[0]["keys"], table[0]["headers"]) == ([], [])
    assert table[0]["accepted_at"].timestamp() * 1000 == NOON_MS + 1
    assert {(row["topic"], row["topic_uid"], row["shard"]) for row in table} == {("orders", "u1", 0)}


def test_large_bodies_are_fetched_for_the_rows_that_have_them() -> None:
    some = [message(0), message(1, body=None, body_blob="bodies/x"), message(2, edition=1, void="cancelled")]
    some.append(message(2, body=None, body_blob="bodies/gone"))
    block = rows.messages(read(some), SHARD, lambda names: [name.encode() for name in names])
    assert [row["body"] for row in block.rows.to_pylist()] == [b'{"n":0}', b"bodies/x"]


def test_an_attempt_is_told_once_in_the_order_of_offsets_and_times() -> None:
    some = [
        delivery(2, 1, started_ms=NOON_MS + 5, trace="t3"),
        delivery(1, 2, started_ms=NOON_MS + 9, trace="t2"),
        delivery(1, 1, started_ms=NOON_MS + 7, trace="t1"),
        delivery(1, 1, started_ms=NOON_MS + 7, trace="t1"),
        delivery(1, 9, started_ms=NOON_MS + 8, outcome="REDRIVEN", trace="t4"),
        delivery(1, 1, started_ms=NOON_MS + 7, trace="t1", consumer_uid="c2", consumer="b"),
        delivery(1, 1, started_ms=NOON_MS + 7, trace="t1", consumer_uid="c1", consumer="a"),
        delivery(1, 1, started_ms=NOON_MS + 7, trace="t1", consumer_uid="c3", consumer=None),
        delivery(1, 2, started_ms=NOON_MS + 7, trace="t5", consumer="a"),
    ]
    message_ids = rows.ids([pa.table({"offset": pa.array([0, 1, 3]), "id": ["m0", "m1", "m3"]})])
    table = rows.deliveries(read(some, "deliveries"), GROUP, message_ids).to_pylist()
    attempts = [(row["offset"], row["attempt"], row["consumer"], row["id"]) for row in table]
    first = [(1, 1, consumer, "m1") for consumer in (None, "a", "b", "c")]
    assert attempts == [*first, (1, 2, "a", "m1"), (1, 2, "c", "m1"), (2, 1, "c", None)]
    assert table[0]["started_at"].timestamp() * 1000 == NOON_MS + 7
    assert len(rows.deliveries(read(some, "deliveries"), GROUP, rows.ids([]))) == 7


def test_of_copies_of_an_attempt_the_one_with_the_lowest_number_is_kept() -> None:
    some = [delivery(1, number, started_ms=NOON_MS, trace="t") for number in (3, 1, 2)]
    table = rows.deliveries(read(some, "deliveries"), GROUP, rows.ids([])).to_pylist()
    assert [row["attempt"] for row in table] == [1]


def test_of_an_offset_in_several_tables_the_first_tells_the_id() -> None:
    tables = [
        pa.table({"offset": pa.array(of), "id": names}) for of, names in (([4], ["a"]), ([4, 2], ["b", "c"]))
    ]
    assert rows.ids(tables).of(pa.array([1, 2, 3, 4, 5]).to_numpy()).to_pylist() == [
        None,
        "c",
        None,
        "a",
        None,
    ]


@pytest.mark.parametrize("newer", [0, 1])
def test_one_line_of_a_newer_release_stops_it(newer: int) -> None:
    some = [message(0), message(1)]
    some[newer]["v"] = 9
    with pytest.raises(TooNew):
        read(some)


@pytest.mark.parametrize(
    "raw",
    [
        None,
        content([message(0)])[:-9],
        b"no gzip",
        content([message(0)])[:12] + b"\xff\xff" + content([message(0)])[14:],
        gzip.compress(b'{"topic":"orders","topic_uid":"u1","shard":0,"offset":0,"tag":"\xff"}\n'),
    ],
    ids=["gone", "cut off", "no gzip", "damaged", "no UTF-8"],
)
def test_an_object_that_cannot_be_read_is_sparks(raw: bytes | None) -> None:
    with pytest.raises(Unusual):
        lines.read("messages", DAY, [Entry("a", 1)], lambda _: raw)


def test_objects_without_a_last_newline_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    raws = {name: gzip.compress(json.dumps(message(n)).encode()) for n, name in enumerate("ab")}
    table = lines.read("messages", DAY, [Entry(name, 1) for name in raws], raws.__getitem__)
    assert table["offset"].to_pylist() == [0, 1]
    monkeypatch.setattr(lines, "_MOST_BYTES", 100)
    with pytest.raises(Unusual, match="too much"):
        lines.read("messages", DAY, [Entry("a", 1)], raws.__getitem__)


def test_lines_lie_by_what_they_belong_to_in_memory_and_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "MEMORY_BYTES", 0)
    monkeypatch.setattr(spill, "BLOCK", 4)
    table = pa.table({"k": ["b", None, "a", "b", None], "s": [1, 1, 1, 2, 1], "offset": range(5)})
    parts = spill.partition(table, ["k", "s"])
    assert {key: part["offset"].to_pylist() for key, part in parts} == {
        (None, 1, 0): [1],
        (None, 1, 1): [4],
        ("b", 1, 0): [0],
        ("b", 2, 0): [3],
        ("a", 1, 0): [2],
    }
    stored = spill.Spill(tmp_path / "spill")
    stored.put(parts)
    stored.put(parts)
    order = [(None, 1, 0), (None, 1, 1), ("a", 1, 0), ("b", 1, 0), ("b", 2, 0)]
    assert spill.in_order(stored.counts) == order
    assert set(stored.counts.values()) == {2}
    assert len(list(tmp_path.rglob("*.arrow"))) == 10
    assert stored.read((None, 1, 1))["offset"].to_pylist() == [4, 4]
    assert [stored.take(key)["offset"].to_pylist() for key in stored.counts if key[0] == "a"] == [[2, 2]]
    assert len(list(tmp_path.rglob("*.arrow"))) == 8


def test_what_arrow_cannot_sort_out_or_take_from_the_disk_is_sparks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "MEMORY_BYTES", 0)
    with pytest.raises(Unusual):
        spill.partition(pa.table({"k": ["a"], "offset": ["no number"]}), ["k"])
    stored = spill.Spill(tmp_path / "spill")
    stored.put(spill.partition(pa.table({"k": ["a"], "offset": [0]}), ["k"]))
    for file in tmp_path.rglob("*.arrow"):
        file.write_bytes(b"something else")
    with pytest.raises(Unusual):
        stored.take(("a", 0))


@pytest.mark.parametrize("most", [1, 2, 3, 5, 6, 100])
def test_files_have_so_many_rows_and_what_was_added(tmp_path: Path, most: int) -> None:
    schema = pa.schema({"offset": pa.int64()})
    bucket = FolderBucket(tmp_path / "bucket", "b")
    files = Files(bucket=bucket, home="aside", folder=tmp_path / "made", schema=schema, most=most)
    for offsets in ([0, 1, 2], [3, 4], [5]):
        files.add(pa.table({"offset": pa.array(offsets)}, schema=schema))
    files.close()
    files.close()
    contents = [pq.read_table(path)["offset"].to_pylist() for path in files.local]
    assert [offset for each in contents for offset in each] == list(range(6))
    assert {len(each) for each in contents[:-1]} <= {most}
    assert [entry.name for entry in bucket.entries("aside")] == [f"aside/{path.name}" for path in files.local]


class Weighed:
    """Rows that count how often somebody asks for their bytes."""

    num_rows, asked = 1, 0

    def slice(self, offset: int, length: int | None = None) -> Weighed | pa.Table:
        return pa.table({}) if offset else self

    @property
    def nbytes(self) -> int:
        self.asked += 1
        return 10


def test_the_bytes_of_a_block_are_asked_for_once_however_many_follow(tmp_path: Path) -> None:
    bucket = FolderBucket(tmp_path / "bucket", "b")
    files = Files(bucket=bucket, home="aside", folder=tmp_path / "made", schema=pa.schema([]), most=1_000)
    blocks = [Weighed() for _ in range(50)]
    for block in blocks:
        files.add(block)
    assert {block.asked for block in blocks} == {1}


def test_each_group_of_rows_of_a_file_has_the_bytes_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glue_jobs.archiving.on_arrow.files._GROUP_BYTES", 20)
    schema = pa.schema({"offset": pa.int64()})
    bucket = FolderBucket(tmp_path / "bucket", "b")
    files = Files(bucket=bucket, home="aside", folder=tmp_path / "made", schema=schema, most=7)
    for offset in range(14):
        files.add(pa.table({"offset": pa.array([offset])}, schema=schema))
    files.close()
    groups = [pq.read_metadata(path) for path in files.local]
    assert [[each.row_group(n).num_rows for n in range(each.num_row_groups)] for each in groups] == [
        [3, 3, 1]
    ] * 2


def test_a_file_that_holds_something_else_is_not_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema({"offset": pa.int64()})
    bucket = FolderBucket(tmp_path / "bucket", "b")
    files = Files(bucket=bucket, home="aside", folder=tmp_path / "made", schema=schema, most=10)
    files.add(pa.table({"offset": pa.array([0, 1])}, schema=schema))
    files._offsets = [pa.chunked_array([[0, 2]])]
    with pytest.raises(Mismatch):
        files.close()
    assert bucket.entries("aside") == []


class OnABadDisk(Files):
    """Files that the disk brings back with one bit changed."""

    def _look_again(self, path: Path) -> None:
        column = pq.read_metadata(path).row_group(0).column(0)
        content = bytearray(path.read_bytes())
        content[
            (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 1
        ] ^= 1
        path.write_bytes(content)
        super()._look_again(path)


def test_a_file_that_cannot_be_read_again_is_not_put_aside(tmp_path: Path) -> None:
    schema = pa.schema({"offset": pa.int64()})
    bucket = FolderBucket(tmp_path / "bucket", "b")
    files = OnABadDisk(bucket=bucket, home="aside", folder=tmp_path / "made", schema=schema, most=10)
    files.add(pa.table({"offset": pa.array([0, 1])}, schema=schema))
    with pytest.raises(Mismatch, match="can't be read again"):
        files.close()
    assert bucket.entries("aside") == []


@pytest.fixture
def bucket(tmp_path: Path) -> FolderBucket:
    return FolderBucket(tmp_path / "bucket", "b")


def put(bucket: FolderBucket, name: str, some: Sequence[Line]) -> None:
    table = "messages" if "accepted_ms" in some[0] else "deliveries"
    bucket.put(f"journal/{table}/day={DAY}/hour=12/{name}.gz", content(some))


@pytest.fixture
def arrow(bucket: FolderBucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(spill, "BLOCK", 2)

    def made() -> engine.OnArrow:
        made_one = engine.OnArrow(
            bucket, Window(date.fromisoformat(DAY)), Settings(None, "", 1_000_000, 0, 0)
        )
        engines.append(made_one)
        return made_one

    engines: list[engine.OnArrow] = []
    yield made
    for each in engines:
        each.__exit__()


def test_a_shard_is_the_sum_of_its_blocks(bucket: FolderBucket, arrow: Any) -> None:
    put(bucket, "a", [message(n, void="cancelled" if n % 2 else None) for n in range(6)])
    put(
        bucket,
        "b",
        [message(n, topic="bills") for n in (8, 9)] + [message(0, topic_uid="u2", void="tombstone")],
    )
    bucket.put(f"{ASIDE}/{DAY}/of-before", b"x")
    result = arrow().write_messages(None)
    assert result.scan.ranges == {
        "orders:u1/0": ((0, 5),),
        "bills:u1/0": ((8, 9),),
        "orders:u2/0": ((0, 0),),
    }
    assert {name: count for name, count in result.scan.voids.items() if count} == {
        "orders:u1/0": 3,
        "orders:u2/0": 1,
    }
    assert {name: topic.rows for name, topic in result.scan.topics.items()} == {"orders": 3, "bills": 2}
    assert (result.offsets, result.scan.offsets) == (9, 9)
    assert not bucket.exists(f"{ASIDE}/{DAY}/of-before")


def test_attempts_have_the_ids_of_their_own_shard_and_topic(bucket: FolderBucket, arrow: Any) -> None:
    own: list[tuple[int, str]] = [(0, "u1"), (1, "u1"), (0, "u2")]
    put(bucket, "a", [message(5, shard=shard, topic_uid=uid, id=f"{uid}-{shard}") for shard, uid in own])
    attempts = [delivery(offset, shard=shard, topic_uid=uid) for shard, uid in own for offset in (1, 5, 8)]
    put(bucket, "b", attempts)
    job = arrow()
    job.write_messages(None)
    attempt_counts = sorted(job.attempt_counts(), key=str)
    assert attempt_counts == sorted(
        (AttemptCount("orders", uid, shard, "g1", 1, 3) for shard, uid in own), key=str
    )
    parts, without_id = job.write_deliveries(attempt_counts, [])
    assert (parts["orders"].rows, without_id) == (9, 6)
    table = pa.concat_tables(pq.read_table(path) for path in (job._folder / "deliveries").rglob("*.parquet"))
    ids = {(row["topic_uid"], row["shard"], row["id"]) for row in table.to_pylist() if row["id"]}
    assert ids == {(uid, shard, f"{uid}-{shard}") for shard, uid in own}


def test_ids_in_a_file_that_cannot_be_read_are_sparks(
    bucket: FolderBucket, arrow: Any, tmp_path: Path
) -> None:
    put(bucket, "a", [delivery(0)])
    job, file = arrow(), tmp_path / "0.parquet"
    attempt_counts = job.attempt_counts()
    file.write_bytes(b"no Parquet")
    job._files["orders"] = [file]
    with pytest.raises(Unusual):
        job.write_deliveries(attempt_counts, [])


def test_what_the_journal_knows_of_a_groups_attempts_is_not_brought_again(
    bucket: FolderBucket, arrow: Any
) -> None:
    put(
        bucket,
        "a",
        [delivery(1), delivery(2, group_uid="g2"), delivery(3, shard=1), delivery(4, topic_uid="u2")],
    )
    job = arrow()
    counts_by_group = {(each.shard, each.group_uid, each.topic_uid): each for each in job.attempt_counts()}
    assert job._known_traces(counts_by_group[0, "g1", "u1"]) == {("t1", 1)}
    assert job._known_traces(counts_by_group[0, "g2", "u1"]) == {("t1", 2)}
    assert job._known_traces(counts_by_group[1, "g1", "u1"]) == {("t1", 3)}
    assert job._known_traces(counts_by_group[0, "g1", "u2"]) == {("t1", 4)}


def test_what_the_journal_knows_of_many_groups_is_read_once_for_each(
    bucket: FolderBucket, arrow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "MEMORY_BYTES", 0)
    put(bucket, "a", [delivery(n % 3, group=f"group-{n}", group_uid=f"g{n}") for n in range(20)])
    job, read_table, reads = arrow(), pyarrow.feather.read_table, Counter[Path]()

    def counting(file: Path) -> pa.Table:
        reads[file] += 1
        return read_table(file)

    counts = job.attempt_counts()
    monkeypatch.setattr(pyarrow.feather, "read_table", counting)
    assert [job._known_traces(each) for each in counts] == [{("t1", each.first)} for each in counts]
    assert (len(reads), reads.total()) == (20, 20)


def test_what_is_gone_or_empty_or_much_is_sparks(
    bucket: FolderBucket, arrow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(
        bucket,
        "a",
        [message(0, body=None, body_blob="bodies/x"), message(1, body=None, body_blob="bodies/y")],
    )
    with pytest.raises(Unusual):
        arrow().write_messages(None)
    for name in "xy":
        bucket.put(f"bodies/{name}", b"1234")
    assert arrow().write_messages(None).offsets == 2
    monkeypatch.setattr(engine, "_LARGE_BYTES", 7)
    with pytest.raises(Unusual):
        arrow().write_messages(None)
    bucket.put(f"journal/deliveries/day={DAY}/hour=12/b.gz", b"")
    with pytest.raises(Unusual, match="empty"):
        arrow().attempt_counts()


def test_a_window_of_so_many_bytes_is_arrows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MOST_BYTES", 10)
    journals = [{MESSAGES: [Entry("a", 4)], DELIVERIES: [Entry("b", size)]} for size in (6, 7)]
    assert [engine.is_for_arrow(each) for each in journals] == [True, False]
