"""Callers who signed with SigV4: only where the stage wants them, never by what a caller says itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import app
from chalicelib import wiring
from chalicelib.domain.topic import Caller
from infra.package import describe
from infra.stages import read
from tests.support.day import Time, World, a_world
from tests.support.roles import Guard

ROLE = "arn:aws:sts::123456789012:assumed-role/orders/session-7"


@pytest.fixture(scope="module")
def world(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with a_world(Guard(), tmp_path_factory.mktemp("stage")) as world:
        yield world


def called(world: World, method: str, path: str, *, iam: bool, **context: Any) -> tuple[int, Any]:
    """What the API function answers to an event as API Gateway sends it."""
    deps = wiring.Deps(replace(world.adapters, iam=iam))
    event = {
        "httpMethod": method,
        "path": path,
        "headers": {"content-type": "application/json", "x-user-arn": ROLE},
        "multiValueQueryStringParameters": None,
        "pathParameters": {"topic": path.rpartition("/")[2]} if "/topics/" in path else None,
        "stageVariables": None,
        "body": "{}" if method == "PUT" else None,
        "isBase64Encoded": False,
        "requestContext": {
            "httpMethod": method,
            "resourcePath": "/v1/topics/{topic}" if "/topics/" in path else path,
            "path": path,
            "requestId": "r",
            **context,
        },
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "deps", lambda: deps)
        answer = app.app(event, Time(30))
    return answer["statusCode"], answer["body"]


def test_a_signer_makes_what_iam_let_through_and_is_named(world: World) -> None:
    identity = {"userArn": ROLE, "sourceIp": "10.0.0.9"}
    assert called(world, "PUT", "/v1/topics/signed", iam=True, identity=identity)[0] == 201
    [entry] = world.api.get("/v1/audit?topic=signed").expect(200)["items"]
    assert entry["token"] == {"id": "iam:role/orders", "name": "assumed-role/orders/session-7"}
    assert (entry["result"], entry["source"]) == ("OK", "10.0.0.9")
    assert world.deps.tokens.name("iam:role/orders") == "role/orders"


def test_without_the_option_a_signature_is_nobodys(world: World) -> None:
    identity = {"userArn": ROLE}
    assert called(world, "PUT", "/v1/topics/unwanted", iam=False, identity=identity)[0] == 403
    world.api.get("/v1/topics/unwanted").refused(404)


def test_no_header_makes_anybody_a_signer(world: World) -> None:
    for identity in ({}, {"userArn": None}, {"userArn": ""}):
        assert called(world, "PUT", "/v1/topics/unsigned", iam=True, identity=identity)[0] == 403
    world.api.get("/v1/topics/unsigned").refused(404)


def test_a_token_stays_what_it_is_beside_a_signature(world: World) -> None:
    token = {"principalId": "t1", "scopes": "consume", "topics": "*", "groups": "*", "name": "t"}
    status, _ = called(
        world, "PUT", "/v1/topics/both", iam=True, identity={"userArn": ROLE}, authorizer=token
    )
    assert status == 403


@pytest.mark.parametrize(
    ("arn", "id"),
    [
        (ROLE, "iam:role/orders"),
        ("arn:aws:iam::123456789012:user/ops/ann", "iam:user/ops/ann"),
        ("arn:aws:iam::123456789012:root", "iam:root"),
        ("arn:aws-cn:sts::123456789012:federated-user/bob", "iam:federated-user/bob"),
    ],
)
def test_a_caller_is_known_by_its_role_or_user(arn: str, id: str) -> None:
    assert Caller.of_iam(arn).token_id == id


def test_the_second_api_has_each_call_that_needs_a_token_and_nothing_else(tmp_path: Path) -> None:
    stack = read("dev", {"iam": True, "few_alarms": False})
    template = json.loads(describe(stack, tmp_path / "build").read_text())
    resources = template["Resources"]
    paths = resources["IamAPI"]["Properties"]["DefinitionBody"]["paths"]
    signed_routes = {(m.upper(), path) for path, methods in paths.items() for m in methods}
    guarded_routes = {
        (method, path)
        for path, methods in app.app.routes.items()
        for method, entry in methods.items()
        if entry.authorizer
    }
    assert signed_routes == guarded_routes
    assert all(each["security"] == [{"sigv4": []}] for methods in paths.values() for each in methods.values())
    assert '"Ref": "IamAPI"' in json.dumps(resources["IamAPIInvokePermission"])
    assert "${IamAPI}" in json.dumps(resources["IamAPIReceivePermission"])
    denied = resources["IamAPI"]["Properties"]["GatewayResponses"]["ACCESS_DENIED"]
    assert "IAM" in json.loads(denied["ResponseTemplates"]["application/json"])["detail"]
    first = resources["RestAPI"]["Properties"]["DefinitionBody"]
    assert "sigv4" not in json.dumps(first)
    variables = resources["APIHandler"]["Properties"]["Environment"]["Variables"]
    assert variables["HEADRACE_IAM"] == "1"
    dimensions = resources["IamCallsFailAlarm"]["Properties"]["Dimensions"]
    assert dimensions == [{"Name": "ApiName", "Value": resources["IamAPI"]["Properties"]["Name"]}]
    assert "headrace-dev-iam" in json.dumps(resources["Dashboard"])


def test_a_stage_has_no_second_api_unless_it_says_so(tmp_path: Path) -> None:
    text = describe(read("dev"), tmp_path / "build").read_text()
    assert "IamAPI" not in text
    assert "headrace-dev-iam" not in text
    assert "HEADRACE_IAM" not in text
