"""One status of many: of a message over its groups, of a broadcast's delivery over its consumers."""

from __future__ import annotations

from collections.abc import Collection

OPEN = ("RUNNING", "RETRYING")  # the first of these that is among them is the status of all
OVER = ("SUCCESS", "DEAD", "CANCELLED")


def combined(statuses: Collection[str]) -> str:
    """The table of docs/state_machine.md: what is open says so; what has begun for some and not for all is RUNNING;
    where all is over, one DEAD makes it DEAD. NEW where there is nobody."""
    words = set(statuses)
    if len(words) == 1:
        return words.pop()
    for status in OPEN:
        if status in words:
            return status
    if "NEW" in words:
        return "RUNNING"
    return "DEAD" if "DEAD" in words else "SUCCESS" if words else "NEW"
