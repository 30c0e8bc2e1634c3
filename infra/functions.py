"""What each Lambda function has beside its code: name, role, settings, log, and what starts it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from . import bucket, keys, names, roles, tables, wakes
from .resources import resource

FAILURES = "FailureQueue"
_CHALICE = {names.API: "APIHandler"}
_SYNCHRONOUS = (*names.ANSWERING, *roles.STREAMS)
RECURSIVE = ("deliver", names.SLOW, "mover", "check", "checkpoint", "expire")
_TIMED_PAUSE_SECONDS = 60  # an event that is older was overtaken by the next run's
_WAKES_SECONDS = 300  # older than that, the sweep has found what a lost wake-up was about

_ROUTE_FILTER = {"eventName": ["INSERT"], "dynamodb": {"Keys": {"o": {"N": [{"anything-but": ["-1"]}]}}}}
_JOURNAL_FILTER = {"eventName": ["INSERT", "MODIFY"]}


def functions(
    prefix: str, function_names: Iterable[str], settings: dict[str, Any], report_lines: bool = False
) -> dict[str, Any]:
    """Additions to Chalice's functions. `function_names` are those in app.py, `settings` the environment variables of
    all functions besides names. `report_lines`: Lambda logs a line of its own for each run."""
    additions = {}
    for name in function_names:
        properties: dict[str, Any] = {
            "FunctionName": names.function(prefix, name),
            "Role": {"Fn::GetAtt": [roles.role_id(names.twin(name)), "Arn"]},
            "LoggingConfig": _logging_config(names.twin(name), report_lines),
            "Environment": {"Variables": {**_environment(prefix), **settings}},
        }
        if name not in _SYNCHRONOUS:
            properties["EventInvokeConfig"] = _invoke_config(name)
        if name in RECURSIVE:
            # They start one another while there is work; Lambda would take that for a loop and stop it after 16 calls.
            properties["RecursiveLoop"] = "Allow"
        if name == "mover":  # its queue starts it, too: the alarm looks at the rule
            properties["Events"] = {"MoverEvent": {"Properties": {"Name": names.mover_rule(prefix)}}}
        additions[function_id(name)] = {"Properties": properties}
    return additions


def function_id(name: str) -> str:
    """Chalice's logical id of a function."""
    return _CHALICE.get(name) or names.logical(name)


def logs(prefix: str, function_names: Iterable[str], days: int) -> dict[str, Any]:
    """A log group for each function, which keeps lines for so many days."""
    return {
        _log_id(name): log_group(f"/aws/lambda/{names.function(prefix, name)}", days)
        for name in function_names
        if names.twin(name) == name
    }


_QUERIES = {
    "dead letters": 'filter message = "dead letter" | stats sum(count) as letters by topic, group | sort letters desc',
    "failed attempts": 'filter message = "attempt failed" | stats count(*) as attempts by topic, group, consumer,'
    " detail | sort attempts desc",
    "errors": 'filter level in ["ERROR", "CRITICAL"] or @message like /Traceback|Task timed out/'
    " | fields @timestamp, @log, message, exception | sort @timestamp desc | limit 100",
    "run times (needs report_lines)": 'filter type = "platform.report" | stats count(*) as runs,'
    " pct(record.metrics.durationMs, 50) as p50_ms, pct(record.metrics.durationMs, 99) as p99_ms,"
    " max(record.metrics.maxMemoryUsedMB) as memory_mb, max(record.metrics.initDurationMs) as init_ms,"
    " count(record.metrics.initDurationMs) as cold_starts by @log",
}
"""What Logs Insights is asked most, by name."""


def queries(prefix: str, function_names: Iterable[str]) -> dict[str, Any]:
    """Saved queries of Logs Insights over the functions' logs."""
    groups = [{"Ref": _log_id(name)} for name in function_names]
    return {
        f"{names.logical(re.sub('[^a-z]+', '-', name))}Query": resource(
            "AWS::Logs::QueryDefinition", Name=f"{prefix}/{name}", LogGroupNames=groups, QueryString=query
        )
        for name, query in _QUERIES.items()
    }


def log_group(name: str, days: int) -> dict[str, Any]:
    """A log group of the stack's own, which goes with it."""
    return resource("AWS::Logs::LogGroup", LogGroupName=name, RetentionInDays=days)


def failure_queue(prefix: str) -> dict[str, Any]:
    """Where invocations and stream batches go that were given up, for a person to look at."""
    return {FAILURES: wakes.queue(names.failures(prefix), 14 * 86_400)}


def addresses(function_names: Iterable[str]) -> dict[str, Any]:
    """The function URLs, which are public: the functions' code checks who calls."""
    resources: dict[str, Any] = {}
    for name in names.URLS:
        if name in function_names:
            logical, function = function_id(name), {"Ref": function_id(name)}
            by_url = {"Action": "lambda:InvokeFunctionUrl", "FunctionUrlAuthType": "NONE"}
            resources |= {
                address_id(name): resource("AWS::Lambda::Url", TargetFunctionArn=function, AuthType="NONE"),
                f"{logical}AddressPermission": permission(name, "*", **by_url),
                # Both are needed.
                f"{logical}InvokePermission": permission(name, "*", InvokedViaFunctionUrl=True),
            }
    return resources


