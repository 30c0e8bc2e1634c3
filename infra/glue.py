"""The archive's jobs on Glue, when they run, what they may do, and Athena's tables of the archive."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from glue_jobs.common.columns import COLUMNS, MESSAGES

from . import bucket, names
from .functions import function_id, log_group, permission
from .resources import allow, resource, role

JOBS_FOLDER = "glue_jobs"
LAUNCHER = '''"""Runs a job of glue_jobs on Glue, which adds arguments of its own to ours, with and without values."""

import os
import re
import sys

from {folder}.{job} import main

THEIRS = re.compile(
    "--([A-Z]|additional-|aws-|conf|continuous-|custom|datalake-|enable-|encryption-|extra-|job-|library-|python-"
    "|script|spark-|use)"
)

own, is_own = [], False
for text in sys.argv[1:]:
    if text.startswith("--"):
        name, is_own = text, not THEIRS.match(text)
    if is_own:
        own.append(text)
    elif name == "--aws-region":
        os.environ["AWS_DEFAULT_REGION"] = text  # Glue sets none for the clients of boto3
sys.argv[1:] = own
code = main()
if code:
    raise SystemExit(code)
'''
"""A job's script: what Glue runs must be one file, and the jobs are a package."""

_GLUE, _WORKER, _WORKERS = "5.1", "G.1X", 2
WORKERS = ("G.1X", "G.2X", "G.4X", "G.8X")
_TIMEOUT_MINUTES = 240
_SECRET = "replay-token"
_LOGS = ("output", "error")  # Glue's names: what a job prints, and what Spark says
_READ = ("s3:GetObject",)
_CHANGE = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
_BADLY = ("FAILED", "TIMEOUT")  # exit code 3, incomplete, is FAILED


@dataclass(frozen=True, slots=True)
class Job:
    """A script of glue_jobs. `at`: its schedule (cron, UTC); `after`: the job that it follows. `folders`: the access it
    has to folders of the bucket; `tables`: those that it queries; `asks`: it calls the API, with a token. Without
    `is_watched` its failure raises no alarm: the user who starts it reads its output."""

    name: str
    at: str = ""
    after: str = ""
    arguments: tuple[tuple[str, Any], ...] = ()
    at_once: int = 1
    folders: tuple[tuple[str, tuple[str, ...]], ...] = ()
    tables: tuple[str, ...] = ()
    asks: bool = False
    is_watched: bool = True


_JOBS = (
    # All that writes the archive is one job: no two of its runs can be at work at once.
    Job(
        "archive",
        at="cron(30 0 * * ? *)",
        arguments=(("--region", {"Ref": "AWS::Region"}),),
        folders=(("journal", _CHANGE), ("archive", _CHANGE), ("bodies", _READ)),
        tables=("log", "traces"),
    ),
    Job("report", after="archive", folders=(("archive", _READ), ("reports", _CHANGE)), asks=True),
    Job("replay", at_once=3, folders=(("archive", _READ),), asks=True),
    Job("asof", at_once=3, folders=(("archive", _READ),), is_watched=False),
    Job("compare", at_once=3, folders=(("archive", _READ), ("reports/shadows", _CHANGE)), is_watched=False),
)

_DAY = {"day": ("date", "the day of its time, UTC")}
_TRINO = {
    "string": "varchar",
    "int": "integer",
    "timestamp": "timestamp(3)",
    "binary": "varbinary",
    "array<string>": "array(varchar)",
    "map<string,string>": "map(varchar,varchar)",
}
BODY_TEXT = "if(to_utf8(from_utf8(body)) = body, from_utf8(body))"
"""A body as text in Athena. `from_utf8` alone replaces what is no UTF-8, `cast` refuses bytes."""


def glue(prefix: str, artifacts: str, code: str, archive: bool, log_days: int, topic: str) -> dict[str, Any]:
    """The jobs and tables. `artifacts`: the name of the bucket for deployed code, as text for Fn::Sub; `code`: the key
    under which glue_jobs is there. `archive`: the jobs run on a schedule, else only when started by hand. `topic`: the
    logical id of the alarms' topic."""
    resources: dict[str, Any] = {}
    for kind in _LOGS:
        resources[f"Jobs{names.logical(kind)}Log"] = log_group(f"{_logs(prefix)}/{kind}", log_days)
    for job in _JOBS:
        resources[role_id(job.name)] = _role(prefix, artifacts, job)
        resources[_job_id(job.name)] = _job(prefix, artifacts, code, job)
        if archive and (job.at or job.after):  # a trigger can be started at its creation only
            resources[f"{_job_id(job.name)}Trigger"] = _trigger(prefix, job)
    return {**resources, **_rules(prefix, topic), **_catalog(prefix)}


