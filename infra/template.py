"""The whole of what is merged into Chalice's template."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import alarms, api, bucket, dashboard, functions, glue, keys, names, roles, tables, wakes
from .resources import policy, resource

_PREFIX = re.compile(r"[a-z](?:-?[a-z0-9]){1,29}")
_DOMAIN = re.compile(r"(?=.{4,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}")
_CERTIFICATE = re.compile(r"arn:aws[a-z-]*:acm:[a-z0-9-]+:[0-9]{12}:certificate/[0-9a-f-]+")
_WEB_ACL = re.compile(r"arn:aws[a-z-]*:wafv2:[a-z0-9-]+:[0-9]{12}:regional/webacl/[\w-]+/[0-9a-f-]+")
_VPC_ENDPOINT = re.compile(r"vpce-[0-9a-f]{8,17}")
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
_LOG_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)
_LEAST_ARCHIVE_DAYS = 30
ALARMS = "AlarmTopic"
ALWAYS, IF_POSSIBLE = "always", "if_possible"


class StackError(ValueError):
    """The stack cannot be described, or worked on, like this; the text says what to change."""


@dataclass(frozen=True)
class Stack:
    """The parameters of one stack."""

    stage: str
    prefix: str
    functions: Sequence[str]
    """The functions that app.py has."""
    tracing: bool = False
    log_days: int = 14
    calls_per_second: int = 1000
    """How many API Gateway lets through of each method, best effort; at once, after a pause, as many."""
    anonymous_per_second: int = 50
    """The same for each call that needs no token."""
    iam: bool = False
    """Is there an API for callers who sign with SigV4, too?"""
    url: bool = False
    """Are there function URLs, too: one for calls, one for receives?"""
    domain: str = ""
    certificate: str = ""
    zone: str = ""
    email: str = ""
    few_alarms: bool = False
    """Has it six alarms only (infra/alarms.py)?"""
    budget_usd: int = 100
    """With `email`: how much it may cost in a month before AWS writes a mail."""
    reserve: str = IF_POSSIBLE
    """Where the account lends too little for the functions' reservations: ALWAYS refuses, IF_POSSIBLE does without."""
    access_log: bool = False
    """Does API Gateway write a line for each call?"""
    web_acl: str = ""
    """The ARN of a web ACL (WAF) that is to stand before the API."""
    vpc_endpoint: str = ""
    """The VPC endpoint that alone leads to the API; empty: the API is public."""
    archive: bool = False
    """Do the archive's jobs run by themselves?"""
    workers: str = "G.1X"
    """The type of the workers of the archive's job, at most how many there are, and whether it runs on spare capacity,
    for less money and perhaps later."""
    most_workers: int = 2
    flex: bool = False
    archive_days: int | None = None
    """How long the archive and the journal stay; None: for ever."""
    timer_fragments: Sequence[int] = (8,)
    """How many fragments of timers there are; and behind it, how many there were, while timers are left from then."""
    firings_per_second: Sequence[int] = (100, 1000)
    """How many messages a second the schedules of one topic may send, and all."""
    python: str = "3.11"
    """The version that Lambda runs, whichever packages it."""
    report_lines: bool = False
    """Does Lambda log a line for each run: its time, memory and cold start?"""
    cors_origins: Sequence[str] = ()
    """The origins of pages whose scripts may call the API."""
    glue: str = ""
    """A digest of the archive's jobs; empty where there are none."""

    @property
    def glue_key(self) -> str:
        """Where the archive's jobs are in the bucket for what is deployed."""
        return f"{self.prefix}/glue-{self.glue}"

    @property
    def parts(self) -> dict[str, bool]:
        """What alarms depend on: is an archive made, is there a second API, are a few alarms enough?"""
        return {"archives": self.archives, "iam": self.iam, "few": self.few_alarms}

    @property
    def archives(self) -> bool:
        """Is there an archive that is made each night?"""
        return self.archive and bool(self.glue)

    def __post_init__(self) -> None:
        for name in ("domain", "certificate", "zone", "email", "web_acl", "vpc_endpoint"):
            text = getattr(self, name)
            if text and not isinstance(text, str):
                raise StackError(f"{name} must be a text, not {text!r}.")
        if not isinstance(self.prefix, str) or not _PREFIX.fullmatch(self.prefix):
            raise StackError(
                f"The prefix {self.prefix!r} will not do: 2 to 30 lower-case letters, digits and single hyphens, "
                "a letter first, no hyphen last. Names of tables, functions and the bucket begin with it."
            )
        if self.log_days not in _LOG_DAYS:
            raise StackError(
                f"log_days must be one of {', '.join(map(str, _LOG_DAYS))}, not {self.log_days!r}."
            )
        for name, least in (
            ("calls_per_second", 0),
            ("anonymous_per_second", 1),
            ("budget_usd", 1),
            ("most_workers", 2),
        ):
            number = getattr(self, name)
            if not isinstance(number, int) or number < least:
                raise StackError(f"{name} must be a whole number from {least}, not {number!r}.")
        days = self.archive_days
        if days is not None and (type(days) is not int or days < _LEAST_ARCHIVE_DAYS):
            allowed = f"{_LEAST_ARCHIVE_DAYS} (a late run archives ten days back), or null: for ever"
            raise StackError(f"archive_days must be a whole number from {allowed}, not {days!r}.")
        if self.reserve not in (ALWAYS, IF_POSSIBLE):
            raise StackError(f"reserve must be {ALWAYS!r} or {IF_POSSIBLE!r}, not {self.reserve!r}.")
        if self.python not in PYTHONS:
            raise StackError(f"python must be one of {', '.join(PYTHONS)}, not {self.python!r}.")
        self._check_origins()
        if self.workers not in glue.WORKERS:
            raise StackError(f"workers must be one of {', '.join(glue.WORKERS)}, not {self.workers!r}.")
        for name in ("access_log", "archive", "few_alarms", "flex", "iam", "report_lines", "url"):
            if not isinstance(getattr(self, name), bool):
                raise StackError(f"{name} must be true or false, not {getattr(self, name)!r}.")
        counts = self.timer_fragments
        if not isinstance(counts, (list, tuple)) or not counts or not set(counts) <= {8, 16, 32, 64}:
            raise StackError(f"timer_fragments must be a list of 8, 16, 32 or 64, not {counts!r}.")
        firings = self.firings_per_second
        is_list = isinstance(firings, (list, tuple))
        if not is_list or [type(each) for each in firings] != [int, int] or min(firings) < 1:
            words = "firings_per_second must be two whole numbers from 1, of one topic and of all"
            raise StackError(f"{words}, not {firings!r}.")
        self._check_addresses()

    def _check_addresses(self) -> None:
        if self.web_acl and not _WEB_ACL.fullmatch(self.web_acl):
            raise StackError(f"web_acl must be the ARN of a regional web ACL of WAF, not {self.web_acl!r}.")
        if self.vpc_endpoint and not _VPC_ENDPOINT.fullmatch(self.vpc_endpoint):
            raise StackError(
                f"vpc_endpoint must be the id of one for execute-api, vpce-…, not {self.vpc_endpoint!r}."
            )
        if self.url and (self.vpc_endpoint or self.web_acl):
            raise StackError(
                "url makes public addresses, which neither vpc_endpoint nor web_acl protects: leave url out, or both."
            )
        if self.vpc_endpoint and self.domain:
            raise StackError(
                "A private API (vpc_endpoint) has no domain of its own here: leave one of them out."
            )
        if self.domain and not _DOMAIN.fullmatch(self.domain):
            raise StackError(f"--domain must be a host name such as queue.example.com, not {self.domain!r}.")
        if bool(self.domain) != bool(self.certificate):
            raise StackError(
                "--domain and --certificate belong together: the certificate is the ARN of one in ACM, of the "
                "stack's own region, that is valid for the domain."
            )
        if self.certificate and not _CERTIFICATE.fullmatch(self.certificate):
            raise StackError(
                f"--certificate must be the ARN of a certificate in ACM, not {self.certificate!r}."
            )
        if self.zone and not self.domain:
            raise StackError("--zone (the hosted zone of the domain's record) needs --domain.")

    def _check_origins(self) -> None:
        origins = self.cors_origins
        if not isinstance(origins, (list, tuple)) or not all(
            isinstance(each, str) and _ORIGIN.fullmatch(each) for each in origins
        ):
            raise StackError(
                f"cors_origins must be a list of exact origins, such as https://app.example.com, not {origins!r}."
            )


