"""The admin token made at the first start, kept for the following ones."""

from __future__ import annotations

import os
from pathlib import Path


class TokenFile:
    """A file with one token, readable by its owner only."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> str | None:
        """The token; None if there is none."""
        try:
            return self.path.read_text().strip() or None
        except FileNotFoundError:
            return None

    def write(self, token: str) -> None:
        """Keep it, in one step, so that a crash leaves all of it or none."""
        draft = self.path.with_suffix(".new")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            out.write(token + "\n")
        draft.replace(self.path)
