"""The archive on S3: every night, and after a death of the job before each change.

The server is moto's, so is the protocol; Spark speaks it through a file system with the manners of S3A.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from chalicelib.domain.message import Draft
from chalicelib.domain.times import DAY_MS
from glue_jobs.archiving import completeness
from glue_jobs.common import job, manifest
from glue_jobs.common.arguments import DONE, FAILED
from glue_jobs.common.bucket import S3Bucket
from glue_jobs.reporting import as_of, options
from infra.glue import JOBS_FOLDER, LAUNCHER
from tests.glue import archives
from tests.glue.journals import NOON_MS, Line, S3Place, delivery, message
from tests.glue.test_backfill import BATCH, SHARD, Queue
from tests.support.rarely import rarely_sets
from tests.support.s3.server import Refusal, S3Server

ROOT = Path(__file__).parents[2]
Row = tuple[Any, ...]


@pytest.fixture
def place(s3_place: S3Place) -> S3Place:
    return s3_place


def rows(place: S3Place) -> list[Row]:
    """Every message that readers are shown: topic, offset and body."""
    return place.query('topic, "offset", body from % order by all', files=place.shown())


def test_the_file_system_has_the_manners_of_s3a(s3_place: S3Place, spark: SparkSession) -> None:
    place = s3_place
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path
    files = path(place.bucket.uri("")).getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    for name in ("a/one", "a/two"):
        place.bucket.write(name, name)
    with pytest.raises(Py4JJavaError, match="destination file exists"):
        files.rename(path(place.bucket.uri("a/one")), path(place.bucket.uri("a/two")))
    stream = files.create(path(place.bucket.uri("b/c")), False)
    assert not place.bucket.exists("b/c")  # it is there when it is closed
    stream.close()
    assert place.bucket.exists("b/c")
    files.delete(path(place.bucket.uri("b/c")), False)
    assert not files.exists(path(place.bucket.uri("b")))  # a folder is what is in it
    files.rename(path(place.bucket.uri("a")), path(place.bucket.uri("d")))
    assert [entry.name for entry in place.bucket.entries("d")] == ["d/one", "d/two"]


@pytest.fixture
def late_place(place: S3Place) -> S3Place:
    """An archive of which a day has late data."""
    place.journal("a", [message(n, topic) for topic in ("orders", "invoices") for n in range(3)])
    place.journal("b", [delivery(0)])
    assert place.archive() == DONE
    place.journal("late", [message(n, edition=1, body='"edited"') for n in (1, 3)])
    return place


BEFORE = [(topic, n, b'{"n":%d}' % n) for topic in ("invoices", "orders") for n in range(3)]
AFTER = sorted(
    [*(row for row in BEFORE if row[:2] != ("orders", 1)), *(("orders", n, b'"edited"') for n in (1, 3))]
)


def dies(place: S3Place, is_allowed: Callable[[int, str], bool]) -> bool:
    """Run the job until a change is not allowed: readers are shown a day as it was or as it is. Run it again: all is
    as if nothing had been. Did it die at all?"""
    place.push()
    place.server.allow(is_allowed)
    is_dead = job.run_guarded("archive", place.archive) != DONE
    assert rows(place) in (BEFORE, AFTER)
    assert place.archive() == DONE
    assert rows(place) == AFTER
    for table in ("messages", "deliveries"):
        assert place.shown(table) == place.files(table)
    assert completeness.load(place.bucket).ranges == {"orders:u1/0": ((0, 3),), "invoices:u1/0": ((0, 2),)}
    return is_dead


@pytest.mark.parametrize(
    "part",
    [
        "/archive/manifests/",
    ],
)
def test_a_job_that_dies_before_a_step_leaves_a_day_as_it_was_or_as_it_is(
    late_place: S3Place, part: str
) -> None:
    assert dies(late_place, lambda number, path: part not in path)


def as_it_was(place: S3Place) -> int:
    """Ask what was waiting."""
    names = ["--topic", "orders", "--at", "2030-01-01T12:00:00Z", "--folder", str(place.folder)]
    return as_of.run(place.start, place.bucket, options.of_asof(None, names))


@pytest.mark.parametrize(
    ("refusal", "sentence"),
    [
        (Refusal("/archive/messages/", "403 Forbidden", "AccessDenied"), ".parquet: 403"),
        *rarely_sets(
            (
                Refusal("list-type", "403 Forbidden", "AccessDenied"),
                "(AccessDenied); see what the credentials",
            ),
            (Refusal("/archive/manifests/", "503 Slow Down", "SlowDown"), "(SlowDown); run the job again"),
            (Refusal("/archive/messages/", "503 Slow Down", "SlowDown"), ".parquet: 503"),
        ),
    ],
)
def test_what_s3_refuses_is_said_and_no_file_is_called_damaged(
    s3_place: S3Place, refusal: Refusal, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = archives.message(0)
    archives.fill(s3_place, messages=[first], deliveries=[archives.delivery(first)])
    s3_place.server.refuse(refusal)
    assert job.run_guarded("asof", lambda: as_it_was(s3_place)) == FAILED
    out, err = capsys.readouterr()
    why = json.loads(out.splitlines()[-1])["error"]
    assert sentence in why
    assert "damaged" not in why
    assert err.splitlines()[-1] == f"The job asof failed: {why}"
    s3_place.server.allow()
    assert job.run_guarded("asof", lambda: as_it_was(s3_place)) == DONE


def test_a_bucket_that_is_not_there_is_said(s3_place: S3Place, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = replace(s3_place, bucket=S3Bucket(s3_place.server.client(), "nobodys"))
    assert job.run_guarded("asof", lambda: as_it_was(elsewhere)) == FAILED
    why = "AWS refused ListObjectsV2: The specified bucket does not exist (NoSuchBucket); see --bucket."
    assert json.loads(capsys.readouterr().out)["error"] == why


class Nights(S3Place):
    """A bucket of S3 whose journal grows while jobs run: three topics a day, and one whose lines come late."""

    def journal(self, name: str, lines: Iterable[Line], day: str = "", hour: str = "") -> Path:
        path = super().journal(name, lines, day, hour)
        self.bucket.put(str(path.relative_to(self.folder)), path.read_bytes())
        return path

    def fill(self, queue: Queue, night: int, number: int) -> None:
        """What a day has, of which the journal lost a part; a large body in it."""
        at_ms, first = NOON_MS + night * DAY_MS, night * number
        for topic in ("bills", "clicks", "parts"):
            offsets = range(first, first + number)
            self.journal(topic, [message(n, topic, accepted_ms=at_ms + n % DAY_MS) for n in offsets])
            self.journal(f"{topic}-tried", [delivery(n, topic=topic, started_ms=at_ms + n) for n in offsets])
        self.bucket.put(f"bodies/{night}", b"large" * 50_000)
        self.journal(
            "large", [message(0, "large", night, accepted_ms=at_ms, body_blob=f"bodies/{night}", body=None)]
        )
        for n in range(20):
            queue.put((night * 20 + n) * BATCH, accepted_ms=at_ms, line=n % 3 > 0)

        if not night:
            queue.edit(0, {1: SECRET}, line=True)

    def late(self, number: int, night: int) -> None:
        """Lines of all days so far that come while these are archived."""
        for day in range(night + 1):
            at_ms, shard = NOON_MS + day * DAY_MS, number * 3 + day
            lines = [message(n, "late", shard, accepted_ms=at_ms) for n in range(10)]
            self.journal(f"late-{number}", lines)


class Reader(threading.Thread):
    """Reads what the lists of the catalog name, again and again: a day's rows only grow, and none comes twice."""

    def __init__(self, place: S3Place) -> None:
        super().__init__(daemon=True)
        self._place, self._client, self._is_over = place, place.server.client(), threading.Event()
        self._files: dict[str, tuple[str, list[Row]]] = {}
        self.seen: dict[str, set[Row]] = defaultdict(set)
        self.faults: list[str] = []
        self.passes = self.changes = 0

    def run(self) -> None:
        while not self._is_over.wait(0.2):
            try:
                for table in ("messages", "deliveries"):
                    for entry in self._place.bucket.entries(f"archive/catalog/{table}"):
                        self._read(entry.name)
            except Exception as error:  # noqa: BLE001
                self.faults.append(repr(error))
            self.passes += 1

    def _read(self, name: str) -> None:
        text = self._place.bucket.read(name) or ""
        rows = [
            row for uri in text.split() for row in self._rows(uri.removeprefix(self._place.bucket.uri("")))
        ]
        now = {*rows}
        if len(now) < len(rows) or not now >= self.seen[name]:
            self.faults.append(
                f"{name}: {len(rows)} rows, {len(now)} distinct, {len(self.seen[name])} before"
            )
        self.changes += now != self.seen[name]
        self.seen[name] = now

    def _rows(self, name: str) -> list[Row]:
        answer = self._client.get_object(Bucket=self._place.name, Key=name)
        content, tag = answer["Body"].read(), answer["ETag"]
        if name not in self._files:
            table = pq.read_table(io.BytesIO(content), columns=["topic", "shard", "offset"])
            self._files[name] = (tag, [*zip(*(column.to_pylist() for column in table.columns), strict=True)])
        assert self._files[name][0] == tag, f"{name} has changed"
        return self._files[name][1]

    def end(self) -> None:
        self._is_over.set()
        self.join()


