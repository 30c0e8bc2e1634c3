"""Visiting topics one after the other, some of them in each run.

The list is a circle, and the store keeps a bookmark in it. So every topic is visited, however few there is time for
in one run, and a new process goes on where the last one stopped. A topic whose visit fails, or ends the process, does
not stop the others. A topic for which a run had too little time left is the first of the next run. If that has too
little time for it, too, it is the others' turn.

`Walk` is for jobs that run every few hours and visit all topics (expire, checkpoint); `RoundRobin` for jobs that run
every minute and visit some of them (sweep, assign, watch).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import takewhile
from typing import Self, TypeVar

from ..domain.errors import Unavailable
from ..domain.mark import Bookmark
from ..domain.times import MINUTE_MS
from ..domain.topic import Group, Topic
from ..ports.world import Clock
from ..store import Control, Rounds

_TOPIC_MS = 120_000  # of a run for one topic: what is left of it waits until the others had their turn
_KEPT_EVERY = 50  # topics; what a run that dies has done beyond is done again
_TOGETHER = 8  # topics that are looked at together
_GOLDEN = 2_654_435_769  # of 2**32: multiples of it fall into the widest gap between those before
T = TypeVar("T")

HasTime = Callable[[], bool]
Visit = Callable[[], bool | None]  # makes a visit; False if there was not time for all of it
# Visits a topic, as far as there is time for; the number grows from run to run (see `from_another`).
VisitInTurn = Callable[[Topic, HasTime, int], None]
VisitTopic = Callable[[str], Visit]  # reads a topic, named; answers what is to be done about it
Looks = Callable[[Sequence[str]], Iterable[Visit]]  # the same for several


@dataclass(frozen=True, slots=True)
class Trouble:
    """A visit that failed."""

    topic: str
    detail: str

    @classmethod
    def of(cls, topic: str, error: Exception) -> Self:
        """What went wrong in a topic."""
        return cls(topic, f"{type(error).__name__}: {error}")


@dataclass(slots=True)
class Stretch:
    """The topics that one run visited; the next run of a RoundRobin begins behind `last`. `age_ms`: how long ago the
    job last reached the end of the list; 0: in this run. `finished` is False if time was up before the end, or before
    the work on one topic was done."""

    topics: int = 0
    troubles: list[Trouble] = field(default_factory=list)
    age_ms: int = 0
    finished: bool = True
    last: str | None = None

    def visit(self, topic: str, visit: Visit) -> None:
        """Make a visit; an error in one topic does not stop the others. The run's first topic counts as visited even if
        time was up: a topic that takes all the time of a run must not block the rest."""
        self.topics += 1
        try:
            self.finished &= visit() is not False
        except Exception as error:  # noqa: BLE001 - a bad row, a throttled table, a bug: it is reported
            self.troubles.append(Trouble.of(topic, error))
        if self.finished or self.last is None:
            self.last = topic

    def as_dict(self) -> dict[str, int | bool]:
        """The counts as JSON, for the function's log line."""
        counts = {"topics": self.topics, "troubles": len(self.troubles)}
        return counts | {"round_age_ms": self.age_ms, "finished": self.finished}


@dataclass(slots=True)
class Report:
    """What one run of a job did: its counts, and the topics that it visited."""

    stretch: Stretch = field(default_factory=Stretch, kw_only=True)

    def as_dict(self) -> dict[str, int | bool]:
        """The counts as JSON, for the function's log line."""
        counts = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "stretch"}
        return counts | self.stretch.as_dict()


def owners(control: Control, topic: Topic, refusals: list[Unavailable]) -> Iterator[tuple[Group, str]]:
    """Whose cursors a topic has: each group and "", or in a broadcast each of its consumers' uids. A group whose
    consumers the store refuses to read is skipped, with the error in `refusals`."""
    for group in control.groups(topic):
        try:
            uids = control.cursor_owners(topic, group)
        except Unavailable as error:
            refusals.append(error)
            continue
        for uid in uids:
            yield group, uid


def from_another(parts: Sequence[T], turn: int) -> Sequence[T]:
    """The parts of one topic, in each turn from another one on: so that runs which never have time for all of them
    come by every one, with nothing to store. `turn`: any number that grows from run to run."""
    first = (turn * _GOLDEN % 2**32) * len(parts) >> 32
    return [*parts[first:], *parts[:first]]


def as_many_as_time_allows(parts: Sequence[T], turn: int, has_time: HasTime) -> Iterator[T]:
    """As `from_another`; but one at least, so that no run is for nothing."""
    for number, part in enumerate(from_another(parts, turn)):
        if number and not has_time():
            return
        yield part


