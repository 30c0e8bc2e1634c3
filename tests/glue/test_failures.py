"""Whatever happens to a job, it ends in a sentence, a summary and an exit code."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the archive's jobs need PySpark: make test")

from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from py4j.protocol import Py4JError, Py4JNetworkError

from glue_jobs.archiving.publish import Mismatch
from glue_jobs.common import job
from glue_jobs.common.arguments import FAILED
from glue_jobs.common.failures import ends_the_run, sentence
from glue_jobs.common.service import Refused
from tests.glue.jobs import archive_command
from tests.glue.journals import NOON_MS, Place, message
from tests.support.processes import wait_until_gone

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


READ_SCRIPT = """
import sys
from glue_jobs.common import job
from glue_jobs.common.arguments import summary
def work():
    sys.stdin.read()  # until the reader of the output is gone
    print("x" * {})
    summary("asof")
    return 0
sys.exit(job.run_guarded("asof", work))
"""


@pytest.mark.parametrize(
    ("characters", "code", "told"),
    [(1, 0, ""), (100_000, FAILED, "The job asof failed: Nobody reads its output any more.\n")],
    ids=["before the summary", "amid the output"],
)
def test_a_job_whose_reader_has_gone_says_that_and_nothing_of_spark(
    characters: int, code: int, told: str
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", READ_SCRIPT.format(characters)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        process.stdin.close()
        assert process.stderr.read() == told
    assert process.returncode == code


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


STARTING_SCRIPT = """
import argparse, sys
from pathlib import Path
from glue_jobs.common import job
def work():
    with job.spark("archive", argparse.Namespace(folder=Path(sys.argv[1]), bucket="b")) as start:
        start()
    return 0
sys.exit(job.run_guarded("archive", work))
"""


@pytest.mark.soak
def test_a_job_that_is_ended_while_spark_starts_leaves_no_process(tmp_path: Path) -> None:
    """The Java machine would run for ever: it cannot say where it listens, since the job has taken away the folder."""
    with subprocess.Popen(
        [sys.executable, "-c", STARTING_SCRIPT, str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr
        assert "Spark starts" in process.stderr.readline()
        while not (jvm := _java_below(process.pid)):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        try:
            out = process.communicate(timeout=120)[0]
            wait_until_gone(jvm)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == FAILED
    assert summary_of(out)["error"].startswith("The job was ended from outside")


PUT_OFF_SCRIPT = """
import signal, sys
from glue_jobs.common import job
def work():
    with job._put_off():
        {}
    return 0
sys.exit(job.run_guarded("archive", work))
"""


@pytest.mark.parametrize(
    "during_start",
    [
        "signal.raise_signal(signal.SIGTERM); raise OSError('no Java')",
        "signal.signal(signal.SIGINT, signal.default_int_handler); signal.raise_signal(signal.SIGINT)",
    ],
    ids=["spark then fails to start", "pyspark hears it"],
)
def test_a_job_that_is_ended_during_a_start_says_so_however_that_goes_on(during_start: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", PUT_OFF_SCRIPT.format(during_start)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == FAILED
    assert summary_of(process.stdout)["error"].startswith("The job was ended from outside")


@pytest.mark.soak
def test_a_jvm_that_is_killed_leaves_a_sentence_a_summary_and_an_exit_code(
    place: Place, tmp_path: Path
) -> None:
    place.journal("a", [message(n) for n in range(200_000)])
    out, err = tmp_path / "out", tmp_path / "err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(archive_command(place), cwd=ROOT, stdout=stdout, stderr=stderr)
        while not (place.folder / "archive/_aside").exists():
            assert process.poll() is None
        jvm = _java_below(process.pid)
        assert jvm
        os.kill(jvm, signal.SIGKILL)
        assert process.wait() == FAILED
    assert summary_of(out.read_text())["error"].startswith("Spark's process has ended")
    assert "Traceback" not in err.read_text()


def _java_below(pid: int) -> int | None:
    """The JVM that a process has started."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        except OSError:
            continue
        if fields.get("PPid") == str(pid) and fields["Name"] == "java":
            return int(status.parent.name)
    return None