def job_names() -> tuple[str, ...]:
    return tuple(job.name for job in _JOBS)


def secret(prefix: str) -> str:
    """The name of the secret that holds the token with which replays are sent."""
    return f"{prefix}-{_SECRET}"


def _logs(prefix: str) -> str:
    """With what the names of the jobs' log groups begin."""
    return f"/aws-glue/{prefix}"


def role_id(name: str) -> str:
    """The logical id of a job's role."""
    return f"{_job_id(name)}Role"


def _job_id(name: str) -> str:
    return f"{names.logical(name)}Job"


def _job(prefix: str, artifacts: str, code: str, job: Job) -> dict[str, Any]:
    place = f"s3://{artifacts}/{code}"
    arguments: dict[str, Any] = {
        "--bucket": {"Ref": bucket.BUCKET},
        "--extra-py-files": {"Fn::Sub": f"{place}/{JOBS_FOLDER}.zip"},
        "--custom-logGroup-prefix": _logs(prefix),
        "--aws-region": {"Ref": "AWS::Region"},
        "--enable-auto-scaling": "true",  # the number of workers is the most
        **dict(job.arguments),
    }
    if job.name == "archive":
        arguments["--prefix"] = prefix
    if job.asks:
        url = "https://${RestAPI}.execute-api.${AWS::Region}.${AWS::URLSuffix}/api"
        arguments["--url"] = {"Fn::Sub": url}
        arguments["--token-secret"] = secret(prefix)
    script = {"Fn::Sub": f"{place}/{job.name}.py"}
    return resource(
        "AWS::Glue::Job",
        Name=f"{prefix}-{job.name}",
        Role={"Fn::GetAtt": [role_id(job.name), "Arn"]},
        GlueVersion=_GLUE,
        WorkerType=_WORKER,
        NumberOfWorkers=_WORKERS,
        Timeout=_TIMEOUT_MINUTES,
        MaxRetries=0,  # a failure is reported at once, and the next night's run repeats the work
        ExecutionProperty={"MaxConcurrentRuns": job.at_once},
        Command={"Name": "glueetl", "PythonVersion": "3", "ScriptLocation": script},
        DefaultArguments=arguments,
    )


def _trigger(prefix: str, job: Job) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "Name": f"{prefix}-{job.name}",
        "Actions": [{"JobName": {"Ref": _job_id(job.name)}}],
        "StartOnCreation": True,
    }
    if job.at:
        properties |= {"Type": "SCHEDULED", "Schedule": job.at}
    else:
        # Also after one that failed or was incomplete: what it did is whole.
        condition = {"JobName": {"Ref": _job_id(job.after)}, "LogicalOperator": "EQUALS"}
        conditions = [{**condition, "State": state} for state in ("SUCCEEDED", *_BADLY)]
        properties |= {"Type": "CONDITIONAL", "Predicate": {"Logical": "ANY", "Conditions": conditions}}
    return resource("AWS::Glue::Trigger", **properties)


def _rules(prefix: str, topic: str) -> dict[str, Any]:
    """A job that failed is named in a mail; an archive that was made starts `expire`, for what was kept until then.
    That a rule was met is a metric, which an alarm looks at."""
    watched = [f"{prefix}-{job.name}" for job in _JOBS if job.is_watched]
    paths = {name: f"$.detail.{name}" for name in ("jobName", "state", "jobRunId")}
    log = f"aws logs tail {_logs(prefix)}/output --log-stream-name-prefix <jobRunId>"
    text = f'"The job <jobName> ended as <state>. What it printed: {log}"'
    mail = {"Arn": {"Ref": topic}, "InputTransformer": {"InputPathsMap": paths, "InputTemplate": text}}
    expire = {"Arn": {"Fn::GetAtt": [function_id("expire"), "Arn"]}}
    source = {"SourceArn": {"Fn::GetAtt": ["ArchivedRule", "Arn"]}}
    return {
        "JobFailedRule": _rule(prefix, names.FAILED, watched, _BADLY, mail),
        "ArchivedRule": _rule(prefix, names.ARCHIVED, [f"{prefix}-archive"], ("SUCCEEDED",), expire),
        "ExpireAfterArchive": permission("expire", "events.amazonaws.com", **source),
    }


def _rule(
    prefix: str, outcome: str, jobs: list[str], states: tuple[str, ...], target: dict[str, Any]
) -> dict[str, Any]:
    pattern = {
        "source": ["aws.glue"],
        "detail-type": ["Glue Job State Change"],
        "detail": {"jobName": jobs, "state": list(states)},
    }
    targets = [{"Id": "target", **target}]
    name = names.end_rule(prefix, outcome)
    return resource("AWS::Events::Rule", Name=name, Targets=targets, EventPattern=pattern)