@dataclass(kw_only=True, frozen=True, slots=True)
class Walk:
    """The visits of one job to all topics."""

    job: str
    control: Control
    rounds: Rounds
    clock: Clock

    def run(self, visit: VisitInTurn, has_time: HasTime) -> Stretch:
        """Visit each topic once, as many as there is time for; `has_time` is asked before each. The visit gets a
        `has_time` of its own. An exception of a visit is reported as a trouble of its topic."""
        stretch = Stretch()
        way = _Way(self.job, self.rounds, self.clock.now_ms())
        turn = way.bookmark.version
        for topic in self._circle(way.bookmark.after):
            if topic is None:
                way.passes_the_end()
                continue
            if not has_time():
                stretch.finished = False
                break
            way.comes_to(topic)
            spare_time = self._spare_time(has_time)
            stretch.visit(topic.name, partial(visit, topic, spare_time, turn))
            if not spare_time():
                stretch.finished = False
                if not has_time():
                    way.goes_back()
        stretch.age_ms = way.ends()
        return stretch

    def _spare_time(self, has_time: HasTime) -> HasTime:
        until_ms = self.clock.now_ms() + _TOPIC_MS
        return lambda: self.clock.now_ms() < until_ms and has_time()

    def _circle(self, start: str | None) -> Iterator[Topic | None]:
        """All topics once, from behind `start` on; None where the list ends."""
        yield from self.control.topics_behind(start)
        yield None
        if start is not None:
            yield from takewhile(lambda topic: topic.name <= start, self.control.topics_behind(None))


class _Way:
    """The place of one run, and when it is written.

    A topic's name is stored before its visit, and after a run that died before each visit: so the next run skips a
    topic that ends every run that visits it.
    """

    def __init__(self, job: str, rounds: Rounds, now_ms: int) -> None:
        self._job = job
        self._rounds = rounds
        self._began_ms = now_ms
        before = rounds.bookmark(job)
        self._every = 1 if before.is_open else _KEPT_EVERY
        self._came = 0
        self._before: str | None = None
        self._is_ours = True
        self.bookmark = replace(before, is_open=True, passed_ms=before.passed_ms or now_ms)

    def comes_to(self, topic: Topic) -> None:
        self._before = self.bookmark.after if self._came else topic.name
        self.bookmark = replace(self.bookmark, after=topic.name)
        if self._came % self._every == 0:
            self._keep()
        self._came += 1

    def goes_back(self) -> None:
        """The run's time ended in this topic: the next run begins with it, unless this one did."""
        self.bookmark = replace(self.bookmark, after=self._before)

    def passes_the_end(self) -> None:
        self.bookmark = replace(self.bookmark, passed_ms=self._began_ms)

    def ends(self) -> int:
        """How long before this run the end was passed, ms."""
        self.bookmark = replace(self.bookmark, is_open=False)
        self._keep()
        return self._began_ms - self.bookmark.passed_ms

    def _keep(self) -> None:
        """A run that meets another's place goes on without keeping its own: they do the same."""
        bookmark: Bookmark | None = self._rounds.keep(self._job, self.bookmark) if self._is_ours else None
        self._is_ours = bookmark is not None
        self.bookmark = bookmark or self.bookmark


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Visits to topics that are known by name. A run that has time for all of them writes nothing."""

    job: str
    rounds: Rounds
    clock: Clock

    def run(
        self, names: Iterable[str], bookmark: Bookmark, visit: Callable[[str], None], has_time: HasTime
    ) -> Stretch:
        """Visit each topic, as many as there is time for, beginning with those that the last run did not reach."""
        return self._run(names, bookmark, 1, lambda some: [partial(visit, name) for name in some], has_time)

    def run_together(
        self, names: Iterable[str], bookmark: Bookmark, look: VisitTopic, has_time: HasTime, threads: Executor
    ) -> Stretch:
        """As `run`, but `look` reads several topics at the same time. It returns calls, which are then made one after
        the other in the caller's thread. An exception is a trouble of its topic."""

        def looks(some: Sequence[str]) -> Iterable[Visit]:
            return list(threads.map(partial(_look_safely, look), some))

        return self._run(names, bookmark, _TOGETHER, looks, has_time)

    def _run(
        self, names: Iterable[str], bookmark: Bookmark, most: int, looks: Looks, has_time: HasTime
    ) -> Stretch:
        stretch, waiting_names, size = Stretch(), self._in_order(sorted(names), bookmark.after), 1
        while waiting_names:
            if not has_time():
                stretch.finished = False
                break
            some, waiting_names = waiting_names[:size], waiting_names[size:]
            for name, visit in zip(some, looks(some), strict=True):
                stretch.visit(name, visit)
            # one by itself first: a topic that kills a run takes its company with it
            size = min(2 * size, most)
        return stretch

    def end(self, bookmark: Bookmark, stretch: Stretch, passed_ms: int = 0) -> None:
        """Store the bookmark, if it has changed. If another run stores its own at the same time, one of the two
        stays."""
        after = None if stretch.finished else stretch.last or bookmark.after
        new = replace(bookmark, after=after, passed_ms=max(bookmark.passed_ms, passed_ms))
        if new != bookmark:
            self.rounds.keep(self.job, new)

    def _in_order(self, names: list[str], after: str | None) -> list[str]:
        """From behind a name on; or, as a run that was killed leaves none, in each minute from another one on."""
        if after is None:
            first = self.clock.now_ms() // MINUTE_MS % len(names) if names else 0
        else:
            first = sum(name <= after for name in names)
        return names[first:] + names[:first]


def _look_safely(look: VisitTopic, name: str) -> Visit:
    """What is to be done about a topic; where looking failed, to raise why."""
    try:
        return look(name)
    except Exception as error:  # noqa: BLE001 - as for visits
        return partial(_raise, error)


def _raise(error: Exception) -> bool:
    raise error
