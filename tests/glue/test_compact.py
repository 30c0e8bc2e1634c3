"""Compaction changes files, never rows, and no reader sees it happen."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from glue_jobs.archiving import compaction
from glue_jobs.archiving.engine import ARROW
from glue_jobs.archiving.on_spark.compaction import arranged
from glue_jobs.common import manifest
from glue_jobs.common.arguments import DONE, FAILED, INCOMPLETE
from glue_jobs.common.bucket import Bucket, Entry
from glue_jobs.common.manifest import Part
from glue_jobs.common.schemas import MESSAGES
from tests.glue import archives
from tests.glue.archives import frame
from tests.glue.jobs import Killed, Stopping, either_engine
from tests.glue.journals import DAY, Place, message

made_by = either_engine


@pytest.fixture
def parted(place: Place) -> Place:
    """An archive with a partition of several files."""
    place.journal("a", [message(n * 4_096) for n in range(16)])
    place.archive("--rows-per-file", "1")
    assert len(place.files()) > 1
    return place


def rows(place: Place, files: list[str] | None = None) -> list[tuple[object, ...]]:
    what = '* replace (epoch_ms(accepted_at) as accepted_at) from % order by "offset"'
    return place.query(what, files=files)


@pytest.mark.parametrize(("files", "shards"), [(1, [{0, 1, 2, 3}]), (4, [{0}, {1}, {2}, {3}])])
def test_rows_are_arranged_in_files_that_follow_one_another(
    spark: SparkSession, files: int, shards: list[set[int]]
) -> None:
    shuffled = frame(spark, MESSAGES, [archives.message(n * 7 % 40) for n in range(40)]).repartition(5)
    parts = arranged(shuffled, MESSAGES, files).rdd.glom().collect()
    assert [{row.shard for row in part} for part in parts] == shards
    assert sorted((row.shard, row.offset) for part in parts for row in part) == [
        (shard, offset) for shard in range(4) for offset in range(10)
    ]


@pytest.mark.parametrize(
    ("sizes", "files"), [([10], 1), ([100, 100], 2), ([100, 101], 3), ([1] * 99, 1), ([], 1), ([0], 1)]
)
def test_a_partition_has_as_few_files_as_the_target_size_allows(sizes: list[int], files: int) -> None:
    part = Part("orders", 0, "", tuple(Entry("f", size) for size in sizes))
    assert compaction.wanted(part, 100) == files


def test_many_files_become_one_with_the_same_rows(parted: Place) -> None:
    before, part = rows(parted), parted.manifest().part("messages", "orders")
    assert parted.compact() == DONE
    now = parted.manifest().part("messages", "orders")
    assert part
    assert now
    assert (now.rows, now.checksum) == (part.rows, part.checksum)
    assert len(parted.files()) == 1
    assert rows(parted) == before
    files = parted.files()
    assert parted.compact() == DONE
    assert parted.archive("--window", DAY) != 1
    assert parted.files() == files  # a rerun of the day keeps what was compacted


def test_a_reader_keeps_its_files_until_the_grace_is_over(parted: Place) -> None:
    old = manifest.load_all(parted.bucket)
    assert parted.compact("--grace-minutes", "60") == DONE
    for manifests in (old, manifest.load_all(parted.bucket)):
        assert manifest.table(parted.spark, parted.bucket, "messages", manifests).count() == 16
    assert parted.compact("--grace-minutes", "60", "--now", "2026-11-23T07:01:00Z") == DONE
    assert parted.named() == set(parted.files())


def test_files_that_are_not_what_the_manifest_says_stay_as_they_are(parted: Place) -> None:
    path = parted.folder / f"archive/manifests/{DAY}.json"
    told = json.loads(path.read_text())
    told["tables"]["messages"][0]["checksum"] = "0"
    path.write_text(json.dumps(told))
    files = parted.files()
    assert parted.compact() == FAILED
    assert parted.files() == files


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


class Faulty(Stopping):
    """A bucket that keeps something else than it is told to."""

    def __init__(self, bucket: Bucket, harm: Callable[[Path], None]) -> None:
        super().__init__(bucket)
        self._harm = harm

    def _step(self) -> None:
        """It goes on."""

    def put_file(self, name: str, path: Path) -> None:
        self._harm(path)
        super().put_file(name, path)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (with_a_changed_body, "do not hold what the manifest says"),
        (with_a_flipped_bit, "can't be read again"),
    ],
)
def test_new_files_with_a_fault_in_a_body_are_found_and_the_old_ones_stay(
    parted: Place, capsys: pytest.CaptureFixture[str], harm: Callable[[Path], None], reason: str
) -> None:
    before, files = rows(parted), parted.files()
    by_arrow = replace(parted, made_by=ARROW)
    assert by_arrow.compact(bucket=Faulty(parted.bucket, harm)) == FAILED
    assert reason in capsys.readouterr().out
    assert (parted.files(), rows(parted)) == (files, before)
    assert by_arrow.compact() == DONE
    assert (len(parted.files()), rows(parted)) == (1, before)


def test_killed_before_any_change_it_loses_nothing(parted: Place, tmp_path: Path) -> None:
    before = rows(parted)
    shutil.copytree(parted.folder, tmp_path / "before")
    bucket, changes = Stopping(parted.bucket), 0
    while True:
        shutil.rmtree(parted.folder)
        shutil.copytree(tmp_path / "before", parted.folder)
        bucket.left = changes
        try:
            parted.compact(bucket=bucket)
            break
        except Killed:
            changes += 1
        assert parted.named() <= set(parted.files())
        assert parted.compact() == DONE
        assert parted.named() == set(parted.files())
        assert rows(parted) == before
    assert changes >= 4


class Watched(Stopping):
    """A bucket at which readers look before each change."""

    def __init__(self, bucket: Bucket, look: Callable[[], None]) -> None:
        super().__init__(bucket)
        self._look = look

    def _step(self) -> None:
        self._look()


def test_readers_find_every_row_once_at_every_moment(parted: Place) -> None:
    before, many, looks = rows(parted), len(parted.files()), []

    def look() -> None:
        files = parted.shown()
        by_arrow = pq.read_table([parted.folder / file for file in files], partitioning=None)
        assert sorted(by_arrow["offset"].to_pylist()) == [n * 4_096 for n in range(16)]
        assert rows(parted, files) == before
        looks.append(len(files))

    assert parted.compact(bucket=Watched(parted.bucket, look)) == DONE
    look()
    assert sorted({*looks}) == [1, many]


def test_the_archives_job_compacts_behind_itself(parted: Place) -> None:
    before = rows(parted)
    assert parted.archive("--compact-mb", "256") == INCOMPLETE  # most offsets are not there
    assert rows(parted) == before
    assert len(parted.files()) == 1
