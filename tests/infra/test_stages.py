"""What a stage may be set to: what each setting makes of the template, and how a wrong one is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from chalicelib.settings import read as read_settings
from infra.__main__ import main
from infra.api import allow_origins
from infra.package import describe
from infra.stages import read as stage
from infra.template import StackError, template
from tests.infra.templates import resources

_ROOT = Path(__file__).parents[2]
_CERTIFICATE = "arn:aws:acm:eu-central-1:123456789012:certificate/0a-1b"
_ACL = "arn:aws:wafv2:eu-central-1:123456789012:regional/webacl/mine/0a-1b"
_GUARDED: dict[str, Any] = {
    "access_log": True,
    "web_acl": _ACL,
    "vpc_endpoint": "vpce-0a1b2c3d",
    "iam": True,
}


def test_a_domain_is_the_apis_and_the_origin() -> None:
    resources_file = template(
        stage("prod", {"domain": "q.example.com", "certificate": _CERTIFICATE, "zone": "Z1"})
    )
    properties = resources_file["Resources"]["RestAPI"]["Properties"]["Domain"]
    assert (properties["DomainName"], properties["Route53"]) == ("q.example.com", {"HostedZoneId": "Z1"})
    variables = resources_file["Resources"]["Deliver"]["Properties"]["Environment"]["Variables"]
    assert variables["HEADRACE_ORIGIN"] == "q.example.com"


def test_an_api_may_be_private_logged_and_behind_a_web_acl(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("not of a package")
    (tmp_path / "deployment.zip").write_text("of the package before")
    template_file = describe(stage("dev", _GUARDED), tmp_path)
    assert (tmp_path / "mine").exists(), "whoever names a folder keeps what is in it"
    assert zipfile.is_zipfile(tmp_path / "deployment.zip")
    stack_resources = resources(template_file)
    properties = stack_resources["RestAPI"]["Properties"]
    assert properties["EndpointConfiguration"] == {"Type": "PRIVATE", "VPCEndpointIds": ["vpce-0a1b2c3d"]}
    allow, deny = properties["DefinitionBody"]["x-amazon-apigateway-policy"]["Statement"]
    assert (allow["Effect"], deny["Effect"]) == ("Allow", "Deny")
    assert deny["Condition"] == {"StringNotEquals": {"aws:SourceVpce": "vpce-0a1b2c3d"}}
    assert not re.search("header|query|body", properties["AccessLogSetting"]["Format"].lower())
    assert stack_resources["AccessLog"]["Properties"]["LogGroupName"] == "/aws/apigateway/headrace-dev"
    assert stack_resources["WebAclAssociation"]["Properties"]["WebACLArn"] == _ACL
    assert_the_second_api_is_guarded_as_the_first(stack_resources, deny)


def assert_the_second_api_is_guarded_as_the_first(
    stack_resources: dict[str, Any], deny: dict[str, Any]
) -> None:
    second = stack_resources["IamAPI"]["Properties"]
    assert (
        second["EndpointConfiguration"] == stack_resources["RestAPI"]["Properties"]["EndpointConfiguration"]
    )
    # A policy for everybody would let in every signer of the account, even against its own policies.
    assert second["DefinitionBody"]["x-amazon-apigateway-policy"]["Statement"] == [deny]
    assert second["AccessLogSetting"] == stack_resources["RestAPI"]["Properties"]["AccessLogSetting"]
    acls = [stack_resources[name]["Properties"] for name in ("WebAclAssociation", "IamAPIWebAclAssociation")]
    assert len({each["WebACLArn"] for each in acls}) == 1
    assert "${IamAPI}/stages/${IamAPI.Stage}" in acls[1]["ResourceArn"]["Fn::Sub"]


def test_python_report_lines_and_origins_are_settings_of_the_stage(tmp_path: Path) -> None:
    """The wheels are those of the stage's Python, whichever packages it."""
    options: dict[str, Any] = {"report_lines": True, "cors_origins": ["https://a.example", "http://b:3000"]}
    options["firings_per_second"] = [7, 70]
    by_name = resources(describe(stage("dev", {**options, "python": "3.13"}), tmp_path))
    functions = [each for each in by_name.values() if each["Type"] == "AWS::Serverless::Function"]
    assert {each["Properties"]["Runtime"] for each in functions} == {"python3.13"}
    layer = zipfile.ZipFile(tmp_path / "layer-deployment.zip").namelist()
    assert {entry.split("cpython-")[1][:3] for entry in layer if entry.endswith(".so")} == {"313"}
    assert by_name["Mover"]["Properties"]["LoggingConfig"]["SystemLogLevel"] == "INFO"
    variables = by_name["APIHandler"]["Properties"]["Environment"]["Variables"]
    assert variables["HEADRACE_CORS_ORIGINS"] == "https://a.example,http://b:3000"
    assert read_settings({"HEADRACE_FIRINGS": variables["HEADRACE_FIRINGS"]}).firings == (7, 70)
    paths = by_name["RestAPI"]["Properties"]["DefinitionBody"]["paths"]
    answers = {
        path: methods["options"]["x-amazon-apigateway-integration"]["responses"]["default"]
        for path, methods in paths.items()
        if "options" in methods
    }
    assert "/v1/topics/{topic}/messages" in answers
    assert not [path for path in answers if re.match("/(console|sqs|v1/(tokens|sign-in-links))", path)]
    text = answers["/v1/health"]["responseTemplates"]["application/json"]
    assert '$origin == "https://a.example" || $origin == "http://b:3000"' in text
    assert "Credentials" not in text
    assert 'Allow-Methods = "GET, HEAD"' in text
    assert refusal_origins(by_name) == {None}, "a refusal can name one origin"
    allow_origins({"Resources": by_name}, ["https://a.example"])
    assert refusal_origins(by_name) == {"'https://a.example'"}


