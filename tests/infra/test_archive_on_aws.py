"""The archive in the template: its jobs, their schedule, logs and alarms, and Athena's tables."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from infra.glue import LAUNCHER, glue, job_names, role_id
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


def test_the_report_follows_the_archive_also_where_that_failed() -> None:
    made = glue("headrace-prod", "artifacts", "code", archive=True, log_days=30)
    predicate = made["ReportJobTrigger"]["Properties"]["Predicate"]
    assert predicate["Logical"] == "ANY"
    ends = {(each["JobName"]["Ref"], each["State"]) for each in predicate["Conditions"]}
    assert ends == {("ArchiveJob", state) for state in ("SUCCEEDED", "FAILED", "TIMEOUT")}


def test_a_job_that_fails_is_not_run_again_by_itself(template_file: Path) -> None:
    for job in resources(template_file, "AWS::Glue::Job").values():
        assert job["Properties"]["MaxRetries"] == 0


def test_only_the_archives_job_queries_tables_the_log_and_the_traces() -> None:
    made = glue("headrace-prod", "artifacts", "code", archive=True, log_days=30)
    tables = {}
    for job in job_names():
        policy = made[role_id(job)]["Properties"]["Policies"][0]["PolicyDocument"]
        queries = [each for each in policy["Statement"] if "dynamodb:Query" in each["Action"]]
        resources_of = [place["Fn::Sub"] for each in queries for place in each["Resource"]]
        tables[job] = [place.rpartition("/")[2] for place in resources_of]
    assert tables.pop("archive") == ["headrace-prod-log", "headrace-prod-traces"]
    assert set(map(tuple, tables.values())) == {()}


def test_athenas_tables_are_the_lists_of_files_and_need_no_topic(template_file: Path) -> None:
    for table in resources(template_file, "AWS::Glue::Table").values():
        properties = table["Properties"]["TableInput"]
        assert [key["Name"] for key in properties["PartitionKeys"]] == ["day"]
        assert not any("topic" in name for name in properties["Parameters"])
        assert properties["StorageDescriptor"]["InputFormat"].endswith(".SymlinkTextInputFormat")
        assert properties["StorageDescriptor"]["Location"]["Fn::Sub"].endswith(
            f"/archive/catalog/{properties['Name']}/"
        )


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
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/archive.py").write_text(
        "import sys\n\ndef main():\n    print(sys.argv[1:])\n    return 3\n"
    )
    (tmp_path / "run.py").write_text(LAUNCHER.format(folder="jobs", job="archive"))
    arguments = [
        "--bucket",
        "b",
        "--custom-logGroup-prefix",
        "/p",
        "--JOB_NAME",
        "j",
        "--extra-py-files",
        "s3://x",
    ]
    run = subprocess.run([sys.executable, "run.py", *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (3, "['--bucket', 'b', '--JOB_NAME', 'j']\n")
