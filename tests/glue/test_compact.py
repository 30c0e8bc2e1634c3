"""Compaction changes files, never rows, and no reader sees it happen."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from glue_jobs.archiving import compaction
from glue_jobs.archiving.compaction import repartition_in_order
from glue_jobs.archiving.publish import switch
from glue_jobs.common import manifest
from glue_jobs.common.arguments import DONE, FAILED, INCOMPLETE
from glue_jobs.common.bucket import Bucket, Entry, FolderBucket
from glue_jobs.common.manifest import Manifest, Part
from glue_jobs.common.schemas import MESSAGES
from tests.glue import archives
from tests.glue.archives import frame
from tests.glue.jobs import Killed, Stopping, read_summary
from tests.glue.journals import DAY, Place, message


@pytest.fixture(scope="module")
def archived(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with a partition of several files, which tests copy."""
    place = Place.in_folder(spark, tmp_path_factory.mktemp("archived"), "archived")
    place.journal("a", [message(n * 4_096) for n in range(16)])
    place.archive("--rows-per-file", "1")
    assert len(place.files()) > 1
    return place.folder


@pytest.fixture
def many_files(place: Place, archived: Path) -> Place:
    """The same in a bucket of its own."""
    shutil.copytree(archived, place.folder, dirs_exist_ok=True)
    for path in place.folder.glob("archive/catalog/**/files.txt"):
        path.write_text(path.read_text().replace("//archived/", f"//{place.name}/"))
    return place


def rows(place: Place, files: list[str] | None = None) -> list[tuple[object, ...]]:
    selection = '* replace (epoch_ms(accepted_at) as accepted_at) from % order by "offset"'
    return place.query(selection, files=files)


@pytest.mark.parametrize(("files", "shards"), [(1, [{0, 1, 2, 3}]), (4, [{0}, {1}, {2}, {3}])])
def test_rows_are_arranged_in_files_that_follow_one_another(
    spark: SparkSession, files: int, shards: list[set[int]]
) -> None:
    shuffled_rows = frame(spark, MESSAGES, [archives.message(n * 7 % 40) for n in range(40)]).repartition(5)
    parts = repartition_in_order(shuffled_rows, MESSAGES, files).rdd.glom().collect()
    assert [{row.shard for row in part} for part in parts] == shards
    assert sorted((row.shard, row.offset) for part in parts for row in part) == [
        (shard, offset) for shard in range(4) for offset in range(10)
    ]


@pytest.mark.parametrize(
    ("sizes", "files"), [([10], 1), ([100, 100], 2), ([100, 101], 3), ([1] * 99, 1), ([], 1), ([0], 1)]
)
def test_a_partition_has_as_few_files_as_the_target_size_allows(sizes: list[int], files: int) -> None:
    part = Part("orders", 0, "", tuple(Entry("f", size) for size in sizes))
    assert compaction.file_count(part, 100) == files


def test_many_files_become_one_with_the_same_rows(many_files: Place) -> None:
    before, part = rows(many_files), many_files.manifest().part("messages", "orders")
    assert many_files.compact() == DONE
    now = many_files.manifest().part("messages", "orders")
    assert part
    assert now
    assert (now.rows, now.checksum) == (part.rows, part.checksum)
    assert len(many_files.files()) == 1
    assert rows(many_files) == before
    files = many_files.files()
    assert many_files.compact() == DONE
    assert many_files.archive("--window", DAY) != 1
    assert many_files.files() == files  # a rerun of the day keeps what was compacted


def test_a_reader_keeps_its_files_until_the_grace_is_over(many_files: Place) -> None:
    old = manifest.load_all(many_files.bucket)
    assert many_files.compact("--grace-minutes", "60") == DONE
    for manifests in (old, manifest.load_all(many_files.bucket)):
        assert manifest.table(many_files.spark, many_files.bucket, "messages", manifests).count() == 16
    assert many_files.compact("--grace-minutes", "60", "--now", "2026-11-23T07:01:00Z") == DONE
    assert many_files.named() == set(many_files.files())


def test_files_that_the_run_before_retired_stay_retired(tmp_path: Path) -> None:
    bucket, now = FolderBucket(tmp_path, "b"), None
    for at_ms, name in ((0, "a"), (1_000, "b"), (2_000, "c")):
        part = Part("orders", 1, "", (Entry(f"archive/messages/{name}", 1),))
        now = switch(bucket, now, Manifest(DAY, 24, "", {"messages": (part,)}, ()), at_ms)
    assert now
    assert now.retired == (("archive/messages/a", 1_000), ("archive/messages/b", 2_000))


