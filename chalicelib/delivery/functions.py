"""Lambda functions that consume, on AWS or in a local file; and the start of Headrace's own functions
and jobs."""

from __future__ import annotations

import inspect
import json
import math
import re
import runpy
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from botocore import exceptions as sdk

from ..domain.errors import unavailable

_START_SECONDS = 5
_MAX_EVENT_BYTES = 6 * 1024 * 1024  # Lambda's limit, of the answer, too
_ARN = re.compile(
    r"arn:aws[a-z-]*:lambda:(?P<region>[a-z0-9-]+):(?P<account>[0-9]{12})"
    r":function:(?P<name>[A-Za-z0-9_-]{1,64})(?::(?:\$LATEST|[A-Za-z0-9_-]{1,128}))?"
)
_THROTTLED = {"TooManyRequestsException", "EC2ThrottledException"}
_UNKNOWN = "ServiceException"  # Lambda's own fault: it may have begun
_NAME = "x-amzn-errortype"  # a header of each refusal by Lambda itself


@dataclass(frozen=True, slots=True)
class FunctionFailed:
    """The function did not succeed. `may_run`: it may still be running. `ran`: it was called and has ended, and `said`
    what went wrong, in JSON."""

    detail: str
    may_run: bool = False
    ran: bool = False
    said: bytes = b""


@dataclass(frozen=True, slots=True)
class Throttled:
    """The function was not called: there was no room for it."""


class Functions(Protocol):
    """Calls a consumer's function."""

    def call(self, name: str, event: bytes, seconds: float) -> bytes | FunctionFailed | Throttled:
        """Call the function with a JSON event, and wait at most so many seconds for its JSON answer."""

    def refusal(self, name: str) -> str | None:
        """Why it may not be called; None: it may."""


@dataclass(kw_only=True, frozen=True, eq=False)
class LambdaFunctions:
    """Lambda functions of our own account and region, but not Headrace's own, whose names begin with `prefix`.

    `client` makes or finds a client whose read time-out is so many seconds: that bounds a call. It must not try again
    by itself: a second try would be a second attempt.
    """

    client: Callable[[int], Any]
    region: str
    account: str
    prefix: str

    def call(self, name: str, event: bytes, seconds: float) -> bytes | FunctionFailed | Throttled:
        """As `Functions.call`."""
        if refusal := self.refusal(name):
            return FunctionFailed(f"the function {refusal}")
        if len(event) > _MAX_EVENT_BYTES:
            return FunctionFailed("the event is larger than Lambda takes")
        try:
            client = self.client(math.ceil(seconds))
            answer = _invoke(client, name, "RequestResponse", event)
            payload: bytes = answer["Payload"].read()
        except sdk.ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in _THROTTLED:
                return Throttled()
            about = error.response["ResponseMetadata"]
            if about["HTTPStatusCode"] >= 500 and _NAME not in about["HTTPHeaders"]:
                # A proxy answered in place of Lambda, which may have begun.
                return FunctionFailed(f"Lambda did not answer ({about['HTTPStatusCode']})", may_run=True)
            return FunctionFailed(f"not invoked: {code}", may_run=code == _UNKNOWN)
        except sdk.ReadTimeoutError:
            return FunctionFailed(f"no answer within {seconds:g} s", may_run=True)
        except (sdk.ConnectTimeoutError, sdk.EndpointConnectionError):
            return FunctionFailed("Lambda was not reached")
        except (sdk.BotoCoreError, sdk.HTTPClientError):
            return FunctionFailed("the connection to Lambda broke", may_run=True)
        has_failed = bool(answer.get("FunctionError"))
        return FunctionFailed("the function failed", ran=True, said=payload) if has_failed else payload

    def refusal(self, name: str) -> str | None:
        """Why the function may not be called, to follow its name in a sentence; None: it may."""
        match = _ARN.fullmatch(name)
        if not match:
            return "must be given by the ARN of a Lambda function"
        if (match["region"], match["account"]) != (self.region, self.account):
            return "must be of Headrace's own account and region"
        if match["name"].lower().startswith(self.prefix.lower()):
            return "must not be one of Headrace's own"
        return None


