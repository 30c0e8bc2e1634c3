"""Marks: from when on a topic may have something to deliver that nobody is at work on.

Whoever puts something into a topic's log marks the topic first, once in a window of two minutes; the windows of
different topics begin at different times, so that busy ones do not all mark at once.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

WINDOW_MS = 120_000  # longer ones cost writers less, and the sweep more looks
_AGAIN_MS = 30_000
_SLACK_MS = 60_000  # for who marked, and then was slow, and for clocks that differ
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Mark:
    """A topic, by name, and the time."""

    topic: str
    at_ms: int


def window_of(topic: str, now_ms: int) -> int:
    """When the topic's present window began: all processes agree."""
    return now_ms - (now_ms + zlib.crc32(topic.encode())) % WINDOW_MS


def repeated_at(now_ms: int) -> int:
    """When to mark once more what cannot be marked now: after half a minute, the same time for all in the next half."""
    return now_ms - now_ms % _AGAIN_MS + 2 * _AGAIN_MS


def all_over(now_ms: int) -> int:
    """Whatever was put into a log under a mark of this time or earlier is there to be seen."""
    return now_ms - WINDOW_MS - _SLACK_MS


def asked_again_ms(topic: str, since_ms: int, now_ms: int) -> int:
    """When to ask once more who was registered at `since_ms` and has not agreed: in the next window for an hour, then
    once an hour. All runs of such a time agree upon it, so that they leave one mark."""
    period_ms = WINDOW_MS if now_ms - since_ms < _HOUR_MS else _HOUR_MS
    return now_ms - (now_ms + zlib.crc32(topic.encode())) % period_ms + period_ms