def template(stack: Stack) -> dict[str, Any]:
    """The merge template."""
    prefix, function_names = stack.prefix, stack.functions
    return {
        "Description": f"Headrace, stage {stack.stage}, prefix {prefix}",
        "Resources": {
            **tables.tables(prefix),
            **bucket.bucket(prefix, stack.archive_days),
            **keys.key(prefix),
            **_functions(stack),
            **functions.logs(prefix, function_names, stack.log_days),
            **functions.queries(prefix, function_names),
            **functions.failure_queue(prefix),
            **functions.stream_mappings(function_names),
            **functions.addresses(function_names),
            "ReceivePermission": functions.receive_permission(),
            **wakes.wakes(prefix, function_names),
            **_roles(stack),
            **_api(stack),
            **_layer(prefix),
            **_alarm_topic(stack),
            **_budget(stack),
            **alarms.alarms(prefix, function_names, ALARMS, **stack.parts),
            **dashboard.resource(prefix, bucket.name(prefix), function_names, **stack.parts),
            **_glue(stack),
        },
        "Outputs": _outputs(stack),
    }


def _functions(stack: Stack) -> dict[str, Any]:
    additions = functions.functions(stack.prefix, stack.functions, _settings(stack), stack.report_lines)
    if not stack.calls_per_second:  # closed, as the API is
        for name in set(names.URLS) & set(stack.functions):
            additions[functions.function_id(name)]["Properties"]["ReservedConcurrentExecutions"] = 0
    return additions


