"""A day that is archived again changes its files and loses no row, and no reader sees it happen."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from chalicelib.domain.times import DAY_MS
from glue_jobs.archiving.day import tidy
from glue_jobs.archiving.publish import switch
from glue_jobs.archiving.scan import Settings
from glue_jobs.common import manifest
from glue_jobs.common.arguments import DONE, FAILED
from glue_jobs.common.bucket import Entry, FolderBucket
from glue_jobs.common.manifest import File, Manifest, Table
from tests.glue.jobs import Watched, read_summary
from tests.glue.journals import DAY, Place, message


@pytest.fixture(scope="module")
def archived(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of which a day has late data, which tests copy."""
    place = Place.in_folder(spark, tmp_path_factory.mktemp("archived"), "archived")
    place.journal("a", [message(n) for n in range(16)])
    assert place.archive() == DONE
    place.journal("late", [message(16)])
    return place.folder


@pytest.fixture
def late_place(place: Place, archived: Path) -> Place:
    """The same in a bucket of its own."""
    shutil.copytree(archived, place.folder, dirs_exist_ok=True)
    for path in place.folder.glob("archive/catalog/**/files.txt"):
        path.write_text(path.read_text().replace("//archived/", f"//{place.name}/"))
    return place


def offsets(place: Place, files: list[str] | None = None) -> list[int]:
    return [offset for (offset,) in place.query('"offset" from % order by 1', files=files)]


BEFORE, AFTER = [*range(16)], [*range(17)]


def test_a_reader_keeps_its_files_until_the_grace_is_over(late_place: Place) -> None:
    old = manifest.load_all(late_place.bucket)
    assert late_place.archive("--grace-minutes", "60") == DONE
    for manifests, count in ((old, 16), (manifest.load_all(late_place.bucket), 17)):
        rows = manifest.table(late_place.spark, late_place.bucket, "messages", manifests)
        assert rows.count() == count
    assert late_place.archive("--grace-minutes", "60", "--now", "2026-11-23T07:01:00Z") == DONE
    assert late_place.named() == set(late_place.files())


def test_files_that_the_run_before_retired_stay_retired(tmp_path: Path) -> None:
    bucket, now = FolderBucket(tmp_path, "b"), None
    for at_ms, name in ((0, "a"), (1_000, "b"), (2_000, "c")):
        table = Table((File(f"archive/messages/{name}", 1, "orders", "orders"),))
        now = switch(bucket, now, Manifest(DAY, 24, "", {"messages": table}, ()), at_ms)
    assert now
    assert now.retired == (("archive/messages/a", 1_000), ("archive/messages/b", 2_000))


def test_files_stay_for_one_run_where_a_run_died_before_its_lists(tmp_path: Path) -> None:
    bucket, names = FolderBucket(tmp_path, "b"), [f"archive/messages/day={DAY}/{each}" for each in "ab"]
    for name in names:
        bucket.write(name, "rows")
    old, new = (
        Manifest(DAY, 24, "", {"messages": Table((File(name, 4, "orders", "orders"),))}, ()) for name in names
    )
    switch(bucket, None, old, 0)
    dead = replace(new, retired=((names[0], 0),))
    manifest.save(bucket, dead)
    settings = Settings(None, "", 1, grace_ms=60_000, now_ms=DAY_MS)
    for left in (names, names[1:]):
        tidy(bucket, dead, settings)
        assert [entry.name for entry in bucket.entries("archive/messages")] == left


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
        self._before = {*place.files()}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place.bucket, name)

    def entries(self, folder: str) -> list[Entry]:
        entries = self._place.bucket.entries(folder)
        for entry in entries if "archive/messages" in folder else ():
            if entry.name not in self._before:
                self._before.add(entry.name)
                self._harm(self._place.folder / entry.name)
        return self._place.bucket.entries(folder)


@pytest.mark.parametrize("harm", [with_a_flipped_bit])
def test_new_files_with_a_fault_are_found_and_the_old_ones_stay(
    late_place: Place, capsys: pytest.CaptureFixture[str], harm: Callable[[Path], None]
) -> None:
    files = late_place.files()
    assert late_place.archive(bucket=Faulty(late_place, harm)) == FAILED
    assert list(read_summary(capsys)["failed"]) == [DAY]
    assert (late_place.files(), offsets(late_place)) == (files, BEFORE)
    assert late_place.archive() == DONE
    assert offsets(late_place) == AFTER


def test_killed_before_any_change_it_loses_nothing_and_leaves_nothing(
    late_place: Place, tmp_path: Path
) -> None:
    moments: list[Path] = []  # what a death before each change leaves

    def remember() -> None:
        moments.append(tmp_path / f"moment-{len(moments)}")
        shutil.copytree(late_place.folder, moments[-1])

    assert late_place.archive(bucket=Watched(late_place.bucket, remember)) == DONE
    assert len(moments) >= 4
    for moment in moments:
        shutil.rmtree(late_place.folder)
        shutil.copytree(moment, late_place.folder)
        (late_place.folder / f"archive/messages/day={DAY}/_temporary/0").mkdir(parents=True, exist_ok=True)
        assert late_place.named() <= set(late_place.files())
        assert late_place.archive() == DONE
        assert late_place.named() == set(late_place.files())
        assert offsets(late_place) == AFTER
        assert not [*late_place.folder.rglob("_temporary")]


def test_readers_find_every_row_once_at_every_moment(late_place: Place) -> None:
    found = []

    def look() -> None:
        files = late_place.shown()
        by_arrow = pq.read_table([late_place.folder / file for file in files], partitioning=None)
        assert sorted(by_arrow["offset"].to_pylist()) == offsets(late_place, files)
        found.append(offsets(late_place, files))

    assert late_place.archive(bucket=Watched(late_place.bucket, look)) == DONE
    look()
    assert sorted(found) == found
    assert [each for n, each in enumerate(found) if each not in found[:n]] == [BEFORE, AFTER]


def test_tasks_that_a_killed_run_left_are_not_taken_for_rows(late_place: Place) -> None:
    left = late_place.folder / f"archive/messages/day={DAY}/_temporary/0/task_0_m_000000/part-0.parquet"
    left.parent.mkdir(parents=True)
    shutil.copy(late_place.folder / late_place.files()[0], left)
    assert late_place.archive() == DONE
    assert offsets(late_place) == AFTER
