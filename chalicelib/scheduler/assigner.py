"""The function `assign`: renews the assignments of idle groups, and repeats handshakes.

It also removes consumers that have expired.

A group in use renews its own assignment within seconds (services/core/assignments). This job is for groups in which
nothing happens: their shards must have an owner who can be woken. It visits marked topics only (domain/mark), and
writes only what has changed. A topic with a PENDING subscriber is marked again, also when nothing is produced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TypeVar

from ..domain.assignment import Staffed
from ..domain.attention import stopped
from ..domain.mark import Mark, asked_again_ms, complete_until_ms
from ..domain.times import MINUTE_MS
from ..domain.topic import Consumer, ConsumerState, Group, Topic
from ..ports.world import Clock
from ..store import Control, Marks, Rounds
from .walk import HasTime, Report, RoundRobin, Trouble

_JOB = "assign"


@dataclass(slots=True)
class AssignReport(Report):
    """What one run did: the number of groups visited, of new assignments, and of consumers that agreed."""

    groups: int = 0
    assigned: int = 0
    agreed: int = 0


_REMOVED_AT_ONCE = 100  # of a group, by one visit
T = TypeVar("T")
_Pending = tuple[Topic, Group, Consumer]
Ask = Callable[[Topic, Group, Consumer], bool]  # ask a PENDING consumer's owner once more; whether it agreed
Remove = Callable[[Topic, Group, Consumer], object]  # remove a consumer if it has expired


@dataclass(kw_only=True, frozen=True, slots=True)
class Assigner:
    """Visits all marked topics."""

    control: Control
    marks: Marks
    rounds: Rounds
    look_after: Callable[[Topic, Staffed], bool]
    ask: Ask
    remove: Remove
    clock: Clock
    threads: Callable[[], Executor]

    def run_once(self, has_time: HasTime = lambda: True, may_ask: HasTime = lambda: True) -> AssignReport:
        """One run. `has_time` is asked before each topic, `may_ask` before each handshake. The handshakes are
        made at the same time, at the end: a host that hangs does not delay the others."""
        report, now_ms = AssignReport(), self.clock.now_ms()
        names = {mark.topic for mark in self.marks.since(complete_until_ms(now_ms)) if mark.at_ms <= now_ms}
        if not names:
            return report
        round_robin = RoundRobin(_JOB, self.rounds, self.clock)
        bookmark = self.rounds.bookmark(_JOB)
        pending_by_topic: list[Sequence[_Pending]] = []

        def visit(name: str) -> None:
            topic = self.control.topic(name, consistent=False)
            of_topic: list[_Pending] = []
            pending_by_topic.append(of_topic)
            for staffed in self.control.staffed_groups(topic) if topic else ():
                assert topic
                report.groups += 1
                self._remove_expired(topic, staffed)
                report.assigned += self.look_after(topic, staffed)
                of_topic += self._pending_consumers(topic, staffed)

        report.stretch = round_robin.run(names, bookmark, visit, has_time)
        round_robin.end(bookmark, report.stretch)
        self._ask_all(_in_turns(pending_by_topic, now_ms // MINUTE_MS), may_ask, report)
        return report

    def restore_mark(self, topic: Topic) -> None:
        """Mark a topic that has a PENDING subscriber, if the mark was lost; have one looked at in which a subscriber
        waits for a person. Remove consumers that have expired: no other job visits a topic from which all pull."""
        now_ms = self.clock.now_ms()
        for staffed in self.control.staffed_groups(topic):
            self._remove_expired(topic, staffed)
            if any(consumer.state == ConsumerState.PENDING for consumer in staffed.consumers):
                self.marks.mark(Mark(topic.name, now_ms))
            if stopped(staffed.consumers, now_ms):
                self.marks.note_moving(topic.name)

    def _remove_expired(self, topic: Topic, staffed: Staffed) -> None:
        now_ms = self.clock.now_ms()
        expired = [consumer for consumer in staffed.consumers if consumer.is_expired(now_ms)]
        for consumer in expired[:_REMOVED_AT_ONCE]:
            self.remove(topic, staffed.group, consumer)

    def _pending_consumers(self, topic: Topic, staffed: Staffed) -> list[_Pending]:
        """Who has not agreed yet; the topic is marked for when they are asked again."""
        pending = [consumer for consumer in staffed.consumers if consumer.state == ConsumerState.PENDING]
        now_ms = self.clock.now_ms()
        for again_ms in {asked_again_ms(topic.name, consumer.created_ms, now_ms) for consumer in pending}:
            self.marks.mark(Mark(topic.name, again_ms))
        if stopped(pending, now_ms):
            self.marks.note_moving(topic.name)
        return [(topic, staffed.group, consumer) for consumer in pending]

    def _ask_all(self, pending: Sequence[_Pending], has_time: HasTime, report: AssignReport) -> None:
        """Repeat the handshakes, as many at once as there are threads. An unexpected error with one is reported and
        does not stop the others."""

        def ask(one: _Pending) -> bool | Trouble:
            try:
                return has_time() and self.ask(*one)
            except Exception as error:  # noqa: BLE001 - as for visits
                return Trouble.of(one[0].name, error)

        if not pending:
            return
        with self.threads() as pool:
            for answer in pool.map(ask, pending):
                if isinstance(answer, Trouble):
                    report.stretch.troubles.append(answer)
                else:
                    report.agreed += answer


def _in_turns(pending_by_topic: Sequence[Sequence[_Pending]], minute: int) -> list[_Pending]:
    """One of each topic, then another of each: a topic with many has no more than its turns. In each minute others are
    the first of theirs: some may hang until there is no time for the rest."""

    def rotated(each: Sequence[T]) -> Sequence[T]:
        first = minute % len(each) if each else 0
        return [*each[first:], *each[:first]]

    rounds = zip_longest(*map(rotated, rotated(pending_by_topic)))
    return [one for one in chain.from_iterable(rounds) if one is not None]
