"""What each function has beside its code: whose role and log it uses, what starts it, and what becomes of failures."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bench.handler import MEMORIES, on_lambda
from chalicelib import adapters
from infra import names, package, roles
from infra.api import RECEIVE
from infra.functions import address_id, function_id
from infra.roles import STREAMS, role_id
from infra.stages import CONFIG, read
from infra.template import StackError, template

STACK = read("prod", {"prefix": "hr", "url": True})
PERIOD_SECONDS = dict.fromkeys(names.EACH_MINUTE, 60) | dict.fromkeys(names.SELDOM, 6 * 3600)
SWEEP_SECONDS = 300  # by then the sweep has found what a lost wake-up was about

every_function = pytest.mark.parametrize("name", names.FUNCTIONS)


@cache
def resources() -> dict[str, Any]:
    """All resources of the stack."""
    stack_resources: dict[str, Any] = template(STACK)["Resources"]
    return stack_resources


def properties(name: str) -> dict[str, Any]:
    fields: dict[str, Any] = resources()[function_id(name)]["Properties"]
    return fields


def grants(name: str, service: str) -> dict[str, set[str]]:
    """What a function's role allows of a service: for each action its resources."""
    role = resources()[role_id(name)]["Properties"]
    resources_by_action: dict[str, set[str]] = {}
    for statement in role["Policies"][0]["PolicyDocument"]["Statement"]:
        assert statement["Effect"] == "Allow"
        places = statement["Resource"] if isinstance(statement["Resource"], list) else ["*"]
        for action in statement["Action"]:
            if action.startswith(f"{service}:"):
                texts = (each.get("Fn::Sub") or json.dumps(each) for each in map(_mapping, places))
                resources_by_action.setdefault(action, set()).update(texts)
    return resources_by_action


def _mapping(resource: Any) -> Mapping[str, Any]:
    return resource if isinstance(resource, dict) else {"Fn::Sub": resource}


@every_function
def test_a_function_has_its_own_role_which_only_lambda_takes(name: str) -> None:
    assert properties(name)["Role"] == {"Fn::GetAtt": [role_id(name), "Arn"]}
    [trust] = resources()[role_id(name)]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert (trust["Effect"], trust["Principal"], trust["Action"]) == (
        "Allow",
        {"Service": "lambda.amazonaws.com"},
        "sts:AssumeRole",
    )


@every_function
def test_a_function_writes_its_own_log_and_makes_none(name: str) -> None:
    logging = properties(name)["LoggingConfig"]
    group = resources()[logging["LogGroup"]["Ref"]]["Properties"]
    assert group == {"LogGroupName": f"/aws/lambda/hr-{name}", "RetentionInDays": STACK.log_days}
    streams = {names.arn("logs", f"log-group:{group['LogGroupName']}:log-stream:*")}
    assert grants(name, "logs") == {"logs:CreateLogStream": streams, "logs:PutLogEvents": streams}


@every_function
def test_a_function_is_told_the_names_of_what_is_deployed(name: str) -> None:
    variables = properties(name)["Environment"]["Variables"]
    assert variables["HEADRACE_PREFIX"] == "hr"
    assert variables["HEADRACE_ACCOUNT"] == {"Ref": "AWS::AccountId"}
    assert variables["HEADRACE_BUCKET"] == resources()["Bucket"]["Properties"]["BucketName"]
    (key,) = (logical for logical, each in resources().items() if each.get("Type") == "AWS::KMS::Key")
    assert variables["HEADRACE_KMS_KEY"] == {"Fn::GetAtt": [key, "Arn"]}
    for function in ("deliver", "check", "checkpoint", "expire"):
        assert variables[f"HEADRACE_{function.upper()}"] == properties(function)["FunctionName"]
    assert variables["HEADRACE_ALARM_TOPIC"] == {"Ref": "AlarmTopic"}
    assert variables["HEADRACE_WAKES"] == {"Ref": "WakeQueue"}
    assert variables.keys() >= {"HEADRACE_ORIGIN", "HEADRACE_ARCHIVE", "POWERTOOLS_SERVICE_NAME"}


def test_the_sweep_alone_sends_reports_to_the_topic_of_the_alarms() -> None:
    topic = resources()["AlarmTopic"]["Properties"]["TopicName"]
    assert grants("sweep", "sns") == {"sns:Publish": {names.arn("sns", topic)}}
    assert [name for name in names.FUNCTIONS if grants(name, "sns")] == ["sweep"]


def test_the_layer_has_the_descriptions_of_all_services_that_are_asked() -> None:
    asked_services = re.findall(r'clients\.get\("(\w+)"', Path(adapters.__file__).read_text())
    assert "sns" in asked_services
    assert set(asked_services) <= set(package._SERVICES)


