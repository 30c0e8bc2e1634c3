"""What claims and settlements write down about attempts and deliveries: whose, which, when and for how long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from chalicelib.domain.ladder import Retry
from chalicelib.domain.record import Record
from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.topic import Group, cursor_key
from chalicelib.domain.trace import TraceEntry, TraceRow
from chalicelib.services.consume.settle import Nack
from chalicelib.services.inspect.attempts import History, attempts_since, latest_attempts, together
from tests.support import factories as make
from tests.support.desk import Desk
from tests.support.stages import Stage

STEPS = Retry(9, (10, 100, 1000), jitter=0.0)


def rows(desk: Desk, group: Group, offset: int = 0, consumer_uid: str = "") -> list[TraceRow]:
    key = cursor_key(desk.topic, group, 0, consumer_uid)
    return desk.stage.adapters.traces.rows_covering(key, offset, consistent=True)


def record(desk: Desk, group: Group, offset: int = 0) -> Record:
    record = desk.stage.adapters.records.get(cursor_key(desk.topic, group, 0), offset)
    assert record
    return record


def test_attempts_that_nobody_settled_are_noted_by_the_next_claim_as_their_consumers(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    one, two = (desk.consumer(group, name) for name in ("one", "two"))
    desk.produce(*make.drafts(4))
    began_ms = stage.clock.now_ms()
    (first,) = desk.receive(group, 1, one, lease=10)
    (second,) = desk.receive(group, 1, one, lease=20)
    desk.receive(group, 1, two, lease=600)
    stage.clock.advance(20 * SECOND_MS)
    desk.deps.receiver.receive(desk.topic, group, None, 10, 0, 30)
    rows_of = [rows(desk, group, offset) for offset in range(3)]
    assert {row.key for trace_rows in rows_of for row in trace_rows} == {cursor_key(desk.topic, group, 0)}
    assert [
        (row.consumer, row.started_ms - began_ms, row.id, row.entries)
        for trace_rows in rows_of
        for row in trace_rows
    ] == [
        ("one", 10 * SECOND_MS, first.receipt.token, (TraceEntry(0, 1, "LAPSED"),)),
        ("one", 20 * SECOND_MS, second.receipt.token, (TraceEntry(1, 1, "LAPSED"),)),
    ]


def test_an_attempt_of_the_lane_that_nobody_settled_is_its_messages(stage: Stage) -> None:
    desk = Desk.at(stage, retry=STEPS)
    group = desk.group()
    desk.produce(*make.drafts(4))
    messages = desk.receive(group)
    desk.nack(group, messages[3:], Nack(delay_ms=5 * SECOND_MS))
    desk.ack(group, messages[:3])
    stage.clock.advance(5 * SECOND_MS)
    (again,) = desk.receive(group, lease=10)
    assert (again.attempt, again.receipt.entry, again.receipt.offset) == (2, 0, 3)
    stage.clock.advance(10 * SECOND_MS)
    (third,) = desk.receive(group)
    assert [row.entries for row in rows(desk, group, 3)] == [
        (TraceEntry(3, 1, "RETRY"),),
        (TraceEntry(3, 2, "LAPSED"),),
    ]
    assert third.attempt == 3
    assert desk.ack(group, [third]) == [None]
    assert (record(desk, group, 3).status, record(desk, group, 3).attempts) == ("SUCCESS", 3)


def lapsed_events(desk: Desk, message_id: str) -> list[tuple[int, int | None, str | None]]:
    """When, which attempt and whose; of what ran out unsettled."""
    path = desk.trace(message_id)
    assert {event.event for event in path} <= {"accepted", "delivered", "leased"}
    return [(e.at_ms, e.attempt, e.consumer) for e in path if e.outcome == "LAPSED"]


def test_an_attempt_whose_lease_ran_out_is_shown_before_a_claim_notes_it(stage: Stage) -> None:
    """In the shard, and then in the lane; and once when it is noted."""
    desk = Desk.at(stage, retry=STEPS)
    group = desk.group()
    one = desk.consumer(group, "one")
    desk.produce(make.draft("another"))
    (result,) = desk.produce(make.draft())
    (first, _) = desk.receive(group, consumer=one, lease=10)
    assert lapsed_events(desk, result.id) == []
    stage.clock.advance(10 * SECOND_MS)
    seen = [(stage.clock.now_ms(), 1, "one")]
    assert lapsed_events(desk, result.id) == seen
    stage.clock.advance(SECOND_MS)
    assert lapsed_events(desk, result.id) == seen
    desk.receive(group)
    desk.nack(group, desk.receive(group), Nack(delay_ms=5 * SECOND_MS))
    assert rows(desk, group, 1)[0].id == first.receipt.token
    assert lapsed_events(desk, result.id) == seen
    stage.clock.advance(5 * SECOND_MS)
    assert len(desk.receive(group, consumer=one, lease=10)) == 1
    assert "leased" in [event.event for event in desk.trace(result.id)]
    stage.clock.advance(10 * SECOND_MS)
    seen.append((stage.clock.now_ms(), 3, "one"))
    assert lapsed_events(desk, result.id) == seen
    desk.receive(group)
    assert "leased" in [event.event for event in desk.trace(result.id)]
    assert lapsed_events(desk, result.id) == seen


def test_an_attempt_that_is_settled_late_shows_its_own_outcome(stage: Stage) -> None:
    """Until the next claim a settlement counts, and takes the place of LAPSED."""
    desk = Desk.at(stage)
    group = desk.group()
    (result,) = desk.produce(make.draft())
    messages = desk.receive(group, lease=10)
    stage.clock.advance(20 * SECOND_MS)
    assert desk.outcomes(result.id) == ["LAPSED"]
    assert desk.ack(group, messages) == [None]
    assert desk.outcomes(result.id) == ["SUCCESS"]


def test_a_broadcast_shows_whose_lease_ran_out(stage: Stage) -> None:
    desk = Desk.at(stage, mode="broadcast")
    group = desk.group()
    one, two = (desk.consumer(group, name) for name in ("one", "two"))
    (result,) = desk.produce(make.draft())
    desk.receive(group, consumer=one, lease=10)
    desk.receive(group, consumer=two, lease=600)
    stage.clock.advance(20 * SECOND_MS)
    path = [(event.event, event.outcome, event.consumer) for event in desk.trace(result.id)[1:]]
    assert sorted(path, key=str) == [("delivered", "LAPSED", "one"), ("leased", None, "two")]


def test_a_settlement_says_how_long_the_attempt_took_and_why_it_failed(stage: Stage) -> None:
    desk = Desk.at(stage, retry=STEPS)
    group = desk.group()
    one = desk.consumer(group, "one")
    desk.produce(make.draft())
    messages = desk.receive(group, consumer=one)
    claimed_ms = stage.clock.now_ms()
    stage.clock.advance(3 * SECOND_MS)
    desk.nack(group, messages, Nack(delay_ms=None, reason="busy"))
    (row,) = rows(desk, group)
    assert (row.consumer, row.started_ms, row.id) == ("one", claimed_ms, messages[0].receipt.token)
    assert row.key == cursor_key(desk.topic, group, 0), "its consumer has no cursor of its own"
    assert row.entries == (TraceEntry(0, 1, "RETRY", 3 * SECOND_MS, "busy"),)
    now_ms = stage.clock.now_ms()
    delivery_record = record(desk, group)
    assert (delivery_record.at_ms, delivery_record.next_ms) == (now_ms, now_ms + 10 * SECOND_MS), (
        "from now, not from the claim"
    )
    assert delivery_record.expires_s == desk.topic.expires_s(now_ms + 10 * SECOND_MS)


def test_only_a_success_after_a_failure_is_recorded(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(3))
    messages = desk.receive(group)
    desk.ack(group, messages[:1])
    desk.nack(group, messages[1:2])
    stage.clock.advance(30 * SECOND_MS)
    again = [*desk.receive(group), *desk.receive(group)]
    assert {each.receipt.offset: each.attempt for each in again} == {1: 2, 2: 2}
    desk.ack(group, again)
    records = [stage.adapters.records.get(cursor_key(desk.topic, group, 0), offset) for offset in range(3)]
    assert [each and (each.status, each.attempts) for each in records] == [
        None,
        ("SUCCESS", 2),
        ("SUCCESS", 2),
    ]


@dataclass
class Crowd:
    """A group with a few consumers, and traces of very many others beside theirs."""

    stage: Stage
    mode: str = "broadcast"
    shards: int = 1

    def __post_init__(self) -> None:
        self.traces, self.desk = self.stage.adapters.traces, Desk.at(self.stage, shards=self.shards)
        self.group = self.desk.group(mode=self.mode)
        self.consumer = self.desk.consumer(self.group, "one")

    def attempt(self, *offsets: int, shard: int = 0, by: str = "") -> None:
        """Attempts at these messages, each with a row of its own."""
        is_broadcast = self.mode == "broadcast"
        uid = (by or self.consumer.uid) if is_broadcast else ""
        key = cursor_key(self.desk.topic, self.group, shard, uid)
        self.traces.write(
            [
                make.trace(
                    key,
                    make.entries([offset]),
                    consumer=by or self.consumer.name,
                    started_ms=self.consumer.created_ms + offset,
                )
                for offset in offsets
            ]
        )

    def latest(
        self,
        limit: int = 4,
        may_go_on: Callable[[], bool] = lambda: True,
        shards: Sequence[int] = (0,),
    ) -> History:
        return latest_attempts(
            self.traces, self.desk.topic, self.group, self.consumer, shards, limit, may_go_on
        )


@pytest.mark.parametrize(("number", "is_whole"), [(1, True), (4, True), (5, False), (12, False)])
def test_a_broadcasts_consumer_has_its_attempts_though_very_many_others_have_theirs(
    stage: Stage, number: int, is_whole: bool
) -> None:
    broadcast = Crowd(stage)
    for n in range(90):
        broadcast.attempt(*range(number), by=f"other-{n}")
    broadcast.attempt(*range(number))
    history = broadcast.latest()
    assert [each.offset for each in history.attempts] == list(reversed(range(number)))[:4]
    assert history.is_whole == is_whole


@pytest.mark.parametrize(("shards", "places"), [((0,), [(0, 80), (0, 40), (0, 0)]), ((), [])])
def test_a_consumer_of_a_queue_has_its_attempts_though_very_many_take_from_its_shard(
    stage: Stage, shards: tuple[int, ...], places: list[tuple[int, int]]
) -> None:
    """Where it has none it is looked for once, as in others'."""
    queue = Crowd(stage, "queue", shards=2)
    for shard in (0, 1):
        queue.attempt(*(n for n in range(120) if n % 40), shard=shard, by="others")
    queue.attempt(*range(0, 120, 40))
    history = queue.latest(shards=shards)
    assert [(each.shard, each.offset) for each in history.attempts] == places
    assert not history.is_whole


