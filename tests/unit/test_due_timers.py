"""What becomes of timers that are due: whose they are, what they put into the log, and who is woken."""

from __future__ import annotations

import pytest

from chalicelib.domain.message import Draft, Origin
from chalicelib.domain.segment import Segment
from chalicelib.domain.timer import Timer, TimerKind
from chalicelib.domain.times import DAY_MS
from chalicelib.domain.topic import lane_of
from chalicelib.services.core.counters import NEWER_FORMAT, UNDECODABLE
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


def remains(offset: int, id: str = "") -> Draft:
    """What is left of a damaged retry of this message."""
    origin = Origin(id, 1, offset, START_MS if id else 0, 2)
    return Draft(b"", is_json=False, dead_reason="UNDECODABLE", origin=origin)


def test_the_remains_of_a_retry_get_the_name_of_their_message_or_else_their_own() -> None:
    lane = Lane()
    timers = [lane.retry(remains(offset)) for offset in range(4)]
    named_timer = lane.retry(remains(4, "its own id"))
    row = lane.put(*timers, named_timer)
    origins = {
        draft.origin.offset: (draft.origin.id, draft.origin.accepted_ms)
        for draft in row.drafts
        if draft.origin
    }
    assert origins == {
        0: (lane.ids[0], START_MS),
        1: (lane.ids[1], START_MS + 1_000),
        2: (lane.ids[2], START_MS + 1_000),
        3: (timers[3].id, 0),
        4: ("its own id", START_MS),
    }


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


@pytest.mark.parametrize(
    ("kind", "counter"), [(TimerKind.NEWER, NEWER_FORMAT), (TimerKind.DAMAGED, UNDECODABLE)]
)
def test_what_is_set_aside_is_counted_as_what_it_is(kind: TimerKind, counter: str) -> None:
    desk = Desk.at(embedded_stage())
    timer = make.timer(kind=kind)
    desk.stage.adapters.timers.store([timer])
    desk.deps.due.set_aside([timer])
    assert desk.deps.counters.take() == {counter: 1}
    assert desk.stage.adapters.timers.find(timer.due_ms, timer.id) is None