def test_memory_is_chosen_by_the_computed_curve() -> None:
    page = Path("docs/deploy.md").read_text()
    rows = re.findall(r"^\| (?:produce|receive|ack) one \| ([\d.]+) ms \| (\d) \| (.*) \|$", page, re.M)
    assert len(rows) == 3
    for cpu_ms, round_trips, cells in rows:
        curve = (on_lambda(float(cpu_ms), float(round_trips), memory) for memory in MEMORIES)
        assert cells.split(" | ") == [f"{ms:.0f} ms, {usd:.2f}" for ms, usd in curve]
    config = json.loads(CONFIG.read_text())
    assert config["lambda_architecture"] == "arm64"
    chosen = {name: each.get("lambda_memory_size") for name, each in config["lambda_functions"].items()}
    assert chosen["api_handler"] == chosen["api_url"] == 1024
    assert chosen["receive"] == chosen["receive_url"] == 256


# Function URLs.


def test_a_stage_has_function_urls_if_it_wants_them_which_are_closed_as_the_api_is() -> None:
    without = template(read("prod"))
    assert not {"ApiUrl", "ReceiveUrl"} & without["Resources"].keys()
    assert not [each for each in without["Resources"].values() if each.get("Type") == "AWS::Lambda::Url"]
    for name, output in ((names.API_URL, "CallsURL"), (names.RECEIVE_URL, "ReceiveURL")):
        assert output not in without["Outputs"]
        address = address_id(name)
        assert template(STACK)["Outputs"][output]["Value"] == {"Fn::GetAtt": [address, "FunctionUrl"]}
        assert resources()[address]["Properties"] == {
            "TargetFunctionArn": {"Ref": function_id(name)},
            "AuthType": "NONE",
        }
        permissions = [
            each["Properties"]
            for each in resources().values()
            if each.get("Type") == "AWS::Lambda::Permission"
            and each["Properties"]["FunctionName"] == {"Ref": function_id(name)}
        ]
        assert {each["Action"] for each in permissions} == {
            "lambda:InvokeFunctionUrl",
            "lambda:InvokeFunction",
        }
        assert all(each.get("FunctionUrlAuthType") or each["InvokedViaFunctionUrl"] for each in permissions)
        closed = template(read("prod", {"url": True, "calls_per_second": 0}))["Resources"]
        assert closed[function_id(name)]["Properties"]["ReservedConcurrentExecutions"] == 0
        assert "ReservedConcurrentExecutions" not in properties(name), "as the configuration says"


@pytest.mark.parametrize("fence", ["web_acl", "vpc_endpoint"])
def test_what_stands_before_the_api_is_not_passed_by_a_function_url(fence: str) -> None:
    acl = "arn:aws:wafv2:eu-central-1:123456789012:regional/webacl/mine/0a1b2c3d"
    fences = {"web_acl": acl, "vpc_endpoint": "vpce-0a1b2c3d4e"}
    with pytest.raises(StackError, match="public addresses"):
        read("dev", {"url": True, fence: fences[fence]})


def test_receives_have_a_function_of_their_own(template_file: Path) -> None:
    """API Gateway calls it for that call only, by each of its APIs."""
    packaged = json.loads(template_file.read_text())["Resources"]
    paths = packaged["RestAPI"]["Properties"]["DefinitionBody"]["paths"]
    integrations = {
        path: operation["x-amazon-apigateway-integration"]["uri"]["Fn::Sub"]
        for path, operations in paths.items()
        for operation in operations.values()
    }
    assert [path for path, uri in integrations.items() if "${Receive.Arn}" in uri] == [RECEIVE]
    [source] = packaged["ReceivePermission"]["Properties"]["SourceArn"].values()
    assert source.endswith("${RestAPI}/*/POST/v1/topics/*/groups/*/receive")


# The mover's wake-ups.


WAKE_QUEUE = names.arn("sqs", "hr-wakes")


def test_the_mover_alone_takes_wake_ups_and_who_stores_timers_sends_them() -> None:
    senders = {n for n in names.FUNCTIONS if WAKE_QUEUE in grants(n, "sqs").get("sqs:SendMessage", ())}
    assert senders == {
        *("api", "api_url", "receive", "receive_url"),
        *("deliver", "check", "mover", "assign", "expire"),
    }
    for action in ("sqs:ReceiveMessage", "sqs:DeleteMessage"):
        assert {n for n in names.FUNCTIONS if action in grants(n, "sqs")} == {"mover"}
    (queues, policy) = resources()["WakeQueuePolicy"]["Properties"].values()
    assert queues == [{"Ref": "WakeQueue"}]
    arns = [{"Fn::GetAtt": [role_id(name), "Arn"]} for name in roles.WAKES]
    denials = {each["Action"]: each["Condition"] for each in policy["Statement"]}
    assert {each["Effect"] for each in policy["Statement"]} == {"Deny"}
    mover = {"ArnNotEquals": {"aws:PrincipalArn": {"Fn::GetAtt": ["MoverRole", "Arn"]}}}
    assert denials == {
        "sqs:SendMessage": {"ArnNotEquals": {"aws:PrincipalArn": arns}},
        "sqs:ReceiveMessage": mover,
        "sqs:DeleteMessage": mover,
        "sqs:*": {"Bool": {"aws:SecureTransport": "false"}},
    }


