"""How long ago something was, though clocks are set and machines sleep."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .errors import ResendTooLate

DAY_SECONDS = 86_400
"""For so long the service knows what it has stored of a named request."""
_UP = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


class Moment(NamedTuple):
    """A time by two clocks, in seconds: `wall` since 1970, which may be set forward and back; `up` since the machine
    began the run of this name, time asleep included."""

    wall: float
    up: float
    run: str


def now() -> Moment:
    """The present moment."""
    return Moment(time.time(), time.monotonic() if _UP is None else time.clock_gettime(_UP), _run())


@cache
def _run() -> str:
    """The name of the machine's run; where it has none, of this process's."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        import uuid

        return uuid.uuid4().hex


def resend_seconds(first_sent: Moment, now: Moment) -> str:
    """How long ago a call was sent first, as the service wants to know it: by the clock that says more, rounded up. A
    day where the machine was started since, for its clock may have been set. Raises ResendTooLate after a day."""
    seconds = now.wall - first_sent.wall
    if first_sent.run == now.run:
        seconds = max(seconds, now.up - first_sent.up)
    elif seconds <= DAY_SECONDS:
        return str(DAY_SECONDS)
    if seconds > DAY_SECONDS:
        raise ResendTooLate(
            "RESEND_TOO_LATE",
            f"This was sent first {seconds / 3600:.0f} hours ago, without an answer; the service knows for a day "
            "whether it has stored it. Look for it (by its key), or send it as a new one: then it may be there twice.",
        )
    return str(max(1, min(DAY_SECONDS, int(seconds) + 1)))
