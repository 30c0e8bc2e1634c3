"""What only AWS can tell about a stage that is in order: how API Gateway carries calls, and what runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from infra import names
from infra.cli import Aws, Refused
from infra.functions import RECURSIVE
from infra.template import Stack

from .attacks import Scene
from .http import Notes

_METRIC_SECONDS = 180.0  # from a log line in CloudWatch's format to its metric
_PAUSE_SECONDS = 15.0
_KEY = "Größe-東京"
_LARGE_BYTES = 7_000_000


def by_http(scene: Scene, notes: Notes, origins: Sequence[str] = ()) -> None:
    """How calls are carried. It does no harm: all is in the run's own topics. `origins`: the stage's `cors_origins`."""
    for origin in (*origins, "https://other.example"):
        answer = scene.call("OPTIONS", "/v1/topics", token="", headers=[("Origin", origin)])
        allowed = answer.headers.get("access-control-allow-origin")
        expected = origin if origin in origins else None
        notes.expect(f"a page of {origin} by CORS", allowed == expected, f"{answer.status} {allowed}")
    refusal = scene.call("GET", "/v1/topics", token="")
    what = "without a token: 401 as problem+json, with WWW-Authenticate"
    notes.expect_status(what, refusal, 401, is_problem=True)
    scheme = refusal.headers.get("www-authenticate")
    notes.expect("… names the scheme", scheme == "Bearer", str(refusal.headers))
    unknown = scene.call("GET", "/v1/nothing/here", token="")
    notes.expect_status("an unknown path: 404 as problem+json", unknown, 404, is_problem=True)
    notes.expect_status("HEAD on the health check: 200", scene.call("HEAD", "/v1/health", token=""), 200)
    large = scene.call("POST", f"/v1/publish/{scene.topic}", b"x" * _LARGE_BYTES)
    notes.expect_status("a body of 7 MB: 413 as problem+json", large, 413, is_problem=True)
    headers = [("Headrace-Key", _KEY.encode().decode("latin-1")), ("Content-Type", "text/plain")]
    sent = scene.call("POST", f"/v1/publish/{scene.topic}", b"keyed", headers=headers)
    found = scene.call("GET", f"/v1/topics/{scene.topic}/messages?key={quote(_KEY)}")
    ids = [each["id"] for each in (found.json or {}).get("items", ())]
    detail = f"{sent.status} {sent.text}; {found.status} {found.text}"
    notes.expect("a Headrace-Key in UTF-8 finds its message", (sent.json or {}).get("id") in ids, detail)
    many = [f"{n:02}".ljust(128, "x") for n in range(32)]
    token, _ = scene.make_token("produce", topics=many, groups=many)
    answer = scene.call("GET", "/v1/ladders/jmq", token=token)
    notes.expect_status("a token of 32 topics and 32 groups: 200", answer, 200)


def of_aws(aws: Aws, stack: Stack, outputs: Mapping[str, str], notes: Notes) -> None:
    """What runs, by reading commands of the AWS CLI. Call it after the requests: they are counted. A check returns what
    is not as it should be."""
    checks: list[tuple[str, Callable[[], str]]] = [
        ("no alarm is raised", lambda: _alarms(aws, stack.prefix)),
        (f"every function runs Python {stack.python}", lambda: _functions(aws, stack)),
        ("functions that start one another may", lambda: _loops(aws, stack.prefix)),
        ("streams and wake-ups are read", lambda: _mappings(aws, stack.prefix)),
        ("the queue of failures is empty", lambda: _failures(aws, outputs["FailureQueueUrl"])),
        ("all addresses for alarms have agreed", lambda: _subscriptions(aws, outputs["AlarmTopicArn"])),
        ("log lines become metrics", lambda: _metrics(aws, stack.prefix)),
    ]
    if stack.glue:
        checks.append(("the archive's rules have targets", lambda: _rules(aws, stack.prefix)))
    if stack.archives:
        checks.append(("the archive runs each night", lambda: _trigger(aws, stack.prefix)))
    for name, check in checks:
        try:
            finding = check()
        except Refused as error:
            finding = f"AWS does not say: {error}"
        notes.expect(name, not finding, finding)


def _alarms(aws: Aws, prefix: str) -> str:
    state = ("--alarm-name-prefix", f"{prefix}-", "--state-value", "ALARM")
    answer = aws.ask("cloudwatch", "describe-alarms", *state) or {}
    return ", ".join(each["AlarmName"] for each in answer.get("MetricAlarms", ()))


def _functions(aws: Aws, stack: Stack) -> str:
    wrong = []
    for name in stack.functions:
        function = names.function(stack.prefix, name)
        found = aws.ask("lambda", "get-function-configuration", "--function-name", function)
        if (found["Runtime"], found["State"]) != (f"python{stack.python}", "Active"):
            wrong.append(f"{function}: {found['Runtime']}, {found['State']}")
    return ", ".join(wrong)


def _loops(aws: Aws, prefix: str) -> str:
    functions = [names.function(prefix, name) for name in RECURSIVE]
    command = ("lambda", "get-function-recursion-config", "--function-name")
    return ", ".join(name for name in functions if aws.ask(*command, name)["RecursiveLoop"] != "Allow")


def _mappings(aws: Aws, prefix: str) -> str:
    """All of the stage's functions, which are known by their names alone."""
    wrong = []
    for name in ("route", "journal", "mover"):
        function = ("--function-name", names.function(prefix, name))
        for each in aws.ask("lambda", "list-event-source-mappings", *function)["EventSourceMappings"]:
            if each["State"] != "Enabled":
                wrong.append(f"{each['EventSourceArn']} for {name}: {each['State']}")
    return ", ".join(wrong)