@pytest.fixture
def nights(spark: SparkSession, s3: S3Server, engine: str, tmp_path: Path) -> Nights:
    (tmp_path / "bucket").mkdir()
    return Nights.made(spark, s3, f"b{uuid.uuid4().hex[:12]}", tmp_path / "bucket")


class Glue:
    """Starts jobs as Glue does: by the script, with arguments of its own, without a folder."""

    def __init__(self, place: S3Place, prefix: str, classes: Path, folder: Path) -> None:
        settings = {
            "spark.hadoop.fs.s3.impl": "PlainS3FileSystem",
            "spark.hadoop.fs.plains3.endpoint": place.server.url,
            "spark.driver.extraClassPath": str(classes),
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        }
        confs = " ".join(f"--conf {name}={value}" for name, value in settings.items())
        own = {
            "AWS_ENDPOINT_URL_S3": place.server.url,
            "PYSPARK_SUBMIT_ARGS": f"--master local[2] {confs} pyspark-shell",
            "PYTHONPATH": str(ROOT),
        }
        self._env = {**os.environ, **own}
        self._env.pop("AWS_DEFAULT_REGION", None)
        self._env.pop("HEADRACE_DATA", None)
        self._place, self._prefix, self._folder = place, prefix, folder

    def start(self, job: str, *argv: str) -> subprocess.Popen[bytes]:
        script = self._folder / f"{job}.py"
        script.write_text(LAUNCHER.format(folder=JOBS_FOLDER, job=job))
        theirs = [
            "--enable-metrics",
            "--aws-region",
            "us-east-1",
            "--JOB_NAME",
            job,
            "--enable-auto-scaling",
            "true",
        ]
        command = [sys.executable, str(script), *theirs, "--bucket", self._place.name, *argv]
        with (self._folder / "printed").open("ab") as out:
            return subprocess.Popen(
                command, env=self._env, cwd=self._folder, stdout=out, stderr=out, start_new_session=True
            )

    def archive(self, night: int, *argv: str) -> subprocess.Popen[bytes]:
        now = f"2026-11-{22 + night}T00:30:00Z"
        return self.start("archive", "--region", "us-east-1", "--prefix", self._prefix, "--now", now, *argv)

    def printed(self) -> str:
        return (self._folder / "printed").read_text()


