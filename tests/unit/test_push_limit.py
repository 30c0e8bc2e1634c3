"""What may be under way, divided among a group's deliveries and cursors."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chalicelib.domain.cursor import Cursor, Lease
from chalicelib.domain.ladder import Retry
from chalicelib.domain.limits import MAX_BATCH, MAX_IN_FLIGHT, MAX_SHARDS
from chalicelib.domain.message import Origin
from chalicelib.domain.pull_share import Seat
from chalicelib.domain.push_limit import InFlight, guaranteed_of, in_flight_of
from chalicelib.domain.spans import Span
from chalicelib.services.consume.claimant import Claimant
from chalicelib.services.core.wake import workers_of
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


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), MOST)
def test_places_count_what_is_leased_and_what_may_be_at_any_moment(counts: list[int], most: int) -> None:
    cursors = len(counts) + 1
    guarantee = most // (4 * cursors)
    lease_counts = {str(n): count for n, count in enumerate(counts)}
    in_flight = InFlight(leased=lease_counts, cursors=cursors, guaranteed=guarantee, most=most)
    assert in_flight.slots == sum(max(guarantee, n) for n in (*counts, 0))
    assert in_flight.slots >= sum(counts)
    slots = in_flight.slots_for_others(["0"])
    assert slots >= 0
    # A run below its guaranteed part wants nothing; a run with its equal part wants no more.
    assert slots <= sum(
        max(0, most // cursors_of(n, counts, guarantee) - n) for n in counts[1:] if n >= guarantee and n
    )


def cursors_of(n: int, counts: list[int], guarantee: int) -> int:
    """Among how many what is allowed is divided: those at work, and who asks."""
    return len({i for i, count in enumerate(counts) if count and count >= guarantee} | {0})


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


def test_what_each_consumer_has_is_counted_over_all_cursors() -> None:
    topic = make.topic(shards=2)
    group = make.group(topic, max_in_flight=60)
    leases = {
        token: Lease(token, (Span(0, 2), Span(9)), START_MS + 1, token[-1]) for token in ("1.a", "2.a", "3.b")
    }
    in_flight = in_flight_of(
        topic, group, {"t/0": Cursor(next=11, leases=leases), "t/1": Cursor(leases=leases)}, START_MS
    )
    assert in_flight.by_consumer == {"a": 12, "b": 6}
    assert (in_flight.cursors, in_flight.guaranteed, in_flight.most) == (3, 5, 60)


def test_a_cursor_at_work_wants_its_equal_part_of_what_is_not_reserved_for_idle_ones() -> None:
    in_flight = InFlight(leased={"0": 1, "1": 20, "2": 2, "3": 1, "4": 0}, cursors=5, guaranteed=2, most=22)
    assert in_flight.slots_for_others(["0"]) == 4, "of three at work, each six of 18: the first is who asks"
    assert in_flight.slots_for_others(["0", "3"]) == 4, "two that are idle ask for one"
    assert in_flight.slots_for_others(["2"]) == 0


def test_a_cursor_between_two_claims_wants_its_part_too() -> None:
    in_flight = InFlight(leased={"0": 8, "1": 0}, cursors=3, guaranteed=2, most=22)
    assert in_flight.slots_for_others(["0"]) == 0
    assert in_flight.slots_for_others(["0"], ["1"]) == 10 - 2, "of 20; two of them it has in any case"
    assert in_flight.slots_for_others(["0"], ["0"]) == 0


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


def test_parts_are_equal_and_in_batches() -> None:
    topic = make.topic()
    claimant = Claimant(topic=topic, group=make.group(topic), lease_seconds=30, parts=3, batch=4)
    assert [claimant.part(None, n, 100, START_MS) for n in (1, 12, 13, 100)] == [4, 4, 8, 36]
    assert claimant.part(None, 100, 5, START_MS) == 5
    assert claimant.claimants == 3
    seated_claimant = replace(claimant, seat=Seat(7, 0, 4, 10))
    assert seated_claimant.claimants == 4
    assert [seated_claimant.part(None, 8, most, START_MS) for most in (1, 10)] == [1, 2]


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