def _api(stack: Stack) -> dict[str, Any]:
    resource = api.api(stack.prefix, stack.tracing, stack.calls_per_second, _domain(stack))
    if stack.access_log:
        resource = api.with_access_log(
            resource, functions.log_group(f"/aws/apigateway/{stack.prefix}", stack.log_days)
        )
    if stack.vpc_endpoint:
        resource = api.private(resource, stack.vpc_endpoint)
    return {**resource, **(api.acl_association(stack.web_acl) if stack.web_acl else {})}


def _roles(stack: Stack) -> dict[str, Any]:
    role_ids = {roles.role_id(names.twin(name)) for name in stack.functions}
    policies = roles.roles(stack.prefix, bucket.name(stack.prefix), tables.streams(), stack.tracing)
    missing_ids = role_ids - policies.keys()
    if missing_ids:
        raise StackError(
            f"infra/roles.py has no role for a function of app.py: {', '.join(sorted(missing_ids))}."
        )
    return {logical: role for logical, role in policies.items() if logical in role_ids}


def _glue(stack: Stack) -> dict[str, Any]:
    if not stack.glue:
        return {}
    code = bucket.artifacts(), stack.glue_key
    made = glue.glue(stack.prefix, *code, stack.archive, stack.log_days, ALARMS)
    made["ArchiveJob"]["Properties"] |= {
        "WorkerType": stack.workers,
        "NumberOfWorkers": stack.most_workers,
        "ExecutionClass": "FLEX" if stack.flex else "STANDARD",
    }
    if stack.archive_days:
        made["ReportJob"]["Properties"]["DefaultArguments"]["--archive-days"] = str(stack.archive_days)
    return made


def _layer(prefix: str) -> dict[str, Any]:
    """Chalice's layer, under a name of the stack's own; a deleted stack takes it away, as SAM would not."""
    return {
        "ManagedLayer": {"Properties": {"LayerName": f"{prefix}-packages", "RetentionPolicy": "Delete"}},
    }