SECRET = Draft(b'{"n":"a secret"}', keys=("anna",))


@pytest.mark.soak
@pytest.mark.timeout(5_000)
def test_three_nights_with_twenty_kills_while_a_reader_looks(
    nights: Nights, classes: Path, tmp_path: Path
) -> None:
    place, chance, number = nights, random.Random(54), 3_000
    queue, reader = Queue(place), Reader(place)
    glue = Glue(place, queue.prefix, classes, tmp_path)
    kills = runs = late = 0
    reader.start()
    for night, most_kills in enumerate((7, 14, 20)):
        place.fill(queue, night, number)
        while kills < most_kills:
            process, seconds = glue.archive(night), chance.uniform(1, 110)
            runs += 1
            place.late(runs, night)
            late += 10 * (night + 1)
            try:
                assert process.wait(seconds) == DONE
            except subprocess.TimeoutExpired:
                (os.kill if chance.random() < 0.5 else os.killpg)(process.pid, signal.SIGKILL)
                process.wait()
                kills += 1
            print(f"{night=} {kills=} {seconds=:.1f} {reader.passes=} {reader.changes=}", flush=True)
    for argv in ([], ["--grace-minutes", "0"]):
        assert glue.archive(3, *argv).wait() == DONE
    reader.end()
    assert reader.faults == []
    print(f"{runs=} {kills=} {reader.passes=} {reader.changes=}", flush=True)
    check_archive(place, reader, number, late)
    check_forgotten(place, queue, glue)


