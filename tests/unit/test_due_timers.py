"""What becomes of timers that are due: whose they are, what they put into the log, and who is woken."""

from __future__ import annotations

import pytest

from chalicelib.domain.message import Draft
from chalicelib.domain.segment import Segment
from chalicelib.domain.timer import Timer, TimerKind
from chalicelib.domain.times import DAY_MS
from chalicelib.domain.topic import lane_of
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
