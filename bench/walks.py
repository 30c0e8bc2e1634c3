"""`python -m bench.walks`: how far a reader goes who follows a message, on five ways through the code.

Each way is walked for real, on DynamoDB Local, in a process that has walked it before; on the engine in
AWS_ENDPOINT_URL_DYNAMODB, if that is set. Counted is our code only: files opened, functions called, and moves: how
often the next function called lies in another file than the one called before. Comprehensions belong to their
functions, and a generator is called once.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import runpy
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("app.py", "chalicelib/", "glue_jobs/")
_PARTS = {"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"}
COUNT = 1  # messages of a receive and of a push
_ENDPOINT = "AWS_ENDPOINT_URL_DYNAMODB"
_WAKE_UP_SECONDS = 0.2  # a producer does not wake the same run again at once


@dataclass
class Walk:
    """What one walk passed."""

    files: set[str] = field(default_factory=set)
    functions: set[tuple[str, str]] = field(default_factory=set)
    path: list[str] = field(default_factory=list)
    """The files, in the order in which the walk came to them."""

    def call(self, file: str, function: str) -> None:
        """The next function called."""
        self.files.add(file)
        self.functions.add((file, function))
        if not self.path or self.path[-1] != file:
            self.path.append(file)

    @property
    def moves(self) -> int:
        """How often it went on in another file."""
        return max(0, len(self.path) - 1)

    @property
    def crossings(self) -> int:
        """How many different moves there are: from this file to that one."""
        return len(set(pairwise(self.path)))


TraceWalk = Callable[[], AbstractContextManager[Walk]]


class Tracer:
    """A profile function for every thread; it counts while a walk is under way."""

    def __init__(self) -> None:
        self.walk: Walk | None = None
        self._names: dict[str, str | None] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        walk, code = self.walk, frame.f_code
        if walk is None or event != "call" or code.co_name in _PARTS or _is_resumed(frame):
            return
        if file := self._name(code.co_filename):
            walk.call(file, code.co_qualname)

    def _name(self, file: str) -> str | None:
        """The file's path in our code; None for everybody else's."""
        if file not in self._names:
            path = os.path.relpath(file, ROOT)
            self._names[file] = path if path.startswith(FOLDERS) else None
        return self._names[file]


def _is_resumed(frame: FrameType) -> bool:
    """A generator that goes on, behind its first `yield`."""
    return (
        bool(frame.f_code.co_flags & inspect.CO_GENERATOR) and frame.f_lineno != frame.f_code.co_firstlineno
    )


@contextmanager
def trace_walk(tracer: Tracer) -> Iterator[Walk]:
    """What happens inside, in any thread that began after `tracer` was installed."""
    tracer.walk = walk = Walk()
    try:
        yield walk
    finally:
        tracer.walk = None


class Invocations:
    """ports.Invoker: keeps what would be started; what is asked for an answer runs at once."""

    def __init__(self) -> None:
        self.started: list[tuple[str, Mapping[str, Any]]] = []

    def invoke(self, function: str, event: Mapping[str, Any]) -> None:
        self.started.append((function, dict(event)))

    def wake_mover(self, hint: Mapping[str, Any], delay_seconds: int) -> None:
        self.started.append(("mover", {"Records": [{"body": json.dumps(hint)}]}))

    def ask(self, function: str, event: Mapping[str, Any], seconds: int) -> Mapping[str, Any]:
        import app
        from local.functions import Invocations as Local
        from local.functions import functions_of

        return Local(functions_of(app.app)).ask(function, event, seconds)


class Subscriber(BaseHTTPRequestHandler):
    """Accepts every request."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(204)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Stage:
    """The service in this process, and what calls it."""

    def __init__(self) -> None:
        import app
        from chalicelib import adapters, settings, wiring
        from local.functions import Context
        from local.gateway import Gateway

        self.invocations = Invocations()
        self.prefix = f"walks{uuid.uuid4().hex[:8]}"
        environment = {"HEADRACE_PREFIX": self.prefix, "HEADRACE_ALLOW_LOOPBACK": "1"}
        chosen_settings = settings.read({**environment, "HEADRACE_DATA": os.environ["HEADRACE_DATA"]})
        self.deps: Any = wiring.Deps(adapters.dynamo_adapters(chosen_settings, invoker=self.invocations))
        self.deps.setup()
        self.token = self.deps.tokens.ensure_admin(None)
        vars(wiring)["deps"] = lambda: self.deps
        self._gateway = Gateway(app.app)
        self._context = Context

    def context(self, name: str) -> Any:
        """As Lambda gives it to a function."""
        return self._context(function_name=name, request_id="r", stop=threading.Event())

    def call(self, method: str, path: str, body: object = None) -> Any:
        """The answer to a call. RuntimeError: it was refused."""
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Content-Type": "application/json",
            "Host": "walks",
        }
        data = None if body is None else json.dumps(body).encode()
        status, _, answer = self._gateway.handle(method, "/v1" + path, headers, data)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {answer!r}")
        return json.loads(answer or b"null")


def produce(stage: Stage, walk: TraceWalk) -> Walk:
    """One small message, to a topic in the cache."""
    stage.call("PUT", "/topics/produce")
    stage.call("POST", "/topics/produce/messages", {"body": 0})
    with walk() as path:
        stage.call("POST", "/topics/produce/messages", {"body": 1})
    return path