@pytest.mark.parametrize("may_go_on", [True, False])
def test_what_lies_too_far_back_is_not_told_and_not_denied(stage: Stage, may_go_on: bool) -> None:
    broadcast = Crowd(stage)
    broadcast.attempt(*range(1, 2_100 if may_go_on else 150), by="another")
    broadcast.attempt(0)
    answers = iter([True, may_go_on])
    history = broadcast.latest(may_go_on=lambda: next(answers, may_go_on))
    assert (list(history.attempts), history.is_whole) == ([], False)


def test_the_success_rate_of_a_group_is_that_of_its_attempts_since_a_moment(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(6))
    desk.nack(group, desk.receive(group, 2), Nack(dead_letter=True, reason="long ago"))
    stage.clock.advance(7_200 * SECOND_MS)
    since_ms = stage.clock.now_ms()
    first, *others = desk.receive(group, 4)
    desk.nack(group, [first], Nack(dead_letter=True, reason="just now"))
    desk.ack(group, others)
    history = attempts_since(stage.adapters.traces, desk.topic, group, since_ms, lambda: True)
    assert (history.success_rate, len(history.attempts), history.is_whole) == (0.75, 4, True)
    assert history.last_failed("another") is None
    last = history.last_failed()
    assert last
    assert last.offset == 2
    assert (
        attempts_since(stage.adapters.traces, desk.topic, group, since_ms + 1, lambda: True).success_rate
        is None
    )
    none = History((), is_whole=True)
    both = together([history, None, none])
    assert both == history