def _failures(aws: Aws, queue: str) -> str:
    wanted = ("--queue-url", queue, "--attribute-names", "ApproximateNumberOfMessages")
    count = aws.ask("sqs", "get-queue-attributes", *wanted)["Attributes"]["ApproximateNumberOfMessages"]
    return "" if int(count) == 0 else f"{count} messages: read them"


def _subscriptions(aws: Aws, topic: str) -> str:
    answer = aws.ask("sns", "list-subscriptions-by-topic", "--topic-arn", topic)
    waiting = (each for each in answer["Subscriptions"] if each["SubscriptionArn"] == "PendingConfirmation")
    return ", ".join(each["Endpoint"] for each in waiting)


def _metrics(aws: Aws, prefix: str) -> str:
    """The messages of this run."""
    now = datetime.now(UTC)
    start, end = now - timedelta(minutes=15), now + timedelta(hours=1)
    span = ("--start-time", f"{start:%FT%TZ}", "--end-time", f"{end:%FT%TZ}")
    of = ("--dimensions", f"Name=service,Value={prefix}", "--period", "60", "--statistics", "Sum")
    which = ("--namespace", "Headrace", "--metric-name", "Accepted")
    until = time.monotonic() + _METRIC_SECONDS
    while True:
        answer: Any = aws.ask("cloudwatch", "get-metric-statistics", *which, *of, *span)
        if sum(each["Sum"] for each in answer["Datapoints"]):
            return ""
        if time.monotonic() > until:
            return f"Accepted has no point for {prefix}"
        time.sleep(_PAUSE_SECONDS)


def _rules(aws: Aws, prefix: str) -> str:
    rules = [names.end_rule(prefix, outcome) for outcome in (names.FAILED, names.ARCHIVED)]
    command = ("events", "list-targets-by-rule", "--rule")
    return ", ".join(rule for rule in rules if not aws.ask(*command, rule)["Targets"])


def _trigger(aws: Aws, prefix: str) -> str:
    state = aws.ask("glue", "get-trigger", "--name", f"{prefix}-archive")["Trigger"]["State"]
    return "" if state == "ACTIVATED" else f"the trigger is {state}"
