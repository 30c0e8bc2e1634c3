"""A damaged file of rows ends each job that reads it in one sentence that names it: never a trace, never a smaller
number."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from glue_jobs.common import damage as archive_damage
from glue_jobs.common import job, manifest, session
from glue_jobs.common.arguments import DONE, FAILED
from glue_jobs.common.bucket import FolderBucket
from glue_jobs.common.manifest import File, Rows, Table
from glue_jobs.reporting import as_of, options, run, shadow

from .archives import delivery, fill
from .archives import message as archived
from .journals import DAY, Place, message

FIRST = "2030-01-01"


@pytest.fixture(scope="module")
def archive(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics with eight messages each, of which a group has tried some; read-only."""
    folder = tmp_path_factory.mktemp("archive")
    session.map_bucket(spark, "sound", folder)
    rows = [archived(n, topic, minutes=n) for topic in ("orders", "shade") for n in range(8)]
    place = Place(spark, FolderBucket(folder, "sound"), "sound", folder)
    fill(place, messages=rows, deliveries=[delivery(row) for row in rows[:5] + rows[8:13]])
    return folder


@pytest.fixture
def filled_place(folder_place: Place, archive: Path) -> Place:
    """The same in a bucket of its own."""
    shutil.copytree(archive, folder_place.folder, dirs_exist_ok=True)
    return folder_place


def file_of(place: Place, table: str) -> Path:
    [path] = place.folder.glob(f"archive/{table}/*/*.parquet")
    return path


def rewritten(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], Any]:
    """The same file with other rows or columns."""

    def rewrite(path: Path) -> None:
        pq.write_table(change(pq.ParquetFile(path).read()), path)

    return rewrite


def with_text(rows: pa.Table) -> pa.Table:
    number = rows.schema.get_field_index("attempt")
    return rows.set_column(number, "attempt", pc.cast(rows["attempt"], pa.string()))


def with_another(rows: pa.Table) -> pa.Table:
    """As many rows of each topic as before."""
    return pa.concat_tables([rows.slice(1, 1), rows.slice(1)])


def garbled(path: Path) -> None:
    """Only its footer is sound."""
    content = path.read_bytes()
    footer = 8 + int.from_bytes(content[-8:-4], "little")
    path.write_bytes(b"PAR1" + b"\xff" * (len(content) - 4 - footer) + content[-footer:])


def zeroed(path: Path) -> None:
    """Spark can't read it, and does not name it."""
    path.write_bytes(b"PAR1" + bytes(path.stat().st_size - 8) + b"PAR1")


CANT = "it can't be read"
DAMAGES: list[tuple[Callable[[Path], Any], str]] = [
    (Path.unlink, "it is not there"),
    (lambda path: path.write_bytes(path.read_bytes()[:-10]), "bytes, and had"),
]
SAME_SIZE: list[tuple[Callable[[Path], Any], str]] = [
    (lambda path: path.write_bytes(path.read_bytes()[:-10]), CANT),
    (garbled, CANT),
    (rewritten(with_text), CANT),
    (rewritten(lambda rows: rows.slice(1)), "there are 4 rows of orders, and were 5"),
    (rewritten(with_another), "its rows are not those that were archived"),
]
"""After which the manifest names the size that the file has, as if nobody had changed it."""


def know(place: Place, table: str, *paths: Path) -> None:
    """Let the manifest name these files, with their sizes."""
    day = place.manifest(FIRST)
    names = [(str(path.relative_to(place.folder)), path.stat().st_size) for path in paths]
    files = tuple(File(name, size, "orders", "shade") for name, size in names)
    tables = {**day.tables, table: replace(day.table(table), files=files)}
    manifest.save(place.bucket, replace(day, tables=tables))


def damage(place: Place, table: str, change: Callable[[Path], Any], *, is_known: bool) -> str:
    """Damage a file of the first day; its name. `is_known`: the manifest names its new size."""
    path = file_of(place, table)
    change(path)
    if is_known:
        know(place, table, path)
    return str(path.relative_to(place.folder))


def of_asof(place: Place) -> int:
    names = ["--topic", "orders", "--at", f"{FIRST}T12:00:00Z", "--folder", str(place.folder)]
    return as_of.run(place.start, place.bucket, options.of_asof(None, names))


def of_report(place: Place) -> int:
    return run.run(place.start, place.bucket, options.of_report(None, ["--folder", str(place.folder)]))


def of_compare(place: Place) -> int:
    names = ["--topic", "orders", "--group", "g", "--shadow", "shade", "--shadow-group", "g"]
    argv = ["--folder", str(place.folder), *names]
    return shadow.run(place.start, place.bucket, options.of_compare(None, argv))


