"""The mover's wake-ups: messages of a queue that delays each by a whole number of seconds, up to 15 minutes.

A wake-up is a hint. If one is lost, the mover's schedule moves its timers a minute later; one too many costs a look.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec

MAX_DELAY_MS = 900_000  # a timer that is due later gets its wake-up from the mover's schedule
EARLY_MS = 100  # a wake-up comes so long before its first timer is due, at most: the mover then waits
LATE_MS = 1_000 - EARLY_MS  # and so long after it, at most
_NEAR_MS = 2_000  # a process that sends two wake-ups within it will send more
DueTimer = tuple[int, Sequence[int]]  # when a timer is due, and the fragments that may have it


@dataclass(frozen=True, slots=True, eq=False)
class MoverWake:
    """A wake-up that comes at `at_ms`, for what is due in these fragments by EARLY_MS later; empty: in all."""

    at_ms: int
    delay_seconds: int
    fragments: tuple[int, ...]

    def hint(self) -> dict[str, Any]:
        """The wake-up as JSON; `read_hints` reads it."""
        until = {"until_ms": self.at_ms + EARLY_MS}
        return {**until, "fragments": list(self.fragments)} if self.fragments else until

    def covers(self, fragments: Iterable[int]) -> bool:
        """Does it name all of these fragments?"""
        return not self.fragments or set(fragments) <= set(self.fragments)


class MoverWakes:
    """The wake-ups that this process has sent and that are still to come. Timers of the same second share one. A
    wake-up names the fragments of its timers; one that comes near another names all, for the timers that follow."""

    def __init__(self) -> None:
        self._to_come: list[MoverWake] = []
        self._lock = threading.Lock()

    def add(self, due_timers: Iterable[DueTimer], now_ms: int) -> list[MoverWake]:
        """The wake-ups that are to be sent now for these timers; they count as sent."""
        with self._lock:
            latest_ms = now_ms + MAX_DELAY_MS  # later ones are from before this clock was set back
            self._to_come = [wake for wake in self._to_come if now_ms < wake.at_ms <= latest_ms]
            soon = [(max(ms, now_ms), of) for ms, of in due_timers if ms <= now_ms + MAX_DELAY_MS]
            return self._add(sorted(soon), now_ms)

    def remove(self, wake: MoverWake) -> None:
        """A wake-up could not be sent."""
        with self._lock:
            self._to_come = [each for each in self._to_come if each is not wake]

    def _add(self, due_timers: Sequence[DueTimer], now_ms: int) -> list[MoverWake]:
        new_wakes: list[MoverWake] = []
        for due_ms, fragments in due_timers:
            known = chain(self._to_come, new_wakes)
            near = [wake for wake in known if abs(wake.at_ms - due_ms) <= _NEAR_MS]
            if any(-EARLY_MS <= w.at_ms - due_ms <= LATE_MS and w.covers(fragments) for w in near):
                continue
            delay_seconds = (due_ms - now_ms + LATE_MS) // 1000
            at_ms = now_ms + 1000 * delay_seconds
            together = {f for ms, others in due_timers if -LATE_MS <= ms - at_ms <= EARLY_MS for f in others}
            wake = MoverWake(at_ms, delay_seconds, () if near else tuple(sorted({*fragments, *together})))
            new_wakes.append(wake)
        self._to_come += new_wakes
        return new_wakes


class _Hint(msgspec.Struct):
    until_ms: int
    fragments: list[int] | None = None


@dataclass(frozen=True, slots=True)
class Hints:
    """What wake-ups ask for: the fragments to look at (None: all), and until when timers are due that rely on them.
    `dropped`: how many of them could not be read."""

    fragments: frozenset[int] | None
    until_ms: int
    dropped: int = 0


def read_hints(bodies: Sequence[str], all_fragments: Sequence[int], now_ms: int) -> Hints:
    """The wake-ups in these messages. The queue is an input: what is not such a hint is dropped."""
    hints: list[_Hint] = []
    for body in bodies:
        with suppress(msgspec.DecodeError, RecursionError):
            hint = msgspec.json.decode(body, type=_Hint)
            if hint.until_ms <= now_ms + 2 * MAX_DELAY_MS and {*(hint.fragments or ())} <= {*all_fragments}:
                hints.append(hint)
    named = frozenset(fragment for hint in hints for fragment in hint.fragments or ())
    names_all = any(hint.fragments is None for hint in hints)
    until_ms = max((hint.until_ms for hint in hints), default=0)
    return Hints(None if names_all else named, until_ms, len(bodies) - len(hints))