def refusal_origins(by_name: dict[str, Any]) -> set[str | None]:
    refusals = by_name["RestAPI"]["Properties"]["GatewayResponses"].values()
    return {r["ResponseParameters"]["Headers"].get("Access-Control-Allow-Origin") for r in refusals}


@pytest.mark.parametrize("target", ["package", "deploy"])
def test_packaging_needs_neither_java_nor_npm(target: str) -> None:
    command = ["make", "--dry-run", target, "STAGE=dev", f"BIN={Path(sys.executable).parent}"]
    run = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True)
    assert not re.search("java|npm|dynamodb_local|group dev", run.stdout)


def test_aws_watches_the_bill_of_a_stack_that_has_an_address() -> None:
    assert "Budget" not in template(stage("dev"))["Resources"]
    watched = stage("dev", {"email": "a@example.com", "budget_usd": 7})
    properties = template(watched)["Resources"]["Budget"]["Properties"]
    assert properties["Budget"]["BudgetLimit"] == {"Amount": 7, "Unit": "USD"}
    assert properties["Budget"]["CostFilters"] == {"TagKeyValue": ["user:headrace$headrace-dev"]}
    notices = properties["NotificationsWithSubscribers"]
    assert [each["Notification"]["Threshold"] for each in notices] == [80, 100]
    assert {each["Subscribers"][0]["Address"] for each in notices} == {"a@example.com"}


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"prefix": "Headrace"}, "lower-case"),
        ({"prefix": "x" * 31}, "30"),
        ({"prefix": 7}, "lower-case"),
        ({"email": ["a@example.com"]}, "email must be a text"),
        ({"prefix": "a--b"}, "hyphen"),
        ({"domain": "q.example.com"}, "--certificate"),
        ({"certificate": _CERTIFICATE}, "--domain"),
        ({"domain": "https://q", "certificate": _CERTIFICATE}, "host name"),
        ({"domain": "q.example.com", "certificate": "mine"}, "ARN"),
        ({"zone": "Z1"}, "--domain"),
        ({"log_days": 8}, "one of 1, 3, 5, 7"),
        ({"anonymous_per_second": 0}, "from 1"),
        ({"budget_usd": 0}, "from 1"),
        ({"calls_per_second": -1}, "from 0"),
        ({"anonymous_per_second": "50"}, "from 1"),
        ({"archive": "yes"}, "true or false"),
        ({"access_log": "yes"}, "true or false"),
        ({"web_acl": "mine"}, "ARN of a regional web ACL"),
        ({"vpc_endpoint": "vpc-1"}, "vpce-"),
        (
            {"vpc_endpoint": "vpce-0a1b2c3d", "domain": "q.example.com", "certificate": _CERTIFICATE},
            "no domain",
        ),
        ({"reserve": "never"}, "'always' or 'if_possible'"),
        ({"python": "3.9"}, "one of 3.11"),
        ({"report_lines": 1}, "true or false"),
        ({"workers": "Standard"}, "one of G.1X, G.2X"),
        ({"most_workers": 1}, "from 2"),
        ({"archive_days": 29}, "from 30"),
        ({"firings_per_second": [100]}, "two whole numbers"),
        ({"cors_origins": "https://a.example"}, "list of exact origins"),
        ({"cors_origins": ["*"]}, "list of exact origins"),
        ({"cors_origins": ["null"]}, "list of exact origins"),
        ({"cors_origins": ["https://a.example/"]}, "list of exact origins"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_made(options: dict[str, Any], advice: str) -> None:
    with pytest.raises(StackError, match=advice):
        stage("dev", options)


def test_an_unknown_stage_is_told_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--stage", "staging"]) == 2
    assert "dev, prod" in capsys.readouterr().err


def test_a_misspelt_setting_of_a_stage_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".chalice").mkdir()
    config = {"stages": {"dev": {"infra": {"log_day": 3}}}, "lambda_functions": {}}
    (tmp_path / ".chalice/config.json").write_text(json.dumps(config))
    with pytest.raises(StackError, match="log_day is not known"):
        stage("dev", folder=tmp_path)
