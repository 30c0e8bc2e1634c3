"""One run of a job: whatever happens, it ends in a sentence, a summary in JSON, and an exit code."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyspark.sql import SparkSession

from glue_jobs.common import session
from glue_jobs.common.arguments import FAILED
from glue_jobs.common.bucket import Bucket, bucket_of
from glue_jobs.common.failures import Ended, sentence
from glue_jobs.common.output import summary


def run(job: str, options: argparse.Namespace, work: Callable[[SparkSession, Bucket], int]) -> int:
    """Do the work with a session of Spark and the bucket; its exit code, or FAILED where it raises."""
    return guarded(job, lambda: _in_session(job, options, work))


def guarded(job: str, work: Callable[[], int]) -> int:
    """The work's exit code. What it raises is told in a sentence and in the summary; HEADRACE_DEBUG=1 shows where."""
    before = signal.signal(signal.SIGTERM, _end)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it tells each broken connection at length
    try:
        return work()
    except Exception as error:  # noqa: BLE001
        if os.environ.get("HEADRACE_DEBUG"):
            traceback.print_exc()
        print(f"The job {job} failed: {sentence(error)}", file=sys.stderr, flush=True)
        summary(job, error=sentence(error))
        return FAILED
    finally:
        signal.signal(signal.SIGTERM, before)


def _in_session(job: str, options: argparse.Namespace, work: Callable[[SparkSession, Bucket], int]) -> int:
    with spark(job, options) as started:
        return work(started, bucket_of(options.bucket, options.folder))


@contextmanager
def spark(job: str, options: argparse.Namespace) -> Iterator[SparkSession]:
    """The session of a job, stopped behind it, also where its process is gone already."""
    started = session.start(job, options.folder, options.bucket)
    try:
        yield started
    finally:
        with suppress(Exception):
            started.stop()


def _end(*_: Any) -> None:
    raise Ended("The job was ended from outside. Run it again: it goes on where it was.")