def _alarm_topic(stack: Stack) -> dict[str, Any]:
    """CloudWatch's alarms and EventBridge's rules of this account publish to it; functions do by their roles."""
    properties: dict[str, Any] = {"TopicName": names.alarms(stack.prefix)}
    if stack.email:
        properties["Subscription"] = [{"Protocol": "email", "Endpoint": stack.email}]
    senders = {"Service": ["cloudwatch.amazonaws.com", "events.amazonaws.com"]}
    sends = {"Effect": "Allow", "Principal": senders, "Action": "sns:Publish", "Resource": {"Ref": ALARMS}}
    own = {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
    rights = {"Topics": [{"Ref": ALARMS}], "PolicyDocument": policy({**sends, "Condition": own})}
    return {
        ALARMS: resource("AWS::SNS::Topic", **properties),
        f"{ALARMS}Policy": resource("AWS::SNS::TopicPolicy", **rights),
    }


def _budget(stack: Stack) -> dict[str, Any]:
    """AWS's own watch over the bill, by the stack's tag: a mail at four fifths of the budget, and when it is spent."""
    if not stack.email:
        return {}
    budget = {
        "BudgetName": stack.prefix,
        "BudgetType": "COST",
        "TimeUnit": "MONTHLY",
        "BudgetLimit": {"Amount": stack.budget_usd, "Unit": "USD"},
        "CostFilters": {"TagKeyValue": [f"user:{keys.TAG}${stack.prefix}"]},
    }
    subscribers = [{"SubscriptionType": "EMAIL", "Address": stack.email}]
    over = {"NotificationType": "ACTUAL", "ComparisonOperator": "GREATER_THAN", "ThresholdType": "PERCENTAGE"}
    notifications: list[dict[str, Any]] = [
        {"Notification": {**over, "Threshold": percent}, "Subscribers": subscribers} for percent in (80, 100)
    ]
    properties = {"Budget": budget, "NotificationsWithSubscribers": notifications}
    return {"Budget": resource("AWS::Budgets::Budget", **properties)}


def _settings(stack: Stack) -> dict[str, Any]:
    """The functions' environment variables, besides names."""
    # Subscribers are asked to agree to it; it is never called, and the API's own name would make a circle. It does not
    # show the account: the stack's id ends with a text of its own.
    own = {"Fn::Select": [2, {"Fn::Split": ["/", {"Ref": "AWS::StackId"}]}]}
    nowhere = {"Fn::Join": [".", [stack.prefix, own, "headrace.local"]]}
    jobs = {"HEADRACE_JOBS": "1", "HEADRACE_ARCHIVE": "1" if stack.archives else "0"}
    if stack.archive_days:
        jobs["HEADRACE_ARCHIVE_DAYS"] = str(stack.archive_days)
    iam = {"HEADRACE_IAM": "1"} if stack.iam else {}
    fragments = {"HEADRACE_FRAGMENTS": ",".join(map(str, stack.timer_fragments))}
    fragments["HEADRACE_FIRINGS"] = ",".join(map(str, stack.firings_per_second))
    own_settings = {"HEADRACE_ORIGIN": stack.domain or nowhere, "HEADRACE_ALARM_TOPIC": {"Ref": ALARMS}}
    origins = {"HEADRACE_CORS_ORIGINS": ",".join(stack.cors_origins)} if stack.cors_origins else {}
    return {**own_settings, **fragments, **iam, **origins, **(jobs if stack.glue else {})}


def _domain(stack: Stack) -> dict[str, str] | None:
    if not stack.domain:
        return None
    return {"name": stack.domain, "certificate": stack.certificate, "zone": stack.zone}


def _outputs(stack: Stack) -> dict[str, Any]:
    outputs: dict[str, Any] = {
        "Prefix": stack.prefix,
        "BucketName": {"Ref": bucket.BUCKET},
        "AlarmTopicArn": {"Ref": ALARMS},
        "FailureQueueUrl": {"Ref": functions.FAILURES},
        "DeliverRoleArn": {"Fn::GetAtt": [roles.role_id("deliver"), "Arn"]},
    }
    for name, function in (("CallsURL", names.API_URL), ("ReceiveURL", names.RECEIVE_URL)):
        if function in stack.functions:
            outputs[name] = {"Fn::GetAtt": [functions.address_id(function), "FunctionUrl"]}
    return {name: {"Value": value} for name, value in outputs.items()}
