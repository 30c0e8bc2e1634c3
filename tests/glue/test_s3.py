"""The archive on S3: every night, and after a death of the job before each change.

The server is moto's, so is the protocol; Spark speaks it through a file system with the manners of S3A.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from bench import nights
from glue_jobs.archiving import completeness
from glue_jobs.common import job
from glue_jobs.common.arguments import DONE, FAILED
from glue_jobs.common.bucket import S3Bucket
from glue_jobs.reporting import as_of, options
from tests.glue import archives
from tests.glue.journals import S3Place, delivery, message
from tests.support.rarely import rarely_sets
from tests.support.s3.server import Refusal, S3Server

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


def test_a_job_that_dies_before_the_manifest_leaves_a_day_as_it_was(s3_place: S3Place) -> None:
    place = s3_place
    place.journal("a", [message(n) for n in range(3)])
    place.journal("b", [delivery(0)])
    assert place.archive() == DONE
    old_rows = rows(place)
    place.journal("late", [message(n, edition=1, body='"edited"') for n in (1, 3)])
    place.push()
    place.server.allow(lambda number, path: "/archive/manifests/" not in path)
    assert job.run_guarded("archive", place.archive) == FAILED
    assert rows(place) == old_rows == [("orders", n, b'{"n":%d}' % n) for n in range(3)]
    assert place.archive() == DONE
    edited = [("orders", n, b'"edited"') for n in (1, 3)]
    assert rows(place) == sorted([old_rows[0], old_rows[2], *edited])
    for table in ("messages", "deliveries"):
        assert place.shown(table) == place.files(table)
    assert completeness.load(place.bucket).ranges == {"orders:u1/0": ((0, 3),)}


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


@pytest.mark.soak
@pytest.mark.timeout(5_000)
def test_three_nights_with_twenty_kills_while_a_reader_looks(
    spark: SparkSession, s3: S3Server, engine: str, classes: Path, tmp_path: Path
) -> None:
    (tmp_path / "bucket").mkdir()
    place = nights.Nights.made(spark, s3, f"b{uuid.uuid4().hex[:12]}", tmp_path / "bucket")
    reader = nights.go_through(place, classes, tmp_path, kills=(7, 7, 6), number=300)
    assert (reader.faults, reader.changes > 8) == ([], True)
