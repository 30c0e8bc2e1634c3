"""One job at a time writes an archive.

On one machine a lock sees to it, which ends with its process. On AWS nothing is needed: all that writes there is one
Glue job, of which Glue allows one run at a time (infra/glue.py).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glue_jobs.common.failures import JobError


class Busy(JobError):
    """Another job is writing this archive."""


@contextmanager
def exclusive(folder: Path | None) -> Iterator[None]:
    """Lock the folder that holds the local bucket. Raises Busy if another process has it."""
    if folder is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        _lock(handle)
        yield
    finally:
        os.close(handle)


def _lock(handle: int) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Busy("Another job is writing this archive; run this one when that is over.") from None
