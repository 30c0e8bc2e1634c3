"""Pure rules of deliveries: batches, their time, the limit in flight, and the report."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chalicelib.domain.assignment import Team
from chalicelib.domain.call_result import CallResult, Verdict
from chalicelib.domain.cursor import Cursor, Lease
from chalicelib.domain.ladder import Retry
from chalicelib.domain.limits import MAX_BATCH, MAX_IN_FLIGHT, MAX_SHARDS
from chalicelib.domain.message import Origin
from chalicelib.domain.push_limit import guaranteed_of, in_flight_of
from chalicelib.domain.spans import Span
from chalicelib.domain.topic import Consumer, ConsumerKind, Group
from chalicelib.services.consume.claimant import Claimant, ClaimedMessage
from chalicelib.services.core.wake import DispatchTask, workers_of
from chalicelib.services.push import settlements
from chalicelib.services.push.run_time import RunTime
from chalicelib.services.push.sources import Sources
from tests.support import factories as make
from tests.support.clock import START_MS

SHARDS, MOST = st.integers(1, MAX_SHARDS), st.integers(1, MAX_IN_FLIGHT)


@given(shards=SHARDS, most=MOST, batch_size=st.integers(1, MAX_BATCH))
def test_what_cursors_are_sure_of_is_a_quarter_or_one_each_and_workers_have_something(
    shards: int, most: int, batch_size: int
) -> None:
    topic = make.topic(shards=shards)
    group = make.group(topic, batch_size=batch_size, max_in_flight=most)
    guarantee, workers = guaranteed_of(topic, group), workers_of(topic, group)
    assert (4 if guarantee > 1 else 3) * guarantee * (shards + 1) <= most
    assert 1 <= workers <= shards
    assert workers == 1 or (guarantee > 0 and workers * batch_size <= most)
    assert not guarantee or workers == shards or (workers + 1) * batch_size > most, "as many as have room"


def test_only_leases_that_stand_of_those_that_are_called_count() -> None:
    topic = make.topic(shards=2)
    group = make.group(topic, max_in_flight=10)
    leases = [
        Lease("1.a", (Span(0, 2),), START_MS + 1, "c1"),
        Lease("2.a", (Span(2, 3),), START_MS, "c1"),
        Lease("3.a-", (Span(5, 1),), START_MS + 1, "c2"),
        Lease("4.a-", (Span(6, 1),), START_MS + 1, ""),
        Lease("5.a", (Span(7, 4),), START_MS + 1, "who has left"),
        Lease("6.a-", (Span(11, 1),), START_MS + 1, "who pulled and has left"),
    ]
    cursor = Cursor(next=12, leases={lease.token: lease for lease in leases})
    assert in_flight_of(topic, group, {"t/0": cursor}, START_MS).leased == {"t/0": 6}


@pytest.mark.parametrize(
    ("in_flight", "free", "room"),
    [(0, 3, 3), (1, 0, 1), (1, 3, 3), (2, 0, 0), (3, 0, 0), (6, 3, 2), (8, 3, 0), (9, 3, 0)],
)
def test_a_cursor_may_have_what_it_is_sure_of_and_what_is_spare(in_flight: int, free: int, room: int) -> None:
    topic = make.topic()
    claimant = Claimant(
        topic=topic, group=make.group(topic), lease_seconds=30, most_in_flight=8, guaranteed=2, free=free
    )
    assert claimant.room(in_flight) == room


def test_the_last_attempt_is_the_messages_the_groups_or_the_topics_and_a_redriven_one_has_as_many_again() -> (
    None
):
    topic = make.topic(retry=Retry(7, (1,)))
    group = make.group(topic)
    plain, again = (
        make.draft(),
        make.draft(origin=Origin("any", 0, 0, 0, attempts=4, attempts_before_redrive=4)),
    )
    assert [
        Claimant(topic=topic, group=group, lease_seconds=30).last_attempt(draft) for draft in (plain, again)
    ] == [7, 11]
    own = Claimant(topic=topic, group=replace(group, retry=Retry(3, (1,))), lease_seconds=30)
    assert [own.last_attempt(draft) for draft in (plain, again)] == [3, 7]
    assert own.last_attempt(replace(again, max_attempts=2)) == 6


OWN_FAILURE = CallResult(Verdict.FAILED, is_own_answer=True)
DONE = CallResult(Verdict.DONE, is_own_answer=True)


def pushing(size: int, payload: str = "batch", kind: str = "url") -> tuple[Group, Consumer]:
    group = make.group(make.topic(), payload=payload, batch_size=size)
    return group, make.consumer(group, kind=ConsumerKind(kind))


@pytest.mark.parametrize(
    ("attempt", "settings", "limit"),
    [
        pytest.param(1, {}, 50, id="the first"),
        pytest.param(2, {}, 7, id="after one failure"),
        pytest.param(3, {}, 1, id="after two"),
        pytest.param(1, {"last_attempt": 1}, 1, id="the first and last"),
        pytest.param(2, {"last_attempt": 2}, 1, id="the last after one failure"),
        pytest.param(6, {"attempts_before_redrive": 5}, 50, id="the first since a redrive"),
        pytest.param(7, {"attempts_before_redrive": 5}, 7, id="the second since a redrive"),
        pytest.param(4, {"attempts_before_entry": 3}, 1, id="the lane does not begin anew"),
    ],
)
def test_a_message_that_failed_is_sent_with_fewer_others(
    attempt: int, settings: dict[str, Any], limit: int
) -> None:
    assert settlements.batch_limit(50, make.claimed_message(attempt, **settings)) == limit


@pytest.mark.parametrize(("size", "limit"), [(8, 1), (9, 3), (16, 4)])
def test_a_small_batch_is_split_into_single_messages(size: int, limit: int) -> None:
    assert settlements.batch_limit(size, make.claimed_message(2)) == limit


@pytest.mark.parametrize(
    ("results", "is_split"),
    [
        ([OWN_FAILURE, OWN_FAILURE], True),
        ([OWN_FAILURE], False),
        ([OWN_FAILURE, DONE], False),
        ([DONE, DONE], False),
        ([OWN_FAILURE, CallResult(Verdict.FAILED)], False),
    ],
)
def test_a_batch_is_split_if_its_subscriber_refused_all_of_it(
    results: list[CallResult], is_split: bool
) -> None:
    assert settlements.is_to_be_split([make.claimed_message()] * len(results), results) is is_split


@pytest.mark.parametrize(
    ("payload", "kind", "size"),
    [("batch", "url", 10), ("binary", "function", 10), ("binary", "url", 1), ("structured", "url", 1)],
)
def test_functions_get_batches_and_whoever_asked_for_them(payload: str, kind: str, size: int) -> None:
    assert settlements.batch_of(*pushing(10, payload, kind)) == size


@given(size=st.integers(1, 30), attempts=st.lists(st.integers(1, 4), max_size=60))
def test_every_message_is_in_one_batch_that_is_as_large_as_its_messages_allow(
    size: int, attempts: list[int]
) -> None:
    messages = [
        make.claimed_message(attempt, offset, last_attempt=4) for offset, attempt in enumerate(attempts)
    ]
    push_batches = list(settlements.in_batches(*pushing(size), messages))
    messages_sent = [each for push_batch in push_batches for each in push_batch]
    assert sorted(each.receipt.offset for each in messages_sent) == list(range(len(messages)))
    assert all(len(push_batch) <= smallest_limit(size, push_batch) for push_batch in push_batches)
    for push_batch, next_batch in pairwise(push_batches):
        assert len(push_batch) + 1 > smallest_limit(size, [*push_batch, next_batch[0]]), (
            "one more would have fitted"
        )


def smallest_limit(size: int, push_batch: list[ClaimedMessage]) -> int:
    return min(settlements.batch_limit(size, each) for each in push_batch)


TOPIC = make.topic(lease_seconds=40)
GROUP = make.group(TOPIC)
URL = make.consumer(GROUP, "url", kind=ConsumerKind.URL)
PATIENT = make.consumer(GROUP, "patient", kind=ConsumerKind.URL, timeout_seconds=840)
QUICK = make.consumer(GROUP, "quick", kind=ConsumerKind.FUNCTION, timeout_seconds=20)
SLOW = make.consumer(GROUP, "slow", kind=ConsumerKind.FUNCTION, timeout_seconds=200)
UNKNOWN = make.consumer(GROUP, "unknown", kind=ConsumerKind.FUNCTION)


def sources(*consumers: Consumer, lease_seconds: int | None = None) -> Sources:
    group = make.group(TOPIC, lease_seconds=lease_seconds)
    return Sources(TOPIC, group, DispatchTask(TOPIC.name, group.name), Team(consumers, consumers))


@pytest.mark.parametrize(
    ("consumer", "lease_seconds", "at_start", "attempt", "lease"),
    [
        pytest.param(URL, 300, 600, 30, 36, id="a URL's default, whatever the lease"),
        pytest.param(URL, None, 40, 20, 26, id="half of a short run"),
        pytest.param(PATIENT, 12, 900, 840, 846, id="a URL's own"),
        pytest.param(UNKNOWN, 300, 600, 60, 916, id="a minute at most"),
        pytest.param(QUICK, None, 600, 30, 36, id="a function's time-out, and its start"),
        pytest.param(SLOW, None, 120, 110, 216, id="a function that the run may not see ending"),
        pytest.param(UNKNOWN, None, 600, 40, 916, id="a function whose time-out is not known"),
    ],
)
def test_an_attempt_and_its_lease(
    consumer: Consumer, lease_seconds: int | None, at_start: float, attempt: float, lease: int
) -> None:
    time, here = RunTime(lambda: at_start), sources(consumer, lease_seconds=lease_seconds)
    assert time.attempt_seconds(here, consumer) == attempt
    assert time.lease_seconds(here, consumer) == time.longest_lease_seconds(here) == lease


def test_the_slowest_consumer_decides_for_all() -> None:
    answers = [600.0]
    time, both = RunTime(lambda: answers[0]), sources(QUICK, SLOW)
    assert time.longest_lease_seconds(both) == 216
    for seconds, is_allowed in ((215.0, True), (214.9, False), (215.0, True)):
        answers[0] = seconds
        assert time.allows_attempt(both) is is_allowed
        assert time.ran_out is not is_allowed
    assert time.longest_lease_seconds(sources()) == 0


@pytest.mark.parametrize(("seconds", "is_allowed"), [(5.0, True), (4.9, False)])
def test_a_settlement_needs_some_seconds(seconds: float, is_allowed: bool) -> None:
    assert RunTime(lambda: seconds).allows_settlement() is is_allowed
