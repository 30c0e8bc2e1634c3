"""The stage's dashboard, from the top: is it healthy, flow, delays, shards, subscribers, platform, archive, cost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from . import names
from .alarms import NAMESPACE, alarm_names

Line = list[Any]
_WIDTH = 24
_TEXT_HEIGHT, _HEIGHT = 2, 6
_REGION = "${AWS::Region}"
_MINUTE = 60
_DAY = 86_400
_DAYS = "-P14D"  # of what S3 counts once a day


def resource(
    prefix: str,
    bucket: str,
    functions: Iterable[str] = names.ALL,
    archives: bool = True,
    iam: bool = False,
    few: bool = False,
) -> dict[str, Any]:
    """The dashboard as a CloudFormation resource; the arguments as for `dashboard`."""
    body = json.dumps(dashboard(prefix, bucket, functions, archives, iam, few))
    properties = {"DashboardName": prefix, "DashboardBody": {"Fn::Sub": body}}
    return {"Dashboard": {"Type": "AWS::CloudWatch::Dashboard", "Properties": properties}}


def dashboard(
    prefix: str,
    bucket: str,
    functions: Iterable[str] = names.ALL,
    archives: bool = True,
    iam: bool = False,
    few: bool = False,
) -> dict[str, Any]:
    """The dashboard's body, whose texts are for Fn::Sub. `bucket` is the bucket's name, or such a text that makes it;
    `functions` are those of app.py; `archives`: the archive is made each night; `iam`: there is an API for callers who
    sign with SigV4, too; `few`: it has few alarms."""
    function_names = list(functions)
    apis = {prefix: "", **({names.iam_api(prefix): " (signed)"} if iam else {})}
    alarms = alarm_names(prefix, function_names, archives, iam, few)
    stage = _Stage(prefix, bucket, function_names, alarms, apis)
    widgets: list[dict[str, Any]] = []
    y = 0
    for title, advice, row in stage.rows():
        text = {"type": "text", "properties": {"markdown": f"## {title}\n{advice}"}}
        widgets.append({**text, "x": 0, "y": y, "width": _WIDTH, "height": _TEXT_HEIGHT})
        y += _TEXT_HEIGHT
        width = _WIDTH // len(row)
        for place, widget in enumerate(row):
            widgets.append({**widget, "x": place * width, "y": y, "width": width, "height": _HEIGHT})
        y += _HEIGHT
    return {"widgets": widgets}


Row = tuple[str, str, Sequence[dict[str, Any]]]


class _Stage:
    """The rows of one stage. `apis`: what the lines of an API have behind their names, by its name."""

    def __init__(
        self, prefix: str, bucket: str, functions: list[str], alarms: list[str], apis: dict[str, str]
    ) -> None:
        self._prefix, self._bucket, self._functions = prefix, bucket, functions
        self._named, self._apis = alarms, apis

    def rows(self) -> list[Row]:
        return [
            self._health(),
            self._flow(),
            self._delays(),
            self._groups(),
            self._shards(),
            self._subscribers(),
            self._platform(),
            self._archive(),
            self._cost(),
        ]

    def _health(self) -> Row:
        queue = {"QueueName": names.failures(self._prefix)}
        numbers = [
            self._own_metric("Attention", "Maximum"),
            self._own_metric("BacklogOverAlarm", "Maximum"),
            self._own_metric("OldestAge", "Maximum"),
            self._own_metric("Dead", "Sum"),
            self._own_metric("Undecodable", "Sum"),
            self._own_metric("Unavailable", "Sum"),
            _aws("AWS/SQS", "ApproximateNumberOfMessagesVisible", queue, "Maximum", "given up"),
        ]
        advice = "Every alarm is green and these are zero: nothing is to be done."
        return "Is it healthy", advice, [self._alarms(), _numbers("Now", numbers)]

    def _alarms(self) -> dict[str, Any]:
        arns = [names.arn("cloudwatch", f"alarm:{name}") for name in self._named]
        return {"type": "alarm", "properties": {"title": "Alarms", "alarms": arns}}

    def _flow(self) -> Row:
        flow = [self._own_metric(name, "Sum") for name in ("Accepted", "Delivered", "Failed", "Dead")]
        calls = [
            line for name in ("Count", "4XXError", "5XXError") for line in self._calls(name, "Sum", name)
        ]
        latency = [line for s in ("p50", "p99") for line in self._calls("Latency", s, s)]
        row = [
            _graph("Messages a minute", flow),
            _graph(
                "Backlog of watched topics",
                [self._search("Backlog", "Maximum", "topic"), self._own_metric("Backlog", "Maximum")],
            ),
            _graph("HTTP calls a minute", calls),
            _graph("HTTP latency, ms", latency),
        ]
        return "Flow", "Accepted and Delivered go together, times the number of groups.", row

    def _delays(self) -> Row:
        row = [
            _graph("Lateness of what was due, ms", [self._own_metric("DelayLateness", "Maximum")]),
            _graph("Moved when due", [self._own_metric("Moved", "Sum")]),
            _graph(
                "Oldest message, s",
                [self._search("OldestAge", "Maximum", "topic"), self._own_metric("OldestAge", "Maximum")],
            ),
            _graph("Mover at work, ms", [self._function_metric("mover", "Duration", "Maximum")]),
        ]
        return "Delays", "Late by seconds while the mover works: more is due than it can move.", row

    def _groups(self) -> Row:
        row = [
            _graph("Backlog", [self._search("Backlog", "Maximum", "topic,group")]),
            _graph("Oldest message, s", [self._search("OldestAge", "Maximum", "topic,group")]),
            _graph("Failed attempts a minute", [self._search("Failed", "Sum", "topic,group")]),
            _graph("Dead letters a minute", [self._search("Dead", "Sum", "topic,group")]),
        ]
        return "Groups with metrics of their own", "Those whose setting `metrics` is true.", row

    def _shards(self) -> Row:
        races = [self._table(noun, "ConditionalCheckFailedRequests", "Sum") for noun in ("log", "cursors")]
        jobs = [
            self._own_metric(name, "Sum")
            for name in ("Forgotten", "Reassigned", "Checkpoints", "Unfinished", "Troubles")
        ]
        oddities = [self._own_metric(name, "Sum") for name in ("LogBehind", "Findings")]
        row = [
            _graph("Stream behind, ms", [self._function_metric("route", "IteratorAge", "Maximum")]),
            _graph("Lost races", races),
            _graph("Jobs", jobs),
            _graph("Rounds behind, ms", [self._own_metric("RoundAge", "Maximum")]),
            _graph("Does not fit together", oddities),
        ]
        advice = "Forgotten: only the sweep found it. Lost races beside Accepted: more shards would help."
        return "Shards", advice, row

    def _subscribers(self) -> Row:
        deliveries, failures = (
            self._own_metric("Delivered", "Sum", id="done"),
            self._own_metric("Failed", "Sum", id="failed"),
        )
        for line in (deliveries, failures):
            line[-1]["visible"] = False
        all_attempts = f"({_filled('done')} + {_filled('failed')})"
        expression = f"100 * {_filled('failed')} / {all_attempts}"
        share = [{"expression": expression, "label": "failed, %", "id": "share"}]
        at_work = self._function_metric("deliver", "ConcurrentExecutions", "Maximum")
        row = [
            _graph("Attempts that failed, %", [deliveries, failures, share]),
            _graph(
                "Came too late; producers asked",
                [self._own_metric("Stale", "Sum"), self._own_metric("Checks", "Sum")],
            ),
            _graph("Deliveries beside one another", [at_work]),
        ]
        return "Subscribers", "Which one fails is in the log of deliver: `attempt failed`.", row

    def _platform(self) -> Row:
        def all_of(metric: str, statistic: str) -> list[Line]:
            return [self._function_metric(name, metric, statistic) for name in self._functions]

        throttles = [
            self._table(noun, metric, "Sum")
            for noun in ("log", "cursors", "timers")
            for metric in ("WriteThrottleEvents", "ReadThrottleEvents")
        ]
        row = [
            _graph("Errors", all_of("Errors", "Sum")),
            _graph("Throttles", all_of("Throttles", "Sum")),
            _graph("Duration p99, ms", all_of("Duration", "p99")),
            _graph("Tables throttled", throttles),
        ]
        return "Platform", "Errors are in the functions' logs: `unexpected`, or a traceback.", row

    def _archive(self) -> Row:
        count = {"BucketName": self._bucket, "StorageType": "AllStorageTypes"}
        lines = [
            _aws(
                "AWS/Events",
                "TriggeredRules",
                {"RuleName": names.end_rule(self._prefix, outcome)},
                "Sum",
                outcome,
            )
            for outcome in (names.ARCHIVED, names.FAILED)
        ]
        row = [
            _graph("Jobs", lines),
            _graph("Near their end, not archived", [self._own_metric("Kept", "Maximum")]),
            _graph("Bucket, bytes", [self._bytes_by_class()], start=_DAYS),
            _graph(
                "Objects", [_aws("AWS/S3", "NumberOfObjects", count, "Average", period=_DAY)], start=_DAYS
            ),
        ]
        if "journal" in self._functions:
            row.insert(
                0, _graph("Journal behind, ms", [self._function_metric("journal", "IteratorAge", "Maximum")])
            )
        advice = "The journal gives up what is six hours old. A job that failed says why"
        return "Archive", f"{advice} in `/aws-glue/{self._prefix}/output`.", row

    def _cost(self) -> Row:
        writes = [self._table(noun, "ConsumedWriteCapacityUnits", "Sum") for noun in names.TABLES]
        reads = [self._table(noun, "ConsumedReadCapacityUnits", "Sum") for noun in names.TABLES]
        logs = [
            _aws(
                "AWS/Logs",
                "IncomingBytes",
                {"LogGroupName": f"/aws/lambda/{function_name}"},
                "Sum",
                function_name,
            )
            for function_name in (
                names.function(self._prefix, name) for name in self._functions if names.twin(name) == name
            )
        ]
        work = [self._function_metric(name, "Duration", "Sum") for name in self._functions]
        row = [
            _graph("Write units a message", self._units_each(writes)),
            _graph("Write units", writes),
            _graph("Read units", reads),
            _graph("Functions at work, ms", work),
            _graph("Log, bytes", logs),
        ]
        return "Cost drivers", "Batches make all of it cheaper.", row

    def _units_each(self, writes: Sequence[Line]) -> list[Line]:
        """What AWS counts of all tables by what we count of messages."""
        hidden_lines = [
            [*line[:-1], {**line[-1], "id": f"w{n}", "visible": False}] for n, line in enumerate(writes)
        ]
        messages = self._own_metric("Accepted", "Sum", id="accepted")
        messages[-1]["visible"] = False
        total = " + ".join(_filled(f"w{n}") for n in range(len(writes)))
        expression = {"expression": f"({total}) / accepted", "label": "write units a message", "id": "each"}
        return [*hidden_lines, messages, [expression]]

    def _own_metric(self, metric: str, statistic: str, **options: Any) -> Line:
        metric_options = {"stat": statistic, "period": _MINUTE, "label": metric, **options}
        return [NAMESPACE, metric, "service", self._prefix, metric_options]

    def _search(self, metric: str, statistic: str, dimensions: str) -> Line:
        search = f'{{{NAMESPACE},service,{dimensions}}} service="{self._prefix}" MetricName="{metric}"'
        return [{"expression": f"SEARCH('{search}', '{statistic}', {_MINUTE})", "id": metric.lower()}]

    def _bytes_by_class(self) -> Line:
        search = f'{{AWS/S3,BucketName,StorageType}} BucketName="{self._bucket}" MetricName="BucketSizeBytes"'
        return [{"expression": f"SEARCH('{search}', 'Average', {_DAY})", "id": "bytes"}]

    def _function_metric(self, function: str, metric: str, statistic: str) -> Line:
        dimensions = {"FunctionName": names.function(self._prefix, function)}
        return _aws("AWS/Lambda", metric, dimensions, statistic, function)

    def _calls(self, metric: str, statistic: str, label: str) -> list[Line]:
        """A line for each API."""
        return [
            _aws("AWS/ApiGateway", metric, {"ApiName": name}, statistic, label + ending)
            for name, ending in self._apis.items()
        ]

    def _table(self, noun: str, metric: str, statistic: str) -> Line:
        dimensions = {"TableName": names.table(self._prefix, noun)}
        return _aws("AWS/DynamoDB", metric, dimensions, statistic, noun)


def _filled(line: str) -> str:
    """A line in an expression, with 0 where it has no point: else the whole expression has none there."""
    return f"FILL({line}, 0)"


def _aws(
    namespace: str,
    metric: str,
    dimensions: dict[str, str],
    statistic: str,
    label: str | None = None,
    period: int = _MINUTE,
) -> Line:
    metric_options = {"stat": statistic, "period": period, "label": label or metric}
    return [namespace, metric, *(text for each in dimensions.items() for text in each), metric_options]


def _graph(title: str, lines: Sequence[Line], start: str = "") -> dict[str, Any]:
    """A graph; `start` is how far back it goes, if not as far as the dashboard."""
    properties = {"title": title, "region": _REGION, "view": "timeSeries", "metrics": list(lines)}
    properties |= {"start": start} if start else {}
    return {"type": "metric", "properties": properties}


def _numbers(title: str, lines: Sequence[Line]) -> dict[str, Any]:
    properties = {"title": title, "region": _REGION, "view": "singleValue", "metrics": list(lines)}
    return {"type": "metric", "properties": properties}
