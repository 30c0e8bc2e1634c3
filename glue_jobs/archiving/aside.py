"""Rows that Spark writes where no reader looks, and reads again."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from glue_jobs.archiving import publish
from glue_jobs.common.bucket import Bucket
from glue_jobs.common.checksums import checksums
from glue_jobs.common.manifest import Part
from glue_jobs.common.schemas import ORDER, with_day


def write_aside(
    bucket: Bucket,
    table: str,
    day: str,
    rows: DataFrame,
    *columns: str,
    mode: str = "overwrite",
) -> None:
    """Write a day's rows, sorted, a folder for each topic (and for each value of `columns`), where no reader
    looks."""
    folders = ("of", *columns)
    sorted_rows = rows.withColumn("of", F.col("topic")).sortWithinPartitions(*folders, *ORDER[table])
    sorted_rows.write.mode(mode).partitionBy(*folders).parquet(bucket.uri(publish.folder_aside(table, day)))


def rows_aside(spark: SparkSession, bucket: Bucket, table: str, day: str, *columns: str) -> DataFrame:
    """The rows that were written aside, with the `columns` that folders tell."""
    folder = bucket.uri(f"{publish.ASIDE}/{day}/{table}")
    schema = StructType([*with_day(table), *(StructField(name, StringType()) for name in columns)])
    return spark.read.schema(schema).option("basePath", folder).parquet(folder)


def read_again(spark: SparkSession, bucket: Bucket, table: str, day: str) -> dict[str, Part]:
    """What lies aside, by topic, as its files tell."""
    files = publish.files_aside(bucket, table, day)
    if not files:
        return {}
    sums = checksums(rows_aside(spark, bucket, table, day), table, "topic").collect()
    return {row.topic: publish.part(row.topic, row.rows, row.checksum, files[row.topic]) for row in sums}
