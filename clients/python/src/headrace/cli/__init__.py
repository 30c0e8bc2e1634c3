"""`headrace`, the command line. It needs the packages of the extra `cli`."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """The entry point. SIGTERM and SIGHUP end a command as Ctrl-C does: it says what it did, and cleans up."""
    try:
        from .app import run
        from .session import INTERRUPTED
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        print(
            "The command line needs two more packages: pip install 'rich>=13' 'typer>=0.19'", file=sys.stderr
        )
        sys.exit(2)
    received: list[int] = []

    def end(number: int, _: object) -> None:
        received.append(number)
        if number == signal.SIGINT or len(received) == 1:  # managers send several; only a person hurries
            raise KeyboardInterrupt

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        number = getattr(signal, name, None)
        if number and signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, end)
    code = run(sys.argv[1:])
    sys.exit(128 + received[0] if received and code == INTERRUPTED else code)
