"""What a handler may say by raising, and what becomes of a message."""

from __future__ import annotations

from dataclasses import dataclass

from ..durations import Duration, whole_seconds

LONGEST_WAIT_SECONDS = 30 * 86_400  # the service's limit
"""Of a message that is given back: the service takes none that is longer."""
_REASON_CHARS = 512


class Bury(Exception):
    """Raise it in a handler: never try this message again; it becomes a dead letter, with the reason given."""

    reason = ""  # of one that is made without this `__init__`: a subclass may have its own

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = text_of(reason)


class Retry(Exception):
    """Raise it in a handler: try again, after `in_seconds` (a duration, 30 days at most) or as the
    ladder says."""

    delay_seconds: int | None = None
    reason = ""

    def __init__(self, in_seconds: Duration | None = None, reason: str = "") -> None:
        super().__init__(reason)
        self.delay_seconds = whole_seconds(in_seconds) if in_seconds is not None else None
        self.reason = text_of(reason)


@dataclass(frozen=True)
class Verdict:
    """How a delivery is settled: `ack`, or given back. What is given back alike goes in one call."""

    ack: bool = True
    delay_seconds: int | None = None
    dead_letter: bool = False
    reason: str | None = None
    untried: bool = False

    @property
    def name(self) -> str:
        """For log lines."""
        return "ack" if self.ack else "bury" if self.dead_letter else "retry"


ACK = Verdict()
UNTRIED = Verdict(ack=False, untried=True)
"""Its handling has not begun: the next consumer gets it."""


def verdict_of(error: BaseException | None) -> Verdict:
    """What a handler's end means."""
    if error is None:
        return ACK
    if isinstance(error, Bury):
        return Verdict(False, None, True, error.reason[:_REASON_CHARS] or None)
    if isinstance(error, Retry):
        wait = error.delay_seconds
        wait = min(wait, LONGEST_WAIT_SECONDS) if wait is not None else None
        return Verdict(False, wait, False, error.reason[:_REASON_CHARS] or None)
    return Verdict(False, None, False, f"{type(error).__name__}: {text_of(error)}"[:_REASON_CHARS])


def text_of(reason: object) -> str:
    """A reason as a text that can be sent, also if it was given as another type."""
    try:
        return str(reason).encode(errors="replace").decode()
    except Exception:
        return f"({type(reason).__name__} has no text)"
