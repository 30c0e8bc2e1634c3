"""`headrace-local env`: other programs find the engine of a data folder, whether a service runs on it or not."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.local_service import ROOT, serving

_COMMAND = (sys.executable, "-m", "headrace_local", "env")
_TABLES = """
import boto3
print(*boto3.client("dynamodb").list_tables()["TableNames"])
"""
_ENDS_WHEN_ASKED = f"""
import signal, sys
def end(number, frame):
    {_TABLES.strip().replace(chr(10), chr(10) + "    ")}
    sys.exit(3)
signal.signal(signal.SIGTERM, end)
print("there", flush=True)
signal.pause()
"""


def run(*arguments: str, data: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """`headrace-local env` with these arguments."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return subprocess.run(
        [*_COMMAND, *arguments],
        cwd=ROOT,
        env=environment | {"HEADRACE_DATA": str(data)} | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_boto3_reaches_the_tables_of_a_running_service(tmp_path: Path) -> None:
    with serving(HEADRACE_DATA=str(tmp_path), AWS_ENDPOINT_URL_DYNAMODB=""):
        printed = run(data=tmp_path)
        exported = dict(shlex.split(line)[1].split("=", 1) for line in printed.stdout.splitlines())
        assert printed.stdout.count("export ") == len(exported)
        assert (tmp_path / "engine").stat().st_mode & 0o777 == 0o600
        by_variables = subprocess.run(
            [sys.executable, "-c", _TABLES], env=os.environ | exported, capture_output=True, check=True
        )
        by_command = run("--", sys.executable, "-c", _TABLES, data=tmp_path)
    assert by_variables.stdout.decode() == by_command.stdout
    assert "headrace-log" in by_command.stdout


def test_a_command_gets_the_tables_of_a_service_that_has_stopped(tmp_path: Path) -> None:
    with serving(HEADRACE_DATA=str(tmp_path), AWS_ENDPOINT_URL_DYNAMODB=""):
        pass
    assert not (tmp_path / "engine").exists()
    assert "headrace-log" in run("--", sys.executable, "-c", _TABLES, data=tmp_path).stdout
    assert not (tmp_path / "engine").exists()


def test_without_a_service_there_is_nothing_to_print(tmp_path: Path) -> None:
    """Also where one was killed, which left its file behind."""
    (tmp_path / "engine").write_text('{"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:1"}')
    (tmp_path / "lock").write_text("process 1, which serves on http://127.0.0.1:1")
    refused = run(data=tmp_path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"No service runs on {tmp_path}. ")


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -TERM $$", 128 + signal.SIGTERM)])
def test_it_ends_with_the_commands_exit_code(tmp_path: Path, script: str, code: int) -> None:
    assert run("--", "sh", "-c", script, data=tmp_path).returncode == code


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    refused = run("--", "no-such-command", data=tmp_path)
    assert refused.stderr == "no-such-command cannot be run (No such file or directory).\n"


def test_a_command_that_is_asked_to_end_ends_before_its_engine(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*_COMMAND, "--data", str(tmp_path), "--", sys.executable, "-c", _ENDS_WHEN_ASKED],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "there\n"
        process.terminate()
        assert process.wait(60) == 3
