"""The commands, the options that all of them have, and the handling of errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import cache
from typing import Annotated, Any, cast

import typer
import typer.main

from ..calls import agent
from ..errors import Forbidden, HeadraceError, NotFound, Unauthorized, Unavailable
from . import (
    archive,
    console,
    consumers,
    dead,
    delayed,
    deliveries,
    doctor,
    events,
    groups,
    jobs,
    listen,
    messages,
    profile,
    receive,
    schedules,
    send,
    spool,
    stats,
    tokens,
    topics,
    transactions,
)
from .output import Output, Pipe, ReaderGoneError
from .profiles import Unusable
from .refusals import sentence
from .session import INTERRUPTED, NO_ANSWER, NOT_ALLOWED, NOT_FOUND, REFUSED, USAGE, Session

_EPILOG = (
    "Exit codes: 0 done, 1 refused, 2 wrong usage, 3 no answer (unknown; safe to repeat, but for send without a "
    "dedup id, tokens create, rotate, rotate-secret, dead-letters redrive --limit), 4 not found, 5 not allowed, "
    "6 done in part, 129, 130 or 143 ended by a signal."
)
_GLOBAL = {"--json": 0, "--profile": 1, "--url": 1, "--token": 1}

app = typer.Typer(
    name="headrace",
    help="Headrace, the message queue: send, receive, inspect, repair.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(is_asked: bool) -> None:
    if is_asked:
        print(f"headrace {agent().partition('/')[2] or 'of a source tree that is not installed'}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    profile: Annotated[str | None, typer.Option(help="A stored profile (HEADRACE_PROFILE).")] = None,
    url: Annotated[str | None, typer.Option(help="The service's URL (HEADRACE_URL).")] = None,
    token: Annotated[
        str | None,
        typer.Option(help="Your token. HEADRACE_TOKEN is safer: the list of processes shows options."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document a line.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options of every command; they may stand anywhere."""
    session = context.obj = Session(profile, url, token, Output(json))
    context.call_on_close(session.close)


for module in (
    *(topics, groups, consumers, deliveries, dead, delayed, jobs, schedules, transactions),
    *(spool, events, tokens, profile),
):
    app.add_typer(module.app)
app.command(epilog="Example: headrace seek orders mailer earliest --preview")(groups.seek)
deliveries.app.command("list", epilog="Example: headrace messages list orders --key order-188")(messages.find)
for module in (archive, console, send, receive, messages, stats, listen, doctor):
    module.register(app)


@cache
def _command() -> Any:
    """What the parser makes of `app`: a tenth of a second's work."""
    return typer.main.get_command(app)


def run(arguments: Sequence[str]) -> int:
    """One run; its exit code."""
    output = Output(False)
    try:
        with redirect_stdout(cast(Any, Pipe(sys.stdout))):
            _command()(ordered(arguments), prog_name="headrace")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else REFUSED
    except (Unusable, ValueError) as error:  # a duration or a time that is none, says the client
        output.fail(str(error))
        return USAGE
    except HeadraceError as error:
        output.fail(sentence(error, _options(arguments)))
        return _code(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except ReaderGoneError:  # who reads has seen enough, as in `headrace … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:  # a file, a folder, a disk
        output.fail(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
        return USAGE
    return 0


def ordered(arguments: Sequence[str]) -> list[str]:
    """The arguments with the options of every command in front, where the parser expects them."""
    front, rest, queue = list[str](), list[str](), list(arguments)
    while queue:
        argument = queue.pop(0)
        if argument == "--":
            return [*front, *rest, argument, *queue]
        name, equals, _ = argument.partition("=")
        if name not in _GLOBAL or (equals and not _GLOBAL[name]):
            rest.append(argument)
            continue
        front.append(argument)
        if _GLOBAL[name] and not equals and queue:
            front.append(queue.pop(0))
    return front + rest


def _options(arguments: Sequence[str]) -> set[str]:
    """The options of the command that the arguments name."""
    command = _command()
    for argument in arguments:
        command = getattr(command, "commands", {}).get(argument, command)
    return {option for parameter in command.params for option in parameter.opts}


def _code(error: HeadraceError) -> int:
    for kind, code in (
        (Unavailable, NO_ANSWER),
        (NotFound, NOT_FOUND),
        (Unauthorized, NOT_ALLOWED),
        (Forbidden, NOT_ALLOWED),
    ):
        if isinstance(error, kind):
            return code
    return REFUSED