def with_a_changed_body(path: Path) -> None:
    """The file as an encoder at fault writes it: sound, with another value."""
    table = pq.read_table(path, partitioning=None)
    column = table.column_names.index("body")
    bodies = table["body"].to_pylist()
    table = table.set_column(
        column, table.schema.field(column), pa.array([*bodies[:-1], b"changed"], pa.binary())
    )
    pq.write_table(table, path, store_schema=False, write_page_checksum=True)


def with_a_flipped_bit(path: Path) -> None:
    """The file as a disk at fault brings it back: one bit of the last page of bodies is another."""
    columns = pq.read_metadata(path).row_group(0)
    body = next(c for n in range(columns.num_columns) if (c := columns.column(n)).path_in_schema == "body")
    start = body.dictionary_page_offset or body.data_page_offset
    content = bytearray(path.read_bytes())
    content[start + body.total_compressed_size - 1] ^= 1
    path.write_bytes(content)


class Faulty:
    """A bucket that changes a new file between its writing and its reading."""

    def __init__(self, place: Place, harm: Callable[[Path], None]) -> None:
        self._place, self._harm = place, harm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place.bucket, name)

    def entries(self, folder: str) -> list[Entry]:
        entries = self._place.bucket.entries(folder)
        if "_aside" in folder:
            self._harm(self._place.folder / entries[0].name)
        return entries


@pytest.mark.parametrize("harm", [with_a_changed_body, with_a_flipped_bit])
def test_new_files_with_a_fault_in_a_body_are_found_and_the_old_ones_stay(
    many_files: Place, capsys: pytest.CaptureFixture[str], harm: Callable[[Path], None]
) -> None:
    before, files = rows(many_files), many_files.files()
    assert many_files.compact(bucket=Faulty(many_files, harm)) == FAILED
    assert list(read_summary(capsys)["failed"]) == [f"{DAY} messages orders"]
    assert (many_files.files(), rows(many_files)) == (files, before)
    assert many_files.compact() == DONE
    assert (len(many_files.files()), rows(many_files)) == (1, before)


def test_killed_before_any_change_it_loses_nothing(many_files: Place, tmp_path: Path) -> None:
    before = rows(many_files)
    shutil.copytree(many_files.folder, tmp_path / "before")
    bucket, changes = Stopping(many_files.bucket), 0
    while True:
        shutil.rmtree(many_files.folder)
        shutil.copytree(tmp_path / "before", many_files.folder)
        bucket.left = changes
        try:
            many_files.compact(bucket=bucket)
            break
        except Killed:
            changes += 1
        assert many_files.named() <= set(many_files.files())
        assert many_files.compact() == DONE
        assert many_files.named() == set(many_files.files())
        assert rows(many_files) == before
    assert changes >= 4


class Watched(Stopping):
    """A bucket at which readers look before each change."""

    def __init__(self, bucket: Bucket, look: Callable[[], None]) -> None:
        super().__init__(bucket)
        self._look = look

    def _step(self) -> None:
        self._look()


def test_readers_find_every_row_once_at_every_moment(many_files: Place) -> None:
    before, many, file_counts = rows(many_files), len(many_files.files()), []

    def look() -> None:
        files = many_files.shown()
        by_arrow = pq.read_table([many_files.folder / file for file in files], partitioning=None)
        assert sorted(by_arrow["offset"].to_pylist()) == [n * 4_096 for n in range(16)]
        assert rows(many_files, files) == before
        file_counts.append(len(files))

    assert many_files.compact(bucket=Watched(many_files.bucket, look)) == DONE
    look()
    assert sorted({*file_counts}) == [1, many]


def test_the_archives_job_compacts_behind_itself(many_files: Place) -> None:
    before = rows(many_files)
    assert many_files.archive("--compact-mb", "256") == INCOMPLETE  # most offsets are not there
    assert rows(many_files) == before
    assert len(many_files.files()) == 1


def test_what_was_archived_while_files_were_written_stays(many_files: Place) -> None:
    news = iter([message(1)])

    def archive_again() -> None:
        if some := list(news):
            many_files.journal("b", some)
            assert many_files.archive("--rows-per-file", "1", "--grace-minutes", "60") == INCOMPLETE

    assert many_files.compact(bucket=Watched(many_files.bucket, archive_again)) == FAILED
    assert len(rows(many_files, many_files.shown())) == 17
    assert many_files.compact() == DONE
    assert len(rows(many_files, many_files.shown())) == 17
