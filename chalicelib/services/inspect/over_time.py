"""What was counted over time: the last surveys of topics, kept in a process, and charts of stored readings."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from threading import Lock

from ...domain.errors import Unreadable
from ...domain.meter import MINUTES, Bucket, Reading, Window, buckets
from ...domain.times import HOUR_MS
from ...domain.topic import Group, Topic
from ...ports.world import Clock
from ...store import Readings, Traces
from ..core.expiring_cache import TtlCache
from .attempts import History, attempts_since
from .survey import TopicSurvey
from .surveyor import MOST_SHARDS, Surveyor

_MOST_TOPICS = 2_000  # that a board remembers
_MOST_POINTS = 64
_MOST_SEED = 40
_FRESH_MS = 1_000
_KNOWN_MS = 1_800_000
_MOST_HISTORIES = 64
_HISTORY_MS = 30_000  # so old it may be
_A_ROW_UNITS = 2  # read units that the attempts of a shard may cost, beyond half of one
_ROWS = 1_000  # that a chart reads, at most


@dataclass(slots=True)
class _Known:
    """A topic's last survey, and what was counted of it lately; `remembered_ms`: when that was read."""

    survey: TopicSurvey
    remembered_ms: int
    points: deque[Reading]


@dataclass(eq=False)
class Board:
    """The last surveys of each topic, kept in this process. Each look renews the oldest ones up to a limit of read
    units, so a page of many topics costs as much as one of a few. `on_skip` is called for the unreadable row of each
    topic that a look skips."""

    surveyor: Surveyor
    readings: Readings
    traces: Traces
    clock: Clock
    on_skip: Callable[[Unreadable], object]

    def __post_init__(self) -> None:
        self._histories: TtlCache[str, tuple[int, History]] = TtlCache(self.clock, None, _MOST_HISTORIES)
        self._known: dict[str, _Known] = {}  # by the topic's uid
        self._walked_to: str | None = None
        self._walked_ms = 0
        self._lock = Lock()

    def renew(self, topics: Sequence[Topic], may_go_on: Callable[[], bool]) -> dict[str, TopicSurvey]:
        """Surveys by the topic's uid, as far as there are any; some of them from a moment ago."""
        for topic in sorted(topics, key=lambda topic: self._surveyed_ms(topic.uid)):
            if not may_go_on():
                break
            if self._surveyed_ms(topic.uid) < self.clock.now_ms() - _FRESH_MS:
                try:
                    self.keep(self.surveyor.survey(topic, may_go_on=may_go_on))
                except Unreadable as error:
                    self.on_skip(error)
        return {topic.uid: self._known[topic.uid].survey for topic in topics if topic.uid in self._known}

    def walk(self, behind: Callable[[str | None], Sequence[Topic]], may_go_on: Callable[[], bool]) -> None:
        """Look at some topics more, going on where the last walk ended: sooner or later each one's turn comes.
        `behind` lists the topics behind a name (None: the first ones)."""
        self._walked_ms = self.clock.now_ms()
        topics = behind(self._walked_to)
        if not topics:
            self._walked_to = None  # the end of the list
        for topic in topics:
            if may_go_on():
                self.renew([topic], may_go_on)
                self._walked_to = topic.name

    def is_turn_of(self, topics: Sequence[Topic]) -> bool:
        """Was the last walk later than the last look at one of these? One look may cost most of what a page may read:
        so the topics of a page and all others take turns."""
        last_ms = max((self._surveyed_ms(topic.uid) for topic in topics), default=0)
        return bool(topics) and last_ms < self._walked_ms <= self.clock.now_ms()

    def known_surveys(self) -> list[TopicSurvey]:
        """The surveys of the last minutes, of all topics."""
        now_ms = self.clock.now_ms()
        with self._lock:
            surveys = [known.survey for known in self._known.values()]
        return [each for each in surveys if now_ms - _KNOWN_MS <= each.at_ms <= now_ms]

    def forget(self, uid: str) -> None:
        """Drop what is known of a topic: it is gone."""
        with self._lock:
            self._known.pop(uid, None)

    def last_hour(self, topic: Topic, group: Group, may_read: Callable[[float], bool]) -> History | None:
        """The group's latest attempts of the last hour, read again after half a minute, if about so many read units may
        be read. None: they were not read yet."""
        now_ms = self.clock.now_ms()
        at_ms, history = self._histories.get(group.uid) or (0, None)
        units = _A_ROW_UNITS + min(len(topic.shard_numbers), MOST_SHARDS) / 2
        if not 0 <= now_ms - at_ms < _HISTORY_MS and may_read(units):
            may_go_on = partial(may_read, _A_ROW_UNITS)
            history = attempts_since(self.traces, topic, group, now_ms - HOUR_MS, may_go_on)
            self._histories.put(group.uid, (now_ms, history))
        return history

    def points(self, topic: Topic) -> Sequence[Reading]:
        """What was counted of the topic lately, the oldest first."""
        known = self._known.get(topic.uid)
        return tuple(known.points) if known else ()

    def keep(self, survey: TopicSurvey) -> TopicSurvey:
        """Remember a survey; it is returned with since when its groups stand still. One that is not whole counts less
        than the one before it, so it is no point: the points are then those of the meter reader, read again once a
        minute."""
        uid = survey.topic.uid
        known = self._known.get(uid)
        is_recent = known is not None and 0 <= survey.at_ms - known.remembered_ms < MINUTES.every_ms
        if known is None or not (survey.is_whole or is_recent):
            readings = self.readings.latest(uid, MINUTES, _MOST_SEED)
            known = _Known(survey, self.clock.now_ms(), deque(readings, _MOST_POINTS))
        with self._lock:
            self._known.pop(uid, None)
            self._known[uid] = known
            known.survey = survey.behind(known.survey, known.points)
            while known.points and known.points[-1].at_ms > survey.at_ms:  # by a clock that was ahead
                known.points.pop()
            if survey.is_whole:
                known.points.append(survey.reading)
            while len(self._known) > _MOST_TOPICS:
                del self._known[next(iter(self._known))]
            return known.survey

    def _surveyed_ms(self, uid: str) -> int:
        """When it was looked at last; 0: not yet, or by a clock that was ahead, and set right since."""
        known = self._known.get(uid)
        return known.survey.at_ms if known and known.survey.at_ms <= self.clock.now_ms() else 0

    def rates(
        self, topic: Topic, window: Window, now: Reading | None, only: Group | None = None, most: int = _ROWS
    ) -> list[Bucket]:
        """How many messages a second come into a topic and are settled, and its groups' backlogs, over time: the
        buckets of a window up to `now`, or (None) to the last reading that was kept. `only`: of one group, with
        its backlog by shard. Costs two read units or so; about the last `most` rows are read."""
        readings = self._kept_readings(topic, window, most)
        if now:
            readings = [*(each for each in readings if each.at_ms < now.at_ms), now]
        if only:
            # of no earlier group of its name
            own = [each for each in readings if only.name in each.groups and each.at_ms >= only.created_ms]
            readings = [replace(each, groups={only.name: each.groups[only.name]}) for each in own]
        now_ms = now.at_ms if now else self.clock.now_ms()
        return buckets(readings, window, now_ms, shards=len(topic.shard_numbers) if only else 0)

    def _kept_readings(self, topic: Topic, window: Window, most_rows: int) -> list[Reading]:
        """The readings that were kept, in order of time. If not all may be read, each level's go back equally far."""
        share = min(1, most_rows / sum(window.most(level) for level in window.levels))
        most = {level: max(1, int(window.most(level) * share)) for level in window.levels}
        pages = (self.readings.latest(topic.uid, level, number) for level, number in most.items())
        return sorted(chain.from_iterable(pages), key=lambda reading: reading.at_ms)
