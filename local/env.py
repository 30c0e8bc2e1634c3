"""`headrace-local env`: shows other programs where the engine of a data folder is."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from local import Unusable
from local.data_folder import data_folder, engine_variables, is_amazons
from local.options import ENDPOINT, add_data

_DESCRIPTION = """\
Print the variables that lead an SDK of AWS, as boto3, to the engine of the service that runs on a data folder:
  eval "$(%(prog)s)"
Or run a command with them. If no service runs on the folder, its engine is served for as long as the command runs. If
the environment has {endpoint} already, the command is run as it is."""


def main(program: str, arguments: Sequence[str]) -> int:
    """The command line."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    command = arguments[at + 1 :]
    parser = argparse.ArgumentParser(
        prog=program,
        usage="%(prog)s [--data FOLDER] [-- COMMAND ...]",
        description=_DESCRIPTION.replace("{endpoint}", ENDPOINT),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_data(parser)
    data: Path = parser.parse_args(arguments[:at]).data
    if at < len(arguments) and not command:
        parser.error("name a command after --")
    if command:
        with engine_of(data) as variables:
            return _run(command, os.environ | variables)
    running = engine_variables(data)
    if running is None:
        raise Unusable(
            f"No service runs on {data}. Start one, choose its folder with --data or HEADRACE_DATA, or run a command "
            f"on the stopped one: {program} -- COMMAND"
        )
    for name, value in running.items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


@contextlib.contextmanager
def engine_of(data: Path) -> Iterator[Mapping[str, str]]:
    """What leads to the engine: the one that the environment names, the folder's that is served already, or the
    folder's, served from now on. Raises Unusable."""
    if endpoint := os.environ.get(ENDPOINT):
        from local.store import variables_of

        yield variables_of(endpoint)
    elif (running := engine_variables(data)) is not None:
        yield running
    else:
        from local.clock import HandClock  # late, as local.store: they know the service
        from local.store import served

        with data_folder(data, "runs a command on its engine"):
            clock = HandClock(data / "clock")
            with served(data, clock.now_ms, by_amazon=is_amazons(data)) as (_, variables):
                yield variables


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command to its end and return its exit code, as a shell would."""
    try:
        process = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise Unusable(f"{command[0]} cannot be run ({error.strerror}).") from None
    for name in ("SIGTERM", "SIGHUP"):
        if number := getattr(signal, name, None):
            signal.signal(number, lambda number, frame: process.send_signal(number))
    signal.signal(signal.SIGINT, lambda number, frame: None)  # a terminal sends it to both
    code = process.wait()
    return code if code >= 0 else 128 - code
