"""`make run` and `headrace-local`: Headrace on one machine."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from errno import EADDRNOTAVAIL
from pathlib import Path
from typing import Any

from chalicelib import settings
from chalicelib.domain.errors import HeadraceError
from chalicelib.wiring import Deps
from local import log
from local import options as command_line
from local.clock import ClockController, HandClock
from local.engine.fetch import EngineError
from local.functions import Invocations, functions_of
from local.gateway import Gateway
from local.hello import hello
from local.log import LoggedGateway
from local.options import DYNAMODB_LOCAL, ENDPOINT, MOVABLE, Options
from local.server import serve
from local.services import ResetController, Services
from local.store import Store
from local.throttle import Throttle
from local.triggers import Triggers
from local.unusable import Unusable

_LOOK_SECONDS = 1.0
_ROTATE = (
    "It serves, but signs nothing, so it delivers nothing. If the key is lost, make new secrets: POST "
    '{url}/v1/signing-key/rotate {{"overlap_seconds": 0}}, then rotate-secret of each subscriber.'
)
_TERMINAL_GONE = getattr(signal, "SIGHUP", signal.SIGTERM)  # Windows has none
_COMMANDS = {"env": "local.env", "backup": "local.backup", "restore": "local.restore"}
_SWITCH_SECONDS = (
    0.001  # a thread whose commit is on the disk waits so long for one that computes: a fifth of Python's
)
_ENDS = (signal.SIGTERM, signal.SIGINT, _TERMINAL_GONE)


def run(options: Options) -> None:
    """Serve until a signal arrives."""
    out = sys.stdout
    sys.setswitchinterval(_SWITCH_SECONDS)
    with contextlib.ExitStack() as stack:
        if options.as_json:  # who reads the one line may read no other
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        with _port_of(options):  # first of all: a port that is taken is mostly a Headrace that runs already
            server = serve(None, options.host, options.port)
        stack.callback(server.server_close)
        options = replace(options, port=server.port)
        _set_environment(options)
        clock = HandClock(None if options.ephemeral else options.data / "clock")
        store = stack.enter_context(_open_store(options, clock))
        front: Any = importlib.import_module("app")
        functions = functions_of(front.app)
        invocations = Invocations(functions)
        end_event = threading.Event()
        services = _services(store, clock, invocations, end_event.is_set)
        if options.functions:
            _load_functions(options.functions, services())
        triggers = Triggers(front.app, invocations, store.pollers(functions))
        token = _admin_token(options, store, services())
        if options.clock == MOVABLE:
            ClockController(
                clock=clock, deps=services, invocations=invocations, forget=store.forget
            ).register(front.app, front.authorize)
        if store.clear:
            assert token is not None, "a new store has no tokens"
            ResetController(services, clock, token, store.clear).register(front.app, front.authorize)
        logger = log.logger(options.log)  # before anything runs that logs
        stack.callback(triggers.stop)  # after the server, before the engine: the stack ends in reverse
        triggers.start()
        gateway = Gateway(front.app, now_ms=clock.now_ms, throttle=Throttle(options.anonymous))
        server.gateway = logged = LoggedGateway(gateway, logger)
        server.tell = logged.tell
        stack.callback(server.shutdown)
        with _port_of(options):
            server.start()
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
        if (
            not isinstance(error, OSError)
            or isinstance(error, socket.gaierror)
            or error.errno == EADDRNOTAVAIL
        ):
            raise Unusable(
                f"{options.host!r} (--host, HEADRACE_HOST) is no address of this machine."
            ) from None
        other = options.port % 65535 + 1
        raise Unusable(
            f"Port {options.port} cannot be used ({error.strerror}). Stop what uses it (perhaps a Headrace that runs "
            f"already), or choose another: --port {other}, or HEADRACE_PORT={other}"
        ) from None


def _set_environment(options: Options) -> None:
    """For the app, which is imported after this and reads its settings as it does on AWS, and for what is started."""
    os.environ["HEADRACE_DATA"] = str(options.data)
    os.environ["HEADRACE_PORT"] = str(options.port)
    os.environ["HEADRACE_FUNCTIONS"] = str(options.functions or "")
    os.environ.setdefault("HEADRACE_ALLOW_LOOPBACK", "1")
    if options.token:
        os.environ["HEADRACE_TOKEN"] = options.token  # the archive's jobs call with it


def _open_store(options: Options, clock: HandClock) -> contextlib.AbstractContextManager[Store]:
    """The engine; what only the other one needs isn't imported."""
    if options.engine == DYNAMODB_LOCAL:
        from local import dynamodb

        return dynamodb.open_store(options)
    from local import embedded

    return embedded.open_store(options, clock)


