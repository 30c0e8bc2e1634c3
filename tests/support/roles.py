"""The roles of the template that is deployed, enforced here: what a function's role does not allow is denied.

Which function is at work is a context variable; what tests do themselves, outside of any function, is allowed.
"""

from __future__ import annotations

import fnmatch
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, copy_context
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from chalicelib import functions
from chalicelib.api import http
from chalicelib.api.gateway import Front
from chalicelib.store import clients
from chalicelib.store.layout import Tables
from infra import names
from infra.api import RECEIVE
from infra.package import describe
from infra.stages import read
from local.functions import Invocations

from .push import Inbox

_AWS = {"${AWS::Partition}": "aws", "${AWS::Region}": "us-east-1", "${AWS::AccountId}": "000000000000"}
_TRANSACTED = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}
PREFIX = "of-roles"
BUCKET = f"{PREFIX}-000000000000-us-east-1"
_NOUNS = {noun: getattr(Tables(PREFIX), noun) for noun in names.TABLES}

_KIND = "kms:EncryptionContext:secret"

Asked = tuple[str, str]
"""An action and the resource it is for, both as IAM names them; of a table in parts `<resource>#<partition key>`, of a
key `<resource>#<kind of secret>`."""

_at_work: ContextVar[str | None] = ContextVar("function at work", default=None)
_guards: list[Guard] = []
"""Those that watch, the innermost last: it alone judges."""


@contextmanager
def at_work(function: str | None) -> Iterator[None]:
    """What this block asks of AWS is asked by this function."""
    token = _at_work.set(function)
    try:
        yield
    finally:
        _at_work.reset(token)


def function_at_work() -> str | None:
    """Which function asks at this moment; None: the test itself."""
    return _at_work.get()


def working_as(function: str, call: Callable[..., Any], themselves: Sequence[str] = ()) -> Callable[..., Any]:
    """The call, made by this function; but by those that make it `themselves`."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        asking = function_at_work()
        with at_work(asking if asking in themselves else function):
            return call(*args, **kwargs)

    return wrapped


class Guard:
    """Allows what roles allow; keeps what was allowed and what was denied, by function."""

    def __init__(self) -> None:
        self.used: set[tuple[str, Asked]] = set()
        self.denied: list[tuple[str, Asked]] = []
        self._statements = dict(_deployed_statements())
        self.allowed = cache(self._allowing_grants)  # asked at each call to AWS

    def without(self, function: str, action: str) -> Guard:
        """A guard under which a function's role lacks an action."""
        other = Guard()
        other._statements[function] = [
            {**statement, "Action": [a for a in statement["Action"] if a != action]}
            for statement in self._statements[function]
        ]
        return other

    def grants(self) -> Iterator[tuple[str, str, str]]:
        """Everything the roles allow but the reading of streams: function, action, resource; `#` and a pattern follow
        where only such partitions are allowed."""
        for function, statements in self._statements.items():
            for statement in statements:
                condition = statement.get("Condition", {}).get("ForAllValues:StringLike", {})
                partitions = [f"#{key}" for key in condition.get("dynamodb:LeadingKeys", ())] or [""]
                if kind := statement.get("Condition", {}).get("StringEquals", {}).get(_KIND):
                    partitions = [f"#{kind}"]
                for action, resource, part in product(statement["Action"], statement["Resource"], partitions):
                    if "Fn::Sub" in resource:
                        yield function, action, _with_aws_names(resource["Fn::Sub"]) + part

    def check(self, params: Mapping[str, Any], model: Any, **_: Any) -> None:
        """Botocore's `provide-client-params`: deny as AWS would."""
        function = _at_work.get()
        if function is None:
            return
        for demand in _demands_of(model.service_model.service_name, model.name, params):
            self._judge(function, demand, model.name)

    def start(self, function_name: str) -> None:
        """As `check`, for a function of ours that is started without AWS."""
        function = _at_work.get()
        if function is not None:
            name = names.function(PREFIX, function_name)
            self._judge(function, ("lambda:InvokeFunction", _arn("lambda", f"function:{name}")), "Invoke")

    def wake_mover(self) -> None:
        """As `check`, for a wake-up of the mover that is sent without AWS."""
        function = _at_work.get()
        if function is not None:
            self._judge(function, ("sqs:SendMessage", _arn("sqs", names.wakes(PREFIX))), "SendMessage")

    def _judge(self, function: str, demand: Asked, operation: str) -> None:
        if _guards[-1:] != [self]:
            return
        if grants := self.allowed(function, *demand):
            self.used.update((function, (demand[0], resource)) for resource in grants)
            return
        self.denied.append((function, demand))
        message = f"{function} is not authorized to perform: {demand[0]} on resource: {demand[1]}"
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": message}}, operation)

    def _allowing_grants(self, function: str, action: str, resource: str) -> Sequence[str]:
        """The resources of the grants that allow it."""
        whole = resource.partition("#")[0]
        return [
            grant
            for grant in self._resources.get((function, action), ())
            if fnmatch.fnmatchcase(resource if "#" in grant else whole, grant)
        ]

    @cached_property
    def _resources(self) -> Mapping[tuple[str, str], Sequence[str]]:
        """Those of all grants, by function and action."""
        resources: dict[tuple[str, str], list[str]] = {}
        for function, action, grant in self.grants():
            resources.setdefault((function, action), []).append(grant)
        return resources


