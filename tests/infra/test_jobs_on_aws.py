"""Jobs of the archive that are started by hand on AWS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra import jobs

ROOT = Path(__file__).parents[2]
_CLI = f"""#!{sys.executable}
import json, sys
answers = {{{{"sts": {{{{"Account": "123456789012"}}}}, "glue": {{{{"JobRunId": "jr_1"}}}}}}}}
open({{asked!r}}, "a").write(json.dumps(sys.argv[1:]) + "\\n")
print(json.dumps(answers[sys.argv[1]]))
"""


@pytest.fixture
def requests_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the AWS CLI was asked: a script that knows us, and starts any job."""
    cli, log = tmp_path / "aws", tmp_path / "asked"
    cli.write_text(_CLI.format(asked=str(log)))
    cli.chmod(0o755)
    monkeypatch.setenv("AWS_CLI", str(cli))
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    return log


@pytest.mark.parametrize("told", ["--topic orders --at {}", "--topic=orders --at={}"])
def test_a_job_is_started_with_what_it_is_told(
    requests_file: Path, capsys: pytest.CaptureFixture[str], told: str
) -> None:
    at = "2026-11-20T09:30:00Z"
    assert jobs.main(["asof", "--stage", "dev", "--", *told.format(at).split()]) == 0
    *start, arguments, _, _ = json.loads(requests_file.read_text().splitlines()[-1])
    assert start == ["glue", "start-job-run", "--job-name", "headrace-dev-asof", "--arguments"]
    assert json.loads(arguments) == {"--topic": "orders", "--at": at}
    assert (
        "aws logs tail /aws-glue/headrace-dev/output --log-stream-name-prefix jr_1" in capsys.readouterr().out
    )


def test_what_is_no_pair_is_refused_before_anything_is_started(
    requests_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert jobs.main(["asof", "--stage", "dev", "--", "--topic"]) == 2
    assert "come in pairs" in capsys.readouterr().err
    assert "start-job-run" not in requests_file.read_text()


@pytest.mark.parametrize("job", ["archive", "report", "asof", "compare", "replay"])
def test_make_starts_it_there_where_a_stage_is_named(job: str) -> None:
    command = ["make", "--dry-run", job, "STAGE=dev", "ARGS=--topic orders"]
    run = subprocess.run(
        command, cwd=ROOT, env={**os.environ}, capture_output=True, text=True, check=True
    ).stdout
    (line,) = (line for line in run.splitlines() if "infra.jobs" in line)
    assert f"infra.jobs {job} --stage dev  -- --topic orders;" in line
