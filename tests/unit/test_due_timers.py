"""Timers: their ids, and what becomes of them when they are due."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from chalicelib.domain.message import Draft
from chalicelib.domain.segment import Segment, ShardKey
from chalicelib.domain.timer import (
    ANY,
    MISSED_MS,
    Missed,
    Timer,
    TimerKind,
    Timing,
    draft_for_log,
    next_check,
)
from chalicelib.domain.times import DAY_MS, SECOND_MS, calendar_time
from chalicelib.domain.topic import lane_of
from chalicelib.store.layout import fragment_of
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import START_MS, ManualClock
from tests.support.desk import Desk
from tests.support.push import PushDesk
from tests.support.stages import embedded_stage

DAYS = 3


class Lane:
    """The retry lane of a group of a topic that has three messages in its second shard, the last two in one row."""

    def __init__(self) -> None:
        self.desk = Desk.at(embedded_stage(), shards=2, retention_days=30)
        self.shard = lane_of(self.desk.topic, self.desk.group()).shard_key(0)
        (first,) = self.desk.produce(make.draft(shard=1))
        self.desk.stage.clock.advance(1_000)
        self.ids = [first.id, *(place.id for place in self.desk.produce(*make.drafts(2, shard=1)))]

    def retry(self, draft: Draft) -> Timer:
        return make.timer(START_MS, kind=TimerKind.RETRY, shard=self.shard, draft=draft)

    def put(self, *timers: Timer) -> Segment:
        """What is in the lane after this."""
        with_draft = [timer for timer in timers if timer.draft]
        self.desk.stage.adapters.timers.store(timers)
        assert self.desk.deps.due.append(self.shard, DAYS, timers) == len(with_draft)
        (row,) = self.desk.stage.adapters.log.read(self.shard, 0, 9, consistent=True)
        return row


def test_a_retry_is_kept_as_long_as_its_timer_says_and_one_that_holds_nothing_is_left_out() -> None:
    lane = Lane()
    row = lane.put(lane.retry(make.draft(origin=make.origin())), make.timer(kind=TimerKind.WAKE))
    assert row.count == 1
    assert row.ends_ms <= lane.desk.stage.clock.now_ms() + DAYS * DAY_MS + 1_000


@pytest.mark.parametrize("shard", [0, 1])
def test_a_topic_that_wakes_its_runs_itself_does_so_for_what_was_due(shard: int) -> None:
    desk = PushDesk.at(embedded_stage(), shards=2, wake="direct")
    group = desk.group(max_in_flight=64)
    desk.subscriber(group, "one")
    desk.restart()
    timer = make.timer(START_MS, shard=desk.topic.shard_key(shard))
    desk.stage.adapters.timers.store([timer])
    assert desk.deps.due.append(timer.shard, DAYS, [timer]) == 1
    assert [function for function, _ in desk.inbox.asked] == ["deliver"]


HALF = "0123456789ab0123456789ab"


def test_a_delayed_message_says_in_the_log_when_it_was_accepted_and_due() -> None:
    shard = ShardKey("orders", "0123456789ab", 0)
    timer = Timer(9_000, "any", TimerKind.DELIVER, shard, make.draft(), stored_ms=1_000)
    assert timer.draft
    assert draft_for_log(timer) == replace(timer.draft, accepted_ms=1_000, due_ms=9_000)
    earlier = make.draft(accepted_ms=500)
    assert draft_for_log(replace(timer, draft=earlier)) == replace(earlier, due_ms=9_000)


def test_a_timer_weighs_what_its_message_does() -> None:
    shard = ShardKey("orders", "0123456789ab", 0)
    message = Timer(9_000, "any", TimerKind.DELIVER, shard, make.draft("x" * 10_000))
    assert message.draft
    assert message.weight == message.draft.weight > 10_000
    assert Timer(9_000, "any", TimerKind.WAKE, shard).weight == 0


@pytest.mark.parametrize(
    ("now_ms", "due_ms"), [(1_000, 1_300), (1_299, 1_300), (1_300, 1_600), (9_999, 10_000)]
)
def test_a_check_comes_again_after_whole_periods(now_ms: int, due_ms: int) -> None:
    timer = Timer(1_000, HALF, TimerKind.CHECK, ShardKey("orders", "0123456789ab", ANY), every_ms=300)
    assert next_check(timer, now_ms) == replace(timer, due_ms=due_ms)


def test_a_timer_keeps_its_fragment_in_every_process_and_release() -> None:
    assert fragment_of("0123456789ab-u1") == 5
    assert fragment_of("0123456789ab/k") == 4
    assert {fragment_of(f"u{n}", 64) % 8 - fragment_of(f"u{n}") for n in range(99)} == {0}, (
        "among the larger ones"
    )


@pytest.mark.parametrize(
    ("zone", "cron", "after", "times"),
    [
        # A fixed time that the clock skips comes right after; one that it doubles comes the first time only.
        ("Europe/Berlin", "30 2 * * *", "2026-03-28T12:00", ["29T01:00", "30T00:30"]),
        ("Europe/Berlin", "30 2 * * *", "2026-10-24T12:00", ["25T00:30", "26T01:30"]),
        ("Europe/Berlin", "30 2 * * *", "2026-10-25T01:15", ["26T01:30", "27T01:30"]),
        ("America/New_York", "15 2 * * *", "2026-03-07T12:00", ["08T07:00", "09T06:15"]),
        ("America/New_York", "15 1 * * *", "2026-10-31T12:00", ["01T05:15", "02T06:15"]),
        # `*` follows elapsed time: every hour, on both sides of the change.
        ("Europe/Berlin", "30 * * * *", "2026-03-29T00:00", ["29T00:30", "29T01:30", "29T02:30"]),
        ("Europe/Berlin", "30 * * * *", "2026-10-25T00:00", ["25T00:30", "25T01:30", "25T02:30"]),
        ("Europe/Berlin", "0 */2 * * *", "2026-03-28T23:30", ["29T02:00", "29T04:00"]),
        ("Europe/Berlin", "0 */2 * * *", "2026-10-24T22:30", ["25T00:00", "25T01:00", "25T03:00"]),
        # Half an hour of summer time.
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T00:00", ["03T15:30", "04T15:15"]),
        ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T00:00", ["04T14:45", "05T15:15"]),
        ("Australia/Lord_Howe", "*/30 * * * *", "2026-04-04T14:10", ["04T14:30", "04T15:00", "04T15:30"]),
        # Summer time that began at midnight, and was abolished; a day that was left out.
        ("America/Sao_Paulo", "0 0 * * *", "2018-11-03T12:00", ["04T03:00", "05T02:00"]),
        ("America/Sao_Paulo", "0 0 * * *", "2019-11-02T12:00", ["03T03:00", "04T03:00"]),
        ("Europe/Istanbul", "0 9 * * *", "2016-10-29T12:00", ["30T06:00", "31T06:00"]),
        ("Pacific/Apia", "0 9 * * *", "2011-12-29T20:00", ["30T10:00", "30T19:00"]),
    ],
)
def test_cron_follows_the_clocks_of_its_zone(zone: str, cron: str, after: str, times: list[str]) -> None:
    after_ms = round(datetime.fromisoformat(f"{after}+00:00").timestamp()) * 1000
    found = islice(Timing(created_ms=0, cron=cron, timezone=zone).times(after_ms), len(times))
    assert [f"{calendar_time(ms):%dT%H:%M}" for ms in found] == times


@given(
    steps=st.lists(st.tuples(st.integers(0, 100), st.sampled_from([-300, -10, 0, 10, 300])), max_size=12),
    jitter=st.sampled_from([0, 50]),
)
@settings(max_examples=4, deadline=None, phases=[Phase.explicit, Phase.generate])
def test_movers_whose_clocks_differ_send_one_message_for_each_time(
    steps: list[tuple[int, int]], jitter: int
) -> None:
    desk = Desk.at(embedded_stage())
    wanted = make.schedule("s", topic=desk.topic.name, missed=Missed.ALL, jitter_seconds=jitter)
    desk.deps.schedules.put(wanted, lambda topic: None)
    latest_ms = START_MS
    for seconds, ahead in [*steps, (0, 300)]:
        desk.stage.clock.advance(seconds * SECOND_MS)
        clock = ManualClock(desk.stage.clock.now_ms() + ahead * SECOND_MS)
        latest_ms = max(latest_ms, clock.now_ms())
        Deps(replace(desk.stage.another(), clock=clock)).mover.run_once()
    while Deps(replace(desk.stage.another(), clock=clock)).mover.run_once().moved:
        pass
    sent = [draft.firing.at_ms for row in desk.rows() for draft in row.drafts if draft.firing]
    count = len(sent)
    assert sent == [START_MS + n * 60 * SECOND_MS for n in range(1, count + 1)]
    assert (latest_ms - START_MS) // (60 * SECOND_MS) - count <= (1 if jitter else 0)


@pytest.mark.parametrize(("missed_count", "sent"), [(3, 3), (999, 999), (5_000, 1_000), (2_000_000, 1_000)])
@pytest.mark.parametrize("timing", [{"every_seconds": 60}, {"cron": "* * * * *"}])
def test_of_missed_times_the_last_thousand_are_made_up_for(
    timing: dict[str, Any], missed_count: int, sent: int
) -> None:
    schedule = make.schedule("s", missed=Missed.ALL, **timing)
    at_ms = START_MS + 60 * SECOND_MS
    now_ms, fired = START_MS + (missed_count + 3) * 60 * SECOND_MS, []
    while now_ms - at_ms > MISSED_MS:
        fires, next_ms = schedule.after(at_ms, now_ms)
        fired += [at_ms] if fires else []
        at_ms = next_ms
    assert sent - 3 <= len(fired) <= sent
    assert len(set(fired)) == len(fired)
