"""What is said where a stack cannot be deployed or deleted; the AWS CLI is a script that answers what a test says."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from infra import names, smoke
from infra.cli import Aws, Refused
from infra.stack import Deployment, main
from infra.stages import read
from infra.template import StackError

_CLI = f"""#!{sys.executable}
import json, sys
answers = json.load(open({{answers!r}}))
open({{asked!r}}, "a").write(" ".join(sys.argv[1:]) + "\\n")
asked = " ".join(sys.argv[1:])
code, text = answers[max((each for each in answers if asked.startswith(each)), key=len, default="")]
(sys.stderr if code else sys.stdout).write(text)
sys.exit(code)
"""
KNOWN = (0, json.dumps({"Account": "123456789012"}))
Environment = Callable[..., dict[str, str]]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """Makes an AWS CLI that answers so, and the environment in which it is found."""

    def make(**answers: tuple[int, str]) -> dict[str, str]:
        all_answers = {name.replace("__", " ").replace("_", "-"): answer for name, answer in answers.items()}
        (tmp_path / "answers").write_text(
            json.dumps({"": (0, ""), "sts get-caller-identity": KNOWN, **all_answers})
        )
        cli = tmp_path / "aws"
        cli.write_text(_CLI.format(answers=str(tmp_path / "answers"), asked=str(tmp_path / "asked")))
        cli.chmod(0o755)
        return {"PATH": os.environ["PATH"], "AWS_CLI": str(cli), "AWS_REGION": "eu-central-1"}

    return make


def status(state: str) -> tuple[int, str]:
    return 0, json.dumps({"Stacks": [{"StackStatus": state}]})


def deployment(environment: Mapping[str, str], **options: str) -> Deployment:
    return Deployment(Aws(environment), read("dev", options))


def test_without_the_cli_one_is_told_how_to_get_it(environment: Environment) -> None:
    with pytest.raises(StackError, match="pip install awscli"):
        Aws({**environment(), "AWS_CLI": "no-such-command"})


def test_without_a_region_one_is_asked_for_it(environment: Environment) -> None:
    without = {name: value for name, value in environment().items() if name != "AWS_REGION"}
    with pytest.raises(StackError, match="export AWS_REGION"):
        Aws(without)


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        ("Unable to locate credentials", "aws configure"),
        ('Could not connect to the endpoint URL: "https://sts.nowhere.amazonaws.com/"', "no region"),
    ],
)
def test_who_is_not_known_is_told_what_to_do(environment: Environment, answer: str, advice: str) -> None:
    with pytest.raises(StackError, match=advice):
        Aws(environment(sts__get_caller_identity=(255, answer)))


@pytest.mark.parametrize(
    ("state", "advice"),
    [
        ("ROLLBACK_COMPLETE", "make destroy"),
        ("ROLLBACK_FAILED", "make destroy"),
        ("DELETE_FAILED", "make destroy"),
        ("UPDATE_ROLLBACK_FAILED", "continue-update-rollback --stack-name headrace-dev"),
        ("UPDATE_IN_PROGRESS", "somebody else"),
    ],
)
def test_a_half_made_stack_is_left_alone_with_advice(
    environment: Environment, tmp_path: Path, state: str, advice: str
) -> None:
    with pytest.raises(StackError, match=advice) as error:
        deployment(environment(cloudformation__describe_stacks=status(state))).deploy()
    assert state in str(error.value)
    requests = (tmp_path / "asked").read_text()
    assert "create" not in requests
    assert "delete" not in requests


def test_a_certificate_of_another_region_is_noticed_first(environment: Environment) -> None:
    certificate = "arn:aws:acm:us-east-1:123456789012:certificate/0a-1b"
    with pytest.raises(StackError, match="set AWS_REGION to us-east-1"):
        deployment(environment(), domain="q.example.com", certificate=certificate).deploy()


@pytest.mark.parametrize(("free", "enough"), [(10, False), (113, False), (114, True), (1000, True)])
def test_an_account_that_lends_too_little_concurrency_is_noticed_first(
    environment: Environment, tmp_path: Path, free: int, enough: bool
) -> None:
    functions = {"Mover": {"Properties": {"ReservedConcurrentExecutions": 14}}, "Api": {"Properties": {}}}
    (tmp_path / "template.json").write_text(json.dumps({"Resources": functions}))
    limits = {"AccountLimit": {"UnreservedConcurrentExecutions": free}}
    variables = environment(
        cloudformation__describe_stacks=(255, "does not exist"),
        lambda__get_account_settings=(0, json.dumps(limits)),
        s3__mb=(255, "so far"),
        s3api__head_bucket=(255, "so far"),
    )
    with pytest.raises(StackError, match="so far" if enough else "request-service-quota-increase"):
        Deployment(Aws(variables), read("prod"), tmp_path).deploy()
    assert ("s3 mb" in (tmp_path / "asked").read_text()) == enough


def test_a_stage_that_may_do_without_is_deployed_to_a_new_account_without_reservations(
    environment: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resources = {
        "Deliver": {"Type": "AWS::Serverless::Function", "Properties": {"ReservedConcurrentExecutions": 100}},
        "Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": {"Fn::Sub": "p"}}},
    }
    for file in ("template.json", "packaged.json"):
        (tmp_path / file).write_text(json.dumps({"Resources": resources}))
    limits = {"AccountLimit": {"UnreservedConcurrentExecutions": 10}}
    variables = environment(
        cloudformation__describe_stacks=(255, "does not exist"),
        lambda__get_account_settings=(0, json.dumps(limits)),
        s3api__head_bucket=(0, "{}"),
        cloudformation__create_change_set=(255, "so far"),
    )
    with pytest.raises(StackError, match="so far"):
        Deployment(Aws(variables), read("dev"), tmp_path).deploy()
    deployed_resources = json.loads((tmp_path / "packaged.json").read_text())["Resources"]
    assert deployed_resources["Deliver"]["Properties"] == {}
    assert "only 10 left in eu-central-1. It is deployed without" in capsys.readouterr().err


def up_to_its_change_set(
    environment: Environment, tmp_path: Path, stack: tuple[int, str], resources: Mapping[str, Any]
) -> list[str]:
    """What a deployment of these resources and the bucket asks of AWS until that makes no change set of it."""
    bucket = {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": {"Fn::Sub": "p"}}}
    for file in ("template.json", "packaged.json"):
        (tmp_path / file).write_text(json.dumps({"Resources": {**resources, "Bucket": bucket}}))
    variables = environment(
        cloudformation__describe_stacks=stack,
        s3api__head_bucket=(0, "{}"),
        cloudformation__create_change_set=(255, "so far"),
    )
    with pytest.raises(StackError, match="so far"):
        Deployment(Aws(variables), read("dev"), tmp_path).deploy()
    return (tmp_path / "asked").read_text().splitlines()


@pytest.mark.parametrize(
    ("stack", "kind"), [((255, "does not exist"), "CREATE"), (status("UPDATE_ROLLBACK_COMPLETE"), "UPDATE")]
)
def test_tables_that_a_stack_left_behind_are_taken_in_also_by_an_update(
    environment: Environment, tmp_path: Path, stack: tuple[int, str], kind: str
) -> None:
    """An update that failed, or was taken back by one to an earlier release, leaves the tables that it added."""
    requests = up_to_its_change_set(environment, tmp_path, stack, {})
    (request,) = [line for line in requests if "create-change-set" in line]
    assert f"--change-set-type {kind}" in request
    assert "--import-existing-resources" in request
    assert "Key=headrace,Value=headrace-dev Key=headrace-stage,Value=dev" in request, "the bill by stack"


def test_what_failed_is_told_with_its_reason(environment: Environment) -> None:
    events = [
        {"LogicalResourceId": "Api", "ResourceStatus": "CREATE_FAILED", "ResourceStatusReason": "limit of 10"}
    ]
    variables = environment(
        cloudformation__describe_stacks=status("CREATE_COMPLETE"),
        cloudformation__wait=(255, "Waiter StackDeleteComplete failed"),
        cloudformation__describe_stack_events=(0, json.dumps({"StackEvents": events})),
    )
    with pytest.raises(StackError, match="Api: limit of 10"):
        deployment(variables).destroy(with_data=False)


@pytest.mark.parametrize("table", ["", "headrace-dev-log"])
def test_a_first_deployment_that_fails_leaves_nothing_and_never_deletes_what_was_there(
    environment: Environment, tmp_path: Path, table: str
) -> None:
    resources = {"Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": {"Fn::Sub": "p"}}}}
    for file in ("template.json", "packaged.json"):
        (tmp_path / file).write_text(json.dumps({"Resources": resources}))
    own_bucket = "s3api head-bucket --bucket headrace-dev-"
    answers = {
        "cloudformation describe-stacks": (255, "does not exist"),
        "cloudformation describe-change-set": (0, json.dumps({"Status": "CREATE_COMPLETE"})),
        "cloudformation wait stack-create-complete": (255, "Waiter failed"),
        "dynamodb list-tables": (0, json.dumps({"TableNames": [table]})),
        own_bucket: (255, "An error occurred (404)"),
    }
    with pytest.raises(StackError, match="could not be created") as error:
        Deployment(Aws(environment(**answers)), read("dev"), tmp_path).deploy()
    was_deleted = "cloudformation delete-stack" in (tmp_path / "asked").read_text()
    assert was_deleted == (not table) == ("nothing is left" in str(error.value))


def test_a_deployment_runs_each_job_once_and_says_if_the_stage_does_not_answer(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smoke, "_PATIENCE_SECONDS", -1)
    with pytest.raises(StackError, match="look at the logs"):
        smoke.run(Aws(environment()), read("dev"), "http://127.0.0.1:9/api/", "")
    requests = (tmp_path / "asked").read_text().splitlines()
    started = [line.split("--function-name ")[1].split()[0] for line in requests if "invoke" in line]
    assert started == [names.function("headrace-dev", name) for name in names.TIMED]


def test_a_stack_that_is_not_there_may_be_elsewhere(environment: Environment) -> None:
    with pytest.raises(StackError, match="in eu-central-1 of account 123456789012"):
        deployment(environment(cloudformation__describe_stacks=(255, "does not exist"))).destroy(
            with_data=False
        )


def test_a_stack_of_which_aws_says_nothing_is_not_taken_for_a_new_one(
    environment: Environment, tmp_path: Path
) -> None:
    """Before a creation the functions' logs are deleted; a running stage would then log no more lines."""
    log = {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": "/aws/lambda/headrace-dev-mover"}}
    for file in ("template.json", "packaged.json"):
        (tmp_path / file).write_text(json.dumps({"Resources": {"Bucket": {"Properties": {}}, "Log": log}}))
    variables = environment(
        cloudformation__describe_stacks=(254, "An error occurred (Throttling): Rate exceeded"),
        s3api__head_bucket=(0, "{}"),
    )
    for work in (Deployment.deploy, lambda each: each.destroy(with_data=False)):
        with pytest.raises(Refused, match="Rate exceeded"):
            work(Deployment(Aws(variables), read("dev"), tmp_path))
    assert "delete" not in (tmp_path / "asked").read_text()


def said(monkeypatch: pytest.MonkeyPatch, environment: dict[str, Any], *arguments: str) -> int:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return main([*arguments, "--stage", "dev"])


def test_nothing_is_deleted_unless_its_name_is_given(
    environment: Environment,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    assert said(monkeypatch, environment(), "destroy") == 2
    assert "CONFIRM=headrace-dev" in capsys.readouterr().err
    assert said(monkeypatch, environment(), "destroy", "--confirm", "headrace-prod") == 2
    assert "Not confirmed" in capsys.readouterr().err
    assert not (tmp_path / "asked").exists()


def test_only_what_was_packaged_for_this_stack_is_deployed(
    environment: Environment,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "template.json").write_text('{"Description": "Headrace, stage prod, prefix headrace-prod"}')
    assert said(monkeypatch, environment(), "deploy", "--build", str(tmp_path)) == 2
    assert "make package" in capsys.readouterr().err
