"""The resources that a process of ours has used, from /proc; nothing where there is no /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU time so far, and the memory that is held now."""

    cpu_seconds: float = 0.0
    resident_mb: int = 0


def usage_of(pid: int) -> Usage:
    """A process and its children, but not theirs: what they start is over in a moment, and until then seems to hold as
    much as who started it."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return Usage()
    each = [_usage_of_one(process_id) for process_id in (str(pid), *children)]
    return Usage(
        sum(process_id.cpu_seconds for process_id in each), sum(process_id.resident_mb for process_id in each)
    )


def _usage_of_one(pid: str) -> Usage:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return Usage()
    ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") // 2**20)
