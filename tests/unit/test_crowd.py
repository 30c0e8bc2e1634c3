"""What may be under way, divided among a group's deliveries and cursors."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from chalicelib.domain.cursor import Cursor, Lease, Span
from chalicelib.domain.limits import MAX_BATCH, MAX_IN_FLIGHT, MAX_SHARDS
from chalicelib.services.in_flight import Crowd, crowd, sure_of
from chalicelib.services.wake import workers_of
from tests.support import factories as make
from tests.support.clock import START_MS

SHARDS, MOST = st.integers(1, MAX_SHARDS), st.integers(1, MAX_IN_FLIGHT)


@given(shards=SHARDS, most=MOST, batch_size=st.integers(1, MAX_BATCH))
def test_what_cursors_are_sure_of_is_a_quarter_at_most_and_workers_have_something(
    shards: int, most: int, batch_size: int
) -> None:
    topic = make.topic(shards=shards)
    group = make.group(topic, batch_size=batch_size, max_in_flight=most)
    sure, workers = sure_of(topic, group), workers_of(topic, group)
    assert 4 * sure * (shards + 1) <= most
    assert 1 <= workers <= shards
    assert workers == 1 or (sure > 0 and workers * batch_size <= most)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), MOST)
def test_places_count_what_is_leased_and_what_may_be_at_any_moment(counts: list[int], most: int) -> None:
    cursors = len(counts) + 1
    sure = most // (4 * cursors)
    leased = {str(n): count for n, count in enumerate(counts)}
    seen = Crowd(leased, cursors, sure, most)
    assert seen.places == sum(max(sure, n) for n in (*counts, 0))
    assert seen.places >= sum(counts)
    wanted = seen.claims_of_others(["0"])
    assert wanted >= 0
    # Whoever has less than it is sure of wants nothing; whoever has its equal part wants no more.
    assert wanted <= sum(
        max(0, most // cursors_of(n, counts, sure) - n) for n in counts[1:] if n >= sure and n
    )


def cursors_of(n: int, counts: list[int], sure: int) -> int:
    """Among how many what is allowed is divided: those at work, and who asks."""
    return len({i for i, count in enumerate(counts) if count and count >= sure} | {0})


def test_only_leases_that_stand_of_those_that_are_called_count() -> None:
    topic = make.topic(shards=2)
    group = make.group(topic, max_in_flight=10)
    called, pulls = make.consumer(group, "a", kind="url"), make.consumer(group, "b")
    leases = [
        Lease("1.a", (Span(0, 2),), START_MS + 1, called.uid),
        Lease("2.a", (Span(2, 3),), START_MS, called.uid),
        Lease("3.a", (Span(5, 1),), START_MS + 1, pulls.uid),
        Lease("4.a", (Span(6, 1),), START_MS + 1, ""),
        Lease("5.a", (Span(7, 4),), START_MS + 1, "who has left"),
    ]
    cursor = Cursor(next=11, leases={lease.token: lease for lease in leases})
    assert crowd(topic, group, {"t/0": cursor}, [called, pulls], START_MS).leased == {"t/0": 6}
