"""What the front door does with an event of API Gateway, before and after Chalice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app import app
from chalicelib.api.problems import EVERYWHERE, ONLY_HTTPS


def event(headers: dict[str, list[str]], **context: str) -> dict[str, Any]:
    """As API Gateway sends it: of a repeated header, the last in `headers`, all in `multiValueHeaders`."""
    return {
        "headers": {name: values[-1] for name, values in headers.items()},
        "multiValueHeaders": headers,
        "requestContext": {"httpMethod": "GET", "resourcePath": "/v1/ladders/{name}", **context},
        "pathParameters": {"name": "jmq"},
        "multiValueQueryStringParameters": None,
        "stageVariables": None,
        "body": None,
        "isBase64Encoded": False,
    }


@pytest.mark.parametrize(
    "name",
    ["Authorization", "authorization", "Content-Type", "Headrace-Key", "headrace-delay-seconds", "ce-id"],
)
def test_what_counts_once_is_refused_if_it_is_given_twice(name: str) -> None:
    answer = app(event({name: ["one", "two"]}), None)
    assert answer["statusCode"] == 400
    assert json.loads(answer["body"])["code"] == "BAD_REQUEST"
    assert answer["headers"].items() >= EVERYWHERE.items()


@pytest.mark.parametrize("path", ["/v1/ladders/{name}", "/nowhere"])
def test_on_aws_browsers_are_told_to_stay_with_https(path: str) -> None:
    on_aws = event({"Accept": ["*/*"]}, domainName="q.example.com")
    on_aws["requestContext"]["resourcePath"] = path
    assert app(on_aws, None)["headers"].items() >= ONLY_HTTPS.items()
    assert ONLY_HTTPS.keys().isdisjoint(app(event({"Accept": ["*/*"]}), None)["headers"])
