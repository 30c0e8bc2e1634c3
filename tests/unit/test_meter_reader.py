"""Meters: how they are read, and what is drawn of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.domain.meter import (
    HOURS,
    MINUTES,
    STAGE,
    TENS,
    WINDOWS,
    Bucket,
    GroupReading,
    Reading,
    buckets,
    level_of,
)
from chalicelib.domain.times import DAY_MS, MINUTE_MS
from chalicelib.domain.topic import Topic
from chalicelib.scheduler.meter_reader import MeterReader, State
from chalicelib.store.control import Control
from chalicelib.store.marks import Marks, Readings
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.embedded import embedded_dynamo

QUIET = State(0, has_backlog=False)


@dataclass
class World:
    """Topics whose meters and states a test sets. `looks` are those that were looked at."""

    now_ms: int = START_MS
    meters: dict[str, Reading] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    looks: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        dynamo = embedded_dynamo()
        self.control, self.marks, self.readings = (
            Control(dynamo),
            Marks(dynamo),
            Readings(dynamo),
        )
        self.reader = self.process()

    def process(self) -> MeterReader:
        """A process that remembers nothing."""
        return MeterReader(
            control=cast(Any, self.control),
            marks=cast(Any, self.marks),
            readings=cast(Any, self.readings),
            read=self.read,
            see=self.see,
            settle_unwanted=lambda *_: None,
            note_changes=self.marks.note_changes,
        )

    def topic(self, name: str, created_ms: int = START_MS) -> Topic:
        topic = make.topic(name, created_ms=created_ms)
        assert self.control.put_topic(topic, None)
        self.marks.note_moving(name)
        return topic

    def read(self, topic: Topic) -> Reading:
        self.reads.append(topic.name)
        return replace(self.meters[topic.name], at_ms=self.now_ms)

    def see(self, topic: Topic) -> State:
        self.looks.append(topic.name)
        return self.states.get(topic.name, QUIET)

    def shows(self, name: str, accepted: int, settled: int = 0, retried: int = 0) -> None:
        self.meters[name] = Reading(0, accepted, {"g": GroupReading(settled, 0, retried)})

    def run(self, most: int = 1_000) -> None:
        """A minute later, with time for so many topics."""
        self.now_ms += MINUTE_MS
        answers = iter(range(most))
        each = self.marks.each_minute()
        self.reader.run_once(each.moving, lambda: next(answers, None) is not None, each.troubled)

    def sums(self) -> tuple[int, int, int]:
        """What the stage's own meters show."""
        (reading,) = self.readings.latest(STAGE, HOURS, 1)
        group = reading.groups[""]
        return reading.accepted, group.settled, group.retried


def test_the_stages_meters_rise_by_what_topics_rose_in_any_process() -> None:
    world = World()
    world.topic("a")
    for step, (accepted, settled, retried) in enumerate([(5, 4, 1), (8, 6, 2), (9, 9, 5), (20, 10, 6)]):
        world.shows("a", accepted, settled, retried)
        world.run()
        assert world.sums() == (accepted, settled, retried), step
        if step:
            world.reader = world.process()


def test_a_meter_that_was_set_back_takes_nothing_away() -> None:
    world = World()
    world.topic("a")
    for accepted, settled in ((5, 5), (3, 1), (4, 2)):
        world.shows("a", accepted, settled)
        world.run()
    assert world.sums() == (6, 6, 0)


def test_what_an_old_topic_had_before_its_first_reading_is_no_rise() -> None:
    world = World()
    world.topic("old", created_ms=START_MS - 2 * DAY_MS)
    world.topic("new")
    for name in ("old", "new"):
        world.shows(name, 100, 50)
    world.run()
    assert world.sums() == (100, 50, 0)


def test_a_group_that_was_deleted_and_made_again_is_added_from_its_beginning() -> None:
    world = World()
    world.topic("a")
    world.shows("a", 10, 8)
    world.run()
    world.meters["a"] = Reading(0, 12)
    world.run()
    world.shows("a", 12, 9)
    world.run()
    assert world.sums() == (12, 17, 0)


NOW_MS = 4_102_444_800_000 + 17_300


def reading(ago_ms: int, accepted: int, settled: int = 0, backlog: int = 0, retried: int = 0) -> Reading:
    return Reading(NOW_MS - ago_ms, accepted, {"mailer": GroupReading(settled, backlog, retried)})