def _role(prefix: str, artifacts: str, job: Job) -> dict[str, Any]:
    own = f"arn:${{AWS::Partition}}:s3:::{bucket.name(prefix)}"
    artifact_folder = f"arn:${{AWS::Partition}}:s3:::{artifacts}/{prefix}"
    groups = [names.arn("logs", f"log-group:{_logs(prefix)}/{kind}") for kind in _LOGS]
    streams = [f"{group}:log-stream:*" for group in groups]
    # Which form is asked, depends on the call.
    both_forms = [form for group in groups for form in (group, f"{group}:*")]
    statements = [
        allow(("s3:ListBucket",), own),
        allow(("s3:GetObject",), f"{artifact_folder}/*"),
        *(allow(actions, f"{own}/{folder}/*") for folder, actions in job.folders),
        allow(("logs:CreateLogGroup",), *both_forms),  # Glue asks for it first, though they are there
        allow(("logs:CreateLogStream", "logs:PutLogEvents"), *streams),
    ]
    if job.tables:
        tables = [names.arn("dynamodb", f"table/{names.table(prefix, name)}") for name in job.tables]
        control = names.arn("dynamodb", f"table/{names.table(prefix, 'control')}")
        topics = {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["topics", "retired", "deleted"]}}
        statements.append(allow(("dynamodb:Query",), *tables))
        statements.append(allow(("dynamodb:Query",), control) | {"Condition": topics})
    if job.asks:
        token = names.arn("secretsmanager", f"secret:{secret(prefix)}-??????")
        statements.append(allow(("secretsmanager:GetSecretValue",), token))
    return role("glue", statements)


def _catalog(prefix: str) -> dict[str, Any]:
    catalog = {"CatalogId": {"Ref": "AWS::AccountId"}}
    name = prefix.replace("-", "_")
    place = {**catalog, "DatabaseName": {"Ref": "ArchiveDatabase"}}
    inputs = {table: _table(prefix, table) for table in COLUMNS} | {"messages_text": _text_view(name)}
    return {
        "ArchiveDatabase": resource("AWS::Glue::Database", **catalog, DatabaseInput={"Name": name}),
        **{
            f"{names.logical(table)}ArchiveTable": resource(
                "AWS::Glue::Table", **place, TableInput={"Name": table, **each}
            )
            for table, each in inputs.items()
        },
    }


def _columns(columns: Mapping[str, tuple[str, str]]) -> list[dict[str, str]]:
    return [{"Name": name, "Type": kind, "Comment": text} for name, (kind, text) in columns.items()]


def _table(prefix: str, name: str) -> dict[str, Any]:
    parquet = "org.apache.hadoop.hive.ql.io.parquet"
    return {
        "TableType": "EXTERNAL_TABLE",
        "PartitionKeys": _columns(_DAY),
        "Parameters": {
            "classification": "parquet",
            # Athena knows the days by itself.
            "projection.enabled": "true",
            "projection.day.type": "date",
            "projection.day.format": "yyyy-MM-dd",
            "projection.day.range": "2026-01-01,NOW",
        },
        "StorageDescriptor": {
            "Columns": _columns(COLUMNS[name]),
            # A day's folder holds the list of its files, which the archive's job puts in one step (docs/adr/0043).
            "Location": {"Fn::Sub": f"s3://{bucket.name(prefix)}/archive/catalog/{name}/"},
            "InputFormat": "org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat",
            "OutputFormat": "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
            "SerdeInfo": {"SerializationLibrary": f"{parquet}.serde.ParquetHiveSerDe"},
        },
    }


def _text_view(database: str) -> dict[str, Any]:
    """The messages with their bodies as text, in the form in which Athena keeps its views."""
    text = "the body as text; null if it is no UTF-8"
    columns = {**COLUMNS[MESSAGES], "body_text": ("string", text), **_DAY}
    chosen = [f"{BODY_TEXT} as body_text" if name == "body_text" else f'"{name}"' for name in columns]
    view = {
        "originalSql": f"select {', '.join(chosen)} from {MESSAGES}",
        "catalog": "awsdatacatalog",
        "schema": database,
        "columns": [{"name": name, "type": _TRINO.get(kind, kind)} for name, (kind, _) in columns.items()],
    }
    encoded = base64.b64encode(json.dumps(view).encode()).decode()
    return {
        "TableType": "VIRTUAL_VIEW",
        "Parameters": {"presto_view": "true", "comment": "Presto View"},
        "ViewOriginalText": f"/* Presto View: {encoded} */",
        "ViewExpandedText": "/* Presto View */",
        "StorageDescriptor": {"Columns": _columns(columns), "SerdeInfo": {}},
    }
