"""`make verify-stage`: it finds nothing wrong with a service that is right, and what is wrong with others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import pytest

import app
from chalicelib import wiring
from chalicelib.adapters import SystemRandom
from chalicelib.domain.limits import MAX_PAGE
from chalicelib.domain.topic import Scope
from infra import names, smoke
from infra import roles as made
from infra.cli import Aws, Refused
from infra.stages import read as stage
from infra.template import StackError
from infra.verify import checks, roles
from infra.verify.__main__ import main, verify
from infra.verify.attacks import Scene
from infra.verify.http import Notes, Stage, Unreachable
from local.gateway import Answer, Gateway
from local.server import serve
from tests.support.embedded import embedded_adapters
from tests.support.http import ShiftingClock
from tests.support.push import Inbox
from tests.support.roles import _with_aws_names

TOKEN = "hr_root_abcdefghijkl1234"


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    """The URL of a service in memory."""
    deps = wiring.Deps(embedded_adapters(ShiftingClock(), SystemRandom(), invoker=Inbox()))
    deps.tokens.ensure_admin(TOKEN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "deps", lambda: deps)
        server = serve(Gateway(app.app))
        server.start()
        yield f"http://127.0.0.1:{server.port}"
        server.shutdown()


def test_the_service_as_it_is_has_no_finding_and_is_left_as_it_was(service: str) -> None:
    notes = Notes(lambda line: None)
    verify(service, "", TOKEN, notes)
    assert notes.findings == []
    assert notes.tries > 60
    assert [token.name for token, _ in wiring.deps().tokens.with_last_use(None, 100)] == ["HEADRACE_TOKEN"]
    assert wiring.deps().adapters.control.topics(None, 10) == []
    print(f"{notes.tries} tries")


def test_of_many_tokens_it_takes_away_its_own_whatever_the_others_are_called(service: str) -> None:
    tokens = wiring.deps().tokens
    others = {tokens.create("verify-stage", (Scope.PRODUCE,))[0].id for _ in range(MAX_PAGE + 1)}
    scene = Scene(Stage(service), TOKEN, "verify-few-a", "verify-few-b")
    own = {scene.make_token("produce")[1] for _ in range(3)}
    scene.tear_down()
    left = {token.id for token, _ in tokens.with_last_use(None, 1000)}
    assert left >= others
    assert not left & own
    for token_id in others:
        tokens.revoke(token_id)


class Careless:
    """Lets everybody do everything, and forgets the headers."""

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Answer:
        content = json.dumps({"token": "hr_a_b", "id": "a"}).encode()
        return 201, {"Content-Type": "application/json"}, content


def test_a_service_that_refuses_nothing_has_findings_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.verify.attacks._REVOKED_SECONDS", 0)
    monkeypatch.setattr("infra.verify.attacks.time.sleep", lambda seconds: None)
    server, notes = serve(Careless()), Notes(lambda line: None)
    server.start()
    try:
        verify(f"http://127.0.0.1:{server.port}", f"http://127.0.0.1:{server.port}", TOKEN, notes)
    finally:
        server.shutdown()
    assert len(notes.findings) > 0.9 * notes.tries


def test_where_nobody_answers_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Unreachable, match="no URL"):
        verify("", "", TOKEN, Notes(print))
    monkeypatch.setenv("HEADRACE_TOKEN", "")
    assert main(["--stage", "dev", "--no-aws", "--url", "http://127.0.0.1:9"]) == 2
    assert "HEADRACE_TOKEN" in capsys.readouterr().err
    monkeypatch.setenv("HEADRACE_TOKEN", TOKEN)
    assert main(["--stage", "dev", "--no-aws", "--url", "http://127.0.0.1:9"]) == 2
    assert "does not answer" in capsys.readouterr().err
    assert main(["--stage", "dev", "--no-aws", "--url", "http://127.0.0.1:port"]) == 2
    assert "no URL" in capsys.readouterr().err
    monkeypatch.setenv("HEADRACE_TOKEN", "hr_…")
    assert main(["--stage", "dev", "--no-aws", "--url", "http://127.0.0.1:9"]) == 2
    assert "HEADRACE_TOKEN is no token" in capsys.readouterr().err


class Iam(Aws):
    """An account whose functions have the template's roles, and a table with a secret in it."""

    account, region = "000000000000", "us-east-1"

    def __init__(self, secret: dict[str, Any], extra_action: str = "") -> None:
        self._secret, self._more = secret, extra_action
        self._statements = {
            name: resource["Properties"]["Policies"][0]["PolicyDocument"]["Statement"]
            for name in names.FUNCTIONS
            for resource in [made.roles("of-roles", "bucket", {})[made.role_id(name)]]
        }

    def ask(self, *arguments: str, check: bool = True) -> Any:
        options = dict(zip(arguments[2::2], arguments[3::2], strict=False))
        if "get-function-configuration" in arguments:
            return {"Role": options["--function-name"].removeprefix("of-roles-")}
        if "scan" in arguments:
            return {"Items": [{"secrets": {"L": [{"M": self._secret}]}}]}
        entries = arguments[arguments.index("--context-entries") + 1 :]
        context = dict(part.split(",")[0::2] for part in entries)
        keys = {name.partition("=")[2]: value.partition("=")[2] for name, value in context.items()}
        role, action = options["--policy-source-arn"], options["--action-names"]
        is_allowed = action == self._more or any(
            self._matches(statement, action, options["--resource-arns"], keys)
            for statement in self._statements[role]
        )
        return {"EvaluationResults": [{"EvalDecision": "allowed" if is_allowed else "implicitDeny"}]}

    @staticmethod
    def _matches(statement: dict[str, Any], action: str, resource: str, keys: dict[str, str]) -> bool:
        places = [_with_aws_names(each["Fn::Sub"]) for each in statement["Resource"] if "Fn::Sub" in each]
        conditions = statement.get("Condition", {})
        partitions = conditions.get("ForAllValues:StringLike", {}).get("dynamodb:LeadingKeys", ["*"])
        return (
            action in statement["Action"]
            and any(fnmatchcase(resource, place) for place in places)
            and any(fnmatchcase(keys.get("dynamodb:LeadingKeys", ""), each) for each in partitions)
            and all(keys.get(name) == value for name, value in conditions.get("StringEquals", {}).items())
        )


