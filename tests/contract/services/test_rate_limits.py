"""Rate limits on both stores: one account for all processes, and what becomes of what is over it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import pytest

from chalicelib.domain.errors import HeadraceError, TooLarge, TooMany, Unavailable
from chalicelib.domain.message import DeadReason, Draft
from chalicelib.domain.record import FailureFilter
from chalicelib.domain.request import Request
from chalicelib.domain.times import DAY_MS
from chalicelib.domain.token_bucket import Grant
from chalicelib.domain.topic import cursor_key
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.rate_limiter import RateLimits
from chalicelib.services.produce.appender import ProduceResult
from chalicelib.store.log import Log
from chalicelib.store.token_buckets import TokenBuckets
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.desk import Desk, require_stored
from tests.support.stages import Stage
from tests.support.troubled import Troubled


@pytest.fixture
def token_buckets(stage: Stage) -> TokenBuckets:
    return stage.adapters.token_buckets


def test_an_account_may_be_by_the_hour(token_buckets: TokenBuckets) -> None:
    host, hour_ms = make.uid("handshakes#"), 3_600_000
    assert token_buckets.take(host, 600, 400, START_MS, 3600) == Grant(300, 6_000), "half an hour's at once"
    assert token_buckets.take(host, 600, 1, START_MS + 5_999, 3600) == Grant(0, 1)
    counts = [token_buckets.take(host, 600, 1, START_MS + hour_ms * n // 900, 3600).count for n in range(900)]
    assert sum(counts) in (599, 600, 601)


def test_an_account_gives_what_it_has_and_says_when_it_has_more(token_buckets: TokenBuckets) -> None:
    uid = make.uid("t")
    assert token_buckets.take(uid, 10, 3, START_MS) == Grant(3)
    assert token_buckets.take(uid, 10, 3, START_MS) == Grant(2, 100)
    assert token_buckets.take(uid, 10, 3, START_MS + 99) == Grant(0, 1)
    assert token_buckets.take(uid, 10, 3, START_MS + 100) == Grant(1, 100)
    assert token_buckets.take(uid + "x", 10, 3, START_MS) == Grant(3), "another topic's"


def test_racing_processes_get_no_more_than_there_is(stage: Stage) -> None:
    uid, start = make.uid("t"), threading.Barrier(6)
    accounts = [stage.another().token_buckets for _ in range(6)]

    def work(n: int) -> int:
        start.wait()
        return sum(accounts[n].take(uid, 100, 3, START_MS).count for _ in range(6))

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(work, range(6))) <= 50
    token_buckets = stage.adapters.token_buckets
    assert token_buckets.take(uid, 100, 50, START_MS + 500).count == 50


def test_processes_share_a_topics_rate(stage: Stage) -> None:
    topic = make.topic(rate_limit=100)
    processes = [RateLimits(stage.another().token_buckets, stage.clock) for _ in range(3)]
    counts = []
    for n in range(4_000):
        counts.append(processes[n * 7 % 3].admit(topic, 1))
        stage.clock.advance(3)
    assert 950 <= sum(counts[:3_333]) <= 1_050
    assert 950 <= sum(counts[-3_333:]) <= 1_050


@pytest.mark.parametrize("another", [False, True])
def test_a_clock_that_is_set_back_stops_nobody(stage: Stage, another: bool) -> None:
    """Neither its process, which stays away from an empty account for a moment, nor others that see the account."""
    topic = make.topic(rate_limit=10)
    before = RateLimits(stage.adapters.token_buckets, stage.clock)
    assert before.admit(topic, 9) == 5
    stage.clock.advance(-DAY_MS)
    after = RateLimits(stage.another().token_buckets, stage.clock) if another else before
    counts = []
    for _ in range(100):
        stage.clock.advance(100)
        counts.append(after.admit(topic, 1))
    assert 95 <= sum(counts) <= 105


def over(outcomes: list[ProduceResult | HeadraceError]) -> list[int]:
    return [i for i, outcome in enumerate(outcomes) if isinstance(outcome, TooMany)]


def test_of_a_batch_the_first_are_stored_and_the_rest_are_told_so(stage: Stage) -> None:
    desk = Desk.at(stage, rate_limit=10)
    outcomes = desk.deps.producer.produce(desk.topic, make.drafts(8))
    assert over(outcomes) == [5, 6, 7]
    [problem] = {(o.code, o.retryable, o.retry_after_seconds) for o in outcomes if isinstance(o, TooMany)}
    assert problem == ("RATE_LIMITED", True, 1)
    assert [d.body for row in desk.rows() for d in row.drafts] == [d.body for d in make.drafts(5)]
    stage.clock.advance(1_000)
    assert over(desk.deps.producer.produce(desk.topic, make.drafts(5))) == []


def test_what_is_refused_anyway_does_not_count(stage: Stage) -> None:
    desk = Desk.at(stage, rate_limit=10, max_body_bytes=20)
    drafts = [*(make.draft("x" * 20) for _ in range(9)), *make.drafts(5)]
    outcomes = desk.deps.producer.produce(desk.topic, drafts)
    assert [type(o) for o in outcomes] == [TooLarge] * 9 + [ProduceResult] * 5


def test_what_is_refused_anyway_does_not_count_where_it_is_prepared(stage: Stage) -> None:
    desk = Desk.at(stage, rate_limit=2, max_body_bytes=20)
    good, bad = make.draft(), make.draft("x" * 20)
    for _ in range(3):
        with pytest.raises(TooLarge):
            desk.deps.producer.admit(desk.topic, bad)
    assert desk.deps.producer.admit(desk.topic, good) is good
    with pytest.raises(TooMany):
        desk.deps.producer.admit(desk.topic, good)


def test_delayed_messages_count_when_they_are_accepted(stage: Stage) -> None:
    desk = Desk.at(stage, rate_limit=4)
    later = [make.draft(n, due_ms=stage.clock.now_ms() + 60_000) for n in range(4)]
    assert over(desk.deps.producer.produce(desk.topic, later)) == [2, 3]
    group = desk.group()
    stage.clock.advance(60_000)
    assert len(desk.receive(group)) == 2


def test_repeating_what_was_stored_counts_as_any_message(stage: Stage) -> None:
    desk = Desk.at(stage, rate_limit=2)
    twin = make.draft(1, dedup_id="d")
    [first] = require_stored(desk.deps.producer.produce(desk.topic, [twin]))
    assert over(desk.deps.producer.produce(desk.topic, [twin])) == [0]
    stage.clock.advance(1_000)
    [again] = require_stored(desk.deps.producer.produce(desk.topic, [twin]))
    assert (again.id, again.duplicate) == (first.id, True)


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


def test_where_a_repeat_cannot_look_back_each_message_says_so(stage: Stage) -> None:
    desk = Desk.at(stage, rate_limit=10)
    log = Troubled(stage.adapters.log, lambda name, *_: name in ("read_back", "tail"))
    deps = Deps(replace(stage.another(), log=cast(Log, log)))
    again = Request("shop-1", since_ms=stage.clock.now_ms())
    outcomes = deps.producer.produce(desk.topic, make.drafts(2), request=again)
    assert [type(outcome) for outcome in outcomes] == [Unavailable] * 2


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
        status = desk.deps.statuses.delivery(desk.topic, group, message)
        assert status
        assert (status.status, status.attempts, status.reason) == ("DEAD", 0, DeadReason.RATE_LIMITED)


def test_every_consumer_of_a_broadcast_has_its_own(stage: Stage) -> None:
    desk = Desk.at(stage, rate_limit=1, on_rate_limit="dead_letter")
    group = desk.group(mode="broadcast")
    fans = [desk.consumer(group, name) for name in ("one", "two")]
    places = require_stored(desk.deps.producer.produce(desk.topic, make.drafts(2)))
    for fan in fans:
        assert desk.drain(group, consumer=fan) == [0]
    assert len(desk.deps.letter_lookup.find(desk.topic, group, places[1].id)) == 2


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


def test_a_redriven_one_that_succeeds_at_once_is_a_success(stage: Stage) -> None:
    desk, [_, late_message] = flooded(stage, *make.drafts(2))
    group = desk.group()
    desk.drain(group)
    desk.deps.dead_letters.redrive(
        desk.topic, group, desk.deps.letter_lookup.find(desk.topic, group, late_message.id)
    )
    stage.clock.advance(1_000)
    assert desk.ack(group, desk.receive(group)) == [None]
    message = desk.deps.lookup.message(desk.topic, late_message.id)
    status = desk.deps.statuses.delivery(desk.topic, group, message)
    assert status
    assert (status.status, status.attempts) == ("SUCCESS", 1)


def test_a_letter_of_an_expired_message_says_why_it_was_not_delivered(stage: Stage) -> None:
    desk, [_, late_message] = flooded(stage, *make.drafts(2, expires_ms=START_MS + 1))
    group = desk.group()
    stage.clock.advance(60_000)
    assert desk.drain(group) == []
    [letter] = desk.deps.letter_lookup.find(desk.topic, group, late_message.id)
    assert letter.reason == DeadReason.RATE_LIMITED
