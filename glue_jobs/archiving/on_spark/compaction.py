"""A partition's rows into fewer files by Spark: any size."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from glue_jobs.archiving.on_spark import aside
from glue_jobs.common import manifest
from glue_jobs.common.bucket import Bucket
from glue_jobs.common.manifest import Part
from glue_jobs.common.schemas import ORDER


def write_aside(
    spark: SparkSession, bucket: Bucket, table: str, day: str, part: Part, files: int
) -> Part | None:
    """Put a partition's rows aside, sorted, in so many files; what lies there."""
    uris = [bucket.uri(file.name) for file in part.files]
    rows = manifest.files_of(spark, bucket, table, uris).drop("day")
    aside.write_aside(bucket, table, day, repartition_in_order(rows, table, files))
    return aside.read_again(spark, bucket, table, day).get(part.topic)


def repartition_in_order(rows: DataFrame, table: str, files: int) -> DataFrame:
    """A topic's rows in so many partitions (or fewer) that follow one another in the table's order."""
    return rows.coalesce(1) if files == 1 else rows.repartitionByRange(files, *ORDER[table])