def check_archive(place: S3Place, reader: Reader, number: int, late: int) -> None:
    """Every row is there, proved, and nothing else lies in the archive."""
    days = manifest.load_all(place.bucket)
    named = {file.name for day in days for table in day.tables.values() for file in table.files}
    names = {entry.name for entry in place.bucket.entries("archive")}
    assert {name for name in names if re.match("archive/(messages|deliveries)/", name)} == named
    assert all(day.complete and day.is_closed for day in days)
    expected = {(topic, 0, n) for topic in ("bills", "clicks", "parts") for n in range(3 * number)}
    expected |= {("orders", 0, n) for n in range(60 * BATCH)} | {("large", night, 0) for night in range(3)}
    found = set.union(*(rows for name, rows in reader.seen.items() if "/messages/" in name))
    assert found >= expected
    assert len(found - expected) == late
    proof = completeness.load(place.bucket)
    assert proof.ranges["orders:u1/0"] == ((0, 60 * BATCH - 1),)
    assert not any(proof.lost.values())


def check_forgotten(place: S3Place, queue: Queue, glue: Glue) -> None:
    """One message goes by the command and the run that it prints; the report says when the rest ends."""
    assert b"a secret" in everything(place)
    message = queue.log.read(SHARD, 0, 1)[0].message(0, 1)
    assert message
    for is_dry in ("yes", "no"):
        argv = ["--topic", "orders", "--id", message.id, "--prefix", queue.prefix, "--dry-run", is_dry]
        assert glue.start("forget", *argv).wait() == DONE
    (again,) = re.findall('make archive ARGS="(.+)"', glue.printed())[-1:]
    assert glue.start("archive", "--prefix", queue.prefix, *again.split()).wait() == DONE
    assert b"a secret" not in everything(place)
    assert manifest.load_all(place.bucket)[0].complete
    assert glue.start("report", "--archive-days", "400").wait() == DONE
    (page,) = (each.name for each in place.bucket.entries("reports") if each.name.endswith(".html"))
    assert "The archive of a day is deleted after 400 days." in (place.bucket.read(page) or "")


def everything(place: S3Place) -> bytes:
    """All that lies in the bucket, unpacked."""
    contents = []
    for entry in place.bucket.entries("archive") + place.bucket.entries("journal"):
        raw = place.bucket.get(entry.name) or b""
        if entry.name.endswith(".gz"):
            raw = gzip.decompress(raw)
        elif entry.name.endswith(".parquet"):
            raw = repr(pq.read_table(io.BytesIO(raw)).to_pylist()).encode()
        contents.append(raw)
    return b"".join(contents)
