"""The function `sweep`: finds messages that nobody works on. So a lost wake-up only delays delivery.

It visits marked topics only (domain/mark), so idle topics cost nothing. When a mark's window is over and the topic
has nothing to deliver, the mark is dropped; otherwise the topic gets a new one. scout.py looks into each topic.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from ..domain.mark import Mark, complete_until_ms
from ..domain.topic import Topic
from ..ports.world import Clock
from .scout import Findings, Scout
from .walk import HasTime, RoundRobin, Stretch, Trouble, Visit

if TYPE_CHECKING:
    from ..store.control import Control
    from ..store.marks import Marks
    from ..store.rounds import Rounds


_JOB = "sweep"

Wake = Callable[[str], object]
"""Start the delivery of a log shard, named by its partition key."""


@dataclass(slots=True)
class SweepReport:
    """What one run did. `looks` are reads of a cursor or a shard."""

    looks: int = 0
    woken: int = 0
    under_way: int = 0
    stretch: Stretch = field(default_factory=Stretch)

    def as_dict(self) -> dict[str, int | bool]:
        """The counts as JSON, for the function's log line."""
        return {
            "looks": self.looks,
            "woken": self.woken,
            "under_way": self.under_way,
            **self.stretch.as_dict(),
        }


class Sweeper:
    """Visits all marked topics."""

    def __init__(
        self,
        *,
        control: Control,
        scout: Scout,
        marks: Marks,
        rounds: Rounds,
        wake: Wake,
        clock: Clock,
        threads: Callable[[], Executor],
    ) -> None:
        self._control = control
        self._scout = scout
        self._marks = marks
        self._round_robin = RoundRobin(_JOB, rounds, clock)
        self._wake = wake
        self._clock = clock
        self._threads = threads

    def run_once(self, has_time: HasTime = lambda: True) -> SweepReport:
        """One run. `has_time` is asked before each topic, and before each consumer of a broadcast in it."""
        report, bookmark, now_ms = SweepReport(), self._round_robin.bookmark(), self._clock.now_ms()
        if bookmark.passed_ms > now_ms:  # set by a clock that was ahead: what is marked now lies before it
            bookmark = replace(bookmark, passed_ms=0)
        unfinished: list[Trouble] = []  # of topics that keep their marks all the same
        marks = _Marked(self._marks, bookmark.passed_ms, now_ms)

        def look(name: str) -> Visit:
            topic = self._control.topic(name, consistent=False)
            findings = self._scout.examine(topic, has_time) if topic else Findings()
            for shard in findings.forgotten:  # here: to wake takes as long as to look
                self._wake(shard)
            return partial(record_findings, name, findings)

        def record_findings(name: str, findings: Findings) -> bool:
            report.looks += findings.looks
            report.under_way += findings.under_way
            report.woken += len(findings.forgotten)
            if not findings.is_whole:
                unfinished.extend(Trouble.of(name, error) for error in findings.refusals)
                return False
            for error in findings.refusals:
                raise error
            marks.note_looked_at(name, findings.next_ms)
            return True

        with self._threads() as threads:
            report.stretch = self._round_robin.run_together(marks.newest, bookmark, look, has_time, threads)
        for trouble in report.stretch.troubles:
            marks.note_looked_at(trouble.topic, self._clock.now_ms())
        report.stretch.troubles += unfinished
        self._round_robin.end(bookmark, report.stretch, marks.passed_ms())
        return report

    def restore_mark(self, topic: Topic, has_time: HasTime) -> None:
        """Mark a topic that has something to deliver, if its mark was lost."""
        findings = self._scout.examine(topic, has_time)
        if findings.next_ms is not None:
            self._marks.mark(Mark(topic.name, findings.next_ms))
        for error in findings.refusals:
            raise error


class _Marked:
    """The marked topics of one run: by topic the newest of its marks whose time has come, and the first that is yet to
    come."""

    def __init__(self, marks: Marks, from_ms: int, now_ms: int) -> None:
        self._marks = marks
        self._now_ms = now_ms
        self.newest: dict[str, int] = {}
        self._to_come: dict[str, int] = {}
        self._first_ms: int | None = None
        for mark in marks.since(from_ms):
            if mark.at_ms > now_ms:
                self._to_come.setdefault(mark.topic, mark.at_ms)
                continue
            self._first_ms = mark.at_ms if self._first_ms is None else self._first_ms
            self.newest[mark.topic] = mark.at_ms
        self._kept = dict(self.newest)

    def note_looked_at(self, topic: str, next_ms: int | None) -> None:
        """A topic was looked at, and is to be again by then: let its mark go if its window is over."""
        if self.newest[topic] > complete_until_ms(self._now_ms):
            return
        if next_ms is not None and next_ms < self._to_come.get(topic, next_ms + 1):
            self._marks.mark(Mark(topic, max(next_ms, self._now_ms)))
        self._kept.pop(topic, None)

    def passed_ms(self) -> int:
        """The time up to which all marks are let go. Behind the last window's end, others may still mark."""
        until_ms = min((*self._kept.values(), complete_until_ms(self._now_ms) + 1))
        return until_ms if self._first_ms is not None and self._first_ms < until_ms else 0
