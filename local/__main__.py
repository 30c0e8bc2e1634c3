"""`make run` and `headrace-local`: Headrace on one machine."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from chalicelib import wiring
from chalicelib.api import http
from chalicelib.console import actions
from chalicelib.domain.errors import HeadraceError
from chalicelib.wiring import Deps
from local import Unusable, log
from local import options as command_line
from local.clock import ClockController, HandClock, Services, reset_call, seconds_to_due
from local.data_folder import read_token, write_private
from local.functions import Invocations, functions_of
from local.gateway import Gateway, Throttle
from local.log import LoggedGateway, hello
from local.options import ENDPOINT, MOVABLE, Options
from local.server import serve
from local.store import Store, expiry, open_store
from local.triggers import triggers

_LOOK_SECONDS = 1.0
_EXPIRY, _EXPIRY_SECONDS = "drop expired rows", 60
_ROTATE = (
    "It serves, but signs nothing, so it delivers nothing. If the key is lost, make new secrets: POST "
    '{url}/v1/signing-key/rotate {{"overlap_seconds": 0}}, then rotate-secret of each subscriber.'
)
_TERMINAL_GONE = getattr(signal, "SIGHUP", signal.SIGTERM)  # Windows has none
_COMMANDS = {
    "env": "local.env:main",
    "backup": "local.backup:backup_main",
    "restore": "local.backup:restore_main",
    "repair": "local.repair:main",
}
# a thread whose commit is on the disk waits so long for one that computes: a fifth of Python's
_SWITCH_SECONDS = 0.001
_ENDS = (signal.SIGTERM, signal.SIGINT, _TERMINAL_GONE)


def run(options: Options) -> None:
    """Serve until a signal arrives."""
    out = sys.stdout
    with contextlib.ExitStack() as stack:
        if options.as_json:  # who reads the one line may read no other
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        with _port_of(options):  # first of all: a port that is taken is mostly a Headrace that runs already
            server = stack.enter_context(serve(None, options.host, options.port))
        options = replace(options, port=server.port)
        _set_environment(options)
        clock = HandClock(None if options.ephemeral else options.data / "clock")
        store = stack.enter_context(open_store(options, clock))
        front: Any = importlib.import_module("app")
        functions = functions_of(front.app)
        invocations = Invocations(functions)
        end_event = threading.Event()
        services = _services(partial(store.deps, clock, invocations, end_event.is_set))
        invocations.seconds_to_due = partial(seconds_to_due, services)
        if options.functions:
            _load_functions(options.functions, services())
        if engine := store.engine:
            functions[_EXPIRY] = expiry(engine, functions)
            invocations.every(_EXPIRY_SECONDS, _EXPIRY, delay=_EXPIRY_SECONDS)
        token = _admin_token(options, store, services())
        if options.clock == MOVABLE:
            forget = engine.drop_expired if engine else lambda: 0
            move = ClockController(clock=clock, deps=services, invocations=invocations, forget=forget).call
            http.register(front.app, front.authorize, [move])
            actions.add_call(move)  # the console's slider
        if options.ephemeral and engine and token:
            http.register(front.app, front.authorize, [reset_call(services, clock, token, engine.clear)])
        logger = log.logger(options.log)  # before anything runs that logs
        # it ends after the server, before the engine: the stack ends in reverse
        stack.enter_context(triggers(front.app, invocations, store.pollers(functions)))
        invocations.wake_mover({"until_ms": 0}, 0)
        gateway = Gateway(front.app, now_ms=clock.now_ms, throttle=Throttle(options.anonymous))
        server.gateway = logged = LoggedGateway(gateway, logger)
        server.tell = logged.tell
        with _port_of(options):
            server.start()
        stack.callback(server.shutdown)
        ticket = _ticket(options, services(), token) if token else None
        if not log.say(hello(options, token, store.ending, clock.ahead, ticket), out) and options.as_json:
            raise Unusable("Standard output cannot be written, where --json says the address and the token.")
        # first of all, so that the server need not wait for who waits for messages
        stack.callback(end_event.set)
        if options.lifeline:
            _tell_at_end_of_stdin(end_event)
        while not end_event.wait(_LOOK_SECONDS):
            pass  # a signal that came just before the wait is handled now


@contextlib.contextmanager
def _port_of(options: Options) -> Iterator[None]:
    """Says in a sentence that the port is taken, or the host none of this machine."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        raise Unusable(
            f"{options.host!r} (--host, HEADRACE_HOST) and port {options.port} (--port, HEADRACE_PORT) cannot be had: "
            f"{error}. Is the host one of this machine, and is the port used, perhaps by a Headrace that runs already?"
        ) from None