@st.composite
def meters(draw: st.DrawFn) -> list[Reading]:
    """Readings of a meter that only rises, the last one now."""
    ages = draw(st.lists(st.integers(1, 2 * 86_400_000), unique=True, max_size=60))
    steps = draw(st.lists(st.integers(0, 10_000), min_size=len(ages) + 1, max_size=len(ages) + 1))
    readings, total = [], 0
    for ago_ms, step in zip([*sorted(ages, reverse=True), 0], steps, strict=True):
        total += step
        readings.append(reading(ago_ms, total, total // 2))
    return readings


def risen(buckets_found: list[Bucket], first_ms: int) -> float:
    """What the rates of these buckets come to."""
    return sum(
        (each.accepted or 0) * (each.to_ms - max(each.from_ms, first_ms)) / 1_000
        for each in buckets_found
        if each.accepted is not None
    )


@given(meters(), st.sampled_from(sorted(WINDOWS)))
def test_rates_come_to_what_the_meter_rose_by(readings: list[Reading], name: str) -> None:
    buckets_found = buckets(readings, WINDOWS[name], NOW_MS)
    assert all(each.accepted is None or each.accepted >= 0 for each in buckets_found)
    assert all(before.to_ms == after.from_ms for before, after in pairwise(buckets_found))
    assert buckets_found[-1].to_ms == NOW_MS
    if readings[0].at_ms >= buckets_found[0].from_ms:
        rise = readings[-1].accepted - readings[0].accepted
        assert risen(buckets_found, readings[0].at_ms) == pytest.approx(rise, abs=1e-3)


def test_a_group_that_was_sent_back_shows_no_rate_below_zero() -> None:
    readings = [
        reading(2 * MINUTE_MS, 100, settled=90),
        reading(MINUTE_MS, 100, settled=10),
        reading(0, 100, settled=40),
    ]
    rates = [each.groups["mailer"].settled for each in buckets(readings, WINDOWS["1h"], NOW_MS)]
    assert min(rate for rate in rates if rate is not None) == 0
    assert max(rate for rate in rates if rate is not None) == pytest.approx(0.5)


def test_a_reading_is_kept_once_with_the_coarsest_level_that_has_none() -> None:
    last_ms: dict[str, int] = {}
    levels = []
    for minute in range(70):
        at_ms = NOW_MS + minute * MINUTE_MS
        if level := level_of(last_ms, at_ms):
            last_ms[level.name] = at_ms
            levels.append(level)
    assert levels[:2] == [HOURS, TENS]
    assert (levels.count(HOURS), levels.count(TENS), levels.count(MINUTES)) == (2, 7, 61)
    assert level_of(last_ms, at_ms + 1_000) is None


def behind(ago_ms: int, *by_shard: int, is_known: bool = True) -> Reading:
    group = GroupReading(0, sum(by_shard), 0, by_shard if is_known else ())
    return Reading(NOW_MS - ago_ms, sum(by_shard), {"mailer": group})


def test_a_backlog_is_drawn_by_shard_and_not_where_it_was_not_kept() -> None:
    readings = [
        behind(4 * MINUTE_MS, 8, 0),
        behind(3 * MINUTE_MS, 5, 5, is_known=False),
        behind(2 * MINUTE_MS, 0, 6),
        behind(MINUTE_MS, 0, 0, is_known=False),
        behind(0, 1, 2, 3),
    ]
    last = {
        each.to_ms: each.groups["mailer"].by_shard
        for each in buckets(readings, WINDOWS["1h"], NOW_MS, shards=3)
    }
    assert last[NOW_MS] == (1, 2, 3)
    assert all(parts[2] == 0 for at_ms, parts in last.items() if at_ms < NOW_MS - MINUTE_MS), "it came later"
    backlogs = [parts[0] for parts in last.values() if parts[0] is not None]
    assert backlogs == [5, 1, 0, 1, 1], "a straight line from 8 to 0 over what was not kept"
    assert buckets(readings, WINDOWS["1h"], NOW_MS)[-1].groups["mailer"].by_shard == ()
    unknown = buckets([behind(0, 5, 5, is_known=False)], WINDOWS["1h"], NOW_MS, shards=2)
    assert unknown[-1].groups["mailer"].by_shard == (None, None)
