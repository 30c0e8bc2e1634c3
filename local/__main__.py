"""`make run`: Headrace on one machine, with a durable store. SIGTERM or Ctrl-C ends it."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import socket
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.engine import Engine
from local.fetch import EngineError

_HOST = "127.0.0.1"
_CLOCK = "clock"
_ENDPOINT = "AWS_ENDPOINT_URL_DYNAMODB"
_ENVIRONMENT = f"""\
environment:
  HEADRACE_PORT              the port to serve on (8700)
  HEADRACE_DATA              the folder to keep everything in (.data)
  HEADRACE_TOKEN             the admin token to use (made at the first start, and kept, if not given)
  HEADRACE_ALLOW_LOOPBACK    1: subscriber URLs may be http on this machine (default here); 0: as on AWS
  HEADRACE_FUNCTIONS         a Python file whose functions may be consumers, by name
  HEADRACE_STREAM            0: no stream is read: sweeps alone find new messages (slower, no less sure), no journal
  HEADRACE_ARCHIVE           1: messages leave the log only after the archive has proved that it has them
  HEADRACE_BUCKET            a bucket for large bodies and the journal, instead of the data folder
  HEADRACE_PREFIX            what table names begin with (headrace)
  {_ENDPOINT}  a DynamoDB to use instead of starting DynamoDB Local
"""
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

Every call: {url}/docs. More in examples/.
Ctrl-C stops it; what was accepted stays in {data}."""
_UNKNOWN_TOKEN = "<made at an earlier start and not kept in {file}; set HEADRACE_TOKEN to choose one>"


class Unusable(Exception):
    """It cannot be started like this; the text says what to change."""


@dataclass(frozen=True)
class Options:
    """What the environment says."""

    port: int
    data: Path
    token: str | None
    endpoint: str | None
    stream: bool

    @property
    def token_file(self) -> Path:
        """Where the token made at the first start is kept."""
        return self.data / "token"


def options() -> Options:
    """Read the environment. Raises Unusable."""
    given = os.environ.get("HEADRACE_PORT") or "8700"
    if not given.isascii() or not given.isdigit() or not 0 < int(given) < 65536:
        raise Unusable(f"HEADRACE_PORT must be a number from 1 to 65535, not {given!r}.")
    functions = os.environ.get("HEADRACE_FUNCTIONS")
    if functions and not Path(functions).is_file():
        raise Unusable(f"HEADRACE_FUNCTIONS={functions} is no file.")
    data = Path(os.environ.get("HEADRACE_DATA") or ".data")
    return Options(
        int(given),
        data,
        os.environ.get("HEADRACE_TOKEN") or None,
        os.environ.get(_ENDPOINT) or None,
        os.environ.get("HEADRACE_STREAM") != "0",
    )


def run(chosen: Options) -> None:
    """Serve until a signal arrives."""
    _check_port(chosen.port)
    with contextlib.ExitStack() as stack:
        _make_folder(chosen.data)
        endpoint = chosen.endpoint or stack.enter_context(Engine(chosen.data / "dynamodb")).endpoint
        _set_environment(chosen, endpoint)
        stack.callback(_jobs(chosen).stop)
        _leave_word(chosen.data / "engine", endpoint, stack)
        triggers = _triggers(chosen)
        token = _start_app(chosen)
        stack.callback(triggers.stop)  # after the server, before the engine: the stack ends in reverse
        triggers.start()
        server = _server(chosen.port)
        stack.callback(server.shutdown)
        server.start()
        _say_hello(chosen, token)
        threading.Event().wait()


def _check_port(port: int) -> None:
    """Before anything is started or written: the usual reason is a Headrace that runs already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            raise Unusable(
                f"Port {port} cannot be used ({error.strerror}). Stop what uses it (perhaps a Headrace that runs "
                f"already), or choose another: HEADRACE_PORT={port % 65535 + 1} make run"
            ) from None


def _make_folder(data: Path) -> None:
    try:
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unusable(f"HEADRACE_DATA={data} cannot be used as a folder ({error.strerror}).") from None


def _set_environment(chosen: Options, endpoint: str) -> None:
    """For the app, which is imported after this and reads its settings as it does on AWS."""
    os.environ[_ENDPOINT] = endpoint
    os.environ["HEADRACE_DATA"] = str(chosen.data)
    os.environ["HEADRACE_PORT"] = str(chosen.port)
    for name, value in {
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "HEADRACE_ALLOW_LOOPBACK": "1",
    }.items():
        os.environ.setdefault(name, value)


def _leave_word(file: Path, endpoint: str, stack: contextlib.ExitStack) -> None:
    """Say where the engine is, while it is there: the archive's job asks it for what the journal lacks."""
    file.write_text(endpoint)
    stack.callback(file.unlink, missing_ok=True)