def test_wake_ups_start_two_movers_at_once_and_are_given_up_after_some_tries() -> None:
    queue, mapping = resources()["WakeQueue"]["Properties"], resources()["MoverFromWakes"]["Properties"]
    assert (mapping["BatchSize"], mapping["ScalingConfig"]) == (10, {"MaximumConcurrency": 2})
    assert mapping["EventSourceArn"] == {"Fn::GetAtt": ["WakeQueue", "Arn"]}
    assert queue["SqsManagedSseEnabled"]
    seconds = json.loads(CONFIG.read_text())["lambda_functions"]["mover"]["lambda_timeout"]
    assert queue["VisibilityTimeout"] == 6 * seconds, "as Lambda advises"
    tries = queue["RedrivePolicy"]["maxReceiveCount"]
    assert queue["MessageRetentionPeriod"] > 900 + tries * queue["VisibilityTimeout"], (
        "else they are lost unseen"
    )
    assert queue["RedrivePolicy"]["deadLetterTargetArn"] == {"Fn::GetAtt": ["FailedWakeQueue", "Arn"]}
    alarm = resources()["FailedWakesAlarm"]["Properties"]
    assert alarm["Dimensions"][0]["Value"] == resources()["FailedWakeQueue"]["Properties"]["QueueName"]


# What is given up.


@every_function
def test_what_nobody_waits_for_is_kept_when_it_is_given_up(name: str) -> None:
    """A schedule's run is not tried again: the next one does its work. A wake-up is, while it is worth something."""
    queue = resources()["FailureQueue"]["Properties"]
    assert queue["SqsManagedSseEnabled"]
    assert queue["MessageRetentionPeriod"] == 14 * 86_400, "as long as a queue keeps anything"
    targets = grants(name, "sqs").get("sqs:SendMessage", set()) - {WAKE_QUEUE}
    if name in names.ANSWERING:
        assert "EventInvokeConfig" not in properties(name)
        assert targets == set()
        return
    assert targets == {names.arn("sqs", queue["QueueName"])}
    if name in STREAMS:  # a stream's mapping gives up, see below
        assert "EventInvokeConfig" not in properties(name)
        return
    config = properties(name)["EventInvokeConfig"]
    assert config["DestinationConfig"]["OnFailure"]["Destination"] == {"Fn::GetAtt": ["FailureQueue", "Arn"]}
    assert config["MaximumRetryAttempts"] == (0 if name in PERIOD_SECONDS else 2)
    assert 60 <= config["MaximumEventAgeInSeconds"] <= PERIOD_SECONDS.get(name, SWEEP_SECONDS)


# Streams.

MAPPINGS = ("RouteFromLog", "JournalFromLog", "JournalFromTraces")
every_mapping = pytest.mark.parametrize("logical", MAPPINGS)
ROW, META = "0", "-1"
"""Offsets, as records of the log's stream have them: of a segment, and of the row that counts a shard's offsets."""


def mapping_of(logical: str) -> dict[str, Any]:
    mapping = resources()[logical]
    assert mapping["Type"] == "AWS::Lambda::EventSourceMapping"
    fields: dict[str, Any] = mapping["Properties"]
    return fields


def passes(pattern: Any, value: Any) -> bool:
    """Does an event pass a filter, by Lambda's rules for what filters of ours use? Texts are compared as they are."""
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(passes(pattern[key], value.get(key)) for key in pattern)
    return any(
        value is not None and value not in rule["anything-but"] if isinstance(rule, dict) else value == rule
        for rule in pattern
    )


def wakes(logical: str, event: str, offset: str) -> bool:
    filters = mapping_of(logical).get("FilterCriteria", {"Filters": [{"Pattern": "{}"}]})["Filters"]
    record = {"eventName": event, "dynamodb": {"Keys": {"s": {"S": "t:u/0"}, "o": {"N": offset}}}}
    return any(passes(json.loads(each["Pattern"]), record) for each in filters)


