"""`headrace`, the command line. It needs the extra: pip install 'headrace[cli]'."""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point."""
    try:
        from .app import run
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        print("The command line needs more: pip install 'headrace[cli]'", file=sys.stderr)
        sys.exit(2)
    sys.exit(run(sys.argv[1:]))
