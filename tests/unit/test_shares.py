"""What may be under way, shared out among a group's deliveries."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from chalicelib.domain.limits import MAX_BATCH, MAX_IN_FLIGHT, MAX_SHARDS
from chalicelib.domain.topic import Group, Topic
from chalicelib.services.wake import share_of, workers_of


@given(
    shards=st.integers(1, MAX_SHARDS),
    max_in_flight=st.integers(1, MAX_IN_FLIGHT),
    batch_size=st.integers(1, MAX_BATCH),
)
def test_shares_add_up_to_what_the_group_allows_and_hold_whole_batches(
    shards: int, max_in_flight: int, batch_size: int
) -> None:
    topic = Topic("orders", "t1", 0, shards=shards)
    group = Group("orders", "shop", "g1", 0, "queue", batch_size=batch_size, max_in_flight=max_in_flight)
    workers = workers_of(topic, group)
    shares = [share_of(topic, group, worker) for worker in range(workers)]
    assert 1 <= workers <= shards
    assert sum(shares) == max_in_flight
    assert max(shares) - min(shares) <= 1
    assert min(shares) >= min(batch_size, max_in_flight)
