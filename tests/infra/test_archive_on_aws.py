"""What a role of the archive's stack does on AWS: jobs, their starts, Athena's tables."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from infra import jobs
from infra.glue import BODY_TEXT, LAUNCHER, glue, job_names, role_id
from infra.stages import read as stage
from infra.template import template
from tests.infra.templates import resources


def test_the_archive_is_made_each_night_in_prod_and_not_in_dev(template_file: Path) -> None:
    is_prod = "prod" in str(template_file)
    triggers = resources(template_file, "AWS::Glue::Trigger").values()
    assert [each["Properties"]["StartOnCreation"] for each in triggers] == [True] * 2 * is_prod
    assert ("ArchiveLateAlarm" in resources(template_file)) is is_prod
    jobs = resources(template_file, "AWS::Glue::Job")
    prefix = "headrace-prod" if is_prod else "headrace-dev"
    names = {each["Properties"]["Name"] for each in jobs.values()}
    assert names == {f"{prefix}-{name}" for name in ("archive", "report", "replay", "asof", "compare")}
    assert jobs["ArchiveJob"]["Properties"]["ExecutionProperty"] == {"MaxConcurrentRuns": 1}
    variable = f'"HEADRACE_ARCHIVE": "{int(is_prod)}"'  # rows wait for a proof where the archive makes one
    assert variable in json.dumps(json.loads(template_file.read_text()))


def test_the_archives_job_has_the_workers_of_the_stage() -> None:
    made = template(stage("prod", {"workers": "G.4X", "most_workers": 40, "flex": True}))["Resources"]
    properties = made["ArchiveJob"]["Properties"]
    found = [properties[name] for name in ("WorkerType", "NumberOfWorkers", "ExecutionClass")]
    assert found == ["G.4X", 40, "FLEX"]
    assert properties["DefaultArguments"]["--enable-auto-scaling"] == "true"


def test_the_archive_ends_after_the_days_of_the_stage_and_its_proof_never() -> None:
    made = template(stage("prod", {"archive_days": 400}))["Resources"]
    rules = made["Bucket"]["Properties"]["LifecycleConfiguration"]["Rules"]
    ends = {each["Prefix"]: each["ExpirationInDays"] for each in rules if "ExpirationInDays" in each}
    rows = {"archive/messages/": 430, "archive/deliveries/": 430, "journal/": 430}
    assert ends == {"athena/": 7, "archive/catalog/": 400, "archive/manifests/": 400, **rows}
    assert len({each["Id"] for each in rules}) == len(rules)
    assert '"HEADRACE_ARCHIVE_DAYS": "400"' in json.dumps(made)
    assert made["ReportJob"]["Properties"]["DefaultArguments"]["--archive-days"] == "400"


def test_the_report_follows_the_archive_also_where_that_failed() -> None:
    made = glue("headrace-prod", "artifacts", "code", archive=True, log_days=30, topic="AlarmTopic")
    predicate = made["ReportJobTrigger"]["Properties"]["Predicate"]
    assert predicate["Logical"] == "ANY"
    ends = {(each["JobName"]["Ref"], each["State"]) for each in predicate["Conditions"]}
    assert ends == {("ArchiveJob", state) for state in ("SUCCEEDED", "FAILED", "TIMEOUT")}


def test_only_the_archives_job_queries_tables_and_of_control_the_topics() -> None:
    made = glue("headrace-prod", "artifacts", "code", archive=True, log_days=30, topic="AlarmTopic")
    tables = {}
    for job in job_names():
        policy = made[role_id(job)]["Properties"]["Policies"][0]["PolicyDocument"]
        queries = [each for each in policy["Statement"] if "dynamodb:Query" in each["Action"]]
        resources_of = [place["Fn::Sub"] for each in queries for place in each["Resource"]]
        tables[job] = [place.rpartition("/")[2] for place in resources_of]
        if job == "archive":
            assert [*queries[-1]["Condition"].values()] == [
                {"dynamodb:LeadingKeys": ["topics", "retired", "deleted"]}
            ]
    assert tables.pop("archive") == ["headrace-prod-log", "headrace-prod-traces", "headrace-prod-control"]
    assert set(map(tuple, tables.values())) == {()}


def test_athenas_tables_are_the_lists_of_files_and_need_no_topic(template_file: Path) -> None:
    inputs = [
        each["Properties"]["TableInput"] for each in resources(template_file, "AWS::Glue::Table").values()
    ]
    assert all(column["Comment"] for each in inputs for column in each["StorageDescriptor"]["Columns"])
    (view,) = (each for each in inputs if each["TableType"] == "VIRTUAL_VIEW")
    shown = json.loads(base64.b64decode(view["ViewOriginalText"].split()[3]))
    assert f"{BODY_TEXT} as body_text" in shown["originalSql"]
    assert BODY_TEXT in (ROOT / "docs/archive.md").read_text()
    names = [column["name"] for column in shown["columns"]]
    assert names == [each["Name"] for each in view["StorageDescriptor"]["Columns"]]
    for properties in (each for each in inputs if each is not view):
        assert [key["Name"] for key in properties["PartitionKeys"]] == ["day"]
        assert not any("topic" in name for name in properties["Parameters"])
        assert properties["StorageDescriptor"]["InputFormat"].endswith(".SymlinkTextInputFormat")
        assert properties["StorageDescriptor"]["Location"]["Fn::Sub"].endswith(
            f"/archive/catalog/{properties['Name']}/"
        )


@pytest.mark.parametrize("template_file", ["prod"], indirect=True)
def test_a_job_that_fails_is_told(template_file: Path) -> None:
    rule = resources(template_file)["JobFailedRule"]["Properties"]
    names = [each["Properties"]["Name"] for each in resources(template_file, "AWS::Glue::Job").values()]
    jobs = [name for name in names if not name.endswith(("-asof", "-compare"))]  # a user waits for these
    assert rule["EventPattern"]["detail"] == {"jobName": jobs, "state": ["FAILED", "TIMEOUT"]}
    dimensions = resources(template_file)["JobFailedAlarm"]["Properties"]["Dimensions"]
    assert dimensions == [{"Name": "RuleName", "Value": rule["Name"]}]


def test_the_jobs_logs_are_the_stacks_own(template_file: Path) -> None:
    logs = {
        each["Properties"]["LogGroupName"]
        for each in resources(template_file, "AWS::Logs::LogGroup").values()
    }
    for job in resources(template_file, "AWS::Glue::Job").values():
        prefix = job["Properties"]["DefaultArguments"]["--custom-logGroup-prefix"]
        assert {f"{prefix}/output", f"{prefix}/error"} <= logs


def test_a_jobs_script_runs_it_with_its_own_arguments_only(tmp_path: Path) -> None:
    """Glue adds arguments of its own, also alone: two of them in a row must not take one of ours along."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/archive.py").write_text(
        "import os, sys\n\ndef main():\n    print(sys.argv[1:], os.environ['AWS_DEFAULT_REGION'])\n    return 3\n"
    )
    (tmp_path / "run.py").write_text(LAUNCHER.format(folder="jobs", job="archive"))
    text = (
        "run.py --enable-metrics --bucket b --custom-logGroup-prefix /p --JOB_NAME j --enable-job-insights --dry-run "
        "--extra-py-files s3://x --aws-region eu-west-1 --from=2026-11-01"
    )
    run = subprocess.run([sys.executable, *text.split()], cwd=tmp_path, capture_output=True, text=True)
    expected_text = "['--bucket', 'b', '--dry-run', '--from=2026-11-01'] eu-west-1\n"
    assert (run.returncode, run.stdout) == (3, expected_text)