@cache
def _deployed_statements() -> Mapping[str, list[dict[str, Any]]]:
    """The statements of each function's role, as `make package` writes them."""
    with tempfile.TemporaryDirectory() as folder:
        stack = read("dev", {"prefix": PREFIX, "url": True})
        template = describe(stack, Path(folder) / "build")
        resources = json.loads(template.read_text())["Resources"]
    roles = {}
    for resource in resources.values():
        if resource["Type"] == "AWS::Serverless::Function":
            properties = resource["Properties"]
            role = resources[properties["Role"]["Fn::GetAtt"][0]]["Properties"]
            statements = [s for policy in role["Policies"] for s in policy["PolicyDocument"]["Statement"]]
            roles[properties["FunctionName"].removeprefix(f"{PREFIX}-")] = statements
    return roles


def _arn(service: str, resource: str) -> str:
    return _with_aws_names(names.arn(service, resource))


def _with_aws_names(text: str) -> str:
    for name, value in _AWS.items():
        text = text.replace(name, value)
    return text


def _demands_of(service: str, operation: str, params: Mapping[str, Any]) -> Sequence[Asked]:
    if service == "dynamodb":
        return _demands_of_tables(operation, params)
    if service == "s3":
        if operation == "ListObjectsV2":
            return [("s3:ListBucket", f"arn:aws:s3:::{params['Bucket']}")]
        return [(f"s3:{operation}", f"arn:aws:s3:::{params['Bucket']}/{params['Key']}")]
    if service == "kms":
        context = params["EncryptionContext"]
        return [(f"kms:{operation}", _arn("kms", f"key/k#{context['secret']}"))]
    if service == "glue":
        job = params["JobName"].rpartition("-")[2]
        return [(f"glue:{operation}", _arn("glue", f"job/{PREFIX}-{job}"))]
    if service == "sns":
        return [(f"sns:{operation}", _arn("sns", names.alarms(PREFIX)))]
    return [(f"{service}:{operation}", "?")]


def _demands_of_tables(operation: str, params: Mapping[str, Any]) -> Sequence[Asked]:
    if operation == "TransactWriteItems":
        parts = [next(iter(item.items())) for item in params["TransactItems"]]
        return [(f"dynamodb:{_TRANSACTED[kind]}", _part_arn(of)) for kind, of in parts]
    if operation in ("BatchWriteItem", "BatchGetItem"):
        return [(f"dynamodb:{operation}", _table_arn(table)) for table in params["RequestItems"]]
    return [(f"dynamodb:{operation}", _part_arn(params))]


