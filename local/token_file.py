"""The admin token made at the first start, kept for the following ones."""

from __future__ import annotations

import os
from pathlib import Path

from local import Unusable


class TokenFile:
    """A file with one token, readable by its owner only."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> str | None:
        """The token; None if there is none. Raises Unusable."""
        try:
            return self.path.read_text().strip() or None
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise Unusable(f"{self.path} cannot be used ({why}): it keeps the admin token.") from None

    def write(self, token: str) -> None:
        """Keep it, in one step, so that a crash leaves all of it or none."""
        draft = self.path.with_suffix(".new")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            out.write(token + "\n")
        draft.replace(self.path)
