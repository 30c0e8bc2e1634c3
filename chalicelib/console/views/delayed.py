"""A list of a topic's delayed messages, and how far it has looked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...services.produce.delayed import DelayedMessage


@dataclass(frozen=True, slots=True)
class Delayed:
    """Some of a topic's delayed messages. Timers of all topics are stored together, so there may be more of them though
    few or none are here: those due up to `until_ms` were looked through (None: all), and `following` is where the next
    page begins."""

    rows: Sequence[DelayedMessage]
    until_ms: int | None
    following: str | None