def _start_app(chosen: Options) -> str:
    """Create the tables and see to the admin token; its text."""
    deps: Any = importlib.import_module("chalicelib.wiring").deps()
    _set_up(deps)
    try:
        token: str | None = deps.tokens.ensure_admin(chosen.token or _kept(chosen.token_file))
    except ValueError as error:
        place = "" if chosen.token else f" (it is read from {chosen.token_file})"
        raise Unusable(f"{error}{place}.") from None
    if token is None:
        return _UNKNOWN_TOKEN.format(file=chosen.token_file)
    if chosen.token is None:
        _keep(chosen.token_file, token)
    return token


def _set_up(deps: Any) -> None:
    """Create the tables; say what to change where the engine is not there, or refuses."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        deps.setup()
    except BotoCoreError as error:
        raise Unusable(f"{error} {_ENDPOINT} says where the engine is.") from None
    except ClientError as error:
        why = error.response["Error"]["Message"]
        raise Unusable(f"The engine refuses tables (HEADRACE_PREFIX begins their names): {why}") from None


def _kept(file: Path) -> str | None:
    try:
        return file.read_text().strip() or None
    except FileNotFoundError:
        return None


def _keep(file: Path, token: str) -> None:
    """In one step, so that a crash leaves all of it or none; readable by its owner only."""
    draft = file.with_suffix(".new")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(token + "\n")
    draft.replace(file)


def _jobs(chosen: Options) -> Any:
    from local.jobs import LocalJobs

    adapters: Any = importlib.import_module("chalicelib.adapters")
    adapters.local_jobs = LocalJobs(chosen.data / "jobs", f"http://{_HOST}:{chosen.port}")
    return adapters.local_jobs


def _triggers(chosen: Options) -> Any:
    from chalicelib.settings import read
    from chalicelib.store.layout import Tables
    from local.clock import ClockController, HandClock
    from local.functions import Invocations, functions_of
    from local.triggers import Triggers, client

    front: Any = importlib.import_module("app")
    invocations = Invocations(functions_of(front.app))
    adapters: Any = importlib.import_module("chalicelib.adapters")
    wiring: Any = importlib.import_module("chalicelib.wiring")
    adapters.local_invoker, adapters.local_clock = invocations, HandClock(chosen.data / _CLOCK)
    ClockController(adapters.local_clock, wiring.deps, invocations).register(front.app, front.authorize)
    tables = Tables(read().prefix)
    return Triggers(
        front.app, invocations, tables.log, client if chosen.stream else None, (tables.log, tables.traces)
    )


def _server(port: int) -> Any:
    from local.gateway import Gateway
    from local.server import serve

    gateway = Gateway(importlib.import_module("app").app)
    try:
        return serve(gateway, _HOST, port)
    except OSError as error:
        raise Unusable(f"Port {port} cannot be used ({error.strerror}).") from None


def _say_hello(chosen: Options, token: str) -> None:
    print(HELLO.format(url=f"http://{_HOST}:{chosen.port}", token=token, data=chosen.endpoint or chosen.data))
    ahead = importlib.import_module("chalicelib.adapters").local_clock.ahead
    if ahead:
        print(f"Its time is {ahead} ahead, as POST /v1/clock left it ({chosen.data / _CLOCK} keeps that).")
    if os.environ["HEADRACE_ALLOW_LOOPBACK"] == "1":
        print(
            "Subscriber URLs may be http on this machine; HEADRACE_ALLOW_LOOPBACK=0 forbids it, as AWS does."
        )
    sys.stdout.flush()


def _end(number: int, frame: object) -> None:
    """Unwind once; a second signal must not cut that short."""
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(0)


def main() -> int:
    """The command line."""
    argparse.ArgumentParser(
        prog="python -m local",
        description=__doc__,
        epilog=_ENVIRONMENT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    try:
        run(options())
    except (Unusable, EngineError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
