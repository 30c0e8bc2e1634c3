"""Rate limits on both stores: one account for all processes, and what becomes of what is over it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from chalicelib.domain.call_result import CallResult, PushBatch, Verdict
from chalicelib.domain.errors import HeadraceError, TooLarge, TooMany
from chalicelib.domain.message import DeadReason, Draft
from chalicelib.domain.record import FailureFilter
from chalicelib.domain.request import Request
from chalicelib.domain.status import Because
from chalicelib.domain.times import DAY_MS
from chalicelib.domain.token_bucket import Grant
from chalicelib.domain.topic import cursor_key
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.rate_limiter import RateLimits
from chalicelib.services.produce.appender import ProduceResult
from chalicelib.store.layout import FRAGMENTS
from chalicelib.store.token_buckets import TokenBuckets
from tests.support import factories as make
from tests.support.clock import START_MS, SeededRandom
from tests.support.desk import Desk, require_stored
from tests.support.push import PushDesk
from tests.support.stages import Stage


@pytest.fixture
def token_buckets(stage: Stage) -> TokenBuckets:
    return stage.adapters.token_buckets


def test_an_account_may_be_by_the_hour(token_buckets: TokenBuckets) -> None:
    host, hour_ms = make.uid("handshakes#"), 3_600_000
    assert token_buckets.take(host, 600, 400, START_MS, 3600) == Grant(300, 6_000), "half an hour's at once"
    assert token_buckets.take(host, 600, 1, START_MS + 5_999, 3600) == Grant(0, 1)
    counts = [token_buckets.take(host, 600, 1, START_MS + hour_ms * n // 900, 3600).count for n in range(900)]
    assert sum(counts) in (599, 600, 601)


@pytest.mark.parametrize("another", [False, True])
def test_a_clock_that_is_set_back_stops_nobody(stage: Stage, another: bool) -> None:
    """Neither its process, which stays away from an empty account for a moment, nor others that see the account."""
    topic = make.topic(rate_limit=10)
    before = RateLimits(stage.adapters.token_buckets, stage.clock, SeededRandom())
    assert before.admit(topic, 9) == 5
    stage.clock.advance(-DAY_MS)
    after = RateLimits(stage.another().token_buckets, stage.clock, SeededRandom()) if another else before
    counts = []
    for _ in range(100):
        stage.clock.advance(100)
        counts.append(after.admit(topic, 1))
    assert 95 <= sum(counts) <= 105


def over(outcomes: list[ProduceResult | HeadraceError]) -> list[int]:
    return [i for i, outcome in enumerate(outcomes) if isinstance(outcome, TooMany)]


def test_what_is_refused_anyway_does_not_count(stage: Stage) -> None:
    desk = Desk.at(stage, rate_limit=10, max_body_bytes=20)
    drafts = [*(make.draft("x" * 20) for _ in range(9)), *make.drafts(5)]
    outcomes = desk.deps.producer.produce(desk.topic, drafts)
    assert [type(o) for o in outcomes] == [TooLarge] * 9 + [ProduceResult] * 5


def test_delayed_messages_count_when_they_are_accepted(stage: Stage) -> None:
    desk = Desk.at(stage, rate_limit=4)
    later = [make.draft(n, due_ms=stage.clock.now_ms() + 60_000) for n in range(4)]
    assert over(desk.deps.producer.produce(desk.topic, later)) == [2, 3]
    group = desk.group()
    stage.clock.advance(60_000)
    assert len(desk.receive(group)) == 2


@pytest.mark.parametrize("are_delayed", [False, True])
def test_what_a_repeat_has_stored_takes_no_permit(stage: Stage, are_delayed: bool) -> None:
    """Else the end of a large batch would never be admitted. The messages are equal: none is taken for another."""
    desk, since_ms = Desk.at(stage, rate_limit=10), stage.clock.now_ms()
    ticks = [make.draft("tick", due_ms=since_ms + 60_000 if are_delayed else None)] * 8
    first = desk.deps.producer.produce(desk.topic, ticks, request=Request("shop-1"))
    assert over(first) == [5, 6, 7]
    stage.clock.advance(300)
    again = Request("shop-1", since_ms=since_ms)
    places = require_stored(desk.deps.producer.produce(desk.topic, ticks, request=again))
    assert [place.id for place in places[:5]] == [place.id for place in require_stored(first[:5])]
    assert len({place.id for place in places}) == 8


def flooded(stage: Stage, *drafts: Draft, **settings: Any) -> tuple[Desk, list[ProduceResult]]:
    """A topic that took these messages at once, though it takes but one or two."""
    desk = Desk.at(stage, rate_limit=1, on_rate_limit="dead_letter", **settings)
    return desk, require_stored(desk.deps.producer.produce(desk.topic, drafts))


@pytest.mark.parametrize("mode", ["queue", "serial"])
def test_what_is_over_the_limit_is_a_dead_letter_for_every_group(stage: Stage, mode: str) -> None:
    desk, places = flooded(stage, *make.drafts(4, ordering_key="k"))
    groups = [desk.group(name, mode=mode) for name in ("billing", "audit")]
    for group in groups:
        assert desk.drain(group) == [0]
        letters, _ = desk.deps.letter_lookup.page(desk.topic, group, FailureFilter(), None, 9)
        assert [x.message.id for x in letters] == [p.id for p in places[1:]]
        assert {(x.reason, x.attempts) for x in letters} == {(DeadReason.RATE_LIMITED, 0)}
        message = desk.deps.lookup.message(desk.topic, places[2].id)
        status = desk.deps.statuses.of_topic(desk.topic).delivery(group, message)
        assert status
        assert (status.status, status.attempts, status.reason) == ("DEAD", 0, DeadReason.RATE_LIMITED)


def test_a_group_that_does_not_want_it_gets_no_dead_letter(stage: Stage) -> None:
    desk, _ = flooded(stage, *make.drafts(3, tag="x"))
    group = desk.group(tags=("y",))
    assert desk.drain(group) == []
    assert stage.adapters.records.count_dead(desk.topic.uid, group.uid).number == 0


def test_a_redriven_one_is_delivered_and_may_fail_and_be_redriven_again(stage: Stage) -> None:
    desk, [_, late_message] = flooded(stage, *make.drafts(2))
    group = desk.group()
    desk.drain(group)
    for attempt, reason in ((1, DeadReason.RATE_LIMITED), (2, "REJECTED"), (3, "REJECTED")):
        [letter] = desk.deps.letter_lookup.find(desk.topic, group, late_message.id)
        assert letter.reason == reason
        assert desk.deps.dead_letters.redrive(desk.topic, group, [letter]) == 1
        stage.clock.advance(1_000)  # a lane that gave nothing is let alone for a moment
        [again] = desk.receive(group)
        assert (again.message.id, again.attempt) == (late_message.id, attempt)
        if attempt < 3:
            desk.nack(group, [again], Nack(dead_letter=True))
    assert desk.ack(group, [again]) == [None]
    record = stage.adapters.records.get(cursor_key(desk.topic, group, 0), 1)
    assert record
    assert record.status == "SUCCESS"


def beyond(rate: float, times_ms: list[int]) -> float:
    """By how much the busiest time, however long, is beyond the rate."""
    shares = [(at_ms - times_ms[0]) / 1000 * rate for at_ms in times_ms]
    return max(n + 1 - share - min(i - shares[i] for i in range(n + 1)) for n, share in enumerate(shares))


def test_processes_that_pull_share_a_groups_rate(stage: Stage) -> None:
    """Retries and new messages, of all shards; what the group does not want takes nothing of it."""
    desk = Desk.at(stage, shards=2)
    group = desk.group(rate_limit=20, tags=("a",))
    desk.produce(*make.drafts(150, tag="b", shard=0), *make.drafts(250, tag="a"))
    desks = [replace(desk, deps=stage.process()) for _ in range(4)]
    times_ms: list[int] = []
    reasons = set()
    for turn in range(600):
        taker = desks[turn * 7 % 4]
        received = taker.deps.receiver.receive(desk.topic, group, None, 1 + turn % 5, 0, 30)
        times_ms += [stage.clock.now_ms()] * len(received)
        reasons |= set() if received else {cast(Any, received).because}
        taker.nack(group, received[:1]), taker.ack(group, received[1:])
        stage.clock.advance(20)
    assert len(times_ms) >= 0.95 * 240
    assert beyond(20, times_ms) <= 20 * 0.25 + 2
    assert reasons == {Because.RATE_LIMITED}


def test_a_receive_waits_for_its_permit(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group(rate_limit=0.5)
    desk.produce(*make.drafts(3))
    assert len(desk.receive(group)) == 1
    began_ms = stage.clock.now_ms()
    assert len(desk.deps.receiver.receive(desk.topic, group, None, 10, 20, 30)) == 1
    assert 100 <= stage.clock.now_ms() - began_ms <= 500, "an idle account holds not quite two"
    desk.deps.admin.put_group(desk.topic, group.name, {"rate_limit": None})
    assert len(desk.deps.receiver.receive(desk.topic, group, None, 10, 20, 30)) == 1
    assert stage.clock.now_ms() - began_ms < 5_000, "a change works soon"


@pytest.mark.parametrize(("rate", "shards"), [(0.4, 4), (6, 4), (60, 2)])
def test_a_group_that_is_pushed_to_gets_its_rate(stage: Stage, rate: float, shards: int) -> None:
    desk = PushDesk.at(stage, shards=shards)
    group = desk.group(rate_limit=rate)

    def fails_at_times(batch: PushBatch) -> CallResult:
        [attempt] = batch.attempts
        return CallResult(
            Verdict.FAILED if attempt.number == 1 and attempt.message.offset % 5 == 0 else Verdict.DONE
        )

    desk.subscriber(group, "one", behaviour=fails_at_times)
    seconds, began_ms = max(10, 8 / rate), stage.clock.now_ms()
    desk.produce(*make.drafts(int(rate * seconds * 1.2)))
    desk.push()
    desk.pass_time(max(1, seconds - (stage.clock.now_ms() - began_ms) / 1000))
    times_ms = [call.at_ms for call in desk.subscribers.calls]
    passed = (times_ms[-1] - began_ms) / 1000
    assert passed > 0.9 * seconds
    assert len(times_ms) >= 0.95 * rate * passed - 1
    assert beyond(rate, times_ms) <= rate * 0.25 + 2


def test_of_two_runs_that_wait_for_permits_one_goes_on(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = PushDesk.at(stage)
    group = desk.group(rate_limit=4)
    desk.subscriber(group, "one")
    desk.produce(*make.drafts(9))
    other = replace(desk, deps=stage.process())

    def sleep(seconds: float) -> None:
        stage.clock.advance(round(seconds * 1000))
        other.receive(group, 1)

    monkeypatch.setattr(stage.clock, "sleep", sleep)
    began_ms = stage.clock.now_ms()
    desk.push()
    assert stage.clock.now_ms() - began_ms < 1_000, "it has left the permits to the other"
    fragments = range(FRAGMENTS)
    dues_ms = [desk.deps.adapters.timers.next_ms(each, consistent=True) for each in fragments]
    assert 0 < min(due_ms for due_ms in dues_ms if due_ms) - began_ms <= 6_000, "and looks again"
