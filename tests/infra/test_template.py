"""The template of a stage, as it would be deployed."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
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
from infra.__main__ import main
from infra.bucket import bucket
from infra.functions import function_id
from infra.glue import LAUNCHER
from infra.package import describe
from infra.stages import read as stage
from infra.tables import tables
from infra.template import Stack, Wrong, template
from local.functions import functions_of
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
_CERTIFICATE = "arn:aws:acm:eu-central-1:123456789012:certificate/0a-1b"


def resources(file: Path, kind: str = "") -> dict[str, Any]:
    found = json.loads(file.read_text())["Resources"]
    return {name: each for name, each in found.items() if each["Type"].startswith(kind)}


def lint(file: Path) -> tuple[int, str]:
    command = [str(Path(sys.executable).with_name("cfn-lint")), str(file)]
    run = subprocess.run(command, capture_output=True, text=True)
    return run.returncode, run.stdout + run.stderr


def test_cfn_lint_finds_nothing(packaged: Path) -> None:
    assert lint(packaged) == (0, "")


def test_the_archive_is_made_each_night_in_prod_and_not_in_dev(packaged: Path) -> None:
    is_prod = "prod" in str(packaged)
    triggers = resources(packaged, "AWS::Glue::Trigger").values()
    assert [each["Properties"]["StartOnCreation"] for each in triggers] == [True] * 2 * is_prod
    assert ("ArchiveLateAlarm" in resources(packaged)) is is_prod
    jobs = resources(packaged, "AWS::Glue::Job")
    prefix = "headrace-prod" if is_prod else "headrace-dev"
    names = {each["Properties"]["Name"] for each in jobs.values()}
    assert names == {f"{prefix}-{name}" for name in ("archive", "report", "replay", "asof", "compare")}
    assert jobs["ArchiveJob"]["Properties"]["ExecutionProperty"] == {"MaxConcurrentRuns": 1}
    waits = f'"HEADRACE_ARCHIVE": "{int(is_prod)}"'  # rows wait for a proof where somebody makes one
    assert waits in json.dumps(json.loads(packaged.read_text()))


def test_athenas_tables_are_the_lists_of_files_and_need_no_topic(packaged: Path) -> None:
    for table in resources(packaged, "AWS::Glue::Table").values():
        told = table["Properties"]["TableInput"]
        assert [key["Name"] for key in told["PartitionKeys"]] == ["day"]
        assert not any("topic" in name for name in told["Parameters"])
        assert told["StorageDescriptor"]["InputFormat"].endswith(".SymlinkTextInputFormat")
        assert told["StorageDescriptor"]["Location"]["Fn::Sub"].endswith(f"/archive/catalog/{told['Name']}/")


def test_a_job_that_fails_is_told(packaged: Path) -> None:
    rule = resources(packaged)["JobFailedRule"]["Properties"]
    names = [each["Properties"]["Name"] for each in resources(packaged, "AWS::Glue::Job").values()]
    jobs = [name for name in names if not name.endswith(("-asof", "-compare"))]  # somebody waits for these
    assert rule["EventPattern"]["detail"] == {"jobName": jobs, "state": ["FAILED", "TIMEOUT"]}
    dimensions = resources(packaged)["JobFailedAlarm"]["Properties"]["Dimensions"]
    assert dimensions == [{"Name": "RuleName", "Value": rule["Name"]}]


def test_the_dashboard_and_the_alarms_look_at_what_is_deployed(packaged: Path) -> None:
    found = resources(packaged)
    alarms = resources(packaged, "AWS::CloudWatch::Alarm").values()
    asked = {(d["Name"], d["Value"]) for alarm in alarms for d in alarm["Properties"]["Dimensions"]}
    for widget in json.loads(found["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"])["widgets"]:
        for line in widget["properties"].get("metrics", []):
            asked |= set(zip(line[2:-1:2], line[3:-1:2], strict=True))
    kinds = {
        "FunctionName": ("AWS::Serverless::Function", "FunctionName"),
        "TableName": ("AWS::DynamoDB::Table", "TableName"),
        "QueueName": ("AWS::SQS::Queue", "QueueName"),
        "LogGroupName": ("AWS::Logs::LogGroup", "LogGroupName"),
        "RuleName": ("AWS::Events::Rule", "Name"),
        "ApiName": ("AWS::Serverless::Api", "Name"),
    }
    for dimension, (kind, key) in kinds.items():
        wanted = {value for name, value in asked if name == dimension}
        deployed = {each["Properties"][key] for each in found.values() if each["Type"] == kind}
        assert wanted
        assert wanted <= deployed


def test_the_jobs_logs_are_the_stacks_own(packaged: Path) -> None:
    logs = {
        each["Properties"]["LogGroupName"] for each in resources(packaged, "AWS::Logs::LogGroup").values()
    }
    for job in resources(packaged, "AWS::Glue::Job").values():
        begins = job["Properties"]["DefaultArguments"]["--custom-logGroup-prefix"]
        assert {f"{begins}/output", f"{begins}/error"} <= logs


def test_functions_that_start_one_another_may_do_so_for_ever(packaged: Path) -> None:
    functions = resources(packaged, "AWS::Serverless::Function")
    allowed = {name for name, each in functions.items() if "RecursiveLoop" in each["Properties"]}
    started = {
        resource["Fn::Sub"].rpartition("-")[2].capitalize()
        for _, statement in statements(resources(packaged, "AWS::IAM::Role"))
        if statement["Action"] == ["lambda:InvokeFunction"]
        for resource in statement["Resource"]
    }
    assert allowed == started


def test_a_jobs_script_runs_it_with_its_own_arguments_only(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/archive.py").write_text(
        "import sys\n\ndef main():\n    print(sys.argv[1:])\n    return 3\n"
    )
    (tmp_path / "run.py").write_text(LAUNCHER.format(folder="jobs", job="archive"))
    given = [
        "--bucket",
        "b",
        "--custom-logGroup-prefix",
        "/p",
        "--JOB_NAME",
        "j",
        "--extra-py-files",
        "s3://x",
    ]
    run = subprocess.run([sys.executable, "run.py", *given], cwd=tmp_path, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (3, "['--bucket', 'b', '--JOB_NAME', 'j']\n")


@pytest.mark.parametrize("packaged", ["dev"], indirect=True)
def test_cfn_lint_would_find_something(packaged: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(packaged.read_text().replace("PAY_PER_REQUEST", "PAY_PER_WISH"))
    assert lint(bad)[0] != 0


def test_the_tables_are_those_of_the_layout() -> None:
    of_layout = layout.Tables("p")
    expected = {each["TableName"]: each for each in layout.definitions(of_layout)}
    declared = {each["Properties"]["TableName"]: each["Properties"] for each in tables("p").values()}
    assert declared.keys() == expected.keys()
    for name, definition in expected.items():
        stream = definition.pop("StreamSpecification", {}).get("StreamViewType")
        assert {key: declared[name].get(key) for key in definition} == definition
        assert declared[name].get("StreamSpecification", {}).get("StreamViewType") == stream
    expiring = {
        name: each["TimeToLiveSpecification"]["AttributeName"]
        for name, each in declared.items()
        if "TimeToLiveSpecification" in each
    }
    assert expiring == layout.expiring(of_layout)


def test_every_table_is_safe_from_slips() -> None:
    for table in tables("p").values():
        told = table["Properties"]
        assert told["DeletionProtectionEnabled"]
        assert told["SSESpecification"]["SSEEnabled"]
        assert told["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"]


def test_what_users_sent_outlives_the_stack_and_nothing_else_does(packaged: Path) -> None:
    for name, each in resources(packaged).items():
        retained = each.get("DeletionPolicy") == each.get("UpdateReplacePolicy") == "Retain"
        assert retained == (each["Type"] in _KEPT), name


def test_every_function_has_its_name_its_role_and_its_log(packaged: Path) -> None:
    functions = resources(packaged, "AWS::Serverless::Function")
    expected = {function_id(name) for name in [*functions_of(app.app), names.API, names.AUTHORIZE]}
    assert functions.keys() == expected
    roles = {json.dumps(each["Properties"]["Role"]) for each in functions.values()}
    logs = {each["Properties"]["LoggingConfig"]["LogGroup"]["Ref"] for each in functions.values()}
    assert len(roles) == len(logs) == len(functions)
    assert "DefaultRole" not in resources(packaged)
    for log in logs:
        assert resources(packaged)[log]["Properties"]["RetentionInDays"] > 0


def test_lines_of_the_log_are_json_and_not_lambdas_own(packaged: Path) -> None:
    for function in resources(packaged, "AWS::Serverless::Function").values():
        logging = function["Properties"]["LoggingConfig"]
        assert (logging["LogFormat"], logging["SystemLogLevel"]) == ("JSON", "WARN")


def test_every_function_has_settings_of_its_own_in_the_configuration() -> None:
    config = json.loads(Path(".chalice/config.json").read_text())
    assert set(config["lambda_functions"]) == {*functions_of(app.app), "api_handler", "authorize"}


def test_the_environment_is_one_that_settings_accept(packaged: Path) -> None:
    for name, function in resources(packaged, "AWS::Serverless::Function").items():
        variables = function["Properties"]["Environment"]["Variables"]
        ours = {key for key in variables if key.startswith("HEADRACE_")}
        assert ours <= set(re.findall("HEADRACE_[A-Z_]+", inspect.getsource(Settings))), name
        texts = {key: value if isinstance(value, str) else "x" for key, value in variables.items()}
        told = read({"AWS_LAMBDA_FUNCTION_NAME": name, **texts})
        called = [f"{told.prefix}-{each}" for each in ("deliver", "mover", "check")]
        assert [told.deliver, told.mover, told.check] == called
        assert (told.bucket, told.account, told.origin) == ("x", "x", "x")


def test_only_inserts_wake_route_and_what_fails_is_kept(packaged: Path) -> None:
    mapping = resources(packaged, "AWS::Lambda::EventSourceMapping")["RouteFromLog"]["Properties"]
    assert mapping["EventSourceArn"] == {"Fn::GetAtt": ["LogTable", "StreamArn"]}
    pattern = json.loads(mapping["FilterCriteria"]["Filters"][0]["Pattern"])
    assert pattern["eventName"] == ["INSERT"]
    assert mapping["BisectBatchOnFunctionError"]
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["MaximumRetryAttempts"] < 10
    assert mapping["DestinationConfig"]["OnFailure"]["Destination"] == {"Fn::GetAtt": ["FailureQueue", "Arn"]}


def test_the_journal_outlasts_an_outage_and_gives_up_before_the_stream_forgets(packaged: Path) -> None:
    mappings = resources(packaged, "AWS::Lambda::EventSourceMapping")
    journal = [mappings[name]["Properties"] for name in ("JournalFromLog", "JournalFromTraces")]
    for each in journal:
        assert each["StartingPosition"] == "TRIM_HORIZON"
        assert 3600 < each["MaximumRecordAgeInSeconds"] < 86_400
    tables = [each["EventSourceArn"]["Fn::GetAtt"][0] for each in journal]
    assert tables == ["LogTable", "TracesTable"]


def test_the_bucket_is_private_encrypted_and_for_tls_only() -> None:
    made = bucket("p")
    told = made["Bucket"]["Properties"]
    assert all(told["PublicAccessBlockConfiguration"].values())
    assert told["BucketEncryption"]
    statement = made["BucketPolicy"]["Properties"]["PolicyDocument"]["Statement"][0]
    assert statement["Effect"] == "Deny"
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_the_gateways_refusals_look_like_ours(packaged: Path) -> None:
    responses = resources(packaged)["RestAPI"]["Properties"]["GatewayResponses"]
    ours = problems.problem(errors.Unauthorized("UNAUTHORIZED", "…"), "id").keys()
    documented = Path("docs/errors.md").read_text()
    for name, response in responses.items():
        text = response["ResponseTemplates"]["application/json"]
        assert text.endswith("}\n")
        document = json.loads(text)
        assert document.keys() == ours, name
        assert document["status"] == response["StatusCode"]
        assert f"`{document['code']}`" in documented
        headers = response["ResponseParameters"]["Headers"]
        assert headers["Content-Type"] == "'application/problem+json'"
        assert {name: headers[name].strip("'") for name in problems.EVERYWHERE} == problems.EVERYWHERE


def test_stacks_of_other_prefixes_share_no_name() -> None:
    def names_of(prefix: str) -> set[str]:
        found = template(stage("dev", {"prefix": prefix}))["Resources"].values()
        told = [each.get("Properties", {}) for each in found]
        named = {json.dumps(each[key]) for each in told for key in _PREFIXED if key in each}
        return {name for name in named if "Ref" not in name}

    assert len(names_of("one")) > 30
    assert not names_of("one") & names_of("two")
    assert not names_of("one") & names_of("one-more")


def test_the_template_holds_no_secret(packaged: Path) -> None:
    assert not re.search(r"hr_[0-9A-Za-z]+_|whsec_|AKIA|BEGIN [A-Z ]*PRIVATE", packaged.read_text())


def test_only_what_runs_is_in_the_zips(packaged: Path) -> None:
    def packages(file: str) -> set[str]:
        entries = zipfile.ZipFile(packaged.with_name(file)).namelist()
        return {entry.removeprefix("python/lib/python3.11/site-packages/").split("/")[0] for entry in entries}

    assert packages("deployment.zip") == {"app.py", "chalice", "chalicelib", "__pycache__"}
    ours = zipfile.ZipFile(packaged.with_name("deployment.zip")).namelist()
    assert not [entry for entry in ours if "/store/memory/" in entry], (
        "on AWS nobody keeps messages in memory"
    )
    layer = {name.lower() for name in packages("layer-deployment.zip")}
    assert not layer & {"moto", "pytest", "hypothesis", "pyspark", "ruff", "mypy", "pip", "setuptools"}
    assert packaged.with_name("deployment.zip").stat().st_size < 2_300_000
    assert packaged.with_name("layer-deployment.zip").stat().st_size < 8_000_000


def test_a_domain_is_the_apis_and_the_origin() -> None:
    made = template(stage("prod", {"domain": "q.example.com", "certificate": _CERTIFICATE, "zone": "Z1"}))
    told = made["Resources"]["RestAPI"]["Properties"]["Domain"]
    assert (told["DomainName"], told["Route53"]) == ("q.example.com", {"HostedZoneId": "Z1"})
    variables = made["Resources"]["Deliver"]["Properties"]["Environment"]["Variables"]
    assert variables["HEADRACE_ORIGIN"] == "q.example.com"


def test_an_api_may_be_private_logged_and_behind_a_web_acl(tmp_path: Path) -> None:
    acl = "arn:aws:wafv2:eu-central-1:123456789012:regional/webacl/mine/0a-1b"
    options: dict[str, Any] = {
        "access_log": True,
        "web_acl": acl,
        "vpc_endpoint": "vpce-0a1b2c3d",
        "iam": True,
    }
    packaged = describe(stage("dev", options), tmp_path / "build")
    assert lint(packaged) == (0, "")
    made = resources(packaged)
    told = made["RestAPI"]["Properties"]
    assert told["EndpointConfiguration"] == {"Type": "PRIVATE", "VPCEndpointIds": ["vpce-0a1b2c3d"]}
    allowed, denied = told["DefinitionBody"]["x-amazon-apigateway-policy"]["Statement"]
    assert (allowed["Effect"], denied["Effect"]) == ("Allow", "Deny")
    assert denied["Condition"] == {"StringNotEquals": {"aws:SourceVpce": "vpce-0a1b2c3d"}}
    assert not re.search("header|query|body", told["AccessLogSetting"]["Format"].lower())
    assert made["AccessLog"]["Properties"]["LogGroupName"] == "/aws/apigateway/headrace-dev"
    assert made["WebAclAssociation"]["Properties"]["WebACLArn"] == acl
    assert_the_second_api_is_guarded_as_the_first(made, denied)


def assert_the_second_api_is_guarded_as_the_first(made: dict[str, Any], denied: dict[str, Any]) -> None:
    second = made["IamAPI"]["Properties"]
    assert second["EndpointConfiguration"] == made["RestAPI"]["Properties"]["EndpointConfiguration"]
    # One that allowed everybody would let in every signer of the account, whatever its own policies say.
    assert second["DefinitionBody"]["x-amazon-apigateway-policy"]["Statement"] == [denied]
    assert second["AccessLogSetting"] == made["RestAPI"]["Properties"]["AccessLogSetting"]
    acls = [made[name]["Properties"] for name in ("WebAclAssociation", "IamAPIWebAclAssociation")]
    assert len({each["WebACLArn"] for each in acls}) == 1
    assert "${IamAPI}/stages/${IamAPI.Stage}" in acls[1]["ResourceArn"]["Fn::Sub"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"prefix": "Headrace"}, "lower-case"),
        ({"prefix": "x" * 31}, "30"),
        ({"prefix": "a--b"}, "hyphen"),
        ({"domain": "q.example.com"}, "--certificate"),
        ({"certificate": _CERTIFICATE}, "--domain"),
        ({"domain": "https://q", "certificate": _CERTIFICATE}, "host name"),
        ({"domain": "q.example.com", "certificate": "mine"}, "ARN"),
        ({"zone": "Z1"}, "--domain"),
        ({"log_days": 8}, "one of 1, 3, 5, 7"),
        ({"calls_per_second": 0}, "from 1"),
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
    ],
)
def test_what_is_wrong_is_said_before_anything_is_made(given: dict[str, Any], told: str) -> None:
    with pytest.raises(Wrong, match=told):
        stage("dev", given)


def test_an_unknown_stage_is_told_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--stage", "staging"]) == 2
    assert "dev, prod" in capsys.readouterr().err


def test_another_folder_has_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(Wrong, match="folder of the repository"):
        stage("dev", folder=tmp_path)


def test_a_misspelt_setting_of_a_stage_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".chalice").mkdir()
    config = {"stages": {"dev": {"infra": {"log_day": 3}}}, "lambda_functions": {}}
    (tmp_path / ".chalice/config.json").write_text(json.dumps(config))
    with pytest.raises(Wrong, match="log_day is not known"):
        stage("dev", folder=tmp_path)


def test_a_function_without_a_role_makes_no_template() -> None:
    with pytest.raises(Wrong, match="no role"):
        template(Stack(stage="dev", prefix="headrace", functions=["unheard_of"]))


def test_the_architecture_page_names_the_services_that_the_stack_uses() -> None:
    options: dict[str, Any] = {"access_log": True}
    made = template(stage("prod", options))["Resources"].values()
    kinds = {each["Type"].split("::")[1] for each in made if each.get("Type", "").startswith("AWS::")}
    names = {"Events": "EventBridge", "Logs": "CloudWatch"}
    used = {names.get(kind, kind) for kind in kinds} | {"API Gateway"}  # Chalice adds that
    [named] = re.findall(r"these services of AWS: (.*)\.$", Path("docs/architecture.md").read_text(), re.M)
    assert set(named.split(", ")) == used
