"""What `make deploy` does behind a deployment: it runs each timed job once, and tries whether the stage answers."""

from __future__ import annotations

import json
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from . import names
from .cli import Aws, Refused
from .template import Stack, StackError
from .verify.http import Stage, Unreachable

_PATIENCE_SECONDS = 90.0  # a new API answers 403 or 5xx at first
_PAUSE_SECONDS = 3.0


def show(aws: Aws, stack: Stack, outputs: Mapping[str, str]) -> None:
    """Print the addresses of what was deployed."""
    own = f"https://{stack.domain}" if stack.domain else outputs["EndpointURL"].rstrip("/")
    pages = {"Console": f"{own}/console", "Dashboard": names.dashboard_url(stack.prefix, aws.region)}
    for name in (
        *("EndpointURL", "IamEndpointURL", "CallsURL", "ReceiveURL", "Console", "Dashboard"),
        *("BucketName", "AlarmTopicArn", "FailureQueueUrl", "DeliverRoleArn"),
    ):
        print(f"  {name:<16} {({**pages, **outputs}).get(name, '')}")


def run(aws: Aws, stack: Stack, url: str, token: str) -> None:
    """Start the jobs, ask the stage for its health, and with a token send one message through it. Raises StackError."""
    try:
        start_jobs(aws, stack.prefix)
    except Refused as error:
        print(
            f"The timed jobs are not started now, their alarms may be red for six hours: {error}",
            file=sys.stderr,
        )
    if stack.vpc_endpoint or not stack.calls_per_second:
        print("Not tried: the API is private or closed.")
        return
    stage = Stage(url)
    if not is_healthy(stage):
        raise StackError(
            f"It is deployed, but {url}v1/health does not answer with 200: look at the logs of the functions api and "
            "authorize."
        )
    print("The health check answers.")
    if not token:
        print("With HEADRACE_TOKEN set, an update also sends one message through it.")
        return
    try:
        message_in_and_out(stage, token)
    except Unreachable as error:
        raise StackError(str(error)) from None
    print("One message went in and out.")


def start_jobs(aws: Aws, prefix: str) -> None:
    """Run each timed job now, as its schedule would: the alarms that wait for a first run are green within two minutes,
    and not after six hours."""
    event = {"version": "0", "id": "deploy", "detail-type": "Scheduled Event", "source": "headrace.deploy"}
    place = {"account": aws.account, "region": aws.region, "time": "1970-01-01T00:00:00Z"}
    with tempfile.TemporaryDirectory() as folder:
        payload, answer = Path(folder, "event.json"), str(Path(folder, "answer"))
        payload.write_text(json.dumps({**event, **place, "resources": [], "detail": {}}))
        for name in names.TIMED:
            function = ("--function-name", names.function(prefix, name), "--invocation-type", "Event")
            aws.run("lambda", "invoke", *function, "--payload", f"fileb://{payload}", answer)


def is_healthy(stage: Stage, clock: Callable[[], float] = time.monotonic) -> bool:
    """Does the health check answer 200, now or within a minute and a half?"""
    until = clock() + _PATIENCE_SECONDS
    while True:
        try:
            if stage.call("GET", "/v1/health").status == 200:
                return True
        except Unreachable:
            pass
        if clock() > until:
            return False
        time.sleep(_PAUSE_SECONDS)


def message_in_and_out(stage: Stage, token: str) -> None:
    """Send and receive one message in a topic of its own, which is deleted. Raises StackError, Unreachable."""
    name = f"smoke-{secrets.token_hex(4)}"
    topic, group = f"/v1/topics/{name}", f"/v1/topics/{name}/groups/smoke"
    try:
        for method, path, body in (
            ("PUT", topic, {"shards": 1, "retention_days": 1}),
            ("PUT", group, {"from": "earliest"}),
            ("POST", f"{topic}/messages", {"body": name}),
        ):
            answer = stage.call(method, path, body, token)
            if answer.status not in (200, 201):
                raise StackError(f"{method} {path} is answered with {answer.status}: {answer.text}")
        answer = stage.call("POST", f"{group}/receive", {"wait_seconds": 10}, token)
        messages = (answer.json or {}).get("messages", [])
        if [message["body"] for message in messages] != [name]:
            raise StackError(f"The message that was sent is not received: {answer.status} {answer.text}")
        stage.call("POST", f"{group}/ack", {"receipts": [messages[0]["receipt"]]}, token)
    finally:
        stage.call("DELETE", f"{topic}?confirm={name}", token=token)
