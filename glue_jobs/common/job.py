"""One run of a job. It always ends with a sentence, a summary in JSON, and an exit code."""

from __future__ import annotations

import argparse
import fcntl
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from glue_jobs.common import session
from glue_jobs.common.arguments import FAILED, progress, summary
from glue_jobs.common.bucket import Bucket, bucket_of
from glue_jobs.common.failures import JobError, end_process, is_debugging, sentence
from glue_jobs.common.session import Start

_ENDS = (signal.SIGTERM, signal.SIGINT)


def run(job: str, options: argparse.Namespace, work: Callable[[Start, Bucket], int]) -> int:
    """Do the work with the bucket, and with Spark where it asks for it; its exit code, or FAILED where it raises."""

    def with_spark() -> int:
        with spark(job, options) as start:
            return work(start, bucket_of(options.bucket, options.folder))

    return run_guarded(job, with_spark)


def run_guarded(job: str, work: Callable[[], int]) -> int:
    """Run the work and return the exit code. An error is written as a sentence, and into the summary;
    HEADRACE_DEBUG=1 shows the traceback. SIGTERM and Ctrl-C end the work in the same way."""
    before = {each: signal.signal(each, _end) for each in _ENDS}
    if not is_debugging():
        logging.disable()  # py4j shows the stack of each broken connection
    try:
        return work()
    except Exception as error:  # noqa: BLE001
        if is_debugging():
            traceback.print_exc()
        print(f"The job {job} failed: {sentence(error)}", file=sys.stderr, flush=True)
        summary(job, error=sentence(error))
        return FAILED
    finally:
        logging.disable(logging.NOTSET)
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def spark(job: str, options: argparse.Namespace) -> Iterator[Start]:
    """Starts the session of a job when it is first asked for: that takes seconds, and often there is nothing to do. It
    is stopped in the end, also where its process is gone already."""
    sessions: list[SparkSession] = []

    def start(is_small: bool = False) -> SparkSession:
        if not sessions:
            progress(f"{job}: Spark starts …")
            with _put_off():
                place = (options.folder, options.bucket)
                sessions.append(session.start(job, *place, is_small=is_small, keeps_classes=True))
        return sessions[0]

    try:
        yield start
    finally:
        for spark_session in sessions:
            with suppress(Exception):
                session.stop(spark_session)


@contextmanager
def _put_off() -> Iterator[None]:
    """What ends the job waits: a Java machine that is left while it starts runs for ever."""
    put_off: list[int] = []
    for each in _ENDS:
        signal.signal(each, lambda number, _: put_off.append(number))
    try:
        yield
    except KeyboardInterrupt:  # of the handler that PySpark has put there meanwhile
        put_off.append(signal.SIGINT)
    finally:
        for each in _ENDS:
            signal.signal(each, _end)
        if put_off:
            _end()


def _end(*_: Any) -> None:
    end_process()


class Busy(JobError):
    """Another job is writing this archive."""


@contextmanager
def exclusive(folder: Path | None) -> Iterator[None]:
    """Hold the folder in place of the bucket, so that one job at a time writes an archive. On AWS nothing is needed:
    Glue allows one run of the job at a time (infra/glue.py). Raises Busy."""
    if folder is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy("Another job is writing this archive; run this one when that is over.") from None
        yield
    finally:
        os.close(handle)
