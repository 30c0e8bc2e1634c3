"""Timers: their ids, and what becomes of them when they are due."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chalicelib.domain.message import Draft
from chalicelib.domain.segment import Segment, ShardKey
from chalicelib.domain.timer import ANY, Timer, TimerKind, draft_for_log, next_check
from chalicelib.domain.times import DAY_MS
from chalicelib.domain.topic import lane_of
from chalicelib.store.layout import fragment_of
from tests.support import factories as make
from tests.support.clock import START_MS
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


def test_a_retry_comes_into_its_lane_as_it_is() -> None:
    shard = ShardKey("orders~mail", "0123456789ab", 0)
    timer = Timer(9_000, "any", TimerKind.RETRY, shard, make.draft(), stored_ms=1_000)
    assert draft_for_log(timer) == timer.draft


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