def receive(stage: Stage, walk: TraceWalk) -> Walk:
    """One message, claimed by a caller without a name."""
    stage.call("PUT", "/topics/receive", {"shards": 1})
    stage.call("PUT", "/topics/receive/groups/g", {"from": "earliest"})
    for _ in range(2):
        stage.call(
            "POST", "/topics/receive/messages/batch", {"messages": [{"body": n} for n in range(COUNT)]}
        )
    stage.call("POST", "/topics/receive/groups/g/receive", {"max": COUNT})
    with walk() as path:
        answer = stage.call("POST", "/topics/receive/groups/g/receive", {"max": COUNT})
    assert len(answer["messages"]) == COUNT
    return path


def push(stage: Stage, walk: TraceWalk) -> Walk:
    """One message to one subscriber, until nothing is left: claim, send, settle."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Subscriber)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    stage.call("PUT", "/topics/push", {"shards": 1, "wake": "direct"})
    stage.call("PUT", "/topics/push/groups/g", {"from": "earliest"})
    stage.call("PUT", "/topics/push/groups/g/consumers/c", {"url": f"http://127.0.0.1:{server.server_port}/"})
    path = Walk()
    for with_a_walk in (False, True):
        time.sleep(_WAKE_UP_SECONDS)
        stage.invocations.started.clear()
        stage.call("POST", "/topics/push/messages/batch", {"messages": [{"body": n} for n in range(COUNT)]})
        (event,) = [event for name, event in stage.invocations.started if name == "deliver"]
        if not with_a_walk:
            _deliver(stage, event)
        else:
            with walk() as path:
                _deliver(stage, event)
    server.shutdown()
    return path


def _deliver(stage: Stage, event: Mapping[str, Any]) -> None:
    from chalicelib import functions

    report = functions.deliver(event, stage.context("deliver"), stage.deps)
    assert report["DONE"] == COUNT, report


def delay(stage: Stage, walk: TraceWalk) -> Walk:
    """One message filed as a timer, and the run of the mover that brings it into its log."""

    stage.call("PUT", "/topics/delayed", {"shards": 1})
    path = Walk()
    for with_a_walk in (False, True):
        if not with_a_walk:
            _deliver_delayed(stage)
        else:
            with walk() as path:
                _deliver_delayed(stage)
    return path


def _deliver_delayed(stage: Stage) -> None:
    from chalicelib import functions

    stage.invocations.started.clear()
    stage.call("POST", "/topics/delayed/messages", {"body": 1, "delay_seconds": 1})
    (event,) = [event for name, event in stage.invocations.started if name == "mover"]
    report = functions.mover(event, stage.context("mover"), stage.deps)
    assert report["moved"] == 1, report


def archive(stage: Stage, walk: TraceWalk) -> Walk:
    """One row of the log: written down by `journal`, and made a row of the archive's tables. Needs PySpark; what Spark
    does in processes of its own isn't seen."""
    from chalicelib import functions

    stage.call("PUT", "/topics/archived", {"shards": 1})
    stage.call("POST", "/topics/archived/messages", {"body": 1})
    event = {"Records": [_record(stage)]}
    job = ["archive", "--folder", f"{os.environ['HEADRACE_DATA']}/bucket", "--prefix", stage.prefix]
    job += ["--open", "yes", "--grace-minutes", "0"]
    with walk() as path:
        functions.journal(event, stage.deps)
        _run("glue_jobs.archive", job)
    return path


def _run(module: str, arguments: list[str]) -> None:
    """As `python -m` would. RuntimeError: it did not end well."""
    before, sys.argv = sys.argv, arguments
    try:
        runpy.run_module(module, run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"{module} ended with {end.code}") from end
    finally:
        sys.argv = before


def _record(stage: Stage) -> dict[str, Any]:
    """What the log's stream says of the one row of the topic `archived`."""
    import boto3

    rows = boto3.client("dynamodb").scan(TableName=f"{stage.prefix}-log")["Items"]
    (row,) = [row for row in rows if row.get("t", row["s"])["S"].startswith("archived")]
    change = {
        "Keys": {name: row[name] for name in ("s", "o")},
        "NewImage": row,
        "SequenceNumber": "1",
        "ApproximateCreationDateTime": time.time(),
    }
    stream = f"arn:aws:dynamodb:us-east-1:000000000000:table/{stage.prefix}-log/stream/1"
    return {"eventID": "1", "eventName": "INSERT", "eventSourceARN": stream, "dynamodb": change}


WALKS = {"produce": produce, "receive": receive, "push": push, "delayed": delay, "archived": archive}


def main() -> int:
    """Walk, and print a row for each."""
    parser = argparse.ArgumentParser(prog="python -m bench.walks", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=WALKS, default=list(WALKS), help="these walks")
    parser.add_argument(
        "--path", action="store_true", help="the files of each walk, in the order of its moves"
    )
    options = parser.parse_args()
    from local.engine.dynamodb_local import dynamodb_local

    tracer = Tracer()
    threading.setprofile(tracer)
    for name, text in (
        ("DEFAULT_REGION", "us-east-1"),
        ("ACCESS_KEY_ID", "local"),
        ("SECRET_ACCESS_KEY", "local"),
    ):
        os.environ.setdefault(f"AWS_{name}", text)
    with ExitStack() as stack:
        data = stack.enter_context(tempfile.TemporaryDirectory())
        if _ENDPOINT not in os.environ:
            os.environ[_ENDPOINT] = stack.enter_context(dynamodb_local()).endpoint
        os.environ["HEADRACE_DATA"] = data
        stage = Stage()
        sys.setprofile(tracer)
        print("| walk | files | functions | moves | different moves |\n|---|---|---|---|---|")
        for name in options.only:
            path = WALKS[name](stage, lambda: trace_walk(tracer))
            print(
                f"| {name} | {len(path.files)} | {len(path.functions)} | {path.moves} | {path.crossings} |",
                flush=True,
            )
            if options.path:
                print("\n".join(path.path), file=sys.stderr)
        sys.setprofile(None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
