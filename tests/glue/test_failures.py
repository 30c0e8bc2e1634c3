"""A job that fails, is killed, or finds another at work: its output, and its files."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from glue_jobs import archive
from glue_jobs.common.arguments import FAILED
from glue_jobs.common.job import Busy, exclusive
from tests.glue.journals import Place, message

pytest.importorskip("pyspark", reason="the archive's jobs need PySpark: make test")

from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from py4j.protocol import Py4JError, Py4JNetworkError

from glue_jobs.archiving.publish import Mismatch
from glue_jobs.common import job
from glue_jobs.common.failures import ends_the_run, sentence
from glue_jobs.common.service import Refused
from tests.glue.journals import NOON_MS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("error", "text", "ends_run"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "The disk is full", True),
        (RuntimeError("task failed\n\tjava.io.IOException: No space left on device\n\tat x"), "The disk is full", True),
        (Py4JNetworkError("Answer from Java side is empty"), "Spark's process has ended", True),
        (Py4JError("An error occurred while calling o12.collect"), "Spark's process has ended", True),
        (ConnectionRefusedError(111, "Connection refused"), "Spark's process has ended", True),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), "Nobody reads its output any more.", True),
        (RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited"), "Spark did not start", True),
        (RuntimeError("java.lang.OutOfMemoryError: Java heap space\n\tat x"), "ran out of memory", True),
        (RuntimeError("x\nglue_jobs.common.service.Refused: NO: it says no\n at y"), "NO: it", False),
        (EndpointConnectionError(endpoint_url="http://127.0.0.1:9/"), "http://127.0.0.1:9/ does not answer", False),
        (RuntimeError("x\nResourceNotFoundException: Cannot do operations on a non-existent table"), "--prefix", False),
        (ClientError({"Error": {"Code": "AccessDenied", "Message": "No."}}, "GetObject"),
         "AWS refused GetObject: No (AccessDenied); see what the credentials allow.", False),
        (NoCredentialsError(), "HEADRACE_DATA=.data", False),
        (RuntimeError("Requested resource not found: Table: hr-log not found"), "--prefix", False),
        (Mismatch("the files do not hold what the manifest says"), "the files do not", False),
        (ValueError("first line\nsecond line"), "ValueError: first line", False),
    ],
)  # fmt: skip
def test_an_error_is_one_sentence(error: Exception, text: str, ends_run: bool) -> None:
    assert text in sentence(error)
    assert "\n" not in sentence(error)
    assert ends_the_run(error) is ends_run


def test_a_refusal_survives_the_way_from_an_executor() -> None:
    text = f"PythonException: ...\nglue_jobs.common.service.Refused: {Refused(503, 'HTTP_503', '{}')}\n"
    assert sentence(RuntimeError(text)) == "HTTP_503: {}"


def summary_of(text: str) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads(text.splitlines()[-1])
    return summary


def test_what_a_job_raises_is_told_and_no_stack_trace_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    assert job.run_guarded("archive", work) == FAILED
    out, err = capsys.readouterr()
    assert summary_of(out) == {
        "job": "archive",
        "error": "The disk is full: free some space, and run the job again.",
    }
    assert err == "The job archive failed: The disk is full: free some space, and run the job again.\n"


class Full:
    """A bucket on a disk that is full."""

    def __init__(self, bucket: Any) -> None:
        self._bucket = bucket

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)

    def write(self, name: str, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_ends_the_run_and_not_just_a_day(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.journal("a", [message(0)])
    place.journal("b", [message(1, accepted_ms=NOON_MS + 86_400_000)])
    assert job.run_guarded("archive", lambda: place.archive(bucket=Full(place.bucket))) == FAILED
    out, err = capsys.readouterr()
    assert summary_of(out)["error"].startswith("The disk is full")
    assert err.count(" up to ") == 1  # the second day was not tried


SCRIPT = """
import sys, time
from glue_jobs.common import job
def work():
    print("at work", flush=True)
    while True:
        time.sleep(0.02)  # not signal.pause: the signal may come just before it
sys.exit(job.run_guarded("archive", work))
"""


@pytest.mark.parametrize("sent_signal", [signal.SIGTERM, signal.SIGINT])
def test_a_job_that_is_ended_from_outside_says_so(sent_signal: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "at work\n"
        process.send_signal(sent_signal)
        out = process.stdout.read()
    assert process.returncode == FAILED
    assert summary_of(out)["error"].startswith("The job was ended from outside")


ASKING_SCRIPT = """
import argparse, sys
from glue_jobs.common import job
from glue_jobs.reporting.group_counts import groups
def work():
    groups(argparse.Namespace(url=sys.argv[1], token_secret=None, topic=None))
    return 0
sys.exit(job.run_guarded("report", work))
"""


def test_a_report_that_is_ended_while_it_asks_the_service_does_not_go_on_without_its_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:
        service.settimeout(60)
        command = [sys.executable, "-c", ASKING_SCRIPT, f"http://127.0.0.1:{service.getsockname()[1]}"]
        environment = {**os.environ, "HEADRACE_TOKEN": "hr_a_b"}
        with (
            subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            ) as process,
            service.accept()[0] as connection,
        ):
            assert connection.recv(1)
            process.send_signal(signal.SIGTERM)
            out = process.communicate()[0]
    assert process.returncode == FAILED
    assert summary_of(out)["error"].startswith("The job was ended from outside")


HOLDER = "import sys; from pathlib import Path; from glue_jobs.common.job import exclusive\n"
HOLDER += "with exclusive(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"


def test_a_job_that_finds_another_at_work_touches_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with exclusive(tmp_path):
        assert archive.main(["--folder", str(tmp_path), "--bucket", "headrace"]) == FAILED
    assert "Another job is writing this archive" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_who_is_killed_holds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(Busy), exclusive(tmp_path):
            pass
        holder.kill()
    with exclusive(tmp_path):
        pass


def test_archives_of_their_own_are_written_at_once_and_one_after_another_too(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with exclusive(tmp_path), exclusive(tmp_path / "a"), exclusive(None), exclusive(None):
        pass
    with exclusive(tmp_path):
        pass
