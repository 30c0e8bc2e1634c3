"""The archive's jobs, started: here as processes, on AWS by Glue."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from chalicelib.delivery.functions import GlueJobs
from local import jobs
from local.jobs import LocalJobs
from tests.support.processes import wait_until_gone

SCRIPT = """
import os, subprocess, sys, time
if "machine" in sys.argv:
    machine = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(machine.pid, flush=True)
    machine.wait()
print(sys.argv[1:], os.environ["HEADRACE_URL"], os.environ["AWS_ACCESS_KEY_ID"], flush=True)
time.sleep(60 if "slow" in sys.argv else 0)
if "killed" in sys.argv:
    os.kill(os.getpid(), 9)
sys.exit("bad" in sys.argv)
"""


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalJobs]:
    """Jobs of a folder whose one job prints its arguments."""
    (tmp_path / "glue_jobs").mkdir()
    (tmp_path / "glue_jobs" / "replay.py").write_text(SCRIPT)
    monkeypatch.setattr(jobs, "_ROOT", tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.chdir(tmp_path)
    local_jobs = LocalJobs(tmp_path / "jobs", "http://127.0.0.1:1", {"AWS_ACCESS_KEY_ID": "HR1"})
    yield local_jobs
    local_jobs.stop()


def printed(local: LocalJobs, tmp_path: Path, name: str) -> str:
    """The job's log, once there is something in it."""
    pause, log = threading.Event(), tmp_path / "jobs" / name
    for _ in range(600):
        if log.read_text().endswith("\n"):
            return log.read_text()
        pause.wait(0.1)
    raise AssertionError("the job printed nothing")


def test_a_job_runs_as_a_process_that_knows_where_the_service_and_its_engine_are(
    local: LocalJobs, tmp_path: Path
) -> None:
    assert local.start("replay", {"replay": "r1"})
    assert printed(local, tmp_path, "replay-r1.log") == "['--replay', 'r1'] http://127.0.0.1:1 HR1\n"


def test_what_a_job_has_started_ends_with_it(local: LocalJobs, tmp_path: Path) -> None:
    """A Java machine that its job leaves while it starts runs for ever."""
    assert local.start("replay", {"replay": "machine"})
    pid = int(printed(local, tmp_path, "replay-machine.log"))
    local.stop()
    wait_until_gone(pid)


@pytest.mark.parametrize(
    ("replay", "complaint"),
    [
        ("bad", "A job failed: {log} says how far it came.\n"),
        ("killed", "A job was killed (signal 9; out of memory?): {log} says how far it came.\n"),
    ],
)
def test_a_job_that_fails_is_told_of(
    local: LocalJobs, tmp_path: Path, capsys: pytest.CaptureFixture[str], replay: str, complaint: str
) -> None:
    assert local.start("replay", {"replay": replay})
    pause, complaints = threading.Event(), ""
    for _ in range(600):
        if (complaints := complaints + capsys.readouterr().err).endswith("\n"):
            break
        pause.wait(0.1)
    assert complaints == complaint.format(log=tmp_path / "jobs" / f"replay-{replay}.log")


def test_a_job_that_ends_with_the_service_has_not_failed(
    local: LocalJobs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert local.start("replay", {"replay": "slow"})
    printed(local, tmp_path, "replay-slow.log")
    [teller] = [each for each in threading.enumerate() if each.name == "job replay-slow"]
    local.stop()
    teller.join(60)
    assert capsys.readouterr().err == ""


def test_nothing_is_started_whose_log_cannot_be_written(
    local: LocalJobs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs").touch()
    assert local.start("replay", {"replay": "r1"}) is False
    assert (
        capsys.readouterr().err
        == f"A job was not started: {tmp_path / 'jobs'} cannot be used (File exists).\n"
    )


@pytest.mark.parametrize("program", ["pyspark", "java"])
def test_nothing_is_started_where_pyspark_or_java_is_missing(
    local: LocalJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    there = lambda name: None if name == program else name  # noqa: E731
    monkeypatch.setattr("importlib.util.find_spec", there)
    monkeypatch.setattr("shutil.which", there)
    assert local.start("replay", {"replay": "r1"}) is False
    assert not (tmp_path / "jobs").exists()


def glue() -> Any:
    return boto3.client("glue", "us-east-1", aws_access_key_id="a", aws_secret_access_key="b")


def test_glue_starts_the_stages_job_with_its_arguments() -> None:
    client = glue()
    with Stubber(client) as stub:
        request = {"JobName": "prod-replay", "Arguments": {"--replay": "r1"}}
        stub.add_response("start_job_run", {"JobRunId": "jr_1"}, request)
        assert GlueJobs(lambda: client, "prod").start("replay", {"replay": "r1"}) is True
        stub.assert_no_pending_responses()


def test_glue_that_says_no_has_started_nothing() -> None:
    client = glue()
    with Stubber(client) as stub:
        code = "ConcurrentRunsExceededException"
        stub.add_client_error("start_job_run", code, expected_params={"JobName": ANY, "Arguments": ANY})
        assert GlueJobs(lambda: client, "prod").start("replay", {"replay": "r1"}) is False
