"""A damaged file of rows ends each job that reads it in one sentence that names it: never a trace, never a smaller
number."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from glue_jobs.archiving.engine import ARROW
from glue_jobs.common import job, manifest, session
from glue_jobs.common.arguments import DONE, FAILED
from glue_jobs.common.bucket import FolderBucket
from glue_jobs.reporting import as_of, options, run, shadow

from .archives import delivery, fill
from .archives import message as archived
from .journals import DAY, Place, message

ROOT = Path(__file__).parents[2]
FIRST = "2030-01-01"


@pytest.fixture(scope="module")
def archive(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics with eight messages each, of which a group has tried some; nobody changes it."""
    folder = tmp_path_factory.mktemp("archive")
    session.map_bucket(spark, "sound", folder)
    rows = [archived(n, topic, minutes=n) for topic in ("orders", "shade") for n in range(8)]
    place = Place(spark, FolderBucket(folder, "sound"), "sound", folder)
    fill(place, messages=rows, deliveries=[delivery(row) for row in rows[:5] + rows[8:13]])
    return folder


@pytest.fixture
def filled(folder_place: Place, archive: Path) -> Place:
    """The same in a bucket of its own."""
    shutil.copytree(archive, folder_place.folder, dirs_exist_ok=True)
    return folder_place


def file_of(place: Place, table: str) -> Path:
    [path] = place.folder.glob(f"archive/{table}/*/topic=orders/*.parquet")
    return path


def rewritten(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], Any]:
    """The same file with other rows or columns."""

    def rewrite(path: Path) -> None:
        pq.write_table(change(pq.ParquetFile(path).read()), path)

    return rewrite


def with_text(rows: pa.Table) -> pa.Table:
    number = rows.schema.get_field_index("attempt")
    return rows.set_column(number, "attempt", pc.cast(rows["attempt"], pa.string()))


def with_other(rows: pa.Table) -> pa.Table:
    number = rows.schema.get_field_index("outcome")
    return rows.set_column(number, "outcome", pa.array(["DEAD"] * len(rows)))


CANT, CHECKSUM = "it can't be read", "its rows have another checksum"
DAMAGES: list[tuple[Callable[[Path], Any], str]] = [
    (Path.unlink, "it is not there"),
    (lambda path: path.write_bytes(path.read_bytes()[:-10]), "bytes, and had"),
    (lambda path: path.write_bytes(b""), "it has 0 bytes, and had"),
]
SAME_SIZE: list[tuple[Callable[[Path], Any], str]] = [
    (lambda path: path.write_bytes(path.read_bytes()[:-10]), CANT),
    (lambda path: path.write_bytes(b"x" * path.stat().st_size), CANT),
    (lambda path: path.write_bytes(b"PAR1" + bytes(path.stat().st_size - 8) + b"PAR1"), CANT),
    (rewritten(with_text), CANT),
    (rewritten(lambda rows: rows.slice(1)), "there are 4 rows, and were 5"),
    (rewritten(lambda rows: rows.drop_columns(["detail"])), CHECKSUM),
    (rewritten(with_other), CHECKSUM),
]
"""After which the manifest names the size that the file has, as if nobody had changed it."""


def damage(place: Place, table: str, change: Callable[[Path], Any], *, is_known: bool) -> str:
    """Damage a file of the first day; its name. `is_known`: the manifest names its new size."""
    path = file_of(place, table)
    change(path)
    name = str(path.relative_to(place.folder))
    if is_known:
        day = place.manifest(FIRST)
        part = day.part(table, "orders")
        assert part
        files = tuple(replace(each, size=path.stat().st_size) for each in part.files)
        manifest.save(place.bucket, day.with_part(table, replace(part, files=files)))
    return name


def of_asof(place: Place) -> int:
    names = ["--topic", "orders", "--at", f"{FIRST}T12:00:00Z", "--folder", str(place.folder)]
    return as_of.run(place.start, place.bucket, options.of_asof(None, names))


def of_report(place: Place) -> int:
    return run.run(place.start, place.bucket, options.of_report(None, ["--folder", str(place.folder)]))


def of_compare(place: Place) -> int:
    names = ["--topic", "orders", "--group", "g", "--shadow", "shade", "--shadow-group", "g"]
    here = ["--folder", str(place.folder), *names]
    return shadow.run(place.start, place.bucket, options.of_compare(None, here))


def refusal(place: Place, work: Callable[[Place], int], capsys: pytest.CaptureFixture[str]) -> str:
    """The sentence in which a job ends."""
    assert job.guarded("asof", lambda: work(place)) == FAILED
    out, err = capsys.readouterr()
    why: str = json.loads(out.splitlines()[-1])["error"]
    assert "Traceback" not in err
    assert "\tat " not in err
    assert err.splitlines()[-1] == f"The job asof failed: {why}"
    assert f"delete it and run the archive with --window {FIRST}." in why
    return why


@pytest.mark.parametrize(
    ("change", "is_known", "why"),
    [*((change, False, why) for change, why in DAMAGES), *((change, True, why) for change, why in SAME_SIZE)],
)
def test_what_is_wrong_with_a_file_is_said(
    filled: Place,
    change: Callable[[Path], Any],
    is_known: bool,
    why: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = damage(filled, "deliveries", change, is_known=is_known)
    said = refusal(filled, of_asof, capsys)
    assert said.startswith(f"{name} is damaged: ")
    assert why in said


@pytest.mark.parametrize("work", [of_asof, of_report, of_compare])
@pytest.mark.parametrize("change", [Path.unlink, rewritten(lambda rows: rows.slice(1))])
def test_no_job_counts_the_rest(
    filled: Place,
    work: Callable[[Place], int],
    change: Callable[[Path], Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = damage(filled, "messages", change, is_known=change is not Path.unlink)
    assert refusal(filled, work, capsys).startswith(f"{name} is damaged: ")
    assert not [*filled.folder.glob("reports/**/*.*")]


@pytest.fixture
def on_arrow(tmp_path: Path) -> Place:
    """A bucket that Arrow fills, without Spark."""
    no_spark: Any = None
    folder = tmp_path / "bucket"
    return Place(no_spark, FolderBucket(folder, "headrace"), "headrace", folder, made_by=ARROW)


@pytest.mark.parametrize("change", [change for change, _ in DAMAGES])
def test_archiving_the_day_again_makes_its_files_again(
    on_arrow: Place, change: Callable[[Path], Any]
) -> None:
    on_arrow.journal("a", [message(n) for n in range(3)])
    assert on_arrow.archive() == DONE
    path = file_of(on_arrow, "messages")
    sound = path.read_bytes()
    change(path)
    assert on_arrow.archive("--window", DAY) == DONE
    assert path.read_bytes() == sound


@pytest.mark.soak
def test_a_user_sees_our_lines_and_none_of_spark(filled: Place) -> None:
    name = damage(
        filled, "messages", lambda path: path.write_bytes(b"x" * path.stat().st_size), is_known=True
    )
    command = [sys.executable, "-m", "glue_jobs.asof", "--folder", str(filled.folder), "--topic", "orders"]
    command += ["--bucket", filled.name, "--at", f"{FIRST}T12:00:00Z"]
    plain = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
    done = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, text=True, check=False)
    assert done.returncode == FAILED
    begin, end = done.stderr.splitlines()
    assert begin == "asof: Spark starts …"
    assert end.startswith(f"The job asof failed: {name} is damaged: it can't be read.")
    assert json.loads(done.stdout)["job"] == "asof"
