"""The template of a stage, as it would be deployed."""

from __future__ import annotations

import inspect
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

import app
from chalicelib.api import problems
from chalicelib.domain import errors
from chalicelib.settings import Settings, read
from chalicelib.store import layout
from infra import names
from infra.bucket import bucket
from infra.stages import read as stage
from infra.tables import tables
from infra.template import template
from local.functions import functions_of
from tests.infra.templates import lint, resources
from tests.infra.test_role_policies import statements

_KEPT = {"AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::KMS::Key"}
_PREFIXED = (
    "TableName",
    "FunctionName",
    "LogGroupName",
    "QueueName",
    "TopicName",
    "LayerName",
    "BucketName",
    "Name",
)


@pytest.mark.parametrize(
    "template_file", ["prod", pytest.param("dev", marks=pytest.mark.soak)], indirect=True
)
def test_cfn_lint_finds_nothing_though_it_would(template_file: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    table = json.dumps({"Resources": {"Bad": resources(template_file, "AWS::DynamoDB::Table").popitem()[1]}})
    bad.write_text(table.replace("PAY_PER_REQUEST", "PAY_PER_WISH"))
    code, output = lint(template_file, bad)
    assert code != 0
    assert "PAY_PER_WISH" in output
    assert str(bad) in output
    assert str(template_file) not in output


def test_the_dashboard_and_the_alarms_look_at_what_is_deployed(template_file: Path) -> None:
    by_name = resources(template_file)
    alarms = resources(template_file, "AWS::CloudWatch::Alarm").values()
    dimensions = {(d["Name"], d["Value"]) for alarm in alarms for d in alarm["Properties"]["Dimensions"]}
    for widget in json.loads(by_name["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"])["widgets"]:
        for line in widget["properties"].get("metrics", []):
            dimensions |= set(zip(line[2:-1:2], line[3:-1:2], strict=True))
    kinds = {
        "FunctionName": ("AWS::Serverless::Function", "FunctionName"),
        "TableName": ("AWS::DynamoDB::Table", "TableName"),
        "QueueName": ("AWS::SQS::Queue", "QueueName"),
        "LogGroupName": ("AWS::Logs::LogGroup", "LogGroupName"),
        "RuleName": ("AWS::Events::Rule", "Name"),
        "ApiName": ("AWS::Serverless::Api", "Name"),
    }
    for dimension, (kind, key) in kinds.items():
        values = {value for name, value in dimensions if name == dimension}
        deployed_values = {each["Properties"][key] for each in by_name.values() if each["Type"] == kind}
        if dimension == "RuleName":
            (event,) = by_name["Mover"]["Properties"]["Events"].values()
            deployed_values.add(event["Properties"]["Name"])
        assert values
        assert values <= deployed_values


def test_functions_that_start_one_another_may_do_so_for_ever(template_file: Path) -> None:
    functions = resources(template_file, "AWS::Serverless::Function")
    loop_functions = {name for name, each in functions.items() if "RecursiveLoop" in each["Properties"]}
    starting_functions = {
        names.logical(resource["Fn::Sub"].rpartition("-")[2])
        for _, statement in statements(resources(template_file, "AWS::IAM::Role"))
        if statement["Action"] == ["lambda:InvokeFunction"]
        for resource in statement["Resource"]
    }
    assert loop_functions == starting_functions | {"Mover"}, "its queue starts it, and it sends to the queue"


def test_the_tables_are_those_of_the_layout() -> None:
    of_layout = layout.Tables("p")
    layout_tables = {each["TableName"]: each for each in layout.definitions(of_layout)}
    template_tables = {each["Properties"]["TableName"]: each["Properties"] for each in tables("p").values()}
    assert template_tables.keys() == layout_tables.keys()
    for name, definition in layout_tables.items():
        stream = definition.pop("StreamSpecification", {}).get("StreamViewType")
        assert {key: template_tables[name].get(key) for key in definition} == definition
        assert template_tables[name].get("StreamSpecification", {}).get("StreamViewType") == stream
    expiring_tables = {
        name: each["TimeToLiveSpecification"]["AttributeName"]
        for name, each in template_tables.items()
        if "TimeToLiveSpecification" in each
    }
    assert expiring_tables == layout.expiring_tables(of_layout)


def test_every_table_is_safe_from_slips() -> None:
    for table in tables("p").values():
        properties = table["Properties"]
        assert properties["DeletionProtectionEnabled"]
        assert "SSESpecification" not in properties, (
            "DynamoDB's own key is free, the account's bills each use"
        )
        assert properties["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"]


def test_what_users_sent_outlives_the_stack_and_nothing_else_does(template_file: Path) -> None:
    for name, each in resources(template_file).items():
        kept = "RetainExceptOnCreate" if each["Type"] == "AWS::KMS::Key" else "Retain"
        is_retained = (each.get("DeletionPolicy"), each.get("UpdateReplacePolicy")) == (kept, "Retain")
        assert is_retained == (each["Type"] in _KEPT), name


def test_every_function_has_settings_of_its_own_in_the_configuration() -> None:
    config = json.loads(Path(".chalice/config.json").read_text())
    assert set(config["lambda_functions"]) == {*functions_of(app.app), "api_handler", "authorize"}


def test_the_environment_is_one_that_settings_accept(template_file: Path) -> None:
    for name, function in resources(template_file, "AWS::Serverless::Function").items():
        variables = function["Properties"]["Environment"]["Variables"]
        ours = {key for key in variables if key.startswith("HEADRACE_")}
        assert ours <= set(re.findall("HEADRACE_[A-Z_]+", inspect.getsource(Settings))), name
        texts = {key: value if isinstance(value, str) else "x" for key, value in variables.items()}
        settings = read({"AWS_LAMBDA_FUNCTION_NAME": name, **texts})
        function_names = [f"{settings.prefix}-{each}" for each in ("deliver", "check")]
        assert [settings.deliver, settings.check] == function_names
        assert (settings.wakes, settings.bucket, settings.account, settings.origin) == ("x",) * 4


def test_the_bucket_is_private_encrypted_and_for_tls_only() -> None:
    bucket_resources = bucket("p")
    properties = bucket_resources["Bucket"]["Properties"]
    assert all(properties["PublicAccessBlockConfiguration"].values())
    assert properties["BucketEncryption"]
    statement = bucket_resources["BucketPolicy"]["Properties"]["PolicyDocument"]["Statement"][0]
    assert statement["Effect"] == "Deny"
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_the_gateways_refusals_look_like_ours(template_file: Path) -> None:
    responses = resources(template_file)["RestAPI"]["Properties"]["GatewayResponses"]
    ours = problems.problem(errors.Unauthorized("UNAUTHORIZED", "…"), "id").keys()
    page = Path("docs/errors.md").read_text()
    for name, response in responses.items():
        text = response["ResponseTemplates"]["application/json"]
        assert text.endswith("}\n")
        document = json.loads(text)
        assert document.keys() == ours, name
        assert document["status"] == response["StatusCode"]
        assert f"`{document['code']}`" in page
        headers = response["ResponseParameters"]["Headers"]
        assert headers["Content-Type"] == "'application/problem+json'"
        assert {name: headers[name].strip("'") for name in problems.EVERYWHERE} == problems.EVERYWHERE


def test_stacks_of_other_prefixes_share_no_name() -> None:
    def names_of(prefix: str) -> set[str]:
        stack_resources = template(stage("dev", {"prefix": prefix}))["Resources"].values()
        properties = [each.get("Properties", {}) for each in stack_resources]
        names_text = {json.dumps(each[key]) for each in properties for key in _PREFIXED if key in each}
        return {name for name in names_text if "Ref" not in name}

    assert len(names_of("one")) > 30
    assert not names_of("one") & names_of("two")
    assert not names_of("one") & names_of("one-more")


def test_the_template_holds_no_secret(template_file: Path) -> None:
    assert not re.search(r"hr_[0-9A-Za-z]+_|whsec_|AKIA|BEGIN [A-Z ]*PRIVATE", template_file.read_text())


def test_only_what_runs_is_in_the_zips(package_folder: Path) -> None:
    def packages(file: str) -> set[str]:
        entries = zipfile.ZipFile(package_folder / file).namelist()
        return {entry.removeprefix("python/lib/python3.11/site-packages/").split("/")[0] for entry in entries}

    assert packages("deployment.zip") == {"app.py", "chalice", "chalicelib", "__pycache__"}
    layer = {name.lower() for name in packages("layer-deployment.zip")}
    assert not layer & {"moto", "pytest", "hypothesis", "pyspark", "ruff", "mypy", "pip", "setuptools"}
    assert (package_folder / "deployment.zip").stat().st_size < 2_800_000
    assert (package_folder / "layer-deployment.zip").stat().st_size < 8_000_000


def test_the_architecture_page_names_the_services_that_the_stack_uses() -> None:
    options: dict[str, Any] = {"access_log": True}
    stack_resources = template(stage("prod", options))["Resources"].values()
    kinds = {
        each["Type"].split("::")[1] for each in stack_resources if each.get("Type", "").startswith("AWS::")
    }
    names = {"Events": "EventBridge", "Logs": "CloudWatch"}
    services = {names.get(kind, kind) for kind in kinds} | {"API Gateway"}  # Chalice adds that
    [service_names] = re.findall(
        r"these services of AWS: (.*)\.$", Path("docs/internals/README.md").read_text(), re.M
    )
    assert set(service_names.split(", ")) == services
