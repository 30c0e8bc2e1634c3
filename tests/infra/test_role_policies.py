"""Roles name actions and resources; a star stands only where AWS or a function makes the name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from infra import names
from infra.roles import STREAMS, role_id, roles

STREAM_ARNS = {noun: {"Fn::GetAtt": [f"{noun}Table", "StreamArn"]} for noun in ("log", "traces")}
KNOW_NO_RESOURCE = {"xray:PutTraceSegments", "xray:PutTelemetryRecords"}
MADE_BY_AWS = re.compile(r":log-group:/aws/lambda/[^*]+:log-stream:\*")
MADE_BY_US = re.compile(r":s3:::[^*/]+/[a-z]+/\*")


def statements(resources: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every statement of every role of a template, with the role's logical id."""
    for name, resource in resources.items():
        if resource["Type"] == "AWS::IAM::Role":
            for policy in resource["Properties"]["Policies"]:
                for statement in policy["PolicyDocument"]["Statement"]:
                    yield name, statement


def needless_stars(resources: Mapping[str, Any]) -> list[str]:
    """What roles of a template allow by a star where a name could stand."""
    found = []
    for role, statement in statements(resources):
        actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        found += [f"{role}: {action}" for action in actions if "*" in action]
        told = statement["Resource"]
        for resource in told if isinstance(told, list) else [told]:
            text = resource if isinstance(resource, str) else str(resource.get("Fn::Sub", ""))
            bare = MADE_BY_US.sub("", MADE_BY_AWS.sub("", text))
            if "*" in bare and not (bare == "*" and set(actions) <= KNOW_NO_RESOURCE):
                found.append(f"{role}: {text}")
    return found


def test_no_star_stands_where_a_name_could() -> None:
    made = roles("headrace-dev", "${Bucket}", STREAM_ARNS)
    assert needless_stars(made) == []
    assert made.keys() == {role_id(name) for name in names.FUNCTIONS}


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("dynamodb:*", "arn:aws:dynamodb:us-east-1:0:table/headrace-log"),
        ("dynamodb:Query", "*"),
        ("dynamodb:Query", "arn:aws:dynamodb:us-east-1:0:table/*"),
        ("s3:GetObject", "arn:aws:s3:::*/bodies/*"),
        ("s3:GetObject", "arn:aws:s3:::bucket/*"),
        ("lambda:InvokeFunction", "arn:aws:lambda:us-east-1:0:function:headrace-*"),
        ("logs:PutLogEvents", "arn:aws:logs:us-east-1:0:log-group:*"),
    ],
)
def test_a_needless_star_is_found(action: str, resource: str) -> None:
    made = roles("headrace-dev", "bucket", {})
    document = made["RouteRole"]["Properties"]["Policies"][0]["PolicyDocument"]
    document["Statement"].append({"Effect": "Allow", "Action": [action], "Resource": [{"Fn::Sub": resource}]})
    assert len(needless_stars(made)) == 1


def test_two_stages_have_nothing_in_common() -> None:
    def resources(prefix: str) -> set[str]:
        made = roles(prefix, f"{prefix}-bucket", {})
        told = [r for _, s in statements(made) if isinstance(s["Resource"], list) for r in s["Resource"]]
        return {resource["Fn::Sub"] for resource in told}

    assert not resources("headrace-dev") & resources("headrace-prod")


def test_only_those_that_streams_wake_read_streams() -> None:
    made = roles("headrace-dev", "bucket", STREAM_ARNS)
    readers = {role for role, s in statements(made) if "dynamodb:GetRecords" in s["Action"]}
    assert readers == {role_id(name) for name in STREAMS}
