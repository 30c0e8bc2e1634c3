"""Assignments of groups that nobody uses at the moment are kept true, too, and who has not agreed is asked again.

Whoever uses a group notices within seconds who left it (services/core/assignments): this job is for shards whose
owner would be woken. So it comes by marked topics only (domain/mark), and nothing is written where nothing changed. A
topic with a subscriber who has not agreed is marked for later, whether or not anything is put into it: what waits
there waits for an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..domain.mark import Mark, all_over, asked_again_ms
from ..domain.topic import Consumer, Group, Topic
from ..ports.control import Control, Staffed
from ..ports.rounds import Marks, Rounds
from ..ports.world import Clock
from .walk import HasTime, Stretch, Turns

_JOB = "assign"
_MINUTE_MS = 60_000


@dataclass(slots=True)
class AssignReport:
    """What one run did: the groups it saw, and how many were assigned anew, and consumers agreed to be called."""

    groups: int = 0
    assigned: int = 0
    agreed: int = 0
    stretch: Stretch = field(default_factory=Stretch)

    def as_dict(self) -> dict[str, int | bool]:
        return {
            "groups": self.groups,
            "assigned": self.assigned,
            "agreed": self.agreed,
            **self.stretch.as_dict(),
        }


Ask = Callable[[Topic, Group, Consumer], bool]
"""Ask a PENDING consumer's owner once more; whether it agreed."""


class Assigner:
    """Comes by all marked topics."""

    def __init__(
        self,
        control: Control,
        marks: Marks,
        rounds: Rounds,
        look_after: Callable[[Topic, Staffed], bool],
        ask: Ask,
        clock: Clock,
    ) -> None:
        self._control = control
        self._marks = marks
        self._turns = Turns(_JOB, rounds, clock)
        self._look_after = look_after
        self._ask = ask
        self._clock = clock

    def run_once(self, has_time: HasTime = lambda: True) -> AssignReport:
        """One run; `has_time` is asked before each topic, and before each consumer that is to be asked."""
        report, now_ms = AssignReport(), self._clock.now_ms()
        names = {mark.topic for mark in self._marks.since(all_over(now_ms)) if mark.at_ms <= now_ms}
        if not names:
            return report
        place = self._turns.place()

        def visit(name: str) -> None:
            topic = self._control.topic(name, consistent=False)
            for staffed in self._control.staffed(topic) if topic else ():
                assert topic
                report.groups += 1
                report.assigned += self._look_after(topic, staffed)
                report.agreed += self._ask_all(topic, staffed, has_time)

        report.stretch = self._turns.run(names, place, visit, has_time)
        self._turns.end(place, report.stretch)
        return report

    def see(self, topic: Topic) -> None:
        """Mark a topic in which somebody has not agreed: where a mark was lost, or is of an older release."""
        for staffed in self._control.staffed(topic):
            if any(consumer.state == "PENDING" for consumer in staffed.consumers):
                self._marks.mark(Mark(topic.name, self._clock.now_ms()))

    def _ask_all(self, topic: Topic, staffed: Staffed, has_time: HasTime) -> int:
        """In each minute another one is the first: some may hang until there is no time for the others."""
        pending = [c for c in staffed.consumers if c.state == "PENDING"]
        now_ms = self._clock.now_ms()
        for again_ms in {asked_again_ms(topic.name, consumer.created_ms, now_ms) for consumer in pending}:
            self._marks.mark(Mark(topic.name, again_ms))
        first = now_ms // _MINUTE_MS % len(pending) if pending else 0
        turns = pending[first:] + pending[:first]
        return sum(self._ask(topic, staffed.group, consumer) for consumer in turns if has_time())