def test_new_rows_of_the_log_wake_route_and_nothing_else_does() -> None:
    """Each append writes the row of a shard, too: with that one the bill of `route` would double."""
    events = [(event, offset) for event in ("INSERT", "MODIFY", "REMOVE") for offset in (ROW, META)]
    assert [each for each in events if wakes("RouteFromLog", *each)] == [("INSERT", ROW)]


@pytest.mark.parametrize("logical", ["JournalFromLog", "JournalFromTraces"])
def test_the_journal_gets_all_that_is_written_and_not_what_expires(logical: str) -> None:
    events = ("INSERT", "MODIFY", "REMOVE")
    assert [event for event in events if wakes(logical, event, ROW)] == ["INSERT", "MODIFY"]
    assert all(wakes(logical, event, META) for event in ("INSERT", "MODIFY"))


def test_each_stream_leads_where_it_should() -> None:
    assert {
        (each["FunctionName"]["Ref"], each["EventSourceArn"]["Fn::GetAtt"][0])
        for each in map(mapping_of, MAPPINGS)
    } == {(function_id(name), f"{names.logical(noun)}Table") for name in STREAMS for noun in STREAMS[name]}
    for name, nouns in STREAMS.items():
        streams = {json.dumps({"Fn::GetAtt": [f"{names.logical(noun)}Table", "StreamArn"]}) for noun in nouns}
        operations = ("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams")
        tables = grants(name, "dynamodb")
        assert {action: tables[f"dynamodb:{action}"] for action in operations} == dict.fromkeys(
            operations, streams
        )


@every_mapping
def test_a_bad_record_does_not_take_its_neighbours_along(logical: str) -> None:
    mapping = mapping_of(logical)
    assert mapping["BisectBatchOnFunctionError"]
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["DestinationConfig"]["OnFailure"]["Destination"] == {"Fn::GetAtt": ["FailureQueue", "Arn"]}
    assert mapping["MaximumRetryAttempts"] > 0, "-1 would be for ever"
    assert 0 < mapping["MaximumRecordAgeInSeconds"] < 86_400, "the stream forgets after a day"


def test_wake_ups_come_at_once_and_what_is_kept_comes_in_large_batches() -> None:
    wake = mapping_of("RouteFromLog")
    assert "MaximumBatchingWindowInSeconds" not in wake
    assert wake["StartingPosition"] == "LATEST", "an old wake-up is worth nothing"
    assert wake["MaximumRecordAgeInSeconds"] <= SWEEP_SECONDS
    assert wake["MaximumRetryAttempts"] < 10
    for logical in ("JournalFromLog", "JournalFromTraces"):
        keep = mapping_of(logical)
        assert keep["StartingPosition"] == "TRIM_HORIZON", "every record counts"
        assert keep["MaximumRecordAgeInSeconds"] >= 3600, "an outage of S3 loses none"
        assert keep["MaximumRetryAttempts"] >= 1000
        assert keep["BatchSize"] > wake["BatchSize"]
        assert keep["MaximumBatchingWindowInSeconds"] >= 10


# What stays in the bucket.


def rules() -> dict[str, dict[str, Any]]:
    rules = resources()["Bucket"]["Properties"]["LifecycleConfiguration"]["Rules"]
    return {rule["Id"]: rule for rule in rules}


def test_of_what_users_sent_nothing_goes_by_age_and_all_can_be_read_at_once() -> None:
    assert all(rule["Status"] == "Enabled" for rule in rules().values())
    expiring_prefixes = {rule["Prefix"] for rule in rules().values() if "ExpirationInDays" in rule}
    assert expiring_prefixes == {"athena/"}, "results of queries, which can be asked again"
    transitions = {rule["Prefix"]: step for rule in rules().values() for step in rule.get("Transitions", ())}
    assert transitions.keys() == {"bodies/", "journal/"}
    for step in transitions.values():
        assert step["StorageClass"] in ("INTELLIGENT_TIERING", "GLACIER_IR"), "no wait for a read"
        assert step["TransitionInDays"] >= 30
    assert transitions["journal/"]["TransitionInDays"] >= 90, "Glacier charges ninety days at least"


# The key of secrets.


def test_the_keys_policy_leaves_everything_to_the_accounts_own() -> None:
    (key,) = (each["Properties"] for each in resources().values() if each.get("Type") == "AWS::KMS::Key")
    assert key["EnableKeyRotation"]
    assert {"Key": "headrace", "Value": "hr"} in key["Tags"], "roles find it by that"
    [statement] = key["KeyPolicy"]["Statement"]
    assert statement["Principal"] == {"AWS": {"Fn::Sub": "arn:${AWS::Partition}:iam::${AWS::AccountId}:root"}}
