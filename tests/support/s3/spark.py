"""Spark's way to the S3 of this machine: a file system that is compiled when it is first needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

_SOURCE = Path(__file__).with_name("PlainS3FileSystem.java")
_NAME = _SOURCE.stem


def compile_to(spark: SparkSession, folder: Path) -> None:
    """Put the file system's classes into a folder of Spark's class path, by the compiler that Spark has with it."""
    java: Any = spark._jvm
    compiler = java.org.codehaus.janino.SimpleCompiler()
    compiler.cook(_SOURCE.read_text())
    for name, code in dict(compiler.getBytecodes()).items():
        (folder / f"{name}.class").write_bytes(bytes(code))


def use(spark: SparkSession, url: str) -> None:
    """Let `s3://` be the S3 at a URL, for all that is opened from now on."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.s3.impl", _NAME)
    hadoop.set("fs.plains3.endpoint", url)
