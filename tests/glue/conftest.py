"""One Spark session for the whole run; a bucket of its own for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

pyspark = pytest.importorskip("pyspark", reason="the archive's jobs need requirements-spark.txt")

from pyspark.sql import SparkSession  # noqa: E402

from glue_jobs.common import session  # noqa: E402
from glue_jobs.common.bucket import FolderBucket  # noqa: E402
from tests.glue.journals import Place  # noqa: E402


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
            for warning in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):  # py4j's sockets
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{warning}"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    started = session.start(
        "tests", tmp_path_factory.mktemp("none"), "none", spark_sql_shuffle_partitions="2"
    )
    yield started
    started.stop()


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    """An empty bucket."""
    name = f"b{uuid.uuid4().hex[:12]}"
    folder = tmp_path / "bucket"
    session.map_bucket(spark, name, folder)
    return Place(spark, FolderBucket(folder, name), name, folder)
