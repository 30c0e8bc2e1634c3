"""The Spark session, and how `s3://bucket/…` becomes a folder on one machine."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import pyspark
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from glue_jobs.common.failures import is_debugging

_VIEW = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"
_COMMITTER = "org.apache.hadoop.mapreduce.lib.output.FileOutputCommitterFactory"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_JAVA = (
    "-XX:+UseParallelGC -XX:MetaspaceSize=256m -XX:Tier3InvocationThreshold=800 -XX:Tier3MinInvocationThreshold=400 "
    "-XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400 -XX:Tier4CompileThreshold=60000 "
    "-XX:Tier4BackEdgeThreshold=160000"
)
"""Java's compilers would take nearly half of a job's CPU: they wait four times as long to see what is called often.
Loading classes collects no garbage."""
_LOCAL = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    _JAVA_OPTIONS: _JAVA,
    "spark.sql.shuffle.partitions": "32",
    "spark.sql.warehouse.dir": "build/spark-warehouse",
    "spark.ui.showConsoleProgress": "false",
}
_QUIET = Path(__file__).with_name("quiet.log4j2.properties")
_EVERYWHERE = {
    "spark.sql.optimizer.windowGroupLimitThreshold": "-1",  # a pass more over all rows, where few come twice
    # It takes observed plans away where nothing comes, and their `Observation` is waited for without end.
    "spark.sql.adaptive.optimizer.excludedRules": "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation",
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "64m",  # ids are looked up, not sorted
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.ignoreDataLocality": "true",  # S3 has none; on one machine asking forks twice for each file
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.hadoop.parquet.block.size": "33554432",  # rows of one topic are in few of a file's groups
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",  # a flipped bit is an error, not another value
}


SMALL_BYTES = 12_000_000
"""Of compressed journal or of tables, below which a job is small: half a million short messages."""
_SMALL = {
    "spark.driver.memory": "640m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
}
"""For a small job planning a query again after each stage takes longer than it saves."""


class Start(Protocol):
    """Starts Spark, once. `is_small`: there is little to do."""

    def __call__(self, is_small: bool = False) -> SparkSession: ...


def start(
    job: str,
    folder: Path | None = None,
    bucket: str = "",
    *,
    is_small: bool = False,
    keeps_classes: bool = False,
    **settings: str,
) -> SparkSession:
    """The session of a job. With `folder`, this machine runs it, and `s3://<bucket>/` is that folder; without, Glue
    has set up everything. `keeps_classes`: `stop` ends it. `settings` are Spark's, with `_` for `.`. Here Spark's own
    log is shown only with HEADRACE_DEBUG: what a job can't do it says itself."""
    configuration = dict(_EVERYWHERE)
    if folder:
        # Spark's own processes must find the Python and the code of this one.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        configuration |= _LOCAL
        if is_small:
            configuration |= _SMALL
            configuration[_JAVA_OPTIONS] += " -XX:TieredStopAtLevel=1"  # the second compiler does not pay
        if (classes := _classes()).exists():
            configuration[_JAVA_OPTIONS] += f' -Xlog:disable "-XX:SharedArchiveFile={classes}"'
        elif keeps_classes and is_small and os.access(classes.parent, os.W_OK):
            configuration[_JAVA_OPTIONS] += f' -Xlog:disable "-XX:ArchiveClassesAtExit={_draft_of(classes)}"'
        if not is_debugging():
            configuration[_JAVA_OPTIONS] += f' "-Dlog4j2.configurationFile={_QUIET.as_uri()}"'
    configuration |= {name.replace("_", "."): value for name, value in settings.items()}
    builder = SparkSession.builder.appName(f"headrace {job}")
    for name, value in configuration.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    jvm: Any = spark._jvm
    jvm.functions = jvm.functions  # else each `F.…` makes Java search all its jars again
    if folder:
        map_bucket(spark, bucket, folder)
    return spark


def stop(spark: SparkSession) -> None:
    """End the session. The first small job on a machine also leaves Java's classes to the next, which takes seconds."""
    draft, java = _draft_of(_classes()), SparkContext._gateway
    keeps = str(draft) in (spark.conf.get(_JAVA_OPTIONS, None) or "")
    spark.stop()
    if keeps and java:
        SparkContext._gateway = SparkContext._jvm = None
        java.proc.stdin.close()  # for which it waits
        java.proc.wait()
        with suppress(FileNotFoundError):  # no space for it
            draft.replace(_classes())


def _classes() -> Path:
    """Where Java keeps Spark's classes as it has them in memory: beside PySpark, for this Java. To find 14,000 in 250
    jars takes a third of a small job's time. Java checks that the jars are the same."""
    java = shutil.which("java", path=os.path.expandvars("$JAVA_HOME/bin:$PATH")) or sys.executable
    version = Path(java).resolve().stat().st_mtime_ns
    return Path(pyspark.__file__).with_name(f"classes-{pyspark.__version__}-{version}.jsa")


def _draft_of(classes: Path) -> Path:
    return classes.with_suffix(f".{os.getpid()}")


def empty_table(spark: SparkSession, schema: StructType) -> DataFrame:
    """A table without rows. `createDataFrame` would start Python workers for them."""
    return spark.range(0).select(*(F.lit(None).cast(each.dataType).alias(each.name) for each in schema))


def map_bucket(spark: SparkSession, bucket: str, folder: Path) -> None:
    """Let `s3://<bucket>/` and `s3a://<bucket>/` be a folder, for all that is opened from now on."""
    folder.mkdir(parents=True, exist_ok=True)
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    for scheme in ("s3", "s3a"):
        hadoop.set(f"fs.{scheme}.impl", _VIEW)
        hadoop.set(f"mapreduce.outputcommitter.factory.scheme.{scheme}", _COMMITTER)
    hadoop.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem")  # no .crc files beside ours
    hadoop.set(f"fs.viewfs.mounttable.{bucket}.linkFallback", folder.resolve().as_uri())
