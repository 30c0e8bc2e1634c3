"""`python -m infra.cost`: what a stage has cost in the last days, from its metrics at list prices."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from . import names
from .__main__ import add_options, given_options
from .alarms import alarm_names
from .cli import Aws
from .stages import CONFIG, read
from .template import Stack, StackError

PRICES: dict[str, float] = {
    "rest": 3.50,
    "start": 0.20,
    "second": 13.33,
    "write": 0.625,
    "read": 0.125,
    "kept": 0.45,
    "put": 5.00,
    "object": 0.023,
    "log": 0.50,
    "out": 0.09,
    "queue": 0.40,
    "alarm": 0.10,
    "board": 3.00,
    "metric": 0.30,
    "dpu": 0.44,
    "key": 1.00,
    "crypt": 3.00,
    "secret": 0.40,
    "trace": 5.00,
}
"""As docs/cost.md has them, in USD: for a million, or for a GB, or (from `alarm` on) for a month or an hour each."""

_M = 1e6
_MONTH_DAYS = 30.4
_INDEX = "by-state"


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that costs: how much of it there was, and what that is at list prices."""

    what: str
    amount: float
    unit: str
    usd: float


@dataclass(frozen=True, slots=True)
class _Metric:
    """A sum of CloudWatch, and the line that it goes to. `factor`: of what is billed in one of it."""

    line: str
    unit: str
    usd: float
    namespace: str
    name: str
    dimensions: Mapping[str, str]
    factor: float = 1.0
    statistic: str = "Sum"


def metrics(stack: Stack, bucket: str, gigabytes: Mapping[str, float]) -> Iterator[_Metric]:
    """What a stage's metrics say of its bill. `gigabytes`: the memory of each function, by its name in app.py."""
    p, prefix = PRICES, stack.prefix
    apis = [prefix, *([names.iam_api(prefix)] if stack.iam else [])]
    for api in apis:
        yield _Metric("API Gateway, calls", "", p["rest"] / _M, "AWS/ApiGateway", "Count", {"ApiName": api})
    for name in stack.functions:
        of = {"FunctionName": names.function(prefix, name)}
        yield _Metric("Lambda, starts", "", p["start"] / _M, "AWS/Lambda", "Invocations", of)
        gb = gigabytes[name] / 1000  # the metric is in ms
        line = f"Lambda, {name}"
        yield _Metric(line, "GB-s", p["second"] / _M, "AWS/Lambda", "Duration", of, gb)
        logs = {"LogGroupName": f"/aws/lambda/{names.function(prefix, name)}"}
        yield _Metric("logs", "GB", p["log"], "AWS/Logs", "IncomingBytes", logs, 1e-9)
    for noun in names.TABLES:
        table = {"TableName": names.table(prefix, noun)}
        indexes = [{**table, "GlobalSecondaryIndexName": _INDEX}] if noun == "transactions" else []
        for of in (table, *indexes):
            for kind, price in (("Write", p["write"]), ("Read", p["read"])):
                line, name = f"DynamoDB, {kind.lower()} units", f"Consumed{kind}CapacityUnits"
                yield _Metric(line, "", price / _M, "AWS/DynamoDB", name, of)
    for queue in (names.wakes(prefix), names.failures(prefix)):
        for name in ("NumberOfMessagesSent", "NumberOfMessagesDeleted", "NumberOfEmptyReceives"):
            yield _Metric("SQS, requests", "", p["queue"] / _M, "AWS/SQS", name, {"QueueName": queue})
    of = {"BucketName": bucket, "StorageType": "StandardStorage"}
    a_day = p["object"] / _MONTH_DAYS
    yield _Metric("S3, GB-days", "", a_day, "AWS/S3", "BucketSizeBytes", of, 1e-9, "Average")


def lines(ask: Callable[..., Any], wanted: Sequence[_Metric], days: int, now: datetime) -> list[Line]:
    """What the metrics sum up to over so many days before now, a line for each kind. `ask` is the AWS CLI."""
    request = {
        "MetricDataQueries": [_query(f"m{n}", metric) for n, metric in enumerate(wanted)],
        "StartTime": (now - timedelta(days=days)).isoformat(),
        "EndTime": now.isoformat(),
    }
    sums: dict[str, Line] = {}
    answer = ask("cloudwatch", "get-metric-data", "--cli-input-json", json.dumps(request))
    for result in answer["MetricDataResults"]:
        metric = wanted[int(result["Id"][1:])]
        amount = sum(result["Values"]) * metric.factor
        before = sums.get(metric.line, Line(metric.line, 0.0, metric.unit, 0.0))
        usd = before.usd + amount * metric.usd
        sums[metric.line] = Line(metric.line, before.amount + amount, metric.unit, usd)
    return list(sums.values())


def _query(id: str, metric: _Metric) -> dict[str, Any]:
    dimensions = [{"Name": name, "Value": value} for name, value in metric.dimensions.items()]
    of = {"Namespace": metric.namespace, "MetricName": metric.name, "Dimensions": dimensions}
    return {"Id": id, "MetricStat": {"Metric": of, "Period": 86_400, "Stat": metric.statistic}}


def standing(stack: Stack, days: int) -> list[Line]:
    """What costs by the month alone: alarms, the dashboard and the key. An account's free ones are not taken off."""
    count, months = len(alarm_names(stack.prefix, stack.functions, **stack.parts)), days / _MONTH_DAYS
    rows = [("alarms", count, "alarm"), ("dashboard", 1, "board"), ("KMS key", 1, "key")]
    return [Line(what, number, "", number * PRICES[price] * months) for what, number, price in rows]


def memory(stage: str, config: Path = CONFIG) -> dict[str, float]:
    """The GB of each function, as the stage's configuration has them."""
    settings = json.loads(config.read_text())
    of_stage = settings["stages"].get(stage, {})
    gigabytes = {}
    for name, of_function in settings["lambda_functions"].items():
        own = of_stage.get("lambda_functions", {}).get(name, {})
        places = (own, of_stage, of_function, settings)
        megabytes = next(each["lambda_memory_size"] for each in places if "lambda_memory_size" in each)
        gigabytes[names.API if name == "api_handler" else name] = megabytes / 1024
    return gigabytes


def table(found: Sequence[Line], days: int) -> str:
    """The lines and their sum, for a terminal."""
    head = f"{'':<32}{'amount':>18}{'':<6}{'USD':>12}"
    rows = [f"{line.what:<32}{line.amount:>18,.1f} {line.unit:<5}{line.usd:>12.2f}" for line in found]
    usd = sum(line.usd for line in found)
    per_month = f"{usd * _MONTH_DAYS / days:.2f} a month at this pace"
    return "\n".join([head, *rows, f"{f'sum of {days} days':<56}{usd:>12.2f}", per_month])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m infra.cost", description=__doc__)
    add_options(parser)
    parser.add_argument("--days", type=int, default=30, help="of so many days up to now (30)")
    options = parser.parse_args(arguments)
    try:
        stack, aws = read(options.stage, given_options(options)), Aws()
        bucket = f"{stack.prefix}-{aws.account}-{aws.region}"
        wanted = list(metrics(stack, bucket, memory(options.stage)))
        found = lines(aws.ask, wanted, options.days, datetime.now(UTC))
    except StackError as error:
        print(error, file=sys.stderr)
        return 2
    print(
        f"{stack.prefix}, list prices of us-east-1; a bill also has storage of tables, egress, KMS, Glue and X-Ray."
    )
    print(table([*found, *standing(stack, options.days)], options.days))
    return 0


if __name__ == "__main__":
    sys.exit(main())