def refusal(
    place: Place, work: Callable[[Place], int], capsys: pytest.CaptureFixture[str], remedy: str = "delete it"
) -> str:
    """The sentence in which a job ends."""
    assert job.run_guarded("asof", lambda: work(place)) == FAILED
    out, err = capsys.readouterr()
    why: str = json.loads(out.splitlines()[-1])["error"]
    assert "Traceback" not in err
    assert "\tat " not in err
    assert err.splitlines()[-1] == f"The job asof failed: {why}"
    assert f"{remedy} and run the archive with --window {FIRST}." in why
    return why


@pytest.mark.parametrize(
    ("change", "is_known", "why"),
    [*((change, False, why) for change, why in DAMAGES), *((change, True, why) for change, why in SAME_SIZE)],
)
def test_what_is_wrong_with_a_file_is_said(
    filled_place: Place,
    change: Callable[[Path], Any],
    is_known: bool,
    why: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = damage(filled_place, "deliveries", change, is_known=is_known)
    sentence = refusal(filled_place, of_asof, capsys)
    assert sentence.startswith(f"{name} is damaged: ")
    assert why in sentence


@pytest.mark.parametrize("work", [of_asof, of_report, of_compare])
def test_no_job_counts_the_rest(
    filled_place: Place,
    work: Callable[[Place], int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = damage(filled_place, "messages", rewritten(with_another), is_known=True)
    assert refusal(filled_place, work, capsys).startswith(f"{name} is damaged: ")
    assert not [*filled_place.folder.glob("reports/**/*.*")]


def test_a_file_that_spark_does_not_name_is_found(
    filled_place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    name = damage(filled_place, "deliveries", zeroed, is_known=True)
    assert refusal(filled_place, of_report, capsys).startswith(f"{name} is damaged: {CANT}.")


def test_of_several_files_of_a_topic_none_is_accused(
    filled_place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file_of(filled_place, "deliveries")
    rows = pq.ParquetFile(path).read()
    pq.write_table(rows.slice(2), path)
    second = path.with_name("second.parquet")
    pq.write_table(rows.slice(0, 1), second)
    know(filled_place, "deliveries", path, second)
    folder = path.parent.relative_to(filled_place.folder)
    why = refusal(filled_place, of_asof, capsys, "delete all of them")
    assert why.startswith(
        f"One of the 2 files in {folder} is damaged, which one is not known: there are 4 rows of orders, and were 5."
    )


class Counting:
    """A bucket that counts how often it was listed."""

    def __init__(self, bucket: Any) -> None:
        self._bucket = bucket
        self.listings = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)

    def entries(self, folder: str) -> Any:
        self.listings += 1
        return self._bucket.entries(folder)


def archived_day(bucket: FolderBucket, topics: int = 1) -> manifest.Manifest:
    """A day with a file of messages for each topic."""
    names = [f"archive/messages/day={FIRST}/part-{n:02}.parquet" for n in range(topics)]
    for name in names:
        bucket.write(name, "rows")
    files = tuple(File(name, 4, f"t{n}", f"t{n}") for n, name in enumerate(names))
    table = Table(files, {f"t{n}": Rows(1, "0") for n in range(topics)})
    day = manifest.Manifest(FIRST, 24, "", {"messages": table}, ())
    manifest.save(bucket, day)
    return day


@pytest.mark.parametrize("topics", [None, ["t1"]])
def test_a_day_is_listed_once_however_many_topics_it_has(tmp_path: Path, topics: list[str] | None) -> None:
    bucket = Counting(FolderBucket(tmp_path, "headrace"))
    archive_damage.refuse_damaged(bucket, [archived_day(bucket._bucket, 50)], topics)
    assert bucket.listings == 1


def archived_again(bucket: FolderBucket, day: manifest.Manifest) -> str:
    """The day's file gets another name, as by a run without grace; the old one."""
    table = day.table("messages")
    [file] = table.files
    new = replace(file, name=file.name.replace("/part-", "/new-"))
    bucket.write(new.name, "rows")
    bucket.delete(file.name)
    manifest.save(bucket, replace(day, tables={"messages": replace(table, files=(new,))}))
    return file.name


def test_a_file_that_was_replaced_meanwhile_is_not_damaged(tmp_path: Path) -> None:
    bucket = FolderBucket(tmp_path, "headrace")
    day = archived_day(bucket)
    old = archived_again(bucket, day)
    with pytest.raises(archive_damage.Changed, match="changed meanwhile: run the job again"):
        archive_damage.refuse_damaged(bucket, [day])
    with pytest.raises(archive_damage.Changed), archive_damage.name_damage(bucket):
        raise ValueError(f"[PATH_NOT_FOUND] Path does not exist: s3://headrace/{old}.")


def test_archiving_the_day_again_makes_its_files_again(folder_place: Place) -> None:
    folder_place.journal("a", [message(n) for n in range(3)])
    assert folder_place.archive() == DONE
    file_of(folder_place, "messages").unlink()
    assert folder_place.archive("--window", DAY) == DONE
    assert folder_place.places() == [("orders", 0, n) for n in range(3)]
    assert set(folder_place.files()) == folder_place.named()
