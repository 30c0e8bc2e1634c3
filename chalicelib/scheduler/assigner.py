"""Assignments of groups that nobody uses at the moment are kept true, too.

Whoever uses a group notices within seconds who left it (services/assignment): this job is for those who only look,
and for shards whose owner would be woken. So it may be slow: it costs about one and a half read units a run, whatever
there is, and with many topics a round takes many runs. Nothing is written where nothing changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from ..domain.topic import Consumer, Group, Topic
from ..ports import Control, Staffed

_TOPICS = 2  # of a run: half a unit for the list, and for each


@dataclass(frozen=True, slots=True)
class Report:
    """What one run did: the topics and groups it saw, and how many groups were assigned anew
    and consumers agreed to be called."""

    topics: int = 0
    groups: int = 0
    assigned: int = 0
    agreed: int = 0
    finished: bool = True

    def as_dict(self) -> dict[str, int | bool]:
        return asdict(self)


Ask = Callable[[Topic, Group, Consumer], bool]
"""Ask a PENDING consumer's owner once more; whether it agreed."""


class Assigner:
    """Visits topics by name, a few in each run, beginning again after the last. Where it stands is kept by this
    process only: a new one begins with the first."""

    def __init__(self, control: Control, look_after: Callable[[Topic, Staffed], bool], ask: Ask) -> None:
        self._control = control
        self._look_after = look_after
        self._ask = ask
        self._after: str | None = None

    def run_once(self, has_time: Callable[[], bool] = lambda: True) -> Report:
        """The next few topics; `has_time` is asked before each."""
        topics = groups = assigned = agreed = 0
        for topic in self._next():
            if not has_time():
                return Report(topics, groups, assigned, agreed, finished=False)
            staffed = self._control.staffed(topic)
            assigned += sum(self._look_after(topic, each) for each in staffed)
            agreed += sum(self._ask_all(topic, each) for each in staffed)
            topics, groups = topics + 1, groups + len(staffed)
            self._after = topic.name
        return Report(topics, groups, assigned, agreed)

    def _ask_all(self, topic: Topic, staffed: Staffed) -> int:
        pending = (c for c in staffed.consumers if c.state == "PENDING")
        return sum(self._ask(topic, staffed.group, consumer) for consumer in pending)

    def _next(self) -> list[Topic]:
        ahead = self._control.topics(self._after, _TOPICS, consistent=False)
        if len(ahead) == _TOPICS or self._after is None:
            return ahead
        return ahead + self._control.topics(None, _TOPICS - len(ahead), consistent=False)