def test_roles_are_judged_as_aws_has_them() -> None:
    notes = Notes(lambda line: None)
    roles.verify(Iam({"c": {"S": "AQID"}, "f": {"S": "mark"}}), "of-roles", notes)
    assert notes.findings == []
    assert notes.tries == 3 * 5 + 2 * len(names.FUNCTIONS) + 1


def test_a_role_that_may_more_and_a_plain_secret_are_found() -> None:
    notes = Notes(lambda line: None)
    roles.verify(Iam({"hex": {"S": "0f" * 32}}, extra_action="dynamodb:PutItem"), "of-roles", notes)
    assert "deliver does not make a token" in notes.findings
    assert "secrets in rows are encrypted (1)" in notes.findings


IN_ORDER: dict[str, Any] = {
    "describe-alarms": {"MetricAlarms": []},
    "get-function-configuration": {"Runtime": "python3.11", "State": "Active"},
    "get-function-recursion-config": {"RecursiveLoop": "Allow"},
    "list-event-source-mappings": {"EventSourceMappings": [{"State": "Enabled", "EventSourceArn": "arn"}]},
    "get-queue-attributes": {"Attributes": {"ApproximateNumberOfMessages": "0"}},
    "list-subscriptions-by-topic": {
        "Subscriptions": [{"SubscriptionArn": "arn:1", "Endpoint": "a@b.example"}]
    },
    "get-metric-statistics": {"Datapoints": [{"Sum": 4.0}]},
    "list-targets-by-rule": {"Targets": [{"Id": "target"}]},
    "get-trigger": {"Trigger": {"State": "ACTIVATED"}},
}
OUT_OF_ORDER: dict[str, tuple[Any, str]] = {
    "describe-alarms": ({"MetricAlarms": [{"AlarmName": "p-MoverStopped"}]}, "p-MoverStopped"),
    "get-function-configuration": ({"Runtime": "python3.9", "State": "Active"}, "python3.9"),
    "get-function-recursion-config": ({"RecursiveLoop": "Terminate"}, "-deliver"),
    "list-event-source-mappings": (
        {"EventSourceMappings": [{"State": "Disabled", "EventSourceArn": "arn"}]},
        "Disabled",
    ),
    "get-queue-attributes": ({"Attributes": {"ApproximateNumberOfMessages": "3"}}, "3 messages"),
    "list-subscriptions-by-topic": (
        {"Subscriptions": [{"SubscriptionArn": "PendingConfirmation", "Endpoint": "a@b.example"}]},
        "a@b.example",
    ),
    "get-metric-statistics": ({"Datapoints": []}, "has no point"),
    "list-targets-by-rule": ({"Targets": []}, "archived"),
    "get-trigger": (Refused("AccessDenied"), "does not say: AccessDenied"),
}


class Account(Aws):
    """Answers each reading command as it is told."""

    account, region = "000000000000", "us-east-1"

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers

    def ask(self, *arguments: str, check: bool = True) -> Any:
        answer = self._answers[arguments[1]]
        if isinstance(answer, Refused):
            raise answer
        return answer


@pytest.mark.parametrize("command", [None, *OUT_OF_ORDER])
def test_what_is_not_in_order_in_the_account_is_named(
    command: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_METRIC_SECONDS", -1)
    lines: list[str] = []
    notes = Notes(lines.append)
    wrong, text = OUT_OF_ORDER[command] if command else (None, "")
    answers = IN_ORDER | ({command: wrong} if command else {})
    outputs = {"FailureQueueUrl": "https://q", "AlarmTopicArn": "arn:t"}
    checks.of_aws(Account(answers), stage("prod"), outputs, notes)
    assert notes.tries == len(IN_ORDER)
    assert len(notes.findings) == bool(command)
    assert not command or text in next(line for line in lines if line.startswith("FINDING"))


def test_a_deployment_sends_one_message_through_the_stage(service: str) -> None:
    assert smoke.is_healthy(Stage(service))
    smoke.message_in_and_out(Stage(service), TOKEN)
    assert wiring.deps().adapters.control.topics(None, 10) == []
    with pytest.raises(StackError, match="401"):
        smoke.message_in_and_out(Stage(service), "hr_wrong_abcdefghijkl1234")


def test_an_origin_that_the_stage_should_let_in_and_does_not_is_found(service: str) -> None:
    notes, scene = Notes(lambda line: None), Scene(Stage(service), TOKEN, "verify-page-a", "verify-page-b")
    scene.set_up()
    checks.by_http(scene, notes, ["https://app.example.com"])
    scene.tear_down()
    assert notes.findings == ["a page of https://app.example.com by CORS"]
