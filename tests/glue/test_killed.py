"""The process itself is killed while Spark writes; run again, the archive is what it should be."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from glue_jobs.common.arguments import DONE
from tests.glue.jobs import archive_command
from tests.glue.journals import LATER, Place, message, orders

ROOT = Path(__file__).parents[2]
_BOUND_SECONDS = 300.0


@pytest.mark.soak
def test_sigkill_while_partitions_are_written(place: Place) -> None:
    place.journal("a", [message(n) for n in range(20_000)])
    job = subprocess.Popen(
        [*archive_command(place), "--now", LATER],
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + _BOUND_SECONDS
    while not any(place.folder.glob("archive/_aside/**/*.parquet")):
        assert job.poll() is None, job.returncode
        assert time.monotonic() < deadline
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    assert place.archive() == DONE
    assert place.places() == orders(*range(20_000))
    assert place.named() == {*place.files(), *place.files("deliveries")}