class LocalFunctions:
    """Functions of a Python file, by name, which take (event) or (event, context). For examples and local runs.

    The file is run when this is made; what is wrong with it is raised then.
    """

    def __init__(self, path: Path | None) -> None:
        names = runpy.run_path(str(path), run_name="headrace_functions") if path else {}
        self._functions = {name: f for name, f in names.items() if inspect.isfunction(f)}

    def call(self, name: str, event: bytes, seconds: float) -> bytes | FunctionFailed | Throttled:
        """As `Functions.call`."""
        if refusal := self.refusal(name):
            return FunctionFailed(f"the function {refusal}")
        call = _Call(self._functions[name], json.loads(event))
        call.start()
        call.join(seconds)
        if call.is_alive():
            return FunctionFailed(f"no answer within {seconds:g} s", may_run=True)
        if call.answer is None or len(call.answer) > _MAX_EVENT_BYTES:
            return FunctionFailed("the function failed", ran=True, said=call.error)
        return call.answer

    def refusal(self, name: str) -> str | None:
        """Why the function may not be called, to follow its name in a sentence; None: it may."""
        if name not in self._functions:
            return "is not in the file of local functions"
        if inspect.iscoroutinefunction(self._functions[name]):
            return "is an async def, which Lambda does not call: let a plain function call asyncio.run"
        return None


class _Call(threading.Thread):
    """A call that can be waited for a while. What it raises ends its thread, and is printed there."""

    def __init__(self, function: Callable[..., Any], event: Any) -> None:
        super().__init__(name=f"function {function.__name__}", daemon=True)
        self.answer: bytes | None = None
        self.error = b""
        self._function, self._event = function, event

    def run(self) -> None:
        wants_context = len(inspect.signature(self._function).parameters) > 1
        arguments = (self._event, None) if wants_context else (self._event,)
        try:
            self.answer = json.dumps(self._function(*arguments)).encode()
        except Exception as error:
            self.error = json.dumps({"errorMessage": str(error), "errorType": type(error).__name__}).encode()
            raise


@dataclass(frozen=True, eq=False)
class LambdaInvoker:
    """ports.Invoker on Lambda. `names` are the deployed names of the functions of app.py; `client` makes or finds a
    client that waits so many seconds for an answer, and does not try again by itself. `sqs` makes or finds one for the
    queue whose messages start the mover."""

    client: Callable[[int], Any]
    names: Mapping[str, str]
    sqs: Callable[[], Any]
    queue_url: str

    def invoke(self, function: str, event: Mapping[str, Any]) -> None:
        """As `Invoker.invoke`. Raises Unavailable if Lambda did not take the event."""
        self._call(function, event, "Event", _START_SECONDS)

    def wake_mover(self, hint: Mapping[str, Any], delay_seconds: int) -> None:
        """As `Invoker.wake_mover`."""
        body, url = json.dumps(hint), self.queue_url
        try:
            self.sqs().send_message(QueueUrl=url, MessageBody=body, DelaySeconds=delay_seconds)
        except (sdk.ClientError, sdk.BotoCoreError) as error:
            raise unavailable("The mover's queue did not take a wake-up.") from error

    def ask(self, function: str, event: Mapping[str, Any], seconds: int) -> Mapping[str, Any]:
        """As `Invoker.ask`."""
        payload, has_failed = self._call(function, event, "RequestResponse", seconds)
        try:
            answer = None if has_failed else json.loads(payload)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise unavailable(f"The function {function} failed; try again.")
        return answer

    def _call(self, function: str, event: Mapping[str, Any], kind: str, seconds: int) -> tuple[bytes, bool]:
        """The answer, and whether the function failed. It is read also where it must be empty: a connection that has
        something left to read is not used again."""
        payload = json.dumps(event).encode()
        try:
            client = self.client(seconds)
            answer = _invoke(client, self.names[function], kind, payload)
            return answer["Payload"].read(), "FunctionError" in answer
        except (sdk.ClientError, sdk.BotoCoreError) as error:
            text = f"The function {function} was not started, or did not answer; try again."
            raise unavailable(text) from error


class GlueJobs:
    """ports.Jobs: jobs of Glue that are named `<prefix>-<job>`."""

    def __init__(self, client: Callable[[], Any], prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    def start(self, job: str, arguments: Mapping[str, str]) -> bool:
        """False also where Glue refuses: too many runs at once, no such job, no answer. An operator can fix each."""
        options = {f"--{name}": value for name, value in arguments.items()}
        try:
            self._client().start_job_run(JobName=f"{self._prefix}-{job}", Arguments=options)
        except (sdk.ClientError, sdk.BotoCoreError):
            return False
        return True


def _invoke(client: Any, name: str, kind: str, payload: bytes) -> Any:
    """Lambda's `Invoke`. Raises what the SDK says it raises, also for a page that it cannot read."""
    try:
        return client.invoke(FunctionName=name, InvocationType=kind, Payload=payload)
    except (AttributeError, TypeError, UnicodeDecodeError) as error:  # JSON of other shapes, no UTF-8
        raise sdk.HTTPClientError(error=error) from error
