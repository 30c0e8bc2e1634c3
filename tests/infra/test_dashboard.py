"""The dashboard as CloudWatch wants it: widgets that fit, expressions that hold together, one text for Fn::Sub."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any

import boto3
import pytest
from moto import mock_aws

from infra import cost, names
from infra.alarms import alarm_names, alarms
from infra.dashboard import dashboard, resource
from infra.stages import read

COLUMNS = 24
PSEUDO = {"AWS::Region", "AWS::Partition", "AWS::AccountId"}
IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")


def widgets(prefix: str = "headrace-dev") -> list[dict[str, Any]]:
    page_widgets: list[dict[str, Any]] = dashboard(prefix, "bucket")["widgets"]
    return page_widgets


def test_widgets_do_not_overlap_or_leave_the_page() -> None:
    def cells(w: dict[str, Any]) -> set[tuple[int, int]]:
        return {
            (x, y) for x in range(w["x"], w["x"] + w["width"]) for y in range(w["y"], w["y"] + w["height"])
        }

    cells_by_widget = [cells(widget) for widget in widgets()]
    assert all(x < COLUMNS for each in cells_by_widget for x, _ in each)
    assert not any(
        first_cells & second_cells for first_cells, second_cells in combinations(cells_by_widget, 2)
    )


def test_an_expression_asks_only_for_lines_of_its_own_graph() -> None:
    expression_count = 0
    for widget in widgets():
        lines = widget["properties"].get("metrics", [])
        ids = {line[-1]["id"] for line in lines if "id" in line[-1]}
        for line in lines:
            expression = line[-1].get("expression", "")
            if expression and not expression.startswith("SEARCH"):
                expression_count += 1
                assert set(IDENTIFIER.findall(expression)) <= ids
        assert len(ids) == len([line for line in lines if "id" in line[-1]])
    assert expression_count == 2


_FILLED = re.compile(r"FILL\((\w+), 0\)")


def at_a_minute(title: str, points: dict[str, float]) -> float | None:
    """What the graph with this one expression shows for a minute with points of these lines: CloudWatch works nothing
    out where a line that is not filled has none."""
    [expression] = [e for line in graph(title)["metrics"] if (e := line[-1].get("expression"))]
    expression = _FILLED.sub(lambda match: str(points.get(match[1], 0)), expression)
    if not set(IDENTIFIER.findall(expression)) <= points.keys():
        return None
    result: float = eval(expression, {}, points)
    return result


@pytest.mark.parametrize(
    ("title", "points", "shown"),
    [
        ("Attempts that failed, %", {"done": 3, "failed": 1}, 25),
        ("Attempts that failed, %", {"failed": 4}, 100),
        ("Attempts that failed, %", {"done": 4}, 0),
        ("Write units a message", {"w0": 6, "accepted": 3}, 2),
        ("Write units a message", {"w0": 6, "w1": 3}, None),
    ],
)
def test_a_share_is_shown_for_a_minute_in_which_a_line_has_no_point(
    title: str, points: dict[str, float], shown: float | None
) -> None:
    assert at_a_minute(title, points) == shown


def test_write_units_a_message_are_those_of_all_tables() -> None:
    [graph] = [w for w in widgets() if w["properties"].get("title") == "Write units a message"]
    tables = {line[3] for line in graph["properties"]["metrics"] if line[0] == "AWS/DynamoDB"}
    assert tables == {names.table("headrace-dev", noun) for noun in names.TABLES}


def graph(title: str) -> dict[str, Any]:
    [properties] = [w["properties"] for w in widgets() if w["properties"].get("title") == title]
    return dict(properties)


def test_the_body_is_one_text_of_json_for_sub() -> None:
    body = resource("headrace-dev", "${AWS::AccountId}-bucket")["Dashboard"]["Properties"]["DashboardBody"]
    assert json.loads(body["Fn::Sub"])["widgets"]
    assert set(re.findall(r"\$\{([^}]*)\}", body["Fn::Sub"])) <= PSEUDO


@pytest.mark.parametrize("prefix", ["a", "headrace-prod"])
def test_every_alarm_tells_the_topic_and_is_on_the_dashboard(prefix: str) -> None:
    resources = alarms(prefix, topic="Warned")
    [widget] = [w for w in widgets(prefix) if w["type"] == "alarm"]
    alarm_names_shown = {arn.rpartition(":alarm:")[2] for arn in widget["properties"]["alarms"]}
    assert (
        {a["Properties"]["AlarmName"] for a in resources.values()}
        == alarm_names_shown
        == set(alarm_names(prefix))
    )
    for alarm in resources.values():
        assert alarm["Properties"]["AlarmActions"] == alarm["Properties"]["OKActions"] == [{"Ref": "Warned"}]
        assert alarm["Properties"]["AlarmDescription"]


def test_a_stages_cost_is_computed_from_its_own_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "local")
    sums = [
        ("ApiGateway", "Count", {"ApiName": "headrace-dev"}, 2_000_000),
        ("Lambda", "Invocations", {"FunctionName": "headrace-dev-api"}, 2_000_000),
        ("Lambda", "Duration", {"FunctionName": "headrace-dev-api"}, 10_000_000),
        ("Lambda", "Duration", {"FunctionName": "headrace-dev-sweep"}, 40_000_000),
        ("Lambda", "Duration", {"FunctionName": "headrace-prod-api"}, 10**12),
        ("DynamoDB", "ConsumedWriteCapacityUnits", {"TableName": "headrace-dev-log"}, 3_000_000),
        ("DynamoDB", "ConsumedReadCapacityUnits", {"TableName": "headrace-dev-cursors"}, 8_000_000),
        ("SQS", "NumberOfMessagesSent", {"QueueName": "headrace-dev-wakes"}, 500_000),
        ("Logs", "IncomingBytes", {"LogGroupName": "/aws/lambda/headrace-dev-api"}, 4 * 10**9),
    ]
    stack, gigabytes = read("dev"), cost.memory("dev")
    with mock_aws():
        cloudwatch, now = boto3.client("cloudwatch", "us-east-1"), datetime.now(UTC)
        for service, name, dimensions, total in sums:
            for days in (1, 3, 40):  # the last one is before the time that is asked for
                datum = {
                    "MetricName": name,
                    "Timestamp": now - timedelta(days=days),
                    "Value": total / 2,
                    "Dimensions": [{"Name": key, "Value": value} for key, value in dimensions.items()],
                }
                cloudwatch.put_metric_data(Namespace=f"AWS/{service}", MetricData=[datum])

        def ask(service: str, command: str, option: str, request: str) -> Any:
            assert (service, command, option) == ("cloudwatch", "get-metric-data", "--cli-input-json")
            return cloudwatch.get_metric_data(**json.loads(request))

        found = cost.lines(ask, list(cost.metrics(stack, "b", gigabytes)), 30, now)
    found += cost.standing(stack, 30)
    usd = {line.what: line.usd for line in found if line.usd}
    assert usd == {
        "API Gateway, calls": pytest.approx(7.0),
        "Lambda, starts": pytest.approx(0.4),
        "Lambda, api": pytest.approx(10_000 * gigabytes["api"] * 13.33e-6),
        "Lambda, sweep": pytest.approx(40_000 * 0.25 * 13.33e-6),
        "DynamoDB, write units": pytest.approx(1.875),
        "DynamoDB, read units": pytest.approx(1.0),
        "SQS, requests": pytest.approx(0.2),
        "logs": pytest.approx(2.0),
        "alarms": pytest.approx(0.6 * 30 / 30.4),
        "dashboard": pytest.approx(3 * 30 / 30.4),
        "KMS key": pytest.approx(30 / 30.4),
    }
    text = cost.table(found, 30)
    assert f"{sum(usd.values()):.2f}" in text
    assert f"{sum(usd.values()) * 30.4 / 30:.2f} a month at this pace" in text
