"""What a job says: progress for people on standard error, one JSON line at the end on standard output."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def progress(text: str) -> None:
    """One line about what is under way."""
    print(text, file=sys.stderr, flush=True)


def summary(job: str, **counts: Any) -> None:
    """Print the summary as the last line. A reader that has gone, as in `| head`, is no error: the work is done."""
    try:
        print(json.dumps({"job": job, **counts}, separators=(",", ":")), flush=True)
    except BrokenPipeError:  # Python writes the rest once more when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