def _part_arn(params: Mapping[str, Any]) -> str:
    """The table or index of a request, and the partition where rights differ."""
    table = _table_arn(params["TableName"], params.get("IndexName"))
    return f"{table}#{_partition(params)}" if table.endswith(("-control", "-rates")) else table


def _partition(params: Mapping[str, Any]) -> str:
    """The partition key that a request names."""
    item = params.get("Key") or params.get("Item")
    if item:
        return str(item["pk" if "pk" in item else "r"]["S"])
    placeholder = next(name for name, of in params["ExpressionAttributeNames"].items() if of == "pk")
    equals = re.search(rf"{placeholder} = (:\w+)", params["KeyConditionExpression"])
    assert equals, "a query names its partition"
    return str(params["ExpressionAttributeValues"][equals[1]]["S"])


def _table_arn(table: str, index: str | None = None) -> str:
    """Tests have prefixes of their own; roles are for `PREFIX`."""
    noun = table.rpartition("-")[2]
    resource = f"table/{_NOUNS.get(noun, table)}" + (f"/index/{index}" if index else "")
    return _arn("dynamodb", resource)


_EVENT = "provide-client-params"
_FUNCTIONS = [name for name in names.FUNCTIONS if hasattr(functions, name)]


@contextmanager
def guarded(guard: Guard) -> Iterator[Guard]:
    """Every client that is made from now on is watched; app.py's functions say that they are at work, as do the
    threads that they start."""
    events = clients._session().events
    events.register(_EVENT, guard.check)
    _guards.append(guard)
    with ExitStack() as stack:
        stack.callback(_guards.remove, guard)
        stack.callback(events.unregister, _EVENT, guard.check)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name in _FUNCTIONS:
            patch.setattr(functions, name, working_as(name, getattr(functions, name)))
        patch.setattr(http, "authorize", working_as(names.AUTHORIZE, http.authorize, names.URLS))
        patch.setattr(Front, "__call__", _answering(names.API, names.RECEIVE, Front.__call__))
        patch.setattr(Front, "at_url", _answering(*names.URLS, Front.at_url))
        for invoker in (Inbox, Invocations):
            patch.setattr(invoker, "invoke", _announcing(guard, invoker.invoke))
            patch.setattr(invoker, "ask", _announcing(guard, invoker.ask))
            patch.setattr(invoker, "wake_mover", _announcing_wakes(guard, invoker.wake_mover))
        patch.setattr(ThreadPoolExecutor, "submit", _with_context(ThreadPoolExecutor.submit))
        yield guard


def _answering(function: str, receives: str, answer: Callable[..., Any]) -> Callable[..., Any]:
    """As the function whose answer this is, or the one that answers receives; what was begun by an URL stays so."""

    def answering(self: Front, event: Any, context: Any, **waits: bool) -> Any:
        is_receive = waits or event["requestContext"].get("resourcePath") == RECEIVE
        with at_work(function_at_work() or (receives if is_receive else function)):
            return answer(self, event, context, **waits)

    return answering


def _announcing(guard: Guard, call: Callable[..., Any]) -> Callable[..., Any]:
    def announcing(self: Any, function: str, *args: Any) -> Any:
        guard.start(function)
        return call(self, function, *args)

    return announcing


def _announcing_wakes(guard: Guard, call: Callable[..., Any]) -> Callable[..., Any]:
    def announcing(self: Any, *args: Any) -> Any:
        guard.wake_mover()
        return call(self, *args)

    return announcing


def _with_context(submit: Callable[..., Any]) -> Callable[..., Any]:
    def submit_in_context(self: Any, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return submit(self, copy_context().run, work, *args, **kwargs)

    return submit_in_context
