"""The user's editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from .profiles import Unusable


def edited(text: str) -> str | None:
    """The text as the user leaves it in $VISUAL, $EDITOR or vi; None where nothing was changed. Raises Unusable."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "body.json"
        file.write_text(text)
        try:
            subprocess.run([*shlex.split(editor), str(file)], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Unusable(f"The editor {editor!r} failed ({error}). EDITOR names another.") from None
        after = file.read_text()
    return after if after != text else None