def address_id(name: str) -> str:
    """The logical id of a function's URL."""
    return f"{function_id(name)}Address"


def receive_permission(api: str = "RestAPI") -> dict[str, Any]:
    """API Gateway may call `receive`, for its own call only."""
    source = names.arn("execute-api", f"${{{api}}}/*/POST/v1/topics/*/groups/*/receive")
    return permission(names.RECEIVE, "apigateway.amazonaws.com", SourceArn={"Fn::Sub": source})


def permission(name: str, principal: str, **properties: Any) -> dict[str, Any]:
    """Who may start a function."""
    own = {"FunctionName": {"Ref": function_id(name)}, "Principal": principal}
    return resource("AWS::Lambda::Permission", **own, **{"Action": "lambda:InvokeFunction", **properties})


def stream_mappings(function_names: Iterable[str]) -> dict[str, Any]:
    """The streams that wake `route` and feed `journal`."""
    mappings: dict[str, Any] = {}
    streams = tables.streams()
    if "route" in function_names:
        mappings["RouteFromLog"] = _mapping("route", streams["log"], _ROUTE_FILTER, _WAKING)
    if "journal" in function_names:
        for noun in roles.STREAMS["journal"]:
            logical = f"JournalFrom{names.logical(noun)}"
            mappings[logical] = _mapping("journal", streams[noun], _JOURNAL_FILTER, _KEEPING)
    return mappings


_WAKING: dict[str, Any] = {
    # A wake-up is only that: what came before the stack does not need one, and an old one is no loss.
    "StartingPosition": "LATEST",
    "BatchSize": 100,
    "ParallelizationFactor": 4,
    "MaximumRetryAttempts": 3,
    "MaximumRecordAgeInSeconds": _WAKES_SECONDS,
}
_KEEPING: dict[str, Any] = {
    # Every record counts; few large objects are cheaper than many small ones.
    "StartingPosition": "TRIM_HORIZON",
    "BatchSize": 1000,
    "MaximumBatchingWindowInSeconds": 30,
    "ParallelizationFactor": 2,
    # S3 may be away for hours; but an unreadable record must not hold up the rest until it leaves the stream (a day).
    "MaximumRetryAttempts": 10_000,
    "MaximumRecordAgeInSeconds": 6 * 3600,
}


def _mapping(name: str, stream: Any, pattern: dict[str, Any], manner: dict[str, Any]) -> dict[str, Any]:
    return resource(
        "AWS::Lambda::EventSourceMapping",
        FunctionName={"Ref": function_id(name)},
        EventSourceArn=stream,
        FilterCriteria={"Filters": [{"Pattern": json.dumps(pattern)}]},
        BisectBatchOnFunctionError=True,
        FunctionResponseTypes=["ReportBatchItemFailures"],
        DestinationConfig={"OnFailure": {"Destination": {"Fn::GetAtt": [FAILURES, "Arn"]}}},
        **manner,
    )


def _invoke_config(name: str) -> dict[str, Any]:
    """When an asynchronous invocation is tried no more: those on schedule are made up for by the next."""
    is_timed = name in names.TIMED
    return {
        "MaximumRetryAttempts": 0 if is_timed else 2,
        "MaximumEventAgeInSeconds": _TIMED_PAUSE_SECONDS if is_timed else _WAKES_SECONDS,
        "DestinationConfig": {"OnFailure": {"Type": "SQS", "Destination": {"Fn::GetAtt": [FAILURES, "Arn"]}}},
    }


def _environment(prefix: str) -> dict[str, Any]:
    return {
        "HEADRACE_PREFIX": prefix,
        "HEADRACE_BUCKET": {"Fn::Sub": bucket.name(prefix)},
        "HEADRACE_ACCOUNT": {"Ref": "AWS::AccountId"},
        "HEADRACE_KMS_KEY": {"Fn::GetAtt": [keys.KEY, "Arn"]},
        "HEADRACE_DELIVER": names.function(prefix, "deliver"),
        "HEADRACE_WAKES": {"Ref": wakes.QUEUE},
        "HEADRACE_CHECK": names.function(prefix, "check"),
        "HEADRACE_CHECKPOINT": names.function(prefix, "checkpoint"),
        "HEADRACE_EXPIRE": names.function(prefix, "expire"),
        "POWERTOOLS_SERVICE_NAME": "headrace",
    }


def _logging_config(name: str, report_lines: bool) -> dict[str, Any]:
    """Lines of JSON. Of Lambda's own only those about trouble: the rest are three a call, 0.15 USD a million calls."""
    level = "INFO" if report_lines else "WARN"
    return {"LogGroup": {"Ref": _log_id(name)}, "LogFormat": "JSON", "SystemLogLevel": level}


def _log_id(name: str) -> str:
    return f"{names.logical(name)}Log"
