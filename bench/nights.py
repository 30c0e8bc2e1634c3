"""Three nights of the archive on S3's protocol, killed at random, while a reader looks; one message is forgotten.

The soak's test runs it (tests/glue/test_s3.py): jobs are processes of their own, started as Glue starts them.
"""

from __future__ import annotations

import gzip
import io
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from chalicelib.domain.message import Draft
from chalicelib.domain.times import DAY_MS
from glue_jobs.archiving import completeness
from glue_jobs.common import manifest
from glue_jobs.common.arguments import DONE
from infra.glue import JOBS_FOLDER, LAUNCHER
from tests.glue.journals import NOON_MS, Line, S3Place, delivery, message
from tests.glue.test_backfill import BATCH, SHARD, Queue

Row = tuple[Any, ...]
ROOT = Path(__file__).parents[1]
TOPICS, ROWS = ("bills", "clicks", "parts"), 20
SECRET = Draft(b'{"n":"a secret"}', keys=("anna",))


class Nights(S3Place):
    """A bucket of S3 whose journal grows while jobs run: three topics a day, and one whose lines come late."""

    def journal(self, name: str, lines: Iterable[Line], day: str = "", hour: str = "") -> Path:
        path = super().journal(name, lines, day, hour)
        self.bucket.put(str(path.relative_to(self.folder)), path.read_bytes())
        return path

    def fill(self, queue: Queue, night: int, number: int) -> None:
        """What a day has, of which the journal lost a part; a large body in it."""
        at_ms, first = NOON_MS + night * DAY_MS, night * number
        for topic in TOPICS:
            offsets = range(first, first + number)
            self.journal(topic, [message(n, topic, accepted_ms=at_ms + n % DAY_MS) for n in offsets])
            self.journal(f"{topic}-tried", [delivery(n, topic=topic, started_ms=at_ms + n) for n in offsets])
        self.bucket.put(f"bodies/{night}", b"large" * 50_000)
        self.journal(
            "large", [message(0, "large", night, accepted_ms=at_ms, body_blob=f"bodies/{night}", body=None)]
        )
        for n in range(ROWS):
            queue.put((night * ROWS + n) * BATCH, accepted_ms=at_ms, line=n % 3 > 0)

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
        while not self._is_over.wait(0.5):
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


class Glue:
    """Starts jobs as Glue does: by the script, with arguments of its own, without a folder."""

    def __init__(self, place: S3Place, prefix: str, classes: Path, folder: Path) -> None:
        settings = {
            "spark.hadoop.fs.s3.impl": "PlainS3FileSystem",
            "spark.hadoop.fs.plains3.endpoint": place.server.url,
            "spark.driver.extraClassPath": str(classes),
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        }
        confs = " ".join(f"--conf '{name}={value}'" for name, value in settings.items())
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


def go_through(place: Nights, classes: Path, folder: Path, kills: Sequence[int], number: int) -> Reader:
    """Archive nights, with so many kills in each, while a reader looks. `classes`: of the file system for Spark;
    `number`: messages of a topic and night. Raises AssertionError where a row or a file is not as it should be."""
    queue, reader, chance = Queue(place), Reader(place), random.Random(54)
    glue = Glue(place, queue.prefix, classes, folder)
    done = runs = late = 0
    reader.start()
    for night in range(len(kills)):
        place.fill(queue, night, number)
        while done < sum(kills[: night + 1]):
            runs += 1
            place.late(runs, night)
            late += 10 * (night + 1)
            before, process = place.server.changes, glue.archive(night)
            is_early, seconds = chance.random() < 0.2, chance.uniform(0, 60)
            while not is_early and process.poll() is None and place.server.changes == before:
                time.sleep(0.1)
            try:
                assert process.wait(seconds) == DONE, glue.printed()[-2_000:]
            except subprocess.TimeoutExpired:
                (os.kill if chance.random() < 0.5 else os.killpg)(process.pid, signal.SIGKILL)
                process.wait()
                done += 1
            step = f"{is_early=} {seconds=:.0f} changes={place.server.changes - before} {reader.faults=}"
            print(f"{night=} {runs=} kills={done} {step} {reader.passes=} {reader.changes=}", flush=True)
    last = len(kills) - 1
    assert glue.archive(last).wait() == DONE, glue.printed()[-2_000:]
    place.late(runs + 1, last)  # all days again, while the reader looks
    late += 10 * len(kills)
    for argv in ([], ["--grace-minutes", "0"]):
        assert glue.archive(last + 1, *argv).wait() == DONE, glue.printed()[-2_000:]
    reader.end()
    print(f"{reader.faults=} {reader.passes=} {reader.changes=}", flush=True)
    topics = {(topic, 0, n) for topic in TOPICS for n in range(len(kills) * number)}
    rows = topics | {("large", night, 0) for night in range(len(kills))}
    rows |= {("orders", 0, n) for n in range(len(kills) * ROWS * BATCH)}
    _check(place, reader, rows, late)
    print("every row is there, proved", flush=True)
    _forget(place, queue, glue)
    return reader


def _check(place: S3Place, reader: Reader, rows: set[Row], late: int) -> None:
    """Every row is there, proved, and nothing else lies in the archive."""
    days = manifest.load_all(place.bucket)
    named = {file.name for day in days for table in day.tables.values() for file in table.files}
    names = {entry.name for entry in place.bucket.entries("archive")}
    assert {name for name in names if re.match("archive/(messages|deliveries)/", name)} == named
    assert all(day.complete and day.is_closed for day in days)
    found = set.union(*(each for name, each in reader.seen.items() if "/messages/" in name))
    assert found >= rows
    assert len(found - rows) == late
    proof = completeness.load(place.bucket)
    assert proof.ranges["orders:u1/0"] == ((0, len([row for row in rows if row[0] == "orders"]) - 1),)
    assert not any(proof.lost.values())


def _forget(place: S3Place, queue: Queue, glue: Glue) -> None:
    """One message goes by the command and the run that it prints; the report says when the rest ends."""
    assert b"a secret" in _everything(place)
    message = queue.log.read(SHARD, 0, 1)[0].message(0, 1)
    assert message
    for is_dry in ("yes", "no"):
        argv = ["--topic", "orders", "--id", message.id, "--prefix", queue.prefix, "--dry-run", is_dry]
        assert glue.start("forget", *argv).wait() == DONE
    (again,) = re.findall('make archive ARGS="(.+)"', glue.printed())[-1:]
    assert glue.start("archive", "--prefix", queue.prefix, *again.split()).wait() == DONE
    assert b"a secret" not in _everything(place)
    assert manifest.load_all(place.bucket)[0].complete
    assert glue.start("report", "--archive-days", "400").wait() == DONE
    (page,) = (each.name for each in place.bucket.entries("reports") if each.name.endswith(".html"))
    assert "The archive of a day is deleted after 400 days." in (place.bucket.read(page) or "")


def _everything(place: S3Place) -> bytes:
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