def test_a_job_that_failed_is_named_in_a_mail_and_a_made_archive_starts_what_waits_for_it(
    template_file: Path,
) -> None:
    by_name = resources(template_file)
    (mail,) = by_name["JobFailedRule"]["Properties"]["Targets"]
    assert mail["Arn"] == {"Ref": "AlarmTopic"}
    named = set(re.findall("<(\\w+)>", mail["InputTransformer"]["InputTemplate"]))
    assert named == {"jobName", "state", "jobRunId"} == mail["InputTransformer"]["InputPathsMap"].keys()
    policy = by_name["AlarmTopicPolicy"]["Properties"]["PolicyDocument"]["Statement"][0]
    assert "events.amazonaws.com" in policy["Principal"]["Service"]
    assert by_name["ArchivedRule"]["Properties"]["Targets"][0]["Arn"] == {"Fn::GetAtt": ["Expire", "Arn"]}
    source = by_name["ExpireAfterArchive"]["Properties"]["SourceArn"]
    assert source == {"Fn::GetAtt": ["ArchivedRule", "Arn"]}


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


@pytest.mark.parametrize("job", ["archive", "report", "asof", "compare", "replay"])
def test_make_starts_it_there_where_a_stage_is_named(job: str) -> None:
    command = ["make", "--dry-run", job, "STAGE=dev", "ARGS=--topic orders"]
    run = subprocess.run(
        command, cwd=ROOT, env={**os.environ}, capture_output=True, text=True, check=True
    ).stdout
    (line,) = (line for line in run.splitlines() if "infra.jobs" in line)
    assert f"infra.jobs {job} --stage dev  -- --topic orders;" in line
