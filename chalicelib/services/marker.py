"""Marking topics, so that the sweep looks there and nowhere else."""

from __future__ import annotations

from ..domain.errors import Unavailable
from ..domain.mark import WINDOW_MS, Mark, window_of
from ..domain.topic import Topic
from ..ports import Clock, Marks
from .cache import Aging


class Marker:
    """Marks topics with consumers that are called: a write in two minutes for each that this process puts anything
    into, none for others."""

    def __init__(self, marks: Marks, clock: Clock) -> None:
        self._marks = marks
        self._clock = clock
        self._marked: Aging[str, int] = Aging(clock, WINDOW_MS)

    def mark(self, topic: Topic) -> None:
        """Mark a topic (of a lane, its topic). To be called first: a process may die between the mark and what it is
        about, and then somebody looks in vain. A mark that cannot be stored stops nobody: it is a second net."""
        if not topic.is_called:
            return
        name = topic.name.partition("~")[0]
        begin_ms = window_of(name, self._clock.now_ms())
        if self._marked.get(name) == begin_ms:
            return
        try:
            self._marks.mark(Mark(name, begin_ms))
        except Unavailable:
            return
        self._marked.put(name, begin_ms)
