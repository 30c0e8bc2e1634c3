"""`headrace-local`, and `python -m headrace_local`.

The service's modules bear short names (Lambda finds `app` and `chalicelib` beside each other). So the distribution
keeps them to itself, in this folder, and only its own process can import them; a checkout has them one folder up.
"""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def main() -> int:
    """The command line."""
    home = next(folder for folder in (_HERE, _HERE.parent) if (folder / "chalicelib").is_dir())
    sys.path.insert(0, str(home))
    from local.__main__ import main as serve

    return serve("headrace-local")


if __name__ == "__main__":
    sys.exit(main())
