"""What the local service says: where it serves, on standard output; and what it does, on standard error, as lines for
people on a terminal, JSON elsewhere.

It has a line for each request, and the messages of the Lambda functions: failed pushes with their reasons, troubles.
Reports of successful runs are in the JSON form only.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TextIO

from local.gateway import Answer, Refusal
from local.options import DYNAMODB_LOCAL, HUMAN, JSON, MOVABLE, Options
from local.server import Handler

HELLO = """\
Headrace serves on {url}
Admin token: {token}

    export HEADRACE_TOKEN={token}
    export HEADRACE_URL={url}
    H="Authorization: Bearer $HEADRACE_TOKEN"; U=$HEADRACE_URL/v1

    curl -X PUT  -H "$H" $U/topics/orders
    curl -X PUT  -H "$H" $U/topics/orders/groups/mailer -H 'Content-Type: application/json' -d '{{"from": "earliest"}}'
    curl -X POST -H "$H" $U/topics/orders/messages -H 'Content-Type: application/json' \\
         -d '{{"body": {{"order": 188}}, "keys": ["order-188"], "tag": "paid"}}'
    curl -X POST -H "$H" $U/topics/orders/groups/mailer/receive -H 'Content-Type: application/json' \\
         -d '{{"wait_seconds": 5}}'
    curl -X POST -H "$H" $U/topics/orders/groups/mailer/ack -H 'Content-Type: application/json' \\
         -d '{{"receipts": ["…"]}}'

Every call: {url}/docs. Pages: {url}/console. More in examples/."""
_UNKNOWN_TOKEN = "<made at an earlier start and not kept in {file}; set HEADRACE_TOKEN to choose one>"
_LINK = """\
Signed in, once and within a minute: {link}
    (another one: make console)"""
_CLOCK = """\
Three days pass, and what is due on the way happens:
    curl -X POST -H "$H" $U/clock -H 'Content-Type: application/json' -d '{"advance_seconds": 259200}'"""


_OPEN = (
    "DynamoDB Local is open to the whole network: it listens on every interface of this machine, and asks for no "
    "password. Store nothing that is not public."
)
REQUEST = "request"
_FAILED_PUSH = "attempt failed"
_SERVICE = "Headrace"  # whose logger chalicelib.observe uses
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "service", "location", "timestamp"}


def see_to_streams() -> None:
    """Make output errors harmless; called at the start of the process."""
    sys.stderr = Unheard(sys.stderr)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal of few characters


def say(text: str, out: TextIO | None) -> bool:
    """Print to standard output. False where it cannot be written: then all that goes there is dropped from now on."""
    if out is None:  # closed at the start
        return False
    try:
        print(text, file=out, flush=True)
    except OSError:
        # by its number: Python flushes what is left at its end, too, and functions of users print
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        return False
    return True


def hello(options: Options, token: str | None, ending: str, ahead: timedelta, ticket: str | None) -> str:
    """The text. `token`: the admin token, None if unknown; `ending`: what happens to the messages when it ends;
    `ahead`: by how much its time was moved; `ticket` signs a browser in."""
    if options.as_json:
        return json.dumps({"url": options.url, "token": token})
    text = token or _UNKNOWN_TOKEN.format(file=options.data / "token")
    lines = [HELLO.format(url=options.url, token=text)]
    if ticket:
        lines.append(_LINK.format(link=f"{options.url}/console/sign-in?ticket={ticket}"))
    if options.clock == MOVABLE:
        lines.append(_CLOCK)
    lines.append(f"Ctrl-C stops it; {ending}.")
    if options.engine == DYNAMODB_LOCAL and not options.endpoint:
        lines.append(_OPEN)
    if ahead:
        file = options.data / "clock"
        lines.append(f"Its time is {ahead} ahead, as POST /v1/clock left it ({file} keeps that).")
    if os.environ["HEADRACE_ALLOW_LOOPBACK"] == "1":
        lines.append(
            "Subscriber URLs may be http on this machine; HEADRACE_ALLOW_LOOPBACK=0 forbids it, as AWS does."
        )
    return "\n".join(lines)


class Unheard(io.TextIOBase):
    """Standard error where it may be closed, or a pipe or terminal that is gone."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def isatty(self) -> bool:
        return bool(self._stream and self._stream.isatty())

    def write(self, text: str) -> int:
        with suppress(OSError):
            if self._stream:
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            if self._stream:
                self._stream.flush()


def logger(form: str | None = None) -> logging.Logger:
    """The logger of this process, set up once. `form`: "human", "json", or None: human on a terminal."""
    from aws_lambda_powertools import Logger  # late: half of what a start takes that only shows its help

    powertools = Logger(service=_SERVICE, stream=sys.stderr)
    style = form or (HUMAN if sys.stderr.isatty() else JSON)
    log = logging.getLogger(_SERVICE)
    if style == HUMAN:
        for handler in log.handlers:
            handler.setFormatter(Lines())
            handler.addFilter(_is_for_people)
    powertools.setLevel(logging.INFO)
    return log


@dataclass(eq=False)
class LoggedGateway:
    """A gateway, with a line in the log for each request: method, path, status, milliseconds."""

    gateway: Handler
    log: logging.Logger
    clock: Callable[[], float] = time.monotonic

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Answer:
        """Answer one request, and write its line."""
        start = self.clock()
        answer = self.gateway.handle(method, path, headers, body)
        self._write(method, path, answer[0], round((self.clock() - start) * 1000))
        return answer

    def tell(self, refusal: Refusal) -> None:
        """Write the line of a request that the server refused."""
        self._write(refusal.method, refusal.target, refusal.status, 0)

    def _write(self, method: str, target: str, status: int, ms: int) -> None:
        path = _printable(target.partition("?")[0])  # a query may hold a key, or what signs in
        self.log.info(REQUEST, extra={"method": method, "path": path, "status": status, "ms": ms})


class Lines(logging.Formatter):
    """One line a record: the time, what happened, to what."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        lines = [f"{at}  {_printable(_text(record.getMessage(), _ids(record)))}"]
        if record.exc_info:
            lines.append(self.formatException(record.exc_info))
        return "\n".join(lines)


def _text(message: str, ids: dict[str, Any]) -> str:
    if message == REQUEST:
        return f"{ids['method']:<6} {ids['path']}  {ids['status']}  {ids['ms']} ms"
    if message == _FAILED_PUSH:
        return (
            f"push failed: {ids['topic']}/{ids['group']} to {ids['consumer']}, attempt {ids['attempt']} of message "
            f"{ids['message_id']}: {ids['detail']} ({ids['verdict']})"
        )
    return "  ".join([message, *(f"{name}={value}" for name, value in ids.items())])


def _ids(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _OWN}


def _is_for_people(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or record.getMessage() == REQUEST


def _printable(text: str) -> str:
    """What a client sent must not steer the terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)