def _set_environment(options: Options) -> None:
    """For the app, which is imported after this and reads its settings as it does on AWS, and for what is started."""
    functions, port = str(options.functions or ""), str(options.port)
    os.environ |= {"HEADRACE_DATA": str(options.data), "HEADRACE_FUNCTIONS": functions, "HEADRACE_PORT": port}
    os.environ.setdefault("HEADRACE_ALLOW_LOOPBACK", "1")
    if options.token:
        os.environ["HEADRACE_TOKEN"] = options.token  # the archive's jobs call with it


def _services(make: Callable[[], Deps]) -> Services:
    """In the place of those that the environment would make."""
    world: Any = wiring
    services = world.deps = Services(make)
    return services


def _load_functions(file: Path, deps: Deps) -> None:
    """Run the user's file now, that what is wrong with it is not met by each delivery."""
    try:
        _ = deps.sender
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code, which may raise anything
        why = traceback.format_exception_only(error)[-1].strip()
        raise Unusable(f"{file} (--functions, HEADRACE_FUNCTIONS) cannot be run: {why}") from None


def _admin_token(options: Options, store: Store, deps: Deps) -> str | None:
    """Create the tables and see to the admin token; its text, or None: it was made earlier, and is kept nowhere."""
    file = None if options.token else store.token_file
    try:
        deps.setup()
        if file is None:
            return deps.tokens.ensure_admin(options.token)
        return deps.tokens.ensure_admin(read_token(file), lambda text: write_private(file, f"{text}\n"))
    except ValueError as error:
        place = f" (it is read from {file})" if file else ""
        raise Unusable(f"{error}{place}.") from None
    except (BotoCoreError, ClientError) as error:
        raise Unusable(
            f"The engine cannot work with {options.endpoint or options.data}: {error} {ENDPOINT} says where it is, "
            "HEADRACE_PREFIX begins the names of its tables. Is the disk full or read-only, or a file damaged?"
        ) from None


def _ticket(options: Options, deps: Deps, token: str) -> str | None:
    """What signs a browser in with the admin token; None where the signing key cannot be read."""
    try:
        return deps.sign_in_links.ticket(token.split("_")[1], deps.tokens.fingerprint_of(token))[0]
    except HeadraceError as error:
        print(f"{error.detail} {_ROTATE.format(url=options.url)}", file=sys.stderr)
        return None


def _tell_at_end_of_stdin(end: threading.Event) -> None:
    """When the process that started this one closes the pipe, or dies; a terminal ends with an error."""

    def wait() -> None:
        with contextlib.suppress(OSError):
            while sys.stdin and os.read(sys.stdin.fileno(), 1024):
                pass
        end.set()

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


def main(program: str = "python -m local") -> int:
    """The command line."""
    log.see_to_streams()
    name, *rest = sys.argv[1:] or [""]
    command = _COMMANDS.get(name)

    def end(number: int, frame: object) -> None:
        """Unwind once; a second signal must not cut that short. What a command was to do isn't done."""
        for each in _ENDS:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number if command else 0)

    for each in _ENDS:
        if each != _TERMINAL_GONE or signal.getsignal(each) != signal.SIG_IGN:  # as nohup wants it
            signal.signal(each, end)
    try:
        if command:
            return int(pkgutil.resolve_name(command)(f"{program} {name}", rest))
        sys.setswitchinterval(_SWITCH_SECONDS)
        run(command_line.read(program, sys.argv[1:]))
        return 0
    except HeadraceError as error:  # of what is stored, or the key to it
        raise Unusable(error.detail) from None
    except OSError as error:
        place = error.filename or "Something that this machine lacks"
        raise Unusable(
            f"{place} cannot be used ({error.strerror or error}). HEADRACE_DATA chooses another folder."
        ) from None


if __name__ == "__main__":
    sys.exit(main())