def _services(
    store: Store, clock: HandClock, invocations: Invocations, is_ending: Callable[[], bool]
) -> Services:
    """What the functions and the HTTP interface find in the place of those that the environment would make."""
    wiring: Any = importlib.import_module("chalicelib.wiring")
    services = Services(
        lambda: wiring.Deps(replace(store.adapters(settings.read(), clock, invocations), is_ending=is_ending))
    )
    wiring.deps = services
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
    _create_tables(options, deps)
    file = store.tokens
    try:
        if file and not options.token:
            return deps.tokens.ensure_admin(file.read(), file.write)
        return deps.tokens.ensure_admin(options.token)
    except ValueError as error:
        place = f" (it is read from {file.path})" if file and not options.token else ""
        raise Unusable(f"{error}{place}.") from None


def _ticket(options: Options, deps: Deps, token: str) -> str | None:
    """What signs a browser in with the admin token; None where the signing key cannot be read."""
    try:
        return deps.sign_in_links.ticket(token.split("_")[1], deps.tokens.fingerprint_of(token))[0]
    except HeadraceError as error:
        print(f"{error.detail} {_ROTATE.format(url=options.url)}", file=sys.stderr)
        return None


def _create_tables(options: Options, deps: Deps) -> None:
    """Say what to change where the engine is not there, or refuses."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        deps.setup()
    except BotoCoreError as error:
        raise Unusable(f"{error} {ENDPOINT} says where the engine is.") from None
    except ClientError as error:
        why = error.response["Error"]["Message"]
        if error.response["ResponseMetadata"]["HTTPStatusCode"] >= 500:
            place = options.endpoint or options.data
            raise Unusable(
                f"The engine cannot work with {place}: is the disk full or read-only, or a file damaged? ({why})"
            ) from None
        raise Unusable(f"The engine refuses tables (HEADRACE_PREFIX begins their names): {why}") from None


def _tell_at_end_of_stdin(end: threading.Event) -> None:
    """When the process that started this one closes the pipe, or dies; a terminal ends with an error."""

    def wait() -> None:
        with contextlib.suppress(OSError):
            while sys.stdin and os.read(sys.stdin.fileno(), 1024):
                pass
        end.set()

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


def _end(number: int, frame: object) -> None:
    """Unwind once; a second signal must not cut that short."""
    for each in _ENDS:
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(0)


def _break_off(number: int, frame: object) -> None:
    """Unwind; what the command was to do isn't done."""
    raise SystemExit(128 + number)


def main(program: str = "python -m local") -> int:
    """The command line."""
    log.see_to_streams()
    for number in _ENDS:
        if number != _TERMINAL_GONE or signal.getsignal(number) != signal.SIG_IGN:  # as nohup wants it
            signal.signal(number, _end)
    try:
        return _main(program, sys.argv[1:])
    except (Unusable, EngineError) as error:
        why = str(error)
    except HeadraceError as error:  # of what is stored, or the key to it
        why = error.detail
    except OSError as error:
        why = f"{error.filename} cannot be used ({error.strerror}). HEADRACE_DATA chooses another folder."
        if error.filename is None:
            why = f"This machine lacks something ({error.strerror or error}): is the disk of HEADRACE_DATA full?"
    print(why, file=sys.stderr)
    return 1


def _main(program: str, arguments: Sequence[str]) -> int:
    name, *rest = arguments or ("",)
    if name in _COMMANDS:
        for number in _ENDS:
            signal.signal(number, _break_off)
        command: Any = importlib.import_module(_COMMANDS[name])
        return int(command.main(f"{program} {name}", rest))
    run(command_line.read(program, arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
