"""One Spark session for the whole run; a bucket of its own for each test."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

pyspark = pytest.importorskip("pyspark", reason="the archive's jobs need PySpark: make test")

from pyspark.sql import SparkSession  # noqa: E402

from glue_jobs.common import session  # noqa: E402
from tests.glue.journals import Place, S3Place  # noqa: E402
from tests.support.s3 import spark as s3_spark  # noqa: E402
from tests.support.s3.server import S3Server  # noqa: E402


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"spark", "place", "s3_place"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker("spark")
            for warning in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):  # py4j's sockets
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{warning}"))


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of Spark's class path."""
    return tmp_path_factory.mktemp("classes")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, classes: Path) -> Iterator[SparkSession]:
    os.environ["SPARK_DIST_CLASSPATH"] = str(
        classes
    )  # behind Spark's jars: before them, Java keeps no classes
    spark_session = session.start(
        "tests",
        tmp_path_factory.mktemp("none"),
        "none",
        is_small=not os.environ.get("HEADRACE_SOAK"),  # the soak runs as large jobs do
        spark_sql_shuffle_partitions="2",
        spark_sql_adaptive_enabled="true",  # as on Glue
        spark_driver_memory="2g",
        spark_sql_warehouse_dir=str(tmp_path_factory.mktemp("frames")),
    )
    yield spark_session
    spark_session.stop()


@pytest.fixture(scope="session")
def s3(spark: SparkSession, classes: Path) -> Iterator[S3Server]:
    """S3's protocol on this machine, spoken by boto3 and by Spark."""
    s3_spark.compile_to(spark, classes)
    server = S3Server()
    yield server
    server.close()


@pytest.fixture
def folder_place(spark: SparkSession, tmp_path: Path) -> Place:
    """An empty bucket that is a folder."""
    return Place.in_folder(spark, tmp_path / "bucket", f"b{uuid.uuid4().hex[:12]}")


@pytest.fixture
def s3_place(spark: SparkSession, s3: S3Server, tmp_path: Path) -> S3Place:
    """An empty bucket of S3."""
    s3.allow()  # what a test before forbade
    s3_spark.use(spark, s3.url)
    (tmp_path / "bucket").mkdir()
    return S3Place.made(spark, s3, f"b{uuid.uuid4().hex[:12]}", tmp_path / "bucket")


_PLACES = ("folder_place", "s3_place") if os.environ.get("HEADRACE_SOAK") else ("folder_place",)


@pytest.fixture(params=_PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    """An empty bucket: a folder; in the soak also one of S3."""
    empty: Place = request.getfixturevalue(request.param)
    return empty
